package harp

import (
	"context"
	"iter"
	"time"
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

// Pause holds all that waits in the queue, and what is put into it, until a time or, if
// that is zero, until Unpause: they are queued with the reason "paused". What runs goes on.
// reason is for people. A queue that is not there is made, and a paused one is kept without
// jobs. It takes the place of a pause before it. Errors: ErrInvalid (name; reason, longer
// than MaxWhy; until, which has passed), ErrRefused (one has as many queues as one may),
// ErrUnavailable, ErrClosed.
func (q *Queues) Pause(ctx context.Context, name any, reason string, until time.Time) error {
	paused := true
	return q.changeQueue(ctx, name, QueueChange{Paused: &paused, Reason: reason, Until: until})
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
	return q.changeQueue(ctx, name, QueueChange{Concurrency: &n})
}

func (q *Queues) changeQueue(ctx context.Context, name any, c QueueChange) error {
	canonical, err := canonicalQueue(name)
	if err != nil {
		return err
	}
	if err := c.Check(); err != nil {
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
	Name        Value       `json:"name" msgpack:"name"`                 // canonical
	Concurrency int         `json:"concurrency" msgpack:"conc"`          // how many of its jobs may run at a time
	Running     int         `json:"running" msgpack:"running,omitempty"` // jobs that hold a slot: sent, running, cancelling, unknown
	Waiting     int         `json:"waiting" msgpack:"waiting,omitempty"` // jobs that are queued
	Paused      bool        `json:"paused" msgpack:"paused,omitempty"`
	Pause       *QueuePause `json:"pause,omitempty" msgpack:"pause,omitempty"` // nil: it is not paused
}

// QueuePause says why no job of a queue starts. Times are UTC. Of a pause that an earlier version stored nothing of it is
// known.
type QueuePause struct {
	By     Principal `json:"by,omitzero" msgpack:"by,omitempty"` // who asked for it
	Reason string    `json:"reason,omitempty" msgpack:"reason,omitempty"`
	Since  time.Time `json:"since,omitzero" msgpack:"since,omitempty"`
	Until  time.Time `json:"until,omitzero" msgpack:"until,omitempty"` // zero: until somebody ends it
}

// QueueChange is what an operator changes of a queue; nil: left as it is.
type QueueChange struct {
	Paused      *bool     `msgpack:"paused,omitempty"`
	Reason      string    `msgpack:"reason,omitempty"` // of a pause, for people
	Until       time.Time `msgpack:"until,omitempty"`  // of a pause: when it ends by itself; zero: never
	Concurrency *int      `msgpack:"conc,omitempty"`   // at least 1; 0 takes back what was said
}

// Check returns ErrInvalid, naming the field, for a change that cannot be.
func (c QueueChange) Check() error {
	if c.Concurrency != nil && *c.Concurrency < 0 {
		return &FieldError{Field: "concurrency", Message: "must not be negative; 0 removes the setting"}
	}
	if err := checkText("reason", c.Reason, MaxWhy); err != nil {
		return err
	}
	return checkTime("until", c.Until)
}
