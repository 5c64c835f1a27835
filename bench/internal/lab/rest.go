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

// Rest looks at a process that has nothing to do: at first it is left alone until it has
// found its pace, then its processor time is taken over a while. A fleet of 10,000 that
// is new to harp has found it when all were told their heartbeat's interval, 100 s.
func (l *Lab) Rest(ctx context.Context, pid int) (Rested, error) {
	settle, look := 2*time.Minute, time.Minute
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
