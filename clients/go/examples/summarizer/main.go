// Summarizer is a service: POST a text to /summary, and its summary streams back. A caller who hangs up cancels the turn at the worker.
package main

import (
	"context"
	"errors"
	"io"
	"log"
	"net/http"
	"os"
	"time"

	"tidegate.dev/sdk/go/tidegate"
)

func main() {
	client, err := tidegate.NewClient(os.Getenv("TIDEGATE_TARGET"))
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	log.Fatal(http.ListenAndServe("127.0.0.1:8080", handler(client)))
}

func handler(client *tidegate.Client) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /summary", func(w http.ResponseWriter, r *http.Request) {
		text, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 1<<20))
		if err != nil {
			http.Error(w, "send a text of at most 1 MiB", http.StatusBadRequest)
			return
		}
		ctx, cancel := context.WithTimeout(r.Context(), time.Minute)
		defer cancel()
		turn := client.Chat(ctx, tidegate.System("Summarize in three sentences."), tidegate.User(string(text)))
		for event, err := range turn.Events() {
			if err != nil {
				fail(w, turn, err)
				return
			}
			if delta := event.GetTextDelta(); delta != nil {
				io.WriteString(w, delta.GetText())
				http.NewResponseController(w).Flush()
			}
		}
	})
	return mux
}

// fail says whether to come again. Once some of the answer has gone out, only a broken connection tells that it is not whole.
func fail(w http.ResponseWriter, turn *tidegate.Turn, err error) {
	failed, _ := errors.AsType[*tidegate.Error](err)
	log.Print("no summary: ", err, ", request ", failed.RequestID, ", used ", turn.Usage())
	if turn.Usage().GetCompletionTokens() > 0 {
		panic(http.ErrAbortHandler)
	}
	code := http.StatusBadGateway
	if failed.Retryable {
		code = http.StatusServiceUnavailable
	}
	http.Error(w, failed.Reason, code)
}
