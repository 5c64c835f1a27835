package agent

import (
	"context"
	"errors"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/agent/internal/supervisor"
	"github.com/harpcaller/harp/agent/journal"
	"github.com/harpcaller/harp/internal/wire"
)

// endsReboot is journalInfo.Ends of a procedure that ends with a reboot.
const endsReboot = "reboot"

// adopt finds what an agent before this one has started and what goes on without it:
// commands with supervisors of their own, and those that ended with the machine.
func (a *Agent) adopt() {
	j := a.keeper.current()
	here := map[journal.Key]bool{}
	for _, h := range j.Held() {
		if h.State != journal.Started && h.State != journal.Stopping {
			continue
		}
		here[h.Key] = true
		info := infoOf(h)
		switch {
		case info.Ends == endsReboot && info.Boot != bootID():
			a.rebooted(j, h)
		case info.Supervised && a.supervises():
			a.adoptOne(j, h, info)
		}
	}
	if a.supervises() {
		a.tidy(here)
	}
}

// adoptOne attaches to the supervisor of an attempt. One that is not there is gone,
// which whoever asks for the attempt is told.
func (a *Agent) adoptOne(j *journal.Journal, h journal.Held, info journalInfo) {
	if a.roster.find(key{job: h.Job, number: h.Attempt}) != nil {
		return // it has ended, and the journal did not take that yet
	}
	log := a.log.With("job", h.Job, "attempt", h.Attempt)
	ctx, cancel := context.WithTimeout(context.Background(), beginTime)
	defer cancel()
	handle, err := supervisor.Attach(ctx, a.supervision(), supervisor.Key{Job: h.Job, Attempt: h.Attempt})
	if err != nil {
		log.Warn("a command of the last agent is not there", "procedure", info.Procedure, "error", err.Error())
		return
	}
	log.Info("a command of the last agent goes on", "procedure", info.Procedure)
	at := adopted(a, j, h, info, handle)
	a.roster.recover(at.key, func() *attempt { return at })
	a.commands.Go(at.run)
}

// adopted is an attempt that another agent has started and that runs.
func adopted(a *Agent, j *journal.Journal, h journal.Held, info journalInfo, handle *supervisor.Handle) *attempt {
	at := newAttempt(a, key{job: h.Job, number: h.Attempt})
	at.recall(j, h)
	at.info = &CallInfo{
		JobID: h.Job, Attempt: int(h.Attempt), Host: a.cfg.Name, Procedure: info.Procedure,
		Timeout: time.Duration(info.Timeout), MaxExecTime: time.Duration(info.MaxExecTime),
	}
	if p := a.catalogue.find(info.Procedure); p != nil {
		at.most = p.most
	}
	r := &running{survives: true, endsReboot: info.Ends == endsReboot, quit: make(chan struct{}), handle: handle}
	at.task = task{run: r.run, cmd: r}
	at.ctx, at.cancel = context.WithCancelCause(withCallInfo(context.Background(), at.info))
	if at.stopped {
		at.cancel(causeOf(at.stopping.Cause, time.Duration(at.stopping.Limit)))
	}
	close(at.begun)
	return at
}

// rebooted ends an attempt of a procedure that ends with a reboot: the machine has
// booted anew since.
func (a *Agent) rebooted(j *journal.Journal, h journal.Held) {
	end := wire.End{
		Value: harp.Value{0xc0}, Records: h.Records, RanFor: int64(time.Since(h.Started)),
		Started: &wire.Started{Time: h.Started.UnixNano()},
	}
	c, _, err := j.End(h.Key, journal.End{Body: wire.Encode(end), Records: h.Records})
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
	for _, k := range keys {
		if here[journal.Key{Job: k.Job, Attempt: k.Attempt}] {
			continue
		}
		if err := a.letGo(k); err != nil {
			a.log.Warn("a supervisor of the last agent is left alone", "job", k.Job, "attempt", k.Attempt, "reason", err.Error())
		}
	}
}

func (a *Agent) letGo(k supervisor.Key) error {
	ctx, cancel := context.WithTimeout(context.Background(), beginTime)
	defer cancel()
	h, err := supervisor.Attach(ctx, a.supervision(), k)
	if err != nil {
		return err
	}
	if err := h.Forget(); err != nil {
		return errors.Join(err, h.Close())
	}
	return nil
}

// detach lets go of the commands that go on without the agent, and waits until it has.
func (a *Agent) detach() {
	for _, at := range a.roster.held() {
		if r := at.task.cmd; r != nil && r.survives {
			r.once.Do(func() { close(r.quit) })
		}
	}
	a.commands.Wait()
}
