package rows

import (
	"context"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/store"
	"github.com/harpcaller/harp/store/internal/schedule"
)

// ChangeQueue implements store.Queues.
func (s *Store) ChangeQueue(ctx context.Context, name harp.Value, c harp.QueueChange, op store.Operation) error {
	if err := c.Check(); err != nil {
		return err
	}
	var done doneRow
	asked := s.asked()
	err := s.do(ctx, SpaceLow, func(t *tx) (err error) {
		op.Time = s.sched.Since(asked, op.Time)
		what := askedRow{By: op.By, Queue: name, Paused: c.Paused, Concurrency: c.Concurrency, Reason: c.Reason, Until: c.Until}
		done, err = s.doOnce(t, op, what, func() (doneRow, error) { return s.changeQueue(t, name, c, op) })
		return err
	})
	if err == nil && done.Missing {
		err = noQueue(name)
	}
	return err
}

func (s *Store) changeQueue(t *tx, name harp.Value, c harp.QueueChange, op store.Operation) (doneRow, error) {
	now := s.sched.NoteTime(op.Time)
	pauses := c.Paused != nil && *c.Paused
	if pauses && !c.Until.IsZero() && !c.Until.After(op.Time) {
		return doneRow{}, &harp.FieldError{Field: "until", Message: "has passed"}
	}
	q := s.sched.Queue(string(name))
	isGone := q == nil || q.IsGone()
	if isGone && !pauses {
		return doneRow{Missing: true}, nil
	}
	if kept := q != nil && (q.Pause != nil || q.Fixed); !kept && (pauses || c.Concurrency != nil && *c.Concurrency > 0) {
		if err := s.sched.CheckQueue(op.By, string(name), op.Most); err != nil {
			return doneRow{}, err
		}
	}
	row, _, err := t.queueRow(string(name)) // with the mark, if rows of cancelled jobs still need it
	if err != nil {
		return doneRow{}, err
	}
	if isGone {
		q = s.sched.OpenQueue(string(name), 1)
		q.Reopen(1)
	}
	s.rewriteQueue(t, q, row, c, op.By, now)
	return doneRow{}, nil
}

// endPause lets a queue go on whose pause is over. What may start by it is claimed when its alarm rings.
func (s *Store) endPause(t *tx, q *schedule.Queue, now int64) error {
	row, _, err := t.queueRow(q.Name)
	if err != nil {
		return err
	}
	s.rewriteQueue(t, q, row, harp.QueueChange{Paused: new(false)}, harp.Principal{}, now)
	return nil
}

// rewriteQueue changes a queue, tells of it and writes its row.
func (s *Store) rewriteQueue(t *tx, q *schedule.Queue, row queueRow, c harp.QueueChange, by harp.Principal, now int64) {
	had := *q
	s.sched.ChangeQueue(q, c, by, now)
	q.Keep(s.sched, by)
	t.emitChanged(&had, q, now, by)
	s.putQueue(t, q, row)
}

// emitChanged tells what of a queue is not as it was.
func (t *tx) emitChanged(had, is *schedule.Queue, now int64, by harp.Principal) {
	switch p := is.Pause; {
	case p != nil && p != had.Pause:
		t.emit(eventRow{At: now, Type: harp.EventQueuePaused, Queue: []byte(is.Name), By: &by, Reason: p.Reason, Held: newHeldRow("", "", p.Until)})
	case p == nil && had.Pause != nil:
		t.emitQueue(harp.EventQueueUnpaused, is.Name, now, by)
	}
	if is.Concurrency != had.Concurrency {
		t.emitQueue(harp.EventQueueChanged, is.Name, now, by)
	}
}

// putQueue writes the row of a queue as it is now; one that nothing is kept of is
// deleted.
func (s *Store) putQueue(t *tx, q *schedule.Queue, row queueRow) {
	key := nameKey(prefixQueue, q.Name)
	if s.sched.DropQueue(q) {
		t.remove(key)
		t.write(nameKey(prefixMarked, q.Name), nil)
		return
	}
	row.Concurrency, row.Fixed, row.Keeper = q.Concurrency, q.Fixed, q.Keeper()
	row.Paused, row.Pause = q.Pause != nil, q.Pause
	t.put(key, encode(row))
}
