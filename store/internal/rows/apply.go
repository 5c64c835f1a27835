package rows

import (
	"context"
	"slices"
	"strings"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/store"
)

// Apply implements store.Jobs.
func (s *Store) Apply(ctx context.Context, ts ...store.Transition) ([]store.Change, error) {
	for n := range ts {
		if size := eventSize(&ts[n].Event); size > maxEvent {
			return nil, tooMuch("event", size, maxEvent)
		}
	}
	out := make([]store.Change, len(ts))
	for n := 0; ; {
		err := s.doAhead(ctx, SpaceFull, func(t *tx) error {
			for ; n < len(ts) && t.hasRoom(eventSize(&ts[n].Event)+maxStep); n++ {
				if err := s.apply(t, &ts[n], &out[n]); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
		if n == len(ts) {
			return out, nil
		}
		ctx = context.WithoutCancel(ctx) // it has begun
	}
}

// eventSize is how much an event brings into the life of its job.
func eventSize(e *store.Event) int { return len(e.Value) + failureBytes(&e.Failure) + len(e.Text) }

// apply moves one job through its life. It returns only errors that nothing can be
// done about.
func (s *Store) apply(t *tx, in *store.Transition, out *store.Change) error {
	i, ok := parseID(in.ID)
	if !ok {
		out.Err = notFound(in.ID)
		return nil
	}
	switch {
	case t.space < SpaceCritical, t.space < SpaceLow && in.Event.Kind != store.CancelReq:
		out.Err = noSpace()
		return nil
	case in.Event.Kind == store.Claimed:
		out.Err = store.ErrIllegal // slots are Claim's
		return nil
	}
	before, err := readJob(t, i)
	if err != nil {
		out.Err = err
		return nil
	}
	return s.happen(t, i, before, owned(in.Event), out)
}

// happen lets an event be part of the life of a job that was read. It returns only
// errors that nothing can be done about.
func (s *Store) happen(t *tx, i id, before store.Job, event store.Event, out *store.Change) error {
	now := s.sched.at(event.At)
	after, effect, err := next(t, before, event)
	if err == nil {
		err = t.putValue(i, &before.Life, &after.Life, event.Value)
	}
	if err != nil {
		out.Err = err
		return nil
	}
	if event.Kind == store.Lose {
		t.operator = event.By
	}
	t.change(i, &before, &after)
	t.emitSurvivors(i, &before, &after, event.At)
	t.operator = harp.Principal{}
	out.Job, out.Effect = after, effect
	if e := s.sched.jobs[i]; e != nil {
		out.Claimed, err = s.moved(t, e, &after, effect, now)
	}
	return err
}

// maxWord is how much is kept of a word that an agent chose. Each attempt of a job may
// have one, and all are written with each change.
const maxWord = 256

func cutWord(s string) string {
	if len(s) <= maxWord {
		return s
	}
	return strings.ToValidUTF8(s[:maxWord], "")
}

// owned returns an event that shares nothing with the one given, its times as they
// are stored.
func owned(e store.Event) store.Event {
	e.Reason = cutWord(e.Reason)
	e.At, e.Wake = fromNanos(nanos(e.At)), fromNanos(nanos(e.Wake))
	e.Failure.Data, e.Left = slices.Clone(e.Failure.Data), slices.Clone(e.Left)
	if c := e.Failure.ExitCode; c != nil {
		code := *c
		e.Failure.ExitCode = &code
	}
	if e.Stopping != nil {
		stopping := *e.Stopping
		stopping.Cause, stopping.Since = cutWord(stopping.Cause), fromNanos(nanos(stopping.Since))
		e.Stopping = &stopping
	}
	return e
}

// next is what a job is after an event.
func next(t *tx, before store.Job, event store.Event) (after store.Job, effect store.Effect, err error) {
	after, tell, err := coveredBy(t, before)
	if err != nil {
		return after, effect, err
	}
	if after.Life, effect, err = after.Next(event); err != nil {
		return after, effect, err
	}
	effect.Tell = (effect.Tell || tell) && !effect.Ends
	return after, effect, nil
}

// coveredBy returns a job as the mark of its queue makes it.
func coveredBy(from getter, j store.Job) (store.Job, bool, error) {
	if j.Queue == nil || j.State.Ended() {
		return j, false, nil
	}
	m, err := mark(from, j.Queue)
	j, tell := m.cover(j)
	return j, tell, err
}

// putValue stores what a procedure returned, where its job now speaks of a value,
// and deletes what an attempt before it has returned, where it does not any more.
func (t *tx) putValue(i id, before, after *store.Life, v harp.Value) error {
	has := isValued(after)
	if has == isValued(before) && (!has || len(v) == 0) {
		return nil
	}
	key := i.key(prefixValue)
	if isValued(before) { // else there is nothing under it
		if err := t.meet(key); err != nil {
			return err
		}
	}
	if has {
		t.put(key, v)
	} else {
		t.remove(key)
	}
	return nil
}

// isValued reports whether a value belongs to a job, be it of an attempt or late.
func isValued(l *store.Life) bool {
	return l.HasValue || l.Outcome != nil && l.Outcome.HasValue || l.Late != nil && l.Late.HasValue
}

// moved brings the schedule after a job's life and returns what may start by it.
func (s *Store) moved(t *tx, e *entry, after *store.Job, effect store.Effect, now int64) ([]store.Job, error) {
	hostWasFull := e.host.gate.Open && !e.host.mayStart()
	switch {
	case effect.Gives:
		s.sched.release(e, now)
	case effect.Ends:
		s.sched.dequeue(e, now)
	}
	if effect.Ends {
		s.forget(t, e)
	}
	var b *backlog
	var most int
	if effect.Gives || after.State == harp.StateRunning {
		isBusy := after.State == harp.StateQueued && after.Reason == harp.ReasonAgentBusy
		b, most = s.sched.answered(e, isBusy, effect.Gives)
	}
	if effect.Gives && !effect.Ends {
		s.sched.enqueue(e, after, now, now)
	}
	if !effect.Gives {
		s.sched.stays(e, after, now)
		return s.probe(t, b, most, now)
	}
	out, err := s.refill(t, e, hostWasFull, now)
	if err != nil {
		return out, err
	}
	more, err := s.probe(t, b, most, now)
	return append(out, more...), err
}

// forget takes a job that has ended out of the schedule, and with the last of its
// kind what its queue needed for it: the row, or the mark.
func (s *Store) forget(t *tx, e *entry) {
	q := e.queue
	gone := s.sched.drop(e)
	if gone {
		t.write(nameKey(prefixQueue, q.name), nil)
	}
	if q.through == 0 || q.marked > 0 {
		return
	}
	t.write(nameKey(prefixMarked, q.name), nil)
	q.through, q.marks = 0, nil
	if gone {
		return
	}
	row, _, err := t.queueRow(q.name)
	if err != nil {
		s.log.Error("queue cannot be read", "queue", harp.Value(q.name).String(), "err", err)
		return
	}
	row.Marks = nil
	t.put(nameKey(prefixQueue, q.name), encode(row))
}
