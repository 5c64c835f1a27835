package dispatcher_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/dispatcher"
	"github.com/harpcaller/harp/internal/wire"
	"github.com/harpcaller/harp/transport"
)

// An agent that begins to greet and says no more does not keep another one of its name away:
// it gives way after 3 s, however far it got and however often it comes back.
func TestAStalledGreetingGivesWay(t *testing.T) {
	for n := 1; n < len(greeting()); n++ {
		synctest.Test(t, func(t *testing.T) {
			sys := newSystem(t, embedded, nil, dispatcher.Config{})
			stall := func() *rawAgent {
				a := sys.unmet(t)
				for _, f := range greeting()[:n] {
					_ = a.control.Send(f.Type, false, f.Body) // it may have been closed
				}
				return a
			}
			var stalled []*rawAgent
			for range 3 {
				stalled = append(stalled, stall())
				synctest.Wait()
			}
			begun := time.Now()
			honest := make(chan *rawAgent)
			go func() {
				a, err := sys.newRawAgent(t.Context(), "honest")
				if err != nil {
					t.Error(err)
				}
				honest <- a
			}()
			time.Sleep(time.Millisecond)
			for range 3 { // behind it
				stalled = append(stalled, stall())
				synctest.Wait()
			}
			a := <-honest
			if took := time.Since(begun); took > 9*time.Second {
				t.Errorf("after %d frames of others it is greeted after %v", n, took)
			}
			synctest.Wait()
			for _, other := range stalled[:3] {
				if other.tr.Err() == nil {
					t.Errorf("after %d frames one that stalls has a session", n)
				}
			}
			go a.answerProbes()
			a.tr.Beat(10 * time.Second)
			time.Sleep(time.Minute)
			if h := must[harp.HostStatus](t)(sys.caller.Hosts().Get(t.Context(), "web01")); !h.Online || a.tr.Err() != nil {
				t.Errorf("a minute later the host is online: %v, its session ended with %v", h.Online, a.tr.Err())
			}
		})
	}
}

// One that takes its time, and whom nobody waits for, is greeted.
func TestASlowGreetingGoesOn(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, sys *system) {
		a := sys.unmet(t)
		for _, f := range greeting() {
			if err := a.control.Send(f.Type, false, f.Body); err != nil {
				t.Error(err)
			}
			time.Sleep(5 * time.Second)
		}
		if h, err := sys.caller.Hosts().Get(t.Context(), "web01"); err != nil || !h.Online {
			t.Errorf("the host is online: %v, %v", h.Online, err)
		}
	})
}

// What a caller says in the control exchange behind HELLO nobody takes: it ends its session. Enough of it would
// keep that from being read, and the caller, when it has gone, from being found silent.
func TestACallerSaysNoMoreThanHello(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, sys *system) {
		addr, tc, dial := sys.net.dial("dispatcher", "attacker", transport.RoleCaller)
		for _, typ := range []transport.Type{wire.TypeHello, wire.TypePing, 99} {
			raw := newRawCaller(t, addr, tc, dial)
			if _, err := raw.ask(t.Context(), wire.TypePing, nil); err != nil {
				t.Error(err)
			}
			synctest.Wait()
			_ = raw.tr.Control().Send(typ, false, wire.Encode(wire.Hello{Version: wire.Version}))
			synctest.Wait()
			if err := raw.tr.Err(); !errors.Is(err, transport.ErrSessionClosed) {
				t.Errorf("after a frame %d its session: %v", typ, err)
			}
		}
	})
}
