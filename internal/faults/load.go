//go:build linux

package faults

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/faults/actor"
	"github.com/harpcaller/harp/internal/faults/history"
)

// Load makes calls, as callers do: some wait, some watch, some cancel, some forget.
type Load struct {
	Fleet   *Fleet
	Callers []*harp.Caller
	Hosts   []string
	Seed    uint64
	Rate    int // calls a second, about
	Workers int
	Args    func(*rand.Rand) actor.Args // default: small ones
	Opts    []harp.Option
	Plain   bool // nobody watches or cancels, nothing is in a queue
	Limits  bool // some run into a limit

	calls atomic.Int64
}

// Calls is how many were acknowledged so far.
func (l *Load) Calls() int64 { return l.calls.Load() }

// Run makes calls until ctx ends and every worker is done with its last. What a
// worker is doing then it has a little while for.
func (l *Load) Run(ctx context.Context) {
	if l.Args == nil {
		l.Args = smallArgs
	}
	var workers sync.WaitGroup
	defer workers.Wait()
	for i := range l.Workers {
		w := worker{load: l, number: i, rand: rand.New(rand.NewPCG(l.Seed, uint64(i)))}
		workers.Go(func() { w.callLoop(ctx) })
	}
}

func smallArgs(r *rand.Rand) actor.Args {
	a := actor.Args{Sleep: time.Duration(r.IntN(20)) * time.Millisecond, Records: r.IntN(6)}
	if r.IntN(40) == 0 {
		a.Sleep = time.Duration(r.IntN(2000)) * time.Millisecond
	}
	return a
}

// worker is one who calls.
type worker struct {
	load   *Load
	number int
	rand   *rand.Rand
}

func (w worker) callLoop(ctx context.Context) {
	step := time.Second / time.Duration(w.load.Rate)
	pause := step * time.Duration(w.load.Workers)
	first := time.Now().Add(step * time.Duration(w.number)) // one after the other, so that there is no moment without load
	for next := first; ctx.Err() == nil; next = next.Add(pause) {
		if late := time.Since(next); late > time.Second { // what an outage took is not made up for in one go
			next = time.Now().Add(step * time.Duration(w.number))
		}
		timer := time.NewTimer(time.Until(next))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return
		}
		w.makeCall(ctx)
	}
}

// makeCall makes one call and does what callers do with it.
func (w worker) makeCall(ctx context.Context) {
	l := w.load
	c := history.Call{ID: harp.NewID(), Host: l.Hosts[w.rand.IntN(len(l.Hosts))]}
	args := l.Args(w.rand)
	c.Records, c.Returns = args.Records, args.Returns
	procedure := actor.Work
	if w.rand.IntN(10) == 0 {
		procedure, c.Repeatable = actor.Again, true
	}
	opts := append([]harp.Option{harp.JobID(c.ID), harp.OfflineWait(harp.NoLimit)}, l.Opts...)
	if !l.Plain && w.rand.IntN(5) == 0 {
		n := w.rand.IntN(4)
		c.Queue, c.Concurrency = fmt.Sprintf("q%d", n), 1+n
		opts = append(opts, harp.Queue(map[string]string{"name": c.Queue}), harp.Concurrency(c.Concurrency))
	}
	if l.Limits && w.rand.IntN(30) == 0 {
		args.Sleep = time.Second
		opts = append(opts, harp.MaxExecTime(50*time.Millisecond))
	}
	l.Fleet.History.Invoke(c)
	caller := l.Callers[w.rand.IntN(len(l.Callers))]
	job := w.submitCall(ctx, caller.Host(c.Host), procedure, args, opts, c.ID)
	if job != nil && !l.Plain {
		w.useJob(ctx, job)
	}
}

// patience is how long one request of a worker may take, faults included.
const patience = 30 * time.Second

// submitCall makes the call, again and again under the same id while nobody knows
// whether it has arrived. nil: it was not acknowledged.
func (w worker) submitCall(ctx context.Context, host *harp.Host, procedure string, args actor.Args, opts []harp.Option, id string) *harp.Job {
	call, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer cancel()
	for n := 0; ; n++ {
		job, err := host.Call(call, procedure, args, opts...)
		if err == nil {
			w.load.calls.Add(1)
			w.load.Fleet.History.Change(id, func(c *history.Call) { c.Acked = true })
			return job
		}
		var maybe *harp.CallError
		if n == 0 && harp.RanOf(err) == harp.DidNotRun {
			w.load.Fleet.History.Change(id, func(c *history.Call) { c.Denied = true })
		}
		if !errors.As(err, &maybe) || ctx.Err() != nil || call.Err() != nil {
			return nil
		}
	}
}

// useJob does what callers do with a job.
func (w worker) useJob(ctx context.Context, job *harp.Job) {
	h := w.load.Fleet.History
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	switch w.rand.IntN(10) {
	case 0:
		if live, err := job.Cancel(ctx); err == nil && live {
			h.Change(job.ID(), func(c *history.Call) { c.Cancelled = true })
		}
	case 1:
		watchJob(ctx, h, job)
	case 2:
		followed(ctx, h, job)
	}
}

// watchJob looks at a job again and again until it has ended.
func watchJob(ctx context.Context, h *history.History, job *harp.Job) {
	for {
		s, err := job.Status(ctx)
		if err != nil {
			return
		}
		h.See(job.ID(), s)
		if s.State.Ended() {
			return
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
			return
		}
	}
}

// followed follows a job and notes a record out of order as a state that cannot be.
func followed(ctx context.Context, h *history.History, job *harp.Job) {
	var next uint64
	for r, err := range job.Follow(ctx, harp.Since(0)) {
		if err != nil {
			return
		}
		if r.Seq != next {
			h.Change(job.ID(), func(c *history.Call) { c.Gaps++ })
		}
		next = r.Seq + 1
	}
}

// Settle waits until every call has ended and looks at it: the state, the value
// and the records. What has not ended by then is looked at as it is.
func Settle(ctx context.Context, f *Fleet, caller *harp.Caller) {
	const readers = 32
	work := make(chan *history.Call)
	var reading sync.WaitGroup
	for range readers {
		reading.Go(func() {
			for c := range work {
				final := readFinal(ctx, caller.Job(c.ID))
				f.History.Change(c.ID, func(c *history.Call) { c.Final = final })
			}
		})
	}
	for _, c := range f.History.Calls() {
		work <- c
	}
	close(work)
	reading.Wait()
}

// lookWithin bounds looking at one job that is at rest.
const lookWithin = 20 * time.Second

func readFinal(ctx context.Context, job *harp.Job) *history.Final {
	res, err := job.Wait(ctx)
	looking, cancel := context.WithTimeout(context.WithoutCancel(ctx), lookWithin)
	defer cancel()
	final := &history.Final{}
	if final.Status, final.Err = job.Status(looking); final.Err != nil {
		final.Missing = errors.Is(final.Err, harp.ErrNotFound)
		return final
	}
	if err == nil {
		final.Value = res.Value.String()
	}
	for r, err := range job.Stream(looking) {
		if err != nil {
			final.Err = err
			return final
		}
		final.Records = append(final.Records, r)
	}
	return final
}
