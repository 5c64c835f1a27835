//go:build linux

package agent_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/agent"
	"github.com/harpcaller/harp/agent/journal"
	"github.com/harpcaller/harp/internal/wire"
)

// starter is an agent to whose command something is done when its start is journalled, and its
// supervisor is there and was not told to begin.
type starter struct {
	*commander
	ill  ailing
	disk onSync
}

func newStarter(t *testing.T) *starter {
	ill := newAiling(journal.NewMemory())
	s := &starter{ill: ill, disk: newOnSync(ill)}
	s.commander = &commander{t: t, d: listen(t, loopback{}), dir: t.TempDir(), load: procedureDir(t, commands)}
	s.agent = newAgent(t, loopback{}, func(c *agent.Config) { c.Dir, c.Journal = s.dir, s.disk })
	if err := s.agent.Load(s.load); err != nil {
		t.Fatal(err)
	}
	s.run = run(t, func(ctx context.Context) error { return s.agent.Connect(ctx, s.d.addr) })
	s.peer = <-s.d.sessions
	return s
}

// callAs calls the command that says something, as a job.
func (s *starter) callAs(id string) *exchange {
	return s.peer.call("say", harp.Args{"what": "x"}, func(_ *wire.Call, r *harp.Request) { r.ID = id })
}

// atStart does something to what is there of a job's command when that starts.
func (s *starter) atStart(id string, do func(place string)) {
	at := func() { do(filepath.Join(s.dir, "run", id+".1")) }
	s.disk.do.Store(&at)
}

// runs checks that a job can be called, and runs.
func (s *starter) runs(id string) {
	s.t.Helper()
	end, records := s.callAs(id).accepted().rest()
	if end.Gone || !strings.HasPrefix(linesOf(s.t, records, "stdout"), "x|") {
		s.t.Errorf("it ended with %+v", end)
	}
}

// keepsNothing checks that no room is kept for a command that is not there.
func (s *starter) keepsNothing() {
	s.t.Helper()
	until(s.t, "what commands may keep is given back", func() bool {
		bytes, commands := s.agent.Kept()
		return bytes == 0 && commands == 0
	})
}

// killSupervisors kills those of this process.
func killSupervisors(t *testing.T) {
	t.Helper()
	for _, pid := range supervisors(t) {
		signalTo(t, pid, syscall.SIGKILL)
	}
}

// A command whose start cannot be journalled is not started, and nothing is left of it: neither
// a supervisor, nor the room that it was to have.
func TestCommandWhoseStartIsNotJournalled(t *testing.T) {
	s := newStarter(t)
	id := harp.NewID()
	s.ill.fail(syscall.ENOSPC)
	if reason := s.callAs(id).notNow(); reason != wire.NotNowNoSpace {
		t.Errorf("it is put off for %s", reason)
	}
	s.nothingLeft()
	s.keepsNothing()
	s.ill.heal()
	s.runs(id)
	s.keepsNothing()
}

// A command whose supervisor is lost as it is to begin, so that nobody can know whether it did,
// is not said to wait, nor refused: it counts as started, and as gone.
func TestSupervisorIsLostAsTheCommandBegins(t *testing.T) {
	s := newStarter(t)
	id := harp.NewID()
	s.atStart(id, func(place string) {
		killSupervisors(t)
		if err := os.RemoveAll(place); err != nil {
			t.Error(err)
		}
	})
	if end := s.callAs(id).accepted().ending(); !end.Gone {
		t.Errorf("it ended with %+v", end)
	}
	s.callAs(id).tombstone()
	s.keepsNothing()
	removeCgroups(t, id)
}

// Where the journal breaks as the start of a command that did not begin is to be taken back,
// nothing is said of it; the next session holds it as gone, for what is on the disk says that it
// started.
func TestJournalBreaksAsACommandCannotBegin(t *testing.T) {
	s := newStarter(t)
	id := harp.NewID()
	s.atStart(id, func(string) {
		killSupervisors(t)
		s.ill.fail(syscall.EIO)
	})
	x := s.callAs(id)
	if f, err := x.x.Receive(t.Context()); err == nil {
		t.Errorf("it is answered with frame type %d", f.Type)
	}
	s.ill.heal()
	s.peer = <-s.d.sessions
	if h := s.peer.held; len(h) != 1 || h[0].Job != id || h[0].State != wire.HeldGone {
		t.Errorf("then it holds %+v", h)
	}
	s.keepsNothing()
}

// A command that is there, though the journal does not know it and its supervisor could not be
// looked at, is not started a second time by a call: that is told that nothing is known of it.
func TestCommandThatIsThereIsNotStartedAgain(t *testing.T) {
	c := newCommander(t, t.TempDir())
	x, w := c.callLines()
	of := only(t, x.id)
	c.stop()
	if err := os.RemoveAll(filepath.Join(c.dir, "journal")); err != nil {
		t.Fatal(err)
	}
	spool := filepath.Join(c.dir, "run", x.id+".1", "spool")
	away := filepath.Join(filepath.Dir(spool), "away")
	if err := errors.Join(os.Rename(spool, away), os.Symlink("spool", spool)); err != nil {
		t.Fatal(err)
	}
	c.boot()
	path, _ := pipe(t)
	c.peer.call("lines", harp.Args{"pipe": path}, again(x)).tombstone()
	if now := only(t, x.id); now != of {
		t.Errorf("%+v runs, and %+v did", now, of)
	}
	if bytes, commands := c.agent.Kept(); bytes != 0 || commands != 0 {
		t.Errorf("%d bytes of %d commands are kept", bytes, commands)
	}
	if err := os.Rename(away, spool); err != nil {
		t.Fatal(err)
	}
	c.peer = <-c.d.sessions
	tell(t, w, "end\n")
	c.delivers(x, "end")
	c.nothingLeft()
}

// idle makes what there is of a command as its start is journalled, and was not begun, be there
// again, when that command has ended and was forgotten.
func (s *starter) idle(id string) (then *journal.Memory) {
	s.t.Helper()
	var spool []byte
	s.atStart(id, func(place string) {
		var err error
		if spool, err = os.ReadFile(filepath.Join(place, "spool")); err != nil {
			s.t.Error(err)
		}
		then = journalled(s.t, s.ill.FS.(*journal.Memory)) // later it may have the end
	})
	s.callAs(id).accepted().rest()
	s.nothingLeft() // while somebody lets go of it
	s.stop()
	place := filepath.Join(s.dir, "run", id+".1")
	if err := errors.Join(os.Mkdir(place, 0o700), os.WriteFile(filepath.Join(place, "spool"), spool, 0o600)); err != nil {
		s.t.Fatal(err)
	}
	names, err := then.List()
	if err != nil || !slices.ContainsFunc(names, func(name string) bool { return strings.Contains(string(then.Bytes(name)), id) }) {
		s.t.Fatal("the journal has no start", err)
	}
	return then
}

// A command that its agent has journalled and died before it began is not lost with that: the
// next agent takes back its start, and it may be asked for again. So it is if the journal knows
// nothing of it.
func TestCommandThatNeverBegan(t *testing.T) {
	for name, known := range map[string]bool{"the journal has its start": true, "the journal has nothing": false} {
		t.Run(name, func(t *testing.T) {
			s := newStarter(t)
			id := harp.NewID()
			if s.commander.disk = s.idle(id); !known {
				s.commander.disk = journal.NewMemory()
			}
			s.boot()
			if h := s.peer.held; len(h) > 0 {
				t.Fatalf("the next agent holds %+v", h)
			}
			s.nothingLeft()
			s.keepsNothing()
			s.runs(id)
		})
	}
}

// A command that never began, and whose start the journal cannot take back, is not said not to
// have started while the journal says that it has.
func TestCommandThatNeverBeganOnAFullDisk(t *testing.T) {
	s := newStarter(t)
	id := harp.NewID()
	full := newAiling(s.idle(id))
	made := newOnSync(full) // its next segment is there
	fill := func() { full.fail(syscall.ENOSPC) }
	made.do.Store(&fill)
	a := newAgent(t, loopback{}, func(cfg *agent.Config) { cfg.Dir, cfg.Journal = s.dir, made })
	if err := a.Load(s.load); err != nil {
		t.Fatal(err)
	}
	run(t, func(ctx context.Context) error { return a.Connect(ctx, s.d.addr) })
	s.peer = <-s.d.sessions
	if h := s.peer.held; len(h) != 1 || h[0].Job != id {
		t.Fatalf("it holds %+v", h)
	}
	if end := s.callAs(id).ending(); !end.Gone {
		t.Errorf("it ended with %+v", end)
	}
}

// The room of a command is counted once by the agent that takes it on, and given back when it has
// ended.
func TestRoomOfACommandThatIsTakenOn(t *testing.T) {
	for name, known := range map[string]bool{"the journal knows it": true, "the journal is gone": false} {
		t.Run(name, func(t *testing.T) {
			c := newCommander(t, t.TempDir())
			x, w := c.callLines()
			bytes, commands := c.agent.Kept()
			if bytes == 0 || commands != 1 {
				t.Fatalf("%d bytes of %d commands are kept", bytes, commands)
			}
			c.stop()
			if !known {
				if err := os.RemoveAll(filepath.Join(c.dir, "journal")); err != nil {
					t.Fatal(err)
				}
			}
			c.boot()
			if b, n := c.agent.Kept(); b != bytes || n != 1 {
				t.Errorf("the next agent counts %d bytes of %d commands, the last one counted %d", b, n, bytes)
			}
			tell(t, w, "end\n")
			c.delivers(x, "end")
			until(t, "it is given back", func() bool {
				b, n := c.agent.Kept()
				return b == 0 && n == 0
			})
		})
	}
}

// A supervisor whose command cannot be read, and never will be, keeps nobody waiting: an agent
// that drains is idle beside it.
func TestDrainBesideWhatCannotBeRead(t *testing.T) {
	c := newCommander(t, t.TempDir())
	c.stop()
	place := filepath.Join(c.dir, "run", harp.NewID()+".1")
	if err := errors.Join(os.MkdirAll(place, 0o700), os.WriteFile(filepath.Join(place, "spool"), make([]byte, 8192), 0o600)); err != nil {
		t.Fatal(err)
	}
	c.boot()
	if err := c.agent.Drain(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join(place, "spool")); err != nil {
		t.Errorf("what there is of it: %v", err)
	}
}

// A journal of which it cannot be made sure that what it has accepted never starts is not gone on
// with; and when it can, it is.
func TestAcceptedCannotBeWithdrawn(t *testing.T) {
	disk := journal.NewMemory()
	j, err := journal.Open(disk, journal.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(j.Accept(journal.Key{Job: harp.NewID(), Attempt: 1}, journal.Accept{}), j.Close()); err != nil {
		t.Fatal(err)
	}
	ill := newAiling(disk)
	made := newOnSync(ill) // its next segment is there
	fill := func() { ill.fail(syscall.ENOSPC) }
	made.do.Store(&fill)
	over, cancel := context.WithCancel(t.Context())
	cancel()
	a := newAgent(t, loopback{}, func(cfg *agent.Config) { cfg.Journal = made })
	if err := a.Connect(over, "nowhere"); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("Connect returned %v", err)
	}
	ill.heal()
	if err := a.Connect(over, "nowhere"); err != nil {
		t.Errorf("then Connect returned %v", err)
	}
}

// A file whose procedure no dispatcher could be told of is not loaded.
func TestLoadOfADescriptionThatIsTooLong(t *testing.T) {
	dir := procedureDir(t, "long: {command: [/bin/true], doc: \""+strings.Repeat("x", wire.MaxControl)+"\"}\n")
	var field *harp.FieldError
	if err := newAgent(t, loopback{}).Load(dir); !errors.Is(err, harp.ErrInvalid) {
		t.Errorf("Load gives %v", err)
	} else if errors.As(err, &field) {
		t.Logf("the field is %s", field.Field)
	}
}

// An agent that is told of no way to dial dials TCP.
func TestConnectDialsTCP(t *testing.T) {
	connect(t, loopback{}, newAgent(t, loopback{}, func(c *agent.Config) { c.Dial = nil }))
}

// What is left of a command that never began, and that could not be looked at when the agent began, is
// no command that is there: a call of it is put off for a moment, and then runs.
func TestWhatIsLeftOfACommandThatNeverBeganIsInNobodysWay(t *testing.T) {
	s := newStarter(t)
	id := harp.NewID()
	s.commander.disk = journal.NewMemory()
	s.idle(id)
	place, away := filepath.Join(s.dir, "run", id+".1"), filepath.Join(s.dir, "away")
	if err := os.Rename(place, away); err != nil {
		t.Fatal(err)
	}
	s.boot()
	if err := os.Rename(away, place); err != nil { // as by a supervisor that was slow when its agent was killed
		t.Fatal(err)
	}
	if reason := s.callAs(id).notNow(); reason != wire.NotNowNoSpace {
		t.Errorf("it is put off for %s", reason)
	}
	s.nothingLeft()
	s.keepsNothing()
	s.runs(id)
}

// A command that its supervisor cannot execute, as files have run out there, is put off, wherever that shows,
// and never refused for good: nothing of it was started. When there are enough it runs.
func TestCommandWhileItsSupervisorHasFewFiles(t *testing.T) {
	s := newStarter(t)
	id, putOff := harp.NewID(), 0
	for most := uint64(4); ; most++ {
		s.atStart(id, func(string) {
			for _, pid := range supervisors(t) {
				if err := unix.Prlimit(pid, unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: most, Max: 1024}, nil); err != nil {
					t.Error(err)
				}
			}
		})
		x := s.callAs(id)
		f := x.receive()
		if f.Type == wire.TypeAccepted {
			x.rest()
			break
		}
		if putOff++; f.Type != wire.TypeNotNow || putOff > 100 {
			t.Fatalf("with %d files it is answered with frame type %d: %q", most, f.Type, f.Body)
		}
		s.nothingLeft()
	}
	if putOff == 0 {
		t.Error("it was never short of files")
	}
	s.keepsNothing()
}
