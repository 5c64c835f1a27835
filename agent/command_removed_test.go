//go:build linux

package agent_test

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/harpcaller/harp/internal/wire"
)

// TestWhatIsKnownOfACommandIsRemovedWhileItRuns checks that a command of which an agent finds nothing but its start in
// the journal is ended before it is said to be gone: it would run beside the next attempt.
func TestWhatIsKnownOfACommandIsRemovedWhileItRuns(t *testing.T) {
	c := newCommander(t, t.TempDir())
	x, _ := c.callLines()
	only(t, x.id)
	c.stop()
	if err := os.RemoveAll(filepath.Join(c.dir, "run")); err != nil {
		t.Fatal(err)
	}
	c.boot()
	if h := c.peer.held; len(h) != 1 || h[0].Job != x.id || h[0].State == wire.HeldEnded {
		t.Fatalf("the next agent holds %+v", h)
	}
	if end, _ := c.peer.resume(x.id, 0).endedFrom(0); !end.Gone {
		t.Errorf("it ended with %+v", end)
	}
	if list := processesOf(t, x.id); len(list) > 0 {
		t.Errorf("%+v run on", list)
	}
	for _, pid := range supervisors(t) { // which notices within a minute that its folder is gone
		_ = syscall.Kill(pid, syscall.SIGTERM)
	}
}
