package harp

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/bench/internal/lab"
	"github.com/harpcaller/harp/bench/internal/measure"
)

// fleet is a dispatcher and many agents, in two processes, and callers.
type fleet struct {
	l          *lab.Lab
	dir        string
	addr       string
	dispatcher *lab.Child
	agents     *lab.Child
	callers    []*harp.Caller
}

// agentsPerCaller keeps the answers that a caller waits for below what it may.
const agentsPerCaller = 2500

func newFleet(ctx context.Context, l *lab.Lab) (*fleet, error) {
	dir, err := l.Fresh("fleet")
	if err != nil {
		return nil, err
	}
	f := &fleet{l: l, dir: dir}
	return f, f.startDispatcher(ctx)
}

// startDispatcher starts it where the last one was, if there was one.
func (f *fleet) startDispatcher(ctx context.Context) (err error) {
	var said dispatcherSaid
	arg := dispatcherArg{Dir: f.dir + "/store", Addr: f.addr}
	if f.dispatcher, err = f.l.Start(ctx, DispatcherRole, arg, &said); err != nil {
		return err
	}
	f.addr = said.Addr
	return nil
}

// startAgents starts agents and waits until all are online.
func (f *fleet) startAgents(ctx context.Context, n int) (err error) {
	if f.agents, err = f.l.Start(ctx, AgentsRole, agentsArg{Connect: f.addr, Count: n}, nil); err != nil {
		return err
	}
	for range (n + agentsPerCaller - 1) / agentsPerCaller {
		c, err := f.dial(ctx)
		if err != nil {
			return err
		}
		f.callers = append(f.callers, c)
	}
	return f.waitAll(ctx, n)
}

// dial connects a caller. While all agents come at once, from one address, it may be
// refused like them.
func (f *fleet) dial(ctx context.Context) (*harp.Caller, error) {
	for {
		c, err := dial(ctx, f.l, f.addr)
		if !errors.Is(err, harp.ErrUnavailable) {
			return c, err
		}
		if err := lab.Pause(ctx, lookAgain/5); err != nil {
			return nil, err
		}
	}
}

// lookAgain is the pause between two looks at all hosts, which are work, too.
const lookAgain = 500 * time.Millisecond

func (f *fleet) waitAll(ctx context.Context, n int) error {
	for {
		online := 0
		for h, err := range f.callers[0].Hosts().List(ctx, "") {
			if err != nil && !errors.Is(err, harp.ErrUnavailable) {
				return err
			}
			if err == nil && h.Online {
				online++
			}
		}
		if online == n {
			return nil
		}
		if err := lab.Pause(ctx, lookAgain); err != nil {
			return err
		}
	}
}

func (f *fleet) Close() error {
	var errs []error
	for _, c := range f.callers {
		errs = append(errs, c.Close())
	}
	f.callers = nil
	if f.agents != nil {
		errs = append(errs, f.agents.Close())
		f.agents = nil
	}
	if f.dispatcher != nil {
		errs = append(errs, f.dispatcher.Close())
	}
	return errors.Join(errs...)
}

// Idle has agents that do nothing.
func Idle() measure.Subject {
	return measure.Subject{
		Name: "harp", Note: "real agents in one process, journals in memory, a heartbeat of each every 90 to 100 s and of the dispatcher to each, observed for 100 s",
		Setup: func(ctx context.Context, l *lab.Lab) (measure.Rig, error) {
			f, err := newFleet(ctx, l)
			if err != nil {
				return nil, err
			}
			return measure.NewRig(f.idle, f.Close), nil
		},
	}
}

// heartbeats is the longest time between two of an agent, where there are 10,000; they come
// up to a tenth earlier. That of fewer agents, 10 s at least, is shorter.
const heartbeats = 100 * time.Second

func (f *fleet) idle(ctx context.Context, p measure.Point) (measure.Sample, error) {
	return measure.Idle(ctx, f.l, f.dispatcher, p.Work, heartbeats, func() error { return f.startAgents(ctx, p.Work) })
}

// Restart kills the dispatcher of agents that do nothing, and starts it again.
func Restart() measure.Subject {
	return measure.Subject{
		Name: "harp", Note: "real agents in one process; meanwhile a caller asks about a host a hundred times a second",
		Setup: func(ctx context.Context, l *lab.Lab) (measure.Rig, error) {
			f, err := newFleet(ctx, l)
			if err != nil {
				return nil, err
			}
			return measure.NewRig(func(ctx context.Context, p measure.Point) (measure.Sample, error) {
				if f.agents == nil {
					if err := f.startAgents(ctx, p.Work); err != nil {
						return nil, err
					}
				}
				return f.restart(ctx, p.Work)
			}, f.Close), nil
		},
	}
}

// restart measures how long all take to come back, and what a caller notices of it.
func (f *fleet) restart(ctx context.Context, n int) (measure.Sample, error) {
	f.dispatcher.Kill()
	begin := time.Now()
	if err := f.startDispatcher(ctx); err != nil {
		return nil, err
	}
	c, err := f.dial(ctx)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	asking, stop := context.WithCancel(ctx)
	var took []float64
	var wg sync.WaitGroup
	wg.Go(func() { took = askOften(asking, c) })
	err = f.waitAll(ctx, n)
	back := time.Since(begin)
	stop()
	wg.Wait()
	return measure.Sample{
		measure.Back.Name:  back.Seconds(),
		measure.Asked.Name: measure.Latencies(took)["p99"],
	}, err
}

// askOften asks about a host a hundred times a second, and returns how many
// milliseconds that took.
func askOften(ctx context.Context, c *harp.Caller) (took []float64) {
	every := time.NewTicker(10 * time.Millisecond)
	defer every.Stop()
	for ctx.Err() == nil {
		begin := time.Now()
		_, err := c.Hosts().Get(ctx, host(0))
		if err == nil || errors.Is(err, harp.ErrNotFound) {
			took = append(took, float64(time.Since(begin))/float64(time.Millisecond))
		}
		select {
		case <-every.C:
		case <-ctx.Done():
		}
	}
	return took
}

// FanOut submits one batch to many agents.
func FanOut() measure.Subject {
	return fanOut("harp", "a batch: one submission, a durable job for each, and every result read from the batch's log, by one Caller; dispatcher, agents and caller in three processes",
		(*fleet).fanOut)
}

// FanOutOneByOne submits a job to each of many agents.
func FanOutOneByOne() measure.Subject {
	return fanOut("harp, one by one", "a durable job for each, submitted together, by 128 goroutines for each of the Callers, of which one does for 2,500 agents; dispatcher, agents and callers in three processes",
		(*fleet).fanOutOneByOne)
}

func fanOut(name, note string, ask func(f *fleet, ctx context.Context, n int) (measure.Sample, error)) measure.Subject {
	return measure.Subject{
		Name: name, Note: note,
		Setup: func(ctx context.Context, l *lab.Lab) (measure.Rig, error) {
			f, err := newFleet(ctx, l)
			if err != nil {
				return nil, err
			}
			return measure.NewRig(func(ctx context.Context, p measure.Point) (measure.Sample, error) {
				if f.agents == nil {
					if err := f.startAgents(ctx, p.Work); err != nil {
						return nil, err
					}
				}
				return ask(f, ctx, p.Work)
			}, f.Close), nil
		},
	}
}

// fanOut has as many members under way at a time as a dispatcher lets a batch have unless it is told otherwise.
func (f *fleet) fanOut(ctx context.Context, n int) (measure.Sample, error) {
	begin := time.Now()
	batch, err := work.Run(ctx, f.callers[0].Target("*"), echo{measure.Payload})
	if err != nil {
		return nil, err
	}
	var first time.Duration
	got := 0
	for r, err := range batch.Results(ctx) {
		switch {
		case err != nil:
			return nil, err
		case r.Err != nil || r.Skipped:
			return nil, fmt.Errorf("%s: skipped: %v: %w", r.Host, r.Skipped, r.Err)
		}
		if got++; got == 1 {
			first = time.Since(begin)
		}
	}
	if got != n {
		return nil, fmt.Errorf("%d of %d results came", got, n)
	}
	return measure.Answers(n, first, time.Since(begin)), nil
}

// submittersPerCaller is as many as a Caller lets submit at a time: the others would only
// wait, and thousands of them, begun at once, keep the processors from all else.
const submittersPerCaller = 128

func (f *fleet) fanOutOneByOne(ctx context.Context, n int) (measure.Sample, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	begin := time.Now()
	var first time.Duration
	var once sync.Once
	var wg sync.WaitGroup
	submitters := submittersPerCaller * len(f.callers)
	for s := range submitters {
		wg.Go(func() {
			for i := s; i < n && ctx.Err() == nil; i += submitters {
				j, err := work.Call(ctx, f.callers[i%len(f.callers)].Host(host(i)), echo{measure.Payload})
				if err != nil {
					cancel(err)
					return
				}
				wg.Go(func() {
					if _, err := j.Get(ctx); err != nil {
						cancel(err)
						return
					}
					once.Do(func() { first = time.Since(begin) })
				})
			}
		})
	}
	wg.Wait()
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return measure.Answers(n, first, time.Since(begin)), nil
}
