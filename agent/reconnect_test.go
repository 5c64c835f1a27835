package agent_test

import (
	"context"
	"errors"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/agent"
	"github.com/harpcaller/harp/internal/wire"
	"github.com/harpcaller/harp/transport"
)

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
