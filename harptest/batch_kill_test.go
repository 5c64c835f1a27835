package harptest_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
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
	"github.com/harpcaller/harp/internal/needs"
	"github.com/harpcaller/harp/store"
)

// killer kills a dispatcher before one of the commits of its store, or behind one before anybody knows, and starts it anew, again and again.
type killer struct {
	sys *harptest.System

	mu     sync.Mutex
	rand   *rand.Rand // guarded by mu
	after  int        // guarded by mu: so many commits comes the next; below 0: none does
	behind bool       // guarded by mu
	kills  int        // guarded by mu
	over   bool       // guarded by mu: there are no more
	done   chan struct{}
}

// arm has the next kill come in a while.
func (k *killer) arm() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.over {
		close(k.done)
		return
	}
	k.after, k.behind = k.rand.IntN(25), k.rand.IntN(2) == 0
}

// hurry has the next kill come within so many commits.
func (k *killer) hurry(most int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.after > 0 {
		k.after = k.rand.IntN(min(k.after, most))
	}
}

// disarm returns when no kill is under way, and none comes.
func (k *killer) disarm() {
	k.mu.Lock()
	k.over = true
	isKilling := k.after < 0
	k.after = -1
	k.mu.Unlock()
	if isKilling {
		<-k.done
	}
}

// isDue counts a commit.
func (k *killer) isDue() (is, behind bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.after--; k.after == -1 {
		k.kills++
		return true, k.behind
	}
	k.after = max(k.after, -1)
	return false, false
}

// around does what commits.
func (k *killer) around(do func()) {
	is, behind := k.isDue()
	if !is || behind {
		do()
	}
	if !is {
		return
	}
	k.sys.CrashDispatcher()
	time.Sleep(time.Second)
	k.sys.StartDispatcher()
	k.arm()
	if !behind {
		do() // the disk was taken away
	}
}

// killedStore is a store whose dispatcher is killed.
type killedStore struct {
	store.Store
	*killer
}

func (s killedStore) SubmitBatch(ctx context.Context, in store.BatchSubmission, now time.Time) (out store.BatchSubmitted, err error) {
	s.around(func() { out, err = s.Store.SubmitBatch(ctx, in, now) })
	return out, err
}

func (s killedStore) ChangeBatch(ctx context.Context, id string, e store.BatchEvent, op store.Operation) (out store.BatchChanged, err error) {
	s.around(func() { out, err = s.Store.ChangeBatch(ctx, id, e, op) })
	return out, err
}

func (s killedStore) Claim(ctx context.Context, hosts []string, n int, now time.Time) (out []*store.Job, err error) {
	s.around(func() { out, err = s.Store.Claim(ctx, hosts, n, now) })
	return out, err
}

func (s killedStore) Apply(ctx context.Context, ts ...store.Transition) (out []store.Change, err error) {
	s.around(func() { out, err = s.Store.Apply(ctx, ts...) })
	return out, err
}

func (s killedStore) Append(ctx context.Context, a store.Append) (out *store.Job, err error) {
	s.around(func() { out, err = s.Store.Append(ctx, a) })
	return out, err
}

func (s killedStore) Advance(ctx context.Context, now time.Time) (out store.Advanced, err error) {
	s.around(func() { out, err = s.Store.Advance(ctx, now) })
	return out, err
}

func (s killedStore) ChangeDocuments(ctx context.Context, c store.DocumentChanges) (out int, err error) {
	s.around(func() { out, err = s.Store.ChangeDocuments(ctx, c) })
	return out, err
}

// checkProc is a check: it finds something to change on hosts on which chore would fail.
var checkProc = harp.NewProc[chore, map[string]bool]("check")

// TestBatchesKilledBetweenCommits plays batches with the options and changes that TestBatchChaos does without, while the dispatcher is
// killed between commits. What a seed plans is always the same.
func TestBatchesKilledBetweenCommits(t *testing.T) {
	seeds := *seedsFlag
	switch {
	case seeds > 0:
	case needs.RaceDetector, testing.Short():
		seeds = 6
	default:
		seeds = 20
	}
	ends, kills := map[harp.BatchState]int{}, 0
	for seed := *seedFlag; seed < *seedFlag+seeds; seed++ {
		for _, isChain := range []bool{false, true} {
			t.Run(fmt.Sprintf("chain=%v/seed=%d", isChain, seed), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					state, n := playKilled(t, seed, isChain)
					ends[state]++
					kills += n
				})
			})
		}
	}
	t.Logf("after %d kills they ended as %v", kills, ends)
}

// killedRun is a batch whose dispatcher is killed.
type killedRun struct {
	*batchRun
	killer  *killer
	isCheck bool
	said    harp.BatchState // what was acknowledged last: that it is paused, or runs; "": nothing
	stopped bool            // a cancel was acknowledged before it had ended
}

func playKilled(t *testing.T, seed uint64, isChain bool) (harp.BatchState, int) {
	r := &killedRun{batchRun: &batchRun{t: t, isChain: isChain, id: harp.NewID(), witness: &harptest.Witness{}, want: map[string]int{}, rand: rand.New(rand.NewPCG(seed, 17))}} //nolint:gosec // chance that can be repeated
	r.killer = &killer{after: -1, done: make(chan struct{}), rand: rand.New(rand.NewPCG(seed, 18))}                                                                             //nolint:gosec // as above
	for n := range 12 {
		r.hosts = append(r.hosts, fmt.Sprintf("web%02d", n))
	}
	options := harptest.Options{
		Agents: r.hosts, Seed: seed, Logger: slog.New(slog.DiscardHandler), Dispatcher: dispatcher.Config{Heartbeat: time.Second, OfflineWait: 20 * time.Second},
		Register: func(a *agent.Agent) {
			doChores(r.witness)(a)
			agent.Handle(a, checkProc, harptest.Watch(r.witness, func(ctx context.Context, in chore) (map[string]bool, error) {
				info, _ := agent.FromContext(ctx)
				return map[string]bool{"changed": slices.Contains(in.Fail, info.Host)}, nil
			}), agent.DryRun())
		},
	}
	r.sys = harptest.New(t, options.OnStore(func(st store.Store) store.Store { return killedStore{st, r.killer} }))
	r.killer.sys = r.sys
	gone := r.hosts[r.rand.IntN(len(r.hosts))]
	r.sys.StopAgent(gone) // for good: it must not keep the batch from ending
	for isOnline := true; isOnline; {
		h, err := r.sys.Caller().Hosts().Get(t.Context(), gone)
		if err != nil {
			t.Fatal(err)
		}
		isOnline = h.Online
		time.Sleep(time.Millisecond)
	}
	if err := r.sys.Caller().Groups().Put(t.Context(), "web", "web*"); err != nil {
		t.Fatal(err)
	}
	r.killer.arm()
	r.submitWide()
	r.follow()
	for range 6 + r.rand.IntN(8) {
		time.Sleep(time.Duration(r.rand.IntN(800)) * time.Millisecond)
		r.checkSaid()
		r.makeChange(gone)
	}
	r.killer.disarm()
	r.again("unpause", func(ctx context.Context) error { _, err := r.sys.Caller().Hosts().Unpause(ctx, "web*"); return err })
	status := r.end()
	r.following.Wait()
	r.checkExecutions()
	r.checkEvents()
	if isChain {
		r.countHosts(status)
	}
	r.checkLog()
	r.checkResults(status)
	if r.stopped && status.Cancel == nil {
		t.Errorf("its cancel was acknowledged, and it ended as %s (%s) without one", status.State, status.Reason)
	}
	return status.State, r.killer.kills
}

// again does something until it is known to be done, as a caller does that gets no answer.
func (r *killedRun) again(what string, do func(context.Context) error) {
	for range 100 {
		err := do(r.t.Context())
		switch code := harp.FailureOf(err).Code; {
		case err == nil, code == "conflict" || code == "not_found" || code == "pruned":
			return
		case !errors.Is(err, harp.ErrUnavailable) && !errors.Is(err, harp.ErrClosed):
			r.t.Errorf("%s: %v", what, err)
			return
		}
		time.Sleep(500 * time.Millisecond)
	}
	r.t.Errorf("%s is never answered", what)
}

// submitWide submits a batch with many options.
func (r *killedRun) submitWide() {
	chance := func(n int) bool { return r.rand.IntN(n) == 0 }
	in := r.drawChore()
	r.most = 1 + r.rand.IntN(6)
	opts := []harp.Option{harp.Parallel(r.most), harp.JobID(r.id)}
	var o harp.BatchOptions
	if chance(2) {
		o.Rolling = []string{"2", "50%"}
		opts = append(opts, harp.Rolling(o.Rolling...))
		switch r.rand.IntN(3) {
		case 0:
			opts = append(opts, harp.Approve())
		case 1:
			r.pause = 2 * time.Second
			opts = append(opts, harp.WavePause(r.pause))
		}
	}
	stops := chance(3)
	if stops {
		in.Fail = append(in.Fail, r.hosts[:4]...)
		opts = append(opts, harp.StopAfter("2"), harp.OnStop([]harp.StopPolicy{harp.PauseBatch, harp.CancelBatch}[r.rand.IntN(2)]))
	}
	if chance(3) {
		opts = append(opts, harp.Rate(3, time.Second))
	}
	if chance(3) {
		opts = append(opts, harp.Shuffle())
	}
	if chance(3) {
		opts = append(opts, harp.Subset("75%"))
	}
	if chance(4) {
		opts = append(opts, harp.Probe())
	}
	if chance(4) {
		opts = append(opts, harp.ApproveFirst())
	}
	if r.queued = chance(3); r.queued {
		opts = append(opts, harp.Queue(choreQueue))
		if chance(2) {
			opts = append(opts, harp.QueuePerHost())
			r.queued = false // there is none of that name
		}
	}
	if stops || chance(2) { // and some wait for another attempt as it stops
		opts = append(opts, harp.Retry(harp.RetryPolicy{On: []harp.State{harp.StateFailed}, Attempts: 2, Backoff: 5 * time.Second}))
	}
	procedure := "chore"
	switch {
	case r.isChain:
		if chance(2) {
			opts = append(opts, harp.EachStep())
		}
		ends := []harp.Ending{"", "", harp.OnFailed, harp.OnEnded}
		r.steps = []harp.Step{{Procedure: "chore", Args: in}}
		for range 2 {
			r.steps = append(r.steps, harp.Step{Procedure: "chore", Args: r.drawChore(), On: ends[r.rand.IntN(len(ends))]})
		}
	case chance(3):
		r.isCheck, procedure = true, "check"
		opts = append(opts, harp.DryRun(), harp.Drift("base"))
	}
	if !r.isChain && chance(3) {
		opts = append(opts, harp.WhenOffline(harp.SkipHost), harp.WhenHeld(harp.SkipHost))
	} else if stops && !r.isChain { // by the events a host that was left out has failed, and a step
		r.stop = 2
	}
	target := r.sys.Caller().Target("@web")
	r.batch = r.sys.Caller().Batch(r.id)
	r.again("submit", func(ctx context.Context) (err error) {
		if r.isChain {
			_, err = target.Chain(ctx, r.steps, opts...)
		} else {
			_, err = target.Call(ctx, procedure, in, opts...)
		}
		return err
	})
	r.hosts = nil
	r.again("list", func(ctx context.Context) error {
		r.hosts = nil
		for j, err := range r.sys.Caller().Jobs(ctx, harp.JobFilter{Batch: r.id}) {
			if err != nil {
				return err
			}
			if !slices.Contains(r.hosts, j.Host) {
				r.hosts = append(r.hosts, j.Host)
			}
		}
		return nil
	})
	var err error
	if r.waves, err = o.Waves(len(r.hosts)); err != nil {
		r.t.Fatal(err)
	}
}

// makeChange lets something happen, to the batch or to what it depends on.
func (r *killedRun) makeChange(gone string) {
	caller := r.sys.Caller()
	host := r.hosts[r.rand.IntN(len(r.hosts))]
	for host == gone {
		host = r.hosts[r.rand.IntN(len(r.hosts))]
	}
	some := time.Duration(r.rand.IntN(5000)) * time.Millisecond
	what := r.rand.IntN(11)
	if r.rand.IntN(2) == 0 { // what was changed just now is what is forgotten most easily
		r.killer.hurry(map[bool]int{true: 2, false: 4}[what >= 2 && what <= 5])
	}
	switch what {
	case 0:
		r.sys.Cut(host)
		time.Sleep(some)
		r.sys.Heal(host)
	case 1:
		r.sys.CrashAgent(host)
		time.Sleep(some)
		r.sys.StartAgent(host)
	case 2, 3:
		r.again("pause", func(ctx context.Context) error { return r.batch.Pause(ctx, "chaos") })
		r.said = harp.BatchPaused
		time.Sleep(some)
		r.checkSaid()
		r.resume()
	case 4:
		r.resume()
	case 5:
		if r.rand.IntN(3) > 0 {
			return
		}
		r.again("cancel", func(ctx context.Context) error {
			n, err := r.batch.Cancel(ctx)
			r.stopped = r.stopped || err == nil && n > 0
			return err
		})
	case 6:
		r.again("cancel a member", func(ctx context.Context) error { _, err := r.batch.Job(host).Cancel(ctx); return err })
	case 7:
		if r.queued {
			r.again("cancel the queue", func(ctx context.Context) error { _, err := caller.Queues().Cancel(ctx, choreQueue); return err })
		}
	case 8:
		r.again("change the group", func(ctx context.Context) error {
			return caller.Groups().Put(ctx, "web", []string{"web01", "web*", "web0[0-4]"}[r.rand.IntN(3)])
		})
	case 9:
		until := time.Now().Add(time.Minute + some) // behind all that is asked again
		r.again("pause a host", func(ctx context.Context) error {
			_, err := caller.Hosts().Pause(ctx, host, "chaos", until)
			return err
		})
	case 10:
		if !r.isChain { // one that has begun would be broken off
			r.again("remove a host", func(ctx context.Context) error { _, err := caller.Hosts().Remove(ctx, gone); return err })
		}
	}
}

// resume resumes the batch.
func (r *killedRun) resume() {
	r.again("resume", r.batch.Resume)
	r.said = harp.BatchRunning
}

// checkSaid: what was acknowledged of the batch is so, whatever was killed since.
func (r *killedRun) checkSaid() {
	var s harp.BatchStatus
	r.again("status", func(ctx context.Context) (err error) { s, err = r.batch.Status(ctx); return err })
	isOver := s.State.Ended() || s.State == harp.BatchCancelling
	isPaused := s.State == harp.BatchPaused && s.Reason == harp.BatchReasonOperator
	if r.stopped && !isOver || r.said == harp.BatchPaused && s.State == harp.BatchRunning || r.said == harp.BatchRunning && isPaused {
		r.t.Errorf("it was acknowledged to be %s, its cancel: %v, and it is %s (%s)", r.said, r.stopped, s.State, s.Reason)
	}
}

// checkResults: each host has one result, which is what its member says, the batch counts them, and each mark is what its check found.
func (r *killedRun) checkResults(status harp.BatchStatus) {
	counts, skipped := map[harp.State]int{}, 0
	marks := map[string]harp.DriftMark{}
	for s, err := range r.sys.Caller().Hosts().Drift(r.t.Context(), "", "base") {
		if err != nil {
			r.t.Fatal(err)
		}
		marks[s.Host] = s.Mark
	}
	for res, err := range r.batch.Results(r.t.Context()) {
		if err != nil {
			r.t.Fatal(err)
		}
		j, err := r.sys.Caller().Job(res.Job).Status(r.t.Context())
		if err != nil || j.State != res.State || j.Host != res.Host {
			r.t.Errorf("the result of %s is %s, and its job is %s on %s, %v", res.Host, res.State, j.State, j.Host, err)
		}
		if res.Skipped {
			skipped++
		} else {
			counts[res.State]++
		}
		if !r.isCheck {
			continue
		}
		if want := markOf(r.t, res, j); marks[res.Host] != want {
			r.t.Errorf("%s is %q, and its check, which is %s, started %s, says %q", res.Host, marks[res.Host], res.State, j.Started, want)
		}
	}
	for _, n := range status.Skipped {
		skipped -= n
	}
	if fmt.Sprint(counts) != fmt.Sprint(status.Counts) || skipped != 0 {
		r.t.Errorf("its results are %v, and it says %v and %v skipped", counts, status.Counts, status.Skipped)
	}
}

// markOf is the mark that a check gives its host.
func markOf(t *testing.T, res harp.HostResult, j harp.JobStatus) harp.DriftMark {
	switch {
	case j.Started == harp.DidNotRun || res.State == harp.StateLost && j.Reason == harp.LostHostRemoved:
		return ""
	case res.State != harp.StateSucceeded:
		return harp.DriftUnknown
	}
	var found map[string]bool
	if err := res.Value.Decode(&found); err != nil {
		t.Error(err)
	}
	if found["changed"] {
		return harp.DriftDirty
	}
	return harp.DriftClean
}
