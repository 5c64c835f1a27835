//go:build linux

package agent_test

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/needs"
	"github.com/harpcaller/harp/internal/wire"
)

// stuck is a command that says its number, and then writes to a file.
const stuck = `
stuck:
  params: {file: {type: path, required: true}}
  command: [/bin/sh, -c, 'echo $$; echo x > "$1"', sh, "{{.file}}"]
  grace: 10ms
`

// callStuck calls a command that writes to a disk that is frozen, and waits until it sleeps
// there.
func callStuck(t *testing.T, c *commander, dir string) (x *exchange, of process) {
	t.Helper()
	x = c.peer.call("stuck", harp.Args{"file": filepath.Join(dir, "file")}).accepted()
	expect[wire.Records](x, wire.TypeRecords)
	of = only(t, x.id)
	until(t, "it sleeps", func() bool {
		b, err := os.ReadFile("/proc/" + strconv.Itoa(of.pid) + "/stat")
		return err == nil && strings.Contains(string(b), ") D ")
	})
	return x, of
}

// What is left of a command whose supervisor died, and cannot be ended, keeps the attempt
// open, and the dispatcher is told which processes it is.
func TestOrphanThatCannotEnd(t *testing.T) {
	t.Parallel() // what outlives KILL is waited for, five seconds
	for name, dir := range map[string]string{"of a supervisor of its own": t.TempDir(), "of one that ends with the agent": ""} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			disk, thaw := needs.FrozenDisk(t)
			c := &commander{t: t, d: listen(t, loopback{}), dir: dir, load: procedureDir(t, stuck)}
			c.boot()
			x, of := callStuck(t, c, disk)
			signalTo(t, of.parent, syscall.SIGKILL)
			if s := x.stopping(); s.Cause != "" || !slices.Contains(s.Left, int64(of.pid)) {
				t.Errorf("of %d it is said %+v", of.pid, s)
			}
			thaw()
			if end := x.ending(); !end.Gone {
				t.Errorf("it ended with %+v", end)
			}
		})
	}
}

// An agent that stops does not wait for what cannot be ended of a command that was to end
// with it, whatever was to end that before, and does not say that it has: the supervisor goes
// on ending it, or nothing but KILL is left to come.
func TestAgentStopsBesideWhatCannotEnd(t *testing.T) {
	t.Parallel()
	for name, ended := range map[string]func(x *exchange, of process){
		"it runs":             nil,
		"it was cancelled":    func(x *exchange, _ process) { x.cancel() },
		"its supervisor died": func(_ *exchange, of process) { signalTo(t, of.parent, syscall.SIGKILL) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			disk, thaw := needs.FrozenDisk(t)
			c := &commander{t: t, d: listen(t, loopback{}), load: procedureDir(t, stuck)}
			c.boot()
			x, of := callStuck(t, c, disk)
			if ended != nil {
				ended(x, of)
				for len(x.stopping().Left) == 0 {
				}
			}
			c.stop()
			for {
				f, err := x.x.Receive(t.Context())
				if err != nil {
					break
				}
				if f.Type == wire.TypeEnd {
					t.Error("it is said to have ended")
				}
			}
			if len(processesOf(t, x.id)) != 1 {
				t.Error("it has ended")
			}
			thaw()
			until(t, "it is ended", func() bool { return len(processesOf(t, x.id)) == 0 })
			until(t, "its supervisor has ended", func() bool {
				b, err := os.ReadFile("/proc/" + strconv.Itoa(of.parent) + "/cmdline")
				return err != nil || len(b) == 0
			})
			removeCgroups(t, x.id)
		})
	}
}
