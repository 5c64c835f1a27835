package agent

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/agent/internal/life"
	"github.com/harpcaller/harp/agent/journal"
	"github.com/harpcaller/harp/internal/wire"
)

// sick is a journal's directory whose files cannot be opened or written while it is ill.
type sick struct {
	journal.FS
	ill   atomic.Bool
	numb  atomic.Bool  // what is written while it is ill is there, and nobody hears of it
	fails atomic.Int64 // of syncs, from now on
	opens atomic.Int64 // of files, while it is ill
}

var errSick = errors.New("input/output error")

func (d *sick) Open(name string) (journal.File, error) { return d.open(name, d.FS.Open) }

func (d *sick) Create(name string) (journal.File, error) { return d.open(name, d.FS.Create) }

func (d *sick) open(name string, open func(string) (journal.File, error)) (journal.File, error) {
	if d.ill.Load() {
		d.opens.Add(1)
		return nil, errSick
	}
	f, err := open(name)
	return sickFile{f, d}, err
}

type sickFile struct {
	journal.File
	of *sick
}

func (f sickFile) Write(p []byte) (int, error) {
	if f.of.ill.Load() && !f.of.numb.Load() {
		return 0, errSick
	}
	return f.File.Write(p)
}

func (f sickFile) Sync() error {
	if f.of.ill.Load() || f.of.fails.Load() > 0 && f.of.fails.Add(-1) >= 0 {
		return errSick
	}
	return f.File.Sync()
}

func (f sickFile) Truncate(size int64) error {
	if f.of.ill.Load() {
		return errSick
	}
	return f.File.Truncate(size)
}

// A start that cannot be journalled is answered by what is known of it: that it is not now, that
// it is here already, or nothing at all where it may be on the disk.
func TestStartThatCannotBeJournalled(t *testing.T) {
	for name, test := range map[string]struct {
		before func(s *spooling)
		want   func(no refusal) bool
		owed   bool
	}{
		"it can": {
			func(s *spooling) { s.key.job = harp.NewID() },
			func(no refusal) bool { return !no.is() }, false,
		},
		"the journal has it": {
			func(*spooling) {},
			func(no refusal) bool { return no.known }, false,
		},
		"the journal is closed": {
			func(s *spooling) { _ = s.agent.journal.current().Close() },
			func(no refusal) bool { return no.reason == wire.NotNowDraining }, false,
		},
		"there is no journal": {
			func(s *spooling) { s.agent.journal.journal = nil },
			func(no refusal) bool { return no.reason == wire.NotNowDraining }, false,
		},
		"the journal is broken": {
			func(s *spooling) {
				s.key.job = harp.NewID()
				s.agent.journal.fs.(*sick).ill.Store(true)
			},
			func(no refusal) bool { return no.broken != nil && no.reason == "" }, false,
		},
		"the journal is full": {
			func(s *spooling) {
				s.key.job = harp.NewID()
				s.agent.journal.opts.MaxAgent = 1
				s.reopen(s.disk)
			},
			func(no refusal) bool { return no.reason == wire.NotNowNoSpace }, true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				disk := journal.NewMemory()
				s := newSpoolingOn(t, disk, &sick{FS: disk.Mount()})
				j := s.agent.journal.current()
				defer func() {
					s.agent.journal.journal = j
					s.close()
				}()
				test.before(s)
				s.spool.key = s.key.journal()
				ses := &session{agent: s.agent, log: slog.New(slog.DiscardHandler), vacancy: make(chan struct{}, 1)}
				if no := ses.journalStart(s.attempt); !test.want(no) {
					t.Errorf("it is answered with %+v", no)
				}
				s.agent.attempts.vacate()
				if owed := len(ses.vacancy) == 1; owed != test.owed {
					t.Errorf("it is told when there is room: %t", owed)
				}
				if n := s.agent.journal.current(); n != nil {
					j = n
				}
			})
		})
	}
}

// A start that cannot be taken back is not said to have been: what the journal does not have
// began, and of what may be on a broken disk nothing is known.
func TestStartThatCannotBeTakenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := journal.NewMemory()
		s := newSpoolingOn(t, disk, &sick{FS: disk.Mount()})
		defer s.close()
		if no := s.retract(wire.NotNowNoSpace); no.reason != wire.NotNowNoSpace || no.broken != nil {
			t.Errorf("one that can is answered with %+v", no)
		}
		if no := s.retract(wire.NotNowNoSpace); no.is() {
			t.Errorf("one that the journal does not have is answered with %+v", no)
		}
		if err := s.agent.JournalStart(s.key.job); err != nil {
			t.Fatal(err)
		}
		s.agent.journal.fs.(*sick).ill.Store(true)
		if no := s.retract(wire.NotNowNoSpace); no.broken == nil || no.reason != "" {
			t.Errorf("on a broken disk it is answered with %+v", no)
		}
		s.life = life.Recall(life.Past{Alone: true})
		if no := s.retract(wire.NotNowNoSpace); no.reason != wire.NotNowNoSpace || no.broken != nil {
			t.Errorf("one that is not journalled is answered with %+v", no)
		}
	})
}

// A limit or cancel reaches the procedure where there is no journal any more.
func TestStopWithoutAJournal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSpooling(t)
		s.agent.journal.close()
		s.stop(wire.CauseCancel, 0)
		if cause := context.Cause(s.ctx); !errors.Is(cause, harp.ErrCancelled) {
			t.Errorf("the procedure's context ended with %v", cause)
		}
	})
}

// What is heard of a commit of the journal before changes nothing of what the next one was
// handed.
func TestCommitOfTheJournalBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSpooling(t)
		defer s.close()
		s.await()
		if err := s.put(wire.Record{Value: []byte{0xc0}}); err != nil {
			t.Fatal(err)
		}
		s.committed(new(journal.Commit), journal.ErrBroken)
		s.mu.Lock()
		failed, handed := s.life.Failed(), s.spool.commits
		s.mu.Unlock()
		if failed != nil || len(handed) != 1 || handed[0].to.Next != 1 {
			t.Errorf("%+v is handed over, and then %v", handed, failed)
		}
		time.Sleep(2 * retryJournal)
		s.committed(new(journal.Commit), nil)
		if now := s.look(); now.KeptElsewhere() != 1 {
			t.Error("it is not known that the record is on the disk")
		}
	})
}

// A command's record waits for room as long as its agent has it, and one that is ahead of others is
// not put.
func TestNumberedRecords(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSpooling(t)
		defer s.close()
		s.life = life.Recall(life.Past{Phase: life.Running, Alone: true})
		over, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		put := func(ctx context.Context, n int64) error {
			return s.offer(ctx, life.Event{Kind: life.OfferAt, Next: n, Record: wire.Record{Value: make([]byte, wire.MinWindow/2-100)}, Size: 1})
		}
		for n := range int64(2) {
			if err := put(over, n); err != nil {
				t.Fatal(err)
			}
		}
		if err := put(over, 3); err == nil || s.numbered() != 2 {
			t.Errorf("one that is ahead of the others: %v; the next is %d", err, s.numbered())
		}
		if err := put(over, 2); !errors.Is(err, context.DeadlineExceeded) || s.numbered() != 2 {
			t.Errorf("one without room: %v; the next is %d", err, s.numbered())
		}
		done := make(chan error)
		go func() { done <- put(t.Context(), 2) }()
		synctest.Wait()
		s.apply(life.Event{Kind: life.SkipTo, Next: 1})
		if err := <-done; err != nil || s.numbered() != 3 {
			t.Errorf("one that waited: %v; the next is %d", err, s.numbered())
		}
	})
}

// A journal that is opened anew is told what a command may keep beside it, as the one before was.
func TestReopenedJournalCountsWhatACommandKeeps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSpooling(t)
		defer s.close()
		const most = 1 << 20
		s.agent.journal.opts.MaxAgent = most
		s.task.cmd = newCommandRun(t.Context(), false)
		s.task.cmd.spec.MaxSpool = most
		s.reopen(s.disk)
		s.mu.Lock()
		s.handLocked()
		s.mu.Unlock()
		if err := s.agent.JournalStart(harp.NewID()); !errors.Is(err, journal.ErrFull) {
			t.Errorf("another attempt has room: %v", err)
		}
	})
}

// An attempt that left just before is not reported: it is looked up again. One that was refused is
// not either.
func TestAttachToWhatIsNotThere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSpooling(t)
		defer s.close()
		r := &sender{session: new(session), at: s.attempt, wake: make(chan struct{}, 1)}
		s.leave()
		if result, _ := s.attach(r, ask{}); result != moved {
			t.Errorf("one that left is answered with %d", result)
		}
		s.refusal = refusal{reason: wire.NotNowBusy}
		if result, _ := s.attach(r, ask{}); result != notTaken || s.sender != nil {
			t.Errorf("one that was refused is answered with %d", result)
		}
	})
}

// still is a journal's directory where a sync waits while there is a channel.
type still struct {
	journal.FS
	until *atomic.Pointer[chan struct{}]
}

func (s still) Open(name string) (journal.File, error) {
	f, err := s.FS.Open(name)
	return stillFile{f, s}, err
}

func (s still) Create(name string) (journal.File, error) {
	f, err := s.FS.Create(name)
	return stillFile{f, s}, err
}

type stillFile struct {
	journal.File
	of still
}

func (f stillFile) Sync() error {
	if until := f.of.until.Load(); until != nil {
		<-*until
	}
	return f.File.Sync()
}

// A record, of a function or a command, waits while the disk is far behind with the journal, which
// would take it into memory without end.
func TestRecordsWaitForTheDisk(t *testing.T) {
	for name, put := range map[string]func(s *spooling) error{
		"of a function": func(s *spooling) error { return s.put(wire.Record{Value: []byte{0xc0}}) },
		"of a command": func(s *spooling) error {
			return s.offer(s.ctx, life.Event{Kind: life.OfferAt, Record: wire.Record{Value: []byte{0xc0}}, Size: 1})
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				disk := journal.NewMemory()
				fs := still{disk.Mount(), new(atomic.Pointer[chan struct{}])}
				s := newSpoolingOn(t, disk, fs)
				defer s.close()
				s.await()
				other := key{job: harp.NewID(), number: 1}.journal()
				j := s.agent.journal.current()
				if err := s.agent.JournalStart(other.Job); err != nil {
					t.Fatal(err)
				}
				until := make(chan struct{})
				fs.until.Store(&until)
				for n := range int64(10) {
					if _, err := j.Append(other, n, make([]byte, 1<<20)); err != nil {
						t.Fatal(err)
					}
				}
				done := make(chan error, 1)
				go func() { done <- put(s) }()
				synctest.Wait()
				if n := s.numbered(); n != 0 {
					t.Errorf("%d records have numbers", n)
				}
				fs.until.Store(nil)
				close(until)
				if err := <-done; err != nil || s.numbered() != 1 {
					t.Errorf("then %d have, %v", s.numbered(), err)
				}
			})
		})
	}
}

// A cancel that leaves no grace is noted before a command has none: one that ends at once has ended
// by the cancel.
func TestCancelNowIsNotedFirst(t *testing.T) {
	s := newSpooling(t)
	defer s.close()
	r := newCommandRun(t.Context(), false)
	s.task.cmd = r
	done := make(chan struct{})
	s.mu.Lock()
	go func() {
		s.cancelled(wire.Cancel{Now: true})
		close(done)
	}()
	select {
	case <-r.hurry:
		t.Error("the command has no grace, and nothing says why")
	case <-time.After(50 * time.Millisecond): // in which nothing can come that should not
	}
	s.mu.Unlock()
	<-done
	if why := s.life.Stopping(); why == nil || !r.isHurried() {
		t.Errorf("then it is stopped by %+v, without a grace: %t", why, r.isHurried())
	}
}
