package tidegate

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
)

// A status with all its details becomes an Error, found by errors.As however it is wrapped.
func TestStatusBecomesError(t *testing.T) {
	told, err := status.New(codes.ResourceExhausted, "too much").WithDetails(
		&errdetails.ErrorInfo{Reason: "QUOTA_EXCEEDED", Domain: "tidegate.dev"},
		&errdetails.RequestInfo{RequestId: "r1"},
		&errdetails.RetryInfo{RetryDelay: durationpb.New(1500 * time.Millisecond)},
		&errdetails.BadRequest{FieldViolations: []*errdetails.BadRequest_FieldViolation{{Field: "stop[1]", Description: "empty"}}},
	)
	if err != nil {
		t.Fatal(err)
	}
	var got *Error
	if !errors.As(fmt.Errorf("asking: %w", fromCall(told.Err(), "")), &got) {
		t.Fatal("not an *Error")
	}
	want := &Error{
		Code: codes.ResourceExhausted, Reason: "QUOTA_EXCEEDED", Message: "too much", RequestID: "r1",
		Violations: []Violation{{"stop[1]", "empty"}}, Retryable: true, RetryAfter: 1500 * time.Millisecond,
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, not %+v", got, want)
	}
	if got.Error() != "ResourceExhausted QUOTA_EXCEEDED: too much" || status.Code(got) != codes.ResourceExhausted {
		t.Errorf("reads %q, code %v", got, status.Code(got))
	}
}

// Failures that no router explains get a reason of this package's own, or none.
func TestUnexplainedFailures(t *testing.T) {
	cases := []struct {
		code codes.Code
		want Error
	}{
		{codes.Unavailable, Error{Code: codes.Unavailable, Reason: ReasonStreamLost}},
		{codes.Internal, Error{Code: codes.Unavailable, Reason: ReasonStreamLost}},
		{codes.Canceled, Error{Code: codes.Unavailable, Reason: ReasonStreamLost}},
		{codes.DeadlineExceeded, Error{Code: codes.DeadlineExceeded, Reason: ReasonDeadlineExceeded}},
		{codes.Unimplemented, Error{Code: codes.Unimplemented}},
	}
	for _, c := range cases {
		if got := fromCall(status.Error(c.code, ""), ReasonStreamLost); !reflect.DeepEqual(*got, c.want) {
			t.Errorf("%v: %+v, not %+v", c.code, got, c.want)
		}
	}
}

// errors.Is finds the context's error behind a turn that the context ended.
func TestContextErrors(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 0)
	defer cancel()
	if err := contextEnded(ctx); !errors.Is(err, context.DeadlineExceeded) || err.Code != codes.DeadlineExceeded {
		t.Error(err)
	}
	ctx, cancel = context.WithCancel(t.Context())
	cancel()
	if err := contextEnded(ctx); !errors.Is(err, context.Canceled) || err.Reason != ReasonCancelled {
		t.Error(err)
	}
}
