//go:build linux

package agent_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

// TestDirIsRenamedWhileACommandRuns checks that an agent goes on in a directory that was renamed since
// the last one left it with a command that runs: what that prints and how it ends is told, its supervisor's
// folder is gone then, and there is none where it was before, whoever has that name now.
func TestDirIsRenamedWhileACommandRuns(t *testing.T) {
	for name, inPlace := range map[string]bool{"and nothing is in its place": false, "and another is in its place": true} {
		t.Run(name, func(t *testing.T) {
			was := filepath.Join(t.TempDir(), "agent")
			c := newCommander(t, was)
			x, w := c.callLines()
			c.stop()
			c.dir = was + "-renamed"
			if err := os.Rename(was, c.dir); err != nil {
				t.Fatal(err)
			}
			other := filepath.Join(was, "run", x.id+".1")
			if inPlace {
				if err := os.MkdirAll(other, 0o700); err != nil {
					t.Fatal(err)
				}
			}
			c.boot()
			tell(t, w, "b\nend\n")
			c.delivers(x, "b|end")
			c.nothingLeft()
			if _, err := os.Stat(other); inPlace != (err == nil) || err != nil && !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("what is where it was before: %v", err)
			}
			until(t, "its supervisor has gone", func() bool { return len(supervisors(t)) == 0 })
		})
	}
}
