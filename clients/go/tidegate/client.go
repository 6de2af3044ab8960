package tidegate

import (
	"cmp"
	"context"
	"maps"
	"os"
	"runtime"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
)

// keyVariable is where an API key is looked for in the environment.
const keyVariable = "TIDEGATE_KEY"

// targetVariable is where a router's address is looked for in the environment, and defaultTarget where `tidegate up` is.
const (
	targetVariable = "TIDEGATE_TARGET"
	defaultTarget  = "127.0.0.1:8500"
)

// closeGrace is how long something that is given up may take to end in order, before it is cut.
const closeGrace = time.Second

// Chatter starts turns: a [Client] or a [Session].
type Chatter interface {
	// Chat starts a turn, which ends with its context.
	Chat(ctx context.Context, parts ...Part) *Turn
	newRequest(parts []Part) *request
	start(ctx context.Context, r *request) *Turn
}

// Client is a connection to a router. It may be used by many goroutines; what it has running ends with Close.
type Client struct {
	links  links
	inject []func(context.Context, map[string]string)
	budget budget

	mu       sync.Mutex
	closed   bool
	sessions map[*Session]struct{}
	streams  sync.WaitGroup
}

// NewClient makes a client for a router, `host:port`, or whatever else gRPC takes for a target; an empty one is that of the environment's
// TIDEGATE_TARGET, else that of `tidegate up`. It does not connect yet.
func NewClient(target string, options ...ClientOption) (*Client, error) {
	target = cmp.Or(target, os.Getenv(targetVariable), defaultTarget)
	c := &config{}
	for _, option := range append([]ClientOption{WithKey(os.Getenv(keyVariable))}, options...) {
		option(c)
	}
	dial, err := c.dialOptions(target)
	if err != nil {
		return nil, err
	}
	client := &Client{inject: c.inject, sessions: map[*Session]struct{}{}}
	client.links.dial = func() (*grpc.ClientConn, error) { return grpc.NewClient(target, dial...) }
	link, err := client.links.acquire()
	if err != nil {
		return nil, badUse("target", err.Error())
	}
	client.links.release(link)
	return client, nil
}

func (c *config) dialOptions(target string) ([]grpc.DialOption, error) {
	credentials, err := c.credentialOptions(target)
	if err != nil {
		return nil, err
	}
	own := []grpc.DialOption{
		grpc.WithDisableRetry(), // a turn costs money; what is tried again is decided where the reason is known
		grpc.WithDisableServiceConfig(),
		grpc.WithUserAgent("tidegate-go"),
		grpc.WithDefaultServiceConfig(`{"loadBalancingConfig": [{"round_robin": {}}]}`),
		// A connection that is dead without saying so must be found within the time that a stream waits to be resumed.
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 20 * time.Second, Timeout: 10 * time.Second}),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 2 * time.Second},
			MinConnectTimeout: 5 * time.Second,
		}),
	}
	return append(append(own, credentials...), c.dial...), nil
}

// Chat starts a turn on a stream of its own.
func (c *Client) Chat(ctx context.Context, parts ...Part) *Turn {
	return c.start(ctx, c.newRequest(parts))
}

// Session gives a stream for many turns, which may run side by side. Its parts come before those of each turn: a model, instructions,
// tools. It ends with its context, or when closed.
func (c *Client) Session(ctx context.Context, parts ...Part) *Session {
	s := &Session{client: c, ctx: ctx, parts: parts, resumeFor: newRequest(parts).resumeFor}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		s.closed = true
		return s
	}
	c.sessions[s] = struct{}{}
	s.watch()
	return s
}

// Close cancels what runs, and ends the connection.
func (c *Client) Close() error {
	c.mu.Lock()
	c.closed = true
	sessions := slices.Collect(maps.Keys(c.sessions))
	c.mu.Unlock()
	for _, s := range sessions {
		s.shut()
	}
	c.streams.Wait()
	c.links.close()
	return nil
}

func (c *Client) newRequest(parts []Part) *request { return newRequest(parts) }

func (c *Client) start(ctx context.Context, r *request) *Turn {
	s := c.Session(ctx, ResumeFor(r.resumeFor))
	turn := s.startTurn(ctx, r, func() { s.shut() })
	runtime.AddCleanup(turn, func(s *Session) { s.shut() }, s)
	return turn
}

// forget is called by a session that is closed.
func (c *Client) forget(s *Session) {
	c.mu.Lock()
	delete(c.sessions, s)
	c.mu.Unlock()
}

// addHeaders is asked for each call, so what is injected is fresh.
func (c *Client) addHeaders(ctx context.Context) context.Context {
	headers := map[string]string{}
	for _, inject := range c.inject {
		inject(ctx, headers)
	}
	for name, value := range headers {
		ctx = metadata.AppendToOutgoingContext(ctx, name, value)
	}
	return ctx
}
