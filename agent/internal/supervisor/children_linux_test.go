package supervisor

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"strconv"
	"testing"

	"github.com/harpcaller/harp/agent/internal/proc"
)

// TestASupervisorOfUnknownIdentityStaysAZombie checks that a supervisor which has died, and of which this process
// could not find out who it was, as files had run out, is reaped when the next one is started.
func TestASupervisorOfUnknownIdentityStaysAZombie(t *testing.T) {
	dead, living := exec.Command("true"), exec.Command("cat")
	stdin, err := living.StdinPipe()
	if err = errors.Join(err, dead.Start(), living.Start()); err != nil {
		t.Fatal(err)
	}
	addChild(living.Process, proc.IdentityOf(living.Process.Pid))
	addChild(dead.Process, proc.Identity{PID: dead.Process.Pid})
	for !hasEnded(dead.Process) {
		select {
		case <-t.Context().Done():
			t.Fatal("it does not end")
		default:
		}
	}
	p, spec := beginning(t)
	h, err := Start(t.Context(), Options{Dir: p.root}, spec)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat("/proc/" + strconv.Itoa(dead.Process.Pid)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("it is not reaped: %v", err)
	}
	if hasEnded(living.Process) {
		t.Error("one that lives is taken for dead")
	}
	drop(stdin)
	place{}.reap(proc.IdentityOf(living.Process.Pid))
	if _, err := h.Follow(t.Context(), 0, func(int64, Record) error { return nil }, func(Stop) {}); err != nil {
		t.Error(err)
	}
	if err := errors.Join(h.Forget(), h.Close()); err != nil {
		t.Error(err)
	}
}
