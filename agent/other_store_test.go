package agent_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/agent"
	"github.com/harpcaller/harp/agent/journal"
	"github.com/harpcaller/harp/internal/wire"
	"github.com/harpcaller/harp/transport"
	"github.com/harpcaller/harp/transport/memnet"
)

// A dispatcher that knows nothing of an attempt that runs, as its store is another one,
// does not abandon it: it goes on as while its own dispatcher is away, and that is told
// everything.
func TestAnotherStoreAbandonsNothing(t *testing.T) {
	for _, restarted := range []bool{false, true} {
		inMemory(t, func(t *testing.T, p place) {
			pausing := newPausing()
			m := newMachine(t, p, pausing.offer(1000), agent.Limits{})
			small := func(c *wire.Call, _ *harp.Request) { c.Window = 330 }
			x := m.pauses(small, limits(harp.NoLimit, harp.NoLimit))
			m.d.set(func(d *dispatcher) { d.welcome.Store = "other" })
			m.lose()
			m.peer.forget(m.peer.held...)
			close(pausing.emit)
			<-pausing.emitted // it is held back by nobody
			close(pausing.release)
			time.Sleep(time.Second)
			m.peer.forget(wire.HeldAttempt{Job: x.id, Attempt: 1})
			if restarted {
				m.crash()
			} else {
				m.lose()
			}
			m.checkHeld(x, wire.HeldEnded, 1001)
			m.d.set(func(d *dispatcher) { d.welcome.Store = "store" })
			m.lose()
			end, records := m.peer.resume(x.id, 1).endedFrom(1)
			if value[int](t, end) != 0 || len(records) != 1000 {
				t.Fatalf("END %+v after %d records", end, len(records))
			}
			for i, r := range records {
				if r.Truncated > 0 || len(r.Value) == 0 {
					t.Fatalf("record %d: %+v", i, r)
				}
			}
		})
	}
}

// What another dispatcher asked for is kept for that though the agent's clock says that it ended long
// ago: a machine without a clock that goes on while it is off begins with a wrong one, and is set
// right later.
func TestWhatEndedByAWrongClockIsKept(t *testing.T) {
	inMemory(t, func(t *testing.T, p place) {
		m := newMachine(t, p, newCounter().offer, agent.Limits{})
		m.run.stop()
		m.run.wait()
		j, err := journal.Open(m.disk.Mount(), journal.Options{})
		if err != nil {
			t.Fatal(err)
		}
		k := journal.Key{Job: harp.NewID(), Attempt: 1}
		if err := j.AcceptStart(k, journal.Accept{Info: wire.Encode(map[string]string{"store": "store", "proc": "count"})}, time.Unix(0, 0)); err != nil {
			t.Fatal(err)
		}
		type journalledEnd struct {
			End []byte `msgpack:"end"`
		}
		end := wire.Encode(journalledEnd{wire.Encode(wire.End{RanFor: 1, Value: harp.Value{7}, Started: &wire.Started{}})})
		if _, _, err := j.End(k, journal.End{Body: end}); err != nil {
			t.Fatal(err)
		}
		if err := j.Close(); err != nil {
			t.Fatal(err)
		}
		m.d.set(func(d *dispatcher) { d.welcome.Store = "other" })
		m.boot()
		forget := func() {
			m.peer.forget(wire.HeldAttempt{Job: k.Job, Attempt: 1})
			time.Sleep(time.Second)
		}
		forget()
		m.lose()
		if forget(); !m.agent.Holds(k.Job) {
			t.Error("it is forgotten at once")
		}
		time.Sleep(6 * 24 * time.Hour)
		m.lose()
		if forget(); !m.agent.Holds(k.Job) {
			t.Error("it is forgotten within 7 days")
		}
		time.Sleep(24 * time.Hour)
		m.lose()
		forget()
		m.d.set(func(d *dispatcher) { d.welcome.Store = "store" })
		m.lose()
		if h := m.peer.held; len(h) != 1 || h[0].State != wire.HeldGone {
			t.Errorf("after 7 days it is held as %+v", h)
		}
	})
}

// An agent has one dispatcher at a time: one with another store does not take its place.
func TestSecondDispatcher(t *testing.T) {
	everywhere(t, func(t *testing.T, p place) {
		a := newAgent(t, p)
		offerGreet(a)
		l := p.listen(t, agentID)
		run(t, func(ctx context.Context) error { return a.Serve(ctx, l) })
		meet := func(store string) (*peer, error) {
			d := &dispatcher{t: t, welcome: wire.Welcome{Version: wire.Version, Store: store, Heartbeat: int64(time.Hour)}}
			return d.meet(t.Context(), dial(t, p, l, dispatcherID, transport.ProtocolAgent))
		}
		first, err := meet("one")
		if err != nil {
			t.Fatal(err)
		}
		if second, err := meet("two"); err == nil {
			t.Error("a second dispatcher has a session beside the first")
			second.session.Close(nil)
		}
		if err := first.session.Err(); err != nil {
			t.Fatalf("the session of the first ended: %v", err)
		}
		value[greeting](t, first.call("greet", harp.Pos("Ada")).accepted().end())
		first.session.Close(nil)
		for {
			second, err := meet("two")
			if err != nil {
				continue // the agent has not noticed yet that the first is gone
			}
			value[greeting](t, second.call("greet", harp.Pos("Ada")).accepted().end())
			second.session.Close(nil)
			return
		}
	})
}

// Addresses are alternatives: the agent has one session, over any of them, and when that
// is lost another may have the next.
func TestConnectToAlternatives(t *testing.T) {
	inMemory(t, func(t *testing.T, p place) {
		m := p.(memory)
		met := map[string]int{}
		var last *dispatcher
		connected := func(s *peer, d *dispatcher) *peer {
			met[d.addr]++
			last = d
			return s
		}
		one, two := listen(t, m), listenAs(t, m, "two")
		either := func() *peer {
			select {
			case s := <-one.sessions:
				return connected(s, one)
			case s := <-two.sessions:
				return connected(s, two)
			}
		}
		a := newAgent(t, p)
		offerGreet(a)
		r := run(t, func(ctx context.Context) error { return a.Connect(ctx, one.addr, two.addr) })
		for range 100 {
			s := either()
			time.Sleep(time.Hour)
			if one.greeted()+two.greeted() != met[one.addr]+met[two.addr] {
				t.Fatal("two sessions at a time")
			}
			value[greeting](t, s.call("greet", harp.Pos("Ada")).accepted().end())
			s.session.Close(nil)
		}
		if met[one.addr] == 0 || met[two.addr] == 0 {
			t.Errorf("sessions: %v", met)
		}
		// One that refuses is passed over.
		s := either()
		refusal := harp.FailureOf(harp.ErrUnavailable)
		gone := last
		gone.set(func(d *dispatcher) { d.refuse = &refusal })
		s.session.Close(nil)
		before := time.Now()
		if either(); last == gone || time.Since(before) > time.Minute {
			t.Errorf("the other one is met after %v: %t", time.Since(before), last != gone)
		}
		if err := a.Connect(t.Context(), one.addr); !errors.Is(err, harp.ErrConflict) {
			t.Errorf("a second Connect returns %v", err)
		}
		r.stop()
		r.wait()
	})
	for _, addrs := range [][]string{nil, {""}, {"one", ""}} {
		var wrong *harp.FieldError
		if err := newAgent(t, memory{memnet.New()}).Connect(t.Context(), addrs...); !errors.As(err, &wrong) || wrong.Field != "addr" {
			t.Errorf("Connect to %q returns %v", addrs, err)
		}
	}
}

// greeted is how many agents have said HELLO.
func (d *dispatcher) greeted() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.hellos
}
