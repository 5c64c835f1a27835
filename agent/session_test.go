package agent_test

import (
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/agent"
	"github.com/harpcaller/harp/internal/wire"
	"github.com/harpcaller/harp/transport"
)

// TestSessionLost checks that a lost session does nothing to what runs: it is held,
// goes on, and is never started twice.
func TestSessionLost(t *testing.T) {
	everywhere(t, func(t *testing.T, p place) {
		a := newAgent(t, p)
		offerGreet(a)
		causes := offerHang(a)
		s, d, _ := connect(t, p, a)
		x := s.call("hang", nil).accepted()
		s.session.Close(nil)
		next := <-d.sessions
		if next.hello.Instance != s.hello.Instance || next.hello.Instance == "" {
			t.Errorf("instances %q and %q", s.hello.Instance, next.hello.Instance)
		}
		if next.hello.Journal != s.hello.Journal || next.hello.Journal == "" || next.taken != s.taken+1 {
			t.Errorf("journal %q with %d taken, then %q with %d", s.hello.Journal, s.taken, next.hello.Journal, next.taken)
		}
		if h := next.held; len(h) != 1 || h[0].Job != x.id || h[0].Attempt != 1 || h[0].State != wire.HeldAlive {
			t.Fatalf("held %+v", h)
		}
		value[greeting](t, next.call("greet", harp.Pos("Ada")).accepted().end())
		select {
		case cause := <-causes:
			t.Errorf("ended with its session: %v", cause)
		default:
		}
		again := next.resume(x.id, 0, func(m *wire.Resume) { m.Cancel = new(wire.Cancel) })
		if s := again.stopping(); s.Cause != wire.CauseCancel {
			t.Errorf("STOPPING %+v", s)
		}
		if end := again.end(); end.Stopped == nil {
			t.Errorf("END %+v", end)
		}
		if cause := <-causes; !errors.Is(cause, harp.ErrCancelled) {
			t.Errorf("cause %v", cause)
		}
	})
}

// TestHeldStopping checks that a function that outlives a cancel and its session is
// listed as stopping until it returns, and never started twice.
func TestHeldStopping(t *testing.T) {
	inMemory(t, func(t *testing.T, p place) {
		a := newAgent(t, p)
		release, runs := make(chan struct{}), 0
		offerStream(a, "deaf", func(_ context.Context, emit func(int) error) error {
			runs++
			err := emit(1)
			<-release
			if err := emit(2); !errors.Is(err, harp.ErrCancelled) {
				t.Errorf("emit while stopping: %v", err)
			}
			return err
		})
		s, d, _ := connect(t, p, a)
		x := s.call("deaf", nil).accepted()
		expect[wire.Records](x, wire.TypeRecords)
		x.cancel()
		x.stopping()
		s.session.Close(nil)
		s = <-d.sessions
		if len(s.held) != 1 || s.held[0].Job != x.id || s.held[0].Attempt != 1 || s.held[0].State != wire.HeldStopping {
			t.Fatalf("held %+v", s.held)
		}
		again := s.call("deaf", nil, func(_ *wire.Call, r *harp.Request) { r.ID = x.id })
		again.accepted()
		close(release)
		if end, records := again.ended(); value[int](t, end) != 0 || end.Stopped == nil || len(records) != 1 {
			t.Errorf("END %+v after %d records", end, len(records))
		}
		synctest.Wait() // ACK is heard
		s.session.Close(nil)
		if s = <-d.sessions; len(s.held) != 0 || runs != 1 {
			t.Errorf("held %+v after %d runs", s.held, runs)
		}
	})
}

// TestDuplicateCall checks that an attempt that is there already is not started
// again but reported by who asked last.
func TestDuplicateCall(t *testing.T) {
	everywhere(t, func(t *testing.T, p place) {
		a := newAgent(t, p)
		release, runs := make(chan struct{}), 0
		offerStream(a, "once", func(_ context.Context, emit func(int) error) error {
			runs++
			for i := range 3 {
				if err := emit(i); err != nil {
					return err
				}
			}
			<-release
			return nil
		})
		s, _, _ := connect(t, p, a)
		x := s.call("once", nil).accepted()
		for got := 0; got < 3; {
			got += len(expect[wire.Records](x, wire.TypeRecords).Records)
		}
		x.ack(1)
		again := s.call("once", nil, func(_ *wire.Call, r *harp.Request) { r.ID = x.id }).accepted()
		if _, err := x.x.Receive(context.Background()); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("the older exchange: %v", err)
		}
		first, got := int64(-1), 0
		for got < 2 {
			m := expect[wire.Records](again, wire.TypeRecords)
			if first < 0 {
				first = m.First
			}
			got += len(m.Records)
		}
		if first > 1 || first+int64(got) < 3 { // ACK and CALL are on different exchanges
			t.Errorf("%d records from %d", got, first)
		}
		close(release)
		for {
			f := again.receive()
			if f.Type == wire.TypeEnd {
				break
			}
		}
		again.ackEnd(wire.End{Records: 3})
		if other := s.call("once", nil, func(c *wire.Call, r *harp.Request) { r.ID, c.Attempt = x.id, 2 }); other != nil {
			other.accepted().ended()
		}
		if runs != 2 {
			t.Errorf("%d runs of two attempts", runs)
		}
	})
}

// TestResume checks that an exchange may be lost and another one asks for the rest.
func TestResume(t *testing.T) {
	inMemory(t, func(t *testing.T, p place) {
		a := newAgent(t, p)
		release := make(chan struct{})
		offerStream(a, "count", func(_ context.Context, emit func(int) error) error {
			for i := range 10 {
				if err := emit(i); err != nil {
					return err
				}
			}
			<-release
			return nil
		})
		s, _, _ := connect(t, p, a)
		x := s.call("count", nil).accepted()
		synctest.Wait()
		x.x.Release() // before END: the exchange is closed
		synctest.Wait()
		again := s.begin(wire.TypeResume, wire.Encode(wire.Resume{Job: x.id, Attempt: 1, From: 4, Window: wire.Window}))
		if m := expect[wire.Records](again, wire.TypeRecords); m.First != 4 || len(m.Records) != 6 {
			t.Errorf("%d records from %d", len(m.Records), m.First)
		}
		close(release)
		if end := again.end(); end.Records != 10 {
			t.Errorf("END %+v", end)
		}
		for name, m := range map[string]wire.Resume{
			"forgotten": {Job: x.id, Attempt: 1},
			"unknown":   {Job: harp.NewID(), Attempt: 1},
			"nonsense":  {Job: x.id, Attempt: 1, From: -5},
		} {
			if _, err := s.begin(wire.TypeResume, wire.Encode(m)).x.Receive(context.Background()); !errors.Is(err, io.ErrUnexpectedEOF) {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
}

// TestEndIsKept checks that END is told again until it is acknowledged.
func TestEndIsKept(t *testing.T) {
	inMemory(t, func(t *testing.T, p place) {
		a := newAgent(t, p)
		offerGreet(a)
		s, _, _ := connect(t, p, a)
		x := s.call("greet", harp.Pos("Ada")).accepted()
		expect[wire.End](x, wire.TypeEnd)
		x.x.Release()
		again := s.begin(wire.TypeResume, wire.Encode(wire.Resume{Job: x.id, Attempt: 1, Window: wire.Window}))
		value[greeting](t, again.end())
	})
}

// TestManyHeld checks that all is listed of which more is held than goes into one message.
func TestManyHeld(t *testing.T) {
	inMemory(t, func(t *testing.T, p place) {
		a := newAgent(t, p)
		offerGreet(a)
		s, d, _ := connect(t, p, a)
		held := map[string]bool{}
		for range 1000 {
			x := s.call("greet", harp.Pos("Ada")).accepted()
			expect[wire.End](x, wire.TypeEnd)
			x.x.Release()
			held[x.id] = true
		}
		s.session.Close(nil)
		s = <-d.sessions
		for _, h := range s.held {
			if !held[h.Job] || h.State != wire.HeldEnded {
				t.Fatalf("held %+v", h)
			}
			delete(held, h.Job)
		}
		if len(held) > 0 {
			t.Errorf("%d were not listed", len(held))
		}
	})
}

// TestLastWord checks that who has said its last word before END is told it, and that it
// is kept, as nobody has acknowledged it.
func TestLastWord(t *testing.T) {
	everywhere(t, func(t *testing.T, p place) {
		a := newAgent(t, p)
		offerHang(a)
		offerGreet(a)
		s, _, _ := connect(t, p, a)
		x := s.call("hang", nil).accepted()
		if err := x.x.Send(wire.TypeCancel, true, wire.Encode(wire.Cancel{})); err != nil {
			t.Fatal(err)
		}
		x.ended()
		y := s.call("greet", harp.Pos("Ada")).accepted()
		again := s.begin(wire.TypeResume, wire.Encode(wire.Resume{Job: x.id, Attempt: 1, Window: wire.Window}))
		again.ended()
		value[greeting](t, y.end())
	})
}

// TestLastWordLeavesRoom checks that who has said its last word before END, and was told it,
// leaves room for another attempt: the end is in the journal.
func TestLastWordLeavesRoom(t *testing.T) {
	inMemory(t, func(t *testing.T, p place) {
		a := newAgent(t, p, func(c *agent.Config) { c.Limits.MaxAttempts = 1 })
		offerHang(a)
		offerGreet(a)
		s, _, _ := connect(t, p, a)
		x := s.call("hang", nil).accepted()
		defer x.x.Release()
		if err := x.x.Send(wire.TypeCancel, true, wire.Encode(wire.Cancel{})); err != nil {
			t.Fatal(err)
		}
		for f := x.receive(); f.Type != wire.TypeEnd; f = x.receive() {
		}
		synctest.Wait()
		value[greeting](t, s.call("greet", harp.Pos("Ada")).accepted().end())
	})
}

// TestBusy checks NOT_NOW(busy), and READY once there is room.
func TestBusy(t *testing.T) {
	everywhere(t, func(t *testing.T, p place) {
		a := newAgent(t, p, func(c *agent.Config) { c.Limits.MaxAttempts = 2 })
		offerHang(a)
		offerGreet(a)
		s, _, _ := connect(t, p, a)
		x := s.call("hang", nil).accepted()
		y := s.call("hang", nil).accepted()
		for range 3 {
			if reason := s.call("greet", harp.Pos("Ada")).notNow(); reason != wire.NotNowBusy {
				t.Errorf("NOT_NOW(%s)", reason)
			}
		}
		x.cancel()
		x.ended()
		if err := s.hear(t.Context(), wire.TypeReady, new(wire.Ready)); err != nil {
			t.Fatal(err)
		}
		value[greeting](t, s.call("greet", harp.Pos("Ada")).accepted().end())
		y.cancel()
		y.ended()
	})
}

// TestForgetAlive checks that an attempt nobody will ask for again runs on, held
// back by nobody, and is gone when it has ended.
func TestForgetAlive(t *testing.T) {
	inMemory(t, func(t *testing.T, p place) {
		a := newAgent(t, p)
		runs, emitted := 0, 0
		offerStream(a, "count", func(_ context.Context, emit func(int) error) error {
			runs++
			for range 1000 {
				if err := emit(0); err != nil {
					return err
				}
				emitted++
			}
			return nil
		})
		s, _, _ := connect(t, p, a)
		small := func(c *wire.Call, _ *harp.Request) { c.Window = 330 }
		x := s.call("count", nil, small).accepted()
		synctest.Wait()
		x.x.Release()
		synctest.Wait()
		s.say(wire.TypeForget, wire.Forget{Attempts: []wire.HeldAttempt{{Job: x.id, Attempt: 1}}, Last: true})
		if err := s.hear(t.Context(), wire.TypeReady, new(wire.Ready)); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if runs != 1 || emitted != 1000 {
			t.Errorf("%d runs, %d records", runs, emitted)
		}
		again := s.begin(wire.TypeResume, wire.Encode(wire.Resume{Job: x.id, Attempt: 1}))
		if _, err := again.x.Receive(t.Context()); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("resumed what was forgotten: %v", err)
		}
	})
}

// What runs when its agent is told to stop has a grace to end by itself, in which the agent
// takes no more calls; its context ends after that.
func TestStopEndsWhatHadASecondLeft(t *testing.T) {
	everywhere(t, func(t *testing.T, p place) {
		a := newAgent(t, p, func(c *agent.Config) { c.Limits.Grace = time.Hour })
		offerGreet(a)
		release, causes := make(chan struct{}), make(chan error, 1)
		offer(a, "last", func(ctx context.Context) (string, error) {
			<-release
			causes <- context.Cause(ctx)
			return "done", nil
		})
		s, _, r := connect(t, p, a)
		last := s.call("last", nil).accepted()
		r.stop()
		for x := s.call("greet", harp.Pos("Ada")); !x.isNotNow(); x = s.call("greet", harp.Pos("Ada")) {
			x.ending() // the agent has not heard yet that it is to stop
		}
		close(release)
		if end := last.end(); value[string](t, end) != "done" || end.Failure != nil {
			t.Errorf("END %+v", end)
		}
		if cause := <-causes; cause != nil {
			t.Errorf("its context ended within the grace: %v", cause)
		}
		r.wait()
		<-s.session.Done()
	})
}

// The grace is one for all that run, and goes on when the dispatcher leaves.
func TestStopWhileTheDispatcherIsAway(t *testing.T) {
	inMemory(t, func(t *testing.T, p place) {
		a := newAgent(t, p, func(c *agent.Config) { c.Limits.Grace = 3 * time.Second })
		causes := offerHang(a)
		s, _, r := connect(t, p, a)
		s.call("hang", nil).accepted()
		s.call("hang", nil).accepted()
		began := time.Now()
		r.stop()
		time.Sleep(time.Second)
		s.session.Close(nil)
		for range 2 {
			if cause := <-causes; !errors.Is(cause, harp.ErrClosed) || time.Since(began) != 3*time.Second {
				t.Errorf("after %v: %v", time.Since(began), cause)
			}
		}
		r.wait()
		if waited := time.Since(began); waited != 3*time.Second {
			t.Errorf("waited %v", waited)
		}
	})
}

// TestStop checks that an agent that stops takes no more calls, ends what runs and
// delivers the ends before it closes the session.
func TestStop(t *testing.T) {
	everywhere(t, func(t *testing.T, p place) {
		a := newAgent(t, p)
		offerGreet(a)
		causes := offerHang(a)
		release := make(chan struct{})
		offer(a, "tidy", func(ctx context.Context) (string, error) { <-ctx.Done(); <-release; return "tidied up", nil })
		s, _, r := connect(t, p, a)
		hang, tidy := s.call("hang", nil).accepted(), s.call("tidy", nil).accepted()
		r.stop()
		if cause := <-causes; !errors.Is(cause, harp.ErrClosed) {
			t.Errorf("cause %v", cause)
		}
		if f := failure(t, hang.end()); f.Type != "agent_stopped" {
			t.Errorf("hang: %+v", f)
		}
		if reason := s.call("greet", harp.Pos("Ada")).notNow(); reason != wire.NotNowDraining {
			t.Errorf("NOT_NOW(%s)", reason)
		}
		close(release)
		if end := tidy.end(); value[string](t, end) != "tidied up" || end.Stopped != nil {
			t.Errorf("tidy: %+v", end)
		}
		r.wait()
		<-s.session.Done()
	})
}

// TestGrace checks that a dispatcher that does not take an end does not keep an
// agent from stopping.
func TestGrace(t *testing.T) {
	inMemory(t, func(t *testing.T, p place) {
		a := newAgent(t, p, func(c *agent.Config) { c.Limits.Grace = 3 * time.Second })
		offerHang(a)
		s, _, r := connect(t, p, a)
		x := s.call("hang", nil).accepted()
		began := time.Now()
		r.stop()
		expect[wire.End](x, wire.TypeEnd)
		r.wait()
		if waited := time.Since(began); waited != 2*3*time.Second { // for the function, then for the dispatcher
			t.Errorf("waited %v", waited)
		}
	})
}

// dial connects to an agent that listens.
func dial(t testing.TB, p place, l net.Listener, id transport.Identity, protocol string) *transport.Conn {
	t.Helper()
	nc, err := p.dialer(id)(t.Context(), l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	conn, err := transport.Client(t.Context(), nc, p.config(t, id), protocol, transport.RoleAgent)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// TestHeldTellsNoFewerCallsThanEndsBesideTheNewSession checks that a new session does not say that fewer calls were taken than was told over
// the one before, after HELLO too: the dispatcher would take the journal for one that was rolled back, and all that runs for lost.
func TestHeldTellsNoFewerCallsThanEndsBesideTheNewSession(t *testing.T) {
	inMemory(t, func(t *testing.T, p place) {
		a := newAgent(t, p)
		newCounter().offer(a)
		l := p.listen(t, agentID)
		run(t, func(ctx context.Context) error { return a.Serve(ctx, l) })
		d := &dispatcher{t: t, welcome: wire.Welcome{Version: wire.Version, Store: "store", Heartbeat: int64(time.Hour)}}
		first, err := d.meet(t.Context(), dial(t, p, l, dispatcherID, transport.ProtocolAgent))
		if err != nil {
			t.Fatal(err)
		}
		before := first.call("once", nil).accepted().end()
		s, err := dial(t, p, l, dispatcherID, transport.ProtocolAgent).Opener(t.Context(), transport.Options{Logger: silent, MaxFrame: wire.MaxBody})
		if err != nil {
			t.Fatal(err)
		}
		second := newPeer(t, s)
		if err := second.hear(t.Context(), wire.TypeHello, &second.hello); err != nil {
			t.Fatal(err)
		}
		beside := first.call("once", nil).accepted().end()
		second.say(wire.TypeWelcome, d.welcome)
		if err := second.reconcile(t.Context()); err != nil {
			t.Fatal(err)
		}
		after := second.call("once", nil).accepted().end()
		if told := []int64{before.Taken, beside.Taken, second.taken, after.Taken}; !slices.Equal(told, []int64{1, 2, 2, 3}) {
			t.Errorf("END, END beside HELLO, HELD and END tell of %d calls", told)
		}
		second.session.Close(nil)
	})
}
