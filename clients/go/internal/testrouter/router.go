// Package testrouter is a router for tests: ChatService on loopback, whose answers a test makes up.
package testrouter

import (
	"fmt"
	"net"
	"slices"
	"sync"

	tidegatev1 "tidegate.dev/sdk/go/tidegate/v1"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// Play answers one turn, in a goroutine of its own.
type Play func(*Turn)

// Router is a running router. It keeps streams that ask for it, and counts what it sees.
type Router struct {
	tidegatev1.UnimplementedChatServiceServer
	Target string

	play     Play
	server   *grpc.Server
	listener *listener

	mu      sync.Mutex
	streams []*stream
	headers []metadata.MD
	specs   []*tidegatev1.TurnSpec
	cancels int
	refusal error
}

// Start runs a router, until Stop.
func Start(play Play, options ...grpc.ServerOption) (*Router, error) {
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	r := &Router{Target: inner.Addr().String(), play: play, server: grpc.NewServer(options...), listener: &listener{Listener: inner}}
	tidegatev1.RegisterChatServiceServer(r.server, r)
	go r.server.Serve(r.listener)
	return r, nil
}

// Stop ends everything at once.
func (r *Router) Stop() {
	r.server.Stop()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.streams {
		s.cancelAll()
	}
}

// Cut breaks all connections.
func (r *Router) Cut() { r.listener.cut() }

// Refuse makes further streams fail with this; nil takes it back.
func (r *Router) Refuse(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.refusal = err
}

// GoAway tells all streams that the router is going.
func (r *Router) GoAway() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.streams {
		s.put(&tidegatev1.Event{Event: &tidegatev1.Event_GoAway{GoAway: &tidegatev1.GoAway{}}})
	}
}

// Seen is what a router has seen.
type Seen struct {
	// Headers are those of each call.
	Headers []metadata.MD
	// Specs are those of the turns, in the order of their starts.
	Specs []*tidegatev1.TurnSpec
	// Streams counts those that were opened, not those taken up again.
	Streams int
	// Connections counts those that were accepted.
	Connections int
	// Cancels counts the turns that were cancelled by message.
	Cancels int
}

// Seen tells what the router has seen up to now.
func (r *Router) Seen() Seen {
	r.mu.Lock()
	defer r.mu.Unlock()
	return Seen{slices.Clone(r.headers), slices.Clone(r.specs), len(r.streams), r.listener.count(), r.cancels}
}

func (r *Router) note(spec *tidegatev1.TurnSpec) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.specs = append(r.specs, spec)
}

func (r *Router) noteCancel() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cancels++
}

// Converse serves one call.
func (r *Router) Converse(call grpc.BidiStreamingServer[tidegatev1.ConverseRequest, tidegatev1.ConverseResponse]) error {
	first, err := call.Recv()
	if err != nil {
		return err
	}
	headers, _ := metadata.FromIncomingContext(call.Context())
	s, err := r.open(headers, first.GetSetup())
	if err != nil {
		return err
	}
	sent := int(first.GetSetup().GetResume().GetAfterSequence())
	if first.GetSetup().GetResume() != nil {
		call.Send(&tidegatev1.ConverseResponse{Sequence: uint64(sent), Events: []*tidegatev1.Event{s.ready}})
	}
	go s.read(call)
	return s.write(call, sent)
}

func (r *Router) open(headers metadata.MD, setup *tidegatev1.Setup) (*stream, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.headers = append(r.headers, headers)
	if r.refusal != nil {
		return nil, r.refusal
	}
	if resume := setup.GetResume(); resume != nil {
		return r.find(resume.GetStreamId())
	}
	s := newStream(r, fmt.Sprint(len(r.streams)), setup)
	r.streams = append(r.streams, s)
	return s, nil
}

func (r *Router) find(id string) (*stream, error) {
	for _, s := range r.streams {
		if s.ready.GetReady().GetStreamId() == id {
			s.reopen()
			return s, nil
		}
	}
	return nil, status.Error(codes.NotFound, "no such stream")
}

// listener can cut the connections that it has accepted.
type listener struct {
	net.Listener
	mu    sync.Mutex
	conns []net.Conn
}

func (l *listener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.conns = append(l.conns, conn)
	return conn, err
}

func (l *listener) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, conn := range l.conns {
		conn.Close()
	}
}

func (l *listener) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.conns)
}
