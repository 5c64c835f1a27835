package agent_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/agent"
	"github.com/harpcaller/harp/internal/wire"
	"github.com/harpcaller/harp/transport"
)

// serve starts an agent that listens and returns a direct caller's session.
func serve(t testing.TB, p place, a *agent.Agent) (*peer, *running) {
	t.Helper()
	l := p.listen(t, agentID)
	r := run(t, func(ctx context.Context) error { return a.Serve(ctx, l) })
	s, err := dial(t, p, l, callerID, transport.ProtocolDirect).Opener(transport.Options{Logger: silent, MaxFrame: wire.MaxBody})
	if err != nil {
		t.Fatal(err)
	}
	c := &peer{t: t, session: s}
	if c.control, err = s.Control(t.Context()); err != nil {
		t.Fatal(err)
	}
	c.say(wire.TypeHello, wire.Hello{Version: wire.Version})
	var w wire.Welcome
	if err := c.hear(t.Context(), wire.TypeWelcome, &w); err != nil {
		t.Fatal(err)
	}
	if w.Version != wire.Version || w.Heartbeat == 0 || w.Software != harp.Software {
		t.Errorf("WELCOME %+v", w)
	}
	c.control.Beat(time.Duration(w.Heartbeat))
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
		forge := func(c *wire.Call, _ *harp.Request) { c.Principal = wire.Principal{Kind: "caller", Name: "root"} }
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

// TestDirectCancel checks that a direct call ends with its lane.
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
