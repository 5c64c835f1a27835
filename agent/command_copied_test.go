//go:build linux

package agent_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/agent"
)

// TestCopyOfADirEndsWhatTheOriginalRuns checks that an agent does not begin in a copy of a
// directory in which something had begun: it would end that, and say that it has gone.
func TestCopyOfADirEndsWhatTheOriginalRuns(t *testing.T) {
	for name, test := range map[string]struct {
		stopped bool   // the first agent
		without string // what was not copied
	}{
		"its agent runs":       {},
		"its agent is stopped": {stopped: true},
		"without commands":     {without: "run"},
		"without the journal":  {without: "journal"},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCommander(t, t.TempDir())
			x, w := c.callLines()
			if test.stopped {
				c.stop()
			}
			dir := filepath.Join(t.TempDir(), "copy")
			if out, err := exec.CommandContext(t.Context(), "cp", "-a", c.dir, dir).CombinedOutput(); err != nil {
				t.Fatal(err, string(out))
			}
			if test.without != "" {
				if err := os.RemoveAll(filepath.Join(dir, test.without)); err != nil {
					t.Fatal(err)
				}
			}
			err := connectIn(t, dir)
			var copied *agent.CopiedDirError
			if !errors.As(err, &copied) || !errors.Is(err, harp.ErrConflict) || copied.Job != x.id || copied.Dir != dir {
				t.Errorf("the agent of the copy: %v", err)
			}
			if test.stopped {
				c.boot()
			}
			tell(t, w, "b\nend\n")
			c.delivers(x, "b|end")
			c.nothingLeft()
		})
	}
}

// TestCopyOfADirWhoseCommandsCannotBeRead checks that an agent in a copy of a directory which could not look at what
// had begun there as it began does not take it on, and end it, when it can.
func TestCopyOfADirWhoseCommandsCannotBeRead(t *testing.T) {
	c := newCommander(t, t.TempDir())
	x, w := c.callLines()
	copied := filepath.Join(t.TempDir(), "copy")
	if out, err := exec.CommandContext(t.Context(), "cp", "-a", c.dir, copied).CombinedOutput(); err != nil {
		t.Fatal(err, string(out))
	}
	spool := filepath.Join(copied, "run", x.id+".1", "spool")
	err := errors.Join(os.RemoveAll(filepath.Join(copied, "journal")), os.Rename(spool, spool+".away"), os.Symlink("spool", spool))
	if err != nil {
		t.Fatal(err)
	}
	of := &commander{t: t, d: listen(t, loopback{}), dir: copied, load: c.load}
	of.boot()
	if err := os.Rename(spool+".away", spool); err != nil {
		t.Fatal(err)
	}
	if err := of.agent.Drain(t.Context()); err != nil { // it has looked
		t.Error(err)
	}
	of.stop()
	var again *agent.CopiedDirError
	if err := connectIn(t, copied); !errors.As(err, &again) || again.Job != x.id {
		t.Errorf("the next agent of the copy: %v", err)
	}
	tell(t, w, "b\nend\n")
	c.delivers(x, "b|end")
	c.nothingLeft()
}

// TestCopyOfADirInWhichAllHasEnded checks that an agent begins in a copy of a directory in which
// nothing goes on.
func TestCopyOfADirInWhichAllHasEnded(t *testing.T) {
	c := newCommander(t, t.TempDir())
	x, w := c.callLines()
	tell(t, w, "b\nend\n")
	c.delivers(x, "b|end")
	c.nothingLeft()
	was := c.peer.hello.Journal
	c.stop()
	original := c.dir
	c.dir = filepath.Join(t.TempDir(), "copy")
	if out, err := exec.CommandContext(t.Context(), "cp", "-a", original, c.dir).CombinedOutput(); err != nil {
		t.Fatal(err, string(out))
	}
	c.boot()
	if h := c.peer.held; len(h) > 0 {
		t.Errorf("the agent of the copy holds %+v", h)
	}
	if c.peer.hello.Journal == was {
		t.Error("the copy says that it is the journal that it was copied from")
	}
}

// TestCommandGoesOnInAMovedDir checks that a directory that was renamed is no copy.
func TestCommandGoesOnInAMovedDir(t *testing.T) {
	c := newCommander(t, t.TempDir())
	x, w := c.callLines()
	was := c.peer.hello.Journal
	c.stop()
	moved := filepath.Join(t.TempDir(), "moved")
	if err := os.Rename(c.dir, moved); err != nil {
		t.Fatal(err)
	}
	c.dir = moved
	c.boot()
	if is := c.peer.hello.Journal; is != was {
		t.Errorf("journal %s is %s as its directory was renamed", was, is)
	}
	tell(t, w, "b\nend\n")
	c.delivers(x, "b|end")
}
