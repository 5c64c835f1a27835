package harptest

import (
	"context"
	"errors"
	"io"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/failures"
	"github.com/harpcaller/harp/target"
)

// Fake stands for a dispatcher in unit tests of what makes calls: it has a Caller, and nothing
// runs, waits or takes time. A call is answered by the function that the test has given for its
// procedure, see [Answer], and its job has ended when Call returns. What is more than calls and
// jobs, such as hosts and queues, is ErrRefused: that is what a [System] is for. It is safe for
// concurrent use.
type Fake struct {
	mu      sync.Mutex // guards what follows
	answers map[string]func(harp.Request) (harp.Value, error)
	refuse  error
	jobs    []*fakeJob // in the order of the calls
}

type fakeJob struct {
	sub    harp.Submission
	key    string
	digest [32]byte
	status harp.JobStatus
	result harp.Result
}

// NewFake returns a Fake that answers no procedure yet: calls are ErrNotFound.
func NewFake() *Fake {
	return &Fake{answers: map[string]func(harp.Request) (harp.Value, error){}}
}

// Caller returns the caller.
func (f *Fake) Caller() *harp.Caller { return harp.NewCaller(fakeService{f}) }

// Answer lets calls of a procedure be answered by fn. An error of fn is how the job fails: one that is
// [harp.ErrLost], [harp.ErrTimeout], [harp.ErrCancelled], [harp.ErrExpired] or
// [harp.ErrRejected] ends it so, any other is the failure of the procedure. fn must not use the Fake.
func Answer[A, R any](f *Fake, p harp.Proc[A, R], fn func(host string, args A) (R, error)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.answers[p.Name] = func(req harp.Request) (harp.Value, error) {
		var args A
		if err := req.Args.Decode(&args); err != nil {
			return nil, err
		}
		result, err := fn(req.Host, args)
		if err != nil {
			return nil, err
		}
		return harp.NewValue(result)
	}
}

// Refuse makes calls fail with err, such as [harp.ErrUnavailable], and stores nothing; nil takes
// it back.
func (f *Fake) Refuse(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.refuse = err
}

// fakeService is what the Callers of a Fake ask.
type fakeService struct{ *Fake }

// Submit implements harp.JobService.
func (f fakeService) Submit(_ context.Context, calls []harp.Submission) ([]harp.Submitted, error) {
	out := make([]harp.Submitted, len(calls))
	for i, call := range calls {
		out[i] = f.submit(call)
	}
	return out, nil
}

func (f fakeService) submit(call harp.Submission) harp.Submitted {
	req, err := harp.DecodeRequest(call.Request)
	if err == nil && req.IsBatch() {
		err = errFake
	}
	if err != nil {
		return harp.Submitted{Err: err}
	}
	key := req.IdempotencyKey
	if key != "" {
		key = req.Host + "\n" + req.Procedure + "\n" + key
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, j := range f.jobs {
		if j.status.ID != req.ID && (key == "" || j.key != key) {
			continue
		}
		switch {
		case j.digest == req.Digest():
			return harp.Submitted{ID: j.status.ID, Existed: true}
		case j.status.ID == req.ID:
			return harp.Submitted{Err: failures.New("conflict", "job "+j.status.ID+" belongs to another request").Err()}
		default:
			return harp.Submitted{Err: failures.ConflictOfKey("job", j.status.ID)}
		}
	}
	answer := f.answers[req.Procedure]
	switch {
	case f.refuse != nil:
		return harp.Submitted{Err: f.refuse}
	case answer == nil:
		return harp.Submitted{Err: failures.NotFound("procedure", req.Procedure+" on "+req.Host)}
	}
	f.jobs = append(f.jobs, newFakeJob(call, req, key, answer))
	return harp.Submitted{ID: req.ID}
}

func newFakeJob(call harp.Submission, req harp.Request, key string, answer func(harp.Request) (harp.Value, error)) *fakeJob {
	now := time.Now().UTC()
	value, err := answer(req)
	state, err := fakeEnd(err)
	j := &fakeJob{sub: call, key: key, digest: req.Digest()}
	j.result = harp.Result{State: state, Value: value, Err: err, Procedure: req.Procedure, SubmitTime: now, StartTime: now, EndTime: now}
	j.status = harp.JobStatus{
		ID: req.ID, Host: req.Host, Procedure: req.Procedure, RetryOf: req.RetryOf, DryRun: req.DryRun,
		Principal: harp.Principal{Kind: "process", Auth: "process"}, Args: req.Args, Info: req.Info, Queue: req.Queue,
		State: state, Started: harp.DidRun, Attempt: 1, Err: err, SubmitTime: now, StartTime: now, EndTime: now, Labels: req.Labels,
	}
	if err != nil {
		j.status.Started = harp.RanOf(err)
	}
	return j
}

// fakeEnd is how a job ends whose answer has this error.
func fakeEnd(err error) (harp.State, error) {
	if err == nil {
		return harp.StateSucceeded, nil
	}
	for _, end := range []struct {
		is    error
		state harp.State
	}{
		{harp.ErrLost, harp.StateLost},
		{harp.ErrTimeout, harp.StateTimedOut},
		{harp.ErrCancelled, harp.StateCancelled},
		{harp.ErrExpired, harp.StateExpired},
		{harp.ErrRejected, harp.StateRejected},
	} {
		if errors.Is(err, end.is) {
			return end.state, err
		}
	}
	var remote *harp.RemoteError
	if !errors.As(err, &remote) {
		err = &harp.RemoteError{Type: "error", Message: err.Error()}
	}
	return harp.StateFailed, err
}

// job returns a job by its id. Errors: harp.ErrInvalid, harp.ErrNotFound.
func (f fakeService) job(id string) (*fakeJob, error) {
	if err := harp.CheckID(id); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, j := range f.jobs {
		if j.status.ID == id {
			return j, nil
		}
	}
	return nil, failures.NotFound("job", id)
}

// JobStatus implements harp.JobService.
func (f fakeService) JobStatus(_ context.Context, id string) (harp.JobStatus, error) {
	j, err := f.job(id)
	if err != nil {
		return harp.JobStatus{}, err
	}
	return j.shown(), nil
}

// shown is the job's status, which shares no memory with the job.
func (j *fakeJob) shown() harp.JobStatus {
	s := j.status
	s.Labels, s.Args, s.Queue = maps.Clone(s.Labels), slices.Clone(s.Args), slices.Clone(s.Queue)
	return s
}

// JobResult implements harp.JobService.
func (f fakeService) JobResult(_ context.Context, id string, _ bool) (harp.Result, error) {
	j, err := f.job(id)
	if err != nil {
		return harp.Result{}, err
	}
	result := j.result
	result.Value = slices.Clone(result.Value)
	return result, nil
}

// JobResults implements harp.JobService.
func (f fakeService) JobResults(ctx context.Context, ids []string) (results []harp.JobResult, _ error) {
	for _, id := range ids {
		res, err := f.JobResult(ctx, id, true)
		results = append(results, harp.JobResult{ID: id, Result: res, Err: err})
	}
	return results, nil
}

// Records implements harp.JobService: there are none.
func (f fakeService) Records(_ context.Context, id string, q harp.RecordQuery) (harp.RecordPage, error) {
	_, err := f.job(id)
	return harp.RecordPage{Next: q.From, Ended: true}, err
}

// CancelJob implements harp.JobService: all have ended.
func (f fakeService) CancelJob(_ context.Context, id string, _ bool) (bool, error) {
	_, err := f.job(id)
	return false, err
}

// JobRequest implements harp.JobService.
func (f fakeService) JobRequest(_ context.Context, id string) (harp.Submission, error) {
	j, err := f.job(id)
	if err != nil {
		return harp.Submission{}, err
	}
	sub := j.sub
	sub.Request, sub.Signature = slices.Clone(sub.Request), slices.Clone(sub.Signature)
	return sub, nil
}

// ForceLost implements harp.JobService: all have ended.
func (f fakeService) ForceLost(_ context.Context, id, _ string) error {
	if _, err := f.job(id); err != nil {
		return err
	}
	return failures.New("conflict", "job "+id+" has ended").Err()
}

// ListJobs implements harp.JobService. It selects by host, procedure, state and labels, and refuses other filters.
func (f fakeService) ListJobs(_ context.Context, filter harp.JobFilter, _ string) (page harp.Page[harp.JobStatus], _ error) {
	if filter.Batch != "" || filter.Queue != nil || filter.By != "" || len(filter.Args) > 0 || !filter.Since.IsZero() || !filter.Until.IsZero() {
		return page, errFake
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, j := range slices.Backward(f.jobs) {
		s := j.shown()
		if filter.Host != "" && filter.Host != s.Host || filter.Procedure != "" && filter.Procedure != s.Procedure ||
			len(filter.States) > 0 && !slices.Contains(filter.States, s.State) || !hasLabels(s.Labels, filter.Labels) {
			continue
		}
		page.Items = append(page.Items, s)
	}
	return page, nil
}

// hasLabels reports whether labels have all those that are wanted.
func hasLabels(labels, wanted map[string]string) bool {
	for key, value := range wanted {
		if is, ok := labels[key]; !ok || is != value {
			return false
		}
	}
	return true
}

// Ping implements harp.Service.
func (f fakeService) Ping(context.Context) (harp.ServerInfo, error) {
	return harp.ServerInfo{Software: "harptest.Fake", Time: time.Now().UTC()}, nil
}

// Close implements harp.Service: other Callers of the Fake go on.
func (f fakeService) Close() error { return nil }

// errFake is what a Fake has not.
var errFake = failures.New("refused", "a harptest.Fake has jobs only, listed by host, procedure, state and labels").Err()

// ListHosts implements harp.HostService.
func (f fakeService) ListHosts(context.Context, string, string) (harp.Page[harp.HostStatus], error) {
	return harp.Page[harp.HostStatus]{}, errFake
}

// ExplainTarget implements harp.HostService.
func (f fakeService) ExplainTarget(context.Context, string, string) (target.Node, error) {
	return target.Node{}, errFake
}

// PreviewBatch implements harp.HostService.
func (f fakeService) PreviewBatch(context.Context, harp.Submission) (harp.Preview, error) {
	return harp.Preview{}, errFake
}

// BatchStatus implements harp.BatchService.
func (f fakeService) BatchStatus(context.Context, string, bool) (harp.BatchStatus, error) {
	return harp.BatchStatus{}, errFake
}

// ListBatches implements harp.BatchService.
func (f fakeService) ListBatches(context.Context, harp.BatchFilter, string) (harp.Page[harp.BatchStatus], error) {
	return harp.Page[harp.BatchStatus]{}, errFake
}

// BatchLog implements harp.BatchService.
func (f fakeService) BatchLog(context.Context, string, harp.BatchQuery) (harp.BatchPage, error) {
	return harp.BatchPage{}, errFake
}

// ChangeBatch implements harp.BatchService.
func (f fakeService) ChangeBatch(context.Context, string, string, harp.BatchChange) (int, error) {
	return 0, errFake
}

// ListGroups implements harp.GroupService.
func (f fakeService) ListGroups(context.Context, string, string) (harp.Page[harp.Group], error) {
	return harp.Page[harp.Group]{}, errFake
}

// PutGroup implements harp.GroupService.
func (f fakeService) PutGroup(context.Context, string, string, string) error { return errFake }

// DeleteGroup implements harp.GroupService.
func (f fakeService) DeleteGroup(context.Context, string, string) error { return errFake }

// HostProcedures implements harp.HostService.
func (f fakeService) HostProcedures(context.Context, string, string) (harp.Page[harp.ProcedureDoc], error) {
	return harp.Page[harp.ProcedureDoc]{}, errFake
}

// RemoveHost implements harp.HostService.
func (f fakeService) RemoveHost(context.Context, string, string) (int, error) { return 0, errFake }

// LabelHosts implements harp.HostService.
func (f fakeService) LabelHosts(context.Context, string, string, map[string]string, []string) (int, error) {
	return 0, errFake
}

// PingHosts implements harp.HostService.
func (f fakeService) PingHosts(context.Context, string, string) (harp.Page[harp.HostPing], error) {
	return harp.Page[harp.HostPing]{}, errFake
}

// RefreshHosts implements harp.HostService.
func (f fakeService) RefreshHosts(context.Context) (int, error) { return 0, errFake }

// ListQueues implements harp.QueueService.
func (f fakeService) ListQueues(context.Context, harp.Value, string) (harp.Page[harp.QueueStatus], error) {
	return harp.Page[harp.QueueStatus]{}, errFake
}

// CancelQueue implements harp.QueueService.
func (f fakeService) CancelQueue(context.Context, string, harp.Value) (int, error) { return 0, errFake }

// ChangeQueue implements harp.QueueService.
func (f fakeService) ChangeQueue(context.Context, string, harp.Value, harp.QueueChange) error {
	return errFake
}

// Events implements harp.EventService.
func (f fakeService) Events(context.Context, harp.EventFilter, bool) (harp.EventPage, error) {
	return harp.EventPage{}, errFake
}

// Prune implements harp.UpkeepService.
func (f fakeService) Prune(context.Context, time.Time) (int, error) { return 0, errFake }

// Backup implements harp.UpkeepService.
func (f fakeService) Backup(context.Context, io.Writer) error { return errFake }
