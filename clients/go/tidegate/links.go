package tidegate

import (
	"sync"

	"google.golang.org/grpc"
)

// links hands out the connection for each call of a stream, and moves on to a new one when a router is about to go: behind a load balancer
// only a new connection leads to another router.
type links struct {
	dial func() (*grpc.ClientConn, error)

	mu      sync.Mutex
	current *link
}

// link is one connection with the number of its users, the pool being one of them until it moves on.
type link struct {
	conn  *grpc.ClientConn
	users int
}

// acquire gives the current connection; to be released.
func (l *links) acquire() (*link, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.current == nil {
		conn, err := l.dial()
		if err != nil {
			return nil, err
		}
		l.current = &link{conn, 1}
	}
	l.current.users++
	return l.current, nil
}

// release closes a connection behind its last user.
func (l *links) release(k *link) {
	l.mu.Lock()
	k.users--
	last := k.users == 0
	l.mu.Unlock()
	if last {
		k.conn.Close()
	}
}

// retire makes later calls use a new connection.
func (l *links) retire(k *link) {
	l.mu.Lock()
	isCurrent := k != nil && l.current == k
	if isCurrent {
		l.current = nil
	}
	l.mu.Unlock()
	if isCurrent {
		l.release(k)
	}
}

// close gives the current connection up.
func (l *links) close() {
	l.mu.Lock()
	current := l.current
	l.mu.Unlock()
	l.retire(current)
}
