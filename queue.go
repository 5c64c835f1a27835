package harp

import (
	"context"
	"encoding/json"
	"iter"
)

// Queues looks at queues and cancels them.
type Queues struct{ service Service }

// List yields the queues there are. Errors: ErrUnavailable, ErrClosed.
func (q *Queues) List(ctx context.Context) iter.Seq2[QueueStatus, error] {
	return pages(func(cursor string) (Page[QueueStatus], error) { return q.service.ListQueues(ctx, nil, cursor) })
}

// Get returns one queue. Errors: ErrInvalid (name), ErrNotFound, ErrUnavailable,
// ErrClosed.
func (q *Queues) Get(ctx context.Context, name any) (QueueStatus, error) {
	canonical, err := queueNamed(name)
	if err != nil {
		return QueueStatus{}, err
	}
	page, err := q.service.ListQueues(ctx, canonical, "")
	if err != nil {
		return QueueStatus{}, err
	}
	if len(page.Items) == 0 {
		return QueueStatus{}, NotFound("queue", canonical.String())
	}
	return page.Items[0], nil
}

// Cancel cancels, in one write, all that is in the queue at this moment: what
// waits ends cancelled and never starts, what runs is asked to stop, and what
// arrives afterwards is not touched. It returns how many jobs had not ended.
// Errors: ErrInvalid (name), ErrNotFound, ErrUnavailable, ErrClosed.
func (q *Queues) Cancel(ctx context.Context, name any) (int, error) {
	canonical, err := queueNamed(name)
	if err != nil {
		return 0, err
	}
	return q.service.CancelQueue(ctx, canonical)
}

func queueNamed(name any) (Value, error) {
	canonical, err := QueueName(name)
	if err == nil && canonical == nil {
		err = &FieldError{Field: "queue", Message: "a name is a map with string keys"}
	}
	return canonical, err
}

// QueueStatus is the state of a queue.
type QueueStatus struct {
	Name        Value // canonical
	Concurrency int   // how many of its jobs may run at a time
	Running     int   // jobs that hold a slot: sent, running, cancelling, unknown
	Waiting     int   // jobs that are queued
	Paused      bool
}

// MarshalJSON writes snake_case fields.
func (q QueueStatus) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		Name        Value `json:"name"`
		Concurrency int   `json:"concurrency"`
		Running     int   `json:"running"`
		Waiting     int   `json:"waiting"`
		Paused      bool  `json:"paused"`
	}{q.Name, q.Concurrency, q.Running, q.Waiting, q.Paused})
}
