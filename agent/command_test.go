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
	"github.com/harpcaller/harp/agent/journal"
	"github.com/harpcaller/harp/internal/wire"
)

// commands are procedures that the tests call.
const commands = `
say:
  params:
    what: {type: string, required: true, dash: true}
  command: [/bin/sh, -c, 'printf "%s\n" "$1"; echo to stderr >&2; printf last', sh, "{{.what}}"]
fail:
  params: {code: {type: int, required: true}}
  command: [/bin/sh, -c, 'echo it went wrong >&2; exit "$1"', sh, "{{.code}}"]
missing:
  command: [/no/such/program]
sleep:
  command: [/bin/sh, -c, 'echo begun; trap "echo stopping; exit 7" TERM; while :; do sleep 0.05; done']
  grace: 5s
stubborn:
  command: [/bin/sh, -c, 'trap "" TERM; echo begun; while :; do sleep 1; done']
  grace: 10ms
patient:
  command: [/bin/sh, -c, 'trap "echo asked" TERM; echo begun; while :; do sleep 0.05; done']
  grace: 1d
leaver:
  command: [/bin/sh, -c, '(trap "" TERM; echo begun; exec sleep 1000) & read -r l < "$1"', sh, "{{.pipe}}"]
  params: {pipe: {type: path, required: true}}
  grace: 1d
lines:
  doc: It prints a line for each one that it reads from a pipe.
  params: {pipe: {type: path, required: true}}
  command: [/bin/sh, -c, 'while read -r l; do echo "$l"; [ "$l" = end ] && exit 4; done < "$1"', sh, "{{.pipe}}"]
  success: [4]
alone:
  params: {pipe: {type: path, required: true}}
  command: [/bin/cat, "{{.pipe}}"]
  exclusive: true
would:
  command: [/bin/false]
  dry_run: [/bin/echo, would do it]
reboot:
  params: {pipe: {type: path, required: true}}
  command: [/bin/cat, "{{.pipe}}"]
  ends: reboot
answer:
  command: [/bin/echo, '{"n": 42}']
  result: {from: stdout-last-json}
`

// procedureDir is a directory with procedures in a file.
func procedureDir(t testing.TB, text string) string {
	t.Helper()
	dir := t.TempDir()
	writeProcedures(t, dir, text)
	return dir
}

func writeProcedures(t testing.TB, dir, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, "procedures.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// commander is an agent on a disk, which commands may outlive.
type commander struct {
	t      *testing.T
	d      *dispatcher
	dir    string
	load   string
	disk   *journal.Memory // has the journal; nil: the directory has it
	limits agent.Limits
	agent  *agent.Agent
	run    *running
	peer   *peer
}

// newCommander is an agent that offers commands. If it has a directory they outlive it.
func newCommander(t *testing.T, dir string) *commander {
	c := &commander{t: t, d: listen(t, loopback{}), dir: dir, load: procedureDir(t, commands)}
	c.boot()
	return c
}

// boot starts another agent, as a new process would.
func (c *commander) boot() {
	c.t.Helper()
	a := newAgent(c.t, loopback{}, func(cfg *agent.Config) {
		cfg.Limits = c.limits
		if cfg.Dir = c.dir; c.disk != nil {
			cfg.Journal = c.disk
		}
	})
	c.agent = a
	if err := a.Load(c.load); err != nil {
		c.t.Fatal(err)
	}
	c.run = run(c.t, func(ctx context.Context) error { return a.Connect(ctx, c.d.addr) })
	c.peer = <-c.d.sessions
}

// stop ends the agent.
func (c *commander) stop() {
	c.run.stop()
	c.run.wait()
}

// restart ends the agent, and starts another.
func (c *commander) restart() {
	c.t.Helper()
	c.stop()
	c.boot()
}

// callLines calls the command that prints each line of a pipe.
func (c *commander) callLines() (x *exchange, w *os.File) {
	c.t.Helper()
	path, w := pipe(c.t)
	return c.peer.call("lines", harp.Args{"pipe": path}).accepted(), w
}

// delivers checks that all that the command has printed, and its end, are told.
func (c *commander) delivers(x *exchange, lines string) {
	c.t.Helper()
	end, records := c.peer.resume(x.id, 0).endedFrom(0)
	if end.Gone || value[int](c.t, end) != 4 || linesOf(c.t, records, "stdout") != lines {
		c.t.Errorf("it ended with %+v after %+v", end, records)
	}
}

// inBothWirings runs a test body with commands that outlive the agent, and with some
// that do not.
func inBothWirings(t *testing.T, body func(t *testing.T, c *commander)) {
	t.Run("supervised", func(t *testing.T) { body(t, newCommander(t, t.TempDir())) })
	t.Run("children", func(t *testing.T) { body(t, newCommander(t, "")) })
}

// line is what a record says, and of which kind it is.
func line(t *testing.T, r wire.Record) string {
	t.Helper()
	var text string
	if err := harp.Value(r.Value).Decode(&text); err != nil {
		t.Fatal(err)
	}
	if r.Partial {
		text += "~"
	}
	return r.Kind + " " + text
}

func linesOf(t *testing.T, records []wire.Record, kind string) string {
	var all []string
	for _, r := range records {
		if r.Kind == kind {
			all = append(all, strings.TrimPrefix(line(t, r), kind+" "))
		}
	}
	return strings.Join(all, "|")
}

func TestCommand(t *testing.T) {
	inBothWirings(t, func(t *testing.T, c *commander) {
		end, records := c.peer.call("say", harp.Args{"what": "; rm -rf x\n$(id) -"}).accepted().rest()
		if out := linesOf(t, records, "stdout"); out != "; rm -rf x|$(id) -|last~" {
			t.Errorf("it printed %q", out)
		}
		if out := linesOf(t, records, "stderr"); out != "to stderr" {
			t.Errorf("and %q", out)
		}
		if code := value[int](t, end); code != 0 {
			t.Errorf("its exit code is %d", code)
		}
		var got struct {
			N int `json:"n"`
		}
		end = c.peer.call("answer", nil).accepted().ending()
		if err := end.Value.Decode(&got); err != nil || got.N != 42 {
			t.Errorf("its result is %s", end.Value)
		}
	})
}

func TestCommandThatFails(t *testing.T) {
	inBothWirings(t, func(t *testing.T, c *commander) {
		f := failure(t, c.peer.call("fail", harp.Args{"code": 3}).accepted().ending())
		var remote *harp.RemoteError
		if !errors.As(f.Err(), &remote) || remote.ExitCode == nil || *remote.ExitCode != 3 || !strings.Contains(remote.Message, "it went wrong") {
			t.Errorf("it failed with %+v", f)
		}
		// What could not be executed was not started, and may be asked for again.
		for range 2 {
			f = c.peer.call("missing", nil).refused()
			if f.Type != "exec" || harp.RanOf(f.Err()) != harp.DidNotRun {
				t.Errorf("what is not there is refused with %+v", f)
			}
		}
	})
}

func TestCommandIsStopped(t *testing.T) {
	inBothWirings(t, func(t *testing.T, c *commander) {
		x := c.peer.call("sleep", nil).accepted()
		begun := expect[wire.Records](x, wire.TypeRecords)
		x.ack(int64(len(begun.Records)))
		x.cancel()
		if s := x.stopping(); s.Cause != wire.CauseCancel {
			t.Errorf("it is stopped for %s", s.Cause)
		}
		end, rest := x.rest()
		if f := failure(t, end); f.ExitCode == nil || *f.ExitCode != 143 || end.Stopped.Cause != wire.CauseCancel {
			t.Errorf("cancelled it ended with %+v", f)
		}
		if out := linesOf(t, rest, "stdout"); out != "" && out != "stopping" {
			t.Errorf("it said %q", out)
		}

		end = c.stubborn()
		f := failure(t, end)
		var how struct {
			Killed int `json:"killed"`
		}
		if err := f.Data.Decode(&how); err != nil || how.Killed == 0 || f.ExitCode == nil || *f.ExitCode != 124 || end.Stopped.Cause != wire.CauseMaxExecTime {
			t.Errorf("at its limit it ended with %+v, %+v", f, end.Stopped)
		}
	})
}

// stubborn is how a command ends that has ignored TERM before its limit came. How long it
// takes to come so far nobody knows.
func (c *commander) stubborn() wire.End {
	c.t.Helper()
	for limit := 300 * time.Millisecond; ; limit *= 2 {
		end, records := c.peer.call("stubborn", nil, limits(time.Hour, limit)).accepted().rest()
		if linesOf(c.t, records, "stdout") == "begun" {
			return end
		}
	}
}

// pipe is a named pipe that a command reads, open for writing.
func pipe(t *testing.T) (path string, w *os.File) {
	path = filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	w, err := os.OpenFile(path, os.O_RDWR, 0) // which does not wait for the reader
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.Close() })
	return path, w
}

func tell(t *testing.T, w *os.File, text string) {
	t.Helper()
	if _, err := w.WriteString(text); err != nil {
		t.Fatal(err)
	}
}

// A command goes on while its agent is restarted, and nothing of what it prints is
// missing or there twice.
func TestCommandOutlivesItsAgent(t *testing.T) {
	c := newCommander(t, t.TempDir())
	x, w := c.callLines()
	tell(t, w, "a\nb\n")
	var got []wire.Record
	for len(got) < 2 {
		got = append(got, expect[wire.Records](x, wire.TypeRecords).Records...)
	}
	x.ack(1)
	tell(t, w, "c\n")
	c.stop()
	tell(t, w, "d\n")
	c.boot()
	if h := c.peer.held; len(h) != 1 || h[0].Job != x.id || h[0].State != wire.HeldAlive {
		t.Fatalf("the next agent holds %+v", h)
	}
	y := c.peer.resume(x.id, 2)
	tell(t, w, "e\nend\n")
	end, rest := y.rest()
	if out := linesOf(t, append(got, rest...), "stdout"); out != "a|b|c|d|e|end" {
		t.Errorf("it printed %q", out)
	}
	if n := value[int](t, end); n != 4 || end.Records != 6 {
		t.Errorf("it ended with %d after %d records", n, end.Records)
	}
	c.restart()
	if h := c.peer.held; len(h) > 0 && h[0].State != wire.HeldEnded { // the acknowledgement may have come too late
		t.Errorf("the last agent holds %+v", h)
	}
	c.nothingLeft()
}

// What a dispatcher has acknowledged before the journal had it is not asked for again,
// nor numbered anew.
func TestCommandEndsWhileItsAgentIsAway(t *testing.T) {
	c := newCommander(t, t.TempDir())
	x, w := c.callLines()
	tell(t, w, "a\n")
	expect[wire.Records](x, wire.TypeRecords)
	c.stop()
	tell(t, w, "b\nc\nend\n")
	c.noted(x, ended)
	c.boot()
	y := c.peer.resume(x.id, 3, func(m *wire.Resume) { m.Cancel = &wire.Cancel{} })
	end, rest := y.rest()
	if out := linesOf(t, rest, "stdout"); out != "end" || end.Records != 4 {
		t.Errorf("it printed %q, %d records in all", out, end.Records)
	}
}

// A cancel that came just before the agent ended is heard by the command.
func TestCommandIsStoppedByTheNextAgent(t *testing.T) {
	c := newCommander(t, t.TempDir())
	x := c.peer.call("sleep", nil).accepted()
	expect[wire.Records](x, wire.TypeRecords)
	c.restart()
	y := c.peer.resume(x.id, 1, func(m *wire.Resume) { m.Cancel = &wire.Cancel{} })
	end, _ := y.rest()
	if f := failure(t, end); end.Stopped == nil || *f.ExitCode != 143 {
		t.Errorf("it ended with %+v", f)
	}
}

func TestExclusiveCommand(t *testing.T) {
	c := newCommander(t, t.TempDir())
	path, w := pipe(t)
	x := c.peer.call("alone", harp.Args{"pipe": path}).accepted()
	if reason := c.peer.call("alone", harp.Args{"pipe": path}).notNow(); reason != wire.NotNowBusy {
		t.Errorf("another is told %s", reason)
	}
	c.restart() // the next agent knows of it
	if reason := c.peer.call("alone", harp.Args{"pipe": path}).notNow(); reason != wire.NotNowBusy {
		t.Errorf("after a restart another is told %s", reason)
	}
	y := c.peer.resume(x.id, 0, func(m *wire.Resume) { m.Cancel = &wire.Cancel{} })
	y.rest()
	if err := w.Close(); err != nil {
		t.Error(err)
	}
}

func TestCommandDryRun(t *testing.T) {
	c := newCommander(t, "")
	dry := func(_ *wire.Call, r *harp.Request) { r.DryRun, r.Needs = true, []string{harp.NeedDryRun} }
	end, records := c.peer.call("would", nil, dry).accepted().rest()
	if out := linesOf(t, records, "stdout"); out != "would do it" || value[int](t, end) != 0 {
		t.Errorf("it said %q", out)
	}
	if f := c.peer.call("say", harp.Args{"what": "x"}, dry).refused(); f.Type != "dry_run" {
		t.Errorf("one without is refused with %+v", f)
	}
}

// A file cannot promise larger results than the agent takes.
func TestLoadOfLargerResultsThanTheAgentTakes(t *testing.T) {
	dir := procedureDir(t, "large:\n  command: [/bin/true]\n  result: {from: stdout, max: 2000000}\n")
	for name, load := range map[string]func(string) error{
		"Load": newAgent(t, loopback{}).Load, "CheckDir": agent.CheckDir,
	} {
		const want = "procedures.yaml:3: large.result.max: must be at most 1048512"
		if err := load(dir); !errors.Is(err, harp.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s gives %v, want %s", name, err, want)
		}
	}
	more := newAgent(t, loopback{}, func(c *agent.Config) { c.Limits.MaxResult = 2 << 20 })
	if err := more.Load(dir); err != nil {
		t.Error(err)
	}
}

// What is loaded again is told to the dispatcher; what is bad changes nothing.
func TestLoadAgain(t *testing.T) {
	p, dir := loopback{}, procedureDir(t, "first: {command: [/bin/true]}\n")
	a := newAgent(t, p)
	offer(a, "mine", func(context.Context) (int, error) { return 1, nil })
	if err := a.Load(dir); err != nil {
		t.Fatal(err)
	}
	d, _, _ := connect(t, p, a)
	writeProcedures(t, dir, "second: {command: [/bin/true]}\nthird: {comand: [/bin/true]}\n")
	err := a.Load(dir)
	if !errors.Is(err, harp.ErrInvalid) || !strings.Contains(err.Error(), "procedures.yaml:2: third.comand") {
		t.Errorf("the bad set gives %v", err)
	}
	told := func(want string) {
		t.Helper()
		var said wire.Facts
		if err := d.hear(t.Context(), wire.TypeFacts, &said); err != nil {
			t.Fatal(err)
		}
		if text := fmt.Sprint(said.Problems); !strings.Contains(text, want) || want == "" && len(said.Problems) > 0 || len(said.Facts) == 0 {
			t.Errorf("the dispatcher is told of %s, want %q", text, want)
		}
	}
	told("procedures.yaml:2: third.comand")
	d.call("first", nil).accepted().rest()
	writeProcedures(t, dir, "mine: {command: [/bin/true]}\n")
	if err := a.Load(dir); !errors.Is(err, harp.ErrConflict) {
		t.Errorf("a name that is taken gives %v", err)
	}
	told("procedure mine already exists")
	writeProcedures(t, dir, "second: {command: [/bin/true]}\n")
	if err := a.Load(dir); err != nil {
		t.Fatal(err)
	}
	var page wire.Procedures
	if err := d.hear(t.Context(), wire.TypeProcedures, &page); err != nil {
		t.Fatal(err)
	}
	if len(page.Procedures) != 2 || page.Procedures[0].Name != "mine" || page.Procedures[1].Name != "second" || !page.Last {
		t.Errorf("the dispatcher is told of %+v", page.Procedures)
	}
	told("")
	if f := d.call("first", nil).refused(); f.Code != "rejected_not_found" {
		t.Errorf("what is gone is refused with %+v", f)
	}
}

// A command that reboots the machine has succeeded when that has booted anew; any other
// is lost with it.
func TestCommandEndsWithAReboot(t *testing.T) {
	for procedure, gone := range map[string]bool{"reboot": false, "lines": true} {
		t.Run(procedure, func(t *testing.T) {
			c := newCommander(t, t.TempDir())
			path, w := pipe(t)
			x := c.peer.call(procedure, harp.Args{"pipe": path}).accepted()
			tell(t, w, "going down\n")
			expect[wire.Records](x, wire.TypeRecords)
			x.ack(1)
			c.stop()
			endSupervisors(t, x.id)
			agent.BootAnew(t)
			c.boot()
			end := c.peer.resume(x.id, 1).ending()
			if end.Gone != gone || end.Failure != nil || end.Records != 1 {
				t.Errorf("it ended with %+v", end)
			}
		})
	}
}

// A supervisor that dies takes its command with it, and what was printed is told, also where
// it was to end with its agent.
func TestCommandWhoseSupervisorDies(t *testing.T) {
	for name, dir := range map[string]string{"outlives the agent": t.TempDir(), "ends with it": ""} {
		t.Run(name, func(t *testing.T) {
			c := newCommander(t, dir)
			x, w := c.callLines()
			tell(t, w, "a\nb\n")
			for got := 0; got < 2; {
				got += len(expect[wire.Records](x, wire.TypeRecords).Records)
			}
			of := only(t, x.id)
			if err := syscall.Kill(of.parent, syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			end := x.ending()
			if !end.Gone || end.Records != 2 {
				t.Errorf("it ended with %+v", end)
			}
			if left := processesOf(t, x.id); len(left) != 0 {
				t.Errorf("%v is left", left)
			}
		})
	}
}

// A command that its supervisor took with it while the dispatcher was away is not under way any more when its agent has drained.
func TestDrainAfterASupervisorDied(t *testing.T) {
	c := newCommander(t, t.TempDir())
	x, w := c.callLines()
	tell(t, w, "a\n")
	expect[wire.Records](x, wire.TypeRecords)
	f := harp.FailureOf(harp.ErrUnavailable)
	c.d.set(func(d *dispatcher) { d.refuse = &f })
	c.peer.session.Close(nil)
	signalTo(t, only(t, x.id).parent, syscall.SIGKILL)
	if err := c.agent.Drain(t.Context()); err != nil {
		t.Fatal(err)
	}
	c.stop()
	found, err := agent.CheckJournal(c.dir)
	if err != nil || len(found.Held) != 1 || found.Held[0].State != journal.Ended || found.Held[0].Records != 1 {
		t.Errorf("the journal has %+v, %v", found.Held, err)
	}
}

// process is one that runs for a job.
type process struct{ pid, parent int }

// processesOf are those that a job's command is made of.
func processesOf(t *testing.T, job string) (list []process) {
	t.Helper()
	all, err := filepath.Glob("/proc/[0-9]*/environ")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range all {
		env, err := os.ReadFile(path)
		if err != nil || !strings.Contains("\x00"+string(env), "\x00HARP_JOB="+job+"\x00") {
			continue // or it has ended just now
		}
		argv, err := os.ReadFile(filepath.Join(filepath.Dir(path), "cmdline"))
		if err != nil || strings.HasPrefix(string(argv), "harp-supervise") {
			continue // that is marked, too, where it ends with its agent
		}
		stat, err := os.ReadFile(filepath.Join(filepath.Dir(path), "stat"))
		if err != nil {
			continue
		}
		var p process
		_, rest, _ := strings.Cut(string(stat), ") ")
		if p.pid, err = strconv.Atoi(filepath.Base(filepath.Dir(path))); err == nil {
			p.parent, err = strconv.Atoi(strings.Fields(rest)[1])
		}
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, p)
	}
	return list
}

// endSupervisors kills what runs for a job, as a reboot does.
func endSupervisors(t *testing.T, job string) {
	t.Helper()
	for _, p := range processesOf(t, job) {
		signalTo(t, p.parent, syscall.SIGKILL)
		signalTo(t, p.pid, syscall.SIGKILL) // which ends with its parent, maybe before
	}
}
