package harp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strconv"
)

// A Call is one of several that [Caller.Submit] makes.
type Call struct {
	Host      string
	Procedure string
	Args      any      // as [Host.Call] takes it
	Options   []Option // behind those of the Caller
}

// For is a call of the procedure on a host, for [Caller.Submit].
func (p Proc[A, R]) For(host string, args A, opts ...Option) Call {
	return Call{Host: host, Procedure: p.Name, Args: args, Options: opts}
}

// Submit makes several calls, at most [MaxCalls], in one exchange and one commit. Each does what
// [Host.Call] does, without waiting for the one before it to be on disk. If a field of any of
// them is wrong nothing is stored; otherwise each call that can be accepted is, whatever becomes
// of the others. The jobs have the indices of their calls; where one was not accepted it is nil, and the
// error, a [*SubmitError], says why.
//
// Errors: as [Host.Call], in a *SubmitError if they are those of single calls; ErrInvalid
// (calls) for more than MaxCalls, or more than about 2 MiB.
func (c *Caller) Submit(ctx context.Context, calls ...Call) ([]*Job, error) {
	if len(calls) > MaxCalls {
		return nil, &FieldError{Field: "calls", Message: fmt.Sprintf("%d, at most %d", len(calls), MaxCalls)}
	}
	requests, failed := make([]Request, len(calls)), &SubmitError{}
	for i, call := range calls {
		req, err := NewRequest(call.Host, call.Procedure, call.Args, slices.Concat(c.opts, call.Options)...)
		if err != nil {
			failed.add(i, &callFailedError{procedure: call.Procedure, host: call.Host, err: err})
		}
		requests[i] = req
	}
	if len(failed.Errs) > 0 || len(calls) == 0 {
		return nil, failed.orNil()
	}
	jobs, errs := submitRequests(ctx, c.service, requests, nil)
	for i, err := range errs {
		if err != nil {
			failed.add(i, err)
		}
	}
	return jobs, failed.orNil()
}

// SubmitError tells which of the calls of [Caller.Submit] were not made, and why. errors.Is and
// errors.As look into each of them.
type SubmitError struct {
	Errs map[int]error // by the index of the call
}

func (e *SubmitError) add(i int, err error) {
	if e.Errs == nil {
		e.Errs = map[int]error{}
	}
	e.Errs[i] = err
}

func (e *SubmitError) orNil() error {
	if len(e.Errs) == 0 {
		return nil
	}
	return e
}

// indices are the calls in their order.
func (e *SubmitError) indices() []int {
	at := make([]int, 0, len(e.Errs))
	for i := range e.Errs {
		at = append(at, i)
	}
	slices.Sort(at)
	return at
}

func (e *SubmitError) Error() string {
	at := e.indices()
	if len(at) == 0 {
		return "no call failed"
	}
	text := "call " + strconv.Itoa(at[0]) + ": " + e.Errs[at[0]].Error()
	if more := len(at) - 1; more > 0 {
		text += fmt.Sprintf(" (and %d more)", more)
	}
	return text
}

// Unwrap returns the errors of the calls, in their order.
func (e *SubmitError) Unwrap() []error {
	var errs []error
	for _, i := range e.indices() {
		errs = append(errs, e.Errs[i])
	}
	return errs
}

// submitRequests submits requests. Of each there is a job or an error. The job may be another than
// the request's: that of its idempotency key.
func submitRequests(ctx context.Context, s Service, requests []Request, hosts []byte) ([]*Job, []error) {
	calls := make([]Submission, len(requests))
	for i := range requests {
		calls[i].Request, calls[i].Hosts = requests[i].Encode(), hosts
	}
	jobs, errs := make([]*Job, len(requests)), make([]error, len(requests))
	done, all := s.Submit(ctx, calls)
	if all == nil && len(done) != len(calls) {
		all = newFailure(codeInternal, fmt.Sprintf("%d calls have %d outcomes", len(calls), len(done))).Err()
	}
	for i := range requests {
		err := all
		if all == nil {
			err = done[i].Err
		}
		if err != nil {
			errs[i] = submitFailed(&requests[i], err)
			continue
		}
		jobs[i] = &Job{service: s, id: done[i].ID, existed: done[i].Existed}
	}
	return jobs, errs
}

// submitFailed is the error of a request that was not accepted.
func submitFailed(req *Request, err error) error {
	failed := &callFailedError{procedure: req.Procedure, host: cmp.Or(req.Host, req.Target, "a list of names"), isBatch: req.IsBatch(), err: err}
	isOfID := errors.Is(err, ErrConflict) && FailureOf(err).Type == "" // others are about what they name
	if RanOf(err) != DidNotRun || isOfID || errors.Is(err, ErrPruned) {
		failed.id = req.ID // elsewhere there is no job of this id
	}
	return failed
}

// submitRequest is submitRequests for one, of a list of hosts if they are not nil.
func submitRequest(ctx context.Context, s Service, req Request, hosts []byte) (*Job, error) {
	jobs, errs := submitRequests(ctx, s, []Request{req}, hosts)
	return jobs[0], errs[0]
}

// WaitAll waits until jobs have ended and yields each with how it did, in the order in which they
// end; every id once, however often it is given. It takes one request at a time, however many
// jobs there are, and goes on through lost connections and restarts of the dispatcher until ctx
// ends. What cannot be asked after has a Result that is not Done, whose Err says why:
// ErrInvalid (the id), ErrNotFound, ErrPruned; when the loop cannot go on, also each of those that
// are left: ErrClosed, ctx's.
func (c *Caller) WaitAll(ctx context.Context, ids []string) iter.Seq2[*Job, Result] {
	return func(yield func(*Job, Result) bool) {
		left := make([]string, 0, len(ids))
		seen := map[string]bool{}
		for _, id := range ids {
			if !seen[id] {
				left, seen[id] = append(left, id), true
			}
		}
		for len(left) > 0 {
			got, err := c.service.JobResults(ctx, left[:min(len(left), MaxWaited)])
			if err == nil && len(got) == 0 {
				err = newFailure(codeInternal, "the dispatcher answered nothing").Err()
			}
			if err != nil {
				got = nil
				for _, id := range left {
					got = append(got, JobResult{ID: id, Err: err})
				}
			}
			for _, r := range got {
				at := slices.Index(left, r.ID)
				if at < 0 {
					continue // nobody asked for it
				}
				left = slices.Delete(left, at, at+1)
				job := c.Job(r.ID)
				if r.Err != nil {
					r.Result = Result{Err: job.answerErr(r.Err)}
				}
				if !yield(job, r.Result) {
					return
				}
			}
		}
	}
}
