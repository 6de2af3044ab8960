package tidegate

import (
	"context"
	"encoding/json"

	tidegatev1 "tidegate.dev/sdk/go/tidegate/v1"
)

// As makes the answer JSON that fits a Go type; see [Schema] for the types that can be used.
func As[T any]() Part {
	return option(func(r *request) {
		schema, err := Schema[T]()
		if err != nil {
			r.fault = badUse("response_format", err.Error())
			return
		}
		r.spec.ResponseFormat = &tidegatev1.ResponseFormat{Format: &tidegatev1.ResponseFormat_JsonSchema{JsonSchema: schema}}
	})
}

// ChatInto asks for an answer that fits a Go type, and gives its value.
func ChatInto[T any](ctx context.Context, c Chatter, parts ...Part) (T, error) {
	return Into[T](ctx, c.Chat(ctx, append(parts, As[T]())...))
}

// Into waits for the answer of a turn that was asked for with [As], and gives its value.
func Into[T any](ctx context.Context, turn *Turn) (value T, err error) {
	text, err := turn.Text(ctx)
	if err != nil {
		return value, err
	}
	if turn.FinishReason() != FinishStop {
		return value, dataLost(ReasonOutputIncomplete, "the answer was cut before its end")
	}
	if json.Unmarshal([]byte(text), &value) != nil {
		return value, dataLost(ReasonOutputInvalid, "the answer does not fit its type")
	}
	return value, nil
}
