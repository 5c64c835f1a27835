package supervisor_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/harpcaller/harp/agent/internal/supervisor"
	"github.com/harpcaller/harp/internal/needs"
)

// TestNiceAndNoNewPrivileges checks what a command runs with that its launcher has set.
func TestNiceAndNoNewPrivileges(t *testing.T) {
	wirings(t, func(t *testing.T, o supervisor.Options) {
		const script = `nice; sed -n s/^NoNewPrivs:.//p /proc/self/status`
		spec := shell(script)
		was, err := unix.Getpriority(unix.PRIO_PROCESS, 0)
		if err != nil {
			t.Fatal(err)
		}
		spec.Command.Nice, spec.Command.NoNewPrivileges = new(min(20-was+3, 19)), true // the kernel counts from 20 down
		l := follow(t, start(t, o, spec), 0)
		if want := fmt.Sprintf("%d\n1\n", *spec.Command.Nice); l.text("stdout") != want {
			t.Errorf("it runs with %q, want %q: %+v", l.text("stdout"), want, l.end)
		}
		l = follow(t, start(t, o, shell(script)), 0)
		if want := fmt.Sprintf("%d\n0\n", 20-was); l.text("stdout") != want {
			t.Errorf("without it runs with %q, want %q", l.text("stdout"), want)
		}
	})
}

// TestNoCgroupIsLeftBehind checks that the cgroup of a command is gone when that has ended, and when it was
// not begun after all.
func TestNoCgroupIsLeftBehind(t *testing.T) {
	probe, err := supervisor.NewCgroup(supervisor.Spec{Key: supervisor.Key{Job: "probe", Attempt: 1}})
	if err == nil && probe == "" {
		err = errors.New("there are no cgroups here")
	}
	if err != nil {
		needs.Missing(t, err)
	}
	if err := os.Remove(probe); err != nil {
		t.Fatal(err)
	}
	of := func(spec supervisor.Spec) []string {
		left, err := filepath.Glob(filepath.Dir(probe) + "/harp." + spec.Job + ".*")
		if err != nil {
			t.Error(err)
		}
		return left
	}
	wirings(t, func(t *testing.T, o supervisor.Options) {
		ends := shell("echo begun; read -r go")
		ends.Stdin = []byte("go\n")
		h := start(t, o, ends)
		if l := follow(t, h, 0); !l.end.OK {
			t.Errorf("it ended with %+v", l.end)
		}
		denied, refusal := shell("true"), errors.New("not now")
		at := o
		at.Commit = func() error {
			if len(of(denied)) != 1 {
				t.Errorf("before it begins there are %v", of(denied))
			}
			return refusal
		}
		if _, err := supervisor.Start(t.Context(), at, denied); !errors.Is(err, refusal) {
			t.Errorf("the error is %v", err)
		}
		missing := shell("")
		missing.Command.Argv = []string{"/no/such/program"}
		var exec *supervisor.ExecError
		if _, err := supervisor.Start(t.Context(), o, missing); !errors.As(err, &exec) {
			t.Errorf("the error is %v", err)
		}
		for _, spec := range []supervisor.Spec{ends, denied, missing} {
			if left := of(spec); len(left) > 0 {
				t.Errorf("left is %v", left)
			}
		}
	})
}
