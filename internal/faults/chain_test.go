//go:build linux && !race

package faults

import (
	"context"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/faults/actor"
	"github.com/harpcaller/harp/internal/faults/history"
	"github.com/harpcaller/harp/internal/faults/witness"
)

// T20: the dispatcher and agents are killed while chains of three steps go through their hosts, of which one ends its own
// agent, and any may fail. By the witness each step of a host begins once at most, when the one before it has ended, and only if
// it ended as the step wants.
func TestKillChains(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	complain(t, killedChains(t, f))
	outcomes(t, f)
}

// killedChains plays chains while their dispatcher and agents are killed, and returns what was broken.
func killedChains(t *testing.T, f *Fleet) (broken []string) {
	t.Helper()
	all, hosts := started(t, f, pick(2, 3), pick(5, 12))
	deaths := 0
	revives := func() { deaths += revive(t, f, hosts) }
	p := play(t, all, 700, func(caller *harp.Caller, r *rand.Rand) *batchRun {
		return playRun(t, f, caller, hosts, r, (*batchRun).submitChain)
	})
	kills := killAll(t, f, all[0], pick(3, 60), 1200*time.Millisecond, slices.Collect(slices.Chunk(hosts, 1)), revives)
	runs := p.finish(revives)
	for _, b := range runs {
		b.checkEvents()
	}
	broken = settled(t, f, all[0])
	ends := map[harp.BatchState]int{}
	began := 0
	for _, b := range runs {
		began += b.checkChains()
		broken = append(broken, b.broken...)
		ends[b.status.State]++
	}
	if began == 0 || deaths == 0 {
		t.Errorf("the run is void: %d further steps began, and %d agents ended by a step", began, deaths)
	}
	report.Note(t.Name(), "kills of the dispatcher and of agents", kills)
	report.Note(t.Name(), "agents ended by a step", deaths)
	report.Note(t.Name(), "chains", len(runs))
	report.Note(t.Name(), "steps behind the first that began", began)
	report.Note(t.Name(), "chains ended as", ends)
	t.Logf("%d kills, %d agents ended by a step, %d chains ended as %v, %d steps began behind others", kills, deaths, len(runs), ends, began)
	return broken
}

// revive starts the agents anew that are dead, and returns how many.
func revive(t *testing.T, f *Fleet, hosts []string) (n int) {
	t.Helper()
	for _, name := range hosts {
		select {
		case <-f.AgentProcess(name).Done():
			must(t, f.KillAgent(name))
			must(t, f.StartAgent(name))
			n++
		default:
		}
	}
	return n
}

// submitChain submits a chain of three steps.
func (b *batchRun) submitChain(ctx context.Context) {
	r := b.rand
	id := harp.NewID()
	opts := append(b.options(), harp.JobID(id))
	ends := []harp.Ending{"", "", "", harp.OnFailed, harp.OnEnded}
	ending := r.IntN(4)
	for n := range 3 {
		args := actor.Args{Records: r.IntN(3), Sleep: time.Duration(r.IntN(100)) * time.Millisecond}
		s := harp.Step{Procedure: actor.Work}
		for range r.IntN(3) {
			args.Fail = append(args.Fail, b.hosts[r.IntN(len(b.hosts))])
		}
		if n == ending {
			args.Reboot = append(args.Reboot, b.hosts[r.IntN(len(b.hosts))])
			if r.IntN(4) > 0 { // else the step is lost
				s.Procedure = actor.Again
				s.Options = []harp.Option{harp.Retry(harp.RetryPolicy{On: []harp.State{harp.StateLost}, Attempts: 10, Backoff: 10 * time.Millisecond, MaxBackoff: 50 * time.Millisecond})}
			}
		}
		if s.Args = args; n > 0 {
			s.On = ends[r.IntN(len(ends))]
		}
		for _, host := range b.hosts {
			b.f.History.Invoke(history.Call{
				ID: harp.MemberID(id, host, n+1), Host: host, Records: args.Records, Repeatable: s.Procedure == actor.Again,
				Queue: "batch " + id, Concurrency: b.most, // no queue of harp's: by the witness no more run at a time
			})
		}
		b.steps = append(b.steps, s)
	}
	b.submitAs(ctx, id, func() (*harp.Batch, error) { return b.caller.Target("host*").Chain(ctx, b.steps, opts...) })
}

// checkChains holds what the chain did on each host against the rules, its counts and its results against that, and
// returns how many steps began behind others. All has come to rest.
func (b *batchRun) checkChains() (began int) {
	b.t.Helper()
	calls := map[string]*history.Call{}
	for _, c := range b.f.History.Calls() {
		calls[c.ID] = c
	}
	ran := spans(b.f.History)
	counts := map[harp.State]int{}
	want := map[string]int{}
	isOver := b.status.Cancel != nil || b.status.Reason == harp.BatchReasonFailures || b.status.Reason == harp.BatchReasonStopped
	for _, host := range b.hosts {
		c := history.Chain{Over: isOver}
		for n, s := range b.steps {
			job := harp.MemberID(b.batch.ID(), host, n+1)
			final := calls[job].Final
			if final == nil || final.Err != nil || final.Status.Step != n+1 {
				b.violated("C0", "step %d of %s cannot be read", n+1, host)
				return began
			}
			c.Steps = append(c.Steps, history.ChainStep{On: s.On, Job: final.Status, Ran: ran[job]})
			if n > 0 && len(ran[job]) > 0 {
				began++
			}
		}
		result, broken := c.Check()
		for _, text := range broken {
			b.broken = append(b.broken, fmt.Sprintf("%s (chain %s on %s)", text, b.batch.ID(), host))
		}
		counts[c.Steps[result-1].Job.State]++
		want[host] = result
	}
	if !maps.Equal(counts, b.status.Counts) {
		b.violated("B2", "its hosts are %v, and it counts %v", counts, b.status.Counts)
	}
	told := map[string]int{}
	for _, r := range b.followed {
		if _, twice := told[r.Host]; twice {
			b.violated("B3", "who followed it was told twice of %s", r.Host)
		}
		told[r.Host] = r.Step
	}
	if !maps.Equal(told, want) {
		b.violated("B3", "the results are of steps %v, want %v", told, want)
	}
	return began
}

// spans are the executions of each job, as the witness says; what a process did not end itself ended when it was dead.
func spans(h *history.History) map[string][]history.Span {
	type of struct {
		job     string
		attempt int
	}
	ran := map[string][]history.Span{}
	at := map[of]int{}
	for _, l := range h.Witness {
		is := of{l.Job, l.Attempt}
		if l.What == witness.Begin {
			end, isDead := h.Deaths[l.PID]
			if !isDead {
				end = math.MaxInt64
			}
			at[is] = len(ran[l.Job])
			ran[l.Job] = append(ran[l.Job], history.Span{Begin: l.At, End: end})
			continue
		}
		ran[l.Job][at[is]].End = l.At
	}
	return ran
}
