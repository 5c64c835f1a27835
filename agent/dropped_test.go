//go:build linux

package agent_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/agent"
	"github.com/harpcaller/harp/internal/wire"
)

// awayAtOnce loses the dispatcher, which refuses the agent from now on.
func (c *commander) awayAtOnce() {
	c.t.Helper()
	c.d.set(func(d *dispatcher) { f := harp.FailureOf(harp.ErrUnavailable); d.refuse = &f })
	c.peer.session.Close(nil)
}

// back lets the dispatcher in again.
func (c *commander) back() {
	c.t.Helper()
	c.d.set(func(d *dispatcher) { d.refuse = nil })
	c.peer = <-c.d.sessions
}

// printed is how many bytes of output records are, and how many they say were dropped.
func printed(t *testing.T, records []wire.Record) (bytes, dropped int64) {
	t.Helper()
	for _, r := range records {
		dropped += r.Truncated
		if len(r.Value) == 0 {
			continue // it says nothing else
		}
		var text string
		if err := harp.Value(r.Value).Decode(&text); err != nil {
			t.Fatal(err)
		}
		if bytes += int64(len(text)); !r.Partial {
			bytes++
		}
	}
	return bytes, dropped
}

// floodBytes is how many bytes the procedure flood prints.
func floodBytes(n int) (bytes int64) {
	for i := range n {
		bytes += int64(len(fmt.Sprint(i+1))) + 90 + 1
	}
	return bytes
}

// What a command prints last while nobody is there to take it, and what there is no room
// for, is said to have been dropped, to the byte.
func TestOutputDroppedAtTheTailIsTold(t *testing.T) {
	for name, dir := range map[string]string{"supervised": t.TempDir(), "children": ""} {
		t.Run(name, func(t *testing.T) {
			c := newFaulty(t, dir, nil)
			c.limits = agent.Limits{MaxJobSpool: 200_000}
			c.restart()
			const n = 100_000
			x := c.peer.call("flood", harp.Args{"n": n}, func(c *wire.Call, _ *harp.Request) { c.Window = wire.MinWindow }).accepted()
			c.awayAtOnce()
			until(t, "the command has ended", func() bool { return len(processesOf(t, x.id)) == 0 })
			c.back()
			end, records := c.peer.resume(x.id, 0).endedFrom(0)
			if end.Gone || value[int](t, end) != 0 || end.Records != int64(len(records)) {
				t.Fatalf("it ended with %+v after %d records", end, len(records))
			}
			got, dropped := printed(t, records)
			if want := floodBytes(n); got+dropped != want || dropped == 0 {
				t.Errorf("of %d bytes %d arrived and %d are said to be dropped: %d are missing", want, got, dropped, want-got-dropped)
			}
		})
	}
}

// Records that the journal has no room for, of a function whose end it has, are said to
// have been dropped when the agent's process has ended meanwhile.
func TestRecordsThatOnlyMemoryHadAreTold(t *testing.T) {
	const many, size = 200, 1000
	for name, from := range map[string]int64{"it has none": 0, "it has some": 100} {
		t.Run(name, func(t *testing.T) {
			inMemory(t, func(t *testing.T, p place) {
				m := newMachine(t, p, func(a *agent.Agent) {
					agent.HandleStream(a, harp.NewStreamProc[none, []byte, int]("flood"), func(_ context.Context, _ none, emit func([]byte) error) (int, error) {
						for range many {
							if err := emit(make([]byte, size)); err != nil {
								return 0, err
							}
						}
						return many, nil
					})
				}, agent.Limits{MaxJobSpool: 20 * size})
				x := m.peer.call("flood", nil).accepted()
				time.Sleep(time.Minute)
				m.crash()
				for range 2 { // it is not acknowledged at first
					y := m.peer.resume(x.id, from)
					var got []wire.Record
					for {
						f := y.receive()
						if f.Type == wire.TypeEnd {
							break
						}
						var r wire.Records
						if err := wire.Decode(f.Body, &r); err != nil {
							t.Fatal(err)
						}
						got = append(got, r.Records...)
					}
					var bytes int64
					for _, r := range got {
						bytes += int64(len(r.Value)) + r.Truncated
					}
					const each = size + 3 // as it is encoded
					if want := each * (many - from); bytes != want || int64(len(got)) != many-from {
						t.Errorf("%d records are told, with %d bytes and what they say was dropped, of %d and %d", len(got), bytes, many-from, want)
					}
					m.crash()
				}
				end, _ := m.peer.resume(x.id, many).ended()
				if value[int](t, end) != many || end.Records != many {
					t.Errorf("END %+v", end)
				}
			})
		})
	}
}

// Records of a command that the journal has no room for stay with its supervisor, though
// the command has ended and the agent is restarted.
func TestRecordsThatOnlyASupervisorHasAreTold(t *testing.T) {
	c := newFaulty(t, t.TempDir(), nil)
	c.limits = agent.Limits{MaxJobSpool: 300_000, Grace: time.Millisecond}
	c.restart()
	const n = 2000
	x := c.peer.call("flood", harp.Args{"n": n}).accepted()
	for next := int64(0); next < n; { // none of which is acknowledged
		next += int64(len(expect[wire.Records](x, wire.TypeRecords).Records))
	}
	expect[wire.End](x, wire.TypeEnd)
	c.restart()
	end, records := c.peer.resume(x.id, 0).endedFrom(0)
	got, dropped := printed(t, records)
	if want := floodBytes(n); value[int](t, end) != 0 || got != want || dropped != 0 {
		t.Errorf("of %d bytes %d arrived and %d are said to be dropped; END %+v", want, got, dropped, end)
	}
	c.nothingLeft()
}

// So does the result of a command that the journal has no room for.
func TestResultThatOnlyASupervisorHasIsTold(t *testing.T) {
	const size = 200_000
	c := &commander{t: t, d: listen(t, loopback{}), dir: t.TempDir(), load: procedureDir(t, `
large:
  command: [/bin/sh, -c, 'head -c `+strconv.Itoa(size)+` /dev/zero | tr "\0" x >"$HARP_RESULT"']
  result: {from: file}
`)}
	c.limits = agent.Limits{MaxJobSpool: 300_000, Grace: time.Millisecond} // half of which its output has as long as it runs
	c.boot()
	x := c.peer.call("large", nil).accepted()
	expect[wire.End](x, wire.TypeEnd)
	c.restart()
	if end := c.peer.resume(x.id, 0).ending(); end.Dropped || len(value[string](t, end)) != size {
		t.Errorf("it ended without its result: %v, %d bytes", end.Dropped, len(end.Value))
	}
	c.nothingLeft()
}

// onDisk is how many bytes of a disk what is in a directory takes.
func onDisk(t *testing.T, dir string) (bytes int64) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
		var s syscall.Stat_t
		if err == nil {
			err = syscall.Lstat(path, &s)
		}
		if errors.Is(err, os.ErrNotExist) {
			return nil
		}
		bytes += s.Blocks * 512
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return bytes
}

// What commands print while the dispatcher is away is within the bounds of the agent, with
// that which their supervisors have: of all of them, and of each.
func TestOutputIsWithinBounds(t *testing.T) {
	const (
		mebi     = 1 << 20
		commands = 12
		n        = 80_000 // lines, some 7 MiB
	)
	dir := t.TempDir()
	c := newFaulty(t, dir, nil)
	c.limits = agent.Limits{MaxJournal: 8 * mebi, MaxJobSpool: mebi, Grace: time.Millisecond}
	c.restart()
	c.hasEnded(c.peer.call("flood", harp.Args{"n": 1}).accepted()) // what a supervisor needs in any case is there
	path, w := pipe(t)
	var jobs []*exchange
	for range commands {
		jobs = append(jobs, c.peer.call("held", harp.Args{"pipe": path, "n": n}).accepted())
	}
	c.awayAtOnce()
	tell(t, w, strings.Repeat("go\n", commands))
	for _, x := range jobs {
		until(t, "the command has ended", func() bool { return len(processesOf(t, x.id)) == 0 })
	}
	const each = 320 << 10 // a supervisor's notes, and what it frees at a time
	if got, most := onDisk(t, dir), int64(2*8*mebi+commands*each); got > most {
		t.Errorf("%d KiB are on the disk, at most %d may be", got>>10, most>>10)
	}
	c.back()
	for _, x := range jobs {
		end, records := c.peer.resume(x.id, 0).endedFrom(0)
		got, dropped := printed(t, records)
		if want := floodBytes(n); end.Gone || value[int](t, end) != 0 || got+dropped != want {
			t.Errorf("of %d bytes %d arrived and %d are said to be dropped; END %+v", want, got, dropped, end)
		}
		if got > mebi+2*wire.MinWindow {
			t.Errorf("a job had %d KiB of output", got>>10)
		}
	}
}

// hasEnded takes the end of a call.
func (c *commander) hasEnded(x *exchange) {
	c.t.Helper()
	if end, _ := x.rest(); end.Gone {
		c.t.Fatalf("it ended with %+v", end)
	}
}
