package rows

import (
	"context"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/failures"
	"github.com/harpcaller/harp/store"
	"github.com/harpcaller/harp/store/internal/schedule"
)

// CancelQueue implements store.Queues.
func (s *Store) CancelQueue(ctx context.Context, name harp.Value, op store.Operation) (store.QueueCancelled, error) {
	var done doneRow
	var active []schedule.ID
	asked := s.asked()
	err := s.do(ctx, SpaceCritical, func(t *tx) (err error) {
		op.Time = s.sched.Since(asked, op.Time)
		done, err = s.doOnce(t, op, askedRow{By: op.By, Queue: name, Cancel: true}, func() (doneRow, error) { return s.cancelQueue(t, name, op) })
		if q := s.sched.Queue(string(name)); q != nil && err == nil {
			active = q.Active(done.Through)
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
	q := s.sched.Queue(string(name))
	if q == nil || q.IsGone() {
		return doneRow{Missing: true}, nil
	}
	if q.IsIdle() { // it is kept for what an operator has said of it
		return doneRow{}, nil
	}
	key := nameKey(prefixQueue, q.Name)
	row, _, err := t.queueRow(q.Name)
	if err != nil {
		return doneRow{}, err
	}
	at := s.sched.NoteTime(op.Time)
	if err := s.markMembers(t, q, at); err != nil {
		return doneRow{}, err
	}
	done := doneRow{Count: q.Len()}
	s.sched.CancelQueue(q, op.By, fromNanos(at))
	done.Through, row.Marks = q.Through(), q.Marks
	t.put(key, encode(row))
	marked := nameKey(prefixMarked, q.Name)
	t.write(marked, seal(marked, nil))
	t.emitQueue(harp.EventQueueCancelled, q.Name, at, op.By)
	return done, nil
}

// markMembers has batches count those of their members as cancelled that are in a queue which is being
// cancelled: their rows say so later. Of more batches than one commit takes, the others count them then.
func (s *Store) markMembers(t *tx, q *schedule.Queue, now int64) error {
	for e := range q.Unmarked() {
		i, _ := parseID(e.Batch())
		b := s.batches[i]
		if b == nil || !t.hasRoom(maxStep) {
			continue
		}
		from := harp.StateQueued
		if !e.Waits() {
			j, err := readJob(t, e.ID)
			if err != nil && !s.skipDamaged(e, err) {
				return err
			}
			if err != nil || !isMoved(j.State) {
				continue
			}
			from = j.State
		}
		if err := s.changeBatch(t, b, store.BatchEvent{Kind: store.MemberMarked, At: fromNanos(now), From: from}); err != nil {
			return err
		}
	}
	return nil
}

// isMoved reports whether a cancel takes a job out of a state.
func isMoved(s harp.State) bool {
	return s == harp.StateQueued || s == harp.StateSent || s == harp.StateRunning
}

func noQueue(name harp.Value) error { return failures.NotFound("queue", name.String()) }

// Queue implements store.Queues.
func (s *Store) Queue(ctx context.Context, name harp.Value) (harp.QueueStatus, error) {
	var out harp.QueueStatus
	err := s.do(ctx, SpaceFull, func(*tx) error {
		q := s.sched.Queue(string(name))
		if q == nil || q.IsGone() {
			return noQueue(name)
		}
		out = q.Status()
		return nil
	})
	return out, err
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
		names, more := s.sched.QueueNames(after, pageLimit(limit))
		for _, name := range names {
			page = append(page, s.sched.Queue(name).Status())
		}
		if more {
			next = nameCursor(prefixQueue, names[len(names)-1])
		}
		return nil
	})
	return page, next, err
}
