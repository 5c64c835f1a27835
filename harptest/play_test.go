package harptest_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/agent"
	"github.com/harpcaller/harp/dispatcher"
	"github.com/harpcaller/harp/harptest"
	"github.com/harpcaller/harp/store"
)

// The procedures of chaos. They return what [valueOf] says and yield what [recordOf]
// says.
const (
	procOnce  = "once"
	procAgain = "again" // declared idempotent
)

func valueOf(job string, attempt int) string { return fmt.Sprintf("%s#%d", job, attempt) }

func recordOf(job string, attempt, n int) string { return fmt.Sprintf("%s#%d.%d", job, attempt, n) }

// player plays a plan, in virtual time.
type player struct {
	t        *testing.T
	plan     *plan
	sys      *harptest.System
	begin    time.Time
	witness  harptest.Witness
	history  history
	down     map[string]bool // agents, and "": the dispatcher
	poisoned bool            // the dispatcher is
	calls    sync.WaitGroup
	saved    *bytes.Buffer // a backup; nil: none
}

// play plays a plan and returns what came of it.
func play(t *testing.T, p *plan, log *slog.Logger) *history { return playOn(t, p, log, nil) }

// playOn plays a plan on what wrap makes of the dispatcher's store; nil: as it is.
func playOn(t *testing.T, p *plan, log *slog.Logger, wrap func(store.Store) store.Store) *history {
	pl := &player{t: t, plan: p, down: map[string]bool{}}
	pl.sys = harptest.New(t, harptest.Options{
		Agents: p.Hosts, Register: pl.register, Seed: p.Seed | 1, DiskTime: p.DiskTime, Logger: log,
		Dispatcher: dispatcher.Config{Heartbeat: p.Heartbeat, LostAfter: p.LostAfter},
		Agent:      func(cfg *agent.Config) { cfg.Limits.MaxAttempts = p.Busy },
	}.OnStore(wrap))
	pl.begin = time.Now()
	stop := pl.subscribe()
	for _, c := range p.Calls {
		record := &callRecord{plan: c, begin: pl.begin, id: harp.NewID()}
		pl.history.Calls = append(pl.history.Calls, record)
		pl.calls.Go(func() { pl.call(t.Context(), record) })
	}
	for _, f := range p.Faults {
		time.Sleep(time.Until(pl.begin.Add(f.At)))
		pl.fault(f)
	}
	time.Sleep(time.Until(pl.begin.Add(p.Span)))
	pl.heal()
	pl.calls.Wait()
	pl.settle()
	stop()
	return &pl.history
}

// register gives an agent its procedures.
func (p *player) register(a *agent.Agent) {
	run := harptest.WatchStream(&p.witness, p.work)
	agent.HandleStream(a, harp.NewStreamProc[work, string, string](procOnce, "work"), run)
	agent.HandleStream(a, harp.NewStreamProc[work, string, string](procAgain, "work"), run, agent.Idempotent())
}

// work is what the procedures do.
func (p *player) work(ctx context.Context, w work, emit func(string) error) (string, error) {
	call, _ := agent.FromContext(ctx)
	id := attempt{call.JobID, call.Attempt}
	for n := range w.Emit {
		if err := pauseFor(ctx, w.Time/time.Duration(w.Emit+1), w.Deaf); err != nil {
			return "", err
		}
		value := recordOf(call.JobID, call.Attempt, n)
		if err := emit(value); err == nil {
			p.history.emitted(id, value)
		} else if !w.Deaf {
			return "", err
		}
	}
	if err := pauseFor(ctx, w.Time/time.Duration(w.Emit+1), w.Deaf); err != nil {
		return "", err
	}
	if w.Fail {
		return "", agent.Errorf("chaos", nil, "it was asked to fail")
	}
	return valueOf(call.JobID, call.Attempt), nil
}

// pauseFor waits, unless it is deaf no longer than ctx.
func pauseFor(ctx context.Context, d time.Duration, deaf bool) error {
	if deaf {
		time.Sleep(d)
		return nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// options are those of a call.
func (p *player) options(c *callRecord) []harp.Option {
	plan := c.plan
	opts := []harp.Option{harp.Priority(plan.Priority)}
	if plan.Key == "" {
		opts = append(opts, harp.JobID(c.id))
	} else {
		opts = append(opts, harp.JobID(c.id), harp.IdempotencyKey(plan.Key, time.Hour))
	}
	if plan.Queue != "" {
		opts = append(opts, harp.Queue(queueName(plan.Queue)), harp.Concurrency(plan.Concurrency))
	}
	if plan.FailFast {
		opts = append(opts, harp.WhenOffline(harp.FailFast))
	}
	var more harp.CallOptions
	more.OfflineWait, more.SilenceTimeout, more.MaxExecTime, more.Retry = plan.OfflineWait, plan.Timeout, plan.MaxExec, plan.Retry
	if plan.StartAfter > 0 {
		more.StartAfter = p.begin.Add(plan.StartAfter)
	}
	if plan.StartBefore > 0 {
		more.StartBefore = p.begin.Add(plan.StartBefore)
	}
	return append(opts, harp.Options(more))
}

// call makes a call and does what its plan says with the job.
func (p *player) call(ctx context.Context, c *callRecord) {
	time.Sleep(time.Until(p.begin.Add(c.plan.At)))
	var more sync.WaitGroup
	defer more.Wait()
	opts := p.options(c)
	var mu sync.Mutex
	submit := func() {
		mu.Lock()
		known := c.job != ""
		mu.Unlock()
		proc := procOnce
		if c.plan.Idempotent {
			proc = procAgain
		}
		job, err := p.sys.Caller().Host(c.plan.Host).Call(ctx, proc, c.plan.Work, opts...)
		mu.Lock()
		defer mu.Unlock()
		switch {
		case err != nil:
			c.errs = append(c.errs, err)
			if known {
				c.after = append(c.after, err)
			}
		case c.job == "":
			c.job, c.acked = job.ID(), time.Now()
			p.use(ctx, c, job, &more)
		case c.job != job.ID():
			p.t.Errorf("call %d was job %s, is %s", c.plan.No, c.job, job.ID())
		}
	}
	for _, after := range c.plan.Again {
		more.Go(func() {
			time.Sleep(after)
			submit()
		})
	}
	submit()
}

// use follows a job, looks at it and cancels it.
func (p *player) use(ctx context.Context, c *callRecord, job *harp.Job, more *sync.WaitGroup) {
	if c.plan.Cancel > 0 {
		more.Go(func() {
			time.Sleep(c.plan.Cancel)
			if _, err := job.Cancel(ctx); err == nil {
				c.cancelled = time.Now()
			}
		})
	}
	if c.plan.Follow {
		more.Go(func() {
			for r, err := range job.Follow(ctx, harp.Since(0)) {
				if c.follow = err; err == nil {
					c.followed = append(c.followed, r)
				}
			}
		})
	}
	if c.plan.Look > 0 {
		more.Go(func() { p.look(ctx, c, job) })
	}
}

// look looks at a job until it has ended, or nothing changes any more.
func (p *player) look(ctx context.Context, c *callRecord, job *harp.Job) {
	for time.Since(p.begin) < p.plan.Span+time.Minute {
		if s, err := job.Status(ctx); err == nil {
			c.looks = append(c.looks, s)
			if s.State.Ended() {
				return
			}
		}
		time.Sleep(c.plan.Look)
	}
}

// fault makes a fault.
func (p *player) fault(f faultPlan) {
	switch f.Kind {
	case faultCut:
		p.sys.Cut(f.Host)
	case faultMute:
		p.sys.Mute(f.Host)
	case faultDeafen:
		p.sys.Deafen(f.Host)
	case faultDelay:
		p.sys.Delay(f.Host, f.By)
	case faultHeal:
		p.sys.Heal(f.Host)
	case faultReset:
		p.sys.Reset(f.Host)
	case faultCancel:
		p.calls.Go(func() { p.cancelQueue(p.t.Context(), f.Host) })
	case faultPause:
		p.calls.Go(func() { p.pauseQueue(p.t.Context(), f.Host, f.By) })
	case faultForce:
		p.calls.Go(func() { p.forceLost(p.t.Context()) })
	case faultLow, faultCritical, faultFull, faultBroken:
		p.trouble(f)
	case faultMend:
		p.mend(f.Host)
	case faultBackup:
		p.backup()
	case faultRestore:
		p.restore()
	case faultPrune:
		p.prune(f.By)
	case faultPoison:
		if !p.down[""] {
			p.sys.PoisonDispatcher()
			p.poisoned = true
		}
	case faultCrash, faultWipe, faultStop:
		p.end(f)
	case faultStart:
		p.start(f.Host)
	}
}

// cancelQueue cancels all that is in a queue.
func (p *player) cancelQueue(ctx context.Context, queue string) {
	begin := time.Now()
	_, err := p.sys.Caller().Queues().Cancel(ctx, queueName(queue))
	switch {
	case err == nil:
		p.history.cancelled(queueCancel{queue: queue, begin: begin, end: time.Now()})
	case !mayFail(err) && !errors.Is(err, harp.ErrNotFound):
		p.t.Errorf("cancel queue %s: %v", queue, err)
	}
}

// pauseQueue pauses a queue for some time.
func (p *player) pauseQueue(ctx context.Context, queue string, d time.Duration) {
	err := p.sys.Caller().Queues().Pause(ctx, queueName(queue), "", time.Time{})
	paused := queuePause{queue: queue, begin: time.Now()}
	if err == nil {
		time.Sleep(d)
		paused.end = time.Now()
		p.history.paused(paused)
	}
	// A pause that was not acknowledged may be one all the same.
	for until := time.Now().Add(patience); time.Now().Before(until); time.Sleep(time.Second) {
		if err = p.sys.Caller().Queues().Unpause(ctx, queueName(queue)); err == nil || errors.Is(err, harp.ErrNotFound) {
			return
		}
	}
	p.t.Errorf("unpause queue %s: %v", queue, err)
}

// forceLost gives up all that is unknown.
func (p *player) forceLost(ctx context.Context) {
	caller := p.sys.Caller()
	for s, err := range caller.Jobs(ctx, harp.JobFilter{States: []harp.State{harp.StateUnknown}}) {
		if err != nil {
			return
		}
		if err := caller.Job(s.ID).ForceLost(ctx, "chaos"); err != nil && !errors.Is(err, harp.ErrConflict) && !mayFail(err) {
			p.t.Errorf("force-lost of job %s: %v", s.ID, err)
		}
	}
}

// mayFail reports whether an operator's request may fail with err at any time.
func mayFail(err error) bool {
	return errors.Is(err, harp.ErrUnavailable) || errors.Is(err, harp.ErrNoSpace)
}

func queueName(queue string) any { return map[string]string{"name": queue} }

// patience is how long a job may take when all is healed.
const patience = 15 * time.Minute

// settle waits until every job has ended and reads them all.
func (p *player) settle() {
	caller := p.sys.Embedded()
	defer caller.Close()
	ctx, cancel := context.WithTimeout(p.t.Context(), patience)
	defer cancel()
	ids := p.ids()
	for _, id := range ids {
		if _, err := caller.Job(id).Wait(ctx); err != nil && !errors.Is(err, harp.ErrNotFound) && !errors.Is(err, harp.ErrPruned) {
			p.t.Errorf("I1: wait for job %s: %v", id, err)
		}
	}
	time.Sleep(time.Minute) // what an agent still has to say of a job that was lost
	p.history.Hosts, p.history.Executions = p.plan.Hosts, p.witness.Executions()
	p.history.LostAfter = p.plan.LostAfter
	p.history.Syncs = 3 * p.plan.DiskTime // one that waits for others
	p.history.Finals = map[string]final{}
	for _, id := range ids {
		p.history.Finals[id] = p.final(caller.Job(id))
	}
	p.archive(caller)
	var err error
	if p.history.Kept, err = readFeed(ctx, caller, harp.EventsFromStart); err != nil {
		p.t.Errorf("read the feed: %v", err)
	}
	time.Sleep(time.Minute) // who reads the feed
}

// ids are all jobs that anybody has named.
func (p *player) ids() []string {
	var ids []string
	for _, c := range p.history.Calls {
		ids = append(ids, c.id)
		if c.job != "" {
			ids = append(ids, c.job)
		}
	}
	for _, x := range p.witness.Executions() {
		ids = append(ids, x.Job)
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

func (p *player) final(job *harp.Job) (f final) {
	ctx := p.t.Context()
	if f.status, f.err = job.Status(ctx); f.err != nil {
		return f
	}
	if f.result, f.err = job.Result(ctx); f.err != nil {
		return f
	}
	for r, err := range job.Stream(ctx) {
		if err != nil {
			f.err = err
			return f
		}
		f.records = append(f.records, r)
	}
	return f
}
