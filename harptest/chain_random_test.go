package harptest_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/agent"
	"github.com/harpcaller/harp/dispatcher"
	"github.com/harpcaller/harp/harptest"
)

// randomChains is hosts that go through chains, while all that may be done to these is done at random.
type randomChains struct {
	*testing.T
	chance  *rand.Rand
	sys     *harptest.System
	hosts   []string
	witness harptest.Witness
	made    []*madeChain
	stopped map[string]bool        // agents
	kills   map[string][]time.Time // of agents
	pauses  map[string][]time.Time // of hosts: from and to, in turn
	history []string

	mu   sync.Mutex
	luck *rand.Rand // guarded by mu: of procedures
}

// madeChain is one of the chains.
type madeChain struct {
	batch     *harp.Batch
	steps     []harp.Step
	cancelled bool // the batch
	stops     bool // after failures
}

func (r *randomChains) note(format string, args ...any) {
	r.history = append(r.history, time.Now().Format("15:04:05.000 ")+fmt.Sprintf(format, args...))
}

func (r *randomChains) fatal(format string, args ...any) {
	r.Helper()
	r.Fatalf("%s\n%s", fmt.Sprintf(format, args...), strings.Join(r.history, "\n"))
}

func (r *randomChains) register(a *agent.Agent) {
	for _, name := range []string{"work", "look"} {
		agent.Handle(a, harp.NewProc[struct{}, string](name), harptest.Watch(&r.witness, func(ctx context.Context, _ struct{}) (string, error) {
			r.mu.Lock()
			takes, fails := time.Duration(r.luck.IntN(4000))*time.Millisecond, r.luck.IntN(4) == 0
			r.mu.Unlock()
			select {
			case <-ctx.Done():
				return "", context.Cause(ctx)
			case <-time.After(takes):
			}
			if fails {
				return "", agent.Errorf("unlucky", nil, "it failed")
			}
			return "", nil
		}))
	}
}

func (r *randomChains) begin() {
	c := r.chance
	m := &madeChain{}
	for n := range 2 + c.IntN(4) {
		s := harp.Step{Procedure: oneOfThese(c, "work", "look")}
		if n > 0 {
			s.On = oneOfThese(c, "", harp.OnSucceeded, harp.OnFailed, harp.OnEnded)
		}
		if c.IntN(3) == 0 {
			s.Options = []harp.Option{harp.Retry(harp.RetryPolicy{On: []harp.State{harp.StateFailed}, Attempts: 2, Backoff: time.Second})}
		}
		m.steps = append(m.steps, s)
	}
	opts := []harp.Option{harp.OfflineWait(time.Hour), harp.Parallel(1 + c.IntN(4))}
	if c.IntN(3) == 0 {
		opts = append(opts, harp.EachStep())
	}
	if m.stops = c.IntN(4) == 0; m.stops {
		opts = append(opts, harp.StopAfter(oneOfThese(c, "1", "2")), harp.OnStop(oneOfThese(c, harp.PauseBatch, harp.CancelBatch)))
	}
	var err error
	if m.batch, err = r.sys.Caller().Target("*").Chain(r.Context(), m.steps, opts...); err != nil {
		r.fatal("chain: %v", err)
	}
	r.made = append(r.made, m)
	r.note("chain %d of %d steps", len(r.made)-1, len(m.steps))
}

func oneOfThese[T any](c *rand.Rand, from ...T) T { return from[c.IntN(len(from))] }

func (r *randomChains) act() {
	ctx, c := r.Context(), r.chance
	host := oneOfThese(c, r.hosts...)
	n := c.IntN(len(r.made))
	m := r.made[n]
	maintenance := r.sys.Caller().Maintenance()
	switch c.IntN(15) {
	case 0, 1:
		r.note("pause %d: %v", n, m.batch.Pause(ctx, ""))
	case 2, 3, 4:
		r.note("resume %d: %v", n, m.batch.Resume(ctx))
	case 5:
		if c.IntN(3) == 0 {
			m.cancelled = true
			_, err := m.batch.Cancel(ctx)
			r.note("cancel %d: %v", n, err)
		}
	case 6:
		step := 1 + c.IntN(len(m.steps))
		_, err := m.batch.Job(host, step).Cancel(ctx)
		r.note("cancel step %d of %d on %s: %v", step, n, host, err)
	case 7, 8:
		r.note("crash")
		r.sys.CrashDispatcher()
		time.Sleep(time.Duration(c.IntN(8000)) * time.Millisecond)
		r.sys.StartDispatcher()
	case 9:
		if _, err := r.sys.Caller().Hosts().Pause(ctx, host, "", time.Time{}); err != nil {
			r.fatal("pause: %v", err)
		}
		if len(r.pauses[host])%2 == 0 {
			r.pauses[host] = append(r.pauses[host], time.Now())
		}
		r.note("pause %s", host)
	case 10:
		r.unpause(host)
	case 11:
		w := harp.Window{Name: "w", Target: host, From: time.Now(), To: time.Now().Add(10 * time.Second)}
		r.note("window of %s: %v", host, maintenance.Put(ctx, w))
	case 12:
		r.note("no window: %v", maintenance.Delete(ctx, "w"))
	case 13:
		if !r.stopped[host] {
			r.note("agent of %s is killed", host)
			r.stopped[host], r.kills[host] = true, append(r.kills[host], time.Now())
			r.sys.CrashAgent(host)
		}
	default:
		r.start(host)
	}
}

func (r *randomChains) unpause(host string) {
	if len(r.pauses[host])%2 == 1 {
		r.pauses[host] = append(r.pauses[host], time.Now())
	}
	if _, err := r.sys.Caller().Hosts().Unpause(r.Context(), host); err != nil {
		r.fatal("unpause: %v", err)
	}
	r.note("unpause %s", host)
}

func (r *randomChains) start(host string) {
	if r.stopped[host] {
		r.stopped[host] = false
		r.sys.StartAgent(host)
		r.note("agent of %s", host)
	}
}

// end lets all go on until the chains are over.
func (r *randomChains) end() {
	for _, host := range r.hosts {
		r.start(host)
		r.unpause(host)
	}
	for range 20 {
		isOver := true
		for n, m := range r.made {
			s, err := m.batch.Status(r.Context())
			if err != nil {
				r.fatal("batch %d: %v", n, err)
			}
			if isOver = isOver && s.State.Ended(); s.Pause != nil {
				_ = m.batch.Resume(r.Context())
			}
		}
		if isOver {
			return
		}
		time.Sleep(10 * time.Minute)
	}
	r.fatal("chains do not end")
}

// check compares what harp says of a chain with what ran.
func (r *randomChains) check(n int, runs map[string][]harptest.Execution) {
	m := r.made[n]
	status, err := m.batch.Status(r.Context())
	if err != nil {
		r.fatal("batch %d: %v", n, err)
	}
	isStopped := m.cancelled || status.State == harp.BatchCancelled || status.Reason != ""
	counts, results := map[harp.State]int{}, map[string]harp.State{}
	for res, err := range m.batch.Results(r.Context()) {
		if err != nil {
			r.fatal("results of %d: %v", n, err)
		}
		if _, again := results[res.Host]; again {
			r.fatal("batch %d has two results of %s", n, res.Host)
		}
		results[res.Host] = res.State
	}
	for _, host := range r.hosts {
		var steps []harp.JobStatus
		for step := range m.steps {
			s, err := m.batch.Job(host, step+1).Status(r.Context())
			if err != nil {
				r.fatal("step %d of %d on %s: %v", step+1, n, host, err)
			}
			steps = append(steps, s)
		}
		decides, last, ended := -1, 0, time.Time{}
		isEarly := steps[0].State == harp.StateCancelled && steps[0].Started == harp.DidNotRun // perhaps before its turn
		for step, s := range steps {
			isOut := s.State == harp.StateCancelled && s.Reason == harp.ReasonChain
			fits := step == 0 || m.steps[step].On.FitsJob(steps[last].State)
			ran := runs[s.ID]
			switch {
			case !s.State.Ended():
				r.fatal("step %d of %d on %s is %s, and its batch %s", step+1, n, host, s.State, status.State)
			case isOut && (len(ran) > 0 || s.Started != harp.DidNotRun):
				r.fatal("step %d of %d on %s was left out, and ran: %+v", step+1, n, host, ran)
			case isOut && fits && !isStopped && !isEarly:
				r.fatal("step %d of %d on %s was left out, though it was to follow %s", step+1, n, host, steps[last].State)
			case !isOut && !fits:
				r.fatal("step %d of %d on %s is %s(%s), behind one that is %s", step+1, n, host, s.State, s.Reason, steps[last].State)
			case s.Started == harp.DidNotRun && len(ran) > 0, s.State == harp.StateSucceeded && len(ran) == 0:
				r.fatal("step %d of %d on %s is %s(%s), started %s, and ran %d times", step+1, n, host, s.State, s.Reason, s.Started, len(ran))
			}
			for i, x := range ran {
				if x.Start.Before(ended) || i > 0 && x.Attempt == ran[i-1].Attempt {
					r.fatal("attempt %d of step %d of %d on %s began at %v, another one ended at %v", x.Attempt, step+1, n, host, x.Start, ended)
				}
				for p := 0; p < len(r.pauses[host]); p += 2 {
					if x.Start.After(r.pauses[host][p]) && (p+1 == len(r.pauses[host]) || x.Start.Before(r.pauses[host][p+1])) {
						r.fatal("step %d of %d began on %s at %v, which was paused", step+1, n, host, x.Start)
					}
				}
				ended = x.End
				for _, at := range r.kills[host] { // a function goes on in a test, which ends with its agent in truth
					if at.After(x.Start) && (ended.IsZero() || at.Before(ended)) {
						ended = at
					}
				}
			}
			if isOut {
				continue
			}
			last = step
			if decides < 0 && s.State != harp.StateSucceeded {
				decides = step
			}
		}
		if decides < 0 {
			decides = last
		}
		counts[steps[decides].State]++
		if results[host] != steps[decides].State {
			r.fatal("batch %d has the result %s of %s, whose step %d is %s", n, results[host], host, decides+1, steps[decides].State)
		}
	}
	for state, count := range counts {
		if status.Counts[state] != count {
			r.fatal("batch %d counts %v, its hosts %v", n, status.Counts, counts)
		}
	}
}

// TestRandomChains: whatever is done to chains, their hosts, windows and the dispatcher, each step begins as it is to once the one before it has ended,
// or is left out, none starts where its host is paused, and each host has the result that its steps have.
func TestRandomChains(t *testing.T) {
	for seed := range uint64(10) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := &randomChains{
					T: t, chance: rand.New(rand.NewPCG(seed, 1)), luck: rand.New(rand.NewPCG(seed, 2)), hosts: []string{"web0", "web1", "web2"},
					stopped: map[string]bool{}, kills: map[string][]time.Time{}, pauses: map[string][]time.Time{},
				}
				r.sys = harptest.New(t, harptest.Options{
					Agents: r.hosts, DiskTime: time.Millisecond, Register: r.register, Dispatcher: dispatcher.Config{Heartbeat: time.Second, LostAfter: time.Minute},
				})
				for range 3 {
					r.begin()
				}
				for i := range 60 {
					time.Sleep(time.Duration(r.chance.IntN(1500)) * time.Millisecond)
					if r.act(); i%20 == 19 {
						r.begin()
					}
				}
				r.end()
				runs := map[string][]harptest.Execution{}
				for _, x := range r.witness.Executions() {
					runs[x.Job] = append(runs[x.Job], x)
				}
				for _, of := range runs {
					slices.SortStableFunc(of, func(a, b harptest.Execution) int { return a.Start.Compare(b.Start) })
				}
				for n := range r.made {
					r.check(n, runs)
				}
			})
		})
	}
}
