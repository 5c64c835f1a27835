package supervisor_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/harpcaller/harp/agent/internal/proc"
	"github.com/harpcaller/harp/agent/internal/supervisor"
	"github.com/harpcaller/harp/internal/needs"
)

// fullCgroupArg is the first argument of a test binary that is an agent in a cgroup in which there may be no others.
const fullCgroupArg = "full cgroup"

func init() { mains[fullCgroupArg] = fullCgroupMain }

// fullCgroupMain starts commands in a cgroup. It prints what is wrong.
func fullCgroupMain(args []string) int {
	if err := os.WriteFile(filepath.Join(args[0], "cgroup.procs"), []byte(strconv.Itoa(os.Getpid())), 0); err != nil {
		fmt.Println(err)
		return 1
	}
	for name, o := range map[string]supervisor.Options{"supervised": {Dir: args[1]}, "tied": {}, "inside": supervisor.Inside()} {
		h, err := supervisor.Start(context.Background(), o, shell("exit 3"))
		if err != nil {
			fmt.Println(name, "without limits:", err)
			continue
		}
		end, err := h.Follow(context.Background(), 0, func(int64, supervisor.Record) error { return nil }, ignore)
		if err = errors.Join(err, h.Forget(), h.Close()); err != nil || end.Exit != 3 {
			fmt.Println(name, "without limits:", end.Status, err)
		}
		limited := shell("exit 3")
		limited.Command.Limits.PIDs = 16
		_, err = supervisor.Start(context.Background(), o, limited)
		var refused *supervisor.ExecError
		if !errors.As(err, &refused) || !proc.IsShort(err) || !strings.Contains(err.Error(), "cgroup.max.descendants") {
			fmt.Println(name, "with limits:", err)
		}
	}
	return 0
}

// TestAsManyCgroupsAsThereMayBe checks that a command without limits is started where no more cgroups may be made, as
// it is where there are none: it would be put off for ever. One with limits is put off, and the reason told.
func TestAsManyCgroupsAsThereMayBe(t *testing.T) {
	dir, err := proc.NewCgroup(fmt.Sprintf("full-%d", os.Getpid()))
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "cgroup.max.descendants"), []byte("0"), 0)
	}
	if err != nil {
		needs.Missing(t, err)
	}
	defer func() {
		until(t, "the cgroup is empty", func() bool { return os.Remove(dir) == nil })
	}()
	over, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	out, err := exec.CommandContext(over, "/proc/self/exe", fullCgroupArg, dir, t.TempDir()).CombinedOutput()
	if err != nil || len(out) > 0 {
		t.Errorf("%v: %.2000s", err, out)
	}
}

// TestCgroupsThatAreLeftOver checks that with the list of attempts empty cgroups go which are older than anything that is
// just being prepared.
func TestCgroupsThatAreLeftOver(t *testing.T) {
	for name, age := range map[string]time.Duration{"old": 61 * time.Minute, "young": 50 * time.Minute} {
		dir, err := proc.NewCgroup(fmt.Sprintf("%s-%d", name, os.Getpid()))
		if err != nil {
			needs.Missing(t, err)
		}
		defer func() { _ = os.Remove(dir) }() // the old one is gone
		then := time.Now().Add(-age)
		if err := os.Chtimes(dir, then, then); err != nil {
			t.Fatal(err)
		}
		if _, err := supervisor.List(supervisor.Options{Dir: t.TempDir()}); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(dir); (err == nil) != (name == "young") {
			t.Errorf("the %s one: %v", name, err)
		}
	}
}
