package harptest

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/harpcaller/harp/agent"
)

// Witness has seen what procedures did: the truth, whatever anybody says of a job. Its
// zero value has seen nothing. It sees the functions that are wrapped for it by
// [Watch] and [WatchStream].
type Witness struct {
	mu   sync.Mutex
	seen []*Execution // guarded by mu, in the order of their starts
}

// Execution is one run of a procedure's function.
type Execution struct {
	Job       string
	Attempt   int // from 1
	Host      string
	Procedure string
	Start     time.Time
	End       time.Time // zero: it runs
	Err       error     // what it returned; nil also when it panicked
}

// Watch returns fn, seen by w.
func Watch[A, R any](w *Witness, fn func(context.Context, A) (R, error)) func(context.Context, A) (R, error) {
	return func(ctx context.Context, args A) (_ R, err error) {
		x := w.beginExecution(ctx)
		defer func() { w.endExecution(x, err) }()
		return fn(ctx, args)
	}
}

// WatchStream is Watch for a procedure that yields records.
func WatchStream[A, M, R any](w *Witness, fn func(context.Context, A, func(M) error) (R, error)) func(context.Context, A, func(M) error) (R, error) {
	return func(ctx context.Context, args A, emit func(M) error) (_ R, err error) {
		x := w.beginExecution(ctx)
		defer func() { w.endExecution(x, err) }()
		return fn(ctx, args, emit)
	}
}

func (w *Witness) beginExecution(ctx context.Context) *Execution {
	x := &Execution{Start: time.Now()}
	if call, ok := agent.FromContext(ctx); ok {
		x.Job, x.Attempt, x.Host, x.Procedure = call.JobID, call.Attempt, call.Host, call.Procedure
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.seen = append(w.seen, x)
	return x
}

func (w *Witness) endExecution(x *Execution, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	x.End, x.Err = time.Now(), err
}

// Executions returns what was seen, in the order of its beginnings.
func (w *Witness) Executions() []Execution {
	return w.which(func(*Execution) bool { return true })
}

// Of returns the executions of a job.
func (w *Witness) Of(job string) []Execution {
	return w.which(func(x *Execution) bool { return x.Job == job })
}

func (w *Witness) which(match func(*Execution) bool) []Execution {
	w.mu.Lock()
	defer w.mu.Unlock()
	var list []Execution
	for _, x := range w.seen {
		if match(x) {
			list = append(list, *x)
		}
	}
	return slices.Clip(list)
}
