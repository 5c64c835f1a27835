package main

import (
	"bytes"
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/cmd/harp/internal/contexts"
	"github.com/harpcaller/harp/internal/failures"
	"github.com/harpcaller/harp/target"
)

// fake is a dispatcher that answers what a test gives it. What a command sends is
// kept.
type fake struct {
	jobs       []harp.JobStatus // newest first
	results    map[string]harp.Result
	records    map[string][]harp.Record
	hosts      []harp.HostStatus
	procedures []harp.ProcedureDoc // of every host
	queues     []harp.QueueStatus
	groups     []harp.Group
	submitErr  error
	statusErr  error
	wait       bool   // jobs do not end
	waiting    func() // is called when somebody begins to wait for one; nil: nothing happens
	feed       feed
	clock      func() time.Time
	troubles   []string
	bounds     []harp.Bound
	listing    func() // is called when something is listed; nil: nothing happens
	listErr    error
	filtered   bool // jobs are listed by their states

	submitted []harp.Request
	cancelled []string
	killed    []string
	queried   []harp.RecordQuery
	filter    harp.JobFilter
	labelled  []labelChange
	labelling []string                       // the targets of these
	changing  func(expr string) (int, error) // nil, or how hosts are labelled and paused
	every     bool                           // each target selects all hosts
	batches   batchFake
	schedules scheduleFake

	maintenance   maintenanceFake
	notifications notificationFake
	rules         []harp.RetentionStatus
	kept          harp.Kept
}

func (f *fake) Ping(context.Context) (harp.ServerInfo, error) {
	if f.clock == nil {
		return harp.ServerInfo{}, nil
	}
	return harp.ServerInfo{Time: f.clock(), Troubles: f.troubles, Bounds: f.bounds}, nil
}

func (f *fake) Close() error { return nil }

func (f *fake) Submit(_ context.Context, calls []harp.Submission) (done []harp.Submitted, _ error) {
	for _, call := range calls {
		id, err := f.submitOne(call)
		done = append(done, harp.Submitted{ID: id, Err: err})
	}
	return done, nil
}

func (f *fake) submitOne(s harp.Submission) (string, error) {
	req, err := harp.DecodeRequest(s.Request)
	if err != nil {
		return "", err
	}
	f.submitted = append(f.submitted, req)
	return req.ID, f.submitErr
}

// find returns a job; one that was submitted is as the first that was given.
func (f *fake) find(id string) (harp.JobStatus, error) {
	for _, j := range f.jobs {
		if j.ID == id {
			return j, nil
		}
	}
	for _, r := range f.submitted {
		if r.ID == id && len(f.jobs) > 0 {
			return f.jobs[0], nil
		}
	}
	return harp.JobStatus{}, failures.NotFound("job", id)
}

func (f *fake) JobStatus(_ context.Context, id string) (harp.JobStatus, error) {
	if f.statusErr != nil {
		return harp.JobStatus{}, f.statusErr
	}
	return f.find(id)
}

func (f *fake) JobResults(ctx context.Context, ids []string) (results []harp.JobResult, _ error) {
	for _, id := range ids {
		res, err := f.JobResult(ctx, id, true)
		results = append(results, harp.JobResult{ID: id, Result: res, Err: err})
	}
	return results, nil
}

func (f *fake) JobResult(ctx context.Context, id string, wait bool) (harp.Result, error) {
	j, err := f.find(id)
	if err != nil {
		return harp.Result{}, err
	}
	if f.wait && wait {
		return harp.Result{}, f.await(ctx)
	}
	return f.results[j.ID], nil
}

// await waits for what never comes.
func (f *fake) await(ctx context.Context) error {
	if f.waiting != nil {
		f.waiting()
	}
	<-ctx.Done()
	return context.Cause(ctx)
}

func (f *fake) Records(ctx context.Context, id string, q harp.RecordQuery) (harp.RecordPage, error) {
	f.queried = append(f.queried, q)
	j, err := f.find(id)
	if err != nil {
		return harp.RecordPage{}, err
	}
	all := f.records[j.ID]
	end := uint64(len(all))
	if q.Tail {
		q.From = end - min(q.Recent, end)
	}
	if f.wait && q.Wait && !q.Tail && q.From >= end {
		return harp.RecordPage{}, f.await(ctx)
	}
	return harp.RecordPage{Records: all[min(q.From, end):], Next: end, End: end, Ended: !f.wait}, nil
}

func (f *fake) CancelJob(_ context.Context, id string, now bool) (bool, error) {
	if now {
		f.killed = append(f.killed, id)
	}
	j, err := f.find(id)
	f.cancelled = append(f.cancelled, id)
	f.wait = false
	return !j.State.Ended(), err
}

// listed tells a test that a list was asked for.
func (f *fake) listed() {
	if f.listing != nil {
		f.listing()
	}
}

func (f *fake) ListJobs(_ context.Context, filter harp.JobFilter, _ string) (harp.Page[harp.JobStatus], error) {
	f.filter = filter
	f.listed()
	found := slices.Clone(f.jobs)
	if f.filtered && len(filter.States) > 0 {
		found = slices.DeleteFunc(found, func(j harp.JobStatus) bool { return !slices.Contains(filter.States, j.State) })
	}
	return harp.Page[harp.JobStatus]{Items: found}, f.listErr
}

func (f *fake) ListHosts(_ context.Context, text, _ string) (harp.Page[harp.HostStatus], error) {
	f.listed()
	var page harp.Page[harp.HostStatus]
	for _, h := range f.hosts {
		if f.every || text == "" || text == target.QuoteName(h.Name) {
			page.Items = append(page.Items, h)
		}
	}
	if text != "" && len(page.Items) == 0 {
		return page, failures.NotFound("host", text)
	}
	return page, nil
}

func (f *fake) ExplainTarget(_ context.Context, text, _ string) (target.Node, error) {
	return target.Node{Text: text}, nil
}

func (f *fake) PreviewBatch(_ context.Context, call harp.Submission) (harp.Preview, error) {
	req, err := harp.DecodeRequest(call.Request)
	if err != nil {
		return harp.Preview{}, err
	}
	if _, err := f.ListHosts(context.Background(), req.Target, ""); err != nil && req.RetryOf == "" {
		return harp.Preview{}, err
	}
	if f.batches.unseen != nil {
		return harp.Preview{}, f.batches.unseen
	}
	p := f.batches.preview
	if req.Batch.Probe { // those that do not answer are away
		pings, err := f.PingHosts(context.Background(), req.Target, "")
		if err != nil {
			return harp.Preview{}, err
		}
		for _, ping := range pings.Items {
			if !ping.Answered {
				p.Away++
			}
		}
	}
	if p.Hosts == 0 {
		p.Hosts = len(f.hosts)
	}
	if err = failures.CheckHostCount(&req.Batch, p.Hosts); err == nil && req.Batch.WhenUnfit == harp.RefuseUnfit {
		err = failures.CheckFit(&p)
	}
	p.Refusal = harp.FailureOf(err)
	return p, nil
}

func (f *fake) ListGroups(context.Context, string, string) (harp.Page[harp.Group], error) {
	f.listed()
	return harp.Page[harp.Group]{Items: f.groups}, nil
}

func (f *fake) PutGroup(context.Context, string, string, string) error { return nil }

func (f *fake) DeleteGroup(context.Context, string, string) error { return nil }

func (f *fake) LabelHosts(_ context.Context, _, expr string, set map[string]string, unset []string) (int, error) {
	f.labelled = append(f.labelled, labelChange{set, unset})
	f.labelling = append(f.labelling, expr)
	if f.changing != nil {
		return f.changing(expr)
	}
	return len(f.hosts), nil
}

func (f *fake) HostProcedures(_ context.Context, host, _ string) (harp.Page[harp.ProcedureDoc], error) {
	for _, h := range f.hosts {
		if h.Name == host {
			return harp.Page[harp.ProcedureDoc]{Items: f.procedures}, nil
		}
	}
	return harp.Page[harp.ProcedureDoc]{}, failures.NotFound("host", host)
}

func (f *fake) RemoveHost(_ context.Context, _, name string) (int, error) {
	before := len(f.hosts)
	if f.hosts = slices.DeleteFunc(f.hosts, func(h harp.HostStatus) bool { return h.Name == name }); len(f.hosts) == before {
		return 0, failures.NotFound("host", name)
	}
	return 2, nil
}

func (f *fake) PingHosts(ctx context.Context, text, cursor string) (harp.Page[harp.HostPing], error) {
	hosts, err := f.ListHosts(ctx, text, cursor)
	page := harp.Page[harp.HostPing]{Cursor: hosts.Cursor}
	for i, h := range hosts.Items {
		page.Items = append(page.Items, harp.HostPing{Host: h.Name, Online: h.Online, Answered: h.Online && i == 0, Took: 1500 * time.Microsecond, LastHeard: h.LastHeard})
	}
	return page, err
}

func (f *fake) RefreshHosts(context.Context) (int, error) { return len(f.hosts), nil }

func (f *fake) ListQueues(_ context.Context, name harp.Value, _ string) (harp.Page[harp.QueueStatus], error) {
	f.listed()
	var page harp.Page[harp.QueueStatus]
	for _, q := range f.queues {
		if name == nil || bytes.Equal(q.Name, name) {
			page.Items = append(page.Items, q)
		}
	}
	return page, nil
}

func (f *fake) CancelQueue(_ context.Context, _ string, name harp.Value) (int, error) {
	for _, q := range f.queues {
		if bytes.Equal(q.Name, name) {
			return q.Running + q.Waiting, nil
		}
	}
	return 0, failures.NotFound("queue", name.String())
}

// a moment of the jobs of these tests.
var noon = time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)

const (
	firstID  = "019c13e8-0000-7000-8000-000000000001"
	secondID = "019c13e8-0000-7000-8000-000000000002"
)

// value encodes what a test gives.
func value(t testing.TB, v any) harp.Value {
	t.Helper()
	got, err := harp.NewValue(v)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// ended is a job that ended as err says, after three records.
func ended(t testing.TB, err error) *fake {
	t.Helper()
	const id = firstID
	f := &fake{
		hosts:      []harp.HostStatus{{Name: "demo1", Online: true, LastHeard: noon, Procedures: []string{"count", "hello"}}},
		procedures: []harp.ProcedureDoc{demoProcedure(t, "count"), demoProcedure(t, "hello")},
	}
	s := harp.JobStatus{
		ID: id, Host: "demo1", Procedure: "count", Args: value(t, map[string]any{"to": 3}),
		State: harp.StateSucceeded, Started: harp.DidRun, Err: err, Attempt: 1, Records: 3,
		SubmitTime: noon, StartTime: noon.Add(time.Second), EndTime: noon.Add(2500 * time.Millisecond),
	}
	res := harp.Result{State: s.State, Value: value(t, map[string]int{"counted": 3}), Err: err}
	if err != nil {
		s.State, res.State, res.Value = harp.StateFailed, harp.StateFailed, nil
	}
	f.jobs = []harp.JobStatus{s}
	f.results = map[string]harp.Result{id: res}
	f.records = map[string][]harp.Record{id: {
		{Seq: 0, Attempt: 1, Time: noon, Kind: harp.KindData, Value: value(t, map[string]int{"i": 1})},
		{Seq: 1, Attempt: 1, Time: noon, Kind: harp.KindStdout, Value: value(t, "out\x1b[2J\nput\n")},
		{Seq: 2, Attempt: 1, Time: noon, Kind: harp.KindData, Value: value(t, "a\u009b text")},
	}}
	return f
}

// said is what a command printed and ended with.
type said struct {
	stdout, stderr string
	code           int
}

// runFake runs a command against a fake dispatcher.
func runFake(t testing.TB, ctx context.Context, f *fake, change func(*cli), args ...string) said { //nolint:revive // t goes first in tests
	t.Helper()
	var stdout, stderr bytes.Buffer
	dir := t.TempDir()
	env := map[string]string{"HARP_CONFIG_DIR": dir, "HARP_ADDR": "fake", "HARP_CERT": "x", "HARP_KEY": "x", "HARP_CA": "x"}
	c := newCLI(strings.NewReader(""), &stdout, &stderr, func(name string) string { return env[name] })
	c.dial = func(context.Context, contexts.Context) (*harp.Caller, error) { return harp.NewCaller(f), nil }
	if change != nil {
		change(c)
	}
	code := c.runCommand(ctx, args)
	return said{stdout.String(), stderr.String(), code}
}
