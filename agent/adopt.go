package agent

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/harpcaller/harp/agent/internal/life"
	"github.com/harpcaller/harp/agent/internal/supervisor"
	"github.com/harpcaller/harp/agent/journal"
	"github.com/harpcaller/harp/internal/wire"
)

// endsReboot is journalInfo.Ends of a procedure that ends with a reboot.
const endsReboot = "reboot"

// adopt finds what an agent before this one has started and what goes on without it:
// commands with supervisors of their own, of which some may be left, those that an agent left
// that was killed, and those that ended with the machine.
func (a *Agent) adopt(left []supervisor.Key) {
	a.attempts.seek()
	j := a.journal.current()
	here := map[journal.Key]bool{}
	for _, h := range j.Held() {
		if h.State != journal.Started && h.State != journal.Stopping {
			continue
		}
		here[h.Key] = true
		if a.attempts.find(key{job: h.Job, number: h.Attempt}) != nil || a.withdrawIdle(j, h.Key) {
			continue // it has ended, and the journal did not take that yet; or it never began
		}
		info := infoOf(h)
		supervised := info.Supervised && a.cfg.Dir != ""
		if orphaned := info.Command && !info.Supervised && !bootedSince(info.Boot); supervised || orphaned || info.rebooted() {
			a.adoptOne(j, h, info)
		}
	}
	var found []finding
	for _, of := range left {
		found = append(found, finding{key: of})
	}
	unread := a.readopt(j, found, here)
	a.tidy(left, here)
	if len(unread) == 0 {
		a.attempts.know()
		return
	}
	a.commands.Go(func() { a.readoptLater(a.here, unread) })
}

// withdrawIdle takes back the start of a command of which it is sure that it was not executed,
// as the last agent died just before. It reports whether that was so.
func (a *Agent) withdrawIdle(j *journal.Journal, k journal.Key) bool {
	if !a.isIdle(k) {
		return false // what is there is found out in its time
	}
	if err := j.Retract(k); err != nil {
		a.log.Warn("the start of a command that never began cannot be taken back", "job", k.Job, "attempt", k.Attempt, "error", err.Error())
		return false
	}
	a.log.Info("a command of the last agent never began, and may be asked for again", "job", k.Job, "attempt", k.Attempt)
	a.discard(k)
	return true
}

// isIdle reports whether it is sure of a command, of which something is there, that it was not
// executed.
func (a *Agent) isIdle(k journal.Key) bool {
	trace, err := supervisor.Inspect(a.here, a.supervision(), supervisor.Key{Job: k.Job, Attempt: k.Attempt})
	return err == nil && trace.NeverBegan
}

// discard removes what is there of a command that never began.
func (a *Agent) discard(k journal.Key) {
	if err := supervisor.Discard(a.supervision(), supervisor.Key{Job: k.Job, Attempt: k.Attempt}); err != nil {
		a.log.Warn("what is there of a command that never began cannot be removed", "job", k.Job, "attempt", k.Attempt, "error", err.Error())
	}
}

// finding is a command with a supervisor that the last agent has left.
type finding struct {
	key  supervisor.Key
	said string // why it could not be looked at
}

// readopt takes on the commands with supervisors that the journal knows nothing of, as it is
// another one than they were journalled in: what runs is reported, and counts. They are
// journalled as what they are. It notes which are here, and returns those that have to be
// looked at again.
func (a *Agent) readopt(j *journal.Journal, found []finding, here map[journal.Key]bool) (again []finding) {
	for _, f := range found {
		k := journal.Key{Job: f.key.Job, Attempt: f.key.Attempt}
		if a.attempts.find(key{job: k.Job, number: k.Attempt}) != nil {
			here[k] = true
		}
		if here[k] || j.State(k) != journal.Absent {
			continue
		}
		is, err := a.readoptFound(j, f.key)
		here[k] = is || err != nil
		if err == nil || errors.Is(err, supervisor.ErrNotFound) {
			continue
		}
		if text := err.Error(); text != f.said {
			f.said = text
			a.log.Error("a command that the journal knows nothing of cannot be taken on", "job", k.Job, "attempt", k.Attempt, "error", text)
		}
		if !isUnreadable(err) {
			again = append(again, f)
		}
	}
	return again
}

// errNoInfo is that a command was not left by an agent, or by one of another version.
var errNoInfo = errors.New("agent: what is noted of the command cannot be read")

// isUnreadable reports whether what is there of a command stays as it is, for the next agent, or for that of the
// directory that this one is a copy of.
func isUnreadable(err error) bool {
	var (
		damaged *supervisor.DamagedError
		copied  *CopiedDirError
	)
	return errors.As(err, &damaged) || errors.As(err, &copied) || errors.Is(err, supervisor.ErrVersion) || errors.Is(err, errNoInfo)
}

// readoptFound takes on a command that may go on, and removes what is left of one that never
// began. It reports whether there is one.
func (a *Agent) readoptFound(j *journal.Journal, of supervisor.Key) (bool, error) {
	trace, err := supervisor.Inspect(a.here, a.supervision(), of)
	if err != nil {
		return false, err
	}
	if a.isOfAnotherDir(trace.Info) { // which could not be looked at when the agent began
		return false, &CopiedDirError{a.cfg.Dir, of.Job, of.Attempt}
	}
	if trace.NeverBegan {
		return false, supervisor.Discard(a.supervision(), of)
	}
	var info journalInfo
	if err := wire.Decode(trace.Info, &info); err != nil {
		return false, errors.Join(errNoInfo, err)
	}
	if info.Supervised {
		a.log.Warn("a command is there of which the journal knows nothing: it is taken on", "job", of.Job, "attempt", of.Attempt, "procedure", info.Procedure)
		a.readoptOne(j, journal.Key{Job: of.Job, Attempt: of.Attempt}, info, trace)
	}
	return info.Supervised, nil
}

// errFound ends a session in which nothing was said of a command that runs.
var errFound = errors.New("agent: a command was found that is to be reported")

// readoptLater takes on what could not be looked at when the agent began, as soon as that can
// be. Until then it is not known what runs. A dispatcher hears of it in a new session.
func (a *Agent) readoptLater(here context.Context, unread []finding) {
	again := time.NewTicker(reachPause)
	defer again.Stop()
	for len(unread) > 0 {
		select {
		case <-here.Done():
			return
		case <-again.C:
		}
		if j := a.journal.current(); j != nil {
			had := len(unread)
			if unread = a.readopt(j, unread, map[journal.Key]bool{}); len(unread) < had {
				a.endSession(errFound)
			}
		}
	}
	a.attempts.know()
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
	a.goOn(a.adopted(j, h, info))
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
	if a.attempts.recover(at.key, func() *attempt { return at }) == at {
		a.commands.Go(at.run)
	}
}

// adopted is an attempt that another agent has started and that may run. The journal may not have it,
// and leaves a tombstone when it is forgotten all the same.
func (a *Agent) adopted(j *journal.Journal, h journal.Held, info journalInfo) *attempt {
	at := newAttempt(a, key{job: h.Job, number: h.Attempt}, new(expectation))
	at.recall(j, h)
	at.info = &CallInfo{
		JobID: h.Job, Attempt: int(h.Attempt), Host: a.cfg.Name, Procedure: info.Procedure,
		SilenceTimeout: time.Duration(info.SilenceTimeout), MaxExecTime: time.Duration(info.MaxExecTime),
	}
	if p := a.catalogue.find(info.Procedure); p != nil {
		at.most, at.expected = p.most, &p.expected
	}
	r := newCommandRun(a.here, info.Ends == endsReboot)
	r.survives, r.rebooted = info.Supervised && a.cfg.Dir != "", info.rebooted()
	r.spec.Grace, r.spec.MaxSpool = time.Duration(info.Grace), info.Spool
	p := pastOf(h)
	if r.survives {
		p.Home = life.Supervised
	}
	_, is := j.Get(h.Key)
	p.Alone = !is
	at.life = life.Recall(p)
	a.budget.hold(info.Spool)
	at.task = task{run: r.run, cmd: r}
	at.ctx, at.cancel = context.WithCancelCause(withCallInfo(context.Background(), at.info))
	if p.Stopping != nil {
		at.cancel(causeOf(p.Stopping.Cause, time.Duration(p.Stopping.Limit)))
	}
	at.begun.fire()
	return at
}

// tidy lets go of supervisors whose attempts are over here. One that still runs for an
// attempt that the journal does not know runs on, to its limits.
func (a *Agent) tidy(left []supervisor.Key, here map[journal.Key]bool) {
	keys := slices.DeleteFunc(slices.Clone(left), func(k supervisor.Key) bool { return here[journal.Key{Job: k.Job, Attempt: k.Attempt}] })
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
