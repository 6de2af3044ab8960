package tidegate_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"tidegate.dev/sdk/go/internal/testrouter"
	"tidegate.dev/sdk/go/tidegate"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// An answer whose connection is cut again and again arrives whole and once.
func TestResume(t *testing.T) {
	pieces := make([]string, 60)
	for i := range pieces {
		pieces[i] = fmt.Sprint(i, " ")
	}
	router, client := bench(t, func(turn *testrouter.Turn) {
		turn.Start()
		for _, piece := range pieces {
			turn.Say(piece)
			time.Sleep(time.Millisecond)
		}
		turn.Finish(tidegate.FinishStop)
	})
	turn := client.Chat(t.Context(), tidegate.User("hi"))
	deltas := 0
	for event, err := range turn.Events() {
		must(t, err)
		if event.GetTextDelta() != nil {
			deltas++
		}
		if deltas%10 == 5 {
			router.Cut()
		}
	}
	has(t, turn, strings.Join(pieces, ""))
	if seen := router.Seen(); seen.Streams != 1 || len(seen.Specs) != 1 || seen.Connections < 3 {
		t.Errorf("%d streams, %d starts, %d connections", seen.Streams, len(seen.Specs), seen.Connections)
	}
}

// A start that may have been lost with the connection is said again, and has one answer.
func TestLostStart(t *testing.T) {
	router, client := bench(t, func(turn *testrouter.Turn) {
		if turn.Prompt() == "stay" {
			endless(turn)
			return
		}
		echo(turn)
	})
	session := client.Session(t.Context())
	stays := session.Chat(t.Context(), tidegate.User("stay"))
	until(t, "the stream is ready", func() bool { return stays.Started() != nil })
	for i := range 20 {
		turn := session.Chat(t.Context(), tidegate.User(fmt.Sprint(i)))
		router.Cut()
		has(t, turn, fmt.Sprint(i))
	}
	if seen := router.Seen(); seen.Streams != 1 || len(seen.Specs) != 21 {
		t.Errorf("%d streams, %d starts", seen.Streams, len(seen.Specs))
	}
}

// A cancel that is said while there is no connection is said when there is one.
func TestCancelWhileLost(t *testing.T) {
	router, client := bench(t, endless)
	turn := client.Chat(t.Context(), tidegate.User("hi"))
	for event, err := range turn.Events() {
		must(t, err)
		if event.GetTextDelta().GetText() == "b" {
			router.Cut()
			break
		}
	}
	until(t, "it is cancelled", func() bool { return router.Seen().Cancels > 0 })
}

// Without resume a cut loses the stream; a session opens a new one for its next turn.
func TestWithoutResume(t *testing.T) {
	router, client := bench(t, func(turn *testrouter.Turn) {
		if turn.Prompt() == "ok" {
			turn.Answer("ok")
			return
		}
		endless(turn)
	})
	session := client.Session(t.Context(), tidegate.ResumeFor(0))
	turn := session.Chat(t.Context(), tidegate.User("hi"))
	for event, err := range turn.Events() {
		if e, ok := errors.AsType[*tidegate.Error](err); ok && e.Reason != tidegate.ReasonStreamLost {
			t.Error(err)
		}
		if event.GetTextDelta().GetText() == "b" {
			router.Cut()
		}
	}
	has(t, session.Chat(t.Context(), tidegate.User("ok")), "ok")
}

// A stream that the router has no more is lost.
func TestResumeRefused(t *testing.T) {
	router, client := bench(t, endless)
	turn := client.Chat(t.Context(), tidegate.User("hi"))
	for event, err := range turn.Events() {
		if err != nil {
			if e, ok := errors.AsType[*tidegate.Error](err); !ok || e.Reason != tidegate.ReasonStreamLost || e.Retryable {
				t.Error(err)
			}
			return
		}
		if event.GetTextDelta() != nil {
			router.Refuse(status.ErrorProto(failure(codes.NotFound, "STREAM_UNKNOWN", -1)))
			router.Cut()
		}
	}
	t.Error("it has an end")
}

// A router that is out of reach is known as such at once, and one that stays away as a lost stream after the time.
func TestOutOfReach(t *testing.T) {
	router, client := bench(t, endless)
	turn := client.Chat(t.Context(), tidegate.User("hi"), tidegate.ResumeFor(100*time.Millisecond))
	for event, err := range turn.Events() {
		if e, ok := errors.AsType[*tidegate.Error](err); ok && e.Reason != tidegate.ReasonStreamLost {
			t.Error(err)
		}
		if event.GetTextDelta() != nil {
			router.Stop()
		}
	}
	_, err := client.Chat(t.Context(), tidegate.User("hi")).Text(t.Context())
	if e, ok := errors.AsType[*tidegate.Error](err); !ok || e.Reason != tidegate.ReasonUnreachable {
		t.Error(err)
	}
}
