package agent

import (
	"context"
	"errors"
	"log/slog"
	"testing"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/agent/internal/life"
	"github.com/harpcaller/harp/agent/journal"
	"github.com/harpcaller/harp/internal/wire"
)

// spooling is an attempt that runs, whose start is journalled on a disk.
type spooling struct {
	*attempt
	t    *testing.T
	disk *journal.Memory
}

func newSpooling(t *testing.T) *spooling {
	t.Helper()
	disk := journal.NewMemory()
	return newSpoolingOn(t, disk, disk.Mount())
}

// newSpoolingOn is newSpooling with a journal in a directory of a disk.
func newSpoolingOn(t *testing.T, disk *journal.Memory, fs journal.FS) *spooling {
	t.Helper()
	a := New(Config{Name: "web01", Journal: fs, Logger: slog.New(slog.DiscardHandler)})
	if err := a.journal.open(t.Context()); err != nil {
		t.Fatal(err)
	}
	k := key{job: harp.NewID(), number: 1}
	at := newAttempt(a, k, new(expectation))
	at.info = &CallInfo{JobID: k.job, Attempt: 1}
	at.life = life.Recall(life.Past{Phase: life.Running})
	at.ctx, at.cancel = context.WithCancelCause(t.Context())
	if err := a.JournalStart(k.job); err != nil {
		t.Fatal(err)
	}
	at.journalled(a.journal.current())
	return &spooling{at, t, disk}
}

// reopen puts another journal, of what is on the disk, in the place of the one that is
// open.
func (s *spooling) reopen(disk *journal.Memory) {
	s.t.Helper()
	k := s.agent.journal
	old := k.current()
	k.fs = disk.Mount()
	j, err := k.load()
	if err != nil {
		s.t.Fatal(err)
	}
	k.now.Lock()
	k.journal = j
	k.now.Unlock()
	_ = old.Close() // it cannot write any more
}

// numbered is the number that the next record gets.
func (s *spooling) numbered() int64 {
	now := s.look()
	return now.Records()
}

// dropped reports whether what a command of the attempt prints is dropped, and how many bytes
// have been since the last record.
func (s *spooling) dropped() (deaf bool, missed int64) {
	now := s.look()
	n, p := now.Records(), new(life.Peer)
	now.Next(life.Event{Kind: life.OfferAt, Next: n})
	deaf = now.Records() == n
	now.Next(life.Event{Kind: life.Return})
	now.Next(life.Event{Kind: life.Attach, Peer: p, Next: n})
	if m := now.Next(life.Event{Kind: life.Send, Peer: p}).Message.Records; m != nil {
		missed = m.Records[0].Truncated
	}
	return deaf, missed
}

// await makes the attempt one whose first peer comes now.
func (s *spooling) await() { s.life = life.New(life.Elsewhere, true, 0) }

// close closes the journal.
func (s *spooling) close() {
	s.cancel(nil)
	s.agent.journal.close()
}

// tell makes a sender that tells of the attempt from a record on.
func (s *spooling) tell(from int64) *sender {
	s.t.Helper()
	r := &sender{session: &session{store: s.store}, at: s.attempt, wake: make(chan struct{}, 1)}
	if result, _ := s.attach(r, ask{from: from, window: wire.Window}); result != told {
		s.t.Fatalf("a peer that asks from record %d on is answered with %d", from, result)
	}
	return r
}

// newSick is newSpooling on a disk that can be made to fail.
func newSick(t *testing.T) (*spooling, *sick) {
	t.Helper()
	disk := journal.NewMemory()
	fs := &sick{FS: disk.Mount()}
	return newSpoolingOn(t, disk, fs), fs
}

// breakJournal breaks the journal by a disk that stays ill.
func (s *spooling) breakJournal(disk *sick) {
	s.t.Helper()
	disk.ill.Store(true)
	if err := s.agent.JournalStart(harp.NewID()); !errors.Is(err, journal.ErrBroken) {
		s.t.Fatal(err)
	}
}

// onRead is a journal's directory that calls a function when it is read next.
type onRead struct {
	journal.FS
	do func()
}

func (o *onRead) Open(name string) (journal.File, error) {
	f, err := o.FS.Open(name)
	return onReadFile{f, o}, err
}

func (o *onRead) Create(name string) (journal.File, error) {
	f, err := o.FS.Create(name)
	return onReadFile{f, o}, err
}

type onReadFile struct {
	journal.File
	of *onRead
}

func (f onReadFile) ReadAt(p []byte, at int64) (int, error) {
	if do := f.of.do; do != nil {
		f.of.do = nil
		do()
	}
	return f.File.ReadAt(p, at)
}
