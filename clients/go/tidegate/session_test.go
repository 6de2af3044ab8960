package tidegate_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"tidegate.dev/sdk/go/internal/testrouter"
	"tidegate.dev/sdk/go/tidegate"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

func echo(turn *testrouter.Turn) { turn.Answer(turn.Prompt()) }

// Turns of many goroutines share a stream and do not mix.
func TestTurnsSideBySide(t *testing.T) {
	router, client := bench(t, echo)
	session := client.Session(t.Context())
	var all sync.WaitGroup
	for i := range 50 {
		all.Go(func() { has(t, session.Chat(t.Context(), tidegate.User(fmt.Sprint(i))), fmt.Sprint(i)) })
	}
	all.Wait()
	must(t, session.Close())
	if seen := router.Seen(); seen.Streams != 1 || len(seen.Specs) != 50 {
		t.Errorf("%d streams, %d turns", seen.Streams, len(seen.Specs))
	}
}

// Closing a session cancels its turns; those who read them are told.
func TestClosingCancels(t *testing.T) {
	router, client := bench(t, endless)
	session := client.Session(t.Context())
	turn := session.Chat(t.Context(), tidegate.User("hi"))
	for event, err := range turn.Events() {
		if err != nil {
			if !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
			break
		}
		if event.GetTextDelta() != nil {
			go session.Close()
		}
	}
	until(t, "it is cancelled", func() bool { return router.Seen().Cancels == 1 })
}

// After go-away the running turn finishes, and the next one is on a new stream over a new connection.
func TestGoAway(t *testing.T) {
	var router *testrouter.Router
	router, client := bench(t, func(turn *testrouter.Turn) {
		turn.Start()
		if turn.Prompt() == "first" {
			router.GoAway()
		}
		turn.Say("ok")
		turn.Finish(tidegate.FinishStop)
	})
	session := client.Session(t.Context())
	has(t, session.Chat(t.Context(), tidegate.User("first")), "ok")
	has(t, session.Chat(t.Context(), tidegate.User("second")), "ok")
	if seen := router.Seen(); seen.Streams != 2 || seen.Connections != 2 {
		t.Errorf("%d streams, %d connections", seen.Streams, seen.Connections)
	}
}

// A router that is draining refuses the stream: the next try is on a new connection.
func TestDrainingRouter(t *testing.T) {
	router, client := bench(t, echo)
	router.Refuse(status.ErrorProto(failure(codes.Unavailable, "DRAINING", 20*time.Millisecond)))
	turn := client.Chat(t.Context(), tidegate.User("hi"))
	until(t, "it is refused", func() bool { return len(router.Seen().Headers) == 1 })
	router.Refuse(nil)
	has(t, turn, "hi")
	if seen := router.Seen(); seen.Connections != 2 {
		t.Errorf("%d connections", seen.Connections)
	}
}

// Keys, fixed headers, injected ones and those of the context go with each stream.
func TestHeaders(t *testing.T) {
	type traceKey struct{}
	router, client := bench(t, echo,
		tidegate.WithKey("tg_k"),
		tidegate.WithHeaders(map[string]string{"X-Team": "search"}),
		tidegate.WithInjector(func(ctx context.Context, headers map[string]string) {
			headers["traceparent"] = ctx.Value(traceKey{}).(string)
		}),
	)
	ctx := metadata.AppendToOutgoingContext(context.WithValue(t.Context(), traceKey{}, "00-1-2-01"), "x-request-id", "r1")
	has(t, client.Chat(ctx, tidegate.User("hi")), "hi")
	headers := router.Seen().Headers[0]
	for name, want := range map[string]string{
		"authorization": "Bearer tg_k", "x-team": "search", "traceparent": "00-1-2-01", "x-request-id": "r1",
	} {
		if got := headers.Get(name); len(got) != 1 || got[0] != want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// Over TLS a key goes anywhere, to a router whose certificate is trusted.
func TestTLS(t *testing.T) {
	web := httptest.NewTLSServer(nil) // for its certificate
	defer web.Close()
	router, err := testrouter.Start(echo, grpc.Creds(credentials.NewServerTLSFromCert(&web.TLS.Certificates[0])))
	must(t, err)
	defer router.Stop()
	trusting := web.Client().Transport.(*http.Transport).TLSClientConfig
	for _, c := range []struct {
		config *tls.Config
		reason string
	}{{trusting, ""}, {nil, tidegate.ReasonUnreachable}} {
		client, err := tidegate.NewClient(router.Target, tidegate.WithTLS(c.config), tidegate.WithKey("tg_k"))
		must(t, err)
		_, err = client.Chat(t.Context(), tidegate.User("hi")).Text(t.Context())
		if e, _ := errors.AsType[*tidegate.Error](err); (e == nil) != (c.reason == "") || e != nil && e.Reason != c.reason {
			t.Error(err)
		}
		must(t, client.Close())
	}
	if key := router.Seen().Headers[0].Get("authorization"); len(key) != 1 || key[0] != "Bearer tg_k" {
		t.Error(key)
	}
}

// A token that cannot be had fails the turn.
func TestTokenFails(t *testing.T) {
	_, client := bench(t, echo, tidegate.WithToken(func(context.Context) (string, error) { return "", errors.New("no token today") }))
	_, err := client.Chat(t.Context(), tidegate.User("hi")).Text(t.Context())
	if status.Code(err) != codes.Unauthenticated {
		t.Error(err)
	}
}
