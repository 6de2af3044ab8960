package tidegate_test

import (
	"os"
	"runtime"
	"runtime/pprof"
	"testing"
	"time"

	"tidegate.dev/sdk/go/internal/testrouter"
	"tidegate.dev/sdk/go/tidegate"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	spb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
)

// bench runs a router that answers so, and a client. When the test is over and both are closed, no goroutine may be left.
func bench(t *testing.T, play testrouter.Play, options ...tidegate.ClientOption) (*testrouter.Router, *tidegate.Client) {
	before := runtime.NumGoroutine()
	router, err := testrouter.Start(play)
	must(t, err)
	client, err := tidegate.NewClient(router.Target, options...)
	must(t, err)
	t.Cleanup(func() {
		must(t, client.Close())
		router.Stop()
		if !happens(func() bool { return runtime.NumGoroutine() <= before }) {
			pprof.Lookup("goroutine").WriteTo(os.Stderr, 1)
			t.Errorf("%d goroutines, %d before", runtime.NumGoroutine(), before)
		}
	})
	return router, client
}

// failure is a status as routers send it; a pause below zero means that nothing is gained by trying again.
func failure(code codes.Code, reason string, pause time.Duration) *spb.Status {
	s, _ := status.New(code, "as told").WithDetails(&errdetails.ErrorInfo{Reason: reason, Domain: "tidegate.dev"})
	if pause >= 0 {
		s, _ = s.WithDetails(&errdetails.RetryInfo{RetryDelay: durationpb.New(pause)})
	}
	return s.Proto()
}

func happens(condition func() bool) bool {
	for range 500 {
		if condition() {
			return true
		}
		time.Sleep(10 * time.Millisecond)
	}
	return false
}

func until(t *testing.T, what string, condition func() bool) {
	t.Helper()
	if !happens(condition) {
		t.Fatal("waited in vain until " + what)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// has checks a text that must come without error.
func has(t *testing.T, turn *tidegate.Turn, want string) {
	t.Helper()
	if text, err := turn.Text(t.Context()); err != nil || text != want {
		t.Errorf("%q, %v; not %q", text, err, want)
	}
}
