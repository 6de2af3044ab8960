package tidegate

import (
	"context"
	"encoding/json"
	"errors"
	"iter"
	"log/slog"

	tidegatev1 "tidegate.dev/sdk/go/tidegate/v1"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
)

// ToolRun is a conversation in which the model calls tools: turn after turn, until it answers without a call. Its methods are for one
// goroutine.
type ToolRun struct {
	ctx     context.Context
	chatter Chatter
	request *request
	turn    *Turn
	added   Messages
	usage   Usage
	err     error
}

// RunTools makes a conversation in which the calls of the model are carried out, one after the other, and answered. The tools are among
// the parts, or among those of the session. Each answer is a turn with the whole conversation, so it can be tried again, or go to another
// router, like any turn. It begins when its events or text are asked for.
func RunTools(ctx context.Context, c Chatter, parts ...Part) *ToolRun {
	return &ToolRun{ctx: ctx, chatter: c, request: c.newRequest(parts)}
}

// Events gives the events of all turns, once. Leaving the loop early cancels the turn that runs.
func (r *ToolRun) Events() iter.Seq2[*Event, error] {
	return func(yield func(*Event, error) bool) {
		for round := 1; r.ask(yield); round++ {
			calls, err := r.calls(round)
			if err != nil {
				r.err = err
				yield(nil, err)
			}
			if err != nil || len(calls) == 0 {
				return
			}
			r.carryOut(calls)
		}
	}
}

// ask has one turn, and tells whether it came to its end.
func (r *ToolRun) ask(yield func(*Event, error) bool) bool {
	r.turn = r.chatter.start(r.ctx, r.nextRequest())
	defer r.addUsage()
	for event, err := range r.turn.Events() {
		if !yield(event, err) || err != nil {
			return false
		}
	}
	return true
}

// Text waits for the end, and gives the text of the last answer. A run that was left with a call to carry out has none.
func (r *ToolRun) Text() (string, error) {
	if r.turn == nil {
		for range r.Events() { // an error stays with the run or its turn
		}
	}
	if r.err == nil && r.FinishReason() == FinishToolCalls {
		r.err = cancelled("the run was left")
	}
	if r.err != nil {
		return "", r.err
	}
	return r.turn.Text(r.ctx)
}

// Messages is what the conversation has gained: calls, their results, and the answer.
func (r *ToolRun) Messages() Messages { return r.added }

// Usage counts the tokens of all turns.
func (r *ToolRun) Usage() *Usage { return &r.usage }

// FinishReason says why the last turn ended.
func (r *ToolRun) FinishReason() FinishReason {
	if r.turn == nil {
		return FinishUnknown
	}
	return r.turn.FinishReason()
}

// nextRequest is the request with the conversation so far.
func (r *ToolRun) nextRequest() *request {
	next := *r.request
	next.spec = proto.CloneOf(r.request.spec)
	if len(r.added) > 0 && next.spec.GetToolChoice().GetMode() != tidegatev1.ToolMode_TOOL_MODE_NONE {
		next.spec.ToolChoice = nil // a call is forced once; what follows is up to the model
	}
	r.added.addTo(&next)
	return &next
}

func (r *ToolRun) addUsage() {
	usage := r.turn.Usage()
	r.usage.PromptTokens += usage.GetPromptTokens()
	r.usage.CompletionTokens += usage.GetCompletionTokens()
	r.usage.CachedTokens += usage.GetCachedTokens()
}

// calls takes the answer of this round's turn, and gives the calls in it.
func (r *ToolRun) calls(round int) ([]ToolCall, error) {
	calls := r.turn.ToolCalls()
	r.added = append(r.added, Assistant(r.turn.text(), calls...))
	switch {
	case len(calls) > 0 && r.turn.FinishReason() != FinishToolCalls:
		return nil, dataLost(ReasonOutputIncomplete, "the answer was cut within a call")
	case len(calls) > 0 && round >= r.request.rounds:
		return nil, &Error{Code: codes.Aborted, Reason: ReasonTooManyRounds, Message: "the model called tools in each round"}
	}
	return calls, nil
}

func (r *ToolRun) carryOut(calls []ToolCall) {
	for _, call := range calls {
		r.added = append(r.added, ToolResult(call, r.result(call)))
	}
}

// result is what the model is told about a call.
func (r *ToolRun) result(call ToolCall) string {
	tool, known := r.request.tools[call.Name]
	if !known || tool.Run == nil {
		return failureText("there is no such tool")
	}
	text, err := tool.Run(r.ctx, call.Arguments)
	if failed, ok := errors.AsType[ToolFailed](err); ok {
		return failureText(string(failed))
	}
	if err != nil {
		slog.ErrorContext(r.ctx, "tool failed", "tool", call.Name, "error", err)
		return failureText("the tool failed")
	}
	return text
}

func failureText(message string) string {
	text, _ := json.Marshal(map[string]string{"error": message})
	return string(text)
}
