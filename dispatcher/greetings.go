package dispatcher

import (
	"context"
	"sync"
	"sync/atomic"
)

// greetings bounds what all agents together make the dispatcher hold while they are greeted, whatever certificates
// they have.
type greetings struct {
	all, long chan struct{} // slots
	waiting   atomic.Int64  // agents that wait for one
}

func newGreetings() *greetings {
	return &greetings{all: make(chan struct{}, greetingsAtOnce), long: make(chan struct{}, longGreetings)}
}

// takeSlot waits for a slot. Errors: context.Cause.
func (g *greetings) takeSlot(ctx context.Context, slots chan struct{}) (release func(), err error) {
	g.waiting.Add(1)
	defer g.waiting.Add(-1)
	select {
	case slots <- struct{}{}:
		return sync.OnceFunc(func() { <-slots }), nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// used is how many are under way, and how many of them are long.
func (g *greetings) used() (all, long int64) { return int64(len(g.all)), int64(len(g.long)) }
