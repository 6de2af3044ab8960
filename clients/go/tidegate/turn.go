package tidegate

import (
	"context"
	"iter"
	"runtime"
	"slices"
	"sync"
	"time"
	"weak"
)

// Turn is one turn of a conversation. Its events are for one goroutine; all other methods may be called by any.
type Turn struct {
	ctx     context.Context
	session *Session
	request *request
	release func() // of what is this turn's alone

	withdrawn chan struct{} // closed when it is given up
	withdraw  func()

	mu           sync.Mutex
	attempt      *attempt
	answer       answer
	tries        int
	err          *Error
	stopWatching func() bool
}

func newTurn(ctx context.Context, s *Session, r *request, release func()) *Turn {
	t := &Turn{ctx: ctx, session: s, request: r, release: release, attempt: newAttempt(r.spec), withdrawn: make(chan struct{})}
	t.withdraw = sync.OnceFunc(func() { close(t.withdrawn) })
	return t
}

// begin tries the turn. What is left of one that is dropped must not run on and cost, so neither its cleanup nor its context hold it.
func (t *Turn) begin() {
	a := newAttempt(t.request.spec)
	t.session.begin(a)
	runtime.AddCleanup(t, (*attempt).stop, a)
	t.mu.Lock()
	t.attempt = a
	t.tries++
	if held := weak.Make(t); t.stopWatching == nil {
		t.stopWatching = context.AfterFunc(t.ctx, func() {
			if t := held.Value(); t != nil {
				t.current().stop()
			}
		})
	}
	t.mu.Unlock()
	if isClosed(t.withdrawn) { // since the last try failed
		a.stop()
	}
}

// Events gives the turn's events as they come, to the last one or an error. Leaving the loop early cancels the turn, as [Turn.Close] does.
// A turn that is tried again is queued and started again.
func (t *Turn) Events() iter.Seq2[*Event, error] {
	return func(yield func(*Event, error) bool) {
		defer t.Close()
		for !t.isWhole() {
			event, err := t.next(t.ctx)
			if err != nil {
				yield(nil, err)
				return
			}
			if !yield(event, nil) {
				return
			}
		}
	}
}

// Text waits for the end of the answer and gives all of it. With an error it gives what has come until then.
func (t *Turn) Text(ctx context.Context) (string, error) {
	for !t.isWhole() {
		if _, err := t.next(ctx); err != nil {
			return t.text(), err
		}
	}
	return t.text(), nil
}

// Cancel asks the router to end the turn. Its last events, with usage and FinishCancelled, are still to come, unless it ends before. One
// that waits for its next try has none.
func (t *Turn) Cancel() {
	t.withdraw()
	t.current().stop()
}

// Close cancels the turn if it still runs, and waits a moment until that is confirmed. What has come of it can still be asked for.
func (t *Turn) Close() error {
	t.Cancel()
	if a := t.current(); a.stream != nil && !a.hasEnded() {
		select {
		case <-a.ended:
		case <-t.ctx.Done():
		case <-time.After(closeGrace):
		}
	}
	t.end(cancelled("the turn was closed"))
	return nil
}

// Usage counts the tokens of the latest try; nil before they are known.
func (t *Turn) Usage() *Usage {
	a := t.current()
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.usage
}

// Started tells where the turn runs; nil before it does.
func (t *Turn) Started() *Started {
	a := t.current()
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.started
}

// FinishReason says why the turn ended; FinishUnknown while it runs, and when it failed.
func (t *Turn) FinishReason() FinishReason {
	a := t.current()
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.finish.GetFinishReason()
}

// ToolCalls are the calls in the answer so far. They are whole, and to be carried out, only when the turn ended with FinishToolCalls.
func (t *Turn) ToolCalls() []ToolCall {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.answer.calls)
}

// next gives the next event, for as long as the context lasts too. It tries the turn again where that may help.
func (t *Turn) next(ctx context.Context) (*Event, error) {
	for {
		if err := t.failure(); err != nil {
			return nil, err
		}
		event, err := t.current().next(t.ctx, ctx)
		if err == nil {
			t.record(event)
			return event, nil
		}
		pause := t.pause(err)
		if pause < 0 {
			t.Cancel()
			t.end(err)
			continue
		}
		select {
		case <-time.After(pause):
			t.begin()
		case <-t.withdrawn:
			t.end(cancelled("the turn was cancelled"))
		case <-t.ctx.Done():
		case <-ctx.Done():
		}
	}
}

// failure keeps a nil *Error from becoming an error that is not nil.
func (t *Turn) failure() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.err == nil {
		return nil
	}
	return t.err
}

func (t *Turn) record(event *Event) {
	t.mu.Lock()
	t.answer.add(event)
	whole := t.answer.whole
	t.mu.Unlock()
	if whole {
		t.session.client.budget.earn()
		t.end(nil)
	}
}

// pause is how long to wait until the next try; negative when there is none, as when the caller has seen some of the answer.
func (t *Turn) pause(err *Error) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	pause := retryPause(t.ctx, err)
	if pause < 0 || t.answer.begun || t.tries > t.request.retries || !t.session.client.budget.take() {
		return -1
	}
	return pause
}

// end gives up what the turn holds. It has failed with the error, unless its answer is whole.
func (t *Turn) end(err *Error) {
	t.mu.Lock()
	if !t.answer.whole && t.err == nil {
		t.err = err
	}
	stopWatching := t.stopWatching
	t.mu.Unlock()
	if stopWatching != nil {
		stopWatching()
	}
	t.release()
}

func (t *Turn) current() *attempt {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.attempt
}

func (t *Turn) isWhole() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.answer.whole
}

func (t *Turn) text() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.answer.text.String()
}
