package rows

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/store"
	"github.com/harpcaller/harp/store/internal/schedule"
)

// maxDue is how many jobs one Advance ends, wakes or rewrites, if a commit takes so many.
const maxDue = 500

// Advance implements store.Jobs.
func (s *Store) Advance(ctx context.Context, now time.Time) (store.Advanced, error) {
	var out store.Advanced
	asked := s.asked()
	err := s.do(ctx, SpaceCritical, func(t *tx) error {
		at := s.sched.NoteTime(s.sched.Since(asked, now))
		if !s.knowsTime {
			s.knowsTime = true
			s.sched.NoteOpened(at)
		}
		isDue := s.sched.IsDue(at)
		if err := s.doDue(t, isDue, at, &out); err != nil {
			return err
		}
		if isDue && t.space < SpaceLow && !t.wrote {
			return noSpace()
		}
		started, err := s.settleBatches(t, at)
		if out.Claimed = append(out.Claimed, started...); err != nil {
			return err
		}
		out.Ended, out.Over = append(out.Ended, t.left...), t.over
		out.More = s.sched.HasCancelled() || s.sched.IsDue(at)
		return nil
	})
	if err != nil {
		return store.Advanced{}, err
	}
	return out, nil
}

// starts is what lets jobs start of what has become due.
type starts struct {
	alarms []*schedule.Alarm
	woken  []*schedule.Job
}

// doDue does what has become due, if anything has, and writes rows of what is cancelled. What lets jobs start comes last, as what ends
// may stop their batches; what an error keeps from starting stays due.
func (s *Store) doDue(t *tx, isDue bool, now int64, out *store.Advanced) (err error) {
	var due starts
	switch {
	case isDue && t.space >= SpaceLow:
		err = s.ringAlarms(t, now, &due, out)
	case isDue:
		err = s.askAll(t, now, out)
	}
	if err == nil {
		err = s.rewriteCancelled(t, out)
	}
	if err == nil {
		var started []*store.Job
		started, err = s.startFreed(t)
		out.Claimed = append(out.Claimed, started...)
	}
	if err == nil {
		err = s.ringStarts(t, &due, now, out)
	}
	if err == nil {
		return s.startWoken(t, due.woken, now, out)
	}
	for _, a := range due.alarms {
		s.startLater(a)
	}
	s.wakeLater(due.woken, now)
	return err
}

// startLater has an alarm that lets jobs start stay due.
func (s *Store) startLater(a *schedule.Alarm) {
	if a.Kind == schedule.AlarmHolds {
		s.sched.ReviewLater(a) // it may be set to the next review by now
		return
	}
	s.sched.PostponeAlarm(a)
}

// rewriteCancelled writes the rows of jobs that their queue's mark has cancelled, as far as the
// commit has room. Nothing waits for them, as whatever reads one sees the mark.
func (s *Store) rewriteCancelled(t *tx, out *store.Advanced) error {
	for n := 0; n < maxDue && t.hasRoom(maxEvent+2*maxStep); n++ {
		e := s.sched.NextCancelled()
		if e == nil {
			return nil
		}
		before, err := readJob(t, e.ID)
		after := before
		if err == nil {
			after, _, err = coveredBy(t, before)
		}
		if err != nil {
			if s.skipDamaged(e, err) {
				continue
			}
			s.sched.ReturnCancelled(e)
			return err
		}
		if err := s.endCancelled(t, e, before, after, 0); err != nil {
			s.sched.ReturnCancelled(e)
			return err
		}
		out.Ended = append(out.Ended, after)
	}
	return nil
}

// skipDamaged reports whether an error is only about one job, which is then left alone.
func (s *Store) skipDamaged(e *schedule.Job, err error) bool {
	for _, about := range []error{ErrDamaged, harp.ErrNotFound, store.ErrIllegal, store.ErrFenced} {
		if errors.Is(err, about) {
			s.log.Error("job is left as it is", "job", id(e.ID).String(), "err", err)
			return true
		}
	}
	return false
}

// endCancelled writes the end of a job that waited.
func (s *Store) endCancelled(t *tx, e *schedule.Job, before, after *store.Job, now int64) error {
	if err := s.change(t, e.ID, before, after); err != nil {
		return err
	}
	s.sched.Dequeue(e, now)
	s.forgetJob(t, e)
	return nil
}

// ringAlarms does what has become due, but for what lets jobs start, which it adds to due. What cannot be done now stays due.
func (s *Store) ringAlarms(t *tx, now int64, due *starts, out *store.Advanced) error {
	for n := 0; n < maxDue && t.hasRoom(maxEvent+2*maxStep); n++ {
		a := s.sched.PopAlarm(now)
		if a == nil {
			return nil
		}
		switch a.Kind {
		case schedule.AlarmWake:
			if !a.Job.IsCancelled() && s.sched.Wake(a.Job, now) {
				due.woken = append(due.woken, a.Job)
			}
		case schedule.AlarmHolds:
			s.sched.ReviewHolds(a, now) // now: what is kept back does not expire for its host
			due.alarms = append(due.alarms, a)
		case schedule.AlarmBacklog, schedule.AlarmFill:
			due.alarms = append(due.alarms, a)
		default:
			if err := s.ringAlarm(t, a, now, out); err != nil {
				s.sched.PostponeAlarm(a)
				return err
			}
		}
	}
	return nil
}

// ringAlarm does what an alarm is about that lets no job start at once.
func (s *Store) ringAlarm(t *tx, a *schedule.Alarm, now int64, out *store.Advanced) error {
	switch e := a.Job; a.Kind {
	case schedule.AlarmExpire:
		return s.expireJob(t, e, now, out)
	case schedule.AlarmAway:
		if s.sched.HasLeft(e, now) {
			return s.expireJob(t, e, now, out)
		}
	case schedule.AlarmLost:
		return s.giveUpJob(t, e, now, out)
	case schedule.AlarmRearm:
		s.sched.Rearm(a.Queue, now)
	case schedule.AlarmBatch:
		return s.ringBatch(t, a.Batch, now, out)
	case schedule.AlarmUnpause:
		return s.endPause(t, a.Queue, now)
	case schedule.AlarmWake, schedule.AlarmHolds, schedule.AlarmBacklog, schedule.AlarmFill: // ringAlarms'
	}
	return nil
}

// ringStarts claims what alarms let start, and takes those that it has done out of due.
func (s *Store) ringStarts(t *tx, due *starts, now int64, out *store.Advanced) (err error) {
	for len(due.alarms) > 0 && err == nil {
		a := due.alarms[0]
		switch {
		case len(out.Claimed) >= maxDue || !t.hasRoom(maxStep):
			s.startLater(a)
		case a.Kind == schedule.AlarmBacklog:
			var started []*store.Job
			started, err = s.sendProbes(t, a.Backlog, a.Backlog.OneMore(), now)
			out.Claimed = append(out.Claimed, started...)
		case a.Kind == schedule.AlarmFill:
			err = s.fillQueue(t, a.Queue, now, out)
		default:
			err = s.startReviewed(t, a, now, out)
		}
		if err == nil {
			due.alarms = due.alarms[1:]
		}
	}
	return err
}

// giveUpJob ends the attempt of a job whose host has been silent too long, unless that is
// back or about to return.
func (s *Store) giveUpJob(t *tx, e *schedule.Job, now int64, out *store.Advanced) error {
	if s.sched.IsAwaited(e, now) {
		return nil
	}
	before, err := readJob(t, e.ID)
	if err != nil {
		if s.skipDamaged(e, err) {
			return nil
		}
		return err
	}
	var c store.Change
	err = s.applyEvent(t, e.ID, before, store.Event{
		Kind: store.Lose, At: fromNanos(now), Reason: harp.LostTooLong, Jitter: rand.Float64(),
	}, &c)
	if err != nil {
		return err
	}
	if c.Err != nil && !s.skipDamaged(e, c.Err) {
		return c.Err
	}
	if c.Effect.Ends {
		out.Ended = append(out.Ended, c.Job)
	}
	return nil
}

// fillQueue claims what may start by the free slots of a queue. What is too much for one commit
// stays due.
func (s *Store) fillQueue(t *tx, q *schedule.Queue, now int64, out *store.Advanced) error {
	for len(out.Claimed) < maxDue && t.hasRoom(maxStep) {
		e := s.sched.NextInQueue(q, now)
		if e == nil {
			return nil
		}
		j, err := s.claimJob(t, e, now)
		if err != nil {
			return err
		}
		if j != nil {
			out.Claimed = append(out.Claimed, j)
		}
	}
	s.sched.FillLater(q, now)
	return nil
}

// startReviewed claims what windows and pauses let start on a host. What is too much for one commit stays due.
func (s *Store) startReviewed(t *tx, a *schedule.Alarm, now int64, out *store.Advanced) error {
	started, more, err := s.claimOn(t, []string{a.HostName()}, maxDue-len(out.Claimed), now)
	out.Claimed = append(out.Claimed, started...)
	if err == nil && more {
		s.sched.ReviewLater(a)
	}
	return err
}

// expireJob ends a job that has not started in time.
func (s *Store) expireJob(t *tx, e *schedule.Job, now int64, out *store.Advanced) error {
	if e.IsCancelled() {
		return nil
	}
	before, err := readJob(t, e.ID)
	if err != nil {
		if s.skipDamaged(e, err) {
			return nil
		}
		return err
	}
	if covered, _, err := coveredBy(t, before); err != nil || covered.State.Ended() {
		return err // it ends by the cancel of its batch
	}
	reason := reasonStartBefore
	if s.sched.Reason(e, before) == harp.ReasonOffline {
		reason = harp.ReasonOffline
	}
	after, _, err := nextLife(t, before, store.Event{Kind: store.Expire, At: fromNanos(now), Reason: reason})
	if err != nil {
		return err
	}
	if err := s.endCancelled(t, e, before, after, now); err != nil {
		return err
	}
	out.Ended = append(out.Ended, after)
	return nil
}

// reasonStartBefore is the reason of a job that expired whatever it waited for.
const reasonStartBefore = "start_before"

// startWoken claims, for each job whose time has come, the next of its queue. Where the
// commit takes no more, the time of the others comes again.
func (s *Store) startWoken(t *tx, woken []*schedule.Job, now int64, out *store.Advanced) error {
	slices.SortFunc(woken, (*schedule.Job).Compare)
	for n, e := range woken {
		if !t.hasRoom(maxStep) {
			s.sched.WakeLater(e, now)
			continue
		}
		next := s.sched.NextInQueue(e.Queue, now)
		if next == nil {
			continue
		}
		j, err := s.claimJob(t, next, now)
		if err != nil {
			s.wakeLater(woken[n:], now)
			return err
		}
		if j != nil {
			out.Claimed = append(out.Claimed, j)
		}
	}
	return nil
}

// wakeLater has the time of jobs come again that was not looked at to its end.
func (s *Store) wakeLater(woken []*schedule.Job, now int64) {
	for _, e := range woken {
		s.sched.WakeLater(e, now)
	}
}
