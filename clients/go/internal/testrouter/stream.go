package testrouter

import (
	"context"
	"sync"

	tidegatev1 "tidegate.dev/sdk/go/tidegate/v1"

	"google.golang.org/grpc"
)

type server = grpc.BidiStreamingServer[tidegatev1.ConverseRequest, tidegatev1.ConverseResponse]

// stream is a stream with all its frames.
type stream struct {
	router *Router
	ready  *tidegatev1.Event

	mu         sync.Mutex
	news       *sync.Cond
	frames     []*tidegatev1.ConverseResponse
	turns      map[uint32]*Turn
	running    int
	inputEnded bool
}

func newStream(r *Router, id string, setup *tidegatev1.Setup) *stream {
	ready := &tidegatev1.Ready{StreamId: id, Model: "test", ResumeFor: setup.GetResumeFor()}
	s := &stream{router: r, ready: &tidegatev1.Event{Event: &tidegatev1.Event_Ready{Ready: ready}}, turns: map[uint32]*Turn{}}
	s.news = sync.NewCond(&s.mu)
	s.put(s.ready)
	return s
}

// put adds a frame with one event.
func (s *stream) put(event *tidegatev1.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.frames = append(s.frames, &tidegatev1.ConverseResponse{Sequence: uint64(len(s.frames) + 1), Events: []*tidegatev1.Event{event}})
	s.news.Broadcast()
}

// write sends what comes after the first `sent` frames, until the call or the stream ends.
func (s *stream) write(call server, sent int) error {
	defer context.AfterFunc(call.Context(), s.wake)()
	for {
		frame := s.next(call, sent)
		if frame == nil {
			return call.Context().Err()
		}
		if err := call.Send(frame); err != nil {
			return err
		}
		sent++
	}
}

func (s *stream) wake() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.news.Broadcast()
}

// reopen makes a stream take input again.
func (s *stream) reopen() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.inputEnded = false
}

func (s *stream) next(call server, sent int) *tidegatev1.ConverseResponse {
	s.mu.Lock()
	defer s.mu.Unlock()
	for call.Context().Err() == nil {
		if sent < len(s.frames) {
			return s.frames[sent]
		}
		if s.inputEnded && s.running == 0 {
			return nil
		}
		s.news.Wait()
	}
	return nil
}

// read takes messages until there are no more. When the call breaks on a stream that is not kept, its turns are cancelled.
func (s *stream) read(call server) {
	for {
		message, err := call.Recv()
		if err != nil {
			s.endInput(call)
			return
		}
		if start := message.GetStart(); start != nil {
			s.start(start)
		}
		if cancel := message.GetCancel(); cancel != nil {
			s.cancel(cancel.GetTurn())
		}
	}
}

func (s *stream) endInput(call server) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.inputEnded = call.Context().Err() == nil
	if !s.inputEnded && s.ready.GetReady().GetResumeFor() == nil {
		go s.cancelAll()
	}
	s.news.Broadcast()
}

func (s *stream) cancelAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, turn := range s.turns {
		turn.cancel()
	}
}

// start begins a turn, unless it was begun before the connection broke.
func (s *stream) start(start *tidegatev1.StartTurn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.turns[start.GetTurn()] != nil {
		return
	}
	gone := make(chan struct{})
	turn := &Turn{Spec: start.GetSpec(), Cancelled: gone, cancel: sync.OnceFunc(func() { close(gone) }), stream: s, number: start.GetTurn()}
	s.turns[turn.number] = turn
	s.running++
	go s.play(turn)
}

func (s *stream) play(turn *Turn) {
	s.router.note(turn.Spec)
	s.router.play(turn)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running--
	s.news.Broadcast()
}

func (s *stream) cancel(number uint32) {
	s.router.noteCancel()
	s.mu.Lock()
	defer s.mu.Unlock()
	if turn := s.turns[number]; turn != nil {
		turn.cancel()
	}
}
