package tidegate

import (
	"strings"

	tidegatev1 "tidegate.dev/sdk/go/tidegate/v1"
)

// answer is what the events of a turn add up to.
type answer struct {
	text  strings.Builder
	calls []ToolCall
	begun bool // something of it has come: the turn is not tried again
	whole bool
}

func (a *answer) add(event *Event) {
	switch e := event.GetEvent().(type) {
	case *tidegatev1.Event_TextDelta:
		a.begun = true
		a.text.WriteString(e.TextDelta.GetText())
	case *tidegatev1.Event_ToolCallDelta:
		a.begun = true
		a.addToCall(e.ToolCallDelta)
	case *tidegatev1.Event_Logprobs:
		a.begun = true
	case *tidegatev1.Event_Finished:
		a.whole = true
	}
}

// addToCall adds a piece of a tool call; calls come one after the other.
func (a *answer) addToCall(delta *tidegatev1.ToolCallDelta) {
	if int(delta.GetIndex()) == len(a.calls) {
		a.calls = append(a.calls, ToolCall{})
	}
	if call := a.call(delta.GetIndex()); call != nil {
		call.ID += delta.GetCallId()
		call.Name += delta.GetName()
		call.Arguments += delta.GetArgumentsJson()
	}
}

func (a *answer) call(index uint32) *ToolCall {
	if int(index) >= len(a.calls) {
		return nil
	}
	return &a.calls[index]
}
