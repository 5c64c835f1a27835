package agent_test

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
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
		if next.hello.Journal != s.hello.Journal || next.hello.Journal == "" || next.hello.Position <= s.hello.Position {
			t.Errorf("journal %q at %d, then %q at %d", s.hello.Journal, s.hello.Position, next.hello.Journal, next.hello.Position)
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

// TestReconnect checks the pauses between attempts to connect: full jitter, within
// a second at first, within ten later, or within what the dispatcher wishes.
func TestReconnect(t *testing.T) {
	inMemory(t, func(t *testing.T, p place) {
		cable := cable{down: true}
		a := newAgent(t, p, func(c *agent.Config) { c.Dial = cable.through(c.Dial) })
		d := listen(t, p)
		d.set(func(d *dispatcher) { d.welcome.Reconnect = int64(time.Minute) })
		run(t, func(ctx context.Context) error { return a.Connect(ctx, d.addr) })
		time.Sleep(time.Hour)
		checkPauses(t, cable.plug(true), 10*time.Second)
		s := <-d.sessions
		cable.plug(false)
		s.session.Close(nil)
		time.Sleep(2 * time.Hour)
		checkPauses(t, cable.plug(false), time.Minute)
	})
}

// cable is a way to a dispatcher that can be pulled out.
type cable struct {
	mu    sync.Mutex
	down  bool
	dials []time.Time
}

// through dials through the cable.
func (c *cable) through(dial dialFunc) dialFunc {
	return func(ctx context.Context, addr string) (net.Conn, error) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.dials = append(c.dials, time.Now())
		if c.down {
			return nil, errors.New("no route")
		}
		return dial(ctx, addr)
	}
}

// plug puts the cable in or pulls it out, and returns when it was dialled through
// since the last time.
func (c *cable) plug(in bool) []time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	dials := c.dials
	c.down, c.dials = !in, nil
	return dials
}

type dialFunc = func(ctx context.Context, addr string) (net.Conn, error)

// checkPauses checks that pauses are bounded, grow, and differ.
func checkPauses(t *testing.T, dials []time.Time, longest time.Duration) {
	t.Helper()
	var most time.Duration
	different := map[time.Duration]bool{}
	for i := 1; i < len(dials); i++ {
		pause := dials[i].Sub(dials[i-1])
		bound := longest
		if i < 10 {
			bound = min(time.Second<<i, longest)
		}
		if pause > bound {
			t.Errorf("pause %d is %v, at most %v", i, pause, bound)
		}
		different[pause] = true
		most = max(most, pause)
	}
	if len(dials) < 100 || len(different) < len(dials)/2 || most < longest*8/10 {
		t.Errorf("%d dials with %d different pauses, the longest %v", len(dials), len(different), most)
	}
}

// TestUnwelcome checks that an agent that is refused goes on trying.
func TestUnwelcome(t *testing.T) {
	inMemory(t, func(t *testing.T, p place) {
		a := newAgent(t, p)
		offerGreet(a)
		d := listen(t, p)
		refusal := harp.FailureOf(harp.ErrDuplicateHost)
		d.set(func(d *dispatcher) { d.refuse = &refusal })
		run(t, func(ctx context.Context) error { return a.Connect(ctx, d.addr) })
		time.Sleep(time.Minute)
		d.set(func(d *dispatcher) {
			if d.hellos < 5 {
				t.Errorf("%d attempts in a minute", d.hellos)
			}
			d.refuse, d.welcome.Version = nil, wire.Version+1
		})
		time.Sleep(time.Minute)
		d.set(func(d *dispatcher) { d.welcome.Version = wire.Version })
		value[greeting](t, (<-d.sessions).call("greet", harp.Pos("Ada")).accepted().end())
	})
}

// TestSecondSession checks that a dispatcher's second session closes the first, and
// that one of an older epoch does not.
func TestSecondSession(t *testing.T) {
	everywhere(t, func(t *testing.T, p place) {
		a := newAgent(t, p)
		causes := offerHang(a)
		l := p.listen(t, agentID)
		run(t, func(ctx context.Context) error { return a.Serve(ctx, l) })
		meet := func(epoch int64) (*peer, error) {
			d := &dispatcher{t: t, welcome: wire.Welcome{Version: wire.Version, Store: "s", Epoch: epoch, Heartbeat: int64(time.Hour)}}
			return d.meet(t.Context(), dial(t, p, l, dispatcherID, transport.ProtocolAgent))
		}
		first, err := meet(7)
		if err != nil {
			t.Fatal(err)
		}
		defer first.session.Close(nil)
		first.call("hang", nil).accepted()
		if old, err := meet(6); err == nil {
			t.Error("a session of an older epoch")
			old.session.Close(nil)
		}
		if first.session.Err() != nil {
			t.Errorf("the first session ended: %v", first.session.Err())
		}
		second, err := meet(8)
		if err != nil {
			t.Fatal(err)
		}
		defer second.session.Close(nil)
		<-first.session.Done()
		if h := second.held; len(h) != 1 || h[0].State != wire.HeldAlive {
			t.Errorf("held %+v", h)
		}
		select {
		case cause := <-causes:
			t.Errorf("ended with its session: %v", cause)
		default:
		}
		x := second.call("hang", nil).accepted()
		x.cancel()
		x.ended()
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

var longKey = strings.Repeat("k", harp.MaxLabelKey+1)

func manyLabels(n int) map[string]string {
	labels := map[string]string{}
	for i := range n {
		labels[strconv.Itoa(i)] = "x"
	}
	return labels
}

func TestConfig(t *testing.T) {
	p := loopback{}
	over, cancel := context.WithCancel(t.Context())
	cancel() // what can be returns at once
	for field, change := range map[string]func(*agent.Config){
		"name":                 func(c *agent.Config) { c.Name = "" },
		"name ":                func(c *agent.Config) { c.Name = "web02" },
		"tls":                  func(c *agent.Config) { c.TLS = p.config(t, callerID) },
		"label ":               func(c *agent.Config) { c.Labels = map[string]string{"": "x"} },
		"limits.max_result":    func(c *agent.Config) { c.Limits.MaxResult = 3 << 20 },
		"limits.max_record":    func(c *agent.Config) { c.Limits.MaxRecord = -1 },
		"limits.max_attempts":  func(c *agent.Config) { c.Limits.MaxAttempts = -1 },
		"limits.grace":         func(c *agent.Config) { c.Limits.Grace = -1 },
		"limits.max_journal":   func(c *agent.Config) { c.Limits.MaxJournal = -1 },
		"limits.max_job_spool": func(c *agent.Config) { c.Limits.MaxJobSpool = -1 },
		"limits.max_result ":   func(c *agent.Config) { c.Limits.MaxResult = wire.MaxMessage + 1 },
		"limits.max_record ":   func(c *agent.Config) { c.Limits.MaxRecord = wire.MaxMessage + 1 },
		"limits.max_attempts ": func(c *agent.Config) { c.Limits.MaxAttempts = 1<<20 + 1 },
		"name  ":               func(c *agent.Config) { c.Name, c.TLS.Certificates = strings.Repeat("x", harp.MaxHostName+1), nil },
		"name   ":              func(c *agent.Config) { c.Name, c.TLS.Certificates = "web\xff", nil },
		"tls ":                 func(c *agent.Config) { c.TLS.Certificates = []tls.Certificate{{Certificate: [][]byte{[]byte("none")}}} },
		"labels":               func(c *agent.Config) { c.Labels = manyLabels(harp.MaxLabels + 1) },
		"label k":              func(c *agent.Config) { c.Labels = map[string]string{"k": strings.Repeat("v", harp.MaxLabelValue+1)} },
		"label k\xff":          func(c *agent.Config) { c.Labels = map[string]string{"k\xff": "v"} },
		"label l":              func(c *agent.Config) { c.Labels = map[string]string{"l": "v\xff"} },
		"label " + longKey:     func(c *agent.Config) { c.Labels = map[string]string{longKey: "v"} },
		"exec.dirs":            func(c *agent.Config) { c.Exec = &agent.ExecPolicy{Dirs: []string{"relative"}} },
	} {
		a := newAgent(t, p, change)
		var e *harp.FieldError
		if err := a.Connect(over, "127.0.0.1"); !errors.As(err, &e) || e.Field != strings.TrimRight(field, " ") && e.Field != field {
			t.Errorf("%s: Connect returned %v", field, err)
		}
	}
	for _, limits := range []agent.Limits{
		{MaxAttempts: 1, MaxResult: 1, MaxRecord: 1},
		{MaxAttempts: 1 << 20, MaxResult: wire.MaxMessage, MaxRecord: wire.MaxMessage},
	} {
		if err := newAgent(t, p, func(c *agent.Config) { c.Limits = limits }).Connect(over, "127.0.0.1"); err != nil {
			t.Errorf("%+v: Connect returned %v", limits, err)
		}
	}
	var e *harp.FieldError
	for _, addr := range []string{"", "a[b"} {
		if err := newAgent(t, p).Connect(over, addr); !errors.As(err, &e) || e.Field != "addr" {
			t.Errorf("Connect of %q returned %v", addr, err)
		}
	}
	most := func(c *agent.Config) {
		c.Labels = manyLabels(harp.MaxLabels - 1)
		c.Labels[longKey[1:]] = strings.Repeat("v", harp.MaxLabelValue)
	}
	if err := newAgent(t, p, most).Connect(over, "127.0.0.1"); err != nil {
		t.Errorf("with as many and as long labels as there may be: %v", err)
	}
	long := func(c *agent.Config) { c.Name, c.TLS.Certificates = strings.Repeat("x", harp.MaxHostName), nil }
	if err := newAgent(t, p, long).Connect(over, "127.0.0.1"); err != nil {
		t.Errorf("with as long a name as there may be: %v", err)
	}
	bare := agent.New(agent.Config{Name: "web01", Logger: silent})
	if err := bare.Connect(t.Context(), "127.0.0.1"); !errors.As(err, &e) || e.Field != "tls" {
		t.Errorf("Connect returned %v", err)
	}
	l := p.listen(t, agentID)
	defer l.Close()
	if err := newAgent(t, p, func(c *agent.Config) { c.TLS = nil }).Serve(t.Context(), l); !errors.As(err, &e) || e.Field != "tls" {
		t.Errorf("Serve returned %v", err)
	}
}

// TestTakeover checks that however often another exchange takes over a stream,
// nothing of it is lost.
func TestTakeover(t *testing.T) {
	const records = 5000
	everywhere(t, func(t *testing.T, p place) {
		a := newAgent(t, p)
		offerStream(a, "count", func(_ context.Context, emit func(int) error) error {
			for i := range records {
				if err := emit(i); err != nil {
					return err
				}
			}
			return nil
		})
		s, _, _ := connect(t, p, a)
		id, committed := harp.NewID(), int64(0)
		for turn := 0; ; turn++ {
			x := s.call("count", nil, func(c *wire.Call, r *harp.Request) { r.ID, c.Window = id, wire.MinWindow }).accepted()
			for frame := 0; turn == 30 || frame < 1; frame++ {
				f := x.receive()
				if f.Type == wire.TypeEnd {
					if committed != records {
						t.Errorf("END after %d records", committed)
					}
					x.ackEnd(wire.End{Records: committed})
					return
				}
				var m wire.Records
				if err := wire.Decode(f.Body, &m); err != nil || f.Type != wire.TypeRecords || m.First > committed {
					t.Fatalf("type %d from %d, have %d: %v", f.Type, m.First, committed, err)
				}
				for i, r := range m.Records {
					var n int64
					if err := harp.Value(r.Value).Decode(&n); err != nil || n != m.First+int64(i) {
						t.Fatalf("record %d is %d: %v", m.First+int64(i), n, err)
					}
				}
				committed = max(committed, m.First+int64(len(m.Records)))
				x.ack(committed)
			}
		}
	})
}
