package dispatcher_test

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/failures"
	"github.com/harpcaller/harp/internal/wire"
	"github.com/harpcaller/harp/store"
	"github.com/harpcaller/harp/transport"
)

// rawAgent speaks the agents' side of the protocol frame by frame.
type rawAgent struct {
	tr      *transport.Session
	control *transport.Exchange
	welcome wire.Welcome
	forgot  []wire.HeldAttempt // what it was told to forget in its greeting
	serving chan struct{}      // closed when handle is there
	handle  func(x *transport.Exchange, first transport.Frame)
}

// converse makes an agent of its side of a connection. It has said nothing yet.
func converse(t testing.TB, conn *transport.Conn, b *transport.Budget) *rawAgent {
	t.Helper()
	a := &rawAgent{tr: must[*transport.Session](t)(conn.Acceptor(t.Context(), transport.Options{MaxFrame: wire.MaxBody, Budget: b})), serving: make(chan struct{})}
	a.control = a.tr.Control()
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = a.tr.Serve(a.answer) // it ends with the test
	}()
	t.Cleanup(func() { a.tr.Close(nil); <-done })
	return a
}

// answer answers an exchange, once the agent is to.
func (a *rawAgent) answer(x *transport.Exchange, first transport.Frame) {
	select {
	case <-a.serving:
		a.handle(x, first)
	case <-a.tr.Done():
	}
}

// serve lets the agent answer its exchanges.
func (a *rawAgent) serve(handle func(x *transport.Exchange, first transport.Frame)) {
	a.handle = handle
	close(a.serving)
}

// unwelcomeError is what a rawAgent gets that is not let in.
type unwelcomeError struct{ harp.Failure }

func (e unwelcomeError) Error() string { return e.Message }

// newRawAgent connects the agent of web01, which offers one procedure and is ready for calls.
func (s *system) newRawAgent(ctx context.Context, instance string) (*rawAgent, error) {
	return s.greetRaw(ctx, wire.Hello{Version: wire.Version, Instance: instance, Journal: "j"})
}

// greetRaw is newRawAgent with what the agent says first and what it holds.
func (s *system) greetRaw(ctx context.Context, hello wire.Hello, held ...wire.HeldAttempt) (*rawAgent, error) {
	return s.greetAs(ctx, "web01", hello, wire.Held{Attempts: held})
}

// greetAs is greetRaw of another host's agent, with all that it says of its journal.
func (s *system) greetAs(ctx context.Context, host string, hello wire.Hello, held wire.Held) (*rawAgent, error) {
	addr, tc, dial := s.net.dial("dispatcher", host, transport.RoleAgent)
	return s.greetOn(ctx, must[net.Conn](s.t)(dial(ctx, addr)), tc, hello, held)
}

// greetOn is greetAs on a connection.
func (s *system) greetOn(ctx context.Context, nc net.Conn, tc *tls.Config, hello wire.Hello, held wire.Held) (*rawAgent, error) {
	conn := must[*transport.Conn](s.t)(transport.Client(ctx, nc, tc, transport.ProtocolAgent, transport.RoleDispatcher))
	a := converse(s.t, conn, s.agents)
	// If it is answered, and the session over, before Send returns, that fails.
	_ = a.control.Send(wire.TypeHello, false, wire.Encode(hello))
	f, err := a.control.Receive(ctx)
	if err != nil {
		return nil, err
	}
	if f.Type == wire.TypeUnwelcome {
		var m wire.Unwelcome
		var no unwelcomeError
		err := wire.Decode(f.Body, &m)
		no.Failure = harp.FailureOf(m.Failure)
		return nil, errors.Join(err, no)
	}
	a.sendFrame(s.t, wire.TypeFacts, wire.Facts{})
	a.sendFrame(s.t, wire.TypeProcedures, wire.Procedures{Procedures: []harp.ProcedureDoc{{Name: "work"}}, Last: true})
	held.Last = false
	for all := held.Attempts; !held.Last; {
		n := min(len(all), 256)
		held.Attempts, all = all[:n], all[n:]
		held.Last = len(all) == 0
		a.sendFrame(s.t, wire.TypeHeld, held)
	}
	for last := false; !last; {
		forget, err := a.control.Receive(ctx)
		if err != nil {
			return nil, err
		}
		var m wire.Forget
		if err := wire.Decode(forget.Body, &m); err != nil {
			return nil, err
		}
		a.forgot, last = append(a.forgot, m.Attempts...), m.Last
	}
	a.sendFrame(s.t, wire.TypeReady, wire.Ready{})
	return a, wire.Decode(f.Body, &a.welcome)
}

func (a *rawAgent) sendFrame(t testing.TB, typ transport.Type, message any) {
	if err := a.control.Send(typ, false, wire.Encode(message)); err != nil {
		t.Error(err)
	}
}

// answerProbes answers whenever the dispatcher asks whether the agent is there.
func (a *rawAgent) answerProbes() {
	for {
		if _, err := a.control.Receive(context.Background()); err != nil {
			return
		}
		_ = a.control.Send(wire.TypeReady, false, wire.Encode(wire.Ready{})) // or Receive fails next
	}
}

// A cloned machine must not push the first one out; a restarted agent must not wait
// for its dead predecessor.
func TestASecondAgentWithTheNameOfALiveOneIsRefused(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, sys *system) {
		first := must[*rawAgent](t)(sys.newRawAgent(t.Context(), "first"))
		go first.answerProbes()
		_, err := sys.newRawAgent(t.Context(), "clone")
		var no unwelcomeError
		if !errors.As(err, &no) || !errors.Is(no.Err(), harp.ErrDuplicateHost) {
			t.Errorf("the clone is answered %v", err)
		}
		if first.tr.Err() != nil {
			t.Errorf("the first one's session ended: %v", first.tr.Err())
		}
		page := must[harp.EventPage](t)(sys.caller.EventsPage(t.Context(), harp.EventFilter{After: harp.EventsFromStart, Types: []string{string(harp.EventHostDuplicate)}}, false))
		if len(page.Events) != 1 || page.Events[0].Host != "web01" || page.Events[0].Reason == "" {
			t.Errorf("the feed tells of the clone %+v", page.Events)
		}

		// The same process may come back at any time.
		again := must[*rawAgent](t)(sys.newRawAgent(t.Context(), "first"))
		<-first.tr.Done()
		if again.welcome.Epoch <= first.welcome.Epoch {
			t.Errorf("epochs are %d and %d", first.welcome.Epoch, again.welcome.Epoch)
		}

		// This one answers nothing: after three seconds it is taken for dead.
		begun := time.Now()
		must[*rawAgent](t)(sys.newRawAgent(t.Context(), "restarted"))
		if waited := time.Since(begun); waited != 3*time.Second {
			t.Errorf("it waited %v", waited)
		}
		<-again.tr.Done()
	})
}

// TestACloneIsToldOnceAMinute: however often it tries again.
func TestACloneIsToldOnceAMinute(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, sys *system) {
		first := must[*rawAgent](t)(sys.newRawAgent(t.Context(), "first"))
		alive(first)
		go first.answerProbes()
		const minutes, times = 3, 12
		for range minutes * times {
			if _, err := sys.newRawAgent(t.Context(), "clone"); err == nil {
				t.Fatal("it is welcome")
			}
			time.Sleep(time.Minute / times)
		}
		page := must[harp.EventPage](t)(sys.caller.EventsPage(t.Context(), harp.EventFilter{After: harp.EventsFromStart, Types: []string{string(harp.EventHostDuplicate)}}, false))
		if len(page.Events) != minutes {
			t.Errorf("the feed tells of it %d times", len(page.Events))
		}
	})
}

// An agent is not taken for dead, and its name given to another one, because the
// dispatcher waits for its disk and looks at the agent's answer only then.
func TestACloneIsRefusedWhileTheDiskStandsStill(t *testing.T) {
	slow := new(scarceStore)
	wrap := func(st store.Store) store.Store { slow.Store = st; return slow }
	onStore(t, wrap, func(t *testing.T, sys *system) {
		first := must[*rawAgent](t)(sys.newRawAgent(t.Context(), "first"))
		synctest.Wait()
		slow.claimed = func(jobs []*store.Job, err error) ([]*store.Job, error) {
			time.Sleep(10 * time.Second)
			return jobs, err
		}
		first.sendFrame(t, wire.TypeReady, wire.Ready{})
		synctest.Wait()
		go func() {
			if _, err := first.control.Receive(context.Background()); err == nil {
				time.Sleep(time.Millisecond) // on the way
				first.sendFrame(t, wire.TypeReady, wire.Ready{})
			}
		}()
		_, err := sys.newRawAgent(t.Context(), "clone")
		var no unwelcomeError
		if !errors.As(err, &no) || !errors.Is(no.Err(), harp.ErrDuplicateHost) {
			t.Errorf("the clone is answered %v", err)
		}
		if first.tr.Err() != nil {
			t.Errorf("the first one's session ended: %v", first.tr.Err())
		}
	})
}

// An agent that takes no call now has not started it: the job waits again, visibly,
// and is sent again as the same attempt, after ever longer pauses.
func TestNotNowSendsAJobBackToItsQueue(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, sys *system) {
		agent := must[*rawAgent](t)(sys.newRawAgent(t.Context(), "i"))
		go agent.answerProbes()
		calls := make(chan time.Time, 10)
		agent.serve(func(x *transport.Exchange, first transport.Frame) {
			var c wire.Call
			if err := wire.Decode(first.Body, &c); err != nil || c.Attempt != 1 {
				t.Errorf("call is %+v, %v", c, err)
			}
			calls <- time.Now()
			if len(calls) < 4 {
				_ = x.Send(wire.TypeNotNow, true, wire.Encode(wire.NotNow{Reason: wire.NotNowBusy}))
				return
			}
			_ = x.Send(wire.TypeAccepted, false, wire.Encode(wire.Accepted{Started: &wire.Started{Time: 1}}))
			_ = x.Send(wire.TypeEnd, true, wire.Encode(wire.End{RanFor: int64(time.Second)}))
			_, _ = x.Receive(x.Context())
		})
		synctest.Wait()
		job := must[*harp.Job](t)(sys.caller.Host("web01").Call(t.Context(), "work", nil, harp.Queue(harp.Args{})))
		synctest.Wait()
		s := must[harp.JobStatus](t)(job.Status(t.Context()))
		if s.State != harp.StateQueued || s.Reason != harp.ReasonAgentBusy || s.Attempt != 1 {
			t.Errorf("it is %s (%s), attempt %d", s.State, s.Reason, s.Attempt)
		}
		if q := must[harp.QueueStatus](t)(sys.caller.Queues().Get(t.Context(), harp.Args{})); q.Running != 0 || q.Waiting != 1 {
			t.Errorf("the slot was not given back: %+v", q)
		}
		must[harp.Value](t)(job.Get(t.Context()))
		close(calls)
		last := time.Time{}
		want := time.Second
		for at := range calls {
			if pause := at.Sub(last); !last.IsZero() {
				if pause < want || pause > want+100*time.Millisecond {
					t.Errorf("tried again after %v, want %v", pause, want)
				}
				want *= 2
			}
			last = at
		}
	})
}

// An agent that refuses says why, and the caller learns it did not run.
func TestWhatTheAgentRefusesIsRejected(t *testing.T) {
	everyWiring(t, func(t *testing.T, sys *system) {
		agent := must[*rawAgent](t)(sys.newRawAgent(t.Context(), "i"))
		agent.serve(func(x *transport.Exchange, _ transport.Frame) {
			no := failures.New("rejected_denied", "not from you")
			_ = x.Send(wire.TypeRefused, true, wire.Encode(wire.Refused{Failure: no.Err()}))
		})
		sys.online.wait("web01")
		job := must[*harp.Job](t)(sys.caller.Host("web01").Call(t.Context(), "work", nil))
		_, err := job.Get(t.Context())
		if !errors.Is(err, harp.ErrRejected) || !errors.Is(err, harp.ErrDenied) || harp.RanOf(err) != harp.DidNotRun {
			t.Errorf("error is %v, ran %s", err, harp.RanOf(err))
		}
	})
}

// TestGreetingWithoutEnd checks that an agent which says page after page is not listened to for
// ever, before READY and after it.
func TestGreetingWithoutEnd(t *testing.T) {
	doc := harp.ProcedureDoc{Name: "work", Doc: strings.Repeat("x", 50_000)}
	procedures := wire.Procedures{Procedures: []harp.ProcedureDoc{doc}}
	var held wire.Held
	for range 500 {
		held.Attempts = append(held.Attempts, wire.HeldAttempt{Job: harp.NewID(), Attempt: 1, State: wire.HeldEnded})
	}
	for name, say := range map[string]func(a *rawAgent) error{
		"procedures": func(a *rawAgent) error { return a.control.Send(wire.TypeProcedures, false, wire.Encode(procedures)) },
		"none": func(a *rawAgent) error {
			return a.control.Send(wire.TypeProcedures, false, wire.Encode(wire.Procedures{}))
		},
		"held": func(a *rawAgent) error { return a.control.Send(wire.TypeHeld, false, wire.Encode(held)) },
	} {
		t.Run(name, func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, sys *system) {
				addr, tc, dial := sys.net.dial("dispatcher", "web01", transport.RoleAgent)
				nc := must[net.Conn](t)(dial(t.Context(), addr))
				conn := must[*transport.Conn](t)(transport.Client(t.Context(), nc, tc, transport.ProtocolAgent, transport.RoleDispatcher))
				a := converse(t, conn, nil)
				_ = a.control.Send(wire.TypeHello, false, wire.Encode(wire.Hello{Version: wire.Version, Instance: "i", Journal: "j"}))
				must[transport.Frame](t)(a.control.Receive(t.Context()))
				a.sendFrame(t, wire.TypeFacts, wire.Facts{})
				if name == "held" {
					a.sendFrame(t, wire.TypeProcedures, wire.Procedures{Last: true})
				}
				expectEnough(t, func() error { return say(a) })
			})
		})
	}
	t.Run("later", func(t *testing.T) {
		inVirtualTime(t, func(t *testing.T, sys *system) {
			a := must[*rawAgent](t)(sys.newRawAgent(t.Context(), "i"))
			for range 3 { // each is a list of its own
				for range 10 {
					a.sendFrame(t, wire.TypeProcedures, procedures)
				}
				a.sendFrame(t, wire.TypeProcedures, wire.Procedures{Last: true})
			}
			expectEnough(t, func() error { return a.control.Send(wire.TypeProcedures, false, wire.Encode(procedures)) })
		})
	})
}

// expectEnough says something until the session is ended for it.
func expectEnough(t *testing.T, say func() error) {
	t.Helper()
	for range 50_000 {
		if err := say(); err != nil {
			return
		}
		synctest.Wait()
	}
	t.Error("it is listened to without end")
}
