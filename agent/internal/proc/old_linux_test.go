package proc

import (
	"encoding/json"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/harpcaller/harp/internal/needs"
)

func init() { helpers["old kernel"] = superviseOnAnOldKernel }

// superviseOnAnOldKernel is the helper supervise where pidfd_open(2) fails, with an errno.
func superviseOnAnOldKernel(args []string) {
	errno, err := strconv.ParseUint(args[0], 10, 16)
	if err == nil {
		err = refuseCall(unix.SYS_PIDFD_OPEN, syscall.Errno(errno))
	}
	if err == nil {
		err = syscall.Exec("/proc/self/exe", helper("supervise", args[1]), os.Environ())
	}
	fmt.Println(err)
}

func init() { helpers["no clone3"] = superviseWithoutClone3 }

// superviseWithoutClone3 is the helper supervise where clone3(2) fails, by which a process begins in a cgroup.
func superviseWithoutClone3(args []string) {
	err := refuseCall(unix.SYS_CLONE3, unix.ENOSYS)
	if err == nil {
		err = syscall.Exec("/proc/self/exe", helper("supervise", args[0]), os.Environ())
	}
	fmt.Println(err)
}

// TestCgroupWhereClone3IsRefused checks that a command without limits is started in a sandbox that refuses clone3, as
// systemd makes one with RestrictNamespaces=, and that one with limits is refused.
func TestCgroupWhereClone3IsRefused(t *testing.T) {
	if err := ProbeCgroups(); err != nil {
		needs.Missing(t, err)
	}
	o := order{Spec: shell("echo up; exit 4"), How: "cgroup", Lines: 1, Exited: true}
	for name, launcher := range launchers {
		o.Launcher = launcher
		text, err := json.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		p := startPiped(t, Spec{Argv: helper("no clone3", string(text))}, Options{Stderr: os.Stderr})
		if got := p.outcome(t); got.Status.Exit != 4 {
			t.Errorf("%s: got %+v", name, got.Status)
		}
	}
}

// refuseCall has a system call fail on this thread, and in all that it executes.
func refuseCall(number uint32, errno syscall.Errno) error {
	runtime.LockOSThread()
	if err := refusePrivileges(); err != nil {
		return err
	}
	filter := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS}, // the number of the call
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: number, Jf: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(errno)},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
	}
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	_, _, failed := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0, uintptr(unsafe.Pointer(&program)))
	if failed != 0 {
		return os.NewSyscallError("seccomp", failed)
	}
	return nil
}

// TestAskOnAnOldKernel checks that a process is asked to end as often as elsewhere, once, and woken, on a
// kernel before 5.3 and in sandboxes that refuse pidfd_open.
func TestAskOnAnOldKernel(t *testing.T) {
	for _, errno := range []syscall.Errno{syscall.ENOSYS, syscall.EPERM} {
		t.Run(errno.Error(), func(t *testing.T) {
			t.Parallel()
			asked := t.TempDir() + "/asked"
			script := fmt.Sprintf(`trap 'echo asked >>%s; exit 4' TERM; echo up; kill -STOP $$; exit 5`, asked)
			text, err := json.Marshal(order{Spec: shell(script), How: "adopted", Lines: 1, Grace: 20 * time.Second})
			if err != nil {
				t.Fatal(err)
			}
			p := startPiped(t, Spec{Argv: helper("old kernel", strconv.Itoa(int(errno)), string(text))}, Options{Stderr: os.Stderr})
			if got := p.outcome(t); got.Status.Exit != 4 {
				t.Errorf("got %+v, want it to end by its trap", got.Status)
			}
			if got := read(t, asked); strings.Count(got, "asked") != 1 {
				t.Errorf("got %q, want it to be asked once", got)
			}
		})
	}
}
