package transport

import (
	"context"
	"sync"
	"time"
)

// limiter lets so many a second pass, and a burst of them at once: the generic cell
// rate algorithm. The library of the Go project that does the same is left out, for
// whoever imports harp to call would get one more module for these lines.
type limiter struct {
	every time.Duration // between two, at the full rate
	ahead time.Duration // how far a burst may run ahead of that

	mu   sync.Mutex // guards next
	next time.Time  // when the next would pass without bursts
}

func newLimiter(perSecond float64, burst int) *limiter {
	every := time.Duration(float64(time.Second) / perSecond)
	return &limiter{every: every, ahead: time.Duration(max(burst, 1)-1) * every}
}

// allow reports whether one may pass now, and counts it if it may.
func (l *limiter) allow() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	if l.delayLocked(now) > 0 {
		return false
	}
	l.countLocked(now)
	return true
}

// awaitToken counts one and returns when it may pass. The error is ctx's; the one that gave up
// does not count any more: where many do, the others would have to wait ever longer, and
// give up as well.
func (l *limiter) awaitToken(ctx context.Context) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	l.mu.Lock()
	now := time.Now()
	delay := l.delayLocked(now)
	l.countLocked(now)
	l.mu.Unlock()
	if delay <= 0 {
		return nil
	}
	timer := time.NewTimer(delay)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		l.mu.Lock()
		defer l.mu.Unlock()
		l.next = l.next.Add(-l.every)
		return context.Cause(ctx)
	}
}

func (l *limiter) delayLocked(now time.Time) time.Duration {
	return max(l.next.Sub(now), 0) - l.ahead
}

func (l *limiter) countLocked(now time.Time) {
	if l.next.Before(now) {
		l.next = now
	}
	l.next = l.next.Add(l.every)
}
