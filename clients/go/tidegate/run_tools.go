package tidegate

import (
	"context"
	"iter"

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
}

// RunTools starts a conversation in which the calls of the model are carried out, one after the other, and answered. A tool that fails tells
// the model so, in the words of its error. The tools are among the parts, or among those of the session.
func RunTools(ctx context.Context, c Chatter, parts ...Part) *ToolRun {
	return &ToolRun{ctx: ctx, chatter: c, request: c.newRequest(parts)}
}

// Events gives the events of all turns. Leaving the loop early cancels the turn that runs.
func (r *ToolRun) Events() iter.Seq2[*Event, error] {
	return func(yield func(*Event, error) bool) {
		for range r.request.rounds {
			r.turn = r.chatter.start(r.ctx, r.nextRequest())
			for event, err := range r.turn.Events() {
				if !yield(event, err) || err != nil {
					return
				}
			}
			calls, err := r.close()
			if err != nil {
				yield(nil, err)
			}
			if err != nil || len(calls) == 0 {
				return
			}
			r.carryOut(calls)
		}
		yield(nil, &Error{Code: codes.Aborted, Reason: ReasonTooManyRounds, Message: "the model goes on calling tools"})
	}
}

// Text waits for the end, and gives the text of the last answer.
func (r *ToolRun) Text() (string, error) {
	for _, err := range r.Events() {
		if err != nil {
			return "", err
		}
	}
	return r.turn.Text(r.ctx)
}

// Messages is what the conversation has gained: calls, their results, and the answer.
func (r *ToolRun) Messages() Messages { return r.added }

// Usage counts the tokens of all turns that have ended.
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
	r.added.addTo(&next)
	return &next
}

// close takes the answer of a turn that has ended, and gives the calls to carry out.
func (r *ToolRun) close() ([]ToolCall, error) {
	r.usage.PromptTokens += r.turn.Usage().GetPromptTokens()
	r.usage.CompletionTokens += r.turn.Usage().GetCompletionTokens()
	r.usage.CachedTokens += r.turn.Usage().GetCachedTokens()
	calls := r.turn.ToolCalls()
	if len(calls) > 0 && r.turn.FinishReason() != FinishToolCalls {
		return nil, dataLost(ReasonOutputIncomplete, "the answer was cut within a call")
	}
	r.added = append(r.added, Assistant(r.turn.text(), calls...))
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
		return "error: there is no such tool"
	}
	text, err := tool.Run(r.ctx, call.Arguments)
	if err != nil {
		return "error: " + err.Error()
	}
	return text
}
