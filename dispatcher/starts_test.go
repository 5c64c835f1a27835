package dispatcher_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/dispatcher"
	"github.com/harpcaller/harp/internal/wire"
	"github.com/harpcaller/harp/store"
	"github.com/harpcaller/harp/store/memory"
)

// slowStart is a store in which the first commit of a start takes a while: the next start
// waits behind it.
type slowStart struct {
	store.Store
	begun atomic.Bool
}

func (s *slowStart) Apply(ctx context.Context, ts ...store.Transition) ([]store.Change, error) {
	if ts[0].Event.Kind == store.Started && !s.begun.Swap(true) {
		time.Sleep(50 * time.Millisecond)
	}
	return s.Store.Apply(ctx, ts...)
}

// startWaiting has an agent tell of two starts, of which the second waits to be stored.
func startWaiting(t *testing.T, then func(t *testing.T, sys *system, agent *rawAgent, asked <-chan agentExchange, job *harp.Job, m agentExchange)) {
	synctest.Test(t, func(t *testing.T) {
		sys := newSystem(t, embedded, &slowStart{Store: memory.Open(nil)}, dispatcher.Config{})
		agent := must[*rawAgent](t)(sys.newRawAgent(t.Context(), "i"))
		go agent.answerProbes()
		asked := agent.exchanges(t)
		synctest.Wait()
		var job *harp.Job
		var m agentExchange
		for range 2 {
			job = must[*harp.Job](t)(sys.caller.Host("web01").Call(t.Context(), "work", nil))
			m = <-asked
			m.sendFrame(t, wire.TypeAccepted, false, wire.Accepted{Started: &wire.Started{Time: 1}})
			synctest.Wait()
		}
		then(t, sys, agent, asked, job, m)
	})
}

// An agent that has told of a start does not take it back, though the start is not stored
// yet: the call is not sent again.
func TestStartThenNotNow(t *testing.T) {
	startWaiting(t, func(t *testing.T, _ *system, agent *rawAgent, asked <-chan agentExchange, job *harp.Job, m agentExchange) {
		m.sendFrame(t, wire.TypeNotNow, true, wire.NotNow{Reason: wire.NotNowBusy})
		close(m.over)
		select {
		case <-agent.tr.Done():
		case <-asked:
			t.Errorf("it is sent again: %s", must[harp.JobStatus](t)(job.Status(t.Context())).State)
		}
		agent.tr.Close(nil)
	})
}

// An end that cannot be read does not take the start with it that was not stored yet.
func TestStartThenBadEnd(t *testing.T) {
	startWaiting(t, func(t *testing.T, sys *system, agent *rawAgent, _ <-chan agentExchange, job *harp.Job, m agentExchange) {
		m.sendFrame(t, wire.TypeEnd, true, wire.End{Value: []byte{0xc1}})
		<-agent.tr.Done()
		time.Sleep(time.Second)
		agent = must[*rawAgent](t)(sys.greetRaw(t.Context(), wire.Hello{Version: wire.Version, Instance: "i", Journal: "j"}))
		go agent.answerProbes()
		agent.exchanges(t)
		time.Sleep(time.Second)
		if st := must[harp.JobStatus](t)(job.Status(t.Context())); st.State != harp.StateLost {
			t.Errorf("of an attempt that began and is not there any more it says %s", st.State)
		}
		agent.tr.Close(nil)
	})
}

// startless is a store in which starts cannot be noted while the test says so: at all, or each of them by itself.
type startless struct {
	store.Store
	ill    atomic.Bool
	single bool
	tries  atomic.Int64
}

func (s *startless) Apply(ctx context.Context, ts ...store.Transition) ([]store.Change, error) {
	if ts[0].Event.Kind != store.Started || !s.ill.Load() {
		return s.Store.Apply(ctx, ts...)
	}
	s.tries.Add(1)
	if s.single {
		return []store.Change{{Err: errTrouble}}, nil
	}
	return nil, errTrouble
}

// A start that cannot be noted is noted when it can be: without it what has begun would count as not started if its agent lost it.
func TestAStartThatCannotBeNotedIsNotedLater(t *testing.T) {
	for _, single := range []bool{false, true} {
		st := &startless{single: single}
		onStore(t, func(inner store.Store) store.Store { st.Store = inner; return st }, func(t *testing.T, sys *system) {
			agent := must[*rawAgent](t)(sys.newRawAgent(t.Context(), "i"))
			asked := agent.exchanges(t)
			synctest.Wait()
			st.ill.Store(true)
			job := must[*harp.Job](t)(sys.caller.Host("web01").Call(t.Context(), "work", nil))
			m := <-asked
			m.sendFrame(t, wire.TypeAccepted, false, wire.Accepted{Started: &wire.Started{Time: 1}})
			time.Sleep(10 * time.Second)
			if n := st.tries.Load(); n < 5 || n > 15 {
				t.Errorf("it was tried %d times in 10 s", n)
			}
			st.ill.Store(false)
			time.Sleep(2 * time.Second)
			if s := must[harp.JobStatus](t)(job.Status(t.Context())); s.State != harp.StateRunning {
				t.Errorf("it is %s", s.State)
			}
			close(m.over)
		})
	}
}

// signless is a store that keeps nothing of what an agent says of an attempt, which nobody can store for a while.
type signless struct {
	store.Store
	ill atomic.Bool
}

func (s *signless) Apply(ctx context.Context, ts ...store.Transition) ([]store.Change, error) {
	if kind := ts[0].Event.Kind; s.ill.Load() && (kind == store.Started || kind == store.Stop || kind == store.Alive) {
		return nil, errTrouble
	}
	return s.Store.Apply(ctx, ts...)
}

func (s *signless) Append(ctx context.Context, a store.Append) (*store.Job, error) {
	if s.ill.Load() {
		return nil, errTrouble
	}
	return s.Store.Append(ctx, a)
}

// What an agent has said of a start, and could not be stored before its session ended, is known in the next one: if the agent
// lacks that attempt then, it is lost, and neither sent again nor told as not started.
func TestAStartThatWasNotStoredIsKnownInTheNextSession(t *testing.T) {
	accepted := func(t *testing.T, m agentExchange) { m.sendFrame(t, wire.TypeAccepted, false, wire.Accepted{}) }
	for name, c := range map[string]struct {
		says  func(t *testing.T, m agentExchange)
		away  time.Duration
		call  bool // it is sent again
		state harp.State
	}{
		"started": {says: func(t *testing.T, m agentExchange) {
			m.sendFrame(t, wire.TypeAccepted, false, wire.Accepted{Started: &wire.Started{Time: 1}})
		}, state: harp.StateLost},
		"started, and silent": {says: func(t *testing.T, m agentExchange) {
			m.sendFrame(t, wire.TypeAccepted, false, wire.Accepted{Started: &wire.Started{Time: 1}})
		}, away: time.Minute, state: harp.StateLost},
		"records": {says: func(t *testing.T, m agentExchange) {
			accepted(t, m)
			m.sendFrame(t, wire.TypeRecords, false, wire.Records{Records: []wire.Record{{Time: 1, Value: []byte{0}}}})
		}, state: harp.StateLost},
		"stopping": {says: func(t *testing.T, m agentExchange) {
			accepted(t, m)
			m.sendFrame(t, wire.TypeStopping, false, wire.Stopping{Cause: wire.CauseTimeout, Since: 1})
		}, state: harp.StateLost},
		"processes": {says: func(t *testing.T, m agentExchange) {
			accepted(t, m)
			m.sendFrame(t, wire.TypeStopping, false, wire.Stopping{Left: []int64{7}})
		}, state: harp.StateLost},
		"end": {says: func(t *testing.T, m agentExchange) {
			accepted(t, m)
			m.sendFrame(t, wire.TypeEnd, true, wire.End{Value: []byte{0xc1}})
		}, state: harp.StateLost},
		"accepted": {says: accepted, call: true, state: harp.StateSent},
	} {
		t.Run(name, func(t *testing.T) {
			st := new(signless)
			onStore(t, func(inner store.Store) store.Store { st.Store = inner; return st }, func(t *testing.T, sys *system) {
				agent := must[*rawAgent](t)(sys.newRawAgent(t.Context(), "i"))
				asked := agent.exchanges(t)
				synctest.Wait()
				st.ill.Store(true)
				i := interrupted{job: must[*harp.Job](t)(sys.caller.Host("web01").Call(t.Context(), "work", nil))}
				c.says(t, <-asked)
				synctest.Wait()
				agent.tr.Close(nil)
				time.Sleep(c.away)
				st.ill.Store(false)
				_, asked = i.again(t, sys, "j", "")
				s := i.status(t)
				if s.State != c.state || c.state == harp.StateLost && (s.Reason != harp.LostJournalGone || s.Started != harp.MayHaveRun) {
					t.Errorf("it is %s (%s), started %s", s.State, s.Reason, s.Started)
				}
				call := int64(0)
				if c.call {
					call = 1
				}
				expectAsked(t, asked, call, false, false)
			})
		})
	}
}

// A start that was not stored is not taken back in the next session either: that the agent refuses the call then is no word that it did not run.
func TestAStartThatWasNotStoredIsNotTakenBack(t *testing.T) {
	st := new(signless)
	onStore(t, func(inner store.Store) store.Store { st.Store = inner; return st }, func(t *testing.T, sys *system) {
		agent := must[*rawAgent](t)(sys.newRawAgent(t.Context(), "i"))
		asked := agent.exchanges(t)
		synctest.Wait()
		st.ill.Store(true)
		i := interrupted{job: must[*harp.Job](t)(sys.caller.Host("web01").Call(t.Context(), "work", nil))}
		m := <-asked
		m.sendFrame(t, wire.TypeAccepted, false, wire.Accepted{Started: &wire.Started{Time: 1}})
		synctest.Wait()
		agent.tr.Close(nil)
		synctest.Wait()
		st.ill.Store(false)
		second, asked := i.again(t, sys, "j", wire.HeldEnded)
		m = <-asked
		m.sendFrame(t, wire.TypeRefused, true, wire.Refused{Failure: errors.New("no")})
		if s := i.status(t); s.State.Ended() || second.tr.Err() == nil {
			t.Errorf("it is %s, started %s, and its agent's session ended with %v", s.State, s.Started, second.tr.Err())
		}
	})
}

// That an attempt is alive, which could not be stored, is known in the session after that.
func TestThatAnAttemptIsAliveIsKnownThoughItIsNotStored(t *testing.T) {
	st := new(signless)
	onStore(t, func(inner store.Store) store.Store { st.Store = inner; return st }, func(t *testing.T, sys *system) {
		i := interrupt(t, sys, gotCall, false)
		st.ill.Store(true)
		held := wire.HeldAttempt{Job: i.job.ID(), Attempt: 1, State: wire.HeldAlive, Fence: 1}
		if _, err := sys.greetRaw(t.Context(), wire.Hello{Version: wire.Version, Instance: "second", Journal: "j"}, held); err == nil {
			t.Error("it is greeted")
		}
		st.ill.Store(false)
		_, asked := i.again(t, sys, "j", "")
		if s := i.status(t); s.State != harp.StateLost || s.Reason != harp.LostJournalGone {
			t.Errorf("it is %s (%s)", s.State, s.Reason)
		}
		expectNothing(t, asked)
	})
}

// What could not be stored of a start while the session lasted is stored as the dispatcher stops, if it can be then: the next process
// does not know of it else.
func TestAStartThatWasNotStoredIsStoredAtLast(t *testing.T) {
	for name, says := range map[string]func(t *testing.T, m agentExchange){
		"started": func(t *testing.T, m agentExchange) {
			m.sendFrame(t, wire.TypeAccepted, false, wire.Accepted{Started: &wire.Started{Time: 1}})
		},
		"records": func(t *testing.T, m agentExchange) {
			m.sendFrame(t, wire.TypeRecords, false, wire.Records{Records: []wire.Record{{Time: 1, Value: []byte{0}}}})
		},
		"stopping": func(t *testing.T, m agentExchange) {
			m.sendFrame(t, wire.TypeStopping, false, wire.Stopping{Cause: wire.CauseTimeout, Since: 1})
		},
		"end": func(t *testing.T, m agentExchange) {
			m.sendFrame(t, wire.TypeEnd, true, wire.End{Value: harp.Value{0xc0}})
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				disk, network := memory.NewDisk(), newNetwork(t, inMemory)
				st := &fullSigns{Store: memory.OpenDisk(disk, nil)}
				sys := newSystemOn(t, embedded, network, st, dispatcher.Config{})
				agent := must[*rawAgent](t)(sys.newRawAgent(t.Context(), "i"))
				asked := agent.exchanges(t)
				synctest.Wait()
				st.ill.Store(true)
				i := interrupted{job: must[*harp.Job](t)(sys.caller.Host("web01").Call(t.Context(), "work", nil))}
				says(t, <-asked)
				time.Sleep(100 * time.Millisecond)
				st.ill.Store(false) // and it is not tried again for a while
				if err := sys.d.Shutdown(t.Context()); err != nil {
					t.Fatal(err)
				}
				agent.tr.Close(nil)
				again := newSystemOn(t, embedded, network, memory.OpenDisk(disk, nil), dispatcher.Config{})
				i.job = again.caller.Job(i.job.ID())
				_, asked = i.again(t, again, "j", "")
				if s := i.status(t); s.State != harp.StateLost || s.Reason != harp.LostJournalGone {
					t.Errorf("it is %s (%s)", s.State, s.Reason)
				}
				expectNothing(t, asked)
			})
		})
	}
}

// fullSigns is a store that has no room for what an agent says of an attempt while the test says so.
type fullSigns struct {
	store.Store
	ill atomic.Bool
}

func (s *fullSigns) Apply(ctx context.Context, ts ...store.Transition) ([]store.Change, error) {
	if s.ill.Load() && ts[0].Event.Kind != store.Withdrawn {
		return []store.Change{{Err: harp.ErrNoSpace}}, nil
	}
	return s.Store.Apply(ctx, ts...)
}

func (s *fullSigns) Append(ctx context.Context, a store.Append) (*store.Job, error) {
	if s.ill.Load() {
		return nil, harp.ErrNoSpace
	}
	return s.Store.Append(ctx, a)
}
