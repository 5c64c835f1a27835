package supervisor

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
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

// TestSecretsOfADeadSupervisor checks that what a supervisor has left of its command's secrets is gone when
// its attempt is taken over, and when that is discarded as it never began.
func TestSecretsOfADeadSupervisor(t *testing.T) {
	for name, remove := range map[string]func(p place, h header, k Key) error{
		"taken over": func(p place, h header, _ Key) error {
			d, err := takeOver(t.Context(), p, h, 0)
			if err != nil {
				return err
			}
			return d.Close()
		},
		"discarded": func(p place, _ header, k Key) error { return Discard(Options{Dir: p.root}, k) },
	} {
		t.Run(name, func(t *testing.T) {
			p, spec := beginning(t)
			secrets := filepath.Join(t.TempDir(), secretPrefix+"left")
			for _, dir := range []string{secrets, secrets + ".tmp", p.path} {
				if err := os.MkdirAll(dir, 0o700); err != nil {
					t.Fatal(err)
				}
			}
			if err := os.WriteFile(filepath.Join(secrets, "s"), []byte("secret"), 0o600); err != nil {
				t.Fatal(err)
			}
			h := header{Supervisor: proc.Identity{PID: 1 << 30, Boot: proc.BootID()}, Spec: spec, Secrets: secrets}
			f, err := createFile(p.spool(), h)
			if err == nil {
				err = f.Close()
			}
			if err != nil {
				t.Fatal(err)
			}
			if err := remove(p, h, spec.Key); err != nil {
				t.Error(err)
			}
			if left, err := filepath.Glob(secrets + "*"); len(left) > 0 || err != nil {
				t.Errorf("left is %v, %v", left, err)
			}
		})
	}
}
