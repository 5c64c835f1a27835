package dispatcher_test

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/dispatcher"
	"github.com/harpcaller/harp/internal/wire"
	"github.com/harpcaller/harp/store"
	"github.com/harpcaller/harp/store/memory"
	"github.com/harpcaller/harp/transport"
)

// unlimited is a call that no limit ends.
var unlimited = []harp.Option{harp.SilenceTimeout(harp.NoLimit), harp.MaxExecTime(harp.NoLimit), harp.OfflineWait(harp.NoLimit)}

// alive keeps an agent from being silent, whatever else it does not say.
func alive(a *rawAgent) { a.tr.Beat(10 * time.Second) }

// started is a job whose agent has said that it started, and no more. Its queue has room for one.
func (s *system) started(t *testing.T, opts ...harp.Option) (*rawAgent, <-chan agentExchange, interrupted, agentExchange) {
	t.Helper()
	a, asked, i, m := s.called(t, append(opts, harp.Queue(harp.Args{"q": 1}))...)
	alive(a)
	m.sendFrame(t, wire.TypeAccepted, false, wire.Accepted{Started: &wire.Started{Time: 1}})
	return a, asked, i, m
}

// behind is a job that waits for the slot of the one that was started.
func (s *system) behind(t *testing.T) interrupted {
	t.Helper()
	return interrupted{job: must[*harp.Job](t)(s.caller.Host("web01").Call(t.Context(), "work", nil, append(unlimited, harp.Queue(harp.Args{"q": 1}))...))}
}

// expectAttempt waits for the next exchange, which is a CALL of this attempt.
func expectAttempt(t *testing.T, asked <-chan agentExchange, number int64) agentExchange {
	t.Helper()
	synctest.Wait()
	select {
	case m := <-asked:
		if m.call == nil || m.call.Attempt != number {
			t.Fatalf("it is asked %+v", m)
		}
		return m
	default:
		t.Fatal("it is asked for nothing")
		return agentExchange{}
	}
}

// An agent that does not say what became of a call, though it is there, loses its session after 5 min. What
// became of the call is found out in the next one: a cancel is done, and the job waits no longer than it was to.
func TestACallThatIsNotAnswered(t *testing.T) {
	for name, accepts := range map[string]bool{"no answer": false, "accepted, and no start": true} {
		for after, cancels := range map[string]bool{"": false, ", and cancelled": true} {
			t.Run(name+after, func(t *testing.T) {
				inVirtualTime(t, func(t *testing.T, sys *system) {
					a, _, i, m := sys.called(t, unlimited...)
					alive(a)
					if accepts {
						m.sendFrame(t, wire.TypeAccepted, false, wire.Accepted{})
					}
					if cancels {
						must[bool](t)(i.job.Cancel(t.Context()))
					}
					time.Sleep(5 * time.Minute)
					if s := i.status(t); a.tr.Err() != nil || s.State.Ended() {
						t.Errorf("within the time it is %s, and the session ended with %v", s.State, a.tr.Err())
					}
					time.Sleep(2 * time.Minute)
					synctest.Wait()
					if a.tr.Err() == nil {
						t.Error("the session goes on")
					}
					_, asked := i.again(t, sys, "j", "")
					if !cancels {
						expectAttempt(t, asked, 1)
						return
					}
					expectNothing(t, asked)
					if s := i.status(t); s.State != harp.StateCancelled || s.Started != harp.DidNotRun {
						t.Errorf("it is %s, started %q", s.State, s.Started)
					}
				})
			})
		}
	}
}

// The time in which a slow line takes the calls themselves counts beside the 5 min.
func TestACallThatIsOnItsWayIsWaitedFor(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, sys *system) {
		a := must[*rawAgent](t)(sys.newRawAgent(t.Context(), "i"))
		asked := a.exchanges(t)
		alive(a)
		synctest.Wait()
		var calls []agentExchange
		for range 4 { // 128 s of a slow line each
			must[*harp.Job](t)(sys.caller.Host("web01").Call(t.Context(), "work", harp.Args{"a": make([]byte, 1<<20-100)}))
			calls = append(calls, <-asked)
		}
		time.Sleep(4*time.Minute + 30*time.Second)
		for _, m := range calls {
			time.Sleep(2 * time.Minute)
			m.sendFrame(t, wire.TypeAccepted, false, wire.Accepted{Started: &wire.Started{Time: 1}})
		}
		time.Sleep(10 * time.Minute)
		if a.tr.Err() != nil {
			t.Errorf("answered, the session ended: %v", a.tr.Err())
		}
	})
}

// A job of which its agent, which is there, does not say that it is over when it should long be is given up: when
// a limit of it, or a cancel, is over for LostAfter. The next one has its slot, and the agent is told to stop it.
func TestAnEndThatDoesNotComeIsNotWaitedForForEver(t *testing.T) {
	day := 24 * time.Hour
	for name, c := range map[string]struct {
		opts  []harp.Option
		does  func(t *testing.T, i interrupted, m agentExchange)
		until time.Duration
	}{
		"beyond MaxExecTime":    {[]harp.Option{harp.SilenceTimeout(harp.NoLimit), harp.MaxExecTime(2 * time.Hour)}, nil, day + 2*time.Hour},
		"beyond SilenceTimeout": {[]harp.Option{harp.SilenceTimeout(time.Hour), harp.MaxExecTime(harp.NoLimit)}, nil, day + time.Hour},
		"cancelled": {unlimited, func(t *testing.T, i interrupted, _ agentExchange) {
			must[bool](t)(i.job.Cancel(t.Context()))
		}, day},
		"stopping": {unlimited, func(t *testing.T, _ interrupted, m agentExchange) {
			m.sendFrame(t, wire.TypeStopping, false, wire.Stopping{Cause: wire.CauseTimeout, Since: 1})
		}, day},
	} {
		t.Run(name, func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, sys *system) {
				a, asked, i, m := sys.started(t, c.opts...)
				waits := sys.behind(t)
				if c.does != nil {
					synctest.Wait()
					c.does(t, i, m)
				}
				time.Sleep(c.until - time.Minute)
				if s := i.status(t); s.State.Ended() || a.tr.Err() != nil || waits.status(t).State != harp.StateQueued {
					t.Fatalf("within the time it is %s (%s), and the session ended with %v", s.State, s.Reason, a.tr.Err())
				}
				time.Sleep(4 * time.Minute)
				s := i.status(t)
				if s.State != harp.StateLost || s.Reason != harp.LostTooLong || harp.RanOf(s.Err) != harp.MayHaveRun {
					t.Fatalf("it is %s (%s): %v", s.State, s.Reason, s.Err)
				}
				expectAttempt(t, asked, 1)
				if f, err := m.x.Receive(t.Context()); err != nil || f.Type != wire.TypeCancel {
					t.Errorf("its agent is told %d, %v", f.Type, err)
				}
				m.sendFrame(t, wire.TypeEnd, true, wire.End{Value: []byte{7}})
				m.expectAck(t)
				if s := i.status(t); s.State != harp.StateLost || s.Late == nil || s.Late.State != harp.StateSucceeded {
					t.Errorf("late it is %s, %+v", s.State, s.Late)
				}
				if a.tr.Err() != nil {
					t.Errorf("the session ended: %v", a.tr.Err())
				}
			})
		})
	}
}

// An agent that says why a job is not over, or sends its records, is waited for; so is one whose job has time.
func TestWhatMayGoOnIsNotGivenUp(t *testing.T) {
	week := 7 * 24 * time.Hour
	for name, c := range map[string]struct {
		opts []harp.Option
		does func(t *testing.T, i interrupted, m agentExchange)
	}{
		"without limits": {unlimited, func(*testing.T, interrupted, agentExchange) { time.Sleep(week) }},
		"processes outlive KILL": {[]harp.Option{harp.SilenceTimeout(time.Minute)}, func(t *testing.T, _ interrupted, m agentExchange) {
			m.sendFrame(t, wire.TypeStopping, false, wire.Stopping{Cause: wire.CauseTimeout, Since: 1, Left: []int64{7}})
			time.Sleep(week)
		}},
		"records within SilenceTimeout": {[]harp.Option{harp.SilenceTimeout(2 * time.Hour), harp.MaxExecTime(harp.NoLimit)}, func(t *testing.T, _ interrupted, m agentExchange) {
			for n := range 100 {
				m.sendFrame(t, wire.TypeRecords, false, wire.Records{First: int64(n), Records: []wire.Record{{Time: 1}}})
				time.Sleep(time.Hour)
			}
		}},
		"records that come late": {[]harp.Option{harp.MaxExecTime(time.Minute)}, func(t *testing.T, _ interrupted, m agentExchange) {
			time.Sleep(23 * time.Hour)
			for n := range 180 {
				m.sendFrame(t, wire.TypeRecords, false, wire.Records{First: int64(n), Records: []wire.Record{{Time: 1}}})
				time.Sleep(50 * time.Second)
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				sys := newSystem(t, embedded, nil, dispatcher.Config{})
				a, _, i, m := sys.started(t, c.opts...)
				synctest.Wait()
				c.does(t, i, m)
				if s := i.status(t); s.State.Ended() || a.tr.Err() != nil {
					t.Fatalf("it is %s (%s), and the session ended with %v", s.State, s.Reason, a.tr.Err())
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

// One that sends records for ever is not waited for for ever.
func TestRecordsWithoutEndHoldNoSlotForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sys := newSystem(t, embedded, nil, dispatcher.Config{LostAfter: time.Hour})
		_, asked, i, m := sys.started(t, harp.MaxExecTime(time.Minute))
		waits := sys.behind(t)
		for n := 0; waits.status(t).State == harp.StateQueued; n++ {
			m.sendFrame(t, wire.TypeRecords, false, wire.Records{First: int64(n), Records: []wire.Record{{Time: 1}}})
			time.Sleep(30 * time.Second)
			if n > 1000 {
				t.Fatal("it goes on")
			}
		}
		expectAttempt(t, asked, 1)
		if s := i.status(t); s.State != harp.StateLost || s.Reason != harp.LostTooLong {
			t.Errorf("it is %s (%s)", s.State, s.Reason)
		}
	})
}

// What an agent that is there was given up on may still run: another attempt waits for its end, or for
// a session in which it is not alive any more. It never begins beside it.
func TestARetryWaitsForWhatWasGivenUpBesideItsAgent(t *testing.T) {
	stopped := wire.Stopping{Cause: wire.CauseCancel, Since: 1}
	retry := []harp.Option{
		harp.MaxExecTime(time.Hour), harp.SilenceTimeout(harp.NoLimit), harp.OfflineWait(harp.NoLimit),
		harp.Retry(harp.RetryPolicy{On: []harp.State{harp.StateLost}, Attempts: 2}),
	}
	for name, ends := range map[string]func(t *testing.T, sys *system, a *rawAgent, i interrupted, m agentExchange, asked <-chan agentExchange) <-chan agentExchange{
		"it ends": func(t *testing.T, _ *system, _ *rawAgent, _ interrupted, m agentExchange, asked <-chan agentExchange) <-chan agentExchange {
			m.sendFrame(t, wire.TypeEnd, true, wire.End{Stopped: &stopped})
			m.expectAck(t)
			return asked
		},
		"it is gone": func(t *testing.T, _ *system, _ *rawAgent, i interrupted, m agentExchange, asked <-chan agentExchange) <-chan agentExchange {
			m.sendFrame(t, wire.TypeEnd, true, wire.End{Gone: true})
			m.expectAck(t)
			if s := i.status(t); s.Attempts[0].Reason != harp.LostAgentRestarted || s.DuplicatePossible {
				t.Errorf("its attempts are %+v, possibly twice: %v", s.Attempts, s.DuplicatePossible)
			}
			return asked
		},
		"it is found alive, and ends then": func(t *testing.T, sys *system, a *rawAgent, i interrupted, _ agentExchange, _ <-chan agentExchange) <-chan agentExchange {
			a.tr.Close(nil)
			synctest.Wait()
			a, asked := i.again(t, sys, "j", wire.HeldAlive)
			alive(a)
			m := <-asked
			if m.resume == nil || m.resume.Cancel == nil {
				t.Fatalf("it is asked %+v", m)
			}
			time.Sleep(time.Hour)
			expectNothing(t, asked)
			m.sendFrame(t, wire.TypeEnd, true, wire.End{Stopped: &stopped})
			m.expectAck(t)
			return asked
		},
	} {
		t.Run(name, func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, sys *system) {
				a, asked, i, m := sys.started(t, retry...)
				time.Sleep(25*time.Hour + 4*time.Minute)
				if s := i.status(t); s.State != harp.StateQueued || s.Attempts[0].Reason != harp.LostTooLong {
					t.Fatalf("it is %s (%s), its attempts are %+v", s.State, s.Reason, s.Attempts)
				}
				time.Sleep(time.Hour)
				expectNothing(t, asked)
				asked = ends(t, sys, a, i, m, asked)
				time.Sleep(time.Minute)
				m = expectAttempt(t, asked, 2)
				m.sendFrame(t, wire.TypeEnd, true, wire.End{Value: []byte{7}})
				m.expectAck(t)
				if s := i.status(t); s.State != harp.StateSucceeded {
					t.Errorf("it is %s (%s)", s.State, s.Reason)
				}
			})
		})
	}
}

// What was given up beside its agent, and is not held any more, does not hold up the next attempt, though
// nobody ever heard that it had started.
func TestWhatWasGivenUpIsNotHeldAnyMore(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, sys *system) {
		retry := harp.Retry(harp.RetryPolicy{On: []harp.State{harp.StateLost}, Attempts: 2})
		i := interrupt(t, sys, gotCall, false, append(slices.Clone(unlimited), retry)...)
		a, asked := i.again(t, sys, "j", wire.HeldEnded)
		alive(a)
		<-asked
		time.Sleep(24*time.Hour + 4*time.Minute)
		if s := i.status(t); s.State != harp.StateQueued || s.Attempts[0].Reason != harp.LostTooLong {
			t.Fatalf("it is %s (%s), its attempts are %+v", s.State, s.Reason, s.Attempts)
		}
		a.tr.Close(nil)
		synctest.Wait()
		a, asked = i.again(t, sys, "j", "")
		alive(a)
		time.Sleep(time.Minute)
		m := expectAttempt(t, asked, 2)
		m.sendFrame(t, wire.TypeEnd, true, wire.End{Value: []byte{7}})
		m.expectAck(t)
		if s := i.status(t); s.State != harp.StateSucceeded || s.Attempts[0].Reason != harp.LostJournalGone || !s.DuplicatePossible {
			t.Errorf("it is %s (%s), possibly twice: %v, its attempts are %+v", s.State, s.Reason, s.DuplicatePossible, s.Attempts)
		}
	})
}

// A session that ends gives an agent no more time than it had, and takes none: the time between sessions does
// not count.
func TestALimitGoesOnInTheNextSession(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, sys *system) {
		a, _, i, _ := sys.started(t, harp.MaxExecTime(time.Hour), harp.SilenceTimeout(harp.NoLimit))
		for range 5 {
			time.Sleep(4 * time.Hour)
			a.tr.Close(nil)
			time.Sleep(2 * time.Hour)
			var asked <-chan agentExchange
			a, asked = i.again(t, sys, "j", wire.HeldAlive)
			alive(a)
			<-asked
		}
		time.Sleep(5*time.Hour - time.Minute)
		if s := i.status(t); s.State != harp.StateRunning {
			t.Fatalf("after 25 h of sessions it is %s (%s)", s.State, s.Reason)
		}
		time.Sleep(4 * time.Minute)
		if s := i.status(t); s.State != harp.StateLost || s.Reason != harp.LostTooLong {
			t.Errorf("it is %s (%s)", s.State, s.Reason)
		}
	})
}

// An agent that has the end of a job and does not send it is not waited for for ever.
func TestAnEndThatIsHeldIsOwed(t *testing.T) {
	for _, state := range []string{wire.HeldEnded, wire.HeldGone, wire.HeldStopping} {
		inVirtualTime(t, func(t *testing.T, sys *system) {
			i := interrupt(t, sys, saidStart, false, unlimited...)
			a, asked := i.again(t, sys, "j", state)
			alive(a)
			<-asked
			time.Sleep(24*time.Hour - time.Minute)
			if s := i.status(t); s.State.Ended() {
				t.Errorf("%s: within the time it is %s (%s)", state, s.State, s.Reason)
			}
			time.Sleep(4 * time.Minute)
			if s := i.status(t); s.State != harp.StateLost || s.Reason != harp.LostTooLong {
				t.Errorf("%s: it is %s (%s)", state, s.State, s.Reason)
			}
		})
	}
}

// Nothing is given up because the dispatcher had no space for what came.
func TestAnEndThatWaitsForSpaceIsNotOverdue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := memory.NewDisk()
		sys := newSystem(t, embedded, memory.OpenDisk(disk, nil), dispatcher.Config{LostAfter: time.Hour})
		a, _, i, m := sys.started(t, harp.MaxExecTime(time.Hour))
		b := interrupted{job: must[*harp.Job](t)(sys.caller.Host("web01").Call(t.Context(), "work", nil, harp.MaxExecTime(time.Hour)))}
		time.Sleep(time.Minute)
		disk.SetSpace(store.SpaceCritical)
		m.sendFrame(t, wire.TypeEnd, true, wire.End{Value: []byte{7}})
		time.Sleep(48 * time.Hour)
		if s := b.status(t); a.tr.Err() != nil || s.State != harp.StateSent {
			t.Errorf("the other is %s (%s), and the session ended with %v", s.State, s.Reason, a.tr.Err())
		}
		disk.SetSpace(store.SpacePlenty)
		m.expectAck(t)
		if s := i.status(t); s.State != harp.StateSucceeded {
			t.Errorf("it is %s (%s)", s.State, s.Reason)
		}
	})
}

// What an operator gives up beside its agent has given its slot back, and what its agent says then is kept as late.
func TestForceLostBesideItsAgent(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, sys *system) {
		a, asked, i, m := sys.started(t)
		waits := sys.behind(t)
		if err := waits.job.ForceLost(t.Context(), "it never ends"); !errors.Is(err, harp.ErrConflict) {
			t.Errorf("one that waits is given up: %v", err)
		}
		synctest.Wait()
		if err := i.job.ForceLost(t.Context(), "it never ends"); err != nil {
			t.Error(err)
		}
		if s := i.status(t); s.State != harp.StateLost || s.Reason != harp.LostForced || harp.RanOf(s.Err) != harp.MayHaveRun {
			t.Errorf("it is %s (%s)", s.State, s.Reason)
		}
		next := expectAttempt(t, asked, 1)
		if err := waits.job.ForceLost(t.Context(), "nor does this"); err != nil { // it was sent, and not answered
			t.Error(err)
		}
		for _, m := range []agentExchange{m, next} {
			m.sendFrame(t, wire.TypeEnd, true, wire.End{Value: []byte{7}})
			m.expectAck(t)
		}
		for _, i := range []interrupted{i, waits} {
			if s := i.status(t); s.State != harp.StateLost || s.Late == nil || s.Late.State != harp.StateSucceeded {
				t.Errorf("late it is %s, %+v", s.State, s.Late)
			}
		}
		if a.tr.Err() != nil {
			t.Errorf("the session ended: %v", a.tr.Err())
		}
	})
}

// A job that was given up as lost is not given up again: what its attempt, which its agent still has, owes then is
// nobody's, and it is not stopped for that.
func TestWhatWasGivenUpIsNotStopped(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, sys *system) {
		a, _, i, _ := sys.started(t, harp.MaxExecTime(time.Hour), harp.SilenceTimeout(harp.NoLimit))
		a.tr.Close(nil)
		synctest.Wait()
		if err := i.job.ForceLost(t.Context(), "its host is gone"); err != nil {
			t.Fatal(err)
		}
		a, asked := i.again(t, sys, "j", wire.HeldAlive)
		alive(a)
		m := <-asked
		m.sendFrame(t, wire.TypeStarted, false, wire.Started{Time: 1})
		told := make(chan transport.Type, 10)
		m.x.Listen(func(f transport.Frame, err error) {
			if err == nil {
				told <- f.Type
			}
		})
		time.Sleep(48 * time.Hour)
		close(told)
		for typ := range told {
			if typ == wire.TypeCancel {
				t.Error("it is cancelled")
			}
		}
	})
}
