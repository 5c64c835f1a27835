package supervisor_test

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/harpcaller/harp/agent/internal/proc"
	"github.com/harpcaller/harp/agent/internal/supervisor"
	"github.com/harpcaller/harp/internal/needs"
)

// TestProcessThatCannotEnd checks that an attempt has not ended while a process of it sleeps
// that not even KILL wakes, that it says which one that is, and that it ends when it can and
// leaves no cgroup behind.
func TestProcessThatCannotEnd(t *testing.T) {
	t.Parallel()
	hasCgroups := proc.ProbeCgroups() == nil
	for name, c := range map[string]struct {
		o      supervisor.Options
		byself bool
	}{
		"inside": {supervisor.Inside(), false}, "tied": {supervisor.Options{}, false}, "supervised": {supervised(t), false},
		"that its command left": {supervised(t), true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir, thaw := needs.FrozenDisk(t)
			script := `sh -c 'echo $$; echo x >"$1"' sh "$1"`
			if c.byself {
				script = `sh -c 'echo $$; echo x >"$1"' sh "$1" & read x <"$2"`
			}
			g := newGate(t)
			spec := shell(script, filepath.Join(dir, "file"), g.path)
			spec.Grace = 10 * time.Millisecond
			h := start(t, c.o, spec)
			pid, told := 0, 0
			end, err := h.Follow(t.Context(), 0, func(_ int64, r supervisor.Record) (err error) {
				pid, err = strconv.Atoi(string(r.Value))
				until(t, "it sleeps", func() bool { return sleeps(t, pid) })
				if n := len(cgroupsOf(t, spec.Job)); hasCgroups && n != 1 {
					t.Errorf("it has %d cgroups", n)
				}
				if c.byself {
					g.open(t)
				} else {
					h.Stop("cancel")
				}
				return err
			}, func(s supervisor.Stop) {
				if len(s.Left) == 0 {
					return
				}
				told++
				if !slices.Contains(s.Left, pid) || (s.Cause == "") != c.byself {
					t.Errorf("of %d it is said %+v", pid, s)
				}
				if err := h.Forget(); err == nil {
					t.Error("it has ended")
				}
				thaw()
			})
			if err != nil || end.Killed == 0 && c.byself || told == 0 {
				t.Errorf("it said %d times what will not end, and ended with %+v, %v", told, end, err)
			}
			if left := cgroupsOf(t, spec.Job); len(left) > 0 {
				t.Errorf("left: %v", left)
			}
		})
	}
}

// sleeps reports whether a process sleeps so that no signal wakes it.
func sleeps(t *testing.T, pid int) bool {
	t.Helper()
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		t.Fatal(err)
	}
	return strings.Contains(string(b), ") D ")
}

// cgroupsOf are the cgroups that were made for a job.
func cgroupsOf(t *testing.T, job string) []string {
	t.Helper()
	if proc.ProbeCgroups() != nil {
		return nil
	}
	dir, err := proc.NewCgroup("probe-" + job)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = os.Remove(dir) }() // an empty one
	found, err := filepath.Glob(filepath.Join(filepath.Dir(dir), "harp."+job+".*"))
	if err != nil {
		t.Fatal(err)
	}
	return found
}
