package rows

import (
	"context"
	"slices"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/store"
)

// Apply implements store.Jobs.
func (s *Store) Apply(ctx context.Context, ts ...store.Transition) ([]store.Change, error) {
	if size := applySize(ts); size > maxOp {
		return nil, tooMuch("events", size)
	}
	out := make([]store.Change, len(ts))
	err := s.do(ctx, SpaceCritical, func(t *tx) error {
		for n := range ts {
			if err := s.apply(t, &ts[n], &out[n]); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// applySize is about what events will be when they are written: the life of the
// job and of two that it lets start.
func applySize(ts []store.Transition) int {
	size := 0
	for n := range ts {
		e := &ts[n].Event
		size += 3500 + len(e.Value) + len(e.Failure.Data) + len(e.Failure.Message) + len(e.Reason)
	}
	return size
}

// apply moves one job through its life. It returns only errors that nothing can be
// done about.
func (s *Store) apply(t *tx, in *store.Transition, out *store.Change) error {
	i, ok := parseID(in.ID)
	if !ok {
		out.Err = notFound(in.ID)
		return nil
	}
	if t.space < SpaceLow && in.Event.Kind != store.CancelReq {
		out.Err = noSpace()
		return nil
	}
	now := s.sched.at(in.Event.At)
	before, after, effect, err := next(t, i, owned(in.Event))
	if err != nil {
		out.Err = err
		return nil
	}
	if effect.Ends || effect.Late {
		if err := t.putValue(i, in.Event.Value); err != nil {
			out.Err = err
			return nil
		}
	}
	t.change(i, &before, &after)
	out.Job, out.Effect = after, effect
	if e := s.sched.jobs[i]; e != nil {
		out.Claimed, err = s.moved(t, e, &after, effect, now)
	}
	return err
}

// owned returns an event that shares nothing with the one given, its times as they
// are stored.
func owned(e store.Event) store.Event {
	e.At, e.Wake = fromNanos(nanos(e.At)), fromNanos(nanos(e.Wake))
	e.Failure.Data = slices.Clone(e.Failure.Data)
	if c := e.Failure.ExitCode; c != nil {
		code := *c
		e.Failure.ExitCode = &code
	}
	if e.Stopping != nil {
		stopping := *e.Stopping
		stopping.Since = fromNanos(nanos(stopping.Since))
		e.Stopping = &stopping
	}
	return e
}

// next is what a job was and is after an event.
func next(t *tx, i id, event store.Event) (before, after store.Job, effect store.Effect, err error) {
	if event.Kind == store.Claimed {
		return before, after, effect, store.ErrIllegal // slots are Claim's
	}
	if before, err = readJob(t, i); err != nil {
		return before, after, effect, err
	}
	var tell bool
	if after, tell, err = coveredBy(t, before); err != nil {
		return before, after, effect, err
	}
	if after.Life, effect, err = after.Next(event); err != nil {
		return before, after, effect, err
	}
	effect.Tell = (effect.Tell || tell) && !effect.Ends
	return before, after, effect, nil
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

// putValue stores what a procedure returned.
func (t *tx) putValue(i id, v harp.Value) error {
	if len(v) == 0 {
		return nil
	}
	key := i.key(prefixValue)
	if _, err := t.get(key); err != nil {
		return err
	}
	t.put(key, v)
	return nil
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
	if effect.Gives && !effect.Ends {
		s.sched.enqueue(e, after, now, now)
	}
	if !effect.Gives {
		return nil, nil
	}
	return s.refill(t, e, hostWasFull, now)
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
	q.through = 0
	if gone {
		return
	}
	key := nameKey(prefixQueue, q.name)
	var row queueRow
	if _, err := read(t, key, &row); err != nil {
		s.log.Error("queue cannot be read", "queue", harp.Value(q.name).String(), "err", err)
		return
	}
	row.Marks = nil
	t.put(key, encode(row))
}
