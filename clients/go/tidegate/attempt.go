package tidegate

import (
	"context"
	"sync"

	tidegatev1 "tidegate.dev/sdk/go/tidegate/v1"
)

// attempt is one try at a turn: what has come of it, and the events that nobody has taken yet. Its memory is bounded by the tokens that the
// answer may have.
type attempt struct {
	spec  *tidegatev1.TurnSpec
	ended chan struct{} // closed behind the last event
	news  chan struct{} // holds one when there is something to take

	stream  *stream // nil when there was none to start it on
	number  uint32  // on that stream
	stopped bool    // kept by the stream, under its lock

	mu      sync.Mutex
	seen    bool // the router knows of it
	events  []*Event
	started *Started
	usage   *Usage
	finish  *tidegatev1.Finished
	err     *Error
}

func newAttempt(spec *tidegatev1.TurnSpec) *attempt {
	return &attempt{spec: spec, ended: make(chan struct{}), news: make(chan struct{}, 1)}
}

// put takes an event from the stream, and tells whether it was the last one.
func (a *attempt) put(event *Event) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.seen = true
	switch e := event.GetEvent().(type) {
	case *tidegatev1.Event_Started:
		a.started = e.Started
	case *tidegatev1.Event_Usage:
		a.usage = e.Usage
	case *tidegatev1.Event_Finished:
		a.finish = e.Finished
	case *tidegatev1.Event_Failed:
		a.end(fromStatus(e.Failed.GetStatus()))
		return true
	}
	a.events = append(a.events, event)
	if a.finish != nil {
		a.end(nil)
		return true
	}
	a.notify()
	return false
}

// fail ends the attempt, unless it has ended.
func (a *attempt) fail(err *Error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.finish == nil && a.err == nil {
		a.end(err)
	}
}

// stop asks the router to end it.
func (a *attempt) stop() {
	if a.stream != nil {
		a.stream.stop(a)
	}
}

func (a *attempt) end(err *Error) {
	a.err = err
	close(a.ended)
	a.notify()
}

func (a *attempt) notify() {
	select {
	case a.news <- struct{}{}:
	default:
	}
}

// next waits for an event, for as long as both contexts last. Behind the last event of an attempt that failed comes its error.
func (a *attempt) next(ctx, other context.Context) (*Event, *Error) {
	for {
		if ctx.Err() != nil {
			return nil, contextEnded(ctx)
		}
		if other.Err() != nil {
			return nil, contextEnded(other)
		}
		if event, err := a.poll(); event != nil || err != nil {
			return event, err
		}
		select {
		case <-a.news:
		case <-ctx.Done():
		case <-other.Done():
		}
	}
}

func (a *attempt) poll() (*Event, *Error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.events) == 0 {
		return nil, a.err
	}
	event := a.events[0]
	a.events = a.events[1:]
	return event, nil
}

func (a *attempt) isSeen() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.seen
}

func (a *attempt) hasEnded() bool {
	return isClosed(a.ended)
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
