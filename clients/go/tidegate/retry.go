package tidegate

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
)

// longestPause is the longest that a turn waits to be tried again. A router that asks for more leaves the decision to the caller.
const longestPause = 10 * time.Second

// budget is what a client has for further tries of its turns: some at the beginning, and one more for each ten turns that are answered. In
// an outage it is soon used up, and then each turn is tried once.
type budget struct {
	mu    sync.Mutex
	spent float64
}

const wholeBudget = 50

// take tells whether there was a try left.
func (b *budget) take() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.spent > wholeBudget-1 {
		return false
	}
	b.spent++
	return true
}

// earn is called for a turn that was answered.
func (b *budget) earn() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.spent = max(0, b.spent-0.1)
}

// retryPause is how long to wait until the same turn may be tried again: what the router says, spread a little, so that callers who failed
// together come back apart. It is negative when there is nothing to be gained.
func retryPause(ctx context.Context, err *Error) time.Duration {
	pause := time.Duration(float64(err.RetryAfter) * (1 + 0.2*rand.Float64()))
	deadline, limited := ctx.Deadline()
	isBusy := err.Code == codes.Unavailable || err.Code == codes.ResourceExhausted
	if !err.Retryable || !isBusy || pause > longestPause || limited && time.Until(deadline) < pause {
		return -1
	}
	return pause
}
