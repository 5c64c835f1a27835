//go:build linux

package agent_test

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/agent"
	"github.com/harpcaller/harp/agent/internal/proc"
	"github.com/harpcaller/harp/agent/journal"
	"github.com/harpcaller/harp/internal/wire"
)

// faulty are procedures that go wrong, or that something is done to.
const faulty = `
odd:
  doc: It prints JSON that is no value, and some that would be too large a record.
  command: [/bin/sh, -c, 'echo "{\"a\": 1e999}"; printf "[%0100d" 0 | tr 0 "["; printf "%0100d]\n" 0 | tr 0 "]"; printf "["; yes 1.5, | head -n 15000 | tr -d "\n"; echo "1.5]"; echo "{\"n\": 1}"; exit 3']
  records: json
  success: [3]
stranger:
  params: {key: {type: secret, required: true}}
  command: [/bin/cat, "{{file .key}}"]
  user: harp-no-such-user
flood:
  params: {n: {type: int, required: true}}
  command: [/usr/bin/seq, -f, '%.0f------------------------------------------------------------------------------------------', "1", "{{.n}}"]
flood.last:
  doc: It prints much when it is to end.
  command: [/bin/sh, -c, 'trap "trap \"\" TERM; seq 400000; exit" TERM; echo ready; while :; do sleep 0.05; done']
  grace: 1d
held:
  doc: It waits for a line of a pipe, and prints then.
  params: {pipe: {type: path, required: true}, n: {type: int, required: true}}
  command: [/bin/sh, -c, 'read -r l < "$1"; exec seq -f "%.0f------------------------------------------------------------------------------------------" 1 "$2"', sh, "{{.pipe}}", "{{.n}}"]
counted:
  params: {pipe: {type: path, required: true}}
  command: [/bin/sh, -c, 'seq -f %02000.0f 1 100; while read -r l; do echo "$l"; [ "$l" = end ] && exit 0; done < "$1"', sh, "{{.pipe}}"]
ended:
  doc: It ends when it has read a line of a pipe, and leaves something running that ignores TERM.
  params: {pipe: {type: path, required: true}}
  command: [/bin/sh, -c, '(trap "echo asked" TERM; echo ready; while :; do sleep 0.05; done) 2>/dev/null & read -r l < "$1"', sh, "{{.pipe}}"]
  grace: 1d
reboot.logged:
  params: {pipe: {type: path, required: true}}
  command: [/bin/cat, "{{.pipe}}"]
  ends: reboot
`

// newFaulty is a commander of faulty procedures, too, with a journal in memory if there is
// one.
func newFaulty(t *testing.T, dir string, disk *journal.Memory) *commander {
	c := &commander{t: t, d: listen(t, loopback{}), dir: dir, load: procedureDir(t, commands+faulty), disk: disk}
	c.boot()
	return c
}

// journalled is what of a journal is there now: what comes later was never written.
func journalled(t *testing.T, disk *journal.Memory) *journal.Memory {
	t.Helper()
	names, err := disk.List()
	if err != nil {
		t.Fatal(err)
	}
	now := journal.NewMemory()
	for _, name := range names {
		now.Put(name, disk.Bytes(name))
	}
	return now
}

// until waits for what no signal tells of: what another process has done.
func until(t *testing.T, what string, is func() bool) {
	t.Helper()
	ticker := time.NewTicker(5 * time.Millisecond)
	defer ticker.Stop()
	for !is() {
		select {
		case <-ticker.C:
		case <-t.Context().Done():
			t.Fatal("in vain: " + what)
		}
	}
}

// ended is what a supervisor's file has of an attempt that has ended, and of no other.
const ended = `"RanFor":`

// noted waits until a text is in the file of an attempt's supervisor.
func (c *commander) noted(x *exchange, text string) {
	c.t.Helper()
	spool := filepath.Join(c.dir, "run", x.id+".1", "spool")
	until(c.t, text+" is in the supervisor's file", func() bool {
		b, err := os.ReadFile(spool)
		return err == nil && strings.Contains(string(b), text)
	})
}

// only is the one process that runs for a job. One that was executed just now does not show
// its environment yet.
func only(t *testing.T, job string) process {
	t.Helper()
	var of []process
	until(t, "it runs", func() bool {
		of = processesOf(t, job)
		return len(of) > 0
	})
	if len(of) != 1 {
		t.Fatalf("%d processes run for the job", len(of))
	}
	return of[0]
}

// nothingLeft waits until there is nothing of a supervisor any more.
func (c *commander) nothingLeft() {
	c.t.Helper()
	until(c.t, "supervisors are let go", func() bool {
		left, err := os.ReadDir(filepath.Join(c.dir, "run"))
		return err == nil && len(left) == 0
	})
}

// removeCgroups removes what a job's command leaves whose supervisor and agent nobody asks any more.
func removeCgroups(t *testing.T, job string) {
	t.Helper()
	dir, err := proc.NewCgroup(job) // beside those
	if err != nil {
		return
	}
	until(t, "its cgroup is removed", func() bool {
		left, err := filepath.Glob(dir + "*")
		if err != nil {
			t.Fatal(err)
		}
		for _, dir := range left {
			_ = os.Remove(dir) // something may be in it yet
		}
		return len(left) == 0
	})
}

// A line of JSON that harp has no value for is the text that it is, and does nothing to
// the job.
func TestOutputThatIsNoValue(t *testing.T) {
	for _, dir := range []string{"", t.TempDir()} {
		c := newFaulty(t, dir, nil)
		end, records := c.peer.call("odd", nil).accepted().endedFrom(0)
		if end.Gone || value[int](t, end) != 3 {
			t.Fatalf("it ended with %+v", end)
		}
		var kinds []string
		for _, r := range records {
			kinds = append(kinds, r.Kind)
			if len(r.Value) > harp.MaxRecord {
				t.Errorf("a record has %d bytes", len(r.Value))
			}
		}
		if got := strings.Join(kinds, " "); !strings.HasPrefix(got, "stdout stdout stdout") || kinds[len(kinds)-1] != "" {
			t.Errorf("the records are of the kinds %q", got)
		}
	}
}

// What the dispatcher has acknowledged the supervisor lets go of; if the journal had not
// written it when the agent died, the command goes on all the same.
func TestAcknowledgedBeforeItWasJournalled(t *testing.T) {
	disk := journal.NewMemory()
	c := newFaulty(t, t.TempDir(), disk)
	path, w := pipe(t)
	x := c.peer.call("counted", harp.Args{"pipe": path}).accepted()
	then := journalled(t, disk)
	for next := int64(0); next < 100; {
		next += int64(len(expect[wire.Records](x, wire.TypeRecords).Records))
		x.ack(next)
	}
	tell(t, w, "a\n") // with it the supervisor hears what is kept
	expect[wire.Records](x, wire.TypeRecords)
	x.ack(101)
	tell(t, w, strings.Repeat("b\n", 80))
	for next := int64(101); next < 181; {
		next += int64(len(expect[wire.Records](x, wire.TypeRecords).Records))
		x.ack(next)
	}
	c.stop()
	c.disk = then
	c.boot()
	if h := c.peer.held; len(h) != 1 || h[0].State != wire.HeldAlive {
		t.Fatalf("the next agent holds %+v", h)
	}
	y := c.peer.resume(x.id, 181)
	tell(t, w, "end\n")
	end, records := y.endedFrom(181)
	if end.Gone || value[int](t, end) != 0 || linesOf(t, records, "stdout") != "end" {
		t.Errorf("it ended with %+v after %+v", end, records)
	}
}

// A command whose journal is gone tells of the records that its supervisor has let go of as dropped, and goes on, also if they
// were asked for before that was found out; and where the new journal cannot take it nobody looks for them there.
func TestJournalGoneWithRecordsThatWereLetGoOf(t *testing.T) {
	for name, takes := range map[string]bool{"another journal takes it": true, "none does": false} {
		t.Run(name, func(t *testing.T) {
			c := newFaulty(t, t.TempDir(), journal.NewMemory())
			path, w := pipe(t)
			x := c.peer.call("counted", harp.Args{"pipe": path}).accepted()
			for next := int64(0); next < 100; {
				next += int64(len(expect[wire.Records](x, wire.TypeRecords).Records))
				x.ack(next)
			}
			until(t, "its supervisor has let go of them", func() bool { return c.agent.LetGoOf(x.id) == 100 })
			c.stop()
			for _, pid := range supervisors(t) { // until they are asked for
				signalTo(t, pid, syscall.SIGSTOP)
			}
			disk := newAiling(journal.NewMemory())
			made := newOnSync(disk) // its first segment is there
			if fill := func() { disk.fail(syscall.ENOSPC) }; !takes {
				made.do.Store(&fill)
			}
			c.agent = newAgent(t, loopback{}, func(cfg *agent.Config) { cfg.Dir, cfg.Journal = c.dir, made })
			c.run = run(t, func(ctx context.Context) error { return c.agent.Connect(ctx, c.d.addr) })
			c.peer = <-c.d.sessions
			if h := c.peer.held; len(h) != 1 || h[0].State != wire.HeldAlive || c.agent.Holds(x.id) != takes {
				t.Fatalf("the next agent holds %+v, and so does its journal: %t", h, c.agent.Holds(x.id))
			}
			y := c.peer.resume(x.id, 90)
			until(t, "it is told", func() bool { return c.agent.Tells(x.id) })
			for _, pid := range supervisors(t) {
				signalTo(t, pid, syscall.SIGCONT)
			}
			tell(t, w, "end\n")
			end, records := y.endedFrom(90)
			if end.Gone || value[int](t, end) != 0 || len(records) != 11 || linesOf(t, records[10:], "stdout") != "end" {
				t.Fatalf("it ended with %+v after %d records", end, len(records))
			}
			for i, r := range records[:10] {
				if r.Truncated == 0 {
					t.Errorf("record %d, which nobody has, is %+v", 90+i, r)
				}
			}
			c.nothingLeft()
		})
	}
}

// A command that one dispatcher has forgotten runs on, and another that asks for it is told
// what comes, under the right numbers.
func TestForgottenCommandIsAskedForAgain(t *testing.T) {
	c := newFaulty(t, t.TempDir(), nil)
	path, w := pipe(t)
	x := c.peer.call("counted", harp.Args{"pipe": path}).accepted()
	for next := int64(0); next < 100; {
		next += int64(len(expect[wire.Records](x, wire.TypeRecords).Records))
		x.ack(next)
	}
	c.peer.forget(wire.HeldAttempt{Job: x.id, Attempt: 1})
	tell(t, w, strings.Repeat("nobody\n", 70))
	spool := filepath.Join(c.dir, "run", x.id+".1", "spool")
	until(t, "what nobody asks for is let go of", func() bool { return c.agent.Numbered(x.id) == 170 })
	if info, err := os.Stat(spool); err != nil || info.Size() == 0 {
		t.Fatalf("the supervisor's file: %v, %v", info, err)
	}
	y := c.peer.resume(x.id, 100)
	var dropped []wire.Record
	for len(dropped) < 70 { // from the first of them on somebody asks
		dropped = append(dropped, expect[wire.Records](y, wire.TypeRecords).Records...)
		y.ack(100 + int64(len(dropped)))
	}
	tell(t, w, "somebody\nend\n")
	end, records := y.endedFrom(170)
	if end.Gone || linesOf(t, records, "stdout") != "somebody|end" {
		t.Fatalf("it ended with %+v after %d records", end, len(records))
	}
	for _, r := range dropped {
		if r.Truncated == 0 {
			t.Errorf("a record that nobody kept is %+v", r)
		}
	}
}

// A RESUME from behind all that a command has printed is none, and takes nothing of what it prints next.
func TestResumeFromBehindWhatACommandHasPrinted(t *testing.T) {
	c := newFaulty(t, t.TempDir(), nil)
	path, w := pipe(t)
	x := c.peer.call("counted", harp.Args{"pipe": path}).accepted()
	for next := int64(0); next < 100; {
		next += int64(len(expect[wire.Records](x, wire.TypeRecords).Records))
		x.ack(next)
	}
	if _, err := c.peer.resume(x.id, 101).x.Receive(t.Context()); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("it is answered with %v", err)
	}
	tell(t, w, "one\ntwo\nend\n")
	if end, records := x.endedFrom(100); end.Gone || linesOf(t, records, "stdout") != "one|two|end" {
		t.Errorf("it ended with %+v after %d records", end, len(records))
	}
}

// A direct call of a command ends when its caller has gone, however much it has printed
// that nobody took.
func TestDirectCallerOfACommandGoes(t *testing.T) {
	a := newAgent(t, loopback{})
	if err := a.Load(procedureDir(t, faulty)); err != nil {
		t.Fatal(err)
	}
	c, r := serve(t, loopback{}, a)
	x := c.call("flood", harp.Args{"n": 10_000_000}, func(c *wire.Call, _ *harp.Request) { c.Window = wire.MinWindow })
	expect[wire.Started](x, wire.TypeStarted)
	expect[wire.Records](x, wire.TypeRecords)
	c.session.Close(nil)
	until(t, "the command is ended", func() bool { return len(processesOf(t, x.id)) == 0 })
	until(t, "the call is forgotten", func() bool { return a.HeldBytes() == 0 })
	r.stop()
	r.wait()
}

// An agent that stops does not wait for a caller that takes nothing of what a command
// printed, nor lets the command wait for it that prints much as it is to end.
func TestStopWhileNobodyTakes(t *testing.T) {
	stop := func(procedure string, args harp.Args, options ...func(*agent.Config)) {
		a := newAgent(t, loopback{}, options...)
		if err := a.Load(procedureDir(t, faulty)); err != nil {
			t.Fatal(err)
		}
		c, r := serve(t, loopback{}, a)
		x := c.call(procedure, args, func(c *wire.Call, _ *harp.Request) { c.Window = wire.MinWindow })
		expect[wire.Started](x, wire.TypeStarted)
		expect[wire.Records](x, wire.TypeRecords)
		r.stop()
		r.wait()
		if left := processesOf(t, x.id); len(left) > 0 {
			t.Errorf("%v is left", left)
		}
	}
	stop("flood", harp.Args{"n": 10_000_000}, func(c *agent.Config) { c.Limits.Grace = time.Millisecond })
	stop("flood.last", nil)
}

// A command that ended by itself before its agent stopped has ended as it did, though what it
// has left keeps it open, and is ended with the agent.
func TestCommandEndsJustBeforeItsAgent(t *testing.T) {
	c := newFaulty(t, "", nil)
	path, w := pipe(t)
	x := c.peer.call("ended", harp.Args{"pipe": path}).accepted()
	printed := func(want string) {
		t.Helper()
		if r := expect[wire.Records](x, wire.TypeRecords).Records; line(t, r[0]) != want {
			t.Errorf("it printed %q", line(t, r[0]))
		}
	}
	printed("stdout ready")
	tell(t, w, "end\n")
	printed("stdout asked")
	c.run.stop()
	until(t, "it is to end", func() bool { return c.agent.Closes(x.id) })
	for _, p := range processesOf(t, x.id) {
		_ = syscall.Kill(p.pid, syscall.SIGKILL) // one of them may have ended
	}
	if end := x.ending(); end.Stopped != nil || value[int](t, end) != 0 {
		t.Errorf("it ended with %+v", end)
	}
	c.run.wait()
}

// A command that ran inside an agent that was killed is ended before anybody is told that
// it is gone.
func TestOrphanOfAKilledAgent(t *testing.T) {
	disk := journal.NewMemory()
	c := newFaulty(t, "", disk)
	x, w := c.callLines()
	then := journalled(t, disk)
	tell(t, w, "end\n")
	x.rest()
	c.stop()
	orphan := exec.Command("/bin/sleep", "1000")
	orphan.Env = []string{"HARP_JOB=" + x.id, "HARP_ATTEMPT=1"}
	if err := orphan.Start(); err != nil {
		t.Fatal(err)
	}
	only(t, x.id)
	c.disk = then
	c.boot()
	if h := c.peer.held; len(h) != 1 || h[0].State == wire.HeldEnded {
		t.Errorf("the next agent holds %+v", h)
	}
	end := c.peer.resume(x.id, 0).ending()
	left := processesOf(t, x.id)
	_ = orphan.Process.Kill()
	_ = orphan.Wait() // it was ended
	if !end.Gone || len(left) > 0 {
		t.Errorf("it ended with %+v, and %v is left", end, left)
	}
}

// A supervisor that does not answer is not gone: its command is held as running, keeps its
// place, and is found when it answers.
func TestSupervisorThatDoesNotAnswer(t *testing.T) {
	c := newFaulty(t, t.TempDir(), nil)
	path, w := pipe(t)
	x := c.peer.call("alone", harp.Args{"pipe": path}).accepted()
	of := only(t, x.id)
	c.stop()
	signalTo(t, of.parent, syscall.SIGSTOP)
	defer signalTo(t, of.parent, syscall.SIGCONT)
	c.boot()
	if h := c.peer.held; len(h) != 1 || h[0].Job != x.id || h[0].State != wire.HeldAlive {
		t.Fatalf("the next agent holds %+v", h)
	}
	if reason := c.peer.call("alone", harp.Args{"pipe": path}).notNow(); reason != wire.NotNowBusy {
		t.Errorf("another is told %s", reason)
	}
	y := c.peer.resume(x.id, 0, func(m *wire.Resume) { m.Cancel = &wire.Cancel{} })
	signalTo(t, of.parent, syscall.SIGCONT)
	if end, _ := y.rest(); end.Gone || end.Stopped == nil {
		t.Errorf("it ended with %+v", end)
	}
	if err := w.Close(); err != nil {
		t.Error(err)
	}
}

func signalTo(t *testing.T, pid int, sig syscall.Signal) {
	t.Helper()
	if err := syscall.Kill(pid, sig); err != nil && err != syscall.ESRCH {
		t.Fatal(err)
	}
}

// What a command printed that went down with the machine is told, though no agent was
// there to take it.
func TestRecordsOfACommandThatReboots(t *testing.T) {
	c := newFaulty(t, t.TempDir(), nil)
	path, w := pipe(t)
	x := c.peer.call("reboot.logged", harp.Args{"pipe": path}).accepted()
	tell(t, w, "going down\n")
	expect[wire.Records](x, wire.TypeRecords)
	x.ack(1)
	c.stop()
	tell(t, w, "unmounted\n")
	c.noted(x, "unmounted")
	endSupervisors(t, x.id)
	agent.BootAnew(t)
	c.boot()
	end, records := c.peer.resume(x.id, 1).endedFrom(1)
	if end.Gone || end.Failure != nil || linesOf(t, records, "stdout") != "unmounted" {
		t.Errorf("it ended with %+v after %q", end, linesOf(t, records, "stdout"))
	}
	c.restart() // the acknowledgement may have come too late
	c.nothingLeft()
}

// What can never be executed is refused, also where that shows before it is prepared: it
// is not asked for again and again.
func TestCommandOfAUserThatIsNotThere(t *testing.T) {
	for _, dir := range []string{"", t.TempDir()} {
		c := newFaulty(t, dir, nil)
		f := c.peer.call("stranger", harp.Args{"key": "hush"}).refused()
		if f.Type != "exec" || harp.RanOf(f.Err()) != harp.DidNotRun {
			t.Errorf("it is refused with %+v", f)
		}
		if left, err := os.ReadDir(filepath.Join(dir, "run")); dir != "" && (err != nil || len(left) > 0) {
			t.Errorf("left: %v, %v", left, err)
		}
	}
}

// A machine that cannot prepare a command is asked again later, not at once: no READY makes
// room for it.
func TestCommandThatCannotBePrepared(t *testing.T) {
	c := newFaulty(t, t.TempDir(), nil)
	run := filepath.Join(c.dir, "run")
	if err := os.RemoveAll(run); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(run, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	id := harp.NewID()
	same := func(_ *wire.Call, r *harp.Request) { r.ID = id }
	if reason := c.peer.call("say", harp.Args{"what": "x"}, same).notNow(); reason != wire.NotNowNoSpace {
		t.Errorf("it is put off for %s", reason)
	}
	if err := os.Remove(run); err != nil {
		t.Fatal(err)
	}
	end, records := c.peer.call("say", harp.Args{"what": "x"}, same).accepted().rest()
	if end.Gone || !strings.HasPrefix(linesOf(t, records, "stdout"), "x|") {
		t.Errorf("asked again it ended with %+v", end)
	}
}

// How long a command ran is what its supervisor measured, not when an agent heard of it.
func TestHowLongACommandRan(t *testing.T) {
	c := newFaulty(t, t.TempDir(), nil)
	path, w := pipe(t)
	called := time.Now()
	x := c.peer.call("counted", harp.Args{"pipe": path}).accepted()
	expect[wire.Records](x, wire.TypeRecords)
	c.stop()
	tell(t, w, "end\n")
	c.noted(x, ended)
	most := time.Since(called)
	c.boot()
	end, _ := c.peer.resume(x.id, 0).rest()
	if ran := time.Duration(end.RanFor); ran <= 0 || ran > most {
		t.Errorf("it is said to have run for %v, and was there for %v at most", ran, most)
	}
}

// What a command printed while its agent was away, and that its supervisor cannot read, does not
// end it: it is told as dropped, and how the command ends is told as ever.
func TestOutputThatCannotBeReadBeforeTheEnd(t *testing.T) {
	c := newFaulty(t, t.TempDir(), nil)
	x, w := c.callLines()
	c.stop()
	tell(t, w, "unreadable\n")
	c.noted(x, "unreadable")
	spool := filepath.Join(c.dir, "run", x.id+".1", "spool")
	b, err := os.ReadFile(spool)
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(spool, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt([]byte{'U'}, int64(strings.Index(string(b), "unreadable"))); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	c.boot()
	y := c.peer.resume(x.id, 0)
	tell(t, w, "end\n")
	end, records := y.endedFrom(0)
	if end.Gone || value[int](t, end) != 4 || len(records) != 1 || records[0].Truncated == 0 {
		t.Errorf("it ended with %+v after %+v", end, records)
	}
	c.nothingLeft()
}

// An agent that stops while a supervisor does not answer leaves that alone, and does not wait for
// it; the next agent has the command.
func TestStopWhileASupervisorDoesNotAnswer(t *testing.T) {
	c := newFaulty(t, t.TempDir(), nil)
	x, w := c.callLines()
	of := only(t, x.id)
	c.stop()
	signalTo(t, of.parent, syscall.SIGSTOP)
	defer signalTo(t, of.parent, syscall.SIGCONT)
	c.boot()
	c.stop()
	signalTo(t, of.parent, syscall.SIGCONT)
	tell(t, w, "end\n")
	c.boot()
	c.delivers(x, "end")
	c.nothingLeft()
}

// A command that ends with a reboot and was killed, without one, has failed as it did.
func TestKilledWithoutAReboot(t *testing.T) {
	agent.ShortenReboot(t)
	c := newCommander(t, t.TempDir())
	path, _ := pipe(t)
	x := c.peer.call("reboot", harp.Args{"pipe": path}).accepted()
	signalTo(t, only(t, x.id).pid, syscall.SIGKILL)
	if f := failure(t, x.ending()); f.ExitCode == nil || *f.ExitCode != 137 {
		t.Errorf("it ended with %+v", f)
	}
}

// A command that has ended, and whose machine is to boot, is cancelled without waiting for that.
func TestCancelWhileARebootIsAwaited(t *testing.T) {
	inBothWirings(t, func(t *testing.T, c *commander) {
		path, w := pipe(t)
		x := c.peer.call("reboot", harp.Args{"pipe": path}).accepted()
		pid := only(t, x.id).pid
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		until(t, "the command has ended", func() bool { return syscall.Kill(pid, 0) != nil })
		x.cancel()
		if s := x.stopping(); s.Cause != wire.CauseCancel {
			t.Errorf("it is stopped for %q", s.Cause)
		}
		end := x.restOf()
		if f := harp.FailureOf(end.Failure); end.Stopped == nil || f.Type != "no_reboot" {
			t.Errorf("it ended with %+v, %+v", end, f)
		}
	})
}
