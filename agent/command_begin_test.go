//go:build linux

package agent_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/agent"
	"github.com/harpcaller/harp/agent/journal"
	"github.com/harpcaller/harp/internal/wire"
)

// onSync is a directory where something happens before a file is synced, once.
type onSync struct {
	journal.FS
	do *atomic.Pointer[func()]
}

func newOnSync(fs journal.FS) onSync { return onSync{fs, new(atomic.Pointer[func()])} }

func (o onSync) Open(name string) (journal.File, error) {
	f, err := o.FS.Open(name)
	return onSyncFile{f, o}, err
}

func (o onSync) Create(name string) (journal.File, error) {
	f, err := o.FS.Create(name)
	return onSyncFile{f, o}, err
}

type onSyncFile struct {
	journal.File
	of onSync
}

func (f onSyncFile) Sync() error {
	if do := f.of.do.Swap(nil); do != nil {
		(*do)()
	}
	return f.File.Sync()
}

// supervisors are the supervisors that this process has started, and that live.
func supervisors(t *testing.T) (pids []int) {
	t.Helper()
	all, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range all {
		argv, _ := os.ReadFile(path)
		stat, err := os.ReadFile(filepath.Join(filepath.Dir(path), "stat"))
		if err != nil || !strings.HasPrefix(string(argv), "harp-supervise") {
			continue // or it has ended just now
		}
		_, rest, _ := strings.Cut(string(stat), ") ")
		if fields := strings.Fields(rest); fields[0] == "Z" || fields[1] != strconv.Itoa(os.Getpid()) {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		if err != nil {
			t.Fatal(err)
		}
		pids = append(pids, pid)
	}
	return pids
}

// A command whose supervisor is killed when its start is journalled, before it was told to
// begin, was not started: it is not lost, and may be asked for again.
func TestSupervisorDiesBeforeTheCommandBegins(t *testing.T) {
	disk := newOnSync(journal.NewMemory())
	dir, load := t.TempDir(), procedureDir(t, commands)
	a := newAgent(t, loopback{}, func(c *agent.Config) { c.Dir, c.Journal = dir, disk })
	if err := a.Load(load); err != nil {
		t.Fatal(err)
	}
	d := listen(t, loopback{})
	r := run(t, func(ctx context.Context) error { return a.Connect(ctx, d.addr) })
	defer r.wait()
	defer r.stop()
	peer := <-d.sessions
	kill := func() {
		for _, pid := range supervisors(t) {
			signalTo(t, pid, syscall.SIGKILL)
		}
	}
	disk.do.Store(&kill)
	id := harp.NewID()
	same := func(_ *wire.Call, r *harp.Request) { r.ID = id }
	if reason := peer.call("say", harp.Args{"what": "x"}, same).notNow(); reason != wire.NotNowNoSpace {
		t.Errorf("it is put off for %s", reason)
	}
	end, records := peer.call("say", harp.Args{"what": "x"}, same).accepted().rest()
	if end.Gone || !strings.HasPrefix(linesOf(t, records, "stdout"), "x|") {
		t.Errorf("asked again it ended with %+v", end)
	}
}

// A command that runs when its agent has lost its journal is reported, counts as one that
// runs, and delivers its end, also to an agent after the next; so does one that has ended.
func TestJournalIsGoneAndCommandsLive(t *testing.T) {
	c := newCommander(t, t.TempDir())
	path, w := pipe(t)
	fence := func(c *wire.Call, _ *harp.Request) { c.Fence = 7 }
	alone := c.peer.call("alone", harp.Args{"pipe": path}, fence).accepted()
	other, lines := pipe(t)
	ending := c.peer.call("lines", harp.Args{"pipe": other}, fence).accepted()
	tell(t, lines, "a\n")
	expect[wire.Records](ending, wire.TypeRecords)
	c.stop()
	if err := os.RemoveAll(filepath.Join(c.dir, "journal")); err != nil {
		t.Fatal(err)
	}
	tell(t, lines, "end\n")
	c.noted(ending, ended)
	c.boot()
	c.restart()
	if h := c.peer.held; len(h) != 2 || h[0].Fence != 7 || h[1].Fence != 7 {
		t.Fatalf("the next agent holds %+v", h)
	}
	if reason := c.peer.call("alone", harp.Args{"pipe": path}).notNow(); reason != wire.NotNowBusy {
		t.Errorf("another is told %s", reason)
	}
	x := c.peer.resume(alone.id, 0)
	if err := w.Close(); err != nil {
		t.Error(err)
	}
	if end, _ := x.rest(); end.Gone || value[int](t, end) != 0 {
		t.Errorf("it ended with %+v", end)
	}
	c.delivers(ending, "a|end")
	c.nothingLeft()
}

// A command that the journal does not know and that cannot be looked at when its agent begins is
// taken on when it can be, in a new session; until then that agent is not idle.
func TestJournalIsGoneAndCommandsCannotBeRead(t *testing.T) {
	c := newCommander(t, t.TempDir())
	x, w := c.callLines()
	c.stop()
	if err := os.RemoveAll(filepath.Join(c.dir, "journal")); err != nil {
		t.Fatal(err)
	}
	spools, err := filepath.Glob(filepath.Join(c.dir, "run", "*", "spool"))
	if err != nil || len(spools) != 1 {
		t.Fatalf("there are %v, %v", spools, err)
	}
	spool, away := spools[0], filepath.Join(filepath.Dir(spools[0]), "away")
	if err := errors.Join(os.Rename(spool, away), os.Symlink("spool", spool)); err != nil {
		t.Fatal(err)
	}
	c.boot()
	if len(c.peer.held) > 0 {
		t.Fatalf("it holds %+v", c.peer.held)
	}
	over, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if err := c.agent.Drain(over); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Drain when it is not known what runs: %v", err)
	}
	if err := os.Rename(away, spool); err != nil {
		t.Fatal(err)
	}
	c.peer = <-c.d.sessions
	if h := c.peer.held; len(h) != 1 || h[0].Job != x.id || h[0].State != wire.HeldAlive {
		t.Fatalf("then it holds %+v", h)
	}
	tell(t, w, "b\nend\n")
	c.delivers(x, "b|end")
	if err := c.agent.Drain(t.Context()); err != nil {
		t.Error(err)
	}
	c.nothingLeft()
}

// A procedure that runs once at a time does not begin while it is not known what runs: it may be just that.
func TestExclusiveBesideWhatCannotBeRead(t *testing.T) {
	c := &commander{t: t, d: listen(t, loopback{}), dir: t.TempDir(), load: procedureDir(t, sole)}
	c.boot()
	path, w := pipe(t)
	x := c.peer.call("sole", harp.Args{"pipe": path}).accepted()
	c.stop()
	spool := filepath.Join(c.dir, "run", x.id+".1", "spool")
	err := errors.Join(os.RemoveAll(filepath.Join(c.dir, "journal")), os.Rename(spool, spool+".away"), os.Symlink("spool", spool))
	if err != nil {
		t.Fatal(err)
	}
	c.boot()
	second, v := pipe(t)
	call := func() *exchange { return c.peer.call("sole", harp.Args{"pipe": second}) }
	if y := call(); !y.isNotNow() {
		t.Error("another one begins while it is not known what runs")
	}
	if err := os.Rename(spool+".away", spool); err != nil {
		t.Fatal(err)
	}
	c.peer = <-c.d.sessions
	if y := call(); !y.isNotNow() {
		t.Error("another one begins beside the one that runs")
	}
	tell(t, w, "end\n")
	if end, _ := c.peer.resume(x.id, 0).endedFrom(0); end.Gone {
		t.Errorf("it ended with %+v", end)
	}
	c.nothingLeft()
	tell(t, v, "end\n")
	if end := call().accepted().ending(); end.Gone {
		t.Errorf("the next one ended with %+v", end)
	}
	c.nothingLeft()
}

// sole runs once at a time.
const sole = `
sole:
  params: {pipe: {type: path, required: true}}
  command: [/bin/sh, -c, 'while read -r l; do [ "$l" = end ] && exit 0; done < "$1"', sh, "{{.pipe}}"]
  exclusive: true
`

// A command that runs, and of which a repaired journal has a part only, is reported as
// one of which it has nothing, and delivers its end.
func TestCommandOfWhichARepairedJournalHasAPart(t *testing.T) {
	c := newCommander(t, t.TempDir())
	x, w := c.callLines()
	tell(t, w, "a\n")
	expect[wire.Records](x, wire.TypeRecords)
	c.stop()
	damage(t, c.dir, x.id)
	did, err := agent.RepairJournal(c.dir)
	if err != nil || did.NewID == "" {
		t.Fatalf("%+v, %v", did, err)
	}
	c.boot()
	if h := c.peer.held; len(h) != 1 || h[0].Job != x.id || h[0].State != wire.HeldAlive {
		t.Fatalf("of %+v the next agent holds %+v", did.Partial, h)
	}
	tell(t, w, "end\n")
	c.delivers(x, "a|end")
	c.nothingLeft()
}

// What has ended while its agent was away is not thrown away where a new journal cannot
// take it, as the disk is full.
func TestJournalIsGoneAndTheDiskIsFull(t *testing.T) {
	c := newCommander(t, t.TempDir())
	x, w := c.callLines()
	c.stop()
	tell(t, w, "a\nend\n")
	c.noted(x, ended)
	full := newAiling(journal.NewMemory())
	fill := func() { full.fail(syscall.ENOSPC) }
	made := newOnSync(full) // its head is written
	made.do.Store(&fill)
	a := newAgent(t, loopback{}, func(cfg *agent.Config) { cfg.Dir, cfg.Journal = c.dir, made })
	if err := a.Load(c.load); err != nil {
		t.Fatal(err)
	}
	r := run(t, func(ctx context.Context) error { return a.Connect(ctx, c.d.addr) })
	peer := <-c.d.sessions
	t.Logf("it holds %+v", peer.held)
	r.stop()
	r.wait()
	c.disk = journal.NewMemory()
	c.boot()
	if h := c.peer.held; len(h) != 1 || h[0].Job != x.id {
		t.Fatalf("the next agent holds %+v", h)
	}
	c.delivers(x, "a|end")
}

// An agent that is told to drain as it starts is not idle before it knows what the last one
// has left running.
func TestDrainBeforeCommandsAreFound(t *testing.T) {
	c := newCommander(t, t.TempDir())
	x, w := c.callLines()
	c.stop()
	a := newAgent(t, loopback{}, func(cfg *agent.Config) { cfg.Dir = c.dir })
	idle := make(chan error, 1)
	go func() { idle <- a.Drain(t.Context()) }()
	until(t, "it drains", a.Drains)
	r := run(t, func(ctx context.Context) error { return a.Connect(ctx, c.d.addr) })
	peer := <-c.d.sessions
	y := peer.resume(x.id, 0)
	select {
	case err := <-idle:
		t.Fatalf("idle while a command runs: %v", err)
	default:
	}
	tell(t, w, "end\n")
	y.ended()
	if err := <-idle; err != nil {
		t.Error(err)
	}
	r.stop()
	r.wait()
}

// An agent is not idle once it has let go of a command that goes on without it: it is when it
// has come back, and that has ended.
func TestDrainOfAnAgentThatHasEnded(t *testing.T) {
	c := newCommander(t, t.TempDir())
	x, w := c.callLines()
	waiting := make(chan error, 1)
	go func() { waiting <- c.agent.Drain(t.Context()) }()
	until(t, "it drains", c.agent.Drains)
	c.stop()
	over, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := c.agent.Drain(over); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Drain while a command runs: %v", err)
	}
	r := run(t, func(ctx context.Context) error { return c.agent.Connect(ctx, c.d.addr) })
	y := (<-c.d.sessions).resume(x.id, 0)
	tell(t, w, "end\n")
	y.ended()
	if err := <-waiting; err != nil {
		t.Error(err)
	}
	r.stop()
	r.wait()
}
