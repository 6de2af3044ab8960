package tidegate_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"tidegate.dev/sdk/go/internal/testrouter"
	"tidegate.dev/sdk/go/tidegate"
)

type numbers struct {
	A int `json:"a"`
	B int `json:"b"`
}

type sum struct {
	Sum int `json:"sum"`
}

var add = tidegate.NewTool("add", "Adds.", func(_ context.Context, n numbers) (sum, error) { return sum{n.A + n.B}, nil })

// calling answers with this call until the model has its result, then with the result.
func calling(name, arguments string) testrouter.Play {
	return func(turn *testrouter.Turn) {
		turn.Start()
		if len(turn.Spec.GetMessages()) > 1 {
			turn.Say(turn.Prompt())
			turn.Finish(tidegate.FinishStop)
			return
		}
		turn.Call(0, name, arguments)
		turn.Finish(tidegate.FinishToolCalls)
	}
}

// A call is carried out, its result is told to the model, and the conversation is there afterwards.
func TestRunTools(t *testing.T) {
	router, client := bench(t, calling("add", `{"a": 2, "b": 3}`))
	run := tidegate.RunTools(t.Context(), client, tidegate.User("2 + 3?"), add)
	text, err := run.Text()
	must(t, err)
	if text != `{"sum":5}` || len(run.Messages()) != 3 || run.Usage().GetPromptTokens() != 2 || run.FinishReason() != tidegate.FinishStop {
		t.Errorf("%q, %v, %v", text, run.Messages(), run.Usage())
	}
	spec := router.Seen().Specs[1]
	call := spec.GetMessages()[1].GetToolCalls()[0]
	if call.GetName() != "add" || call.GetArgumentsJson() != `{"a": 2, "b": 3}` || spec.GetMessages()[2].GetToolCallId() != call.GetId() {
		t.Error(spec)
	}
}

// A run that is left between two answers has no text; behind the last one it has.
func TestLeftRun(t *testing.T) {
	_, client := bench(t, calling("add", `{"a": 2, "b": 3}`))
	for reason, want := range map[tidegate.FinishReason]string{tidegate.FinishToolCalls: "", tidegate.FinishStop: `{"sum":5}`} {
		run := tidegate.RunTools(t.Context(), client, tidegate.User("2 + 3?"), add)
		for event, err := range run.Events() {
			must(t, err)
			if event.GetFinished().GetFinishReason() == reason {
				break
			}
		}
		if text, err := run.Text(); text != want || (err != nil) != (want == "") {
			t.Errorf("%v: %q, %v", reason, text, err)
		}
	}
}

// A call that is forced is forced once.
func TestForcedTool(t *testing.T) {
	router, client := bench(t, calling("add", `{"a": 2, "b": 3}`))
	_, err := tidegate.RunTools(t.Context(), client, tidegate.User("2 + 3?"), add, tidegate.ForceTool("add")).Text()
	must(t, err)
	specs := router.Seen().Specs
	if specs[0].GetToolChoice().GetTool() != "add" || specs[1].GetToolChoice() != nil {
		t.Error(specs)
	}
}

// What goes wrong with a call is told to the model; the words of an unexpected error are not.
func TestFailingTools(t *testing.T) {
	cases := []struct {
		err  error
		want string
	}{
		{tidegate.ToolFailed("no such city"), `{"error":"no such city"}`},
		{fmt.Errorf("asking: %w", tidegate.ToolFailed("no such city")), `{"error":"no such city"}`},
		{errors.New("password=hunter2"), `{"error":"the tool failed"}`},
	}
	for _, c := range cases {
		tool := tidegate.NewTool("find", "Finds.", func(context.Context, struct{}) (string, error) { return "", c.err })
		_, client := bench(t, calling("find", ""))
		text, err := tidegate.RunTools(t.Context(), client.Session(t.Context(), tool), tidegate.User("go")).Text()
		if err != nil || text != c.want {
			t.Errorf("%s, %v", text, err)
		}
	}
}

// Leaving the loop cancels the turn, whatever round it is.
func TestLeavingTheToolsLoop(t *testing.T) {
	router, client := bench(t, func(turn *testrouter.Turn) {
		if len(turn.Spec.GetMessages()) == 1 {
			calling("add", "{}")(turn)
			return
		}
		endless(turn)
	})
	for event, err := range tidegate.RunTools(t.Context(), client, tidegate.User("go"), add).Events() {
		must(t, err)
		if event.GetTextDelta() != nil {
			break
		}
	}
	if seen := router.Seen(); seen.Cancels != 1 || len(seen.Specs) != 2 {
		t.Errorf("%d cancels, %d turns", seen.Cancels, len(seen.Specs))
	}
}

// A type without a schema is told where it is used.
func TestBadTypes(t *testing.T) {
	_, client := bench(t, endless)
	tool := tidegate.NewTool("f", "", func(context.Context, chan int) (string, error) { return "", nil })
	if _, err := tidegate.RunTools(t.Context(), client, tidegate.User("go"), tool).Text(); err == nil {
		t.Error("a tool of channels")
	}
	if _, err := tidegate.ChatInto[func()](t.Context(), client, tidegate.User("go")); err == nil {
		t.Error("an answer of functions")
	}
}

// The answer is a value, and the model is held to its schema.
func TestChatInto(t *testing.T) {
	router, client := bench(t, func(turn *testrouter.Turn) { turn.Answer(`{"sum":`, `7}`) })
	value, err := tidegate.ChatInto[sum](t.Context(), client, tidegate.User("3 + 4?"))
	if err != nil || value.Sum != 7 {
		t.Errorf("%v, %v", value, err)
	}
	const want = `{"type":"object","properties":{"sum":{"type":"integer"}},"required":["sum"],"additionalProperties":false}`
	if got := router.Seen().Specs[0].GetResponseFormat().GetJsonSchema(); got != want {
		t.Error(got)
	}
}
