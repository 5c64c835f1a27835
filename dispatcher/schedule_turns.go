package dispatcher

import (
	"context"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/wake"
)

// turn is that of whoever makes steps of a schedule.
type turn struct {
	over  chan struct{}  // is closed then
	takes documentRoom   // by what is being put
	by    harp.Principal // who puts it
	then  []string       // schedules that the loop looks at when it is over
}

// takeTurn is for whoever makes steps of a schedule, from what they are decided of until they are committed. Where
// somebody else does it returns what is closed when that is over, and the loop looks at the schedule then.
func (ss *schedules) takeTurn(name string) (taken <-chan struct{}) {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	if turn := ss.turns[name]; turn != nil {
		ss.noted[name] = struct{}{}
		return turn.over
	}
	ss.turns[name] = &turn{over: make(chan struct{})}
	return nil
}

// endTurn ends what takeTurn began.
func (ss *schedules) endTurn(name string) {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	delete(ss.waited, name)
	for _, other := range ss.turns[name].then {
		ss.noted[other] = struct{}{}
		ss.waited[other] = struct{}{}
	}
	wake.Signal(ss.kick)
	close(ss.turns[name].over)
	delete(ss.turns, name)
}

// awaitTurn is takeTurn, and waits for it. Errors: the context's cause.
func (ss *schedules) awaitTurn(ctx context.Context, name string) error {
	for {
		taken := ss.takeTurn(name)
		if taken == nil {
			return nil
		}
		select {
		case <-taken:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// awaitTurns is awaitTurn for several schedules, which are in the order of their names. Errors: the context's cause.
func (ss *schedules) awaitTurns(ctx context.Context, names []string) error {
	for i, name := range names {
		if err := ss.awaitTurn(ctx, name); err != nil {
			ss.endTurns(names[:i])
			return err
		}
	}
	return nil
}

func (ss *schedules) endTurns(names []string) {
	for _, name := range names {
		ss.endTurn(name)
	}
}
