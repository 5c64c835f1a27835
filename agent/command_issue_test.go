//go:build linux

package agent_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/agent"
	"github.com/harpcaller/harp/internal/wire"
)

// hostileProcedures take what a caller makes up.
const hostileProcedures = `
brood:
  command: [/bin/sh, -c, 'i=0; while [ $i -lt 50 ]; do sh -c "setsid sh -c \"echo up; exec sleep 1000\" & exec sleep 1000" & i=$((i+1)); done; wait']
  grace: 1m
echo:
  params: {p: {}}
  command: [/usr/bin/printf, '%s', "{{.p}}"]
  result: {from: stdout}
echo.dash:
  params: {p: {dash: true}}
  command: [/bin/sh, -c, 'printf %s "$1"', sh, "{{.p}}"]
  result: {from: stdout}
environment:
  params: {p: {}}
  command: [/usr/bin/env]
  env: {MINE: "{{.p}}"}
flood:
  command: [/usr/bin/seq, -f, '%099.0f', "1", "10000000"]
`

func newHostile(t *testing.T, dir string) *commander {
	c := &commander{t: t, d: listen(t, loopback{}), dir: dir, load: procedureDir(t, hostileProcedures)}
	c.boot()
	return c
}

func eachHostile(t *testing.T, body func(t *testing.T, c *commander)) {
	t.Run("supervised", func(t *testing.T) { body(t, newHostile(t, t.TempDir())) })
	t.Run("children", func(t *testing.T) { body(t, newHostile(t, "")) })
}

// A cancel ends all that came of a command, also what is in sessions of its own.
func TestCancelEndsGrandchildren(t *testing.T) {
	eachHostile(t, func(t *testing.T, c *commander) {
		x := c.peer.call("brood", nil).accepted()
		for up := int64(0); up < 50; {
			up += int64(len(expect[wire.Records](x, wire.TypeRecords).Records))
			x.ack(up)
		}
		x.cancel()
		end, _ := x.rest()
		var how struct {
			Killed int `json:"killed"`
			Strays int `json:"strays"`
		}
		f := failure(t, end)
		if err := f.Data.Decode(&how); err != nil || how.Strays < 50 || how.Killed > 0 || *f.ExitCode != 143 {
			t.Errorf("it ended with %+v, %+v", how, f)
		}
		if left := processesOf(t, x.id); len(left) > 0 {
			t.Errorf("%d processes are left", len(left))
		}
	})
}

// What a caller makes up arrives byte for byte in one element, or is refused.
func TestHostileParameters(t *testing.T) {
	const most = 131_071
	eachHostile(t, func(t *testing.T, c *commander) {
		for _, text := range []string{
			"; rm -rf x", "$(id)", "`id`", "a\nb\n", "", " ", "'\"\\", "{{.p}}", "%s%n", "*", "~", "é\u2028\x1b[31m",
			strings.Repeat("x", 100<<10), strings.Repeat("x", most),
		} {
			for _, procedure := range []string{"echo", "echo.dash"} {
				end := c.peer.call(procedure, harp.Args{"p": text}).accepted().ending()
				if got := value[string](t, end); got != text {
					t.Errorf("%s: %.40q arrives as %.40q, %d bytes as %d", procedure, text, got, len(text), len(got))
				}
			}
		}
		for _, text := range []string{"-", "-n", "--help"} {
			if f := c.peer.call("echo", harp.Args{"p": text}).refused(); f.Code != "rejected_invalid" || f.Field != "args.p" {
				t.Errorf("%q is refused with %+v", text, f)
			}
			if got := value[string](t, c.peer.call("echo.dash", harp.Args{"p": text}).accepted().ending()); got != text {
				t.Errorf("%q arrives as %q where it may", text, got)
			}
		}
		for _, text := range []string{"a\x00b", strings.Repeat("x", most+1), strings.Repeat("é", most/2+1)} {
			f := c.peer.call("echo.dash", harp.Args{"p": text}).refused()
			if f.Field != "args.p" || len(text) > most && !strings.Contains(f.Message, strconv.Itoa(most)) {
				t.Errorf("%.20q of %d bytes is refused with %+v", text, len(text), f)
			}
		}
	})
}

// Neither a caller nor the agent's own environment says which code a command runs.
func TestEnvironmentCannotBeSmuggledIn(t *testing.T) {
	t.Setenv("LD_PRELOAD", "/no/such/library.so")
	t.Setenv("PATH", "/no/such/path:"+os.Getenv("PATH"))
	eachHostile(t, func(t *testing.T, c *commander) {
		end, records := c.peer.call("environment", harp.Args{"p": "x\nLD_PRELOAD=/evil.so"}).accepted().rest()
		if value[int](t, end) != 0 {
			t.Errorf("it ended with %+v", end)
		}
		set := strings.Split(linesOf(t, records, "stdout"), "|")
		// The line that the value goes on with is no variable of its own: it follows MINE.
		if i := slices.Index(set, "MINE=x"); i < 0 || set[i+1] != "LD_PRELOAD=/evil.so" {
			t.Errorf("the environment is %q", set)
		}
		for _, s := range set {
			name, v, _ := strings.Cut(s, "=")
			switch {
			case name == "LD_PRELOAD" && v != "/evil.so", name == "PATH" && strings.Contains(v, "/no/such"):
				t.Errorf("%s came through", s)
			}
		}
		for _, args := range []harp.Args{{"p": "x", "LD_PRELOAD": "x"}, {"p": "x", "env": harp.Args{"PATH": "x"}}} {
			if f := c.peer.call("environment", args).refused(); f.Code != "rejected_invalid" {
				t.Errorf("%v is refused with %+v", args, f)
			}
		}
	})
	a := newAgent(t, loopback{}, func(c *agent.Config) { c.Exec = &agent.ExecPolicy{Env: []string{"TERM"}} })
	p, _, _ := connect(t, loopback{}, a)
	for _, name := range []string{"LD_PRELOAD", "PATH", "HARP_JOB"} {
		args := harp.Args{"argv": []string{"/usr/bin/env"}, "env": harp.Args{name: "x"}}
		if f := p.call("exec", args).refused(); f.Code != "rejected_invalid" {
			t.Errorf("%s is refused with %+v", name, f)
		}
	}
}

// A command that prints as fast as it can keeps its order, and memory stays within the
// window, whoever is slow.
func TestFloodKeepsOrderAndMemory(t *testing.T) {
	const n = 30_000 // lines of about 100 bytes
	for _, dir := range []string{"", t.TempDir()} {
		c := newFaulty(t, dir, nil)
		x := c.peer.call("flood", harp.Args{"n": n}).accepted()
		next, most := 0, 0
		for done := false; !done; {
			f := x.receive()
			switch f.Type {
			case wire.TypeRecords:
				var m wire.Records
				if err := wire.Decode(f.Body, &m); err != nil {
					t.Fatal(err)
				}
				for _, r := range m.Records {
					next++
					if text := line(t, r); r.Truncated > 0 || !strings.HasPrefix(text, "stdout "+strconv.Itoa(next)+"-") {
						t.Fatalf("line %d is %q, %d bytes are missing before it", next, text, r.Truncated)
					}
				}
				most = max(most, c.agent.HeldBytes())
				x.ack(m.First + int64(len(m.Records)))
			case wire.TypeEnd:
				done = true
				var m wire.End
				if err := wire.Decode(f.Body, &m); err != nil {
					t.Fatal(err)
				}
				x.ackEnd(m)
			}
		}
		if next != n || most > wire.Window {
			t.Errorf("%d lines, and at most %d bytes held", next, most)
		}
	}
}

// A command inside the agent that nobody takes anything of is held back: it gets no further
// than the window, what is ready for it, and a pipe.
func TestFloodThatNobodyTakes(t *testing.T) {
	a := newAgent(t, loopback{})
	if err := a.Load(procedureDir(t, hostileProcedures)); err != nil {
		t.Fatal(err)
	}
	c, _ := serve(t, loopback{}, a)
	x := c.call("flood", nil, func(c *wire.Call, _ *harp.Request) { c.Window = wire.MinWindow })
	expect[wire.Started](x, wire.TypeStarted)
	expect[wire.Records](x, wire.TypeRecords)
	of := only(t, x.id)
	last, since := 0, time.Now()
	until(t, "it has printed, and then nothing for a second", func() bool {
		n := written(t, of.pid)
		switch {
		case n > 3*wire.Window:
			t.Fatalf("it has printed %d bytes that nobody took", n)
		case n != last:
			last, since = n, time.Now()
		}
		return n > wire.Window/2 && time.Since(since) > time.Second
	})
	if n := a.HeldBytes(); n > wire.MinWindow {
		t.Errorf("%d bytes are held for the caller", n)
	}
}

// written is how many bytes a process has written.
func written(t *testing.T, pid int) (n int) {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/io", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(b), "wchar: ")
	line, _, _ := strings.Cut(rest, "\n")
	if n, err = strconv.Atoi(line); err != nil {
		t.Fatal(err)
	}
	return n
}

// TestAnOpenedScriptIsNotRun checks that a script that others can write by the time of a
// call is refused then, and is not run.
func TestAnOpenedScriptIsNotRun(t *testing.T) {
	dir := procedureDir(t, "x: {command: [./x.sh]}\n")
	script := filepath.Join(dir, "x.sh")
	if err := os.WriteFile(script, []byte("#!/bin/sh\n"), 0o755); err != nil { //nolint:gosec // a program
		t.Fatal(err)
	}
	a := newAgent(t, loopback{})
	if err := a.Load(dir); err != nil {
		t.Fatal(err)
	}
	c, _ := serve(t, loopback{}, a)
	if err := os.Chmod(script, 0o777); err != nil { //nolint:gosec // that is what is tested
		t.Fatal(err)
	}
	refused := c.call("x", nil).refused()
	if refused.Type != "exec" || !strings.Contains(refused.Message, script+" can be written by others") {
		t.Errorf("it is refused with %+v", refused)
	}
}

// TestAnEmptiedProcedureFileIsRefused: a file that has lost its content, as after a crash or while it is written, takes no procedure away, so that no call that waits for
// one is refused. An agent does not start with it.
func TestAnEmptiedProcedureFileIsRefused(t *testing.T) {
	dir := procedureDir(t, "x: {command: [echo, hello]}\n")
	a := newAgent(t, loopback{})
	if err := a.Load(dir); err != nil {
		t.Fatal(err)
	}
	writeProcedures(t, dir, "")
	if err := a.Load(dir); !errors.Is(err, harp.ErrInvalid) || !strings.Contains(err.Error(), "procedures.yaml: is empty") {
		t.Errorf("an empty file gives %v", err)
	}
	c, _ := serve(t, loopback{}, a)
	expect[wire.Started](c.call("x", nil), wire.TypeStarted)
	if err := newAgent(t, loopback{}).Load(dir); !errors.Is(err, harp.ErrInvalid) {
		t.Errorf("as the agent starts it gives %v", err)
	}
	writeProcedures(t, dir, "# none any more\n")
	if err := a.Load(dir); err != nil {
		t.Error(err)
	}
	c.call("x", nil).refused()
}

// A procedure that ends with a reboot has not succeeded because its command ended well:
// that only asked for one, which may never come.
func TestNoRebootIsNoSuccess(t *testing.T) {
	agent.ShortenReboot(t)
	inBothWirings(t, func(t *testing.T, c *commander) {
		path, w := pipe(t)
		x := c.peer.call("reboot", harp.Args{"pipe": path}).accepted()
		tell(t, w, "going down\n")
		expect[wire.Records](x, wire.TypeRecords)
		x.ack(1)
		_ = w.Close()
		if f := harp.FailureOf(x.ending().Failure); f.Type != "no_reboot" || !strings.Contains(f.Message, "exit code 0, but the machine has not rebooted") {
			t.Errorf("it ended with %+v", f)
		}
	})
}

// Its command has ended well before the machine goes down, and with it the agent.
func TestRebootAfterTheCommandHasEnded(t *testing.T) {
	c := newCommander(t, t.TempDir())
	path, w := pipe(t)
	x := c.peer.call("reboot", harp.Args{"pipe": path}).accepted()
	tell(t, w, "going down\n")
	expect[wire.Records](x, wire.TypeRecords)
	x.ack(1)
	leader := only(t, x.id)
	_ = w.Close()
	until(t, "the command has ended", func() bool { return syscall.Kill(leader.pid, 0) != nil })
	c.restart() // of the agent alone
	c.stop()
	agent.BootAnew(t)
	c.boot()
	end := c.peer.resume(x.id, 1).ending()
	if end.Gone || end.Failure != nil || len(bytes.Trim(end.Value, "\xc0")) > 0 {
		t.Errorf("it ended with %+v", end)
	}
}

// A second cancel that is to be now ends the grace; a first one leaves none; and one that
// comes with RESUME counts as well.
func TestCancelNow(t *testing.T) {
	inBothWirings(t, func(t *testing.T, c *commander) {
		for _, before := range []bool{true, false} {
			x := c.peer.call("patient", nil, limits(time.Hour, time.Hour)).accepted()
			expect[wire.Records](x, wire.TypeRecords)
			if before {
				x.cancel()
				x.stopping()
			}
			x.send(wire.TypeCancel, wire.Cancel{Now: true})
			if !before {
				x.stopping()
			}
			end := x.restOf()
			if f := harp.FailureOf(end.Failure); f.Type != "cancelled" || !strings.Contains(f.Message, "had to be killed") {
				t.Errorf("after a cancel %v it ended with %+v", before, f)
			}
		}
	})
}

func TestCancelNowWithResume(t *testing.T) {
	c := newCommander(t, t.TempDir())
	x := c.peer.call("patient", nil, limits(time.Hour, time.Hour)).accepted()
	expect[wire.Records](x, wire.TypeRecords)
	x.cancel()
	x.stopping()
	c.restart()
	y := c.peer.resume(x.id, 1, func(m *wire.Resume) { m.Cancel = &wire.Cancel{Now: true} })
	y.stopping()
	end := y.restOf()
	if f := harp.FailureOf(end.Failure); f.Type != "cancelled" || !strings.Contains(f.Message, "had to be killed") {
		t.Errorf("it ended with %+v", f)
	}
}

// A cancel that is to be now ends the grace, too, of what a command has left that has
// ended by itself.
func TestCancelNowOfWhatIsLeft(t *testing.T) {
	inBothWirings(t, func(t *testing.T, c *commander) {
		path, w := pipe(t)
		x := c.peer.call("leaver", harp.Args{"pipe": path}, limits(time.Hour, time.Hour)).accepted()
		expect[wire.Records](x, wire.TypeRecords)
		until(t, "both run", func() bool { return len(processesOf(t, x.id)) == 2 })
		tell(t, w, "\n")
		until(t, "the command has ended", func() bool { return len(processesOf(t, x.id)) == 1 })
		x.send(wire.TypeCancel, wire.Cancel{Now: true})
		x.stopping()
		if end := x.restOf(); end.Stopped == nil {
			t.Errorf("it ended with %+v", end)
		}
	})
}

// A cancel that is to be now ends the grace, too, of a command whose supervisor died.
func TestCancelNowAfterTheSupervisorDied(t *testing.T) {
	inBothWirings(t, func(t *testing.T, c *commander) {
		path, _ := pipe(t)
		x := c.peer.call("leaver", harp.Args{"pipe": path}, limits(time.Hour, time.Hour)).accepted()
		expect[wire.Records](x, wire.TypeRecords)
		until(t, "both run", func() bool { return len(processesOf(t, x.id)) >= 2 })
		for _, pid := range supervisors(t) {
			signalTo(t, pid, syscall.SIGKILL)
		}
		x.send(wire.TypeCancel, wire.Cancel{Now: true})
		// It may end before the cancel is journalled, and then END alone says of it.
		if end, _ := x.rest(); !end.Gone || end.Stopped == nil {
			t.Errorf("it ended with %+v", end)
		}
	})
}
