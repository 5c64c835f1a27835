package agent_test

import (
	"context"
	"fmt"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/harpcaller/harp/internal/wire"
	"github.com/harpcaller/harp/transport"
)

// TestSessionsAreBounded opens as many direct sessions as an agent allows: one caller alone may have
// half of them, and beside others its share; one that is refused is told why, and a session that ends makes room.
func TestSessionsAreBounded(t *testing.T) {
	inMemory(t, func(t *testing.T, p place) {
		l := p.listen(t, agentID)
		run(t, func(ctx context.Context) error { return newAgent(t, p).Serve(ctx, l) })
		var open []*transport.Session
		add := func(who string, n int) {
			for range n {
				s, refusal := openDirect(t, p, l, who)
				if refusal != "" {
					t.Fatalf("session %d, of %s, is refused: %s", len(open)+1, who, refusal)
				}
				open = append(open, s)
			}
		}
		wantRefused := func(who, why string) {
			t.Helper()
			if s, refusal := openDirect(t, p, l, who); !strings.Contains(refusal, why) {
				t.Errorf("a session of %s: %q, want %q", who, refusal, why)
			} else {
				s.Close(nil)
			}
			synctest.Wait()
		}
		add("greedy", 512)
		wantRefused("greedy", "of which 512 are of harp://"+fleet+"/caller/greedy, at most 64 beside others")
		for n := range 8 {
			add(fmt.Sprint("c", n), 64)
		}
		wantRefused("c9", "1024 sessions with direct callers, at most 1024")
		open[0].Close(nil)
		synctest.Wait()
		add("c9", 1)
		for _, s := range open {
			s.Close(nil)
		}
	})
}

// TestOneDispatcherLeavesRoomForAnother has a dispatcher of the fleet open sessions that it does not go on with: the agent
// lets it have half of those there may be, and another dispatcher is heard.
func TestOneDispatcherLeavesRoomForAnother(t *testing.T) {
	inMemory(t, func(t *testing.T, p place) {
		l := p.listen(t, agentID)
		run(t, func(ctx context.Context) error { return newAgent(t, p).Serve(ctx, l) })
		greedy := transport.Identity{Fleet: dispatcherID.Fleet, Role: dispatcherID.Role, Name: "greedy"}
		heard := 0
		for range 64 {
			d := &dispatcher{t: t}
			s, err := dial(t, p, l, greedy, transport.ProtocolAgent).Opener(t.Context(), transport.Options{Logger: silent, MaxFrame: wire.MaxBody})
			if err != nil {
				continue
			}
			if newPeer(d.t, s).hear(t.Context(), wire.TypeHello, new(wire.Hello)) == nil {
				heard++
			}
		}
		if heard != 32 {
			t.Errorf("%d of 64 sessions are heard, want 32", heard)
		}
		d := &dispatcher{t: t, welcome: wire.Welcome{Version: wire.Version, Store: "real", Epoch: 1, Heartbeat: int64(time.Hour)}}
		if _, err := d.meet(t.Context(), dial(t, p, l, dispatcherID, transport.ProtocolAgent)); err != nil {
			t.Errorf("another dispatcher is not heard: %v", err)
		}
	})
}

// openDirect begins a direct session; refusal is why the agent refuses it.
func openDirect(t *testing.T, p place, l net.Listener, who string) (s *transport.Session, refusal string) {
	t.Helper()
	id := transport.Identity{Fleet: callerID.Fleet, Role: callerID.Role, Name: who}
	s, err := dial(t, p, l, id, transport.ProtocolDirect).Opener(t.Context(), transport.Options{Logger: silent, MaxFrame: wire.MaxBody})
	if err != nil {
		t.Fatal(err)
	}
	c := newPeer(t, s)
	c.say(wire.TypeHello, wire.Hello{Version: wire.Version})
	f, err := c.control.Receive(t.Context())
	switch {
	case err != nil:
		t.Fatal(err)
	case f.Type == wire.TypeUnwelcome:
		var m wire.Unwelcome
		if err := wire.Decode(f.Body, &m); err != nil {
			t.Fatal(err)
		}
		return s, m.Failure.Error()
	case f.Type != wire.TypeWelcome:
		t.Fatalf("frame type %d answers HELLO", f.Type)
	}
	return s, ""
}
