package rows

import (
	"context"
	"errors"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/store"
	"github.com/harpcaller/harp/store/internal/schedule"
)

// maxClaims is how many jobs one operation claims, if a commit takes so many.
const maxClaims = 500

// Claim implements store.Jobs.
func (s *Store) Claim(ctx context.Context, hosts []string, n int, now time.Time) ([]*store.Job, error) {
	var out []*store.Job
	asked := s.asked()
	for len(out) < n {
		var got []*store.Job
		var more bool
		err := s.doAhead(ctx, SpaceLow, func(t *tx) (err error) {
			got, more, err = s.claimOn(t, hosts, min(n-len(out), maxClaims), s.sched.NoteTime(s.sched.Since(asked, now)))
			return err
		})
		if err != nil {
			return out, err
		}
		out = append(out, got...)
		if !more {
			break
		}
	}
	return out, nil
}

// Wake implements store.Jobs.
func (s *Store) Wake(ctx context.Context, hostName string, now time.Time) error {
	asked := s.asked()
	return s.doAhead(ctx, SpaceFull, func(*tx) error {
		at := s.sched.NoteTime(s.sched.Since(asked, now))
		s.sched.WakeHost(hostName, at)
		return nil
	})
}

// claimOn claims up to n jobs on some hosts, the first in order of all of them
// each time, and reports whether there may be more.
func (s *Store) claimOn(t *tx, names []string, n int, now int64) (out []*store.Job, more bool, err error) {
	offers := s.sched.Offers(names, now)
	for len(out) < n && offers.More() && t.hasRoom(maxStep) {
		e := offers.Next()
		if e == nil {
			break
		}
		j, err := s.claimJob(t, e, now)
		if err != nil {
			return out, false, err
		}
		if j != nil {
			out = append(out, j)
		}
	}
	return out, offers.More(), nil
}

// claimJob moves a job that may start to sent; nil if its row cannot be read: then it
// waits for somebody to look at it, out of everybody's way.
func (s *Store) claimJob(t *tx, e *schedule.Job, now int64) (*store.Job, error) {
	before, err := readJob(t, e.ID)
	switch {
	case errors.Is(err, ErrDamaged), errors.Is(err, harp.ErrNotFound):
		s.log.Error("job cannot be started", "job", id(e.ID).String(), "err", err)
		s.sched.Pass(e, now)
		return nil, nil
	case err != nil:
		return nil, err
	}
	after := *before
	after.Life = sentLife(before, now)
	s.sched.Start(e, now)
	if err := s.change(t, e.ID, before, &after); err != nil {
		return nil, err
	}
	return &after, nil
}

// freed is what an event has left to others. What may start by it is claimed when all that the operation does is counted: failures
// among that may stop a batch.
type freed struct {
	job     *schedule.Job
	host    string            // that the job is on
	gives   bool              // the job has given its slot and its attempt back
	wasFull bool              // the host had as many attempts as it may
	backlog *schedule.Backlog // of which others may be sent, as the job was taken or is over; nil: none
}

// startFreed claims what may start by what the events of the operation have left. What there is no room for stays in t.freed.
func (s *Store) startFreed(t *tx) (started []*store.Job, err error) {
	now := s.sched.Latest // of what starts by an event that is told late: windows may have begun since
	var full map[string]bool
	for len(t.freed) > 0 && t.hasRoom(maxStep) {
		f := t.freed[0]
		t.freed = t.freed[1:]
		if f.wasFull && full == nil {
			full = map[string]bool{}
		}
		if f.wasFull {
			full[f.host] = true
		}
		if f.gives {
			some, err := s.refill(t, f.job, full[f.host], now)
			started = append(started, some...)
			if err != nil {
				return started, err
			}
		}
		if f.backlog == nil {
			continue
		}
		most := f.backlog.MaxProbes()
		if f.gives {
			most = f.backlog.OneMore()
		}
		some, err := s.sendProbes(t, f.backlog, most, now)
		started = append(started, some...)
		if err != nil {
			return started, err
		}
	}
	return started, nil
}

// startFreedLater has what may start by what the operation has left, and did not come to, be claimed by the next Advance.
func (s *Store) startFreedLater(t *tx) {
	for _, f := range t.freed {
		if f.gives {
			s.sched.FillFor(f.job, f.wasFull)
		}
		if f.backlog != nil {
			s.sched.ProbeLater(f.backlog)
		}
	}
}

// refill claims what may start by a slot that came free: the next of the queue,
// and the next of the host if that was full. A job that cannot be read takes no slot.
func (s *Store) refill(t *tx, freed *schedule.Job, hostWasFull bool, now int64) ([]*store.Job, error) {
	var out []*store.Job
	add := func(next func() *schedule.Job) error {
		for e := next(); e != nil; e = next() {
			j, err := s.claimJob(t, e, now)
			if err != nil {
				return err
			}
			if j != nil {
				out = append(out, j)
				return nil
			}
		}
		return nil
	}
	err := add(func() *schedule.Job { return s.sched.NextInQueue(freed.Queue, now) })
	if err == nil && hostWasFull {
		err = add(func() *schedule.Job { return s.sched.NextOnHostOf(freed, now) })
	}
	s.sched.Settle(freed, now)
	return out, err
}

// sendProbes claims jobs of a backlog, if there is one, until so many are on their way.
func (s *Store) sendProbes(t *tx, b *schedule.Backlog, most int, now int64) (out []*store.Job, err error) {
	for e := range s.sched.Probes(b, most, now, func() bool { return t.hasRoom(maxStep) }) {
		j, err := s.claimJob(t, e, now)
		if err != nil {
			return out, err
		}
		if j != nil {
			out = append(out, j)
		}
	}
	return out, nil
}
