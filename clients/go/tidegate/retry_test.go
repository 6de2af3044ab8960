package tidegate

import (
	"context"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
)

// A turn is tried again only where the router gave a time that can be waited for.
func TestRetryPause(t *testing.T) {
	cases := []struct {
		name string
		err  Error
		want bool
	}{
		{"busy", Error{Code: codes.ResourceExhausted, Retryable: true, RetryAfter: time.Second}, true},
		{"down", Error{Code: codes.Unavailable, Retryable: true}, true},
		{"no time given", Error{Code: codes.Unavailable}, false},
		{"a fault of the turn", Error{Code: codes.Internal, Retryable: true}, false},
		{"too long", Error{Code: codes.ResourceExhausted, Retryable: true, RetryAfter: time.Minute}, false},
		{"beyond the deadline", Error{Code: codes.Unavailable, Retryable: true, RetryAfter: 6 * time.Second}, false},
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	for _, c := range cases {
		pause := retryPause(ctx, &c.err)
		if pause >= 0 != c.want || c.want && (pause < c.err.RetryAfter || pause > c.err.RetryAfter*6/5) {
			t.Errorf("%s: waits %v", c.name, pause)
		}
	}
}

// In an outage a client's further tries are used up; answers earn new ones.
func TestBudget(t *testing.T) {
	var b budget
	taken := 0
	for b.take() {
		taken++
	}
	if taken != wholeBudget {
		t.Errorf("%d tries", taken)
	}
	for range 11 {
		b.earn()
	}
	if !b.take() || b.take() {
		t.Error("eleven answers earn one try")
	}
}
