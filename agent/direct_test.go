package agent_test

import (
	"context"
	"errors"
	"io"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/agent"
	"github.com/harpcaller/harp/internal/needs"
	"github.com/harpcaller/harp/internal/version"
	"github.com/harpcaller/harp/internal/wire"
	"github.com/harpcaller/harp/transport"
)

// serve starts an agent that listens and returns a direct caller's session.
func serve(t testing.TB, p place, a *agent.Agent) (*peer, *running) {
	t.Helper()
	l := p.listen(t, agentID)
	r := run(t, func(ctx context.Context) error { return a.Serve(ctx, l) })
	s, err := dial(t, p, l, callerID, transport.ProtocolDirect).Opener(t.Context(), transport.Options{Logger: silent, MaxFrame: wire.MaxBody})
	if err != nil {
		t.Fatal(err)
	}
	c := newPeer(t, s)
	c.say(wire.TypeHello, wire.Hello{Version: wire.Version})
	var w wire.Welcome
	if err := c.hear(t.Context(), wire.TypeWelcome, &w); err != nil {
		t.Fatal(err)
	}
	if w.Version != wire.Version || w.Heartbeat == 0 || w.Software != version.Software() {
		t.Errorf("WELCOME %+v", w)
	}
	c.session.Beat(time.Duration(w.Heartbeat))
	return c, r
}

func TestDirect(t *testing.T) {
	everywhere(t, func(t *testing.T, p place) {
		a := newAgent(t, p)
		offerGreet(a)
		offerStream(a, "count", func(_ context.Context, emit func(int) error) error {
			for i := range 1000 {
				if err := emit(i); err != nil {
					return err
				}
			}
			return nil
		})
		offer(a, "who", func(ctx context.Context) (agent.CallInfo, error) {
			info, _ := agent.FromContext(ctx)
			return info, nil
		})
		c, _ := serve(t, p, a)
		for range 10 {
			end, _ := c.call("greet", harp.Pos("Ada")).ended()
			value[greeting](t, end)
		}
		_, records := c.call("count", nil, func(c *wire.Call, _ *harp.Request) { c.Window = 1000 }).ended()
		if len(records) != 1000 {
			t.Errorf("%d records", len(records))
		}
		if f := c.call("greet", nil).refused(); f.Field != "args.name" {
			t.Errorf("%+v", f)
		}
		forge := func(c *wire.Call, _ *harp.Request) { c.Principal = harp.Principal{Kind: "caller", Name: "root"} }
		end, _ := c.call("who", nil, forge).ended()
		want := harp.Principal{Kind: "caller", Name: "ops", Auth: "certificate"}
		if info := value[agent.CallInfo](t, end); info.Principal != want || !info.Direct {
			t.Errorf("%+v", info)
		}
		second := func(c *wire.Call, _ *harp.Request) { c.Attempt = 2 }
		if f := c.call("greet", harp.Pos("Ada"), second).refused(); f.Field != "attempt" {
			t.Errorf("%+v", f)
		}
	})
}

// TestDirectCancel checks that a direct call ends with its exchange.
func TestDirectCancel(t *testing.T) {
	everywhere(t, func(t *testing.T, p place) {
		a := newAgent(t, p)
		causes := offerHang(a)
		offerGreet(a)
		c, _ := serve(t, p, a)
		x := c.call("hang", nil)
		expect[wire.Started](x, wire.TypeStarted)
		x.x.Release()
		if cause := <-causes; !errors.Is(cause, harp.ErrCancelled) {
			t.Errorf("cause %v", cause)
		}
		x = c.call("hang", nil)
		x.cancel()
		if end, _ := x.ended(); end.Stopped == nil || end.Stopped.Cause != wire.CauseCancel {
			t.Errorf("END %+v", end)
		}
		if cause := <-causes; !errors.Is(cause, harp.ErrCancelled) {
			t.Errorf("cause %v", cause)
		}
		expect[wire.Started](c.call("hang", nil), wire.TypeStarted)
		c.session.Close(nil)
		if cause := <-causes; !errors.Is(cause, harp.ErrCancelled) {
			t.Errorf("cause %v", cause)
		}
	})
}

// TestDirectSaysWhenItStarted checks that a direct caller is told when its function began and
// how long it ran, whether it ends before there is anything to tell or not.
func TestDirectSaysWhenItStarted(t *testing.T) {
	inMemory(t, func(t *testing.T, p place) {
		a := newAgent(t, p)
		var ran time.Duration
		offer(a, "sleep", func(context.Context) (int, error) { time.Sleep(ran); return 0, nil })
		c, _ := serve(t, p, a)
		for _, ran = range []time.Duration{0, time.Minute} {
			began := time.Now().UnixNano()
			x := c.call("sleep", nil)
			if ran > 0 {
				if m := expect[wire.Started](x, wire.TypeStarted); m.Time != began {
					t.Errorf("STARTED says %d, want %d", m.Time, began)
				}
			}
			if end := x.end(); end.Started == nil || end.Started.Time != began || time.Duration(end.RanFor) != ran {
				t.Errorf("END says that it began at %+v and ran for %v, want %d and %v", end.Started, time.Duration(end.RanFor), began, ran)
			}
		}
	})
}

// TestDirectStop checks that an agent that stops tells its direct callers.
func TestDirectStop(t *testing.T) {
	everywhere(t, func(t *testing.T, p place) {
		a := newAgent(t, p)
		causes := offerHang(a)
		c, r := serve(t, p, a)
		x := c.call("hang", nil)
		expect[wire.Started](x, wire.TypeStarted)
		r.stop()
		if cause := <-causes; !errors.Is(cause, harp.ErrClosed) {
			t.Errorf("cause %v", cause)
		}
		if f := failure(t, x.end()); f.Type != "agent_stopped" {
			t.Errorf("%+v", f)
		}
		r.wait()
	})
}

// TestDirectAndDispatched checks that a direct caller cannot occupy the ids of a
// dispatcher's jobs.
func TestDirectAndDispatched(t *testing.T) {
	inMemory(t, func(t *testing.T, p place) {
		a := newAgent(t, p)
		runs := 0
		release := make(chan struct{})
		offer(a, "slow", func(context.Context) (int, error) { runs++; <-release; return runs, nil })
		c, _ := serve(t, p, a)
		s, _, _ := connect(t, p, a)
		x := c.call("slow", nil)
		synctest.Wait()
		y := s.call("slow", nil, func(_ *wire.Call, r *harp.Request) { r.ID = x.id }).accepted()
		synctest.Wait()
		if runs != 2 {
			t.Errorf("%d runs", runs)
		}
		close(release)
		x.ended()
		y.ended()
	})
}

// TestDirectAtOnce checks that what a short call has to tell is one frame, and that of
// a longer one two: the first says that it runs.
func TestDirectAtOnce(t *testing.T) {
	inMemory(t, func(t *testing.T, p place) {
		a := newAgent(t, p)
		offerGreet(a)
		offer(a, "slow", func(context.Context) (int, error) {
			time.Sleep(time.Minute)
			return 1, nil
		})
		c, _ := serve(t, p, a)
		x := c.call("greet", harp.Pos("Ada"))
		if end := expect[wire.End](x, wire.TypeEnd); end.Started == nil || end.Started.Time == 0 {
			t.Errorf("END %+v", end)
		}
		x.x.Release()
		x = c.call("slow", nil)
		begin := time.Now()
		expect[wire.Started](x, wire.TypeStarted)
		if waited := time.Since(begin); waited > time.Second {
			t.Errorf("STARTED came after %v", waited)
		}
		expect[wire.End](x, wire.TypeEnd)
	})
}

// TestDirectGoexit checks that a procedure that leaves its goroutine has failed, and
// the session goes on.
func TestDirectGoexit(t *testing.T) {
	everywhere(t, func(t *testing.T, p place) {
		a := newAgent(t, p)
		offerGreet(a)
		offer(a, "leave", func(context.Context) (int, error) {
			runtime.Goexit()
			return 0, nil
		})
		c, _ := serve(t, p, a)
		for range 3 {
			end, _ := c.call("leave", nil).ended()
			if f := failure(t, end); f.Type != "panic" {
				t.Errorf("%+v", f)
			}
			end, _ = c.call("greet", harp.Pos("Ada")).ended()
			value[greeting](t, end)
		}
	})
}

// TestDirectTwice checks that a call that comes a second time while it runs is not
// started again: the second caller is told of the first.
func TestDirectTwice(t *testing.T) {
	everywhere(t, func(t *testing.T, p place) {
		a := newAgent(t, p)
		runs := make(chan struct{}, 10)
		goOn := make(chan struct{})
		offer(a, "wait", func(context.Context) (int, error) {
			runs <- struct{}{}
			<-goOn
			return 7, nil
		})
		c, _ := serve(t, p, a)
		first := c.call("wait", nil)
		expect[wire.Started](first, wire.TypeStarted)
		second := c.call("wait", nil, func(_ *wire.Call, r *harp.Request) { r.ID = first.id })
		expect[wire.Started](second, wire.TypeStarted)
		close(goOn)
		end, _ := second.ended()
		if n := value[int](t, end); n != 7 || len(runs) != 1 {
			t.Errorf("%d after %d runs", n, len(runs))
		}
		if f, err := first.x.Receive(t.Context()); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("the first was told %+v, %v", f, err)
		}
	})
}

// TestDirectHostile checks that a caller that acknowledges what it was not sent loses
// its session, also while its procedure runs and does not listen.
func TestDirectHostile(t *testing.T) {
	everywhere(t, func(t *testing.T, p place) {
		a := newAgent(t, p)
		goOn := make(chan struct{})
		defer close(goOn)
		offer(a, "deaf", func(context.Context) (int, error) {
			<-goOn
			return 0, nil
		})
		c, _ := serve(t, p, a)
		x := c.call("deaf", nil)
		expect[wire.Started](x, wire.TypeStarted)
		_ = x.x.Send(wire.TypeAck, false, wire.Encode(wire.Ack{Next: 3})) // may hear of the end before it returns
		<-c.session.Done()
	})
}

// TestDirectSpeaksAsDispatcher checks that a direct caller that says what only a dispatcher may
// loses its session, and that how a dispatcher's job ended is neither told nor forgotten.
func TestDirectSpeaksAsDispatcher(t *testing.T) {
	for name, attack := range map[string]func(c *peer, job string){
		"FORGET": func(c *peer, job string) {
			c.say(wire.TypeForget, wire.Forget{Attempts: []wire.HeldAttempt{{Job: job, Attempt: 1}}, Last: true})
		},
		"BEAT":   func(c *peer, _ string) { c.say(wire.TypeBeat, wire.Beat{Heartbeat: int64(time.Minute)}) },
		"RESUME": func(c *peer, job string) { c.resume(job, 0) },
	} {
		t.Run(name, func(t *testing.T) {
			inMemory(t, func(t *testing.T, p place) {
				a := newAgent(t, p)
				offerGreet(a)
				c, _ := serve(t, p, a)
				s, _, _ := connect(t, p, a)
				x := s.call("greet", harp.Pos("Ada")).accepted()
				expect[wire.End](x, wire.TypeEnd)
				x.x.Release()
				attack(c, x.id)
				synctest.Wait()
				if c.session.Err() == nil {
					t.Error("it still has a session")
				}
				value[greeting](t, s.resume(x.id, 0).end())
			})
		})
	}
}

// TestDirectIsToldNothingUnasked checks that a direct caller that was told to come again later
// hears nothing on the control stream, which is for dispatchers, when it may.
func TestDirectIsToldNothingUnasked(t *testing.T) {
	inMemory(t, func(t *testing.T, p place) {
		a := newAgent(t, p, func(c *agent.Config) { c.Limits.MaxAttempts = 1 })
		offerHang(a)
		offerGreet(a)
		c, _ := serve(t, p, a)
		x := c.call("hang", nil)
		expect[wire.Started](x, wire.TypeStarted)
		if reason := c.call("greet", harp.Pos("Ada")).notNow(); reason != wire.NotNowBusy {
			t.Errorf("NOT_NOW(%s)", reason)
		}
		x.cancel()
		x.ended()
		synctest.Wait()
		end, _ := c.call("greet", harp.Pos("Ada")).ended()
		value[greeting](t, end)
		over, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if f, err := c.control.Receive(over); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("it hears %+v, %v", f, err)
		}
	})
}

// TestDirectOfAnotherVersion checks that a caller that speaks another version of the protocol is
// told so.
func TestDirectOfAnotherVersion(t *testing.T) {
	everywhere(t, func(t *testing.T, p place) {
		a := newAgent(t, p)
		l := p.listen(t, agentID)
		run(t, func(ctx context.Context) error { return a.Serve(ctx, l) })
		s, err := dial(t, p, l, callerID, transport.ProtocolDirect).Opener(t.Context(), transport.Options{Logger: silent})
		if err != nil {
			t.Fatal(err)
		}
		c := newPeer(t, s)
		c.say(wire.TypeHello, wire.Hello{Version: wire.Version + 1})
		var m wire.Unwelcome
		if err := c.hear(t.Context(), wire.TypeUnwelcome, &m); err != nil {
			t.Fatal(err)
		}
		if f := harp.FailureOf(m.Failure); !errors.Is(f.Err(), harp.ErrRefused) || !strings.Contains(f.Message, "version") {
			t.Errorf("it is told %+v", f)
		}
		<-s.Done()
	})
}

// TestDirectAllocs is what a direct call and its answer may allocate, both sides.
func TestDirectAllocs(t *testing.T) {
	needs.NoRaceDetector(t)
	c := dialEcho(t, loopback{})
	payload := make([]byte, 100)
	call := func() {
		if err := echo(t.Context(), c, payload); err != nil {
			t.Fatal(err)
		}
	}
	call()
	if n := testing.AllocsPerRun(200, call); n > 75 {
		t.Errorf("%v allocations", n)
	}
}
