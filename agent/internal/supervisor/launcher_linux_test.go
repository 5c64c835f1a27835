package supervisor_test

import (
	"fmt"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/harpcaller/harp/agent/internal/supervisor"
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
