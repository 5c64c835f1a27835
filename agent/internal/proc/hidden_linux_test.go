package proc

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/harpcaller/harp/internal/needs"
)

const nobody = 65534

func init() {
	helpers["hide"] = hideProcesses
	helpers["end orphans"] = endOrphans
}

// hideProcesses runs a helper as nobody, in mounts of its own, where /proc hides the processes of others.
func hideProcesses(args []string) {
	err := ownMounts()
	if err == nil {
		err = syscall.Mount("proc", "/proc", "proc", 0, "hidepid=2")
	}
	if err == nil {
		cmd := exec.Command("/proc/self/exe", append([]string{"helper"}, args...)...)
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
		cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
		err = cmd.Run()
	}
	if err != nil {
		fmt.Println(err)
	}
}

// endOrphans ends what a supervisor has left in a cgroup, and prints why that failed.
func endOrphans(args []string) {
	_, err := EndOrphans(context.Background(), Identity{Boot: BootID()}, args[0], "hidden", 1, 0)
	fmt.Println(err)
}

// TestEndHiddenOrphans checks that what a dead supervisor has left in the cgroup of its command is ended
// where the agent cannot see it: a program that became another user's, and /proc hides those.
func TestEndHiddenOrphans(t *testing.T) {
	needs.Root(t)
	dir, err := NewCgroup("hidden-orphans")
	if err != nil {
		needs.Missing(t, err)
	}
	for _, name := range []string{"", "cgroup.procs", "cgroup.kill"} {
		if err := os.Chown(filepath.Join(dir, name), nobody, nobody); err != nil {
			t.Fatal(err)
		}
	}
	left := exec.Command("sleep", "1000")
	left.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	closeDir, err := cgroup(dir).attach(left.SysProcAttr)
	if err != nil {
		t.Fatal(err)
	}
	defer closeDir()
	if err := left.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- left.Wait() }()
	out, _ := exec.Command("/proc/self/exe", "helper", "hide", "end orphans", dir).CombinedOutput()
	if string(out) != "<nil>\n" {
		t.Errorf("it says %q", out)
	}
	in, err := cgroup(dir).members()
	if len(in) > 0 || err != nil {
		t.Errorf("%d processes are in the cgroup, %v", len(in), err)
	}
	_ = left.Process.Kill() // it may have ended
	if err := <-ended; err == nil {
		t.Error("it has ended by itself")
	}
	_ = os.Remove(dir) // it may be gone
}
