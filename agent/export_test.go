package agent

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/agent/journal"
)

// HeldBytes is how many bytes of records and ends the agent has in memory.
func (a *Agent) HeldBytes() (n int) {
	for _, at := range a.attempts.pick(func(*attempt) bool { return true }) {
		now := at.look()
		n += now.HeldBytes()
	}
	return n
}

// Numbered is how many records of a job's attempt that runs here have numbers.
func (a *Agent) Numbered(job string) int64 {
	now := a.attempts.find(key{job: job, number: 1}).look()
	return now.Records()
}

// Outlive tells a job's attempt that runs here of processes that outlive KILL.
func (a *Agent) Outlive(job string, pids ...int) {
	a.attempts.find(key{job: job, number: 1}).outlives(pids)
}

// LetGoOf is how many records of a job's command that runs here its supervisor was told to let go of.
func (a *Agent) LetGoOf(job string) int64 {
	r := a.attempts.find(key{job: job, number: 1}).task.cmd
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.kept
}

// Tells reports whether somebody is told of a job's attempt that runs here.
func (a *Agent) Tells(job string) bool {
	now := a.attempts.find(key{job: job, number: 1}).look()
	return now.IsTold()
}

// Closes reports whether a job's command that runs here is to end as the agent stops.
func (a *Agent) Closes(job string) bool {
	return a.attempts.find(key{job: job, number: 1}).task.cmd.isClosing()
}

// Holds reports whether the journal has an attempt of a job.
func (a *Agent) Holds(job string) bool {
	_, is := a.journal.current().Get(key{job: job, number: 1}.journal())
	return is
}

// JournalStart journals the start of an attempt that is nobody's.
func (a *Agent) JournalStart(job string) error {
	return a.journal.current().AcceptStart(key{job: job, number: 1}.journal(), journal.Accept{}, time.Now())
}

// ShortenReboot gives a machine that is to boot no time for that, until the end of the test.
func ShortenReboot(t testing.TB) {
	was := rebootTime
	rebootTime = time.Millisecond
	t.Cleanup(func() { rebootTime = was })
}

// BootAnew makes this process believe until the end of the test that the machine has
// booted since.
func BootAnew(t testing.TB) {
	was := bootID
	bootID = func() string { return was() + " anew" }
	t.Cleanup(func() { bootID = was })
}

// LockDir is lockDir.
func LockDir(ctx context.Context, dir string) (unlock func(), err error) { return lockDir(ctx, dir) }

// OnSyncRenames calls fn each time that the renames in a directory are to be synced.
func OnSyncRenames(t testing.TB, fn func(dir string) error) {
	t.Helper()
	was := syncRenames
	t.Cleanup(func() { syncRenames = was })
	syncRenames = func(dir string) error { return errors.Join(fn(dir), was(dir)) }
}

// Drains reports whether the agent was told to drain.
func (a *Agent) Drains() bool {
	a.attempts.mu.Lock()
	defer a.attempts.mu.Unlock()
	return a.attempts.draining
}

// Kept is how many bytes of output commands may keep beside the journal, and how many commands
// are counted.
func (a *Agent) Kept() (bytes, commands int64) {
	a.budget.mu.Lock()
	defer a.budget.mu.Unlock()
	return a.budget.used, a.budget.running
}

// OnBind calls fn once, when a call of a procedure was looked at and not yet taken on.
func OnBind(a *Agent, procedure string, fn func()) {
	p := a.catalogue.find(procedure)
	bind, done := p.bind, new(atomic.Bool)
	p.bind = func(args harp.Value, info *CallInfo) (task, error) {
		if done.CompareAndSwap(false, true) {
			fn()
		}
		return bind(args, info)
	}
}

// OnBegin calls fn each time that a call of a procedure was taken on, and its start not
// journalled.
func OnBegin(a *Agent, procedure string, fn func()) {
	p := a.catalogue.find(procedure)
	bind := p.bind
	p.bind = func(args harp.Value, info *CallInfo) (task, error) {
		work, err := bind(args, info)
		work.begin = func(_ *attempt, commit func() refusal) refusal {
			fn()
			return commit()
		}
		return work, err
	}
}

// FailBind lets calls of a procedure be refused with an error, until it is nil.
func FailBind(a *Agent, procedure string, err *error) {
	p := a.catalogue.find(procedure)
	bind := p.bind
	p.bind = func(args harp.Value, info *CallInfo) (task, error) {
		if *err != nil {
			return task{}, *err
		}
		return bind(args, info)
	}
}

// Epochs is of how many stores the agent remembers the epoch.
func (a *Agent) Epochs() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.epochs)
}

// HoldAtMost sets about how many bytes of records an agent's attempts may have in memory together.
func HoldAtMost(a *Agent, most int64) { a.memory.most = most }

// HoldResultsAtMost sets how many bytes of results an agent's attempts may have in memory together.
func HoldResultsAtMost(a *Agent, most int64) { a.ends.most = most }

// CountedResults is how many bytes of results are counted as in memory, or to come.
func (a *Agent) CountedResults() int64 {
	a.ends.mu.Lock()
	defer a.ends.mu.Unlock()
	return a.ends.used
}

// HandedEnds is how many ends the journal has been handed.
func (a *Agent) HandedEnds() (n int) {
	for _, h := range a.journal.current().Held() {
		if h.State == journal.Ended {
			n++
		}
	}
	return n
}

// Counted is how many bytes are counted as in memory.
func (a *Agent) Counted() int64 { return a.memory.used.Load() }

// MaxFacts is how long the facts of a host may be.
const MaxFacts = maxFacts

// LookAtCertificate looks at the agent's certificate and returns what is wrong with the agent.
func (a *Agent) LookAtCertificate() []harp.HostProblem {
	a.lookAtCertificate()
	return a.problems.list()
}

// Report replaces what is wrong by errors, and returns what a dispatcher is told.
func (a *Agent) Report(code string, errs ...error) []harp.HostProblem {
	var texts []string
	if err := errors.Join(errs...); err != nil {
		texts = errorTexts(err)
	}
	a.report(problemSource{code: code}, texts...)
	return a.problems.list()
}
