//go:build linux && !race

package faults

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/faults/actor"
	"github.com/harpcaller/harp/internal/faults/history"
)

// T19: the dispatcher and agents are killed while batches go through their hosts, in waves, stop after
// failures, and are paused, resumed and cancelled at random.
func TestKillBatches(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	complain(t, killedBatches(t, f, pick(6, batchHosts(t))))
	outcomes(t, f)
}

// batchHostsEnv says how many hosts batches have in the long form.
const batchHostsEnv = "HARP_FAULTS_HOSTS"

func batchHosts(t *testing.T) int {
	t.Helper()
	given := os.Getenv(batchHostsEnv)
	if given == "" {
		return 12
	}
	n, err := strconv.Atoi(given)
	must(t, err)
	return n
}

// agentProcesses is how many processes the agents of a fleet are in at most.
const agentProcesses = 20

// killedBatches makes batches of so many hosts while their dispatcher and agents are killed, each equally often, and returns
// what was broken.
func killedBatches(t *testing.T, f *Fleet, ofHosts int) (broken []string) {
	t.Helper()
	all, _ := started(t, f, 3, 0)
	hosts := names(ofHosts)
	processes := slices.Collect(slices.Chunk(hosts, (ofHosts+agentProcesses-1)/agentProcesses))
	for _, some := range processes {
		must(t, f.StartAgents(some[0], some[1:]...))
	}
	for _, name := range hosts {
		waitOnline(t, all[0], name)
	}
	p := play(t, all, 900, func(caller *harp.Caller, r *rand.Rand) *batchRun { return playBatch(t, f, caller, hosts, r) })
	killed := killAll(t, f, all[0], pick(3, 50), 1500*time.Millisecond, processes, nil)
	runs := p.finish(nil)
	ends := map[harp.BatchState]int{}
	for _, b := range runs {
		broken = append(broken, b.check()...)
		ends[b.status.State]++
	}
	report.Note(t.Name(), "hosts", ofHosts)
	report.Note(t.Name(), "kills of the dispatcher and of agents", killed)
	report.Note(t.Name(), "batches", len(runs))
	report.Note(t.Name(), "batches ended as", ends)
	t.Logf("%d kills, %d batches of %d hosts ended as %v", killed, len(runs), ofHosts, ends)
	return append(broken, settled(t, f, all[0])...)
}

// players are callers each of which plays one batch after the other.
type players struct {
	stop func()
	done chan struct{} // closed when all have played their last
	made [][]*batchRun
}

// play has callers play batches until finish is called.
func play(t *testing.T, all []*harp.Caller, seed uint64, one func(*harp.Caller, *rand.Rand) *batchRun) *players {
	ctx, cancel := context.WithCancel(t.Context())
	p := &players{stop: cancel, done: make(chan struct{}), made: make([][]*batchRun, len(all))}
	var playing sync.WaitGroup
	for n, caller := range all {
		r := rand.New(rand.NewPCG(report.Seed, seed+uint64(n))) //nolint:gosec // a few callers
		playing.Go(func() {
			for ctx.Err() == nil && !t.Failed() {
				p.made[n] = append(p.made[n], one(caller, r))
			}
		})
	}
	go func() {
		defer close(p.done)
		playing.Wait()
	}()
	return p
}

// finish waits until the batches that are played have ended, and returns all. meanwhile is called again and again, unless it is nil.
func (p *players) finish(meanwhile func()) []*batchRun {
	p.stop()
	for {
		select {
		case <-p.done:
			return slices.Concat(p.made...)
		case <-time.After(50 * time.Millisecond):
			if meanwhile != nil {
				meanwhile()
			}
		}
	}
}

// killAll kills the dispatcher and processes of agents while batches are under way, each so often, and returns how many times in all.
// meanwhile is called again and again, unless it is nil.
func killAll(t *testing.T, f *Fleet, caller *harp.Caller, each int, longest time.Duration, processes [][]string, meanwhile func()) (killed int) {
	t.Helper()
	r := rand.New(rand.NewPCG(report.Seed, 80))
	kills := slices.Repeat([]bool{true, false}, each)
	r.Shuffle(len(kills), func(i, j int) { kills[i], kills[j] = kills[j], kills[i] })
	for _, ofDispatcher := range kills {
		until := time.Now().Add(200*time.Millisecond + time.Duration(r.Int64N(int64(longest-200*time.Millisecond))))
		for time.Now().Before(until) {
			if meanwhile != nil {
				meanwhile()
			}
			time.Sleep(20 * time.Millisecond)
		}
		if ofDispatcher {
			restartDispatcher(t, f, caller)
			continue
		}
		some := processes[r.IntN(len(processes))]
		must(t, f.KillAgent(some[0]))
		must(t, f.StartAgents(some[0], some[1:]...))
	}
	return len(kills)
}

// batchRun is a batch and what is known of it.
type batchRun struct {
	t      *testing.T
	f      *Fleet
	caller *harp.Caller
	rand   *rand.Rand
	hosts  []string
	waves  []int
	most   int         // that run at a time
	steps  []harp.Step // of a chain; empty: it is none
	batch  *harp.Batch

	cancelled bool // a cancel was acknowledged before the batch had ended
	followed  []harp.HostResult
	status    harp.BatchStatus
	broken    []string
}

// batchWithin is how long a batch has to come to its end, on a machine that is busy.
var batchWithin = pick(5*time.Minute, 20*time.Minute)

// playBatch makes a batch and does with it what operators do, until it has ended.
func playBatch(t *testing.T, f *Fleet, caller *harp.Caller, hosts []string, r *rand.Rand) *batchRun {
	t.Helper()
	return playRun(t, f, caller, hosts, r, (*batchRun).submit)
}

// playRun does with what is submitted what operators do, until it has ended.
func playRun(t *testing.T, f *Fleet, caller *harp.Caller, hosts []string, r *rand.Rand, submit func(*batchRun, context.Context)) *batchRun {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), batchWithin)
	defer cancel()
	b := &batchRun{t: t, f: f, caller: caller, rand: r, hosts: hosts, most: 1 + r.IntN(max(4, len(hosts)/3)), waves: []int{len(hosts)}}
	submit(b, ctx)
	b.play(ctx)
	return b
}

// play does with the batch what operators do, until it has ended.
func (b *batchRun) play(ctx context.Context) {
	b.t.Helper()
	var following sync.WaitGroup
	following.Go(func() { b.follow(ctx) })
	if err := b.operate(ctx); err != nil {
		b.t.Errorf("batch %s: %v; it is %+v", b.batch.ID(), err, b.status)
	}
	following.Wait()
}

// submit submits the batch, again and again under the same id while nobody knows whether it has arrived.
func (b *batchRun) submit(ctx context.Context) {
	r := b.rand
	id := harp.NewID()
	args := actor.Args{Records: r.IntN(4), Sleep: time.Duration(r.IntN(300)) * time.Millisecond}
	procedure, repeatable := actor.Work, r.IntN(4) == 0
	if repeatable {
		procedure = actor.Again
	}
	opts := append(b.options(), harp.JobID(id))
	for _, host := range b.hosts {
		b.f.History.Invoke(history.Call{
			ID: harp.MemberID(id, host, 1), Host: host, Records: args.Records, Repeatable: repeatable,
			Queue: "batch " + id, Concurrency: b.most, // no queue of harp's: by the witness no more run at a time
		})
	}
	b.submitAs(ctx, id, func() (*harp.Batch, error) { return b.caller.Target("host*").Call(ctx, procedure, args, opts...) })
}

// options draws how the batch goes through its hosts.
func (b *batchRun) options() []harp.Option {
	r := b.rand
	opts := []harp.Option{harp.Parallel(b.most), harp.OfflineWait(harp.NoLimit)}
	if r.IntN(2) == 0 {
		b.waves = []int{1, (len(b.hosts) + 1) / 2, len(b.hosts)}
		opts = append(opts, harp.Rolling("1", "50%"))
		if r.IntN(3) == 0 {
			opts = append(opts, harp.Approve())
		}
	}
	if r.IntN(2) == 0 {
		opts = append(opts, harp.StopAfter("1"))
		if r.IntN(3) == 0 {
			opts = append(opts, harp.OnStop(harp.CancelBatch))
		}
	}
	if r.IntN(4) == 0 {
		opts = append(opts, harp.ApproveFirst())
	}
	return opts
}

// submitAs asks for the batch again and again while nobody knows whether that has arrived.
func (b *batchRun) submitAs(ctx context.Context, id string, ask func() (*harp.Batch, error)) {
	for ctx.Err() == nil && b.batch == nil {
		batch, err := ask()
		var maybe *harp.CallError
		if err != nil && !errors.As(err, &maybe) {
			b.t.Errorf("batch %s: %v", id, err)
			break
		}
		b.batch = batch
	}
	if b.batch == nil {
		b.batch = b.caller.Batch(id)
		return
	}
	for _, host := range b.hosts {
		for step := range max(len(b.steps), 1) {
			b.f.History.Change(harp.MemberID(id, host, step+1), func(c *history.Call) { c.Acked = true })
		}
	}
}

// operate pauses, resumes and cancels the batch at random, and resumes it when it has stopped by itself,
// until it has ended. Errors: ctx's; why it cannot be looked at.
func (b *batchRun) operate(ctx context.Context) (err error) {
	for {
		if b.status, err = b.batch.Status(ctx); err != nil || b.status.State.Ended() {
			return err
		}
		switch n := b.rand.IntN(60); {
		case n == 0:
			had, err := b.batch.Cancel(ctx)
			b.cancelled = b.cancelled || err == nil && had > 0
		case n < 4:
			_ = b.batch.Pause(ctx, "a look") // it may have ended
		case n == 4:
			_, _ = b.batch.Job(b.hosts[b.rand.IntN(len(b.hosts))], 1+b.rand.IntN(max(len(b.steps), 1))).Cancel(ctx)
		case b.status.State == harp.BatchPaused && n < 20:
			_ = b.batch.Resume(ctx)
		}
		select {
		case <-time.After(max(30*time.Millisecond, time.Duration(len(b.hosts))*time.Millisecond/2)): // those of many hosts take longer
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// follow keeps what is told of ends, from where it was broken off.
func (b *batchRun) follow(ctx context.Context) {
	next := uint64(0)
	for ctx.Err() == nil {
		broken := false
		for r, err := range b.batch.Results(ctx, harp.Since(next)) {
			if broken = err != nil; broken {
				break
			}
			b.followed, next = append(b.followed, r), r.Seq+1
		}
		if !broken {
			return
		}
	}
}

// check holds the batch against the rules that are about batches, and returns what was broken.
func (b *batchRun) check() []string {
	b.t.Helper()
	b.checkMembers()
	b.checkLog()
	b.checkEvents()
	if b.cancelled && b.status.Cancel == nil {
		b.violated("B6", "its cancel was acknowledged, and it ended as %s (%s) without one", b.status.State, b.status.Reason)
	}
	return b.broken
}

func (b *batchRun) violated(rule, format string, args ...any) {
	b.broken = append(b.broken, rule+": batch "+b.batch.ID()+": "+fmt.Sprintf(format, args...))
}

// checkMembers is B1, each host has one member, and B2, the batch counts them as they say themselves.
func (b *batchRun) checkMembers() {
	counts := map[harp.State]int{}
	var hosts []string
	for j, err := range b.caller.Jobs(b.t.Context(), harp.JobFilter{Batch: b.batch.ID()}) {
		must(b.t, err)
		hosts = append(hosts, j.Host)
		counts[j.State]++
	}
	if !slices.Equal(hosts, b.hosts) {
		b.violated("B1", "its members are on %v", hosts)
	}
	if !maps.Equal(counts, b.status.Counts) {
		b.violated("B2", "its members are %v, and it counts %v", counts, b.status.Counts)
	}
}

// checkLog is B3: the log tells each end once, and whoever followed it was told all of them in its order.
func (b *batchRun) checkLog() {
	var log []harp.HostResult
	ends := map[string]int{}
	for r, err := range b.batch.Results(b.t.Context()) {
		must(b.t, err)
		log = append(log, r)
		ends[r.Host]++
	}
	if len(ends) != len(b.hosts) || len(log) != len(b.hosts) {
		b.violated("B3", "its log tells the ends %v", ends)
	}
	same := func(x, y harp.HostResult) bool { return x.Seq == y.Seq && x.Host == y.Host && x.State == y.State }
	if !slices.EqualFunc(log, b.followed, same) {
		b.violated("B3", "who followed it was told %+v, and its log is %+v", b.followed, log)
	}
}

// checkEvents is B4, nothing starts while the batch is halted or before its wave, and B5, never more
// than Parallel hold a slot. Events are in the order of the commits.
func (b *batchRun) checkEvents() {
	rules := history.Batch{Hosts: b.hosts, Waves: b.waves, Most: b.most}
	f := harp.EventFilter{After: harp.EventsFromStart, Batch: b.batch.ID()}
	for more := true; more; {
		page, err := b.caller.EventsPage(b.t.Context(), f, false)
		must(b.t, err)
		for _, e := range page.Events {
			f.After = e.Cursor
			if rule, broken := rules.Note(e); rule != "" {
				b.violated(rule, "%s", broken)
			}
		}
		more = len(page.Events) > 0
	}
}
