//go:build unix && !linux

package proc

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// On systems other than Linux a command is its process group: what left that is not
// found, and neither is it once the leader is reaped, which is when it ends.

const rssUnit = 1024 // bytes, in which rusage counts memory on most of them

// BootID is for Linux only: empty.
func BootID() string { return "" }

func identify(pid int) Identity { return Identity{PID: pid} }

func identity(pid int) (Identity, error) { return identify(pid), nil }

// Adopt is for Linux only: the error is errors.ErrUnsupported.
func Adopt() error { return errors.ErrUnsupported }

// EndOrphans does nothing here: orphans could not be told from others.
func EndOrphans(context.Context, Identity, string, string, int64, time.Duration) (ended int, err error) {
	return 0, nil
}

// NewCgroup says that there are no cgroups here.
func NewCgroup(string) (dir string, err error) { return "", ErrNoCgroups }

// SweepCgroups is for Linux only: it does nothing.
func SweepCgroups(time.Duration) {}

// ProbeCgroups says that there are no cgroups here.
func ProbeCgroups() error { return ErrNoCgroups }

// HasController says that there are no cgroups here.
func HasController(string) error { return ErrNoCgroups }

// EnableController says that there are no cgroups here.
func EnableController(string) error { return ErrNoCgroups }

// ProbePrivateTmp is for Linux only: the error is errors.ErrUnsupported.
func ProbePrivateTmp() error { return errors.ErrUnsupported }

func hideTmp(string, string) error { return errors.ErrUnsupported }

type cgroup string

func (cgroup) remove() error  { return nil }
func (cgroup) release() error { return nil }

func (cgroup) limit(Limits) error { return ErrNoCgroups }
func (cgroup) outOfMemory() bool  { return false }

func (c cgroup) attach(*syscall.SysProcAttr) (closeDir func(), err error) {
	if c != "" {
		return nil, ErrNoCgroups
	}
	return func() {}, nil
}

func refused(error) bool { return false }

func leaveOut(*syscall.SysProcAttr) {}

// registry is of nothing where nothing is adopted.
type registry struct{}

var commands registry

func (registry) start(f func() (*os.Process, error)) (*os.Process, error) { return f() }
func (registry) remove(int)                                               {}
func (registry) reap()                                                    {}

// awaitEnd waits for a child to end, and reaps it.
func awaitEnd(p *os.Process) *os.ProcessState {
	state, err := p.Wait()
	if err != nil {
		return nil
	}
	return state
}

// groupTree is the process group of a command, as one member.
type groupTree struct{ process *Process }

func (p *Process) tree() tree { return groupTree{p} }

func (t groupTree) find(func(key) bool) ([]member, error) {
	select {
	case <-t.process.exited: // its number may be another's
		return nil, nil
	default:
		id := t.process.id.PID
		return []member{{pid: id, group: id, session: id}}, nil
	}
}

func (t groupTree) term(m member) bool { return unix.Kill(-m.group, unix.SIGTERM) == nil }

func (t groupTree) kill(m member) bool { return unix.Kill(-m.group, unix.SIGKILL) == nil }
func (t groupTree) killAll()           {}

func closeOnExec() {
	const first, last = 3, 255
	for fd := first; fd <= last; fd++ {
		syscall.CloseOnExec(fd)
	}
}

func checkLimit(l Rlimit) error { return fmt.Errorf("limit %s: %w", l.Name, errors.ErrUnsupported) }
func setLimit(l Rlimit) error   { return checkLimit(l) }
func raiseLimit(l Rlimit) error { return checkLimit(l) }

func refusePrivileges() error { return errors.ErrUnsupported }

func nameSelf(string) {}

// diedAs knows nothing here: it is taken for having become the command.
func diedAs(int, string) bool { return false }

func signalName(s syscall.Signal) string { return unix.SignalName(s) }
