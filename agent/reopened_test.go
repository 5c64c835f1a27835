package agent

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"reflect"
	"testing"
	"testing/synctest"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/agent/internal/life"
	"github.com/harpcaller/harp/agent/journal"
	"github.com/harpcaller/harp/internal/wake"
	"github.com/harpcaller/harp/internal/wire"
)

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
				s.applyLocked(life.Event{Kind: life.Stop, Stopping: &wire.Stopping{Cause: wire.CauseCancel, Since: time.Now().UnixNano()}})
				if err := s.agent.journal.current().Sync(); err != nil {
					t.Fatal(err)
				}
				disk := s.disk
				if lost {
					disk = journal.NewMemory()
				}
				s.reopen(disk)
				if h, is := s.agent.journal.current().Get(k); is == lost || !lost && h.Stop == nil {
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
				s.await()
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
				if err := s.agent.journal.current().Close(); err != nil {
					t.Fatal(err)
				}
				test.do(s)
				synctest.Wait()
				s.reopen(s.disk)
				time.Sleep(2 * retryJournal)
				if h, is := s.agent.journal.current().Get(s.key.journal()); !is || !test.has(h) {
					t.Errorf("the journal has %+v", h)
				}
			})
		})
	}
}

// A journal that has more of an attempt than it was handed, as of a commit that seemed to have
// failed, is handed what is behind that.
func TestJournalHasMoreThanItWasHanded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSpooling(t)
		defer s.close()
		j, k := s.agent.journal.current(), s.key.journal()
		if _, err := j.Append(k, 0, wire.Encode(wire.Record{Value: []byte{1}})); err != nil {
			t.Fatal(err)
		}
		s.await()
		for n := range 3 {
			if err := s.put(wire.Record{Value: []byte{byte(n + 1)}}); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(2 * retryJournal)
		_, records, err := s.spooled(0, wire.MinWindow)
		if err != nil || len(records) != 3 {
			t.Fatalf("the journal has %d records, %v", len(records), err)
		}
		for n, r := range records {
			if len(r.Value) != 1 || r.Value[0] != byte(n+1) {
				t.Errorf("record %d is %+v", n, r)
			}
		}
	})
}

// What was not journalled when the agent ended is, and is left to the journal, when the same
// one begins again.
func TestJournalledWhenTheAgentBeginsAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSpooling(t)
		if err := s.agent.journal.current().Close(); err != nil {
			t.Fatal(err)
		}
		s.finish(outcome{value: harp.Value{0xc0}})
		synctest.Wait() // it is to be tried again
		s.close()
		s.agent.journal.fs = s.disk.Mount()
		if err := s.agent.journal.open(t.Context()); err != nil {
			t.Fatal(err)
		}
		defer s.close()
		s.rehand()
		synctest.Wait()
		if h, is := s.agent.journal.current().Get(s.key.journal()); !is || h.State != journal.Ended || !s.hasLeft() {
			t.Errorf("the journal has %+v, and the attempt has left: %t", h, s.hasLeft())
		}
	})
}

// Records for which the journal is full are handed over when there is room again, and
// with them what came behind.
func TestRecordsForWhichTheJournalWasFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSpooling(t)
		defer s.close()
		s.agent.journal.opts.MaxJob = 10_000
		s.reopen(s.disk)
		s.journalled(s.agent.journal.current())
		s.await()
		for range 20 {
			if err := s.put(wire.Record{Value: make([]byte, 1000)}); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Minute)
		j := s.agent.journal.current()
		if h, _ := j.Get(s.key.journal()); h.Spooled == 0 || h.Spooled > 10 {
			t.Fatalf("the journal has %+v", h)
		}
		if err := s.tell(0).acknowledge(wire.Ack{Next: 15}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * retryJournal)
		if h, _ := j.Get(s.key.journal()); h.Spooled != 20 {
			t.Errorf("the journal has %+v", h)
		}
	})
}

// Records that the journal has lost, of an attempt that another agent began, are told as
// dropped where those behind them have their numbers or will get them: else they are as if they
// had never been. Those of an attempt of this agent are looked for again.
func TestRecordsThatTheJournalHasLost(t *testing.T) {
	const lost = 3
	for name, test := range map[string]struct {
		behind  int
		ended   bool
		own     bool
		dropped int
	}{
		"nothing is behind them":      {ended: true},
		"one is behind them":          {ended: true, behind: 1, dropped: lost},
		"several are behind them":     {ended: true, behind: 2, dropped: lost},
		"more may come":               {dropped: lost},
		"the attempt is this agent's": {ended: true, behind: 1, own: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSpooling(t)
				defer s.close()
				past := life.Past{Phase: life.Running, Records: lost, Alone: true}
				if test.own {
					past.Home = life.Here
				}
				s.life = life.Recall(past)
				for range test.behind {
					if err := s.put(wire.Record{Value: []byte{0xc0}}); err != nil {
						t.Fatal(err)
					}
				}
				if test.ended {
					s.finish(outcome{value: harp.Value{0xc0}})
				}
				r := s.tell(0)
				if test.own {
					if m, err := r.next(); m != (life.Message{}) || err == nil {
						t.Errorf("%+v is told, %v", m, err)
					}
					return
				}
				var got []wire.Record
				for {
					<-r.wake
					m, err := r.next()
					if err != nil {
						t.Fatal(err)
					}
					wake.Signal(r.wake)
					switch {
					case m.Records != nil:
						if m.Records.First != int64(len(got)) {
							t.Fatalf("records from %d, want %d", m.Records.First, len(got))
						}
						if got = append(got, m.Records.Records...); test.ended || len(got) < test.dropped {
							continue
						}
					case m.End == nil:
						continue
					case m.End.Records != int64(len(got)):
						t.Errorf("END of %d records after %d", m.End.Records, len(got))
					}
					break
				}
				if len(got) != test.dropped+test.behind {
					t.Errorf("%d records are told, want %d", len(got), test.dropped+test.behind)
				}
				for i, r := range got {
					if dropped := i < test.dropped; (r.Truncated > 0) != dropped || (len(r.Value) == 0) != dropped {
						t.Errorf("record %d: %+v", i, r)
					}
				}
			})
		})
	}
}

// Who asks again for many records that were acknowledged is told of each that it was dropped,
// also of those behind the ones that it acknowledges then.
func TestAcknowledgedRecordsAreAskedForAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const many = 801
		s := newSpooling(t)
		defer s.close()
		s.life = life.Recall(life.Past{Phase: life.Running, Records: many, Acked: many})
		s.finish(outcome{value: harp.Value{0xc0}})
		r := s.tell(0)
		for next := int64(0); ; {
			m, err := r.next()
			if err != nil {
				t.Fatal(err)
			}
			if m.End != nil {
				if next != many || m.End.Records != many {
					t.Errorf("END of %d records after %d", m.End.Records, next)
				}
				return
			}
			if m.Records == nil || m.Records.First != next {
				t.Fatalf("after %d records %+v is told", next, m)
			}
			for _, one := range m.Records.Records {
				if one.Truncated == 0 {
					t.Fatalf("record %+v", one)
				}
			}
			next += int64(len(m.Records.Records))
			if err := r.acknowledge(wire.Ack{Next: next}); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// What is read from the journal is told only if it is still what is to be told: not what was
// acknowledged meanwhile, nor to a dispatcher that another one has followed.
func TestReadWhileMoreIsHeard(t *testing.T) {
	for name, test := range map[string]struct {
		meanwhile func(s *spooling, r *sender)
		first     int64 // told then; 3: nothing is
	}{
		"acknowledged":     {func(_ *spooling, r *sender) { _ = r.acknowledge(wire.Ack{Next: 2}) }, 2},
		"another one asks": {func(s *spooling, _ *sender) { s.tell(1) }, 3},
		"nobody asks":      {func(s *spooling, _ *sender) { s.abandon() }, 3},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				disk := journal.NewMemory()
				fs := &onRead{FS: disk.Mount()}
				s := newSpoolingOn(t, disk, fs)
				defer s.close()
				s.await()
				for n := range 3 {
					if err := s.put(wire.Record{Value: []byte{byte(n)}}); err != nil {
						t.Fatal(err)
					}
				}
				time.Sleep(2 * retryJournal)
				s.mu.Lock()
				s.life = life.Recall(life.Past{Phase: life.Running, Records: 3}) // memory has none
				s.mu.Unlock()
				r := s.tell(0)
				<-r.wake
				read := false
				fs.do = func() { read = true; test.meanwhile(s, r) }
				if m, err := r.next(); m != (life.Message{}) || err != nil || !read {
					t.Errorf("%+v is told, %v; read: %t", m, err, read)
				}
				if test.first == 3 {
					if m, err := r.next(); m != (life.Message{}) || err != nil {
						t.Errorf("then %+v is told, %v", m, err)
					}
					return
				}
				select {
				case <-r.wake:
				default:
					t.Error("who tells it is not woken")
				}
				m, err := r.next()
				if err != nil || m.Records == nil || m.Records.First != test.first || len(m.Records.Records) != 1 ||
					!bytes.Equal(m.Records.Records[0].Value, []byte{byte(test.first)}) {
					t.Errorf("then %+v is told, %v", m, err)
				}
			})
		})
	}
}

// An attempt whose end the journal did not take is off the list when nobody asks for it any
// more.
func TestForgottenBeforeItsEndIsJournalled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSpooling(t)
		defer s.close()
		if err := s.agent.journal.current().Close(); err != nil {
			t.Fatal(err)
		}
		s.finish(outcome{value: harp.Value{0xc0}})
		if s.hasLeft() {
			t.Error("it has left, and its end is nowhere")
		}
		s.abandon()
		if !s.hasLeft() {
			t.Error("it is still there")
		}
	})
}

// What ended as the machine booted anew has succeeded, unless a limit or cancel was journalled
// before, which decides.
func TestRebootOfWhatWasToStop(t *testing.T) {
	for name, stop := range map[string]*journal.Stop{
		"nothing": nil,
		"cancel":  {Cause: wire.CauseCancel, Since: time.Unix(2, 0)},
		"limit":   {Cause: wire.CauseMaxExecTime, Since: time.Unix(2, 0), Limit: time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			BootAnew(t)
			disk, k := journal.NewMemory(), journal.Key{Job: harp.NewID(), Attempt: 1}
			j, err := journal.Open(disk.Mount(), journal.Options{})
			if err != nil {
				t.Fatal(err)
			}
			if err := j.AcceptStart(k, journal.Accept{Info: wire.Encode(journalInfo{Command: true, Ends: endsReboot, Boot: "before"})}, time.Unix(1, 0)); err != nil {
				t.Fatal(err)
			}
			var want *wire.Stopping
			if stop != nil {
				want = &wire.Stopping{Cause: stop.Cause, Since: stop.Since.UnixNano(), Limit: int64(stop.Limit)}
				if _, err := j.Stopping(k, *stop); err != nil {
					t.Fatal(err)
				}
			}
			if err := j.Close(); err != nil {
				t.Fatal(err)
			}
			a := New(Config{Name: "web01", Journal: disk.Mount(), Logger: slog.New(slog.DiscardHandler)})
			st, err := a.begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer a.end(st)
			if at := a.attempts.find(key{job: k.Job, number: 1}); at != nil {
				at.left.wait()
			}
			end, _, err := endOf(a.journal.current(), k)
			if err != nil || !reflect.DeepEqual(end.Stopped, want) || end.Failure != nil {
				t.Errorf("it ended with %+v, stopped by %+v, %v", end, end.Stopped, err)
			}
		})
	}
}

// TestForgottenThoughTheJournalNeverHadIt checks that a command which was found, and which the journal
// did not take, leaves a tombstone: it is not started again.
func TestForgottenThoughTheJournalNeverHadIt(t *testing.T) {
	s := newSpooling(t)
	defer s.close()
	j, k := s.agent.journal.current(), journal.Key{Job: harp.NewID(), Attempt: 1}
	at := s.agent.adopted(j, journal.Held{Key: k, State: journal.Started}, journalInfo{Supervised: true})
	if now := at.look(); now.IsJournalled() {
		t.Error("it is handed to a journal that has it not")
	}
	at.settle()
	if got := j.State(k); got != journal.Forgotten {
		t.Errorf("the journal says %v", got)
	}
}

// TestForgottenIsNotLookedForInAnotherJournal checks that an attempt which nobody asks for is not
// taken for one that a journal has lost which was opened since.
func TestForgottenIsNotLookedForInAnotherJournal(t *testing.T) {
	s := newSpooling(t)
	defer s.close()
	s.abandon()
	s.reopen(journal.NewMemory())
	s.rehand()
	if now := s.look(); !now.IsJournalled() {
		t.Error("the journal is said to have lost it")
	}
}

// TestAttemptsKnowWhatGoesOn checks that an agent is not idle by what it has found, where it has
// let go of something since it began to look.
func TestAttemptsKnowWhatGoesOn(t *testing.T) {
	r := newAttempts(1, func() bool { return false })
	idle := r.drain()
	r.seek()
	r.letGo()
	r.know()
	select {
	case <-idle:
		t.Error("it is idle, and has let go of something")
	default:
	}
	r.seek()
	r.know()
	<-idle
}

// TestHeldOfAnotherJournalThanHelloNamed checks that a session does not go on by a journal that was
// opened in the place of the one that HELLO named.
func TestHeldOfAnotherJournalThanHelloNamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, disk := newSick(t)
		defer s.close()
		named := s.agent.journal.current()
		s.breakJournal(disk)
		disk.ill.Store(false)
		s.agent.journal.tryRepair()
		if j := s.agent.journal.current(); j == named || j.Err() != nil {
			t.Fatalf("the journal is the same: %t, %v", j == named, j.Err())
		}
		if list, err := s.agent.held(named, ""); !errors.Is(err, journal.ErrBroken) {
			t.Errorf("held %+v, %v", list, err)
		}
	})
}

// TestManyAttemptsOpenABrokenJournalSeldom checks that attempts that wait for a journal that broke do
// not each read it again and again, and that an agent that stops does not wait for them.
func TestManyAttemptsOpenABrokenJournalSeldom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, disk := newSick(t)
		attempts := []*attempt{s.attempt}
		for range 100 {
			id := harp.NewID()
			if err := s.agent.JournalStart(id); err != nil {
				t.Fatal(err)
			}
			at := newAttempt(s.agent, key{job: id, number: 1}, new(expectation))
			at.life = life.Recall(life.Past{Phase: life.Running})
			at.info, at.cancel = &CallInfo{JobID: id, Attempt: 1}, func(error) {}
			at.journalled(s.agent.journal.current())
			attempts = append(attempts, at)
		}
		s.breakJournal(disk)
		for _, at := range attempts[1:] {
			at.finish(outcome{value: harp.Value{0xc0}})
		}
		const waits = 10 * retryJournal
		time.Sleep(waits)
		if n := disk.opens.Load(); n < 5 || n > 12 {
			t.Errorf("the journal was opened %d times within %v", n, waits)
		}
		disk.ill.Store(false)
		time.Sleep(3 * retryJournal)
		for _, at := range attempts[1:] {
			if h, is := s.agent.journal.current().Get(at.key.journal()); !is || h.State != journal.Ended {
				t.Fatalf("the journal has %+v", h)
			}
		}
		s.breakJournal(disk)
		s.finish(outcome{value: harp.Value{0xc0}})
		synctest.Wait()
		stopped := time.Now()
		s.close()
		if took := time.Since(stopped); took > 0 {
			t.Errorf("stopped in %v", took)
		}
	})
}

// TestEndThatAReopenedJournalHasLetsTheAgentBeIdle checks that an attempt leaves when its journal has
// all of it, though the commit of that has failed: an agent that drains does not wait for its
// dispatcher.
func TestEndThatAReopenedJournalHasLetsTheAgentBeIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, disk := newSick(t)
		defer s.close()
		list := &s.agent.attempts
		list.owes = func() bool { return false }
		list.recover(s.key, func() *attempt { return s.attempt })
		list.know()
		disk.numb.Store(true)
		disk.ill.Store(true)
		s.finish(outcome{value: harp.Value{0xc0}})
		synctest.Wait()
		if err := s.agent.journal.current().Err(); !errors.Is(err, journal.ErrBroken) {
			t.Fatal(err)
		}
		disk.ill.Store(false)
		time.Sleep(2 * retryJournal)
		if h, is := s.agent.journal.current().Get(s.key.journal()); !is || h.State != journal.Ended {
			t.Fatalf("the journal has %+v", h)
		}
		select {
		case <-list.drain():
		default:
			t.Errorf("it is not idle; the journal is %v, and the attempt has left: %t", s.agent.journal.current().Err(), s.hasLeft())
		}
	})
}

// TestEndBehindAFailedCommitIsFound checks that an attempt whose end the journal has taken before it
// was heard that an earlier commit had failed finds that out, and leaves.
func TestEndBehindAFailedCommitIsFound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, disk := newSick(t)
		defer s.close()
		s.mu.Lock()         // the loop that follows commits is slow
		disk.fails.Store(1) // then the segment is cut back
		s.applyLocked(life.Event{Kind: life.Stop, Stopping: &wire.Stopping{Cause: wire.CauseCancel}})
		_ = s.agent.journal.current().Sync() // or the journal's own goroutine has come first
		if err := s.spool.commits[0].commit.Wait(); !errors.Is(err, errSick) {
			t.Errorf("the commit did not fail: %v", err)
		}
		s.applyLocked(life.Event{Kind: life.Return, End: &wire.End{Value: []byte{0xc0}}})
		s.mu.Unlock()
		time.Sleep(3 * retryJournal)
		if h, is := s.agent.journal.current().Get(s.key.journal()); !is || h.State != journal.Ended {
			t.Fatalf("the journal has %+v", h)
		}
		if now := s.look(); !s.hasLeft() {
			t.Errorf("it stays: %v", now.Failed())
		}
	})
}
