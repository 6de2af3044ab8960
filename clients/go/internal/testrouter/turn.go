package testrouter

import (
	tidegatev1 "tidegate.dev/sdk/go/tidegate/v1"

	spb "google.golang.org/genproto/googleapis/rpc/status"
)

// Turn is a turn as the router has it.
type Turn struct {
	Spec      *tidegatev1.TurnSpec
	Cancelled <-chan struct{}

	stream   *stream
	number   uint32
	sequence uint64
	tokens   uint32
	cancel   func()
}

// Prompt is what the last message says.
func (t *Turn) Prompt() string { return t.Spec.GetMessages()[len(t.Spec.GetMessages())-1].GetContent() }

// Start says that a worker has the turn.
func (t *Turn) Start() {
	t.put(&tidegatev1.Event{Event: &tidegatev1.Event_Started{Started: &tidegatev1.Started{Model: "test", Worker: "w"}}})
}

// Say adds to the answer.
func (t *Turn) Say(texts ...string) {
	for _, text := range texts {
		t.tokens += uint32(len(text))
		t.put(&tidegatev1.Event{Event: &tidegatev1.Event_TextDelta{TextDelta: &tidegatev1.TextDelta{Text: text}}})
	}
}

// Call adds a tool call to the answer, in pieces.
func (t *Turn) Call(index uint32, name, arguments string) {
	half := len(arguments) / 2
	for _, delta := range []*tidegatev1.ToolCallDelta{
		{Index: index, CallId: name + "-1", Name: name, ArgumentsJson: arguments[:half]}, {Index: index, ArgumentsJson: arguments[half:]},
	} {
		t.put(&tidegatev1.Event{Event: &tidegatev1.Event_ToolCallDelta{ToolCallDelta: delta}})
	}
}

// Finish ends the turn, its tokens being the bytes of its text.
func (t *Turn) Finish(reason tidegatev1.FinishReason) {
	t.put(&tidegatev1.Event{Event: &tidegatev1.Event_Usage{Usage: &tidegatev1.Usage{PromptTokens: 1, CompletionTokens: t.tokens}}})
	t.put(&tidegatev1.Event{Event: &tidegatev1.Event_Finished{Finished: &tidegatev1.Finished{FinishReason: reason}}})
}

// Answer is a whole turn.
func (t *Turn) Answer(texts ...string) {
	t.Start()
	t.Say(texts...)
	t.Finish(tidegatev1.FinishReason_FINISH_REASON_STOP)
}

// Wait goes on until the turn is cancelled, and ends it so.
func (t *Turn) Wait() {
	<-t.Cancelled
	t.Finish(tidegatev1.FinishReason_FINISH_REASON_CANCELLED)
}

// Fail ends the turn with a status.
func (t *Turn) Fail(s *spb.Status) {
	t.put(&tidegatev1.Event{Event: &tidegatev1.Event_Failed{Failed: &tidegatev1.Failed{Status: s}}})
}

func (t *Turn) put(event *tidegatev1.Event) {
	t.sequence++
	event.Turn, event.Sequence = t.number, t.sequence
	t.stream.put(event)
}
