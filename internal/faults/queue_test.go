//go:build linux && !race

package faults

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/faults/actor"
	"github.com/harpcaller/harp/internal/faults/history"
)

// T18: very many wait, in one queue and in many, and are cancelled at random.
func TestQueuePressure(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	must(t, f.StartDispatcher())
	all := callers(t, f, 3)
	startAgents(t, f, all[0], "host00")
	p := &pressure{t: t, f: f, callers: all, queues: pick(100, 10_000)}
	begun := time.Now()
	submitting := p.submit(pick(3000, 200_000))
	report.Note(t.Name(), "submissions", submitting.String())
	broken := settled(t, f, all[0])
	complain(t, broken)
	report.Note(t.Name(), "jobs/s", int(float64(f.History.Acked())/time.Since(begun).Seconds()))
	outcomes(t, f)
}

// pressure is calls into queues.
type pressure struct {
	t       *testing.T
	f       *Fleet
	callers []*harp.Caller
	queues  int

	mu    sync.Mutex // guards times
	times Times
}

// submit makes so many calls, from several callers at once, and returns how long
// each took.
func (p *pressure) submit(calls int) Times {
	const workers = 32
	var working sync.WaitGroup
	for w := range workers {
		r := rand.New(rand.NewPCG(report.Seed, uint64(1000+w)))
		working.Go(func() {
			for range calls / workers {
				p.call(r)
			}
		})
	}
	working.Wait()
	return p.times
}

// call puts a job into the one queue or into one of the many, and cancels some.
func (p *pressure) call(r *rand.Rand) {
	c := history.Call{ID: harp.NewID(), Host: "host00", Queue: "one", Concurrency: 8}
	if r.IntN(2) == 0 {
		n := r.IntN(p.queues)
		c.Queue, c.Concurrency = fmt.Sprintf("q%d", n), 1+n%8
	}
	p.f.History.Invoke(c)
	caller := p.callers[r.IntN(len(p.callers))]
	name := map[string]string{"name": c.Queue}
	begun := time.Now()
	job, err := caller.Host(c.Host).Call(p.t.Context(), actor.Work, actor.Args{}, harp.JobID(c.ID),
		harp.Queue(name), harp.Concurrency(c.Concurrency), harp.OfflineWait(harp.NoLimit))
	if err != nil {
		p.t.Error(err)
		return
	}
	p.took(time.Since(begun))
	p.f.History.Change(c.ID, func(c *history.Call) { c.Acked = true })
	switch r.IntN(20) {
	case 0:
		if live, err := job.Cancel(p.t.Context()); err == nil && live {
			p.f.History.Change(c.ID, func(c *history.Call) { c.Cancelled = true })
		}
	case 1:
		if c.Queue != "one" {
			_, _ = caller.Queues().Cancel(p.t.Context(), name) // it may be gone already
		}
	}
}

func (p *pressure) took(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.times = append(p.times, d)
}
