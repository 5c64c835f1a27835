package supervisor_test

import (
	"syscall"
	"testing"

	"github.com/harpcaller/harp/agent/internal/supervisor"
	"github.com/harpcaller/harp/internal/needs"
)

// TestNoGroupsMeansNone checks that a command whose procedure says groups: [] has no
// supplementary group, whatever groups the agent has. It is not run beside others, as
// the groups are the whole process's.
func TestNoGroupsMeansNone(t *testing.T) {
	needs.Root(t)
	had, err := syscall.Getgroups()
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Setgroups([]int{4, 6}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := syscall.Setgroups(had); err != nil {
			t.Error(err)
		}
	})
	for name, o := range map[string]supervisor.Options{"inside": {}, "supervised": supervised(t)} {
		t.Run(name, func(t *testing.T) {
			spec := shell("grep ^Groups: /proc/self/status")
			spec.Command.Groups = []string{}
			if got := follow(t, start(t, o, spec), 0); got.text("stdout") != "Groups:\t \n" {
				t.Errorf("the command has %q, want none", got.text("stdout"))
			}
		})
	}
}
