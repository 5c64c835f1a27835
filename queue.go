package harp

import (
	"context"
	"iter"
)

// Queues looks at queues, cancels and changes them.
type Queues struct{ service Service }

// List yields the queues there are. Errors: ErrUnavailable, ErrClosed.
func (q *Queues) List(ctx context.Context) iter.Seq2[QueueStatus, error] {
	return pages(func(cursor string) (Page[QueueStatus], error) { return q.service.ListQueues(ctx, nil, cursor) })
}

// Get returns one queue. Errors: ErrInvalid (name), ErrNotFound, ErrUnavailable,
// ErrClosed.
func (q *Queues) Get(ctx context.Context, name any) (QueueStatus, error) {
	canonical, err := canonicalQueue(name)
	if err != nil {
		return QueueStatus{}, err
	}
	page, err := q.service.ListQueues(ctx, canonical, "")
	if err != nil {
		return QueueStatus{}, err
	}
	if len(page.Items) == 0 {
		return QueueStatus{}, notFoundError("queue", canonical.String())
	}
	return page.Items[0], nil
}

// Cancel cancels, in one write, all that is in the queue at this moment: what
// waits ends cancelled and never starts, what runs is asked to stop, and what
// arrives afterwards is not touched, also when the connection is lost and the Caller
// has to ask again. It returns how many jobs had not ended.
// Errors: ErrInvalid (name), ErrNotFound, ErrUnavailable, ErrClosed.
func (q *Queues) Cancel(ctx context.Context, name any) (int, error) {
	canonical, err := canonicalQueue(name)
	if err != nil {
		return 0, err
	}
	return q.service.CancelQueue(ctx, NewID(), canonical)
}

// Pause holds all that waits in the queue, and what is put into it, until Unpause:
// they are queued with the reason "paused". What runs goes on. A queue that is not
// there is made, and a paused one is kept without jobs. Pausing again changes
// nothing. Errors: ErrInvalid (name), ErrUnavailable, ErrClosed.
func (q *Queues) Pause(ctx context.Context, name any) error {
	paused := true
	return q.changeQueue(ctx, name, QueueChange{Paused: &paused})
}

// Unpause lets the jobs of a paused queue start. Errors: ErrInvalid (name),
// ErrNotFound, ErrUnavailable, ErrClosed.
func (q *Queues) Unpause(ctx context.Context, name any) error {
	paused := false
	return q.changeQueue(ctx, name, QueueChange{Paused: &paused})
}

// SetConcurrency says how many jobs of the queue may run at a time from now on. With
// fewer than run now, those end first. It holds also when the queue has been empty in
// between; 0 takes it back: the next call that makes the queue says it again. Errors:
// ErrInvalid (name, concurrency), ErrNotFound, ErrUnavailable, ErrClosed.
func (q *Queues) SetConcurrency(ctx context.Context, name any, n int) error {
	if n < 0 {
		return &FieldError{Field: "concurrency", Message: "must not be negative; 0 removes the setting"}
	}
	return q.changeQueue(ctx, name, QueueChange{Concurrency: &n})
}

func (q *Queues) changeQueue(ctx context.Context, name any, c QueueChange) error {
	canonical, err := canonicalQueue(name)
	if err != nil {
		return err
	}
	return q.service.ChangeQueue(ctx, NewID(), canonical, c)
}

func canonicalQueue(name any) (Value, error) {
	canonical, err := QueueName(name)
	if err == nil && canonical == nil {
		err = &FieldError{Field: "queue", Message: "a name is a map with string keys"}
	}
	return canonical, err
}

// QueueStatus is the state of a queue.
type QueueStatus struct {
	Name        Value `json:"name" msgpack:"name"`                 // canonical
	Concurrency int   `json:"concurrency" msgpack:"conc"`          // how many of its jobs may run at a time
	Running     int   `json:"running" msgpack:"running,omitempty"` // jobs that hold a slot: sent, running, cancelling, unknown
	Waiting     int   `json:"waiting" msgpack:"waiting,omitempty"` // jobs that are queued
	Paused      bool  `json:"paused" msgpack:"paused,omitempty"`
}
