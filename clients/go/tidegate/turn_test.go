package tidegate_test

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"time"

	"tidegate.dev/sdk/go/internal/testrouter"
	"tidegate.dev/sdk/go/tidegate"

	"google.golang.org/grpc/codes"
)

func endless(turn *testrouter.Turn) {
	turn.Start()
	turn.Say("a", "b")
	turn.Wait()
}

// Leaving the loop cancels the turn at the router, and its usage is known afterwards.
func TestBreakCancels(t *testing.T) {
	router, client := bench(t, endless)
	turn := client.Chat(t.Context(), tidegate.User("hi"))
	for event, err := range turn.Events() {
		must(t, err)
		if event.GetTextDelta() != nil {
			break
		}
	}
	if turn.Usage().GetCompletionTokens() != 2 || turn.FinishReason() != tidegate.FinishCancelled {
		t.Errorf("%v, %v", turn.Usage(), turn.FinishReason())
	}
	if router.Seen().Cancels != 1 {
		t.Error("not cancelled")
	}
	if _, err := turn.Text(t.Context()); !errors.Is(err, context.Canceled) {
		t.Errorf("a turn that was left: %v", err)
	}
}

// A cancelled turn is read on to its end, which says so.
func TestCancel(t *testing.T) {
	_, client := bench(t, endless)
	turn := client.Chat(t.Context(), tidegate.User("hi"))
	for event, err := range turn.Events() {
		must(t, err)
		if event.GetTextDelta() != nil {
			turn.Cancel()
		}
	}
	has(t, turn, "ab")
	if turn.FinishReason() != tidegate.FinishCancelled {
		t.Error(turn.FinishReason())
	}
}

// A turn that is dropped, neither read nor closed, is cancelled, though its session and its context live on.
func TestDroppedTurn(t *testing.T) {
	router, client := bench(t, endless)
	session := client.Session(t.Context())
	for at, chatter := range []tidegate.Chatter{client, session} {
		turn := chatter.Chat(t.Context(), tidegate.User("hi"))
		until(t, "it runs", func() bool { return len(router.Seen().Specs) == at+1 })
		runtime.KeepAlive(turn)
		until(t, "the turn is cancelled", func() bool {
			runtime.GC()
			return router.Seen().Cancels == at+1
		})
	}
	runtime.KeepAlive(session)
}

// A turn that is cancelled or closed while it waits for its next try has no other.
func TestNoTryAfterCancel(t *testing.T) {
	router, client := bench(t, func(turn *testrouter.Turn) {
		turn.Start()
		turn.Fail(failure(codes.Unavailable, "WORKER_LOST", 5*time.Second))
	})
	session := client.Session(t.Context())
	for at, giveUp := range []func(*tidegate.Turn){(*tidegate.Turn).Cancel, func(turn *tidegate.Turn) { turn.Close() }} {
		turn, ended := session.Chat(t.Context(), tidegate.User("hi")), make(chan error)
		go func() {
			_, err := turn.Text(t.Context())
			ended <- err
		}()
		until(t, "it has failed once", func() bool { return turn.Started() != nil })
		giveUp(turn)
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		if starts := len(router.Seen().Specs); starts != at+1 {
			t.Errorf("%d starts", starts)
		}
	}
}

// The end of the context ends the turn, also when nobody reads it; what was read until then is kept.
func TestContextEndsTurn(t *testing.T) {
	router, client := bench(t, endless)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	unread := client.Chat(ctx, tidegate.User("hi"))
	text, err := client.Chat(ctx, tidegate.User("hi")).Text(t.Context())
	if text != "ab" || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%q, %v", text, err)
	}
	until(t, "both are cancelled", func() bool { return router.Seen().Cancels == 2 })
	until(t, "usage is known", func() bool { return unread.Usage() != nil })
}

// The context of Text ends the turn too.
func TestContextOfText(t *testing.T) {
	router, client := bench(t, endless)
	session := client.Session(t.Context())
	turn := session.Chat(t.Context(), tidegate.User("hi"))
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := turn.Text(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	until(t, "it is cancelled", func() bool { return router.Seen().Cancels == 1 })
}

// A turn that fails before its answer began is tried again when the router says so, three times in all.
func TestRetries(t *testing.T) {
	tries := 0
	router, client := bench(t, func(turn *testrouter.Turn) {
		if tries++; tries < 3 {
			turn.Start()
			turn.Fail(failure(codes.Unavailable, "WORKER_LOST", time.Millisecond))
			return
		}
		turn.Answer("ok")
	})
	has(t, client.Chat(t.Context(), tidegate.User("hi")), "ok")
	tries = -10
	_, err := client.Chat(t.Context(), tidegate.User("hi")).Text(t.Context())
	if e, ok := errors.AsType[*tidegate.Error](err); !ok || e.Reason != "WORKER_LOST" {
		t.Error(err)
	}
	if starts := len(router.Seen().Specs); starts != 6 {
		t.Errorf("%d starts", starts)
	}
}

// A turn whose text is not UTF-8 fails alone, before it is sent.
func TestTextMustBeUTF8(t *testing.T) {
	router, client := bench(t, endless)
	_, err := client.Chat(t.Context(), tidegate.User("\xff")).Text(t.Context())
	if e, ok := errors.AsType[*tidegate.Error](err); !ok || e.Code != codes.InvalidArgument {
		t.Error(err)
	}
	if router.Seen().Connections != 0 {
		t.Error("connected for nothing")
	}
}

// A closed client starts nothing.
func TestClosedClient(t *testing.T) {
	_, client := bench(t, endless)
	session := client.Session(t.Context())
	must(t, client.Close())
	for _, c := range []tidegate.Chatter{client, session} {
		if _, err := c.Chat(t.Context(), tidegate.User("hi")).Text(t.Context()); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	}
}

// What is said arrives as it was put together, the session's parts first.
func TestParts(t *testing.T) {
	router, client := bench(t, func(turn *testrouter.Turn) { turn.Answer() })
	session := client.Session(t.Context(), tidegate.System("be brief"), tidegate.Model("small"), tidegate.Temperature(0))
	history := tidegate.Messages{tidegate.User("one"), tidegate.Assistant("two")}
	has(t, session.Chat(t.Context(), history, tidegate.User("three"), tidegate.Model("large"), tidegate.Seed(7)), "")
	spec := router.Seen().Specs[0]
	if len(spec.GetMessages()) != 4 || spec.GetMessages()[3].GetContent() != "three" || spec.GetModel() != "large" {
		t.Error(spec)
	}
	if s := spec.GetSampling(); s.Temperature == nil || s.GetSeed() != 7 || s.TopP != nil {
		t.Error(s)
	}
}
