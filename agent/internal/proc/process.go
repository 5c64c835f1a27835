//go:build unix

package proc

import (
	"os"
	"sync"
	"syscall"
	"time"
)

// Process is a command that was started. It is safe for concurrent use. Who started it
// calls [Process.Wait] in the end.
type Process struct {
	id     Identity
	os     *os.Process
	began  time.Time
	cgroup cgroup
	cookie []string

	survivors func([]int) // see Options

	exited chan struct{}    // closed when the leader has ended
	ended  time.Time        // when it had; read after exited
	state  *os.ProcessState // how it had, once it was reaped
	tasks  sync.WaitGroup

	mu     sync.Mutex
	reaped bool
	left   bool    // what is left was given up
	ending *ending // that is under way
	tally  tally   // of the ending that is under way, or of all that were
	status Status  // once reaped
}

// newProcess is a command that was executed: whatever fails from now on, it has begun.
func newProcess(child *os.Process, s Spec, o Options, began time.Time) *Process {
	p := &Process{
		id: identify(child.Pid), os: child, began: began, cgroup: cgroup(o.Cgroup), cookie: s.cookie(),
		survivors: o.Survivors,
		exited:    make(chan struct{}), tally: newTally(),
	}
	if p.survivors == nil {
		p.survivors = func([]int) {}
	}
	p.tasks.Go(p.watch)
	return p
}

func (p *Process) watch() {
	p.state = awaitEnd(p.os)
	p.ended = time.Now()
	close(p.exited)
}

// Identity returns what tells the leader from every other process.
func (p *Process) Identity() Identity { return p.id }

// Exited returns a channel that is closed when the leader has ended. It is not reaped
// before [Process.Wait]: until then its number, and that of its group, is nobody else's.
func (p *Process) Exited() <-chan struct{} { return p.exited }

func (p *Process) hasExited() bool {
	select {
	case <-p.exited:
		return true
	default:
		return false
	}
}

// held reports whether the number of the leader is not another's for sure.
func (p *Process) held() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.reaped
}

// End ends the command and everything that came of it: it sends TERM, and after the grace
// KILL, again and again, until nothing is left. It returns when nothing is, however long that
// takes; [Options.Survivors] is told of what outlives KILL. It may be called again and
// meanwhile: then the shorter grace holds. After [Process.Leave] it does nothing.
func (p *Process) End(grace time.Duration) {
	deadline := time.Now().Add(grace)
	p.mu.Lock()
	if p.left {
		p.mu.Unlock()
		return
	}
	if e := p.ending; e != nil {
		p.mu.Unlock()
		e.hasten(deadline)
		<-e.done
		return
	}
	e := newEnding(p.tree(), p.id.PID, deadline)
	e.survivors = p.survivors
	p.ending = e
	p.mu.Unlock()

	_ = e.run(p.tally) // it has none but those of giving up
	p.mu.Lock()
	p.ending = nil
	p.mu.Unlock()
	close(e.done)
}

// Leave gives up what runs of the command, once its leader has ended: [Process.End] does
// nothing from then on. It returns what was left alone. What is in the cgroup is put into
// the one of this process.
func (p *Process) Leave() []Identity {
	<-p.exited
	p.mu.Lock()
	e := p.ending
	p.left = true
	p.mu.Unlock()
	if e != nil {
		<-e.done
	}
	found, _ := p.tree().find(newTally().has) // what cannot be seen cannot be named
	ids := make([]Identity, 0, len(found))
	for _, m := range found {
		ids = append(ids, Identity{PID: m.pid, Start: m.start, Boot: p.id.Boot})
	}
	_ = p.cgroup.release() // at worst an empty directory stays
	return ids
}

// Wait waits for the leader to end, and for an [Process.End] that is under way, and
// returns how that was. It reaps the leader, and removes the cgroup if nothing is left in
// it. What is left can be ended still, but only what descends from this process by
// [Adopt], is in the cgroup or carries the mark of the job is found from now on.
func (p *Process) Wait() Status {
	<-p.exited
	p.mu.Lock()
	for p.ending != nil {
		e := p.ending
		p.mu.Unlock()
		<-e.done
		p.mu.Lock()
	}
	if p.reaped {
		defer p.mu.Unlock()
		return p.status
	}
	if p.state == nil {
		p.state, _ = p.os.Wait() // it has ended, and is our child
	}
	p.reaped = true
	commands.remove(p.id.PID)
	p.status = p.statusNow()
	status := p.status
	p.mu.Unlock()

	p.tasks.Wait()
	commands.reap()
	_ = p.cgroup.remove() // at worst an empty directory stays
	return status
}

func (p *Process) statusNow() Status {
	s := Status{
		Exit: -1, Killed: len(p.tally.killed), Strays: len(p.tally.strays),
		RanFor: p.ended.Sub(p.began), OutOfMemory: p.cgroup.outOfMemory(),
	}
	if p.state == nil {
		return s
	}
	s.CPUTime = p.state.UserTime() + p.state.SystemTime()
	if usage, ok := p.state.SysUsage().(*syscall.Rusage); ok {
		s.MaxRSS = int64(usage.Maxrss) * rssUnit //nolint:unconvert // not of 64 bits everywhere
	}
	if ws, ok := p.state.Sys().(syscall.WaitStatus); ok {
		if ws.Signaled() {
			s.Signal = signalName(ws.Signal())
			s.Core = ws.CoreDump()
		} else {
			s.Exit = ws.ExitStatus()
		}
	}
	return s
}
