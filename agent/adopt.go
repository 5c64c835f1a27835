package agent

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/agent/internal/supervisor"
	"github.com/harpcaller/harp/agent/journal"
	"github.com/harpcaller/harp/internal/wire"
)

// endsReboot is journalInfo.Ends of a procedure that ends with a reboot.
const endsReboot = "reboot"

// adopt finds what an agent before this one has started and what goes on without it:
// commands with supervisors of their own, those that an agent left that was killed, and
// those that ended with the machine.
func (a *Agent) adopt() {
	j := a.keeper.current()
	here := map[journal.Key]bool{}
	for _, h := range j.Held() {
		if h.State != journal.Started && h.State != journal.Stopping {
			continue
		}
		here[h.Key] = true
		if a.roster.find(key{job: h.Job, number: h.Attempt}) != nil || a.withdrawIdle(j, h.Key) {
			continue // it has ended, and the journal did not take that yet; or it never began
		}
		switch info := infoOf(h); {
		case info.Supervised && a.cfg.Dir != "", info.Command && !info.Supervised && !bootedSince(info.Boot):
			a.adoptOne(j, h, info)
		case info.Ends == endsReboot && bootedSince(info.Boot):
			a.rebooted(j, h)
		}
	}
	a.readopt(j, here)
	a.tidy(here)
}

// withdrawIdle takes back the start of a command of which it is sure that it was not executed,
// as the last agent died just before. It reports whether that was so.
func (a *Agent) withdrawIdle(j *journal.Journal, k journal.Key) bool {
	of := supervisor.Key{Job: k.Job, Attempt: k.Attempt}
	trace, err := supervisor.Inspect(a.here, a.supervision(), of)
	if err != nil || !trace.NeverBegan {
		return false // what is there is found out in its time
	}
	if err := j.Retract(k); err != nil {
		a.log.Warn("the start of a command that never began cannot be taken back", "job", k.Job, "attempt", k.Attempt, "error", err.Error())
		return false
	}
	a.log.Info("a command of the last agent never began, and may be asked for again", "job", k.Job, "attempt", k.Attempt)
	if err := supervisor.Discard(a.supervision(), of); err != nil {
		a.log.Warn("what is there of a command that never began cannot be removed", "job", k.Job, "attempt", k.Attempt, "error", err.Error())
	}
	return true
}

// readopt takes on the commands with supervisors that the journal knows nothing of, as it is
// another one than they were journalled in: what runs is reported, and counts. They are
// journalled as what they are.
func (a *Agent) readopt(j *journal.Journal, here map[journal.Key]bool) {
	keys, err := supervisor.List(a.supervision())
	if err != nil {
		return // which tidy says
	}
	for _, of := range keys {
		k := journal.Key{Job: of.Job, Attempt: of.Attempt}
		if here[k] || j.State(k) != journal.Absent {
			continue
		}
		trace, err := supervisor.Inspect(a.here, a.supervision(), of)
		var info journalInfo
		if err == nil && trace.NeverBegan {
			err = supervisor.Discard(a.supervision(), of)
		} else if err == nil {
			err = wire.Decode(trace.Info, &info)
		}
		if err != nil {
			a.log.Error("a command that the journal knows nothing of cannot be taken on", "job", k.Job, "attempt", k.Attempt, "error", err.Error())
			here[k] = true // it stays as it is, for the next agent
			continue
		}
		if info.Supervised {
			a.log.Warn("a command is there of which the journal knows nothing: it is taken on", "job", k.Job, "attempt", k.Attempt, "procedure", info.Procedure)
			here[k] = true
			a.readoptOne(j, k, info, trace)
		}
	}
}

// readoptOne takes on a command that is not journalled. Where the journal cannot take it
// either, what there is of it stays with its supervisor until the dispatcher has it.
func (a *Agent) readoptOne(j *journal.Journal, k journal.Key, info journalInfo, trace supervisor.Trace) {
	err := j.AcceptStart(k, journal.Accept{Fence: info.Fence, Info: trace.Info}, trace.Created)
	if h, is := j.Get(k); is {
		a.adoptOne(j, h, info)
		return
	}
	a.log.Error("a command that is taken on cannot be journalled", "job", k.Job, "attempt", k.Attempt, "error", err.Error())
	h := journal.Held{Key: k, State: journal.Started, Fence: info.Fence, Info: trace.Info, Started: trace.Created}
	at := a.adopted(j, h, info)
	at.spool.on = false
	a.goOn(at)
}

// adoptOne takes on an attempt of which something may run. What became of it is found
// out meanwhile, and until it is nobody is told that it has gone.
func (a *Agent) adoptOne(j *journal.Journal, h journal.Held, info journalInfo) {
	a.log.Info("a command of the last agent is looked for", "job", h.Job, "attempt", h.Attempt, "procedure", info.Procedure)
	at := a.adopted(j, h, info)
	if err := j.KeepElsewhere(h.Key, info.Spool); err != nil {
		a.log.Warn("what a command of the last agent keeps is not counted", "job", h.Job, "attempt", h.Attempt, "error", err.Error())
	}
	a.goOn(at)
}

// goOn lets an attempt that another agent has started go on here.
func (a *Agent) goOn(at *attempt) {
	a.roster.recover(at.key, func() *attempt { return at })
	a.commands.Go(at.run)
}

// adopted is an attempt that another agent has started and that may run.
func (a *Agent) adopted(j *journal.Journal, h journal.Held, info journalInfo) *attempt {
	at := newAttempt(a, key{job: h.Job, number: h.Attempt})
	at.recall(j, h)
	at.info = &CallInfo{
		JobID: h.Job, Attempt: int(h.Attempt), Host: a.cfg.Name, Procedure: info.Procedure,
		Timeout: time.Duration(info.Timeout), MaxExecTime: time.Duration(info.MaxExecTime),
	}
	if p := a.catalogue.find(info.Procedure); p != nil {
		at.most = p.most
	}
	r := &running{
		survives: info.Supervised, endsReboot: info.Ends == endsReboot, here: a.here, progress: make(chan struct{}, 1), hurry: make(chan struct{}, 1),
		rebooted: info.Ends == endsReboot && bootedSince(info.Boot),
	}
	r.spec.Grace, r.spec.MaxSpool = time.Duration(info.Grace), info.Spool
	a.budget.hold(info.Spool)
	at.task = task{run: r.run, cmd: r}
	at.ctx, at.cancel = context.WithCancelCause(withCallInfo(context.Background(), at.info))
	if at.stopped {
		at.cancel(causeOf(at.stopping.Cause, time.Duration(at.stopping.Limit)))
	}
	at.begun.comes()
	return at
}

// rebooted ends an attempt of a procedure that ends with a reboot: the machine has
// booted anew since.
func (a *Agent) rebooted(j *journal.Journal, h journal.Held) {
	end := wire.End{
		Value: harp.Value{0xc0}, Records: h.Records, RanFor: int64(time.Since(h.Started)),
		Started: &wire.Started{Time: h.Started.UnixNano()},
	}
	c, _, err := j.End(h.Key, journal.End{Body: encodeEnd(end, nil), Records: h.Records})
	if err == nil {
		err = c.Wait()
	}
	if err != nil {
		a.log.Error("the end of a procedure that has rebooted the machine cannot be journalled", "job", h.Job, "error", err.Error())
	}
}

// tidy lets go of supervisors whose attempts are over here. One that still runs for an
// attempt that the journal does not know runs on, to its limits.
func (a *Agent) tidy(here map[journal.Key]bool) {
	keys, err := supervisor.List(a.supervision())
	if err != nil {
		a.log.Error("supervisors of the last agent cannot be listed", "error", err.Error())
		return
	}
	keys = slices.DeleteFunc(keys, func(k supervisor.Key) bool { return here[journal.Key{Job: k.Job, Attempt: k.Attempt}] })
	ctx := a.here
	a.commands.Go(func() {
		for _, k := range keys {
			if err := a.forgetSupervisor(ctx, k); err != nil && ctx.Err() == nil {
				a.log.Warn("a supervisor of the last agent is left alone", "job", k.Job, "attempt", k.Attempt, "reason", err.Error())
			}
		}
	})
}

func (a *Agent) forgetSupervisor(ctx context.Context, k supervisor.Key) error {
	h, err := supervisor.Attach(ctx, a.supervision(), k)
	if err != nil {
		return err
	}
	return errors.Join(h.Forget(), h.Close())
}

// detach lets go of the commands that go on without the agent, and waits until it has.
func (a *Agent) detach() {
	a.letGo()
	a.commands.Wait()
}
