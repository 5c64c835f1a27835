package rows

import (
	"context"
	"maps"
	"slices"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/store"
)

// CancelQueue implements store.Queues.
func (s *Store) CancelQueue(ctx context.Context, name harp.Value, op store.Operation) (store.QueueCancelled, error) {
	var done doneRow
	var active []id
	err := s.do(ctx, SpaceCritical, func(t *tx) (err error) {
		done, err = s.doOnce(t, op, askedRow{Queue: name, Cancel: true}, func() (doneRow, error) { return s.cancelQueue(t, name, op) })
		if q := s.sched.queues[string(name)]; q != nil && err == nil {
			found := slices.DeleteFunc(slices.Collect(maps.Keys(q.active)), func(e *entry) bool { return e.no > done.Through })
			active = idsOf(found)
		}
		return err
	})
	out := store.QueueCancelled{Count: done.Count}
	switch {
	case err != nil:
		return store.QueueCancelled{}, err
	case done.Missing:
		return out, noQueue(name)
	}
	if out.Active, err = s.readActive(active); err != nil && s.usable() == nil {
		s.log.Error("jobs of a cancelled queue cannot be read", "queue", name.String(), "err", err)
		out.More, err = true, nil // it is cancelled
	}
	return out, err
}

// cancelQueue marks all that is in a queue as cancelled.
func (s *Store) cancelQueue(t *tx, name harp.Value, op store.Operation) (doneRow, error) {
	q := s.sched.queues[string(name)]
	if q == nil || q.isGone() {
		return doneRow{Missing: true}, nil
	}
	if q.isIdle() { // it is kept for what an operator has said of it
		return doneRow{}, nil
	}
	key := nameKey(prefixQueue, q.name)
	row, _, err := t.queueRow(q.name)
	if err != nil {
		return doneRow{}, err
	}
	at := s.sched.at(op.Time)
	done := doneRow{Count: q.waiting.Len() + len(q.active)}
	row.Marks = s.sched.neededMarks(q, row.Marks)
	s.sched.cancel(q, at)
	done.Through = q.through
	row.Marks = append(row.Marks, markRow{Through: q.through, By: op.By, At: fromNanos(at)})
	q.marks = row.Marks
	t.put(key, encode(row))
	marked := nameKey(prefixMarked, q.name)
	t.write(marked, seal(marked, nil))
	t.emitQueue(harp.EventQueueCancelled, q.name, at, op.By)
	return done, nil
}

// neededMarks are those of a queue's marks that cover a job which has not ended, or whose
// row does not say so yet.
func (s *schedule) neededMarks(q *queue, marks []markRow) []markRow {
	if slices.ContainsFunc(s.doomed, func(d *doom) bool { return d.queue == q }) {
		return marks
	}
	needed := map[uint64]bool{}
	for e := range q.active {
		if n := slices.IndexFunc(marks, func(m markRow) bool { return e.no <= m.Through }); n >= 0 {
			needed[marks[n].Through] = true
		}
	}
	return slices.DeleteFunc(marks, func(m markRow) bool { return !needed[m.Through] })
}

func noQueue(name harp.Value) error { return harp.NotFound("queue", name.String()) }

// Queue implements store.Queues.
func (s *Store) Queue(ctx context.Context, name harp.Value) (harp.QueueStatus, error) {
	var out harp.QueueStatus
	err := s.do(ctx, SpaceFull, func(*tx) error {
		q := s.sched.queues[string(name)]
		if q == nil || q.isGone() {
			return noQueue(name)
		}
		out = q.status()
		return nil
	})
	return out, err
}

func (q *queue) status() harp.QueueStatus {
	return harp.QueueStatus{
		Name: harp.Value(q.name), Concurrency: q.concurrency,
		Running: len(q.active), Waiting: q.waiting.Len(), Paused: q.paused,
	}
}

// ListQueues implements store.Queues.
func (s *Store) ListQueues(ctx context.Context, cursor string, limit int) ([]harp.QueueStatus, string, error) {
	after, err := openNameCursor(prefixQueue, cursor)
	if err != nil {
		return nil, "", err
	}
	var page []harp.QueueStatus
	var next string
	err = s.do(ctx, SpaceFull, func(*tx) error {
		names, more := s.sched.queueNames(after, pageLimit(limit))
		for _, name := range names {
			page = append(page, s.sched.queues[name].status())
		}
		if more {
			next = nameCursor(prefixQueue, names[len(names)-1])
		}
		return nil
	})
	return page, next, err
}

// queueNames lists up to n names of queues after one, in their order, and whether
// there are more.
func (s *schedule) queueNames(after string, n int) (names []string, more bool) {
	s.names.Ascend(after, func(name string) bool {
		if name == after || s.queues[name].isGone() {
			return true
		}
		more = len(names) == n
		if !more {
			names = append(names, name)
		}
		return !more
	})
	return names, more
}
