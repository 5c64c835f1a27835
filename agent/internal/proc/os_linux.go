package proc

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const rssUnit = 1024 // bytes, in which rusage counts memory

// awaitEnd waits for a child to end, and leaves it unreaped.
func awaitEnd(p *os.Process) *os.ProcessState {
	for {
		err := unix.Waitid(unix.P_PID, p.Pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			return nil
		}
	}
}

// attach makes the child that is started with attr begin in the cgroup.
func (c cgroup) attach(attr *syscall.SysProcAttr) (closeDir func(), err error) {
	if c == "" {
		return func() {}, nil
	}
	dir, err := os.OpenFile(string(c), unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, err
	}
	attr.UseCgroupFD, attr.CgroupFD = true, int(dir.Fd())
	return func() { _ = dir.Close() }, nil // nothing was written to it
}

// leaveOut undoes attach.
func leaveOut(attr *syscall.SysProcAttr) { attr.UseCgroupFD, attr.CgroupFD = false, 0 }

// refused reports whether a child could not be put into a cgroup.
func refused(err error) bool {
	var exec *ExecError
	return err != nil && !errors.As(err, &exec) && (errors.Is(err, unix.EBUSY) ||
		errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENODEV))
}

// closeOnExec has no descriptor but the three outlive the exec.
func closeOnExec() {
	const first = 3
	if unix.CloseRange(first, 1<<31-1, unix.CLOSE_RANGE_CLOEXEC) == nil {
		return
	}
	names, err := os.ReadDir("/proc/self/fd") // a kernel before 5.11
	if err != nil {
		return
	}
	for _, name := range names {
		if fd, err := strconv.Atoi(name.Name()); err == nil && fd >= first {
			syscall.CloseOnExec(fd)
		}
	}
}

var limits = map[string]int{
	"as": unix.RLIMIT_AS, "core": unix.RLIMIT_CORE, "cpu": unix.RLIMIT_CPU,
	"data": unix.RLIMIT_DATA, "fsize": unix.RLIMIT_FSIZE, "locks": unix.RLIMIT_LOCKS,
	"memlock": unix.RLIMIT_MEMLOCK, "msgqueue": unix.RLIMIT_MSGQUEUE, "nice": unix.RLIMIT_NICE,
	"nofile": unix.RLIMIT_NOFILE, "nproc": unix.RLIMIT_NPROC, "rss": unix.RLIMIT_RSS,
	"rtprio": unix.RLIMIT_RTPRIO, "rttime": unix.RLIMIT_RTTIME,
	"sigpending": unix.RLIMIT_SIGPENDING, "stack": unix.RLIMIT_STACK,
}

func checkLimit(l Rlimit) error {
	if _, ok := limits[l.Name]; !ok {
		return fmt.Errorf("%w: there is no limit %q", fs.ErrInvalid, l.Name)
	}
	if l.Soft > l.Hard {
		return fmt.Errorf("%w: limit %s: soft above hard", fs.ErrInvalid, l.Name)
	}
	return nil
}

// setLimit sets a limit of this process. The one of nofile is the command's from now on:
// exec does not bring back what it was before the runtime raised it.
func setLimit(l Rlimit) error {
	return syscall.Setrlimit(limits[l.Name], &syscall.Rlimit{Cur: l.Soft, Max: l.Hard})
}

// raiseLimit makes room for a limit, without setting it yet.
func raiseLimit(l Rlimit) error {
	var now syscall.Rlimit
	if err := syscall.Getrlimit(limits[l.Name], &now); err != nil || now.Max >= l.Hard {
		return err
	}
	return syscall.Setrlimit(limits[l.Name], &syscall.Rlimit{Cur: now.Cur, Max: l.Hard})
}

// refusePrivileges keeps this thread, and what it executes, from getting more rights.
func refusePrivileges() error { return unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) }

// nameSelf gives this process the name of a program, which an exec takes away.
func nameSelf(name string) {
	_ = os.WriteFile("/proc/self/comm", []byte(name), 0) // then its death is taken for the command's
}

// diedAs reports whether a child, which is dying or becoming another program, died before
// it was one.
func diedAs(pid int, name string) bool {
	const tries = 1000
	for range tries {
		m, err := proc.member(pid)
		switch {
		case IsShort(err): // it is looked at again
		case err != nil || m.name != name:
			return false
		case m.dead:
			return true
		}
		time.Sleep(time.Millisecond) // it is about to be either
	}
	return false
}

func signalName(s syscall.Signal) string {
	if name := unix.SignalName(s); name != "" {
		return name
	}
	return fmt.Sprintf("SIG%d", int(s))
}
