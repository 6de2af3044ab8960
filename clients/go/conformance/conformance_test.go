// Package conformance_test plays the table of cases that all SDKs share, tests/conformance/cases.json, with this one.
package conformance_test

import (
	"context"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestConformance: the caller sees what the table says, and so do the workers.
func TestConformance(t *testing.T) {
	h := startHarness(t)
	for _, c := range loadCases(t) {
		t.Run(c.Name, func(t *testing.T) {
			playCase(t, h, c)
		})
	}
}

func playCase(t *testing.T, h *harness, c testCase) {
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	p := &player{harness: h, played: c, ran: []toolCall{}}
	var run struct{ Marker, Traceparent string }
	must(t, h.post("/begin", map[string]string{"case": c.Name}, &run))
	p.marker, p.traceparent = run.Marker, run.Traceparent
	seen, err := p.play(ctx)
	must(t, err)
	for i, turn := range c.Turns {
		compare(t, turn.See, seen[i])
	}
	var end struct {
		Faults          []string
		Calls           int
		CancelledAfterS *float64 `json:"cancelled_after_s"`
	}
	must(t, h.post("/end", map[string]string{"marker": p.marker}, &end))
	for _, fault := range end.Faults {
		t.Error("workers: " + fault)
	}
	if end.CancelledAfterS != nil {
		t.Logf("cancelled at the worker after %.0f ms", *end.CancelledAfterS*1000)
	}
	t.Logf("%d calls of workers", end.Calls)
}

// compare checks what the table tells; of errors, that there is one only where it does.
func compare(t *testing.T, want, got sight) {
	t.Helper()
	if want.TextStarts != nil && !strings.HasPrefix(string(*got.Text), string(*want.TextStarts)) {
		t.Errorf("text: %.40q does not start with %q", *got.Text, *want.TextStarts)
	}
	if want.WithinS != nil && *got.WithinS > *want.WithinS {
		t.Errorf("took %.2f s, more than %.2f", *got.WithinS, *want.WithinS)
	}
	if !reflect.DeepEqual(want.Error, got.Error) {
		t.Errorf("error: %+v, not %+v", got.Error, want.Error)
	}
	same(t, "text", want.Text, got.Text)
	same(t, "finish", want.Finish, got.Finish)
	same(t, "completion_tokens", want.CompletionTokens, got.CompletionTokens)
	same(t, "ran", want.Ran, got.Ran)
	if want.Order != nil && !slices.Equal(want.Order, got.Order) {
		t.Errorf("order: %v, not %v", got.Order, want.Order)
	}
	if want.Value != nil && !reflect.DeepEqual(want.Value, got.Value) {
		t.Errorf("value: %v, not %v", got.Value, want.Value)
	}
}

// same compares what the table may leave out.
func same[T any](t *testing.T, name string, want, got *T) {
	t.Helper()
	if want != nil && !reflect.DeepEqual(want, got) {
		t.Errorf("%s: %v, not %v", name, *got, *want)
	}
}
