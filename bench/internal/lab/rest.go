package lab

import (
	"context"
	"time"
)

// Rested is what a process that has nothing to do needs.
type Rested struct {
	RSS int64   // bytes
	CPU float64 // percent of a core
}

// shortestLook is how long the processor time of a process at rest is taken at least.
const shortestLook = 100 * time.Second

// lookFor is how long to look at a process whose clients ping once in an interval, 0: never. It
// is a whole number of intervals, so that it holds pings of each client, and of each as many,
// whenever the look begins.
func lookFor(pings time.Duration) time.Duration {
	if pings <= 0 {
		return shortestLook
	}
	return (shortestLook + pings - 1) / pings * pings
}

// Rest looks at a process that has nothing to do: at first it is left alone until it has
// found its pace, then its processor time is taken over whole intervals of its clients' pings.
// A fleet of 10,000 that is new to harp has found it when all were told their heartbeat's
// interval, 100 s.
func (l *Lab) Rest(ctx context.Context, pid int, pings time.Duration) (Rested, error) {
	settle, look := 2*time.Minute, lookFor(pings)
	if l.Quick {
		settle, look = 2*time.Second, 2*time.Second
	}
	if err := Pause(ctx, settle); err != nil {
		return Rested{}, err
	}
	before, err := CPU(pid)
	if err != nil {
		return Rested{}, err
	}
	if err := Pause(ctx, look); err != nil {
		return Rested{}, err
	}
	after, err := CPU(pid)
	if err != nil {
		return Rested{}, err
	}
	rss, err := RSS(pid)
	return Rested{RSS: rss, CPU: 100 * float64(after-before) / float64(look)}, err
}

// Pause waits a while or until ctx ends, which is an error.
func Pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
