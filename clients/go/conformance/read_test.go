package conformance_test

import (
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"strings"

	"tidegate.dev/sdk/go/tidegate"

	"google.golang.org/grpc/codes"
)

// readEvents reads a turn in a loop, and does the actions that become due in it.
func (p *player) readEvents(ctx context.Context, parts []tidegate.Part, actions []action) (sight, error) {
	turn := p.chatter().Chat(ctx, parts...)
	l := &loop{player: p, turn: turn, actions: actions}
	err := l.read()
	saw := sightOf(turn)
	saw.Text, saw.TextStarts, saw.Order = &l.text, &l.text, l.order
	return saw, err
}

// loop is the reading of one turn.
type loop struct {
	player  *player
	turn    *tidegate.Turn
	actions []action
	events  int
	deltas  int
	text    phrase
	order   []string
}

func (l *loop) read() error {
	for event, err := range l.turn.Events() {
		if err != nil {
			return err
		}
		l.note(event)
		if leaves, err := l.act(); leaves || err != nil {
			return err
		}
	}
	return nil
}

func (l *loop) note(event *tidegate.Event) {
	message := event.ProtoReflect()
	kind := string(message.WhichOneof(message.Descriptor().Oneofs().ByName("event")).Name())
	if kind == "queued" {
		return
	}
	l.events++
	if delta := event.GetTextDelta(); delta != nil {
		l.deltas++
		l.text += phrase(delta.GetText())
	}
	if kind != "logprobs" && (len(l.order) == 0 || l.order[len(l.order)-1] != kind) {
		l.order = append(l.order, kind)
	}
}

// act does what has become due, and tells whether to leave the loop.
func (l *loop) act() (leaves bool, err error) {
	for len(l.actions) > 0 && l.actions[0].isDue(l.events, l.deltas) && !leaves && err == nil {
		due := l.actions[0]
		l.actions = l.actions[1:]
		err = l.player.do([]action{due})
		switch due["do"] {
		case "cancel":
			l.turn.Cancel()
		case "break":
			leaves = true
		case "leave":
			leaves = true
			l.player.session.Close()
		}
	}
	return leaves, err
}

// readText reads a turn by the convenience.
func (p *player) readText(ctx context.Context, parts []tidegate.Part) (sight, error) {
	turn := p.chatter().Chat(ctx, parts...)
	text, err := turn.Text(ctx)
	saw := sightOf(turn)
	saw.Text = new(phrase(text))
	return saw, err
}

// readInto reads a turn as a value.
func (p *player) readInto(ctx context.Context, parts []tidegate.Part) (sight, error) {
	turn := p.chatter().Chat(ctx, parts...)
	value, err := tidegate.Into[city](ctx, turn)
	saw := sightOf(turn)
	if err == nil {
		saw.Value = map[string]any{"name": value.Name, "population": float64(value.Population)}
	}
	return saw, err
}

// runTools reads the turns of the tools loop.
func (p *player) runTools(ctx context.Context, parts []tidegate.Part) (sight, error) {
	run := tidegate.RunTools(ctx, p.chatter(), parts...)
	text, err := run.Text()
	return sight{Text: new(phrase(text)), Finish: finishName(run.FinishReason()), Ran: &p.ran}, err
}

func sightOf(turn *tidegate.Turn) sight {
	tokens := turn.Usage().GetCompletionTokens()
	return sight{Finish: finishName(turn.FinishReason()), CompletionTokens: &tokens}
}

// tools are the functions that the table knows; they note what they ran.
func (p *player) tools(names []string) (parts []tidegate.Part) {
	type numbers struct{ A, B int }
	type words struct{ Text string }
	known := map[string]tidegate.Tool{
		"add": tidegate.NewTool("add", "Adds two numbers.", func(_ context.Context, n numbers) (string, error) {
			return strconv.Itoa(n.A + n.B), nil
		}),
		"shout": tidegate.NewTool("shout", "Puts a text in upper case.", func(_ context.Context, w words) (string, error) {
			return strings.ToUpper(w.Text), nil
		}),
		"fail": tidegate.NewTool("fail", "Fails.", func(context.Context, struct{}) (string, error) {
			return "", errors.New("it does")
		}),
	}
	for _, name := range names {
		parts = append(parts, p.noting(known[name]))
	}
	return parts
}

func (p *player) noting(tool tidegate.Tool) tidegate.Tool {
	run := tool.Run
	tool.Run = func(ctx context.Context, arguments string) (string, error) {
		call := toolCall{Name: tool.Name}
		json.Unmarshal([]byte(arguments), &call.Arguments)
		result, err := run(ctx, arguments)
		if err == nil {
			call.Result = &result
		}
		p.ran = append(p.ran, call)
		return result, err
	}
	return tool
}

// codeName is gRPC's own name of a code, as other languages have it.
func codeName(code codes.Code) string {
	names := map[codes.Code]string{
		codes.InvalidArgument: "INVALID_ARGUMENT", codes.DeadlineExceeded: "DEADLINE_EXCEEDED", codes.NotFound: "NOT_FOUND",
		codes.Aborted: "ABORTED", codes.Internal: "INTERNAL", codes.Unavailable: "UNAVAILABLE", codes.DataLoss: "DATA_LOSS",
	}
	return names[code]
}
