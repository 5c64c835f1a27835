package rows

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/store"
)

// maxDue is how many jobs one Advance ends, wakes or rewrites, if a commit takes so many.
const maxDue = 500

// Advance implements store.Jobs.
func (s *Store) Advance(ctx context.Context, now time.Time) (store.Advanced, error) {
	var out store.Advanced
	err := s.do(ctx, SpaceCritical, func(t *tx) error {
		at := s.sched.at(now)
		isDue := s.sched.isDue(at)
		if isDue && t.space >= SpaceLow {
			if err := s.elapse(t, at, &out); err != nil {
				return err
			}
		}
		ended := len(out.Ended)
		if err := s.rewrite(t, &out); err != nil {
			return err
		}
		if isDue && t.space < SpaceLow && len(out.Ended) == ended {
			return noSpace()
		}
		out.More = len(s.sched.doomed) > 0 || s.sched.isDue(at)
		return nil
	})
	if err != nil {
		return store.Advanced{}, err
	}
	return out, nil
}

// isDue reports whether a time has come that an alarm is set to.
func (s *schedule) isDue(now int64) bool {
	next, ok := s.agenda.next()
	return ok && next <= now
}

// rewrite writes the rows of jobs that their queue's mark has cancelled, as far as the
// commit has room. Nothing waits for them, as whatever reads one sees the mark.
func (s *Store) rewrite(t *tx, out *store.Advanced) error {
	for n := 0; n < maxDue && t.hasRoom(maxEvent+maxStep); n++ {
		e := s.sched.nextDoomed()
		if e == nil {
			return nil
		}
		before, err := readJob(t, e.id)
		if err != nil {
			if s.skip(e, err) {
				continue
			}
			return err
		}
		after, _, err := coveredBy(t, before)
		if err != nil {
			if s.skip(e, err) {
				continue
			}
			return err
		}
		s.end(t, e, &before, &after, 0)
		out.Ended = append(out.Ended, after)
	}
	return nil
}

// skip reports whether an error is only about the row of one job, which is then
// left alone.
func (s *Store) skip(e *entry, err error) bool {
	if !errors.Is(err, ErrDamaged) && !errors.Is(err, harp.ErrNotFound) {
		return false
	}
	s.log.Error("job cannot be read", "job", e.id.String(), "err", err)
	return true
}

// end writes the end of a job that waited.
func (s *Store) end(t *tx, e *entry, before, after *store.Job, now int64) {
	t.change(e.id, before, after)
	s.sched.dequeue(e, now)
	s.forget(t, e)
}

// elapse does what has become due: it wakes jobs, ends those that may not start any
// more, and claims what may start by it. What cannot be done now stays due.
func (s *Store) elapse(t *tx, now int64, out *store.Advanced) error {
	var woken []*entry
	for n := 0; n < maxDue && len(out.Claimed) < maxDue && t.hasRoom(maxEvent+maxStep); n++ {
		a := s.sched.agenda.pop(now)
		if a == nil {
			break
		}
		if a.kind == alarmWake {
			if !a.entry.isDoomed() {
				if s.sched.wake(a.entry, now); a.entry.line != nil {
					woken = append(woken, a.entry)
				}
			}
			continue
		}
		if err := s.ring(t, a, now, out); err != nil {
			s.sched.agenda.set(a, a.at)
			return err
		}
	}
	return s.startWoken(t, woken, now, out)
}

// ring does what an alarm is about, but for that of a job whose time has come.
func (s *Store) ring(t *tx, a *alarm, now int64, out *store.Advanced) error {
	switch e := a.entry; a.kind {
	case alarmExpire:
		return s.expire(t, e, now, out)
	case alarmAway:
		if s.sched.hasLeft(e, now) {
			return s.expire(t, e, now, out)
		}
	case alarmLost:
		return s.giveUp(t, e, now, out)
	case alarmRearm:
		s.sched.rearm(a.queue, now)
	case alarmBacklog:
		started, err := s.probe(t, a.backlog, max(a.backlog.most(), a.backlog.probes+1), now)
		out.Claimed = append(out.Claimed, started...)
		return err
	case alarmFill:
		return s.fill(t, a.queue, now, out)
	case alarmWake: // elapse's
	}
	return nil
}

// giveUp ends the attempt of a job whose host has been silent too long, unless that is
// back or about to return.
func (s *Store) giveUp(t *tx, e *entry, now int64, out *store.Advanced) error {
	if until := nanos(e.host.gate.Awaited); until > now {
		s.sched.agenda.set(&e.losing, until)
		return nil
	}
	before, err := readJob(t, e.id)
	if err != nil {
		if s.skip(e, err) {
			return nil
		}
		return err
	}
	var c store.Change
	err = s.happen(t, e.id, before, store.Event{
		Kind: store.Lose, At: fromNanos(now), Reason: harp.LostTooLong, Jitter: rand.Float64(),
	}, &c)
	if err != nil {
		return err
	}
	if c.Err != nil {
		s.log.Error("job cannot be given up", "job", e.id.String(), "err", c.Err)
	}
	if c.Effect.Ends {
		out.Ended = append(out.Ended, c.Job)
	}
	out.Claimed = append(out.Claimed, c.Claimed...)
	return nil
}

// hasLeft reports whether a job has waited for its absent host as long as it may.
func (s *schedule) hasLeft(e *entry, now int64) bool {
	if e.isDoomed() || e.line == nil || !e.line.allows(e, s) || !e.host.isAway() {
		return false
	}
	if e.deadline() <= now {
		return true
	}
	e.arm(&s.agenda)
	return false
}

// fill claims what may start by the free slots of a queue. What is too much for one commit
// stays due.
func (s *Store) fill(t *tx, q *queue, now int64, out *store.Advanced) error {
	for len(out.Claimed) < maxDue && t.hasRoom(maxStep) {
		e := q.next(s.sched, now)
		if e == nil {
			return nil
		}
		j, err := s.claim(t, e, now)
		if err != nil {
			return err
		}
		if j != nil {
			out.Claimed = append(out.Claimed, *j)
		}
	}
	s.sched.agenda.set(&q.fill, now)
	return nil
}

// rearm looks at all lines of a queue for jobs that free slots have allowed.
func (s *schedule) rearm(q *queue, now int64) {
	for _, l := range q.lines {
		l.allow(s, now)
	}
}

// expire ends a job that has not started in time.
func (s *Store) expire(t *tx, e *entry, now int64, out *store.Advanced) error {
	if e.isDoomed() {
		return nil
	}
	before, err := readJob(t, e.id)
	if err != nil {
		if s.skip(e, err) {
			return nil
		}
		return err
	}
	reason := reasonStartBefore
	if s.sched.reason(e, &before) == harp.ReasonOffline {
		reason = harp.ReasonOffline
	}
	after, _, err := next(t, before, store.Event{Kind: store.Expire, At: fromNanos(now), Reason: reason})
	if err != nil {
		return err
	}
	s.end(t, e, &before, &after, now)
	out.Ended = append(out.Ended, after)
	return nil
}

// reasonStartBefore is the reason of a job that expired whatever it waited for.
const reasonStartBefore = "start_before"

// startWoken claims, for each job whose time has come, the next of its queue. Where the
// commit takes no more, the time of the others comes again.
func (s *Store) startWoken(t *tx, woken []*entry, now int64, out *store.Advanced) error {
	slices.SortFunc(woken, func(a, b *entry) int {
		if a.before(b) {
			return -1
		}
		return 1
	})
	for _, e := range woken {
		if !t.hasRoom(maxStep) {
			if e.line != nil {
				s.sched.agenda.set(&e.waking, now)
			}
			continue
		}
		next := e.queue.next(s.sched, now)
		if next == nil {
			continue
		}
		j, err := s.claim(t, next, now)
		if err != nil {
			return err
		}
		if j != nil {
			out.Claimed = append(out.Claimed, *j)
		}
	}
	return nil
}
