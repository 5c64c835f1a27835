package proc

import (
	"os"
	"os/signal"
	"sync"

	"golang.org/x/sys/unix"
)

// registry has the commands that this process started and did not reap. Its lock is held
// while one is started, so that nobody takes it for an orphan.
type registry struct {
	mu      sync.Mutex
	adopted bool // orphans become children of this process
	leaders map[int]bool
}

var commands = registry{leaders: map[int]bool{}}

// Adopt makes the orphans of what this process starts children of it, so that they are
// found when they have left group and session, and reaps those that end. A process that
// calls it starts no processes but by [Start]: any other child would be reaped and ended
// with a command. The error is of the system.
func Adopt() error {
	commands.mu.Lock()
	defer commands.mu.Unlock()
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return os.NewSyscallError("prctl", err)
	}
	if !commands.adopted {
		commands.adopted = true
		ended := make(chan os.Signal, 1)
		signal.Notify(ended, unix.SIGCHLD)
		go commands.reapAll(ended)
	}
	return nil
}

// start registers the process that f starts.
func (r *registry) start(f func() (*os.Process, error)) (*os.Process, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	p, err := f()
	if err == nil {
		r.leaders[p.Pid] = true
	}
	return p, err
}

func (r *registry) remove(pid int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.leaders, pid)
}

// othersThan returns the commands of this process but one.
func (r *registry) othersThan(pid int) (adopted bool, others map[int]bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	others = map[int]bool{}
	for leader := range r.leaders {
		if leader != pid {
			others[leader] = true
		}
	}
	return r.adopted, others
}

// reap reaps the orphans that have ended.
func (r *registry) reap() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.adopted {
		return
	}
	all, err := proc.all()
	if err != nil {
		return
	}
	for _, m := range all {
		if m.dead && m.parent == os.Getpid() && !r.leaders[m.pid] {
			_, _ = unix.Wait4(m.pid, nil, unix.WNOHANG, nil) // how it ended is nobody's business
		}
	}
}

// reapAll reaps orphans as they end, as long as this process lives: what a command has left goes
// on to leave some.
func (r *registry) reapAll(ended <-chan os.Signal) {
	for range ended {
		r.reap()
	}
}
