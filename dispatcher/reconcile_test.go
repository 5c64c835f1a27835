package dispatcher_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/wire"
	"github.com/harpcaller/harp/store"
	"github.com/harpcaller/harp/transport"
)

// agentExchange is one exchange that a rawAgent was asked to begin.
type agentExchange struct {
	x      *transport.Exchange
	call   *wire.Call // or
	resume *wire.Resume
	over   chan struct{} // closed by the test when the exchange is
}

// exchanges answers each exchange by handing it to the test, which then speaks for
// the agent.
func (a *rawAgent) exchanges(t *testing.T) <-chan agentExchange {
	got := make(chan agentExchange, 16)
	a.serve(func(x *transport.Exchange, first transport.Frame) {
		m := agentExchange{x: x, over: make(chan struct{})}
		var err error
		switch first.Type {
		case wire.TypeCall:
			m.call = new(wire.Call)
			err = wire.Decode(first.Body, m.call)
		case wire.TypeResume:
			m.resume = new(wire.Resume)
			err = wire.Decode(first.Body, m.resume)
		}
		if err != nil {
			t.Error(err)
		}
		got <- m
		select {
		case <-m.over:
		case <-a.tr.Done():
		}
	})
	return got
}

func (m agentExchange) sendFrame(t *testing.T, typ transport.Type, end bool, message any) {
	t.Helper()
	if err := m.x.Send(typ, end, wire.Encode(message)); err != nil {
		t.Error(err)
	}
}

// expectAck waits until END is acknowledged, which ends the exchange.
func (m agentExchange) expectAck(t *testing.T) {
	t.Helper()
	for {
		f, err := m.x.Receive(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var ack wire.Ack
		if f.Type == wire.TypeAck && wire.Decode(f.Body, &ack) == nil && ack.End {
			close(m.over)
			return
		}
	}
}

// How far the first session of a reconciliation test gets.
const (
	gotCall    = iota // the agent has heard the call and says nothing
	saidStart         // it says that the procedure has begun
	saidRecord        // and a record
)

// interrupted is a job whose agent's session ended on the way.
type interrupted struct {
	job    *harp.Job
	cancel bool // and it was asked to stop meanwhile
}

// interrupt submits a job to a raw agent, which says what it says, and ends the
// session.
func interrupt(t *testing.T, sys *system, far int, cancel bool, opts ...harp.Option) interrupted {
	t.Helper()
	first := must[*rawAgent](t)(sys.newRawAgent(t.Context(), "first"))
	asked := first.exchanges(t)
	synctest.Wait()
	job := must[*harp.Job](t)(sys.caller.Host("web01").Call(t.Context(), "work", nil, opts...))
	m := <-asked
	if far >= saidStart {
		m.sendFrame(t, wire.TypeAccepted, false, wire.Accepted{Started: &wire.Started{Time: 1}})
	}
	if far >= saidRecord {
		m.sendFrame(t, wire.TypeRecords, false, wire.Records{Records: []wire.Record{{Time: 1, Value: []byte{0}}}})
	}
	synctest.Wait()
	first.tr.Close(nil)
	synctest.Wait()
	if cancel {
		must[bool](t)(job.Cancel(t.Context()))
	}
	return interrupted{job, cancel}
}

// again connects the agent again, holding one attempt of the job.
func (i interrupted) again(t *testing.T, sys *system, journal, state string) (*rawAgent, <-chan agentExchange) {
	t.Helper()
	var held []wire.HeldAttempt
	if state != "" {
		held = append(held, wire.HeldAttempt{Job: i.job.ID(), Attempt: 1, State: state, Fence: 1})
	}
	a := must[*rawAgent](t)(sys.greetRaw(t.Context(), wire.Hello{Version: wire.Version, Instance: "second", Journal: journal}, held...))
	asked := a.exchanges(t)
	synctest.Wait()
	return a, asked
}

func (i interrupted) status(t *testing.T) harp.JobStatus {
	t.Helper()
	synctest.Wait()
	return must[harp.JobStatus](t)(i.job.Status(t.Context()))
}

// TestReconciliation goes through the rows of the reconciliation table for a job
// whose session ended on the way.
func TestReconciliation(t *testing.T) {
	for _, row := range []struct {
		name    string
		far     int
		cancel  bool
		journal string
		holds   string
		state   harp.State
		reason  string
		call    int64 // attempt that is sent; 0: none
		resume  bool
	}{
		{"absent, nothing was heard of it", gotCall, false, "j", "", harp.StateSent, "", 1, false},
		{"withdrawn", gotCall, false, "j", wire.HeldWithdrawn, harp.StateSent, "", 1, false},
		{"absent, a cancel requested", gotCall, true, "j", "", harp.StateCancelled, "", 0, false},
		{"absent, though it had started", saidStart, false, "j", "", harp.StateLost, harp.LostJournalGone, 0, false},
		{"absent, though a record of it was seen", saidRecord, false, "j", "", harp.StateLost, harp.LostJournalGone, 0, false},
		{"alive", saidStart, false, "j", wire.HeldAlive, harp.StateRunning, "", 0, true},
		{"alive, its start was not heard", gotCall, false, "j", wire.HeldAlive, harp.StateRunning, "", 0, true},
		{"alive, a cancel requested", saidStart, true, "j", wire.HeldAlive, harp.StateCancelling, "cancel", 0, true},
		{"process gone", saidStart, false, "j", wire.HeldGone, harp.StateRunning, "", 0, true},
		{"ended", saidStart, false, "j", wire.HeldEnded, harp.StateRunning, "", 0, true},
		{"journal gone", saidStart, false, "new", "", harp.StateLost, harp.LostJournalGone, 0, false},
		{"journal gone, nothing was heard of it", gotCall, false, "new", "", harp.StateLost, harp.LostJournalGone, 0, false},
		{"journal gone, and it runs", saidStart, false, "new", wire.HeldAlive, harp.StateRunning, "", 0, true},
		{"journal gone, and it has ended", saidStart, false, "new", wire.HeldEnded, harp.StateRunning, "", 0, true},
		{"journal gone, and it says that it withdrew it", gotCall, false, "new", wire.HeldWithdrawn, harp.StateLost, harp.LostJournalGone, 0, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, sys *system) {
				i := interrupt(t, sys, row.far, row.cancel)
				a, asked := i.again(t, sys, row.journal, row.holds)
				if s := i.status(t); s.State != row.state || s.Reason != row.reason {
					t.Errorf("it is %s (%s), want %s (%s)", s.State, s.Reason, row.state, row.reason)
				}
				expectAsked(t, asked, row.call, row.resume, row.cancel)
				if row.resume && len(a.forgot) != 0 {
					t.Errorf("it was told to forget %v", a.forgot)
				}
			})
		})
	}
}

// TestARenamedAgentKeepsWhatItHolds: what an agent holds of a job of the host that it was is not forgotten under another name, as long as
// the job has not ended. When it has its old name again it tells that, and nothing is started a second time.
func TestARenamedAgentKeepsWhatItHolds(t *testing.T) {
	for _, state := range []string{wire.HeldAlive, wire.HeldEnded, wire.HeldGone} {
		t.Run(state, func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, sys *system) {
				i := interrupt(t, sys, gotCall, false) // it begins, and that is not heard
				held := wire.HeldAttempt{Job: i.job.ID(), Attempt: 1, State: state, Fence: 1}
				hello := wire.Hello{Version: wire.Version, Instance: "second", Journal: "j"}
				renamed := must[*rawAgent](t)(sys.greetAs(t.Context(), "web02", hello, wire.Held{Attempts: []wire.HeldAttempt{held}}))
				synctest.Wait()
				kept := state
				if len(renamed.forgot) > 0 {
					t.Errorf("it is told to forget %v", renamed.forgot)
					kept = ""
				}
				renamed.tr.Close(nil)
				_, asked := i.again(t, sys, "j", kept)
				expectAsked(t, asked, 0, true, false)
			})
		})
	}
}

// TestWhatARenamedAgentForgetsIsTold: what it holds of a job that was given up as lost is told by nobody any more, and the feed names it.
func TestWhatARenamedAgentForgetsIsTold(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, sys *system) {
		i := interrupt(t, sys, saidStart, false)
		if err := i.job.ForceLost(t.Context(), "its host has another name"); err != nil {
			t.Fatal(err)
		}
		held := wire.HeldAttempt{Job: i.job.ID(), Attempt: 1, State: wire.HeldEnded, Fence: 1}
		hello := wire.Hello{Version: wire.Version, Instance: "second", Journal: "j"}
		renamed := must[*rawAgent](t)(sys.greetAs(t.Context(), "web02", hello, wire.Held{Attempts: []wire.HeldAttempt{held}}))
		synctest.Wait()
		told := harp.EventFilter{After: harp.EventsFromStart, Types: []string{string(harp.EventHostForgot)}}
		page := must[harp.EventPage](t)(sys.caller.EventsPage(t.Context(), told, false))
		if len(page.Events) != 1 || page.Events[0].Job != i.job.ID() || page.Events[0].Host != "web02" || len(renamed.forgot) != 1 {
			t.Errorf("it is told to forget %v, and the feed says %+v", renamed.forgot, page.Events)
		}
	})
}

// A journal that does not have what is known to have started is not the one that it was,
// whatever it calls itself: that of a clone, or of a machine that was set back. Nothing is
// proven by what else it does not have, and none of that is started a second time: also
// where only a part of it could be stored, and the next session finds the rest.
func TestAJournalThatLacksAStartProvesNothing(t *testing.T) {
	for _, scarce := range []bool{false, true} {
		troubled := &troubledStore{kind: store.Lose}
		wrap := func(st store.Store) store.Store { troubled.Store = st; return troubled }
		onStore(t, wrap, func(t *testing.T, sys *system) {
			first := must[*rawAgent](t)(sys.newRawAgent(t.Context(), "first"))
			asked := first.exchanges(t)
			synctest.Wait()
			host := sys.caller.Host("web01")
			begun := interrupted{job: must[*harp.Job](t)(host.Call(t.Context(), "work", nil))}
			m := <-asked
			m.sendFrame(t, wire.TypeAccepted, false, wire.Accepted{Started: &wire.Started{Time: 1}})
			sent := interrupted{job: must[*harp.Job](t)(host.Call(t.Context(), "work", nil))}
			<-asked // it begins, and that is not heard
			synctest.Wait()
			first.tr.Close(nil)
			synctest.Wait()
			troubled.apply = func(ctx context.Context, st store.Store, ts []store.Transition) (out []store.Change, err error) {
				for _, one := range ts {
					if scarce && one.ID == sent.job.ID() {
						out = append(out, store.Change{Err: harp.ErrNoSpace})
						continue
					}
					did, err := st.Apply(ctx, one)
					if err != nil {
						return nil, err
					}
					out = append(out, did...)
				}
				return out, nil
			}
			hello := wire.Hello{Version: wire.Version, Instance: "second", Journal: "j"}
			second, err := sys.greetRaw(t.Context(), hello)
			if scarce {
				if err == nil {
					t.Fatal("the session begins, of which not all could be stored")
				}
				second = must[*rawAgent](t)(sys.greetRaw(t.Context(), hello))
			} else if err != nil {
				t.Fatal(err)
			}
			expectNothing(t, second.exchanges(t))
			for _, i := range []interrupted{begun, sent} {
				if s := i.status(t); s.State != harp.StateLost || s.Reason != harp.LostJournalGone || s.Started != harp.MayHaveRun {
					t.Errorf("it is %s (%s), started %s", s.State, s.Reason, s.Started)
				}
			}
		})
	}
}

// expectAsked checks what the agent is asked for in its second session.
func expectAsked(t *testing.T, asked <-chan agentExchange, call int64, resume, cancel bool) {
	t.Helper()
	select {
	case m := <-asked:
		switch {
		case m.call != nil && m.call.Attempt != call:
			t.Errorf("attempt %d is sent", m.call.Attempt)
		case m.resume != nil && !resume:
			t.Errorf("it is asked to resume %+v", m.resume)
		case m.resume != nil && (m.resume.Cancel != nil) != cancel:
			t.Errorf("resume says cancel %v, want %v", m.resume.Cancel, cancel)
		}
	default:
		if call != 0 || resume {
			t.Error("it is asked for nothing")
		}
	}
}

// What ran on while nobody heard it is taken up where its records ended.
func TestAnAttemptGoesOnInTheNextSession(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, sys *system) {
		i := interrupt(t, sys, saidRecord, false)
		_, asked := i.again(t, sys, "j", wire.HeldAlive)
		m := <-asked
		if m.resume == nil || m.resume.From != 1 {
			t.Fatalf("it is asked %+v", m)
		}
		m.sendFrame(t, wire.TypeRecords, false, wire.Records{First: 1, Records: []wire.Record{{Time: 2, Value: []byte{1}}, {Time: 3, Value: []byte{2}}}})
		m.sendFrame(t, wire.TypeEnd, true, wire.End{Value: []byte{3}, Records: 3, RanFor: 5})
		m.expectAck(t)
		if v := must[int](t)(harp.Get[int](t.Context(), i.job)); v != 3 {
			t.Errorf("the value is %d", v)
		}
		n := 0
		for r, err := range harp.Decode[int](i.job.Stream(t.Context(), harp.Since(0))) {
			if err != nil || r != n {
				t.Errorf("record %d is %d, %v", n, r, err)
			}
			n++
		}
		if n != 3 {
			t.Errorf("%d records", n)
		}
	})
}

// A value for which its host had no room is gone, and that is said.
func TestAValueThatWasDroppedIsSaidToBe(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, sys *system) {
		i := interrupt(t, sys, saidStart, false)
		_, asked := i.again(t, sys, "j", wire.HeldEnded)
		m := <-asked
		m.sendFrame(t, wire.TypeEnd, true, wire.End{Dropped: true})
		m.expectAck(t)
		_, err := i.job.Get(t.Context())
		if s := i.status(t); s.State != harp.StateSucceeded || s.Reason != harp.ReasonValueDropped {
			t.Errorf("it is %s (%s)", s.State, s.Reason)
		}
		if !errors.Is(err, harp.ErrNoSpace) || harp.RanOf(err) != harp.DidRun {
			t.Errorf("its value is %v, ran %s", err, harp.RanOf(err))
		}
	})
}

// An attempt whose process is gone is lost, after its records were fetched.
func TestAnAttemptWhoseProcessIsGoneIsLostWithItsRecords(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, sys *system) {
		i := interrupt(t, sys, saidStart, false)
		_, asked := i.again(t, sys, "j", wire.HeldGone)
		m := <-asked
		m.sendFrame(t, wire.TypeRecords, false, wire.Records{Records: []wire.Record{{Time: 2, Value: []byte{1}}}})
		m.sendFrame(t, wire.TypeEnd, true, wire.End{Gone: true, Records: 1})
		m.expectAck(t)
		_, err := i.job.Get(t.Context())
		s := i.status(t)
		if !errors.Is(err, harp.ErrLost) || s.Reason != harp.LostAgentRestarted || s.Records != 1 {
			t.Errorf("it is %s (%s) with %d records: %v", s.State, s.Reason, s.Records, err)
		}
	})
}

// A host that stays away makes its jobs unknown after three heartbeats, and lost
// after LostAfter; what it says afterwards is kept beside.
func TestASilentHostsJobIsUnknownThenLostThenLate(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, sys *system) {
		i := interrupt(t, sys, saidStart, false)
		time.Sleep(30*time.Second - time.Millisecond)
		if s := i.status(t); s.State != harp.StateRunning {
			t.Errorf("before three heartbeats it is %s", s.State)
		}
		time.Sleep(2 * time.Millisecond)
		if s := i.status(t); s.State != harp.StateUnknown || s.UnknownOf != harp.StateRunning {
			t.Errorf("after three heartbeats it is %s of %s", s.State, s.UnknownOf)
		}
		time.Sleep(24 * time.Hour)
		if s := i.status(t); s.State != harp.StateLost || s.Reason != harp.LostTooLong {
			t.Errorf("after LostAfter it is %s (%s)", s.State, s.Reason)
		}
		_, asked := i.again(t, sys, "j", wire.HeldEnded)
		m := <-asked
		m.sendFrame(t, wire.TypeEnd, true, wire.End{Value: []byte{7}})
		m.expectAck(t)
		s := i.status(t)
		if s.State != harp.StateLost || s.Late == nil || s.Late.State != harp.StateSucceeded {
			t.Errorf("it is %s, late %+v", s.State, s.Late)
		}
	})
}

// A host that was heard meanwhile may be silent as long again: what it holds of an attempt may be on its way.
func TestAHostThatIsHeardMeanwhileMayBeSilentAsLongAgain(t *testing.T) {
	for name, state := range map[string]string{"ended": wire.HeldEnded, "gone": wire.HeldGone} {
		t.Run(name, func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, sys *system) {
				i := interrupt(t, sys, saidStart, false)
				time.Sleep(23*time.Hour + 50*time.Minute)
				second, asked := i.again(t, sys, "j", state)
				if m := <-asked; m.resume == nil {
					t.Errorf("it is asked %+v", m)
				}
				second.tr.Close(nil) // before it has said how it ended
				time.Sleep(20 * time.Minute)
				if s := i.status(t); s.State != harp.StateUnknown {
					t.Errorf("20 minutes after it was heard it is %s (%s)", s.State, s.Reason)
				}
				time.Sleep(23*time.Hour + 35*time.Minute)
				if s := i.status(t); s.State != harp.StateUnknown {
					t.Errorf("before LostAfter is over it is %s (%s)", s.State, s.Reason)
				}
				time.Sleep(10 * time.Minute)
				if s := i.status(t); s.State != harp.StateLost || s.Reason != harp.LostTooLong {
					t.Errorf("then it is %s (%s)", s.State, s.Reason)
				}
			})
		})
	}
}

// An operator may give up what is unknown, by whose word it is known.
func TestForceLost(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, sys *system) {
		i := interrupt(t, sys, saidStart, false)
		time.Sleep(31 * time.Second)
		for range 2 { // asked again it agrees
			if err := i.job.ForceLost(t.Context(), "the machine burned"); err != nil {
				t.Error(err)
			}
		}
		if s := i.status(t); s.State != harp.StateLost || s.Reason != harp.LostForced || harp.RanOf(s.Err) != harp.MayHaveRun {
			t.Errorf("it is %s (%s): %v", s.State, s.Reason, s.Err)
		}
		page := must[harp.EventPage](t)(sys.caller.EventsPage(t.Context(), harp.EventFilter{After: harp.EventsFromStart, Types: []string{string(harp.EventJobLost)}}, false))
		if len(page.Events) != 1 || page.Events[0].By == (harp.Principal{}) {
			t.Errorf("the feed does not tell by whom: %+v", page.Events)
		}
	})
}

// A cancel of a job whose host is away is the first thing that its agent hears.
func TestACancelWhileTheHostIsUnknownIsHeardFirst(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, sys *system) {
		i := interrupt(t, sys, saidStart, false)
		time.Sleep(31 * time.Second)
		must[bool](t)(i.job.Cancel(t.Context()))
		if s := i.status(t); s.State != harp.StateUnknown || s.CancelRequested == nil {
			t.Errorf("it is %s, cancel %+v", s.State, s.CancelRequested)
		}
		_, asked := i.again(t, sys, "j", wire.HeldAlive)
		m := <-asked
		if m.resume == nil || m.resume.Cancel == nil || m.resume.Cancel.By.Name == "" && m.resume.Cancel.By.Kind == "" {
			t.Fatalf("it is asked %+v", m.resume)
		}
		m.sendFrame(t, wire.TypeEnd, true, wire.End{Stopped: &wire.Stopping{Cause: wire.CauseCancel}})
		m.expectAck(t)
		if s := i.status(t); s.State != harp.StateCancelled || s.Started != harp.DidRun {
			t.Errorf("it is %s, started %s", s.State, s.Started)
		}
	})
}

// A lost attempt that is found alive is ended before another one is made.
func TestARetryWaitsForTheLostAttemptThatLives(t *testing.T) {
	for _, own := range []bool{false, true} {
		inVirtualTime(t, func(t *testing.T, sys *system) {
			i := interrupt(t, sys, saidStart, false, harp.Retry(harp.RetryPolicy{On: []harp.State{harp.StateLost}}), harp.OfflineWait(harp.NoLimit))
			time.Sleep(25 * time.Hour)
			if s := i.status(t); s.State != harp.StateQueued || len(s.Attempts) != 1 || s.Attempts[0].Outcome != string(harp.StateLost) {
				t.Fatalf("it is %s (%s), %+v", s.State, s.Reason, s.Attempts)
			}
			_, asked := i.again(t, sys, "j", wire.HeldAlive)
			m := <-asked
			if m.resume == nil || m.resume.Cancel == nil {
				t.Fatalf("it is asked %+v", m)
			}
			select {
			case again := <-asked:
				t.Fatalf("the next attempt is sent: %+v", again.call)
			default:
			}
			end := wire.End{Stopped: &wire.Stopping{Cause: wire.CauseCancel}}
			if own {
				end = wire.End{Value: []byte{5}}
			}
			m.sendFrame(t, wire.TypeEnd, true, end)
			m.expectAck(t)
			if own {
				if v := must[int](t)(harp.Get[int](t.Context(), i.job)); v != 5 {
					t.Errorf("the value is %d", v)
				}
				return
			}
			if m := <-asked; m.call == nil || m.call.Attempt != 2 {
				t.Errorf("then it is asked %+v", m)
			}
		})
	}
}

// What the agent holds and nobody knows, or knows as ended, it is told to forget.
func TestWhatNobodyAsksForIsForgotten(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, sys *system) {
		i := interrupt(t, sys, saidStart, false)
		_, asked := i.again(t, sys, "j", wire.HeldEnded)
		m := <-asked
		m.sendFrame(t, wire.TypeEnd, true, wire.End{})
		m.expectAck(t)
		stranger := harp.NewID()
		a := must[*rawAgent](t)(sys.greetRaw(t.Context(), wire.Hello{Version: wire.Version, Instance: "second", Journal: "j"},
			wire.HeldAttempt{Job: i.job.ID(), Attempt: 1, State: wire.HeldEnded}, wire.HeldAttempt{Job: stranger, Attempt: 1, State: wire.HeldAlive}))
		if len(a.forgot) != 2 {
			t.Errorf("it forgets %+v", a.forgot)
		}
	})
}

// TestAnAgentTellsOfItsOwnHostOnly checks that the late outcome of a lost job is nobody's to
// tell but its own host's.
func TestAnAgentTellsOfItsOwnHostOnly(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, sys *system) {
		i := interrupt(t, sys, saidStart, false)
		time.Sleep(25 * time.Hour) // it is lost
		hello := wire.Hello{Version: wire.Version, Instance: "other", Journal: "other"}
		other := must[*rawAgent](t)(sys.greetAs(t.Context(), "web02", hello, wire.Held{Attempts: []wire.HeldAttempt{{Job: i.job.ID(), Attempt: 1, State: wire.HeldEnded, Fence: 1}}}))
		asked := other.exchanges(t)
		synctest.Wait()
		expectAsked(t, asked, 0, false, false)
		if len(other.forgot) != 1 {
			t.Errorf("it forgets %+v", other.forgot)
		}
		_, asked = i.again(t, sys, "j", wire.HeldEnded)
		(<-asked).sendFrame(t, wire.TypeEnd, true, wire.End{Value: []byte{3}})
		if s := i.status(t); s.Late == nil || s.Late.State != harp.StateSucceeded {
			t.Errorf("what its own host tells late is %+v", s.Late)
		}
	})
}
