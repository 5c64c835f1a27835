package dispatcher_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/dispatcher"
	"github.com/harpcaller/harp/internal/failures"
	"github.com/harpcaller/harp/internal/wire"
	"github.com/harpcaller/harp/store"
	"github.com/harpcaller/harp/store/memory"
	"github.com/harpcaller/harp/transport"
)

// called connects an agent and has it asked for a job, of which it says nothing yet.
func (s *system) called(t *testing.T, opts ...harp.Option) (*rawAgent, <-chan agentExchange, interrupted, agentExchange) {
	t.Helper()
	agent := must[*rawAgent](t)(s.newRawAgent(t.Context(), "i"))
	asked := agent.exchanges(t)
	synctest.Wait()
	job := must[*harp.Job](t)(s.caller.Host("web01").Call(t.Context(), "work", nil, opts...))
	m := <-asked
	return agent, asked, interrupted{job: job}, m
}

// A start that is told in a frame of its own counts as one that came with ACCEPTED: the
// call is not sent again.
func TestAStartOfItsOwnIsAStart(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, sys *system) {
		agent, _, i, m := sys.called(t)
		m.sendFrame(t, wire.TypeAccepted, false, wire.Accepted{})
		if s := i.status(t); s.State != harp.StateSent || s.Started != "" {
			t.Errorf("accepted it is %s, started %q", s.State, s.Started)
		}
		time.Sleep(time.Second)
		began := time.Now()
		m.sendFrame(t, wire.TypeStarted, false, wire.Started{Time: 1})
		if s := i.status(t); s.State != harp.StateRunning || !s.StartTime.Equal(began) {
			t.Errorf("started it is %s, since %v, want %v", s.State, s.StartTime, began)
		}
		agent.tr.Close(nil)
		synctest.Wait()
		_, asked := i.again(t, sys, "j", "")
		if s := i.status(t); s.State != harp.StateLost || s.Started != harp.MayHaveRun {
			t.Errorf("it is %s, started %q", s.State, s.Started)
		}
		expectNothing(t, asked)
	})
}

// An agent that says of a job what cannot be said breaks the protocol: its session ends, and
// what becomes of the job is asked in the next one.
func TestWhatCannotBeSaidOfAJobEndsTheSession(t *testing.T) {
	bad := []byte{0xc1}
	one := []wire.Record{{Time: 1}}
	for name, c := range map[string]struct {
		typ   transport.Type
		body  []byte
		began bool
	}{
		"a frame that is not known":         {99, nil, true},
		"ACCEPTED that cannot be read":      {wire.TypeAccepted, bad, false},
		"STOPPING that cannot be read":      {wire.TypeStopping, bad, true},
		"REFUSED that cannot be read":       {wire.TypeRefused, bad, false},
		"REFUSED for what cannot be read":   {wire.TypeRefused, wire.Encode(map[string]any{"failure": 5}), false},
		"REFUSED with data that are none":   {wire.TypeRefused, wire.Encode(map[string]any{"failure": harp.Failure{Code: "rejected", Data: bad}}), false},
		"NOT_NOW that cannot be read":       {wire.TypeNotNow, bad, false},
		"END that cannot be read":           {wire.TypeEnd, bad, true},
		"END with a value that is none":     {wire.TypeEnd, wire.Encode(wire.End{Value: bad}), true},
		"END with a failure that is none":   {wire.TypeEnd, wire.Encode(map[string]any{"failure": 5}), true},
		"RECORDS that cannot be read":       {wire.TypeRecords, bad, true},
		"RECORDS from before the first":     {wire.TypeRecords, wire.Encode(wire.Records{First: -1, Records: one}), true},
		"RECORDS without a record":          {wire.TypeRecords, wire.Encode(wire.Records{}), true},
		"RECORDS with a value that is none": {wire.TypeRecords, wire.Encode(wire.Records{Records: []wire.Record{{Value: bad}}}), true},
		"RECORDS behind a gap":              {wire.TypeRecords, wire.Encode(wire.Records{First: 7, Records: one}), true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				sys := newSystem(t, embedded, nil, dispatcher.Config{})
				agent, _, i, m := sys.called(t)
				if c.began {
					m.sendFrame(t, wire.TypeAccepted, false, wire.Accepted{Started: &wire.Started{Time: 1}})
				}
				if err := m.x.Send(c.typ, false, c.body); err != nil {
					t.Error(err)
				}
				synctest.Wait()
				if agent.tr.Err() == nil {
					t.Error("the session goes on")
				}
				if s := i.status(t); s.State.Ended() || s.State == harp.StateQueued || s.Records != 0 {
					t.Errorf("it is %s (%s), with %d records", s.State, s.Reason, s.Records)
				}
				_, asked := i.again(t, sys, "j", wire.HeldEnded)
				m = <-asked
				if m.resume == nil {
					t.Fatalf("it is asked %+v", m)
				}
				m.sendFrame(t, wire.TypeEnd, true, wire.End{Value: []byte{7}})
				m.expectAck(t)
				if s := i.status(t); s.State != harp.StateSucceeded {
					t.Errorf("it is %s (%s)", s.State, s.Reason)
				}
			})
		})
	}
}

// A frame that follows records before they are stored is not lost where it is bad: those
// before it are stored first, or asked for again.
func TestBadRecordsBehindGoodOnes(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, sys *system) {
		agent, _, i, m := sys.called(t)
		m.sendFrame(t, wire.TypeAccepted, false, wire.Accepted{Started: &wire.Started{Time: 1}})
		synctest.Wait()
		_ = m.x.Send(wire.TypeRecords, false, wire.Encode(wire.Records{Records: []wire.Record{{Time: 1, Value: []byte{1}}}}))
		_ = m.x.Send(wire.TypeRecords, false, []byte{0xc1}) // the session may have ended
		<-agent.tr.Done()
		synctest.Wait()
		_, asked := i.again(t, sys, "j", wire.HeldAlive)
		m = <-asked
		stored := int64(i.status(t).Records)
		if m.resume == nil || m.resume.From != stored || stored > 1 {
			t.Errorf("with %d records stored it is asked %+v", stored, m.resume)
		}
	})
}

// An agent that is asked for the rest of what began in an earlier session cannot say that it
// never did: the job is not called again.
func TestAStartOfAnEarlierSessionIsNotTakenBack(t *testing.T) {
	for name, say := range map[string]func(t *testing.T, m agentExchange){
		"NOT_NOW": func(t *testing.T, m agentExchange) {
			m.sendFrame(t, wire.TypeNotNow, true, wire.NotNow{Reason: wire.NotNowBusy})
		},
		"REFUSED": func(t *testing.T, m agentExchange) {
			m.sendFrame(t, wire.TypeRefused, true, wire.Refused{Failure: failures.New("rejected", "no").Err()})
		},
	} {
		t.Run(name, func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, sys *system) {
				i := interrupt(t, sys, saidStart, false)
				agent, asked := i.again(t, sys, "j", wire.HeldAlive)
				say(t, <-asked)
				synctest.Wait()
				if agent.tr.Err() == nil {
					t.Error("the session goes on")
				}
				if s := i.status(t); s.State != harp.StateRunning {
					t.Errorf("it is %s (%s)", s.State, s.Reason)
				}
				expectNothing(t, asked)
			})
		})
	}
}

// A call whose host goes while it is stored has not left: it waits, and is sent once the
// host is back, or expires as one that was never started.
func TestACallWhoseHostGoesAsItIsStored(t *testing.T) {
	for name, returns := range map[string]bool{"and comes back": true, "and stays away": false} {
		t.Run(name, func(t *testing.T) {
			var late *lateStore
			wrap := func(st store.Store) store.Store {
				late = &lateStore{Store: st, committed: make(chan struct{}), proceed: make(chan struct{})}
				return late
			}
			onStore(t, wrap, func(t *testing.T, sys *system) {
				first := must[*rawAgent](t)(sys.newRawAgent(t.Context(), "i"))
				synctest.Wait()
				i := interrupted{job: sys.caller.Job(harp.NewID())}
				called := make(chan error, 1)
				go func() {
					_, err := sys.caller.Host("web01").Call(t.Context(), "work", nil, harp.JobID(i.job.ID()))
					called <- err
				}()
				<-late.committed
				first.tr.Close(nil)
				synctest.Wait()
				late.proceed <- struct{}{}
				if err := <-called; err != nil {
					t.Error(err)
				}
				if s := i.status(t); s.State != harp.StateQueued || s.Reason != harp.ReasonOffline {
					t.Errorf("it is %s (%s)", s.State, s.Reason)
				}
				if !returns {
					time.Sleep(31 * time.Second)
					if s := i.status(t); s.State != harp.StateExpired || s.Started != harp.DidNotRun {
						t.Errorf("it is %s, started %s", s.State, s.Started)
					}
					return
				}
				_, asked := i.again(t, sys, "j", "")
				expectCall(t, asked)
				expectNothing(t, asked)
			})
		})
	}
}

// An end that finds no space before its session ends is asked for again.
func TestAnEndWithoutSpaceIsAskedForAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := memory.NewDisk()
		sys := newSystem(t, embedded, memory.OpenDisk(disk, nil), dispatcher.Config{})
		agent, _, i, m := sys.called(t)
		m.sendFrame(t, wire.TypeAccepted, false, wire.Accepted{Started: &wire.Started{Time: 1}})
		synctest.Wait()
		disk.SetSpace(store.SpaceCritical)
		m.sendFrame(t, wire.TypeEnd, true, wire.End{Value: []byte{7}})
		time.Sleep(5 * time.Second)
		if s := i.status(t); s.State != harp.StateRunning || agent.tr.Err() != nil {
			t.Errorf("it is %s, and the session ended with %v", s.State, agent.tr.Err())
		}
		expectUnsaid(t, m) // or the agent would forget it
		agent.tr.Close(nil)
		synctest.Wait()
		time.Sleep(10 * time.Millisecond)
		disk.SetSpace(store.SpacePlenty)
		_, asked := i.again(t, sys, "j", wire.HeldEnded)
		m = <-asked
		if m.resume == nil {
			t.Fatalf("it is asked %+v", m)
		}
		m.sendFrame(t, wire.TypeEnd, true, wire.End{Value: []byte{7}})
		m.expectAck(t)
		if s := i.status(t); s.State != harp.StateSucceeded {
			t.Errorf("it is %s (%s)", s.State, s.Reason)
		}
	})
}

// A lost attempt that was found alive, and is not there any more when its host comes back,
// is not waited for. Unless it is said to be gone it may run on, in the machine that this
// one is a clone of: then the next may be one of two.
func TestARetryDoesNotWaitForWhatIsGone(t *testing.T) {
	for _, state := range []string{"", wire.HeldWithdrawn, wire.HeldGone} {
		inVirtualTime(t, func(t *testing.T, sys *system) {
			i := interrupt(t, sys, saidStart, false, harp.Retry(harp.RetryPolicy{On: []harp.State{harp.StateLost}}), harp.OfflineWait(harp.NoLimit))
			time.Sleep(25 * time.Hour)
			a, asked := i.again(t, sys, "j", wire.HeldAlive)
			if m := <-asked; m.resume == nil || m.resume.Cancel == nil {
				t.Fatalf("it is asked %+v", m)
			}
			a.tr.Close(nil)
			synctest.Wait()
			_, asked = i.again(t, sys, "j", state)
			m := <-asked
			if state == wire.HeldGone {
				m.sendFrame(t, wire.TypeEnd, true, wire.End{Gone: true})
				m.expectAck(t)
				m = <-asked
			}
			if m.call == nil || m.call.Attempt != 2 {
				t.Errorf("%q: it is asked %+v", state, m)
			}
			twice := state != wire.HeldGone
			if s := i.status(t); s.DuplicatePossible != twice || s.Attempts[0].Outcome != string(harp.StateLost) {
				t.Errorf("%q: possibly twice: %v, its attempts are %+v", state, s.DuplicatePossible, s.Attempts)
			}
		})
	}
}

// A lost attempt that had started and is not held proves that the journal is an older one, as
// long as nothing was heard of what became of it: also when it was not found alive, or was
// silent since.
func TestALostAttemptThatIsNotHeldMayRunOn(t *testing.T) {
	for name, silent := range map[string]bool{"not heard again": false, "alive and silent again": true} {
		t.Run(name, func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, sys *system) {
				i := interrupt(t, sys, saidStart, false, harp.Retry(harp.RetryPolicy{On: []harp.State{harp.StateLost}}), harp.OfflineWait(harp.NoLimit))
				time.Sleep(25 * time.Hour)
				if silent {
					a, asked := i.again(t, sys, "j", wire.HeldAlive)
					<-asked
					a.tr.Close(nil)
					time.Sleep(time.Hour)
				}
				_, asked := i.again(t, sys, "j", "")
				if m := <-asked; m.call == nil || m.call.Attempt != 2 {
					t.Errorf("it is asked %+v", m)
				}
				if s := i.status(t); !s.DuplicatePossible || s.Attempts[0].Reason != harp.LostJournalGone {
					t.Errorf("possibly twice: %v, its attempts are %+v", s.DuplicatePossible, s.Attempts)
				}
			})
		})
	}
}

// Where it was heard what became of a lost attempt, that it is not held any more says nothing of
// the journal.
func TestALostAttemptThatIsOverMayBeMissing(t *testing.T) {
	now := wire.Stopping{Cause: wire.CauseCancel, Since: 1}
	const forLong = 250 * 365 * 24 * time.Hour // a pause is a random part of it: an hour of that is less than one in a million
	for state, end := range map[string]wire.End{wire.HeldGone: {Gone: true}, wire.HeldAlive: {Stopped: &now}} {
		inVirtualTime(t, func(t *testing.T, sys *system) {
			i := interrupt(t, sys, saidStart, false, harp.OfflineWait(harp.NoLimit),
				harp.Retry(harp.RetryPolicy{On: []harp.State{harp.StateLost}, Backoff: forLong, MaxBackoff: forLong}))
			time.Sleep(25 * time.Hour)
			a, asked := i.again(t, sys, "j", state)
			m := <-asked
			m.sendFrame(t, wire.TypeEnd, true, end)
			m.expectAck(t)
			other := interrupted{job: must[*harp.Job](t)(sys.caller.Host("web01").Call(t.Context(), "work", nil))}
			<-asked
			a.tr.Close(nil)
			synctest.Wait()
			_, asked = i.again(t, sys, "j", "")
			if m := <-asked; m.call == nil || other.status(t).State != harp.StateSent {
				t.Errorf("%s: the other is %s, and its agent is asked %+v", state, other.status(t).State, m)
			}
			if s := i.status(t); s.State != harp.StateQueued || s.DuplicatePossible || s.Attempts[0].Reason == harp.LostJournalGone {
				t.Errorf("%s: it is %s, its attempts are %+v", state, s.State, s.Attempts)
			}
		})
	}
}

// A job that waits for another attempt and has no more time to begin ends as its last
// attempt did, and a caller that waits gets what that returned.
func TestWhoWaitsIsGivenTheValueOfTheLastAttempt(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, sys *system) {
		agent, _, i, m := sys.called(t, harp.StartBefore(time.Now().Add(time.Hour)), harp.OfflineWait(harp.NoLimit),
			harp.Retry(harp.RetryPolicy{On: []harp.State{harp.StateFailed}, Attempts: 3}))
		result := make(chan harp.Result, 1)
		go func() {
			r, err := i.job.Wait(t.Context())
			if err != nil {
				t.Error(err)
			}
			result <- r
		}()
		m.sendFrame(t, wire.TypeAccepted, false, wire.Accepted{Started: &wire.Started{Time: 1}})
		m.sendFrame(t, wire.TypeEnd, true, wire.End{Value: []byte{7}, Failure: failures.New("oops", "no").Err()})
		m.expectAck(t)
		agent.tr.Close(nil)
		if s := i.status(t); s.State != harp.StateQueued {
			t.Fatalf("it is %s (%s)", s.State, s.Reason)
		}
		if r := <-result; r.State != harp.StateFailed || string(r.Value) != "\x07" {
			t.Errorf("the result is %+v", r)
		}
	})
}

// quietStore is a store that counts how often records are read.
type quietStore struct {
	store.Store
	reads atomic.Int64
}

func (s *quietStore) Read(ctx context.Context, id string, from uint64, most store.ReadLimit) ([]harp.Record, error) {
	s.reads.Add(1)
	return s.Store.Read(ctx, id, from, most)
}

// A follower that keeps up costs the store next to no reading.
func TestAFollowerThatKeepsUpHardlyReadsFromTheStore(t *testing.T) {
	quiet := new(quietStore)
	onStore(t, func(st store.Store) store.Store { quiet.Store = st; return quiet }, func(t *testing.T, sys *system) {
		_, _, i, m := sys.called(t)
		m.sendFrame(t, wire.TypeAccepted, false, wire.Accepted{Started: &wire.Started{Time: 1}})
		got := make(chan uint64, 100)
		go func() {
			for r, err := range i.job.Follow(t.Context(), harp.Since(0)) {
				if err == nil {
					got <- r.Seq
				}
			}
			close(got)
		}()
		synctest.Wait()
		for n := range int64(50) {
			m.sendFrame(t, wire.TypeRecords, false, wire.Records{First: n, Records: []wire.Record{{Time: 1}}})
			synctest.Wait()
		}
		m.sendFrame(t, wire.TypeEnd, true, wire.End{Records: 50})
		m.expectAck(t)
		n := uint64(0)
		for seq := range got {
			if seq != n {
				t.Errorf("record %d is %d", n, seq)
			}
			n++
		}
		if reads := quiet.reads.Load(); n != 50 || reads > 10 {
			t.Errorf("%d records, for which the store was read %d times", n, reads)
		}
	})
}

// slowStore is a store that takes records when it is told to, and counts what it is told of
// stopping.
type slowStore struct {
	store.Store
	proceed chan struct{} // closed when it goes on
	stops   atomic.Int64
}

func (s *slowStore) Append(ctx context.Context, a store.Append) (*store.Job, error) {
	<-s.proceed
	return s.Store.Append(ctx, a)
}

func (s *slowStore) Apply(ctx context.Context, ts ...store.Transition) ([]store.Change, error) {
	if ts[0].Event.Kind == store.Stop {
		s.stops.Add(1)
	}
	return s.Store.Apply(ctx, ts...)
}

// What comes between records while these are stored is heard once, in its place.
func TestWhatComesBetweenRecordsIsHeardOnce(t *testing.T) {
	var slow *slowStore
	wrap := func(st store.Store) store.Store {
		slow = &slowStore{Store: st, proceed: make(chan struct{})}
		return slow
	}
	onStore(t, wrap, func(t *testing.T, sys *system) {
		_, _, i, m := sys.called(t)
		m.sendFrame(t, wire.TypeAccepted, false, wire.Accepted{Started: &wire.Started{Time: 1}})
		for n := range int64(6) {
			m.sendFrame(t, wire.TypeRecords, false, wire.Records{First: n, Records: []wire.Record{{Time: n + 1}}})
			if n == 3 {
				m.sendFrame(t, wire.TypeStopping, false, wire.Stopping{Cause: wire.CauseTimeout, Since: 1})
			}
		}
		m.sendFrame(t, wire.TypeEnd, true, wire.End{Records: 6, Stopped: &wire.Stopping{Cause: wire.CauseTimeout, Since: 1}})
		synctest.Wait()
		close(slow.proceed)
		m.expectAck(t)
		if s := i.status(t); s.State != harp.StateTimedOut || s.Records != 6 || slow.stops.Load() != 1 {
			t.Errorf("it is %s with %d records, told to stop %d times", s.State, s.Records, slow.stops.Load())
		}
		for n, r := range i.records(t) {
			if r.Time.UnixNano() != int64(n+1) {
				t.Errorf("record %d is that of %v", n, r.Time)
			}
		}
	})
}

// Of a job that was given up the rest is asked for once, of its last attempt, and where the agent has
// something to say.
func TestWhatIsLeftOfAJobThatWasGivenUp(t *testing.T) {
	for name, c := range map[string]struct {
		number  int64
		state   string
		resumes bool
	}{
		"its last attempt": {1, wire.HeldEnded, true}, "alive": {1, wire.HeldAlive, true},
		"another attempt": {2, wire.HeldEnded, false}, "one that never began": {1, wire.HeldWithdrawn, false},
	} {
		t.Run(name, func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, sys *system) {
				i := interrupt(t, sys, saidStart, false)
				time.Sleep(25 * time.Hour)
				if s := i.status(t); s.State != harp.StateLost {
					t.Fatalf("it is %s", s.State)
				}
				for n := range 2 {
					a, asked := i.met(t, sys, 0, c.number, c.state)
					if resumes := c.resumes && n == 0; !resumes {
						expectNothing(t, asked)
						if len(a.forgot) != 1 {
							t.Errorf("it forgets %v", a.forgot)
						}
						continue
					}
					m := <-asked
					if m.resume == nil || len(a.forgot) != 0 {
						t.Fatalf("it is asked %+v, and forgets %v", m, a.forgot)
					}
					m.sendFrame(t, wire.TypeEnd, true, wire.End{Value: []byte{7}})
					m.expectAck(t)
				}
			})
		})
	}
}

// Records behind a gap are not lost where the job cannot be read: they are asked for again.
func TestRecordsBehindAGapOfAJobThatCannotBeRead(t *testing.T) {
	onFailing(t, func(t *testing.T, sys *system, st *failingStore) {
		i := interrupt(t, sys, saidRecord, false)
		for _, fails := range []bool{true, false} {
			m := i.resumed(t, sys, "second", 5)
			if m.resume == nil || m.resume.From != 5 {
				t.Fatalf("it is asked %+v", m)
			}
			st.jobs.Store(fails)
			m.sendFrame(t, wire.TypeRecords, false, wire.Records{First: 5, Records: []wire.Record{{Time: 2, Value: []byte{5}}}})
			synctest.Wait()
			st.jobs.Store(false)
			want := uint64(6)
			if fails {
				want = 1
			}
			if s := i.status(t); s.Records != want {
				t.Errorf("in trouble %v: it has %d records, want %d", fails, s.Records, want)
			}
		}
	})
}
