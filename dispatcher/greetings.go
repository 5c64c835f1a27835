package dispatcher

import (
	"context"
	"sync"
	"sync/atomic"
)

const (
	// greetingsAtOnce is how many agents are greeted at a time.
	greetingsAtOnce = 1024
	// shortGreeting is how many bytes an agent may say in its greeting, or in a later list of its procedures, before
	// it is a long one, and longGreetings how many long ones there are at a time: together they have 64 MiB, as the
	// short ones have.
	shortGreeting = 64 << 10
	longGreetings = 8
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
