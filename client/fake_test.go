package client

import (
	"context"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/failures"
	"github.com/harpcaller/harp/target"
)

// fake is a dispatcher of which the test is the engine: it says when a job gets
// records and when it ends. Several services may share its desk.
type fake struct {
	*desk
	done context.Context
	stop context.CancelFunc
}

// desk holds the jobs of a fake.
type desk struct {
	mu            sync.Mutex // guards what follows; never held while blocked
	jobs          map[string]*fakeJob
	asked         map[string]int   // how often each method was called
	fail          map[string]error // what a method answers instead
	holds         map[string]chan struct{}
	waiting       int           // requests that wait for something to happen
	changed       chan struct{} // closed when asked or waiting has changed
	pageSize      int           // records or jobs a page; 0: all
	store         string        // its id
	order         []string
	hosts         []harp.HostStatus
	procs         []harp.ProcedureDoc
	queues        []harp.QueueStatus
	feed          feed
	schedules     fakeSchedules
	windows       fakeWindows
	notifications fakeNotifications
	retention     fakeRetention
	drift         []harp.DriftStatus
}

type fakeJob struct {
	request harp.Request
	records []harp.Record
	result  harp.Result
	changed chan struct{}
}

func newFake() *fake {
	return newDesk().service()
}

func newDesk() *desk {
	return &desk{store: "s", jobs: map[string]*fakeJob{}, asked: map[string]int{}, fail: map[string]error{}, holds: map[string]chan struct{}{}}
}

// service returns one more Service over the same jobs.
func (d *desk) service() *fake {
	f := &fake{desk: d}
	f.done, f.stop = context.WithCancel(context.Background())
	return f
}

// enter counts a call and answers for it if the test says so.
func (f *fake) enter(ctx context.Context, method string) error {
	f.mu.Lock()
	f.asked[method]++
	f.changeLocked()
	err, hold := f.fail[method], f.holds[method]
	f.mu.Unlock()
	if hold != nil {
		select {
		case <-hold:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	if f.done.Err() != nil {
		return harp.ErrClosed
	}
	return err
}

// count returns how often a method was called.
func (d *desk) count(method string) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.asked[method]
}

// failing makes a method answer err; nil ends it.
func (d *desk) failing(method string, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.fail[method] = err
}

// setStore makes what follows the answers of a dispatcher with another store.
func (d *desk) setStore(id string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.store = id
}

// holding makes a method wait until the returned function is called.
func (d *desk) holding(method string) (release func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	hold := make(chan struct{})
	d.holds[method] = hold
	return func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		delete(d.holds, method)
		close(hold)
	}
}

// waits returns how many requests wait for something to happen.
func (d *desk) waits() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.waiting
}

// add makes a job without anybody submitting it.
func (d *desk) add(records ...any) string {
	r := harp.Request{ID: harp.NewID(), Host: "web01", Procedure: "p"}
	d.mu.Lock()
	d.addLocked(r)
	d.mu.Unlock()
	d.emit(r.ID, records...)
	return r.ID
}

func (d *desk) addLocked(r harp.Request) {
	d.jobs[r.ID] = &fakeJob{request: r, changed: make(chan struct{})}
	d.order = append([]string{r.ID}, d.order...)
}

// emit adds records to a job.
func (d *desk) emit(id string, values ...any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	j := d.jobs[id]
	for _, v := range values {
		made, err := harp.NewValue(v)
		if err != nil {
			panic(err)
		}
		j.records = append(j.records, harp.Record{
			Seq: uint64(len(j.records)), Attempt: 1, Time: time.Unix(1, 0).UTC(), Kind: harp.KindData, Value: made,
		})
	}
	j.changeLocked()
}

// end ends a job.
func (d *desk) end(id string, res harp.Result) {
	d.mu.Lock()
	defer d.mu.Unlock()
	j := d.jobs[id]
	j.result = res
	j.changeLocked()
}

func (j *fakeJob) changeLocked() {
	close(j.changed)
	j.changed = make(chan struct{})
}

// find returns a job as it is now, and what is closed when it changes.
func (d *desk) find(id string) (fakeJob, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	j := d.jobs[id]
	if j == nil {
		return fakeJob{}, failures.NotFound("job", id)
	}
	c := *j
	c.records = slices.Clone(j.records)
	return c, nil
}

func (d *desk) countWaiting(n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.waiting += n
	d.changeLocked()
}

// changeLocked wakes until.
func (d *desk) changeLocked() {
	if d.changed != nil {
		close(d.changed)
		d.changed = nil
	}
}

// until waits until something is so at the desk.
func (d *desk) until(so func() bool) {
	for {
		d.mu.Lock()
		if d.changed == nil {
			d.changed = make(chan struct{})
		}
		changed, yes := d.changed, so()
		d.mu.Unlock()
		if yes {
			return
		}
		<-changed
	}
}

// wait waits for a change.
func (f *fake) wait(ctx context.Context, changed <-chan struct{}) error {
	f.countWaiting(1)
	defer f.countWaiting(-1)
	select {
	case <-changed:
		return nil
	case <-f.done.Done():
		return harp.ErrClosed
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (f *fake) Close() error {
	f.stop()
	return nil
}

func (f *fake) Ping(ctx context.Context) (harp.ServerInfo, error) {
	err := f.enter(ctx, "Ping")
	f.mu.Lock()
	defer f.mu.Unlock()
	return harp.ServerInfo{Software: "fake/1", Protocol: 1, Store: f.store, Time: time.Unix(5, 0).UTC()}, err
}

func (f *fake) Submit(ctx context.Context, calls []harp.Submission) (done []harp.Submitted, _ error) {
	for _, call := range calls {
		id, err := f.submitOne(ctx, call)
		done = append(done, harp.Submitted{ID: id, Err: err})
	}
	return done, nil
}

func (f *fake) submitOne(ctx context.Context, s harp.Submission) (string, error) {
	if err := f.enter(ctx, "Submit"); err != nil {
		return "", err
	}
	r, err := harp.DecodeRequest(s.Request)
	if err != nil {
		return "", err
	}
	id, err := f.take(r)
	if err == nil {
		err = f.enter(ctx, "Submitted") // stored, not yet answered
	}
	return id, err
}

// take stores a request.
func (d *desk) take(r harp.Request) (string, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if old := d.jobs[r.ID]; old != nil {
		if old.request.Digest() != r.Digest() {
			return "", failures.New("conflict", "the id is of another request").Err()
		}
		return r.ID, nil
	}
	for _, id := range d.order {
		if r.IdempotencyKey != "" && d.jobs[id].request.IdempotencyKey == r.IdempotencyKey {
			return id, nil
		}
	}
	d.addLocked(r)
	return r.ID, nil
}

func (j *fakeJob) status() harp.JobStatus {
	s := harp.JobStatus{
		ID: j.request.ID, Host: j.request.Host, Procedure: j.request.Procedure, Args: j.request.Args, Info: j.request.Info,
		Queue: j.request.Queue, Labels: j.request.Labels, State: harp.StateRunning, Records: uint64(len(j.records)),
		SubmitTime: harp.IDTime(j.request.ID),
	}
	if j.result.Done() {
		s.State, s.Err = j.result.State, j.result.Err
	}
	return s
}

func (f *fake) JobStatus(ctx context.Context, id string) (harp.JobStatus, error) {
	if err := f.enter(ctx, "JobStatus"); err != nil {
		return harp.JobStatus{}, err
	}
	j, err := f.find(id)
	if err != nil {
		return harp.JobStatus{}, err
	}
	return j.status(), nil
}

func (f *fake) JobResults(ctx context.Context, ids []string) (results []harp.JobResult, _ error) {
	for _, id := range ids {
		res, err := f.JobResult(ctx, id, true)
		results = append(results, harp.JobResult{ID: id, Result: res, Err: err})
	}
	return results, nil
}

func (f *fake) JobResult(ctx context.Context, id string, wait bool) (harp.Result, error) {
	if err := f.enter(ctx, "JobResult"); err != nil {
		return harp.Result{}, err
	}
	for {
		j, err := f.find(id)
		if err != nil || j.result.Done() || !wait {
			res := j.result
			if res.Done() {
				res.Procedure = j.request.Procedure
			}
			return res, err
		}
		if err := f.wait(ctx, j.changed); err != nil {
			return harp.Result{}, err
		}
	}
}

func (f *fake) Records(ctx context.Context, id string, q harp.RecordQuery) (harp.RecordPage, error) {
	if err := f.enter(ctx, "Records"); err != nil {
		return harp.RecordPage{}, err
	}
	for {
		j, err := f.find(id)
		if err != nil {
			return harp.RecordPage{}, err
		}
		n := uint64(len(j.records))
		if q.Tail {
			q.From = n - min(q.Recent, n)
		}
		from, to := min(q.From, n), n
		if f.pageSize > 0 {
			to = min(n, from+uint64(f.pageSize))
		}
		page := harp.RecordPage{Records: j.records[from:to], Next: max(q.From, to), End: n}
		page.Ended = j.result.Done() && to == n
		if len(page.Records) > 0 || page.Ended || q.Tail || !q.Wait {
			return page, nil
		}
		if err := f.wait(ctx, j.changed); err != nil {
			return harp.RecordPage{}, err
		}
	}
}

func (f *fake) CancelJob(ctx context.Context, id string, _ bool) (bool, error) {
	if err := f.enter(ctx, "CancelJob"); err != nil {
		return false, err
	}
	j, err := f.find(id)
	if err != nil || j.result.Done() {
		return false, err
	}
	f.end(id, harp.Result{State: harp.StateCancelled, Err: failures.New("cancelled", "").Err()})
	return true, nil
}

func (f *fake) ListJobs(ctx context.Context, filter harp.JobFilter, cursor string) (harp.Page[harp.JobStatus], error) {
	if err := f.enter(ctx, "ListJobs"); err != nil {
		return harp.Page[harp.JobStatus]{}, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	var all []harp.JobStatus
	for _, id := range f.order {
		if s := f.jobs[id].status(); filter.Host == "" || s.Host == filter.Host {
			all = append(all, s)
		}
	}
	return pageOf(all, cursor, f.pageSize, func(s harp.JobStatus) string { return s.ID })
}

// pageOf pages through items; the cursor is the key of the last one.
func pageOf[T any](items []T, cursor string, size int, key func(T) string) (harp.Page[T], error) {
	if cursor != "" {
		i := slices.IndexFunc(items, func(t T) bool { return key(t) == cursor })
		if i < 0 {
			return harp.Page[T]{}, &harp.FieldError{Field: "cursor", Message: "is none"}
		}
		items = items[i+1:]
	}
	if size == 0 || len(items) <= size {
		return harp.Page[T]{Items: items}, nil
	}
	return harp.Page[T]{Items: items[:size], Cursor: key(items[size-1])}, nil
}

func (f *fake) ListHosts(ctx context.Context, text, cursor string) (harp.Page[harp.HostStatus], error) {
	if err := f.enter(ctx, "ListHosts"); err != nil {
		return harp.Page[harp.HostStatus]{}, err
	}
	var hosts []harp.HostStatus
	for _, h := range f.hosts {
		if text == "" || text == target.QuoteName(h.Name) {
			hosts = append(hosts, h)
		}
	}
	return pageOf(hosts, cursor, f.pageSize, func(h harp.HostStatus) string { return h.Name })
}

func (f *fake) ExplainTarget(ctx context.Context, text, host string) (target.Node, error) {
	if err := f.enter(ctx, "ExplainTarget"); err != nil {
		return target.Node{}, err
	}
	return target.Node{Text: text, Hosts: 1, Value: host, Parts: []target.Node{{Text: "a", Hosts: 2}, {Text: "b", Parts: []target.Node{{Text: "c"}}}}}, nil
}

func (f *fake) PreviewBatch(ctx context.Context, call harp.Submission) (harp.Preview, error) {
	if err := f.enter(ctx, "PreviewBatch"); err != nil {
		return harp.Preview{}, err
	}
	req, err := harp.DecodeRequest(call.Request)
	if err != nil {
		return harp.Preview{}, err
	}
	lacking := harp.UnfitHost{Host: "db01", Err: failures.NotFound("procedure", req.Procedure+" "+req.Args.String())}
	refusal := failures.New("refused", string(call.Hosts)+" "+req.Batch.Subset)
	return harp.Preview{Hosts: 2, Away: 1, Unfit: 1, Dangerous: true, Digest: req.Target, Refusal: refusal, AwayHosts: []string{"db02"}, UnfitHosts: []harp.UnfitHost{lacking}}, nil
}

func (f *fake) BatchStatus(ctx context.Context, id string, wait bool) (harp.BatchStatus, error) {
	if err := f.enter(ctx, "BatchStatus"); err != nil {
		return harp.BatchStatus{}, err
	}
	s := harp.BatchStatus{ID: id, State: harp.BatchRunning, Hosts: 2, Counts: map[harp.State]int{harp.StateQueued: 2}}
	if wait {
		s.State = harp.BatchSucceeded
	}
	return s, nil
}

func (f *fake) ListBatches(ctx context.Context, filter harp.BatchFilter, cursor string) (harp.Page[harp.BatchStatus], error) {
	if err := f.enter(ctx, "ListBatches"); err != nil {
		return harp.Page[harp.BatchStatus]{}, err
	}
	var all []harp.BatchStatus
	for n := range 3 {
		all = append(all, harp.BatchStatus{ID: strconv.Itoa(n), Procedure: filter.Procedure})
	}
	return pageOf(all, cursor, filter.Limit, func(b harp.BatchStatus) string { return b.ID })
}

// BatchLog answers an entry of two records, of which it tells one at a time, then an end.
func (f *fake) BatchLog(ctx context.Context, id string, q harp.BatchQuery) (harp.BatchPage, error) {
	if err := f.enter(ctx, "BatchLog"); err != nil {
		return harp.BatchPage{}, err
	}
	member := harp.MemberID(id, "web01", 1)
	if q.From == 0 && q.At < 2 && q.Records {
		r := harp.Record{Seq: q.At, Attempt: 1, Kind: harp.KindStdout, Value: harp.Value{byte(q.At)}}
		return harp.BatchPage{Entries: []harp.HostRecord{{Host: "web01", Job: member, Record: r}}, At: q.At + 1}, nil
	}
	end := &harp.Result{State: harp.StateFailed, Err: &harp.RemoteError{Type: "x", Message: "m"}}
	return harp.BatchPage{Entries: []harp.HostRecord{{Seq: 1, Host: "web01", Job: member, End: end}}, Next: 2, Ended: true}, nil
}

func (f *fake) ChangeBatch(ctx context.Context, _, _ string, c harp.BatchChange) (int, error) {
	return len(c.Kind), f.enter(ctx, "ChangeBatch")
}

func (f *fake) ListGroups(ctx context.Context, name, _ string) (harp.Page[harp.Group], error) {
	return harp.Page[harp.Group]{Items: []harp.Group{{Name: name, Target: "web*"}}}, f.enter(ctx, "ListGroups")
}

func (f *fake) PutGroup(ctx context.Context, _, _, _ string) error { return f.enter(ctx, "PutGroup") }

func (f *fake) DeleteGroup(ctx context.Context, _, _ string) error {
	return f.enter(ctx, "DeleteGroup")
}

func (f *fake) LabelHosts(ctx context.Context, _, _ string, set map[string]string, unset []string) (int, error) {
	return len(set) + len(unset), f.enter(ctx, "LabelHosts")
}

func (f *fake) HostProcedures(ctx context.Context, host, cursor string) (harp.Page[harp.ProcedureDoc], error) {
	if err := f.enter(ctx, "HostProcedures"); err != nil {
		return harp.Page[harp.ProcedureDoc]{}, err
	}
	if !slices.ContainsFunc(f.hosts, func(h harp.HostStatus) bool { return h.Name == host }) {
		return harp.Page[harp.ProcedureDoc]{}, failures.NotFound("host", host)
	}
	return pageOf(f.procs, cursor, f.pageSize, func(p harp.ProcedureDoc) string { return p.Name })
}

func (f *fake) RemoveHost(ctx context.Context, _, name string) (int, error) {
	if err := f.enter(ctx, "RemoveHost"); err != nil {
		return 0, err
	}
	before := len(f.hosts)
	if f.hosts = slices.DeleteFunc(f.hosts, func(h harp.HostStatus) bool { return h.Name == name }); len(f.hosts) == before {
		return 0, failures.NotFound("host", name)
	}
	return 7, nil
}

func (f *fake) PingHosts(ctx context.Context, text, cursor string) (harp.Page[harp.HostPing], error) {
	if err := f.enter(ctx, "PingHosts"); err != nil {
		return harp.Page[harp.HostPing]{}, err
	}
	pings := []harp.HostPing{{Host: text}}
	for _, h := range f.hosts {
		pings = append(pings, harp.HostPing{Host: h.Name, Online: h.Online, Answered: h.Online, Took: 3 * time.Millisecond, LastHeard: h.LastHeard})
	}
	return pageOf(pings, cursor, f.pageSize, func(p harp.HostPing) string { return p.Host })
}

func (f *fake) RefreshHosts(ctx context.Context) (int, error) {
	return len(f.hosts), f.enter(ctx, "RefreshHosts")
}

func (f *fake) ListQueues(ctx context.Context, name harp.Value, cursor string) (harp.Page[harp.QueueStatus], error) {
	if err := f.enter(ctx, "ListQueues"); err != nil {
		return harp.Page[harp.QueueStatus]{}, err
	}
	var queues []harp.QueueStatus
	for _, q := range f.queues {
		if name == nil || string(q.Name) == string(name) {
			queues = append(queues, q)
		}
	}
	return pageOf(queues, cursor, f.pageSize, func(q harp.QueueStatus) string { return q.Name.String() })
}

func (f *fake) CancelQueue(ctx context.Context, _ string, name harp.Value) (int, error) {
	if err := f.enter(ctx, "CancelQueue"); err != nil {
		return 0, err
	}
	for _, q := range f.queues {
		if string(q.Name) == string(name) {
			return q.Running + q.Waiting, nil
		}
	}
	return 0, failures.NotFound("queue", name.String())
}

var _ harp.Service = (*fake)(nil)
