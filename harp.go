// Package harp calls procedures on remote machines and keeps what they return.
//
// A [Caller] is either inside a dispatcher's own process, made by
// dispatcher.Dispatcher.Caller, or connected to one elsewhere, made by client.Dial; it
// behaves the same. A call answers at once with a [Job], whose id can be stored:
//
//	job, err := caller.Host("web01").Call(ctx, "service.restart", harp.Args{"service": "nginx"},
//		harp.Queue(map[string]string{"host": "web01"}), harp.MaxExecTime(time.Minute))
//	save(job.ID())
//
// In any process, at any later time, the id gives the job back:
//
//	job := caller.Job(id)
//	value, err := job.Get(ctx) // waits; a failed job is an error
//	for record, err := range job.Follow(ctx, harp.Since(0)) { ... }
//
// The context of every method bounds the wait, never the job: a job ends by
// itself, by its limits, or by [Job.Cancel].
//
// Every error answers two questions: whose fault it is, [FaultOf], and whether
// the procedure ran, [RanOf].
//
// Beyond single calls, [Caller.Target] calls many hosts as one [Batch]; [Caller.Schedules] calls at given
// times, [Caller.Maintenance] keeps calls from starting, [Caller.Events] and [Caller.Notifications] tell
// what happens, [Caller.Queues] and [Caller.Hosts] show and change what there is. [NewProc] gives a
// procedure typed arguments and a typed result. What only implementers of [Service] need says so.
package harp

import (
	"context"
	"io"
	"iter"
	"slices"
	"time"
)

// A Caller makes calls and finds jobs. It is safe for concurrent use.
type Caller struct {
	service Service
	opts    []Option
}

// NewCaller returns a Caller over any implementation of Service. It panics with a *FieldError
// if there is none: a program that has none is wrong, however it is called.
func NewCaller(s Service) *Caller {
	if s == nil {
		panic(&FieldError{Field: "service", Message: "must be set"})
	}
	return &Caller{service: s}
}

// With returns a copy of c whose calls have these options by default. Closing
// either closes both.
func (c *Caller) With(opts ...Option) *Caller {
	return &Caller{service: c.service, opts: slices.Concat(c.opts, opts)}
}

// Host returns a handle of the host with this name, without asking anybody: a
// host that is not known shows at Call. The options apply to each of its calls.
func (c *Caller) Host(name string, opts ...Option) *Host {
	return &Host{caller: c, name: name, opts: slices.Concat(c.opts, opts)}
}

// Job returns the handle of a job from its id, without asking anybody.
func (c *Caller) Job(id string) *Job { return &Job{service: c.service, id: id} }

// Request returns what was submitted under the id of a job or batch; of a batch's member that of its batch.
// Errors: ErrInvalid (the id), ErrNotFound, ErrPruned, ErrUnavailable, ErrClosed.
func (c *Caller) Request(ctx context.Context, id string) (Request, error) {
	made, err := c.service.JobRequest(ctx, id)
	if err != nil {
		return Request{}, err
	}
	return DecodeRequest(made.Request)
}

// Jobs lists the jobs that match f, newest first. Pages are fetched as the loop
// goes; an error is the last thing it yields. Errors: ErrInvalid for a filter that
// cannot be, ErrUnavailable, ErrClosed.
func (c *Caller) Jobs(ctx context.Context, f JobFilter) iter.Seq2[JobStatus, error] {
	return pages(func(cursor string) (Page[JobStatus], error) { return c.service.ListJobs(ctx, f, cursor) })
}

// JobsPage is one page of Jobs, for programs that page themselves. A page may be
// short or even empty while its Cursor is set: then there is more. Errors: as Jobs,
// and ErrInvalid for a cursor that is none.
func (c *Caller) JobsPage(ctx context.Context, f JobFilter, cursor string) (Page[JobStatus], error) {
	return c.service.ListJobs(ctx, f, cursor)
}

// Hosts returns the handle for looking at hosts.
func (c *Caller) Hosts() *Hosts { return &Hosts{service: c.service} }

// Queues returns the handle for looking at queues, cancelling and changing them.
func (c *Caller) Queues() *Queues { return &Queues{service: c.service} }

// Ping asks the dispatcher who it is. Errors: ErrUnavailable, ErrDenied, ErrClosed.
func (c *Caller) Ping(ctx context.Context) (ServerInfo, error) { return c.service.Ping(ctx) }

// Prune deletes the jobs that ended before a time, with all that belongs to them, and
// the events before that time, now rather than when the dispatcher's own retention
// would, and gives their space back. What a [RetentionRule] with Keep holds for is deleted when that says so, and not before. It returns how many jobs: fewer where the connection
// was lost before the answer and it was asked again. Their ids are ErrPruned
// for a month, and so is a cursor of the feed behind which events were deleted. Errors:
// ErrRefused for a time in the future, ErrUnavailable, ErrDenied, ErrClosed.
func (c *Caller) Prune(ctx context.Context, endedBefore time.Time) (int, error) {
	return c.service.Prune(ctx, endedBefore)
}

// Backup writes a copy of the dispatcher's store, as it is at one moment, to w, while
// the dispatcher works on. On an error what was written is no backup. Errors: w's,
// ErrUnavailable when the connection was lost, ErrDenied, ErrClosed, ctx's.
func (c *Caller) Backup(ctx context.Context, w io.Writer) error {
	return c.service.Backup(ctx, w)
}

// Close ends the Caller: what waits in its handles returns ErrClosed. Jobs go on.
// Close is idempotent.
func (c *Caller) Close() error { return c.service.Close() }

// ServerInfo is what a dispatcher says of itself.
type ServerInfo struct {
	Software string    `json:"software" msgpack:"software"` // name and version
	Protocol int       `json:"protocol" msgpack:"v"`        // version of the protocol
	Features []string  `json:"features" msgpack:"features,omitempty"`
	Store    string    `json:"store" msgpack:"store"`                           // the id of its store
	Time     time.Time `json:"time" msgpack:"time"`                             // its clock, UTC
	Troubles []string  `json:"troubles,omitempty" msgpack:"troubles,omitempty"` // what is not well with it
	Bounds   []Bound   `json:"bounds,omitempty" msgpack:"bounds,omitempty"`     // on what its peers can make it hold
}

// Bound is one bound on what peers can make a dispatcher hold, and how much of it is used.
type Bound struct {
	Name   string `json:"name" msgpack:"name"`
	Used   int64  `json:"used" msgpack:"used,omitempty"` // 0 also where it is not counted
	Most   int64  `json:"most" msgpack:"most"`
	Unit   string `json:"unit" msgpack:"unit"`     // of both
	Reason string `json:"reason" msgpack:"reason"` // what it is for
}

// Page is a part of a listing. There is more while Cursor is not empty.
type Page[T any] struct {
	Items  []T    `json:"items"`
	Cursor string `json:"cursor,omitempty"` // where the next page begins; empty: there is none
}

// pages turns a function that fetches a page into a sequence of items.
func pages[T any](fetch func(cursor string) (Page[T], error)) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		var cursor string
		for {
			page, err := fetch(cursor)
			if err != nil {
				var none T
				yield(none, err)
				return
			}
			for _, item := range page.Items {
				if !yield(item, nil) {
					return
				}
			}
			if cursor = page.Cursor; cursor == "" {
				return
			}
		}
	}
}
