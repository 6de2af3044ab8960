package tidegate

import tidegatev1 "tidegate.dev/sdk/go/tidegate/v1"

// Message is one entry of a conversation.
type Message struct {
	// Role says who speaks.
	Role tidegatev1.Role
	// Content is what is said.
	Content string
	// ToolCalls are the calls that the assistant made.
	ToolCalls []ToolCall
	// ToolCallID is, on a tool's message, the call it answers.
	ToolCallID string
}

// Messages is a conversation so far, oldest first.
type Messages []Message

// ToolCall is a call of a tool as the assistant made it.
type ToolCall struct {
	ID   string
	Name string
	// Arguments is JSON text.
	Arguments string
}

// User is a user's message.
func User(text string) Message {
	return Message{Role: tidegatev1.Role_ROLE_USER, Content: text}
}

// System is instructions to the model.
func System(text string) Message {
	return Message{Role: tidegatev1.Role_ROLE_SYSTEM, Content: text}
}

// Assistant is an earlier answer of the model, with the tools it called.
func Assistant(text string, calls ...ToolCall) Message {
	return Message{Role: tidegatev1.Role_ROLE_ASSISTANT, Content: text, ToolCalls: calls}
}

// ToolResult is what the call of a tool gave; JSON where the tool gives JSON.
func ToolResult(call ToolCall, content string) Message {
	return Message{Role: tidegatev1.Role_ROLE_TOOL, Content: content, ToolCallID: call.ID}
}

func (m Message) addTo(r *request) {
	message := &tidegatev1.Message{Role: m.Role, ToolCallId: m.ToolCallID}
	if m.Content != "" || len(m.ToolCalls) == 0 {
		message.Content = &m.Content
	}
	for _, call := range m.ToolCalls {
		message.ToolCalls = append(message.ToolCalls, &tidegatev1.ToolCall{Id: call.ID, Name: call.Name, ArgumentsJson: call.Arguments})
	}
	r.spec.Messages = append(r.spec.Messages, message)
}

func (m Messages) addTo(r *request) {
	for _, message := range m {
		message.addTo(r)
	}
}
