package tidegate

import (
	"context"
	"slices"
	"sync"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
)

// Session runs turns on one stream, side by side if need be. When its router is about to go, later turns are on a new stream.
type Session struct {
	client    *Client
	ctx       context.Context
	parts     []Part
	resumeFor time.Duration

	mu           sync.Mutex
	streams      []*stream // the last one takes new turns
	closed       bool
	stopWatching func() bool
}

// Chat starts a turn, which ends with its context or the session's.
func (s *Session) Chat(ctx context.Context, parts ...Part) *Turn {
	return s.start(ctx, s.newRequest(parts))
}

// Close cancels the turns that still run, and ends the stream.
func (s *Session) Close() error {
	for _, stream := range s.shut() {
		<-stream.done
	}
	return nil
}

// watch ends the session with its context.
func (s *Session) watch() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopWatching = context.AfterFunc(s.ctx, func() { s.shut() })
}

// shut begins what Close waits for.
func (s *Session) shut() []*stream {
	s.mu.Lock()
	first, streams := !s.closed, s.streams
	s.closed = true
	stopWatching := s.stopWatching
	s.mu.Unlock()
	if first {
		stopWatching()
		s.client.forget(s)
		for _, stream := range streams {
			stream.close()
		}
	}
	return streams
}

func (s *Session) newRequest(parts []Part) *request { return newRequest(s.parts, parts) }

func (s *Session) start(ctx context.Context, r *request) *Turn {
	return s.startTurn(ctx, r, func() {})
}

// startTurn starts a turn that calls `release` when it has ended.
func (s *Session) startTurn(ctx context.Context, r *request, release func()) *Turn {
	if deadline, ok := ctx.Deadline(); ok && r.spec.MaxWait == nil {
		r.spec.MaxWait = durationpb.New(max(0, time.Until(deadline)))
	}
	turn := newTurn(ctx, s, r, release)
	if fault := r.check(); fault != nil {
		turn.end(fault)
	} else if ctx.Err() != nil {
		turn.end(contextEnded(ctx))
	} else {
		turn.begin()
	}
	return turn
}

// begin starts an attempt on the latest stream, or on a new one where that takes no more.
func (s *Session) begin(a *attempt) {
	for {
		latest := s.latest()
		if latest != nil && latest.start(a) || s.open(latest, a) {
			return
		}
	}
}

func (s *Session) latest() *stream {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.streams) == 0 {
		return nil
	}
	return s.streams[len(s.streams)-1]
}

// open starts an attempt on a new stream; false when somebody else has just opened one.
func (s *Session) open(spent *stream, a *attempt) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		a.fail(cancelled("the session is closed"))
		return true
	}
	if n := len(s.streams); n > 0 && s.streams[n-1] != spent {
		return false
	}
	s.streams = slices.DeleteFunc(s.streams, (*stream).isOver)
	s.streams = append(s.streams, newStream(s.ctx, s.client, s.resumeFor, a))
	return true
}
