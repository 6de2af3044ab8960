package tidegate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	spb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Reasons that this package gives itself. All others come from the router.
const (
	// ReasonUnreachable: no stream could be opened, and no router said why.
	ReasonUnreachable = "UNREACHABLE"
	// ReasonStreamLost: the stream broke and could not be taken up again; the answer is incomplete.
	ReasonStreamLost = "STREAM_LOST"
	// ReasonDeadlineExceeded: the context's deadline passed.
	ReasonDeadlineExceeded = "DEADLINE_EXCEEDED"
	// ReasonCancelled: the context was cancelled, or the turn or session closed.
	ReasonCancelled = "CANCELLED"
	// ReasonOutputIncomplete: the answer was cut, so there is no value, or no call to run.
	ReasonOutputIncomplete = "OUTPUT_INCOMPLETE"
	// ReasonOutputInvalid: the answer is not of the caller's type.
	ReasonOutputInvalid = "OUTPUT_INVALID"
	// ReasonTooManyRounds: the model goes on calling tools.
	ReasonTooManyRounds = "TOO_MANY_ROUNDS"
)

// Error is what a turn or call failed with. errors.Is finds context.DeadlineExceeded or context.Canceled in one with that code.
type Error struct {
	// Code is the canonical status code.
	Code codes.Code
	// Reason is stable and UPPER_SNAKE; empty when neither a router nor this package knows one.
	Reason string
	// Message says what happened, for people.
	Message string
	// RequestID is what to quote to support.
	RequestID string
	// Violations are the fields that are wrong.
	Violations []Violation
	// Retryable tells whether the router says that the same request may succeed later.
	Retryable bool
	// RetryAfter is how long to wait before that.
	RetryAfter time.Duration
}

// Violation is one wrong field: its path, as in `messages[1].content`, and what would be right.
type Violation struct {
	Field       string
	Description string
}

func (e *Error) Error() string {
	return fmt.Sprintf("%s: %s", strings.TrimSpace(e.Code.String()+" "+e.Reason), e.Message)
}

// Unwrap gives the context's error where the code is the same.
func (e *Error) Unwrap() error {
	switch e.Code {
	case codes.DeadlineExceeded:
		return context.DeadlineExceeded
	case codes.Canceled:
		return context.Canceled
	}
	return nil
}

// GRPCStatus lets package status read the error's code.
func (e *Error) GRPCStatus() *status.Status { return status.New(e.Code, e.Message) }

// fromStatus reads a status and its details.
func fromStatus(s *spb.Status) *Error {
	e := &Error{Code: codes.Code(s.GetCode()), Message: s.GetMessage()}
	for _, packed := range s.GetDetails() {
		if detail, err := packed.UnmarshalNew(); err == nil {
			e.read(detail)
		}
	}
	return e
}

func (e *Error) read(detail any) {
	switch d := detail.(type) {
	case *errdetails.ErrorInfo:
		e.Reason = d.GetReason()
	case *errdetails.RequestInfo:
		e.RequestID = d.GetRequestId()
	case *errdetails.RetryInfo:
		e.Retryable, e.RetryAfter = true, d.GetRetryDelay().AsDuration()
	case *errdetails.BadRequest:
		for _, v := range d.GetFieldViolations() {
			e.Violations = append(e.Violations, Violation{v.GetField(), v.GetDescription()})
		}
	}
}

// fromCall reads what a call ended with; `broken` is the reason to give when the connection failed.
func fromCall(err error, broken string) *Error {
	if e, ok := errors.AsType[*Error](err); ok {
		return e
	}
	e := fromStatus(status.Convert(err).Proto())
	switch {
	case e.Reason != "":
	case e.Code == codes.DeadlineExceeded:
		e.Reason = ReasonDeadlineExceeded
	case slices.Contains(brokenCodes, e.Code):
		e.Code, e.Reason = codes.Unavailable, broken
	}
	return e
}

// brokenCodes are those that gRPC itself uses for connections that fail. A router gives a reason with each of them.
var brokenCodes = []codes.Code{codes.Unavailable, codes.Internal, codes.Unknown, codes.Canceled}

// contextEnded is the error of a turn that the caller's context ended.
func contextEnded(ctx context.Context) *Error {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return &Error{Code: codes.DeadlineExceeded, Reason: ReasonDeadlineExceeded, Message: "the deadline passed"}
	}
	return cancelled("the context was cancelled")
}

// cancelled is the error of a turn that the caller gave up.
func cancelled(message string) *Error {
	return &Error{Code: codes.Canceled, Reason: ReasonCancelled, Message: message}
}

// dataLost is the error of an answer that is of no use.
func dataLost(reason, message string) *Error {
	return &Error{Code: codes.DataLoss, Reason: reason, Message: message}
}

// badUse is the error of a call that cannot be right, found before it is made.
func badUse(field, description string) *Error {
	return &Error{Code: codes.InvalidArgument, Message: field + ": " + description, Violations: []Violation{{field, description}}}
}
