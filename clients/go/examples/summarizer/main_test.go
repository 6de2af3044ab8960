package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"tidegate.dev/sdk/go/internal/testrouter"
	"tidegate.dev/sdk/go/tidegate"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
)

func play(turn *testrouter.Turn) {
	switch turn.Prompt() {
	case "fails":
		s, _ := status.New(codes.Unavailable, "full").WithDetails(
			&errdetails.ErrorInfo{Reason: "QUEUE_FULL"}, &errdetails.RetryInfo{RetryDelay: durationpb.New(time.Minute)})
		turn.Fail(s.Proto())
	default:
		turn.Answer("In ", "short.")
	}
}

// A summary streams; a router that is full is told as such.
func TestSummary(t *testing.T) {
	router, err := testrouter.Start(play)
	if err != nil {
		t.Fatal(err)
	}
	defer router.Stop()
	client, err := tidegate.NewClient(router.Target)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	server := httptest.NewServer(handler(client))
	defer server.Close()
	for text, want := range map[string]string{"a long story": "200 In short.", "fails": "503 QUEUE_FULL\n"} {
		response, err := http.Post(server.URL+"/summary", "text/plain", strings.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(response.Body)
		response.Body.Close()
		if got := response.Status[:4] + string(body); got != want {
			t.Errorf("%s: %q, not %q", text, got, want)
		}
	}
}
