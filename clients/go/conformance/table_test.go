package conformance_test

import (
	"encoding/json"
	"strings"
)

// A case of the table; tests/conformance/README.md says what its words mean.
type testCase struct {
	Name       string
	Before     []action
	Session    *options
	ResumeForS *float64 `json:"resume_for_s"`
	Turns      []turn
}

type options struct {
	Model           string
	Stop            []string
	MaxOutputTokens *uint32  `json:"max_output_tokens"`
	DeadlineS       *float64 `json:"deadline_s"`
	Retries         *int
	MaxRounds       *int `json:"max_rounds"`
}

type turn struct {
	options
	Text    phrase
	Trace   bool
	Via     string
	Into    string
	Tools   []string
	Before  []action
	Actions []action
	See     sight
}

// action is passed on to the harness as it is.
type action map[string]any

func (a action) isDue(events, deltas int) bool {
	if after, ok := a["after_deltas"].(float64); ok {
		return deltas >= int(after)
	}
	return events >= int(a["after_events"].(float64))
}

// sight is what the caller of a turn saw, or should have; what is absent is not compared.
type sight struct {
	Text             *phrase
	TextStarts       *phrase `json:"text_starts"`
	Finish           *string
	CompletionTokens *uint32 `json:"completion_tokens"`
	Order            []string
	Error            *failure
	WithinS          *float64 `json:"within_s"`
	Value            map[string]any
	Ran              *[]toolCall
}

type failure struct {
	Code, Reason string
	Retryable    bool
	Fields       []string
}

type toolCall struct {
	Name      string
	Arguments map[string]any
	Result    *string
}

// phrase is a text: a string, a piece with its number of times, or a list of both.
type phrase string

func (p *phrase) UnmarshalJSON(data []byte) error {
	var text string
	if json.Unmarshal(data, &text) == nil {
		*p = phrase(text)
		return nil
	}
	var list []phrase
	if json.Unmarshal(data, &list) == nil {
		for _, piece := range list {
			*p += piece
		}
		return nil
	}
	var piece struct {
		Text  string
		Times int
	}
	err := json.Unmarshal(data, &piece)
	*p = phrase(strings.Repeat(piece.Text, piece.Times))
	return err
}
