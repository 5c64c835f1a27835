package proc

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/harpcaller/harp/internal/needs"
)

// TestSweepCgroups checks that of the cgroups that are there those are removed which were made here, are old enough, and have
// nothing in them or below them: others are somebody's.
func TestSweepCgroups(t *testing.T) {
	parent, err := NewCgroup(fmt.Sprintf("sweep-%d", os.Getpid()))
	if err != nil {
		needs.Missing(t, err)
	}
	made := map[string]bool{"harp.empty": false, "harp.below": false, "harp.below/inner": false, "harp.used": true, "harp.used/inner": true, "other": true}
	for _, name := range []string{"harp.empty", "harp.below", "harp.below/inner", "harp.used", "harp.used/inner", "other"} {
		err = errors.Join(err, os.Mkdir(filepath.Join(parent, name), 0o755))
	}
	if err != nil {
		t.Fatal(err)
	}
	p, err := Start(Spec{Argv: []string{"/bin/sleep", "1000"}}, Options{Cgroup: filepath.Join(parent, "harp.used/inner")})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		p.End(0)
		p.Wait()
		if err := errors.Join(os.Remove(filepath.Join(parent, "other")), cgroup(parent).remove()); err != nil {
			t.Error(err)
		}
	}()
	sweepCgroups(parent, time.Hour)
	for name := range made {
		if !isDir(filepath.Join(parent, name)) {
			t.Errorf("%s is gone, and was young", name)
		}
	}
	sweepCgroups(parent, 0)
	for name, want := range made {
		if is := isDir(filepath.Join(parent, name)); is != want {
			t.Errorf("%s is there: %t", name, is)
		}
	}
}
