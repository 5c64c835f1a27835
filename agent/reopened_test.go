package agent

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/harpcaller/harp"
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
	a := New(Config{Name: "web01", Journal: disk.Mount(), Logger: slog.New(slog.DiscardHandler)})
	if err := a.keeper.open(); err != nil {
		t.Fatal(err)
	}
	k := key{job: harp.NewID(), number: 1}
	at := newAttempt(a, k)
	at.info = &CallInfo{JobID: k.job, Attempt: 1}
	at.ctx, at.cancel = context.WithCancelCause(t.Context())
	if err := a.JournalStart(k.job); err != nil {
		t.Fatal(err)
	}
	at.journalled(a.keeper.current())
	return &spooling{at, t, disk}
}

// reopen puts another journal, of what is on the disk, in the place of the one that is
// open.
func (s *spooling) reopen(disk *journal.Memory) {
	s.t.Helper()
	k := s.agent.keeper
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

// close closes the journal.
func (s *spooling) close() {
	s.cancel(nil)
	s.agent.keeper.close()
}

// A cancel that is on the disk when the journal is opened anew reaches the procedure,
// though nobody has heard of its commit; so does one that another journal does not take.
func TestStopReachesTheProcedureThroughAReopenedJournal(t *testing.T) {
	for name, lost := range map[string]bool{"journalled": false, "rolled back": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSpooling(t)
				defer s.close()
				k := s.key.journal()
				s.mu.Lock() // the loop that follows the commit is slow
				s.stopping = &wire.Stopping{Cause: wire.CauseCancel, Since: time.Now().UnixNano()}
				s.handLocked()
				if err := s.agent.keeper.current().Sync(); err != nil {
					t.Fatal(err)
				}
				disk := s.disk
				if lost {
					disk = journal.NewMemory()
				}
				s.reopen(disk)
				if h, is := s.agent.keeper.current().Get(k); is == lost || !lost && h.Stop == nil {
					t.Fatalf("the reopened journal has %+v", h)
				}
				s.handLocked()
				s.mu.Unlock()
				synctest.Wait()
				if cause := context.Cause(s.ctx); !errors.Is(cause, harp.ErrCancelled) {
					t.Errorf("the procedure's context ended with %v", cause)
				}
			})
		})
	}
}

// What a journal does not take is handed over again when there is one that does: a limit
// or cancel, which holds at once, an end, and records.
func TestWhatAJournalDidNotTakeIsHandedOverAgain(t *testing.T) {
	for name, test := range map[string]struct {
		do  func(s *spooling)
		has func(h journal.Held) bool
	}{
		"cancel": {
			func(s *spooling) {
				if s.stop(wire.CauseCancel, 0); !errors.Is(context.Cause(s.ctx), harp.ErrCancelled) {
					s.t.Error("the procedure has not heard of the cancel")
				}
			},
			func(h journal.Held) bool { return h.Stop != nil && h.Stop.Cause == wire.CauseCancel },
		},
		"end": {
			func(s *spooling) { s.finish(outcome{value: harp.Value{0xc0}}) },
			func(h journal.Held) bool { return h.State == journal.Ended },
		},
		"record": {
			func(s *spooling) {
				s.awaited = true
				if err := s.put(wire.Record{Value: []byte{0xc0}}); err != nil {
					s.t.Error(err)
				}
			},
			func(h journal.Held) bool { return h.Spooled == 1 },
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSpooling(t)
				defer s.close()
				if err := s.agent.keeper.current().Close(); err != nil {
					t.Fatal(err)
				}
				test.do(s)
				synctest.Wait()
				s.reopen(s.disk)
				time.Sleep(2 * retryJournal)
				if h, is := s.agent.keeper.current().Get(s.key.journal()); !is || !test.has(h) {
					t.Errorf("the journal has %+v", h)
				}
			})
		})
	}
}

// Records for which the journal is full are handed over when there is room again, and
// with them what came behind.
func TestRecordsForWhichTheJournalWasFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSpooling(t)
		defer s.close()
		s.agent.keeper.opts.MaxJob = 10_000
		s.reopen(s.disk)
		s.journalled(s.agent.keeper.current())
		s.awaited = true
		for range 20 {
			if err := s.put(wire.Record{Value: make([]byte, 1000)}); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Minute)
		j := s.agent.keeper.current()
		if h, _ := j.Get(s.key.journal()); h.Spooled == 0 || h.Spooled > 10 {
			t.Fatalf("the journal has %+v", h)
		}
		s.mu.Lock()
		s.outbox.ack(15)
		s.ackSpoolLocked()
		s.mu.Unlock()
		time.Sleep(2 * retryJournal)
		if h, _ := j.Get(s.key.journal()); h.Spooled != 20 {
			t.Errorf("the journal has %+v", h)
		}
	})
}
