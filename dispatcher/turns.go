package dispatcher

import (
	"context"
	"sync"
	"time"

	"github.com/harpcaller/harp"
)

const (
	// sharedTime is how long others count as coming after one of their calls.
	sharedTime = time.Second

	// turnBytes of a call weigh as much as a call by itself.
	turnBytes = 16 << 10
)

// turns lets calls into the store, or what else is done one after the other. Those of one principal wait for each other, first come, first
// served, when there are many: so the calls of others, which come in beside them, find few before them.
type turns struct {
	alone, shared int // weight that one principal may have under way while no others come, and while they do

	mu          sync.Mutex
	lines       map[harp.Principal]*principalCalls // of those that have calls here
	last        harp.Principal                     // whose the last call was
	sharedUntil time.Time                          // others come as well until then
}

// principalCalls is the calls of one principal.
type principalCalls struct {
	under   int // weight of those that are in the store
	waiting []*waitingCall
}

// waitingCall is a call that waits for its turn.
type waitingCall struct {
	weight int
	turn   chan struct{} // closed when it has come
}

func newTurns(alone, shared int) *turns {
	return &turns{alone: alone, shared: shared, lines: map[harp.Principal]*principalCalls{}}
}

// weightOf is what a call weighs.
func weightOf(sub harp.Submission) int { return weightOfBytes(len(sub.Request) + len(sub.Hosts)) }

func weightOfBytes(n int) int { return 1 + n/turnBytes }

// awaitTurn returns when a call may be brought into the store, which leave says is done. Errors: ctx's.
func (ts *turns) awaitTurn(ctx context.Context, who harp.Principal, weight int) error {
	ts.mu.Lock()
	now := time.Now()
	if who != ts.last {
		if ts.last != (harp.Principal{}) {
			ts.sharedUntil = now.Add(sharedTime)
		}
		ts.last = who
	}
	l := ts.lines[who]
	if l == nil {
		l = &principalCalls{}
		ts.lines[who] = l
	}
	if len(l.waiting) == 0 && ts.hasRoomLocked(l, weight, now) {
		l.under += weight
		ts.mu.Unlock()
		return nil
	}
	w := &waitingCall{weight: weight, turn: make(chan struct{})}
	l.waiting = append(l.waiting, w)
	ts.mu.Unlock()
	select {
	case <-w.turn:
		return nil
	case <-ctx.Done():
	}
	ts.mu.Lock()
	defer ts.mu.Unlock()
	if l.removeWaiting(w) {
		ts.nextLocked(who, l) // it may have been too heavy for the room that there is
	} else {
		ts.leaveLocked(who, weight) // its turn has come meanwhile
	}
	return context.Cause(ctx)
}

// leaveTurn ends a turn.
func (ts *turns) leaveTurn(who harp.Principal, weight int) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	ts.leaveLocked(who, weight)
}

func (ts *turns) leaveLocked(who harp.Principal, weight int) {
	l := ts.lines[who]
	l.under -= weight
	ts.nextLocked(who, l)
}

// nextLocked gives a turn to each of a line for which there is room, and forgets a line of none.
func (ts *turns) nextLocked(who harp.Principal, l *principalCalls) {
	now := time.Now()
	for len(l.waiting) > 0 && ts.hasRoomLocked(l, l.waiting[0].weight, now) {
		w := l.waiting[0]
		l.waiting[0] = nil
		l.waiting = l.waiting[1:]
		l.under += w.weight
		close(w.turn)
	}
	if l.under == 0 && len(l.waiting) == 0 {
		delete(ts.lines, who)
	}
}

// hasRoomLocked reports whether a call may go into the store beside those of its line: one always may.
func (ts *turns) hasRoomLocked(l *principalCalls, weight int, now time.Time) bool {
	most := ts.alone
	if now.Before(ts.sharedUntil) {
		most = ts.shared
	}
	return l.under == 0 || l.under+weight <= most
}

// removeWaiting takes back a call that waits; false if its turn has come.
func (l *principalCalls) removeWaiting(w *waitingCall) bool {
	for i, other := range l.waiting {
		if other == w {
			l.waiting = append(l.waiting[:i], l.waiting[i+1:]...)
			return true
		}
	}
	return false
}

// awaitChange returns when it is the principal's turn to change documents, schedules or hosts, of which most changes are made one at a time, and
// what ends the turn. Errors: ctx's.
func (s *service) awaitChange(ctx context.Context) (endTurn func(), err error) {
	if err := s.d.changes.awaitTurn(ctx, s.who, 1); err != nil {
		return nil, err
	}
	return func() { s.d.changes.leaveTurn(s.who, 1) }, nil
}

// requestChange is request for a change of documents, schedules or hosts, when it is the principal's turn.
func requestChange[T any](s *service, ctx context.Context, run func(context.Context) (T, error)) (T, error) { //nolint:revive // as request
	return request(s, ctx, func(ctx context.Context) (T, error) {
		endTurn, err := s.awaitChange(ctx)
		if err != nil {
			var none T
			return none, err
		}
		defer endTurn()
		return run(ctx)
	})
}
