package rows

import (
	"context"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/store"
)

// ChangeQueue implements store.Queues.
func (s *Store) ChangeQueue(ctx context.Context, name harp.Value, c harp.QueueChange, op store.Operation) error {
	if err := c.Check(); err != nil {
		return err
	}
	var done doneRow
	err := s.do(ctx, SpaceLow, func(t *tx) (err error) {
		done, err = s.doOnce(t, op, askedRow{Queue: name, Paused: c.Paused, Concurrency: c.Concurrency}, func() (doneRow, error) {
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
	now := s.sched.at(op.Time)
	q := s.sched.queues[string(name)]
	isGone := q == nil || q.isGone()
	if isGone && (c.Paused == nil || !*c.Paused) {
		return doneRow{Missing: true}, nil
	}
	row, _, err := t.queueRow(string(name)) // with the mark, if rows of cancelled jobs still need it
	if err != nil {
		return doneRow{}, err
	}
	if isGone {
		q = s.sched.queue(string(name), 1)
		q.reopen(1)
	}
	had := *q
	s.sched.change(q, c, now)
	t.emitChanged(&had, q, now, op.By)
	s.putQueue(t, q, row)
	return doneRow{}, nil
}

// change pauses a queue or lets it go on, and gives it another concurrency. Its lines
// notice first what they had, and then what they have. What may start now is started by
// Advance, which is due at once: whoever asked for the change may have left by then.
func (s *schedule) change(q *queue, c harp.QueueChange, now int64) {
	s.rearm(q, now)
	if c.Paused != nil {
		q.paused = *c.Paused
	}
	if c.Concurrency != nil {
		q.resize(*c.Concurrency)
	}
	s.rearm(q, now)
	if q.free() > 0 {
		unparkAll(q.parked)
	}
	if q.next(s, now) != nil {
		s.agenda.set(&q.fill, now)
	}
}

// emitChanged tells what of a queue is not as it was.
func (t *tx) emitChanged(had, is *queue, now int64, by harp.Principal) {
	switch {
	case is.paused && !had.paused:
		t.emitQueue(harp.EventQueuePaused, is.name, now, by)
	case had.paused && !is.paused:
		t.emitQueue(harp.EventQueueUnpaused, is.name, now, by)
	}
	if is.concurrency != had.concurrency {
		t.emitQueue(harp.EventQueueChanged, is.name, now, by)
	}
}

// putQueue writes the row of a queue as it is now; one that nothing is kept of is
// deleted.
func (s *Store) putQueue(t *tx, q *queue, row queueRow) {
	key := nameKey(prefixQueue, q.name)
	if s.sched.dropQueue(q) {
		t.remove(key)
		t.write(nameKey(prefixMarked, q.name), nil)
		return
	}
	row.Concurrency, row.Fixed, row.Paused = q.concurrency, q.fixed, q.paused
	t.put(key, encode(row))
}
