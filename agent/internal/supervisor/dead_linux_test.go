package supervisor

import (
	"errors"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"testing"

	"github.com/harpcaller/harp/agent/internal/proc"
)

// TestLeftRunningIsNotEndedUnread checks that what a command was to leave running is not ended as
// long as the file which may say that the command has ended cannot be read.
func TestLeftRunningIsNotEndedUnread(t *testing.T) {
	p, spec := beginning(t)
	spec.Leave = true
	left := exec.Command("sleep", "1000")
	left.Env = []string{"HARP_JOB=" + spec.Job, "HARP_ATTEMPT=" + strconv.FormatInt(spec.Attempt, 10)}
	left.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := left.Start(); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(p.spool(), 0o700); err != nil { // which is opened, and cannot be read
		t.Fatal(err)
	}
	h := header{Supervisor: proc.Identity{PID: 1 << 30, Boot: proc.BootID()}, Spec: spec}
	if d, err := takeOver(t.Context(), p, h, 0); !errors.Is(err, syscall.EISDIR) || errors.Is(err, ErrGone) {
		t.Errorf("%+v, %v", d, err)
	}
	if err := left.Process.Signal(syscall.SIGUSR1); err != nil {
		t.Error(err)
	}
	_ = left.Wait() // a signal has ended it, which whoever started the test has not made it ignore
	if by := left.ProcessState.Sys().(syscall.WaitStatus).Signal(); by != syscall.SIGUSR1 {
		t.Errorf("it was ended by %v", by)
	}
}
