package harptest_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/agent"
	"github.com/harpcaller/harp/dispatcher"
	"github.com/harpcaller/harp/harptest"
	faulthistory "github.com/harpcaller/harp/internal/faults/history"
	"github.com/harpcaller/harp/internal/needs"
	"github.com/harpcaller/harp/store"
)

// chore is what the members of batches do: some records, some time, and on some hosts a failure.
type chore struct {
	Fail  []string `json:"fail"`
	Takes int      `json:"takes"` // milliseconds
}

var choreProc = harp.NewStreamProc[chore, int, string]("chore")

// choreQueue is the queue of some batches.
var choreQueue = map[string]any{"kind": "chore"}

// choreRecords is how many records each execution yields.
const choreRecords = 3

// doChores offers chore, seen by a witness.
func doChores(w *harptest.Witness) func(*agent.Agent) {
	return func(a *agent.Agent) {
		agent.HandleStream(a, choreProc, harptest.WatchStream(w, func(ctx context.Context, in chore, emit func(int) error) (string, error) {
			info, _ := agent.FromContext(ctx)
			for n := range choreRecords {
				if err := emit(n); err != nil {
					return "", err
				}
				select {
				case <-time.After(time.Duration(in.Takes) * time.Millisecond):
				case <-ctx.Done():
					return "", context.Cause(ctx)
				}
			}
			if slices.Contains(in.Fail, info.Host) {
				return "", agent.Errorf("asked", nil, "it was asked for")
			}
			return info.Host, nil
		}))
	}
}

// batchRun is a batch that is under way while faults happen, and what was seen of it.
type batchRun struct {
	t       *testing.T
	sys     *harptest.System
	witness *harptest.Witness
	rand    *rand.Rand
	hosts   []string
	waves   []int
	most    int
	stop    int           // with so many failures it stops; 0: never, or that is not looked at
	pause   time.Duration // between two waves
	queued  bool
	isChain bool
	steps   []harp.Step // of a chain
	id      string      // of the batch, set before the system is started
	batch   *harp.Batch

	following sync.WaitGroup
	followed  []harp.HostRecord
	events    []harp.Event
	want      map[string]int // of a chain, which step says how each host ended
}

// TestBatchChaos plays batches and chains while agents crash, connections are lost and the dispatcher is started anew,
// and checks what is promised of batches. What a seed plans is always the same.
func TestBatchChaos(t *testing.T) {
	seeds := *seedsFlag
	switch {
	case seeds > 0:
	case needs.RaceDetector, testing.Short():
		seeds = 6
	default:
		seeds = 20
	}
	ends := map[harp.BatchState]int{}
	for seed := *seedFlag; seed < *seedFlag+seeds; seed++ {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { ends[playBatch(t, seed, false)]++ })
		})
		t.Run(fmt.Sprintf("chain/seed=%d", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { ends[playBatch(t, seed, true)]++ })
		})
	}
	t.Logf("they ended as %v", ends)
}

func playBatch(t *testing.T, seed uint64, isChain bool) harp.BatchState {
	r := &batchRun{t: t, isChain: isChain, id: harp.NewID(), witness: &harptest.Witness{}, want: map[string]int{}, rand: rand.New(rand.NewPCG(seed, 16))} //nolint:gosec // chance that can be repeated
	for n := range 12 {
		r.hosts = append(r.hosts, fmt.Sprintf("web%02d", n))
	}
	options := harptest.Options{
		Agents: r.hosts, Register: doChores(r.witness), Seed: seed, DiskTime: 5 * time.Millisecond,
		Dispatcher: dispatcher.Config{Heartbeat: time.Second, OfflineWait: 20 * time.Second},
	}
	r.sys = harptest.New(t, options.OnStore(func(st store.Store) store.Store { return checkedStore{st, r} }))
	r.submit()
	r.follow()
	gone := r.hosts[r.rand.IntN(len(r.hosts))]
	r.sys.StopAgent(gone) // for good: it must not keep the batch from ending
	for range 6 + r.rand.IntN(8) {
		time.Sleep(time.Duration(r.rand.IntN(400)) * time.Millisecond)
		r.makeFault(gone)
	}
	if err := r.batch.Resume(t.Context()); err != nil && harp.FailureOf(err).Code != "conflict" {
		t.Error("resume: ", err)
	}
	status := r.end()
	r.following.Wait()
	r.check(status)
	r.retry(status)
	return status.State
}

// drawChore draws what is done, and where it fails.
func (r *batchRun) drawChore() chore {
	in := chore{Takes: 20 + r.rand.IntN(200)}
	for range r.rand.IntN(4) {
		in.Fail = append(in.Fail, r.hosts[r.rand.IntN(len(r.hosts))])
	}
	return in
}

// submit submits a batch with some options, or a chain of three steps.
func (r *batchRun) submit() {
	in := r.drawChore()
	r.most, r.waves = 1+r.rand.IntN(6), []int{len(r.hosts)}
	opts := []harp.Option{harp.Parallel(r.most)}
	if r.rand.IntN(2) == 0 {
		opts = append(opts, harp.Rolling("2", "50%"))
		r.waves = []int{2, 6, 12}
	}
	switch r.rand.IntN(3) {
	case 0:
		opts = append(opts, harp.StopAfter("2"))
	case 1:
		opts = append(opts, harp.StopAfter("25%"), harp.OnStop(harp.CancelBatch))
	}
	if r.queued = r.rand.IntN(3) == 0; r.queued {
		opts = append(opts, harp.Queue(choreQueue), harp.Concurrency(1+r.rand.IntN(3)))
	}
	if r.rand.IntN(3) == 0 {
		opts = append(opts, harp.Retry(harp.RetryPolicy{On: []harp.State{harp.StateFailed}, Attempts: 2}))
	}
	if r.rand.IntN(4) == 0 {
		opts = append(opts, harp.ApproveFirst())
	}
	opts = append(opts, harp.JobID(r.id))
	target := r.sys.Caller().Target("web*")
	var err error
	if r.isChain {
		ends := []harp.Ending{"", "", harp.OnFailed, harp.OnEnded}
		r.steps = []harp.Step{
			{Procedure: "chore", Args: in},
			{Procedure: "chore", Args: r.drawChore(), On: ends[r.rand.IntN(len(ends))]},
			{Procedure: "chore", Args: r.drawChore(), On: ends[r.rand.IntN(len(ends))]},
		}
		r.batch, err = target.Chain(r.t.Context(), r.steps, opts...)
	} else {
		r.batch, err = choreProc.Run(r.t.Context(), target, in, opts...)
	}
	if err != nil {
		r.t.Fatal(err)
	}
}

// follow keeps what followers of the batch, and of the feed, are told.
func (r *batchRun) follow() {
	ctx := r.t.Context()
	r.following.Go(func() {
		for rec, err := range r.batch.Follow(ctx, harp.Since(0)) {
			if err != nil {
				r.t.Error("follow: ", err)
				return
			}
			r.followed = append(r.followed, rec)
		}
	})
	r.following.Go(func() {
		f := harp.EventFilter{After: harp.EventsFromStart, Batch: r.batch.ID()}
		for e, err := range r.sys.Caller().Events(ctx, f) {
			if err != nil {
				r.t.Error("events: ", err)
				return
			}
			r.events = append(r.events, e)
			if e.Type == harp.EventBatchSucceeded || e.Type == harp.EventBatchFailed || e.Type == harp.EventBatchCancelled {
				return
			}
		}
	})
}

// makeFault lets something happen, and be over.
func (r *batchRun) makeFault(gone string) {
	host := r.hosts[r.rand.IntN(len(r.hosts))]
	for host == gone {
		host = r.hosts[r.rand.IntN(len(r.hosts))]
	}
	some := time.Duration(r.rand.IntN(5000)) * time.Millisecond
	switch r.rand.IntN(7) {
	case 0:
		r.sys.Cut(host)
		time.Sleep(some)
		r.sys.Heal(host)
	case 1:
		r.sys.Reset(host)
	case 2:
		r.sys.CrashAgent(host)
		time.Sleep(some)
		r.sys.StartAgent(host)
	case 3:
		r.sys.CrashDispatcher()
		time.Sleep(some)
		r.sys.StartDispatcher()
	case 4:
		r.sys.RestartDispatcher()
	case 5:
		r.change(func(ctx context.Context) error { return r.batch.Pause(ctx, "chaos") })
		time.Sleep(some)
		r.change(r.batch.Resume)
	case 6:
		switch n := r.rand.IntN(8); {
		case n < 2:
			r.change(func(ctx context.Context) error { _, err := r.batch.Cancel(ctx); return err })
		case n < 4 && r.queued:
			_, err := r.sys.Caller().Queues().Cancel(r.t.Context(), choreQueue)
			if err != nil && !errors.Is(err, harp.ErrNotFound) { // there is none when nothing of it waits or runs
				r.t.Error("cancel the queue: ", err)
			}
		case n < 6:
			step := 1 + r.rand.IntN(max(len(r.steps), 1))
			if _, err := r.batch.Job(host, step).Cancel(r.t.Context()); err != nil && (step == 1 || harp.FailureOf(err).Code != "conflict") { // one that has not begun cannot be
				r.t.Error("cancel a member: ", err)
			}
		}
	}
}

// change changes the batch, which may have ended.
func (r *batchRun) change(do func(context.Context) error) {
	if err := do(r.t.Context()); err != nil && harp.FailureOf(err).Code != "conflict" {
		r.t.Error("change: ", err)
	}
}

// end waits until the batch has ended, resuming it when failures have paused it.
func (r *batchRun) end() harp.BatchStatus {
	ctx, cancel := context.WithTimeout(r.t.Context(), time.Hour)
	defer cancel()
	for {
		s, err := r.batch.Status(ctx)
		if err != nil {
			r.t.Fatalf("the batch does not end: %v; %v", err, r.unended())
		}
		if s.State.Ended() {
			return s
		}
		if s.State == harp.BatchPaused {
			r.change(r.batch.Resume)
		}
		time.Sleep(5 * time.Second)
	}
}

// unended says what has not ended.
func (r *batchRun) unended() (what []string) {
	caller := r.sys.Embedded()
	defer caller.Close()
	status, err := caller.Batch(r.batch.ID()).Status(r.t.Context())
	what = append(what, fmt.Sprintf("%+v, %v", status, err))
	for j, err := range caller.Jobs(r.t.Context(), harp.JobFilter{Batch: r.batch.ID()}) {
		if err != nil {
			return append(what, err.Error())
		}
		if !j.State.Ended() {
			what = append(what, fmt.Sprintf("%s is %s(%s) since %v, cancel %v, attempts %v", j.Host, j.State, j.Reason, j.Since, j.CancelRequested != nil, j.Attempts))
		}
	}
	return what
}

// check checks what is promised of batches.
func (r *batchRun) check(status harp.BatchStatus) {
	r.checkExecutions()
	r.checkEvents()
	r.checkCounts(status)
	r.checkLog()
}

// jobs are the jobs on a host: one, or those of the steps.
func (r *batchRun) jobs(host string) (ids []string) {
	for step := range max(len(r.steps), 1) {
		ids = append(ids, r.batch.Job(host, step+1).ID())
	}
	return ids
}

// checkExecutions: a host has one member, or one for each step, each attempt of which runs once.
func (r *batchRun) checkExecutions() {
	ran := map[string]int{}
	for _, x := range r.witness.Executions() {
		attempt := fmt.Sprint(x.Job, x.Attempt)
		if ran[attempt]++; ran[attempt] > 1 || x.Attempt > 2 || !slices.Contains(r.jobs(x.Host), x.Job) {
			r.t.Errorf("on %s attempt %d of job %s ran, %d times", x.Host, x.Attempt, x.Job, ran[attempt])
		}
	}
}

// retry makes a batch of those members of another that may run again: it is on their hosts alone, each once, and
// counts as its members say.
func (r *batchRun) retry(was harp.BatchStatus) {
	again, err := r.batch.Retry(r.t.Context(), nil)
	if errors.Is(err, harp.ErrNotFound) { // there is none
		return
	}
	if err != nil {
		r.t.Fatal("retry: ", err)
	}
	first, states := r.batch, map[string]harp.State{}
	for res, err := range first.Results(r.t.Context()) {
		if err != nil {
			r.t.Fatal(err)
		}
		states[res.Host] = res.State
	}
	r.batch = again
	status := r.end()
	counts := r.countHosts(status)
	for j, err := range r.sys.Caller().Jobs(r.t.Context(), harp.JobFilter{Batch: again.ID()}) {
		if err != nil {
			r.t.Fatal(err)
		}
		if j.RetryOf != first.Job(j.Host, max(j.Step, 1)).ID() || states[j.Host] == harp.StateSucceeded || states[j.Host] == harp.StateLost {
			r.t.Errorf("on %s, whose member was %s, job %s is made again", j.Host, states[j.Host], j.RetryOf)
		}
	}
	if status.RetryOf != was.ID || !maps.Equal(counts, status.Counts) {
		r.t.Errorf("the members of the batch that is made again are %v, and it says %+v", counts, status)
	}
}

// checkEvents: no more members than may hold a slot, none of a later wave is started, and none while the
// batch is paused or cancelled.
func (r *batchRun) checkEvents() {
	if len(r.events) < 3 {
		r.t.Errorf("the events are %v", r.events)
	}
	rules := faulthistory.Batch{Hosts: r.hosts, Waves: r.waves, Most: r.most, Stop: r.stop, Pause: r.pause}
	for _, e := range r.events {
		if rule, broken := rules.Note(e); rule != "" {
			r.t.Errorf("%s: %s", rule, broken)
		}
	}
}

// checkCounts: the counts of the batch are what its members say, and nothing is under way.
func (r *batchRun) checkCounts(status harp.BatchStatus) {
	counts := r.countHosts(status)
	members := 0
	for j, err := range r.sys.Caller().Jobs(r.t.Context(), harp.JobFilter{Batch: r.batch.ID()}) {
		if err != nil {
			r.t.Fatal(err)
		}
		members++
		if runs := r.witness.Of(j.ID); j.Started == harp.DidNotRun && len(runs) > 0 || j.Started == harp.DidRun && len(runs) == 0 {
			r.t.Errorf("%s ended as %s, started %s, and ran %d times", j.Host, j.State, j.Started, len(runs))
		}
	}
	if members != len(r.hosts)*max(len(r.steps), 1) || !maps.Equal(counts, status.Counts) {
		r.t.Errorf("%d members are %v, and the batch says %v", members, counts, status.Counts)
	}
}

// countHosts counts the hosts of a batch that has ended by what their members came to. Of a chain it holds the steps of each against the
// rules.
func (r *batchRun) countHosts(status harp.BatchStatus) map[harp.State]int {
	counts := map[harp.State]int{}
	var c faulthistory.Chain
	for j, err := range r.sys.Caller().Jobs(r.t.Context(), harp.JobFilter{Batch: status.ID}) {
		if err != nil {
			r.t.Fatal(err)
		}
		if len(r.steps) == 0 {
			counts[j.State]++
			continue
		}
		s := faulthistory.ChainStep{On: r.steps[len(c.Steps)].On, Job: j}
		for _, x := range r.witness.Of(j.ID) {
			if !x.End.IsZero() { // else it ran on when its agent had crashed
				s.Ran = append(s.Ran, faulthistory.Span{Begin: x.Start.UnixNano(), End: x.End.UnixNano()})
			}
		}
		if c.Steps = append(c.Steps, s); len(c.Steps) < len(r.steps) {
			continue
		}
		c.Over = status.State == harp.BatchCancelled || status.Reason != ""
		result, broken := c.Check()
		for _, what := range broken {
			r.t.Errorf("on %s: %s", j.Host, what)
		}
		counts[c.Steps[result-1].Job.State]++
		r.want[j.Host] = result
		c = faulthistory.Chain{}
	}
	return counts
}

// checkLog: whoever followed was told every end and every record that there is once, in the order of the log.
func (r *batchRun) checkLog() {
	ends, records := map[string]int{}, map[string][]uint64{}
	last := uint64(0)
	for _, rec := range r.followed {
		if rec.Seq < last {
			r.t.Errorf("number %d came after %d", rec.Seq, last)
		}
		if last = rec.Seq; rec.End != nil {
			ends[rec.Host]++
			continue
		}
		records[rec.Job] = append(records[rec.Job], rec.Record.Seq)
	}
	for _, host := range r.hosts {
		for _, job := range r.jobs(host) {
			var want []uint64
			for rec, err := range r.sys.Caller().Job(job).Stream(r.t.Context()) {
				if err != nil {
					r.t.Fatal(err)
				}
				want = append(want, rec.Seq)
			}
			if ends[host] != 1 || !slices.Equal(records[job], want) {
				r.t.Errorf("of %s %d ends and of job %s the records %v were told, want %v", host, ends[host], job, records[job], want)
			}
		}
	}
	n := 0
	for res, err := range r.batch.Results(r.t.Context()) {
		if err != nil {
			r.t.Fatal(err)
		}
		if n++; r.isChain && res.Step != r.want[res.Host] {
			r.t.Errorf("the result of %s is of step %d, want %d", res.Host, res.Step, r.want[res.Host])
		}
	}
	if n != len(r.hosts) {
		r.t.Errorf("%d results", n)
	}
}

// TestLastHostIsAway: a member whose host is away when its turn comes ends by its own limit, though nothing
// else happens.
func TestLastHostIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sys := harptest.New(t, harptest.Options{
			Agents: []string{"web01", "web02"}, Register: doChores(&harptest.Witness{}),
			Dispatcher: dispatcher.Config{OfflineWait: 20 * time.Second},
		})
		sys.StopAgent("web02")
		time.Sleep(2 * time.Minute) // nothing is due any more
		begun := time.Now()
		batch, err := choreProc.Run(t.Context(), sys.Caller().Target("web*"), chore{Takes: 1}, harp.Parallel(1))
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		status, err := batch.Wait(ctx)
		if err != nil || status.Counts[harp.StateSucceeded] != 1 || status.Counts[harp.StateExpired] != 1 {
			t.Errorf("after %v it is %+v, %v", time.Since(begun), status, err)
		}
	})
}
