package tidegate

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	tidegatev1 "tidegate.dev/sdk/go/tidegate/v1"

	"google.golang.org/grpc"
)

// stream is one Converse stream. It lives through as many calls as it takes: one, and another each time that the connection is lost and the
// router still has the stream. A goroutine of its own makes the calls (calls.go) and takes their frames; messages are sent by whoever has
// one.
type stream struct {
	client *Client
	ctx    context.Context // of its calls
	cancel context.CancelFunc
	done   chan struct{} // closed when it is over and its goroutine gone

	sending sync.Mutex // one message at a time, turns in the order of their numbers; taken before mu

	mu        sync.Mutex
	call      converse // nil while there is none to send on
	link      *link
	running   map[uint32]*attempt
	last      uint32 // number of the latest turn
	id        string // empty before the stream is ready
	sequence  uint64 // of the latest frame
	attempts  uint32 // to resume it, so far
	resumeFor time.Duration
	loss      *Error      // nil while all is well
	tries     int         // to resume it, that have failed since
	limit     *time.Timer // what ends it when it is to be resumed, or to close
	leaving   bool        // takes no more turns
	closed    bool        // by the caller
	over      bool
}

type converse = grpc.BidiStreamingClient[tidegatev1.ConverseRequest, tidegatev1.ConverseResponse]

// newStream begins with an attempt.
func newStream(ctx context.Context, c *Client, resumeFor time.Duration, first *attempt) *stream {
	s := &stream{client: c, resumeFor: resumeFor, running: map[uint32]*attempt{}, done: make(chan struct{})}
	s.ctx, s.cancel = callContext(ctx)
	s.enter(first)
	c.streams.Go(s.run)
	return s
}

// callContext is what the calls of a stream run under: the values of the caller's context but not its end, because a stream that can be
// resumed outlives its call, so its turns must be cancelled first. The deadline tells the router how long the caller waits.
func callContext(ctx context.Context) (context.Context, context.CancelFunc) {
	own := context.WithoutCancel(ctx)
	if deadline, ok := ctx.Deadline(); ok {
		return context.WithDeadline(own, deadline.Add(closeGrace))
	}
	return context.WithCancel(own)
}

// enter gives an attempt its number.
func (s *stream) enter(a *attempt) {
	s.last++
	a.stream, a.number = s, s.last
	s.running[a.number] = a
}

// start starts an attempt; false when this stream takes no more. While there is no call it is only noted.
func (s *stream) start(a *attempt) bool {
	s.sending.Lock()
	defer s.sending.Unlock()
	s.mu.Lock()
	taken, call := !s.leaving && !s.over, s.call
	if taken {
		s.enter(a)
	}
	s.mu.Unlock()
	if taken && call != nil {
		call.Send(startMessage(a)) // if it fails, the call has ended, and Recv tells why
	}
	return taken
}

// stop cancels an attempt at the router.
func (s *stream) stop(a *attempt) {
	s.sending.Lock()
	defer s.sending.Unlock()
	s.mu.Lock()
	isNews, call := s.running[a.number] == a && !a.stopped, s.call
	a.stopped = true
	s.mu.Unlock()
	if isNews && call != nil {
		call.Send(stopMessage(a))
	}
}

// close cancels what runs, and ends the stream: in order if that works soon.
func (s *stream) close() {
	s.mu.Lock()
	s.leaving, s.closed = true, true
	running, unknown := s.inOrder(), s.id == "" && s.call == nil
	s.limitTo(closeGrace)
	s.mu.Unlock()
	if unknown {
		s.cancel()
		return
	}
	for _, a := range running {
		s.stop(a)
	}
	s.sending.Lock()
	defer s.sending.Unlock()
	if call := s.currentCall(); call != nil {
		s.finish(call)
	}
}

// finish says that nobody comes back to the stream, which its router need not keep then, and no more.
func (s *stream) finish(call converse) {
	s.mu.Lock()
	kept := s.resumeFor > 0
	s.mu.Unlock()
	if kept {
		call.Send(leaveMessage())
	}
	call.CloseSend()
}

// currentCall is nil while there is none to send on.
func (s *stream) currentCall() converse {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.call
}

func (s *stream) isOver() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.over
}

// inOrder gives the running attempts by number.
func (s *stream) inOrder() []*attempt {
	attempts := make([]*attempt, 0, len(s.running))
	for _, number := range slices.Sorted(maps.Keys(s.running)) {
		attempts = append(attempts, s.running[number])
	}
	return attempts
}

// limitTo ends the stream after this time.
func (s *stream) limitTo(d time.Duration) {
	s.unlimit()
	s.limit = time.AfterFunc(d, s.cancel)
}

func (s *stream) unlimit() {
	if s.limit != nil {
		s.limit.Stop()
	}
}

// take hands out a frame's events.
func (s *stream) take(frame *tidegatev1.ConverseResponse) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.heard()
	s.sequence = frame.GetSequence()
	for _, event := range frame.GetEvents() {
		if event.GetTurn() == 0 {
			s.takeOwn(event)
		} else if a := s.running[event.GetTurn()]; a != nil && a.put(event) {
			delete(s.running, event.GetTurn())
		}
	}
}

// takeOwn takes an event of the stream itself.
func (s *stream) takeOwn(event *Event) {
	switch e := event.GetEvent().(type) {
	case *tidegatev1.Event_Ready:
		s.id, s.resumeFor = e.Ready.GetStreamId(), e.Ready.GetResumeFor().AsDuration()
	case *tidegatev1.Event_GoAway:
		s.leaving = true
		s.client.links.retire(s.link)
	}
}

func startMessage(a *attempt) *tidegatev1.ConverseRequest {
	start := &tidegatev1.StartTurn{Turn: a.number, Spec: a.spec}
	return &tidegatev1.ConverseRequest{Message: &tidegatev1.ConverseRequest_Start{Start: start}}
}

func stopMessage(a *attempt) *tidegatev1.ConverseRequest {
	stop := &tidegatev1.CancelTurn{Turn: a.number}
	return &tidegatev1.ConverseRequest{Message: &tidegatev1.ConverseRequest_Cancel{Cancel: stop}}
}

func leaveMessage() *tidegatev1.ConverseRequest {
	return &tidegatev1.ConverseRequest{Message: &tidegatev1.ConverseRequest_Leave{Leave: &tidegatev1.Leave{}}}
}

func setupMessage(setup *tidegatev1.Setup) *tidegatev1.ConverseRequest {
	return &tidegatev1.ConverseRequest{Message: &tidegatev1.ConverseRequest_Setup{Setup: setup}}
}
