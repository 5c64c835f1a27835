package dispatcher

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/failures"
	"github.com/harpcaller/harp/internal/version"
	"github.com/harpcaller/harp/internal/wire"
	"github.com/harpcaller/harp/store"
)

// pageSize is how many entries a page of a listing holds.
const pageSize = 100

// service is the dispatcher as one principal sees it: harp.Service.
type service struct {
	d    *Dispatcher
	who  harp.Principal
	done context.Context // ends when the Service is closed
	stop context.CancelFunc
	far  bool // its caller asks again where it gets no answer

	refused error // why its caller is not welcome; nil: it is
}

func (d *Dispatcher) service(who harp.Principal) *service {
	s := &service{d: d, who: who}
	s.done, s.stop = context.WithCancel(d.ctx)
	return s
}

// Close makes what waits in this service return harp.ErrClosed.
func (s *service) Close() error {
	s.stop()
	return nil
}

// request runs one request as work that Shutdown waits for, with a ctx that also
// ends when the service is closed.
func request[T any](s *service, ctx context.Context, run func(context.Context) (T, error)) (T, error) { //nolint:revive // ctx is the request's, s is its receiver in spirit
	return requestBriefly(s, func() (T, error) {
		ctx, cancel := context.WithCancelCause(ctx)
		release := context.AfterFunc(s.done, func() { cancel(s.closed()) })
		defer func() { release(); cancel(nil) }()
		got, err := run(ctx)
		if errors.Is(err, context.Canceled) && s.done.Err() != nil {
			err = s.closed()
		}
		return got, err
	})
}

// requestBriefly is request for what each job takes, where a ctx of its own would cost much of it: run
// waits for nothing but the store, or looks itself whether the service is closed.
func requestBriefly[T any](s *service, run func() (T, error)) (T, error) {
	var none T
	if s.refused != nil {
		return none, s.refused
	}
	if s.done.Err() != nil || !s.d.beginWork() {
		return none, s.closed()
	}
	defer s.d.work.Done()
	got, err := run()
	if s.far && errors.Is(err, store.ErrPoisoned) {
		err = harp.ErrClosed // its caller asks whoever opens the store anew
	}
	return got, err
}

// closed is why the service answers nothing any more: harp.ErrClosed, and what else there
// is to say.
func (s *service) closed() error {
	if s.d.ctx.Err() != nil {
		return s.d.closedBy()
	}
	return harp.ErrClosed
}

// closedBy is why the dispatcher does nothing any more: harp.ErrClosed, and why the store
// has failed, if it has.
func (d *Dispatcher) closedBy() error {
	if err := d.failure(); err != nil {
		return fmt.Errorf("%w: %w", harp.ErrClosed, err)
	}
	return harp.ErrClosed
}

// Ping implements harp.Service.
func (s *service) Ping(ctx context.Context) (harp.ServerInfo, error) {
	if s.done.Err() != nil {
		return harp.ServerInfo{}, s.closed()
	}
	if s.refused != nil {
		return harp.ServerInfo{}, s.refused
	}
	return harp.ServerInfo{
		Software: version.Software(), Protocol: wire.Version, Store: s.d.store.ID(), Time: s.d.now().UTC(),
		Troubles: s.d.Health(ctx).problems(), Bounds: s.d.bounds(s.who),
	}, nil
}

// Submit implements harp.JobService.
func (s *service) Submit(ctx context.Context, calls []harp.Submission) ([]harp.Submitted, error) {
	return requestBriefly(s, func() ([]harp.Submitted, error) { return s.d.submit(ctx, calls, s.who) })
}

// JobStatus implements harp.JobService.
func (s *service) JobStatus(ctx context.Context, id string) (harp.JobStatus, error) {
	return request(s, ctx, func(ctx context.Context) (harp.JobStatus, error) {
		job, err := s.d.readJob(ctx, id)
		if err != nil {
			return harp.JobStatus{}, err
		}
		return s.d.fullStatus(ctx, job)
	})
}

// readJob reads a row by an id from outside.
func (d *Dispatcher) readJob(ctx context.Context, id string) (*store.Job, error) {
	if err := harp.CheckJobID(id); err != nil {
		return nil, err
	}
	job, err := d.store.Job(ctx, id)
	if errors.Is(err, harp.ErrNotFound) {
		err = failures.NotFound("job", id)
	}
	return job, err
}

// JobResult implements harp.JobService.
func (s *service) JobResult(ctx context.Context, id string, wait bool) (harp.Result, error) {
	return requestBriefly(s, func() (harp.Result, error) {
		watcher := s.d.watchers.acquire(id)
		defer s.d.watchers.release(watcher)
		for {
			job, err := s.d.readJob(ctx, id)
			if err != nil {
				return harp.Result{}, err
			}
			if job.State.Ended() {
				if job.HasValue {
					if err := s.reserveAnswer(ctx, answerPrice); err != nil {
						return harp.Result{}, err
					}
				}
				return s.d.result(ctx, job)
			}
			if !wait {
				return harp.Result{}, nil
			}
			if err := s.waitEnd(ctx, watcher); err != nil {
				return harp.Result{}, err
			}
			if ended := watcher.ended; ended != nil {
				if n := len(watcher.value); n > cheapAnswer {
					if err := s.reserveAnswer(ctx, 2*n); err != nil { // its copy, and the answer
						return harp.Result{}, err
					}
				}
				return endOf(ended, slices.Clone(watcher.value)), nil
			}
		}
	})
}

// JobResults implements harp.JobService.
func (s *service) JobResults(ctx context.Context, ids []string) ([]harp.JobResult, error) {
	return request(s, ctx, func(ctx context.Context) ([]harp.JobResult, error) {
		if len(ids) == 0 || len(ids) > harp.MaxWaited {
			return nil, &harp.FieldError{Field: "ids", Message: fmt.Sprintf("must be 1 to %d", harp.MaxWaited)}
		}
		ended := make(chan struct{}, 1)
		watched := make([]*watcher, 0, len(ids))
		defer func() { // one for all: one for each would take more memory than all else of a request that waits
			for _, w := range watched {
				w.forgetAtEnd(ended)
				s.d.watchers.release(w)
			}
		}()
		for _, id := range ids {
			w := s.d.watchers.acquire(id)
			watched = append(watched, w)
			w.wakeAtEnd(ended)
		}
		for ask := ids; ; {
			if len(ask) > 0 {
				if got, err := s.d.results(ctx, ask); err != nil || len(got) > 0 {
					return got, err
				}
				if err := reserveAnswer(ctx, 0); err != nil {
					return nil, err
				}
			}
			select {
			case <-ended:
			case <-ctx.Done():
				return nil, context.Cause(ctx)
			}
			ask = nil
			for _, w := range watched {
				if w.isOver() {
					ask = append(ask, w.id)
				}
			}
		}
	})
}

// results are how those of these jobs ended that have, as far as they fit into an answer, and why
// others cannot be asked after. Errors: those that are about all of them.
func (d *Dispatcher) results(ctx context.Context, ids []string) (got []harp.JobResult, err error) {
	if err := reserveAnswer(ctx, answerPrice); err != nil {
		return nil, err
	}
	const row = 1 << 10
	size := 0
	for _, id := range ids {
		r := harp.JobResult{ID: id}
		job, err := d.readJob(ctx, id)
		if err == nil {
			if !job.State.Ended() {
				continue
			}
			r.Result, err = d.result(ctx, job)
		}
		if err != nil && (ctx.Err() != nil || errors.Is(err, store.ErrPoisoned)) {
			return nil, err
		}
		r.Err = err
		if size += row + len(r.Result.Value); size > wire.MaxPage && len(got) > 0 {
			break
		}
		got = append(got, r)
	}
	return got, nil
}

// waitEnd waits until a job has ended. Whoever holds its watcher and then sees that it has not
// ended misses no end.
func (s *service) waitEnd(ctx context.Context, t *watcher) error {
	select {
	case <-t.ends:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-s.done.Done():
		return s.closed()
	}
}

// Records implements harp.JobService.
func (s *service) Records(ctx context.Context, id string, q harp.RecordQuery) (harp.RecordPage, error) {
	return request(s, ctx, func(ctx context.Context) (harp.RecordPage, error) { return s.d.records(ctx, id, q) })
}

// CancelJob implements harp.JobService.
func (s *service) CancelJob(ctx context.Context, id string, now bool) (bool, error) {
	return request(s, ctx, func(ctx context.Context) (bool, error) {
		job, err := s.d.readJob(ctx, id)
		if err != nil || job.State.Ended() {
			return false, err
		}
		return s.d.cancelJob(ctx, id, s.who, now)
	})
}

// cancelJob commits the request and tells the agent. A job that ended meanwhile is
// not live.
func (d *Dispatcher) cancelJob(ctx context.Context, id string, by harp.Principal, now bool) (bool, error) {
	changes, err := d.applyTransitions(ctx, store.Transition{ID: id, Event: store.Event{Kind: store.CancelReq, At: d.now(), By: by, Now: now}})
	if err != nil {
		return false, err
	}
	if errors.Is(changes[0].Err, store.ErrIllegal) {
		return false, nil
	}
	return changes[0].Err == nil, changes[0].Err
}

// operation is a request that is done once, under an id whose form has been checked. What
// came of it is remembered for a day longer than its id is taken. It is refused, unless it was done before, when its principal has used
// up what operations may take. Errors: *harp.FieldError, harp.ErrPruned.
func (s *service) operation(id string) (store.Operation, error) {
	op, err := s.uncountedOperation(id)
	if err == nil {
		op.Refused = s.d.principals.admitOperation(s.who, operationBytes)
	}
	return op, err
}

// uncountedOperation is operation for what is counted, or refused, otherwise.
func (s *service) uncountedOperation(id string) (store.Operation, error) {
	now := s.d.now()
	switch made := harp.IDTime(id); {
	case made.After(now.Add(maxAhead)):
		return store.Operation{}, &harp.FieldError{Field: "id", Message: "has a time more than an hour ahead of the dispatcher's clock"}
	case now.Sub(made) >= maxAge:
		return store.Operation{}, failures.New("pruned", "request "+id+" is too old to be remembered").Err()
	}
	return store.Operation{ID: id, By: s.who, Time: now, Most: s.d.principals.quota(s.who)}, nil
}

// ListJobs implements harp.JobService.
func (s *service) ListJobs(ctx context.Context, f harp.JobFilter, cursor string) (harp.Page[harp.JobStatus], error) {
	type page = harp.Page[harp.JobStatus]
	return request(s, ctx, func(ctx context.Context) (page, error) {
		queue, err := harp.QueueName(f.Queue)
		if err != nil {
			return page{}, err
		}
		if err := checkStates(f.States); err != nil {
			return page{}, err
		}
		filter := store.Filter{
			Host: f.Host, Procedure: f.Procedure, Queue: queue, States: f.States, Labels: f.Labels,
			Since: f.Since, Until: f.Until, Limit: pageLimitOf(f.Limit),
		}
		var jobs page
		if f.Batch != "" {
			jobs, err = s.d.listMembers(ctx, f.Batch, filter, cursor)
		} else {
			jobs, err = s.d.listJobs(ctx, filter, cursor)
		}
		jobs.Items = slices.DeleteFunc(jobs.Items, func(j harp.JobStatus) bool { return !matchesUnindexed(&f, &j) })
		return jobs, err
	})
}

// checkStates refuses words that are no states. Errors: *harp.FieldError.
func checkStates(states []harp.State) error {
	unended := []harp.State{harp.StateQueued, harp.StateSent, harp.StateRunning, harp.StateCancelling, harp.StateUnknown}
	for _, s := range states {
		if !s.Ended() && !slices.Contains(unended, s) {
			return &harp.FieldError{Field: "states", Message: fmt.Sprintf("%q is not a state", s)}
		}
	}
	return nil
}

// matchesUnindexed reports whether a job is one that the parts of a filter select for which the
// store has no index. Arguments that are secret are *** here, too.
func matchesUnindexed(f *harp.JobFilter, j *harp.JobStatus) bool {
	if f.By != "" && f.By != j.Principal.Name {
		return false
	}
	if len(f.Args) == 0 {
		return true
	}
	var args map[string]harp.Value
	if j.Args.Decode(&args) != nil {
		return false // by position
	}
	for name, want := range f.Args {
		if v, ok := args[name]; !ok || argumentText(v) != want && v.String() != want {
			return false
		}
	}
	return true
}

// argumentText is an argument that is a text; "" if it is none.
func argumentText(v harp.Value) string {
	text, err := v.Any()
	if err != nil {
		return ""
	}
	s, _ := text.(string)
	return s
}

// pageLimitOf is how many jobs a page holds of which a caller wants so many, 0: as many as
// there can be.
func pageLimitOf(limit int) int {
	if limit <= 0 {
		return pageSize
	}
	return min(limit, pageSize)
}

// listJobs returns a page of jobs, of not more than goes into one answer: what is left
// over of a page would be read anew for the next.
func (d *Dispatcher) listJobs(ctx context.Context, f store.Filter, cursor string) (harp.Page[harp.JobStatus], error) {
	for {
		rows, err := d.store.List(ctx, f, cursor)
		if err != nil {
			return harp.Page[harp.JobStatus]{}, err
		}
		items, n, err := d.statuses(ctx, rows.Jobs)
		if err != nil {
			return harp.Page[harp.JobStatus]{}, err
		}
		if n == len(rows.Jobs) {
			return harp.Page[harp.JobStatus]{Items: items, Cursor: rows.Cursor}, nil
		}
		f.Limit = n
		short, err := d.store.List(ctx, f, cursor) // for the cursor behind those
		if err != nil {
			return harp.Page[harp.JobStatus]{}, err
		}
		if slices.EqualFunc(short.Jobs, rows.Jobs[:n], func(a, b *store.Job) bool { return a.ID == b.ID }) {
			return harp.Page[harp.JobStatus]{Items: items, Cursor: short.Cursor}, nil
		}
	}
}

// statuses are jobs as callers see them, the first of these: as many as go into one
// answer, and at least one. n is of how many rows they are; some may have been pruned, or
// cannot be read.
func (d *Dispatcher) statuses(ctx context.Context, rows []*store.Job) (items []harp.JobStatus, n int, err error) {
	size := 0
	for n, row := range rows {
		status, err := d.status(ctx, row)
		if errors.Is(err, harp.ErrPruned) {
			continue // meanwhile
		}
		if errors.Is(err, store.ErrDamaged) {
			d.log.Error("job cannot be listed", "job", row.ID, "err", err)
			continue
		}
		if err != nil {
			return nil, 0, err
		}
		if size += statusSize(&status); size > wire.MaxPage && len(items) > 0 {
			return items, n, nil
		}
		items = append(items, status)
	}
	return items, len(rows), nil
}

// statusSize is about how many bytes of an answer a status takes, at least.
func statusSize(s *harp.JobStatus) int {
	const fields, attempt = 1024, 100
	size := fields + len(s.Args) + len(s.Info) + len(s.Queue) + attempt*len(s.Attempts)
	for k, v := range s.Labels {
		size += len(k) + len(v)
	}
	return size
}

// HostProcedures implements harp.HostService.
func (s *service) HostProcedures(ctx context.Context, host, cursor string) (harp.Page[harp.ProcedureDoc], error) {
	type page = harp.Page[harp.ProcedureDoc]
	return request(s, ctx, func(context.Context) (page, error) {
		h := s.d.hosts.findKnown(host)
		if h == nil {
			return page{}, failures.NotFound("host", host)
		}
		docs, next := h.procedures(cursor, pageSize)
		return page{Items: docs, Cursor: next}, nil
	})
}

// RefreshHosts implements harp.HostService.
func (s *service) RefreshHosts(ctx context.Context) (int, error) {
	return request(s, ctx, s.d.refresh)
}

// ListQueues implements harp.QueueService.
func (s *service) ListQueues(ctx context.Context, name harp.Value, cursor string) (harp.Page[harp.QueueStatus], error) {
	type page = harp.Page[harp.QueueStatus]
	return request(s, ctx, func(ctx context.Context) (page, error) {
		if name != nil {
			q, err := s.d.store.Queue(ctx, name)
			if errors.Is(err, harp.ErrNotFound) {
				return page{}, nil
			}
			return page{Items: []harp.QueueStatus{q}}, err
		}
		items, next, err := s.d.store.ListQueues(ctx, cursor, pageSize)
		return page{Items: items, Cursor: next}, err
	})
}

// CancelQueue implements harp.QueueService. One commit marks all that is in the
// queue; what it ends and what it must tell agents follows, whether its caller waits or not.
func (s *service) CancelQueue(ctx context.Context, id string, name harp.Value) (int, error) {
	return request(s, ctx, func(ctx context.Context) (int, error) {
		op, err := s.operation(id)
		if err != nil {
			return 0, err
		}
		done, err := s.d.store.CancelQueue(ctx, name, op)
		if err != nil {
			return 0, err
		}
		s.d.wakeClock()
		s.d.cancelActive(done.Active, s.who)
		if done.More {
			s.d.spawn(func() { s.d.cancelRest(name, op) })
		}
		return done.Count, nil
	})
}
