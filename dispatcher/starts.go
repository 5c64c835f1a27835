package dispatcher

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/store"
)

// starts are attempts of a session whose procedures have begun, of which that is not
// stored yet. Nobody waits for it: what came while the last ones were stored goes into
// one commit, and those that have ended meanwhile are left out, as their end tells of the
// start as well.
type starts struct {
	mu      sync.Mutex
	waiting []start // guarded by mu
	storing bool    // guarded by mu: somebody is at it
}

type start struct {
	a  *attempt
	at time.Time
}

// lateStart is how late an agent may tell of a start, whatever it says.
const lateStart = time.Second

// maxStarts is how many go into one commit, which must not be too large.
const maxStarts = 500

// noteStart notes that the procedure has begun, so long ago as the agent says.
func (a *attempt) noteStart(ago int64) {
	a.begun = true
	a.noteAnswered()
	a.progress.noteBegun()
	s := a.s
	s.starts.mu.Lock()
	defer s.starts.mu.Unlock()
	s.starts.waiting = append(s.starts.waiting, start{a, s.d.now().Add(-min(max(time.Duration(ago), 0), lateStart))})
	if !s.starts.storing {
		s.starts.storing = true
		s.attempts.Go(s.storeStarts)
	}
}

// storeStarts stores what waits, until nothing does.
func (s *session) storeStarts() {
	for {
		list := s.starts.takeWaiting()
		if list == nil {
			return
		}
		var ts []store.Transition
		for _, one := range list {
			if one.a.ended.Load() {
				continue
			}
			e := s.d.newEvent(one.a.job, store.Started)
			e.At = one.at
			ts = append(ts, store.Transition{ID: one.a.job.ID, Event: e})
		}
		if len(ts) == 0 {
			continue
		}
		for err := s.d.noteStarts(s.d.ctx, ts); err != nil; err = s.d.noteStarts(s.d.ctx, ts) { // else what has begun might count as not started
			if s.d.ctx.Err() == nil && !errors.Is(err, harp.ErrNoSpace) {
				s.d.repeated.Warn("starts "+s.host.name, "starts cannot be noted yet", "host", s.host.name, "err", err)
			}
			if !s.pause(spaceWait) {
				s.storeLastStarts(ts)
				break
			}
		}
	}
}

// storeLastStarts stores what could not be stored while the session lasted, if that can be now: another process would not
// know of it.
func (s *session) storeLastStarts(ts []store.Transition) {
	if s.d.ctx.Err() == nil {
		return // the next session knows
	}
	if err := s.d.noteStarts(context.WithoutCancel(s.d.ctx), ts); err != nil {
		s.d.log.Warn("starts are not noted", "host", s.host.name, "err", err)
	}
}

// takeWaiting returns some of those that wait; nil if none do.
func (st *starts) takeWaiting() []start {
	st.mu.Lock()
	defer st.mu.Unlock()
	n := min(len(st.waiting), maxStarts)
	if n == 0 {
		st.waiting, st.storing = nil, false
		return nil
	}
	list := st.waiting[:n:n]
	st.waiting = st.waiting[n:]
	return list
}

// noteStarts stores starts. One of a job that has ended or moved on is of no interest any
// more.
func (d *Dispatcher) noteStarts(ctx context.Context, ts []store.Transition) error {
	changes, err := d.applyTransitions(ctx, ts...)
	if err != nil {
		return err
	}
	for _, c := range changes {
		if c.Err != nil && !errors.Is(c.Err, store.ErrIllegal) && !errors.Is(c.Err, store.ErrFenced) && !isLost(c.Err) {
			return c.Err
		}
	}
	return nil
}
