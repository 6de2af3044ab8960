package tidegate

import (
	"cmp"
	"context"
	"encoding/json"

	tidegatev1 "tidegate.dev/sdk/go/tidegate/v1"
)

// Tool is a function that the model may call.
type Tool struct {
	// Name is `[A-Za-z0-9_-]{1,64}`.
	Name string
	// Description tells the model what it does.
	Description string
	// Parameters is the JSON schema of its arguments, an object.
	Parameters string
	// Run carries a call out: arguments in JSON text, result as text for the model. Only [RunTools] needs it.
	Run func(ctx context.Context, arguments string) (string, error)

	fault *Error
}

// ToolFailed is an error of a tool that tells the model what went wrong. Of other errors the model learns only that the tool failed.
type ToolFailed string

func (e ToolFailed) Error() string { return string(e) }

// NewTool makes a tool of a function whose arguments are a struct; see [Schema]. What the function returns as a string is the result as it
// is, all else as JSON.
func NewTool[A, R any](name, description string, run func(ctx context.Context, arguments A) (R, error)) Tool {
	schema, err := Schema[A]()
	tool := Tool{Name: name, Description: description, Parameters: schema}
	if err != nil {
		tool.fault = badUse("tools", err.Error())
	}
	tool.Run = func(ctx context.Context, text string) (string, error) {
		var arguments A
		if err := json.Unmarshal([]byte(cmp.Or(text, "{}")), &arguments); err != nil {
			return "", ToolFailed("arguments: " + err.Error())
		}
		result, err := run(ctx, arguments)
		if err != nil {
			return "", err
		}
		return resultText(result)
	}
	return tool
}

func resultText(result any) (string, error) {
	if text, ok := result.(string); ok {
		return text, nil
	}
	text, err := json.Marshal(result)
	return string(text), err
}

func (t Tool) addTo(r *request) {
	r.tools[t.Name] = t
	r.spec.Tools = append(r.spec.Tools, &tidegatev1.Tool{Name: t.Name, Description: t.Description, ParametersJson: t.Parameters})
	if t.fault != nil {
		r.fault = t.fault
	}
}
