package rows

import (
	"context"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/store"
	"github.com/harpcaller/harp/store/internal/schedule"
)

// ChangeQueue implements store.Queues.
func (s *Store) ChangeQueue(ctx context.Context, name harp.Value, c harp.QueueChange, op store.Operation) error {
	if c.Concurrency != nil && *c.Concurrency < 0 {
		return &harp.FieldError{Field: "concurrency", Message: "must not be negative; 0 removes the setting"}
	}
	var done doneRow
	asked := s.asked()
	err := s.do(ctx, SpaceLow, func(t *tx) (err error) {
		op.Time = s.sched.Since(asked, op.Time)
		done, err = s.doOnce(t, op, askedRow{By: op.By, Queue: name, Paused: c.Paused, Concurrency: c.Concurrency}, func() (doneRow, error) {
			return s.changeQueue(t, name, c, op)
		})
		return err
	})
	if err == nil && done.Missing {
		err = noQueue(name)
	}
	return err
}

func (s *Store) changeQueue(t *tx, name harp.Value, c harp.QueueChange, op store.Operation) (doneRow, error) {
	now := s.sched.NoteTime(op.Time)
	q := s.sched.Queue(string(name))
	isGone := q == nil || q.IsGone()
	if isGone && (c.Paused == nil || !*c.Paused) {
		return doneRow{Missing: true}, nil
	}
	if kept := q != nil && (q.Paused || q.Fixed); !kept && (c.Paused != nil && *c.Paused || c.Concurrency != nil && *c.Concurrency > 0) {
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
	had := *q
	s.sched.ChangeQueue(q, c, now)
	q.Keep(s.sched, op.By)
	t.emitChanged(&had, q, now, op.By)
	s.putQueue(t, q, row)
	return doneRow{}, nil
}

// emitChanged tells what of a queue is not as it was.
func (t *tx) emitChanged(had, is *schedule.Queue, now int64, by harp.Principal) {
	switch {
	case is.Paused && !had.Paused:
		t.emitQueue(harp.EventQueuePaused, is.Name, now, by)
	case had.Paused && !is.Paused:
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
	row.Concurrency, row.Fixed, row.Paused, row.Keeper = q.Concurrency, q.Fixed, q.Paused, q.Keeper()
	t.put(key, encode(row))
}
