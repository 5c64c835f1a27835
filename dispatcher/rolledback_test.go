package dispatcher_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/dispatcher"
	"github.com/harpcaller/harp/internal/wire"
	"github.com/harpcaller/harp/store"
	"github.com/harpcaller/harp/store/memory"
)

// met connects the agent whose journal has taken so many calls, and which holds the job's attempt.
func (i interrupted) met(t *testing.T, sys *system, taken, number int64, state string) (*rawAgent, <-chan agentExchange) {
	t.Helper()
	held := wire.Held{Taken: taken}
	if state != "" {
		held.Attempts = append(held.Attempts, wire.HeldAttempt{Job: i.job.ID(), Attempt: number, State: state, Fence: 1})
	}
	a := must[*rawAgent](t)(sys.greetAs(t.Context(), "web01", wire.Hello{Version: wire.Version, Instance: "i", Journal: "j"}, held))
	asked := a.exchanges(t)
	synctest.Wait()
	return a, asked
}

// A journal that knows less than it did was rolled back: what it holds and what it does not hold
// prove nothing.
func TestAJournalThatWasRolledBackProvesNothing(t *testing.T) {
	for name, c := range map[string]struct {
		began   bool
		taken   int64
		holds   string
		state   harp.State
		resumes bool
		forgets int
	}{
		"as many, alive":         {true, 5, wire.HeldAlive, harp.StateRunning, true, 0},
		"more, alive":            {true, 6, wire.HeldAlive, harp.StateRunning, true, 0},
		"rolled back, alive":     {true, 4, wire.HeldAlive, harp.StateLost, false, 1},
		"rolled back, ended":     {true, 4, wire.HeldEnded, harp.StateLost, false, 1},
		"rolled back, nothing":   {false, 4, "", harp.StateLost, false, 0},
		"rolled back, withdrawn": {false, 4, wire.HeldWithdrawn, harp.StateLost, false, 1},
		"as many, nothing":       {false, 5, "", harp.StateSent, false, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				sys := newSystem(t, embedded, nil, dispatcher.Config{})
				var i interrupted
				agent, asked := i.met(t, sys, 5, 1, "")
				i.job = must[*harp.Job](t)(sys.caller.Host("web01").Call(t.Context(), "work", nil))
				m := <-asked
				if c.began {
					m.sendFrame(t, wire.TypeAccepted, false, wire.Accepted{Started: &wire.Started{Time: 1}})
				}
				synctest.Wait()
				agent.tr.Close(nil)
				synctest.Wait()
				agent, asked = i.met(t, sys, c.taken, 1, c.holds)
				s := i.status(t)
				if s.State != c.state || c.state == harp.StateLost && s.Reason != harp.LostJournalGone || len(agent.forgot) != c.forgets {
					t.Errorf("it is %s (%s), and the agent forgets %v", s.State, s.Reason, agent.forgot)
				}
				select {
				case m := <-asked:
					if c.state == harp.StateLost || (m.resume != nil) != c.resumes {
						t.Errorf("it is asked %+v", m)
					}
				default:
					if c.state != harp.StateLost {
						t.Error("it is asked for nothing")
					}
				}
			})
		})
	}
}

// TestAJournalThatWasRolledBackIsOnlyOnce checks that once all is lost that a rolled back journal proves nothing of, it is
// compared with what it says itself.
func TestAJournalThatWasRolledBackIsOnlyOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk, network := memory.NewDisk(), newNetwork(t, inMemory)
		sys := newSystemOn(t, embedded, network, memory.OpenDisk(disk, nil), dispatcher.Config{})
		var i interrupted
		i.met(t, sys, 5, 1, "")
		i.job = must[*harp.Job](t)(sys.caller.Host("web01").Call(t.Context(), "work", nil))
		_, asked := i.met(t, sys, 3, 1, "")
		if s := i.status(t); s.State != harp.StateLost {
			t.Errorf("it is %s", s.State)
		}
		i.job = must[*harp.Job](t)(sys.caller.Host("web01").Call(t.Context(), "work", nil))
		m := <-asked
		m.sendFrame(t, wire.TypeAccepted, false, wire.Accepted{Started: &wire.Started{Time: 1}})
		synctest.Wait()
		i.met(t, sys, 4, 1, wire.HeldAlive)
		if s := i.status(t); s.State != harp.StateRunning {
			t.Errorf("it is %s (%s)", s.State, s.Reason)
		}
		if err := sys.d.Shutdown(t.Context()); err != nil {
			t.Fatal(err)
		}
		again := newSystemOn(t, embedded, network, memory.OpenDisk(disk, nil), dispatcher.Config{})
		i.job = again.caller.Job(i.job.ID())
		i.met(t, again, 4, 1, wire.HeldAlive)
		if s := i.status(t); s.State != harp.StateRunning {
			t.Errorf("behind a restart it is %s (%s)", s.State, s.Reason)
		}
	})
}

// TestAnEndTellsHowManyCallsTheJournalHasTaken checks that a journal is known to be rolled back by what was heard
// amid a session, too: of an attempt that has ended since, and of which nothing is held any more.
func TestAnEndTellsHowManyCallsTheJournalHasTaken(t *testing.T) {
	for name, c := range map[string]struct {
		taken int64
		state harp.State
	}{
		"rolled back to HELD": {5, harp.StateLost},
		"rolled back":         {19, harp.StateLost},
		"as many":             {20, harp.StateSent},
		"more":                {21, harp.StateSent},
	} {
		t.Run(name, func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, sys *system) {
				var i interrupted
				agent, asked := i.met(t, sys, 5, 1, "")
				before := must[*harp.Job](t)(sys.caller.Host("web01").Call(t.Context(), "work", nil))
				m := <-asked
				m.sendFrame(t, wire.TypeEnd, true, wire.End{Value: harp.Value{0xc0}, Started: &wire.Started{Time: 1}, Taken: 20})
				must[harp.Value](t)(before.Get(t.Context()))
				agent.sendFrame(t, wire.TypeFacts, wire.Facts{})
				i.job = must[*harp.Job](t)(sys.caller.Host("web01").Call(t.Context(), "work", nil))
				<-asked // it begins, and that is not heard
				synctest.Wait()
				agent.tr.Close(nil)
				synctest.Wait()
				i.met(t, sys, c.taken, 1, "")
				if s := i.status(t); s.State != c.state || c.state == harp.StateLost && s.Reason != harp.LostJournalGone {
					t.Errorf("it is %s (%s)", s.State, s.Reason)
				}
			})
		})
	}
}

// What was told to stop, or has processes left, has begun: where it is not there any more the job
// is lost, and not called again.
func TestWhatWasStoppingHadBegun(t *testing.T) {
	for name, stopping := range map[string]wire.Stopping{
		"by a limit":  {Cause: wire.CauseTimeout, Since: 1},
		"and is left": {Cause: wire.CauseTimeout, Since: 1, Left: []int64{7}},
	} {
		t.Run(name, func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, sys *system) {
				agent, _, i, m := sys.called(t)
				m.sendFrame(t, wire.TypeAccepted, false, wire.Accepted{})
				m.sendFrame(t, wire.TypeStopping, false, stopping)
				if s := i.status(t); s.State != harp.StateCancelling {
					t.Errorf("it is %s", s.State)
				}
				agent.tr.Close(nil)
				synctest.Wait()
				_, asked := i.again(t, sys, "j", "")
				if s := i.status(t); s.State != harp.StateLost || s.Reason != harp.LostJournalGone || s.Started != harp.MayHaveRun {
					t.Errorf("it is %s (%s), started %s", s.State, s.Reason, s.Started)
				}
				expectNothing(t, asked)
			})
		})
	}
}

// What a journal that was rolled back holds of a job that was given up is not its outcome.
func TestALateWordOfAJournalThatWasRolledBack(t *testing.T) {
	for taken, resumes := range map[int64]bool{4: false, 5: true} {
		inVirtualTime(t, func(t *testing.T, sys *system) {
			var i interrupted
			agent, asked := i.met(t, sys, 5, 1, "")
			i.job = must[*harp.Job](t)(sys.caller.Host("web01").Call(t.Context(), "work", nil))
			m := <-asked
			m.sendFrame(t, wire.TypeAccepted, false, wire.Accepted{Started: &wire.Started{Time: 1}})
			synctest.Wait()
			agent.tr.Close(nil)
			time.Sleep(25 * time.Hour)
			agent, asked = i.met(t, sys, taken, 1, wire.HeldEnded)
			if forgets := len(agent.forgot) == 1; forgets == resumes {
				t.Errorf("with %d taken it forgets %v", taken, agent.forgot)
			}
			if resumes {
				if m := <-asked; m.resume == nil {
					t.Errorf("it is asked %+v", m)
				}
				return
			}
			expectNothing(t, asked)
		})
	}
}

// How many calls a journal had taken when an end told of it is known to the next process, too: what was stored before a call was sent
// says whether its journal was rolled back since.
func TestAnEndTellsTheNextProcessHowManyCallsTheJournalHasTaken(t *testing.T) {
	for name, c := range map[string]struct {
		gone  bool // the attempt that ended was lost with its process
		taken int64
		state harp.State
	}{
		"rolled back to HELD":          {false, 5, harp.StateLost},
		"rolled back":                  {false, 19, harp.StateLost},
		"rolled back, and it was gone": {true, 19, harp.StateLost},
		"as many":                      {false, 20, harp.StateSent},
		"as many, and it was gone":     {true, 20, harp.StateSent},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				disk, network := memory.NewDisk(), newNetwork(t, inMemory)
				sys := newSystemOn(t, embedded, network, memory.OpenDisk(disk, nil), dispatcher.Config{})
				var i interrupted
				agent, asked := i.met(t, sys, 5, 1, "")
				for _, taken := range []int64{20, 19} { // they come as they come
					before := must[*harp.Job](t)(sys.caller.Host("web01").Call(t.Context(), "work", nil))
					m := <-asked
					m.sendFrame(t, wire.TypeEnd, true, wire.End{Value: harp.Value{0xc0}, Started: &wire.Started{Time: 1}, Gone: c.gone, Taken: taken})
					must[harp.Result](t)(before.Wait(t.Context()))
				}
				i.job = must[*harp.Job](t)(sys.caller.Host("web01").Call(t.Context(), "work", nil))
				<-asked // it begins, and that is not heard
				synctest.Wait()
				if err := sys.d.Shutdown(t.Context()); err != nil {
					t.Fatal(err)
				}
				agent.tr.Close(nil)
				again := newSystemOn(t, embedded, network, memory.OpenDisk(disk, nil), dispatcher.Config{})
				i.job = again.caller.Job(i.job.ID())
				i.met(t, again, c.taken, 1, "")
				if s := i.status(t); s.State != c.state || c.state == harp.StateLost && s.Reason != harp.LostJournalGone {
					t.Errorf("it is %s (%s)", s.State, s.Reason)
				}
			})
		})
	}
}

// TestAnEndThatWasNotStoredTellsHowManyCallsTheJournalHasTaken: an end that came while nothing could be stored, nor when its session ended, has told how many
// calls the journal has taken. The next session knows, where the journal was set back before the end.
func TestAnEndThatWasNotStoredTellsHowManyCallsTheJournalHasTaken(t *testing.T) {
	for name, c := range map[string]struct {
		taken int64
		state harp.State
	}{
		"rolled back": {19, harp.StateLost},
		"as many":     {20, harp.StateSent},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				disk := memory.NewDisk()
				sys := newSystem(t, embedded, memory.OpenDisk(disk, nil), dispatcher.Config{})
				var i interrupted
				agent, asked := i.met(t, sys, 5, 1, "")
				var ending []agentExchange
				var held []wire.HeldAttempt
				for range 2 {
					before := must[*harp.Job](t)(sys.caller.Host("web01").Call(t.Context(), "work", nil))
					ending = append(ending, <-asked)
					held = append(held, wire.HeldAttempt{Job: before.ID(), Attempt: 1, State: wire.HeldAlive, Fence: 1})
				}
				i.job = must[*harp.Job](t)(sys.caller.Host("web01").Call(t.Context(), "work", nil))
				<-asked // it begins, and that is not heard
				disk.SetSpace(store.SpaceCritical)
				for n, taken := range []int64{20, 19} { // they come as they come
					ending[n].sendFrame(t, wire.TypeEnd, true, wire.End{Value: harp.Value{0xc0}, Started: &wire.Started{Time: 1}, Taken: taken})
					synctest.Wait()
				}
				agent.tr.Close(nil)
				synctest.Wait()
				disk.SetSpace(store.SpacePlenty)
				hello := wire.Hello{Version: wire.Version, Instance: "i", Journal: "j"}
				must[*rawAgent](t)(sys.greetAs(t.Context(), "web01", hello, wire.Held{Attempts: held, Taken: c.taken})).exchanges(t)
				if s := i.status(t); s.State != c.state || c.state == harp.StateLost && s.Reason != harp.LostJournalGone {
					t.Errorf("it is %s (%s)", s.State, s.Reason)
				}
			})
		})
	}
}
