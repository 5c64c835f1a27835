//go:build linux

package harptest_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/agent"
	"github.com/harpcaller/harp/harptest"
)

// privates is a command that has a directory of its own in that for temporary files.
const privates = "private:\n  command: [/bin/true]\n  cwd: private\n"

// TestJobsBehindOneCauseAreRefusedOneAfterTheOther checks that commands which wait behind one that cannot be prepared
// are refused with it, and not each after ten minutes of its own.
func TestJobsBehindOneCauseAreRefusedOneAfterTheOther(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "private.yaml"), []byte(privates), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("TMPDIR", filepath.Join(dir, "none"))
	synctest.Test(t, func(t *testing.T) {
		sys := harptest.New(t, harptest.Options{Agents: []string{"web01"}, Register: func(a *agent.Agent) {
			if err := a.Load(dir); err != nil {
				t.Error(err)
			}
		}})
		call := func() *harp.Job {
			job, err := sys.Caller().Host("web01").Call(t.Context(), "private", nil)
			if err != nil {
				t.Fatal(err)
			}
			return job
		}
		began := time.Now()
		jobs := make([]*harp.Job, 5)
		for i := range jobs {
			jobs[i] = call()
			time.Sleep(time.Minute)
		}
		for i, job := range jobs {
			_, err := job.Get(t.Context())
			if took := time.Since(began); took < 10*time.Minute || took > 11*time.Minute {
				t.Errorf("job %d is refused after %s", i, took)
			}
			f := harp.FailureOf(err)
			if !errors.Is(err, harp.ErrRejected) || harp.RanOf(err) != harp.DidNotRun || f.Type != "exec" || !strings.Contains(f.Message, syscall.ENOENT.Error()) {
				t.Errorf("job %d: %+v", i, f)
			}
		}
		if err := os.Mkdir(os.TempDir(), 0o700); err != nil {
			t.Fatal(err)
		}
		if _, err := call().Get(t.Context()); err != nil {
			t.Errorf("when there is such a folder: %v", err)
		}
		if err := os.Remove(os.TempDir()); err != nil {
			t.Fatal(err)
		}
		began = time.Now()
		if _, err := call().Get(t.Context()); !errors.Is(err, harp.ErrRejected) || time.Since(began) < 10*time.Minute {
			t.Errorf("when there is none again: %v after %s", err, time.Since(began))
		}
	})
}
