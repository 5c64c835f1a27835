package dispatcher_test

import (
	"errors"
	"fmt"
	"strings"
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

// longPages is so much of a greeting that it is a long one, without the end of its list.
func longPages() []transport.Frame {
	page := wire.Procedures{Procedures: []harp.ProcedureDoc{{Name: "work", Doc: strings.Repeat("x", 40<<10)}}}
	frames := greeting()[:2]
	for range 2 {
		frames = append(frames, transport.Frame{Type: wire.TypeProcedures, Body: wire.Encode(page)})
	}
	return frames
}

// Agents that say much as they connect, whatever certificates they have, do so a few at a time; one that says nothing
// more gives way, and others do not wait for any of them.
func TestLongGreetingsTakeTurns(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, sys *system) {
		say := func(name string, frames []transport.Frame) *rawAgent {
			a := sys.unmetAs(t, name)
			for _, f := range frames {
				_ = a.control.Send(f.Type, false, f.Body) // it may have been closed
			}
			return a
		}
		var stalled []*rawAgent
		for i := range 8 {
			stalled = append(stalled, say(fmt.Sprint("stalled", i), longPages()))
		}
		synctest.Wait()
		if u := usedOf(t, sys, "long greetings"); u != 8 {
			t.Errorf("%d long greetings are shown", u)
		}
		say("long", append(longPages(), greeting()[2:]...))
		say("short", greeting())
		isOnline := func(name string) bool {
			h, err := sys.caller.Hosts().Get(t.Context(), name)
			return err == nil && h.Online
		}
		time.Sleep(time.Second)
		if !isOnline("short") || isOnline("long") {
			t.Error("the short one waits, or the long one does not")
		}
		time.Sleep(5 * time.Second)
		if !isOnline("long") {
			t.Error("one that stands still does not give way")
		}
		for _, a := range stalled {
			<-a.tr.Done()
		}
		synctest.Wait() // until the dispatcher has noticed, too
		if u := usedOf(t, sys, "long greetings"); u != 0 {
			t.Errorf("%d long greetings are shown when all are over", u)
		}
	})
}

// usedOf is how much of a bound is shown as used.
func usedOf(t *testing.T, sys *system, name string) int64 {
	t.Helper()
	return usedBy(t, sys.caller, name)
}

// usedBy is the same of a bound on what one caller has.
func usedBy(t *testing.T, c *harp.Caller, name string) int64 {
	t.Helper()
	info, err := c.Ping(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range info.Bounds {
		if b.Name == name {
			return b.Used
		}
	}
	t.Errorf("no bound %s", name)
	return -1
}

// A later list of procedures that has no end ends the session, as one in the greeting does.
func TestALaterListOfProceduresMustEnd(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, sys *system) {
		a := must[*rawAgent](t)(sys.newRawAgent(t.Context(), "i"))
		a.tr.Beat(10 * time.Second) // it is not silent
		page := wire.Procedures{Procedures: []harp.ProcedureDoc{{Name: "work"}}}
		if err := a.control.Send(wire.TypeProcedures, false, wire.Encode(page)); err != nil {
			t.Fatal(err)
		}
		select {
		case <-a.tr.Done():
		case <-time.After(31 * time.Second):
			t.Error("its session goes on")
		}
	})
}
