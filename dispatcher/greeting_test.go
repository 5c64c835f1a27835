package dispatcher_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/dispatcher"
	"github.com/harpcaller/harp/internal/version"
	"github.com/harpcaller/harp/internal/wire"
	"github.com/harpcaller/harp/store/memory"
	"github.com/harpcaller/harp/transport"
)

// unmet connects an agent that has said nothing yet.
func (s *system) unmet(t *testing.T) *rawAgent { return s.unmetAs(t, "web01") }

func (s *system) unmetAs(t *testing.T, host string) *rawAgent {
	t.Helper()
	addr, tc, dial := s.net.dial("dispatcher", host, transport.RoleAgent)
	nc := must[net.Conn](t)(dial(t.Context(), addr))
	conn := must[*transport.Conn](t)(transport.Client(t.Context(), nc, tc, transport.ProtocolAgent, transport.RoleDispatcher))
	return converse(t, conn, nil)
}

// greeting is what an agent says until it is greeted.
func greeting() []transport.Frame {
	return []transport.Frame{
		{Type: wire.TypeHello, Body: wire.Encode(wire.Hello{Version: wire.Version, Instance: "i", Journal: "j"})},
		{Type: wire.TypeFacts, Body: wire.Encode(wire.Facts{})},
		{Type: wire.TypeProcedures, Body: wire.Encode(wire.Procedures{Procedures: []harp.ProcedureDoc{{Name: "work"}}, Last: true})},
		{Type: wire.TypeHeld, Body: wire.Encode(wire.Held{Last: true})},
		{Type: wire.TypeReady, Body: wire.Encode(wire.Ready{})},
	}
}

// sayHello is HELLO with what is in h, of the agent that is known.
func sayHello(h wire.Hello) transport.Frame {
	h.Version, h.Instance, h.Journal = wire.Version, "i", "j"
	return transport.Frame{Type: wire.TypeHello, Body: wire.Encode(h)}
}

func manyLabels(n int) map[string]string {
	labels := map[string]string{}
	for i := range n {
		labels[fmt.Sprint("label", i)] = "x"
	}
	return labels
}

// What the store does not take of what an agent says is not shown either.
func TestWhatIsNotStoredOfAHostIsNotShown(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, sys *system) {
		a := must[*rawAgent](t)(sys.newRawAgent(t.Context(), "i"))
		synctest.Wait()
		for i := range 60 { // more than a row may have
			a.sendFrame(t, wire.TypeProcedures, wire.Procedures{Procedures: []harp.ProcedureDoc{{Name: fmt.Sprint("p", i), Doc: strings.Repeat("x", 60_000)}}, Last: i == 59})
		}
		<-a.tr.Done()
		synctest.Wait()
		if got := sys.procedures(t); !slices.Equal(got, []string{"work"}) {
			t.Errorf("it offers %d procedures", len(got))
		}
	})
}

// Items that say nothing are short on their way and long in memory: 8 MiB of them took 2 GiB.
func TestListsOfNothingAreBoundedByTheMemoryTheyTake(t *testing.T) {
	page := func(typ transport.Type, key string) transport.Frame {
		body := append([]byte{0x81, 0xa0 | byte(len(key))}, key...)
		body = append(body, 0xdc, 0x0f, 0xa0) // 4,000 of what follows
		return transport.Frame{Type: typ, Body: append(body, bytes.Repeat([]byte{0x80}, 4000)...)}
	}
	procedures, held := page(wire.TypeProcedures, "procs"), page(wire.TypeHeld, "attempts")
	for name, frames := range map[string][]transport.Frame{
		"procedures":        append(greeting()[:2], procedures),
		"held":              append(greeting()[:3], held),
		"procedures, later": append(greeting(), procedures),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				sys := newSystem(t, embedded, nil, dispatcher.Config{})
				a := sys.unmet(t)
				for range 40 { // 160 KiB
					frames = append(frames, frames[len(frames)-1])
				}
				sent := make(chan int, 1)
				go func() {
					n := 0
					for _, f := range frames {
						if a.control.Send(f.Type, false, f.Body) != nil {
							break
						}
						n++
						synctest.Wait()
					}
					sent <- n
				}()
				if n := <-sent; n == len(frames) || a.tr.Err() == nil {
					t.Errorf("%d pages were taken", n)
				}
			})
		})
	}
}

// An agent that says in its greeting what cannot be said there is not let in; the next one is.
func TestWhatCannotBeSaidInAGreetingEndsTheSession(t *testing.T) {
	held := func(acked int64) []byte {
		return wire.Encode(wire.Held{Attempts: []wire.HeldAttempt{{Job: harp.NewID(), Attempt: 1, State: wire.HeldAlive, Acked: acked}}, Last: true})
	}
	bad := []byte{0xc1}
	for name, c := range map[string]struct {
		at    int // which of the frames is
		frame transport.Frame
		ends  bool
	}{
		"another frame than HELLO":                 {0, transport.Frame{Type: wire.TypeReady, Body: wire.Encode(wire.Ready{})}, true},
		"HELLO that cannot be read":                {0, transport.Frame{Type: wire.TypeHello, Body: bad}, true},
		"HELLO with more labels than there may be": {0, sayHello(wire.Hello{Labels: manyLabels(harp.MaxLabels + 1)}), true},
		"HELLO with a label that is too long":      {0, sayHello(wire.Hello{Labels: map[string]string{"a": strings.Repeat("x", 257)}}), true},
		"HELLO with a boot id that is too long":    {0, sayHello(wire.Hello{BootID: strings.Repeat("x", 257)}), true},
		"HELLO with all there may be":              {0, sayHello(wire.Hello{Labels: manyLabels(harp.MaxLabels), BootID: strings.Repeat("x", 256)}), false},
		"another frame than FACTS":                 {1, transport.Frame{Type: wire.TypeHeld, Body: wire.Encode(wire.Held{Last: true})}, true},
		"FACTS that cannot be read":                {1, transport.Frame{Type: wire.TypeFacts, Body: bad}, true},
		"facts that are no value":                  {1, transport.Frame{Type: wire.TypeFacts, Body: wire.Encode(wire.Facts{Facts: bad})}, true},
		"another frame than PROCEDURES":            {2, transport.Frame{Type: wire.TypeFacts, Body: wire.Encode(wire.Facts{})}, true},
		"PROCEDURES that cannot be read":           {2, transport.Frame{Type: wire.TypeProcedures, Body: bad}, true},
		"another frame than HELD":                  {3, transport.Frame{Type: wire.TypeReady, Body: wire.Encode(wire.Ready{})}, true},
		"HELD that cannot be read":                 {3, transport.Frame{Type: wire.TypeHeld, Body: bad}, true},
		"less than no records":                     {3, transport.Frame{Type: wire.TypeHeld, Body: held(-1)}, true},
		"more records than any attempt has":        {3, transport.Frame{Type: wire.TypeHeld, Body: held(1<<48 + 1)}, true},
		"as many records as an attempt has":        {3, transport.Frame{Type: wire.TypeHeld, Body: held(1 << 48)}, false},
		"no records":                               {3, transport.Frame{Type: wire.TypeHeld, Body: held(0)}, false},
		"another frame than READY":                 {4, transport.Frame{Type: wire.TypeFacts, Body: wire.Encode(wire.Facts{})}, true},
		"nothing that could not be said":           {0, greeting()[0], false},
		"an unknown frame when it is greeted":      {5, transport.Frame{Type: 99}, true},
		"FACTS that cannot be read, later":         {5, transport.Frame{Type: wire.TypeFacts, Body: bad}, true},
		"PROCEDURES that are not, later":           {5, transport.Frame{Type: wire.TypeProcedures, Body: bad}, true},
		"BEAT that cannot be read":                 {5, transport.Frame{Type: wire.TypeBeat, Body: bad}, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				sys := newSystem(t, embedded, nil, dispatcher.Config{})
				a := sys.unmet(t)
				frames := append(greeting(), transport.Frame{})
				frames[c.at] = c.frame
				if c.at < 5 {
					frames = frames[:5]
				}
				go func() {
					for _, f := range frames {
						if a.control.Send(f.Type, false, f.Body) != nil {
							return
						}
					}
				}()
				synctest.Wait()
				time.Sleep(time.Second)
				if ended := a.tr.Err() != nil; ended != c.ends {
					t.Errorf("the session has ended: %v, with %v", ended, a.tr.Err())
				}
				if h, _ := sys.caller.Hosts().Get(t.Context(), "web01"); h.Online == c.ends {
					t.Errorf("the host is online: %v", h.Online)
				}
				again := must[*rawAgent](t)(sys.newRawAgent(t.Context(), "i"))
				asked := again.exchanges(t)
				synctest.Wait()
				must[*harp.Job](t)(sys.caller.Host("web01").Call(t.Context(), "work", nil))
				expectCall(t, asked)
			})
		})
	}
}

// An agent of another version is told which one is spoken. Those of version 1 have failures as
// bytes, of which nothing here could be read.
func TestAnAgentOfAnotherVersionIsRefused(t *testing.T) {
	for _, spoken := range []int64{1, wire.Version + 1} {
		inVirtualTime(t, func(t *testing.T, sys *system) {
			_, err := sys.greetRaw(t.Context(), wire.Hello{Version: spoken, Instance: "i", Journal: "j"})
			var no unwelcomeError
			if !errors.As(err, &no) || !errors.Is(no.Err(), harp.ErrRefused) || !strings.Contains(no.Message, fmt.Sprintf("speaks version %d of the protocol, not %d", wire.Version, spoken)) {
				t.Errorf("it is answered %v", err)
			}
		})
	}
}

// What an agent is told when it is let in.
func TestWelcome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := memory.NewDisk()
		st := memory.OpenDisk(disk, nil)
		sys := newSystem(t, embedded, st, dispatcher.Config{Heartbeat: 7 * time.Second, Limits: dispatcher.Limits{Attempts: 33}})
		for epoch := range int64(3) {
			a := must[*rawAgent](t)(sys.newRawAgent(t.Context(), "i"))
			want := wire.Welcome{
				Version: wire.Version, Software: version.Software(), Store: st.ID(), Epoch: epoch + 1,
				Heartbeat: int64(7 * time.Second), Reconnect: int64(10 * time.Second), Time: time.Now().UnixNano(), Max: 33,
			}
			if got := a.welcome; fmt.Sprintf("%+v", got) != fmt.Sprintf("%+v", want) {
				t.Errorf("it is told %+v, want %+v", got, want)
			}
		}
	})
}

// An agent that does not say all of its greeting is not waited for, and keeps no other one
// away.
func TestAGreetingThatIsNotFinishedIsGivenUp(t *testing.T) {
	for n := range len(greeting()) {
		synctest.Test(t, func(t *testing.T) {
			sys := newSystem(t, embedded, nil, dispatcher.Config{})
			begun := time.Now()
			a := sys.unmet(t)
			for _, f := range greeting()[:n] {
				if err := a.control.Send(f.Type, false, f.Body); err != nil {
					t.Error(err)
				}
			}
			<-a.tr.Done()
			if took := time.Since(begun); took < 30*time.Second || took > 31*time.Second {
				t.Errorf("after %d frames it is given up after %v", n, took)
			}
			must[*rawAgent](t)(sys.newRawAgent(t.Context(), "another"))
		})
	}
}

// procedures are those that the host offers, by what its callers are told.
func (s *system) procedures(t *testing.T) (names []string) {
	t.Helper()
	for _, doc := range must[[]harp.ProcedureDoc](t)(s.caller.Hosts().Procedures(t.Context(), "web01")) {
		names = append(names, doc.Name)
	}
	return names
}

// What an agent says of itself while it is connected takes the place of what it has said before,
// once all of it is there.
func TestAnAgentSaysAnewWhatItOffersAndKnows(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, sys *system) {
		a := must[*rawAgent](t)(sys.newRawAgent(t.Context(), "i"))
		asked := a.exchanges(t)
		synctest.Wait()
		a.sendFrame(t, wire.TypeFacts, wire.Facts{Facts: wire.Encode(map[string]string{"os": "plan9"})})
		synctest.Wait()
		if h := must[harp.HostStatus](t)(sys.caller.Hosts().Get(t.Context(), "web01")); h.Facts.String() != `{"os":"plan9"}` || !slices.Equal(sys.procedures(t), []string{"work"}) {
			t.Errorf("it is %+v, and offers %v", h, sys.procedures(t))
		}
		a.sendFrame(t, wire.TypeProcedures, wire.Procedures{Procedures: []harp.ProcedureDoc{{Name: "rest"}}})
		synctest.Wait()
		if got := sys.procedures(t); !slices.Equal(got, []string{"work"}) {
			t.Errorf("amid a new list it offers %v", got)
		}
		a.sendFrame(t, wire.TypeProcedures, wire.Procedures{Procedures: []harp.ProcedureDoc{{Name: "play"}}})
		a.sendFrame(t, wire.TypeProcedures, wire.Procedures{Last: true})
		synctest.Wait()
		h := must[harp.HostStatus](t)(sys.caller.Hosts().Get(t.Context(), "web01"))
		if got := sys.procedures(t); !slices.Equal(got, []string{"play", "rest"}) || h.Facts.String() != `{"os":"plan9"}` {
			t.Errorf("it offers %v, its facts are %s", got, h.Facts)
		}
		if _, err := sys.caller.Host("web01").Call(t.Context(), "work", nil); !errors.Is(err, harp.ErrNotFound) {
			t.Errorf("what it no longer offers gives %v", err)
		}
		must[*harp.Job](t)(sys.caller.Host("web01").Call(t.Context(), "play", nil))
		expectCall(t, asked)
		a.sendFrame(t, wire.TypeProcedures, wire.Procedures{Procedures: []harp.ProcedureDoc{{Name: "never"}}})
		a.sendFrame(t, wire.TypeReady, wire.Ready{})
		<-a.tr.Done() // what is amid a list is another page
		synctest.Wait()
		if got := sys.procedures(t); !slices.Equal(got, []string{"play", "rest"}) {
			t.Errorf("it offers %v", got)
		}
	})
}

// An agent may hold so much that it takes pages, and is told to forget all of it.
func TestAnAgentForgetsPages(t *testing.T) {
	for _, n := range []int{0, 1, 255, 256, 257, 512, 1000} {
		synctest.Test(t, func(t *testing.T) {
			sys := newSystem(t, embedded, nil, dispatcher.Config{})
			a := sys.unmet(t)
			all := greeting()
			var pages []transport.Frame
			want := map[string]bool{}
			for i := range n {
				id := harp.NewID()
				want[id] = true
				pages = append(pages, transport.Frame{Type: wire.TypeHeld, Body: wire.Encode(wire.Held{Attempts: []wire.HeldAttempt{{Job: id, Attempt: 1, State: wire.HeldEnded}}, Last: i == n-1})})
			}
			if n > 0 {
				all = slices.Replace(all, 3, 4, pages...)
			}
			for _, f := range all[:len(all)-1] {
				if err := a.control.Send(f.Type, false, f.Body); err != nil {
					t.Fatal(err)
				}
			}
			must[transport.Frame](t)(a.control.Receive(t.Context())) // WELCOME
			for {
				f := must[transport.Frame](t)(a.control.Receive(t.Context()))
				var m wire.Forget
				if err := wire.Decode(f.Body, &m); err != nil || f.Type != wire.TypeForget || len(m.Attempts) > 256 {
					t.Fatalf("frame %d of %d attempts, %v", f.Type, len(m.Attempts), err)
				}
				for _, h := range m.Attempts {
					if !want[h.Job] {
						t.Errorf("of %d it is told to forget %s twice, or another one's", n, h.Job)
					}
					delete(want, h.Job)
				}
				if m.Last {
					break
				}
			}
			if len(want) > 0 {
				t.Errorf("of %d it is not told to forget %d", n, len(want))
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			if f, err := a.control.Receive(ctx); err == nil {
				t.Errorf("then it is told frame %d", f.Type)
			}
		})
	}
}

// A host is shown as online while its agent is connected, and then as heard when it last was.
func TestAHostIsShownAsOnlineAndAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk, network := memory.NewDisk(), newNetwork(t, embedded)
		sys := newSystemOn(t, embedded, network, memory.OpenDisk(disk, nil), dispatcher.Config{})
		a := must[*rawAgent](t)(sys.newRawAgent(t.Context(), "i"))
		a.tr.Beat(10 * time.Second)
		synctest.Wait()
		time.Sleep(time.Hour)
		h := must[harp.HostStatus](t)(sys.caller.Hosts().Get(t.Context(), "web01"))
		if since := time.Since(h.LastHeard); !h.Online || since < 0 || since > 12*time.Second || h.Error != "" {
			t.Errorf("connected it is %+v, heard %v ago", h, since)
		}
		a.sendFrame(t, wire.TypeReady, wire.Ready{})
		synctest.Wait()
		heard := time.Now()
		a.tr.Close(nil)
		synctest.Wait()
		time.Sleep(time.Hour)
		h = must[harp.HostStatus](t)(sys.caller.Hosts().Get(t.Context(), "web01"))
		if h.Online || h.LastHeard.Sub(heard).Abs() > time.Microsecond {
			t.Errorf("away it is %+v, want that it was heard at %v", h, heard)
		}
		if err := sys.d.Shutdown(context.WithoutCancel(t.Context())); err != nil {
			t.Fatal(err)
		}
		sys = newSystemOn(t, embedded, network, memory.OpenDisk(disk, nil), dispatcher.Config{})
		if h = must[harp.HostStatus](t)(sys.caller.Hosts().Get(t.Context(), "web01")); h.Online || h.LastHeard.Sub(heard).Abs() > time.Microsecond {
			t.Errorf("after a restart it is %+v, want that it was heard at %v", h, heard)
		}
	})
}

// An agent that comes back just before its host would be silent, and whose greeting takes until
// after that, is not silent: its jobs are never unknown.
func TestAHostIsNotSilentWhileItIsGreeted(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, sys *system) {
		i := interrupt(t, sys, saidStart, false)
		time.Sleep(29 * time.Second)
		a := sys.unmet(t)
		frames := greeting()
		frames[3].Body = wire.Encode(wire.Held{Attempts: []wire.HeldAttempt{{Job: i.job.ID(), Attempt: 1, State: wire.HeldAlive, Fence: 1}}, Last: true})
		for n, f := range frames {
			if n == 3 {
				time.Sleep(5 * time.Second)
			}
			if err := a.control.Send(f.Type, false, f.Body); err != nil {
				t.Fatal(err)
			}
		}
		asked := a.exchanges(t)
		if m := <-asked; m.resume == nil {
			t.Errorf("it is asked %+v", m)
		}
		if s := i.status(t); s.State != harp.StateRunning {
			t.Errorf("it is %s", s.State)
		}
		page := must[harp.EventPage](t)(sys.caller.EventsPage(t.Context(), harp.EventFilter{After: harp.EventsFromStart, Types: []string{string(harp.EventJobUnknown)}}, false))
		if len(page.Events) != 0 {
			t.Errorf("the feed tells %+v", page.Events)
		}
	})
}

// What waits for a host that goes is given up when that has been away for as long as it may, though
// nothing else was due.
func TestWhatWaitsIsGivenUpThoughNothingElseIsDue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sys := newSystem(t, embedded, nil, dispatcher.Config{Limits: dispatcher.Limits{Attempts: 1}})
		agent, _, first, m := sys.called(t)
		m.sendFrame(t, wire.TypeAccepted, false, wire.Accepted{Started: &wire.Started{Time: 1}})
		synctest.Wait()
		i := interrupted{job: must[*harp.Job](t)(sys.caller.Host("web01", harp.OfflineWait(10*time.Second)).Call(t.Context(), "work", nil))}
		synctest.Wait()
		agent.tr.Close(nil)
		synctest.Wait()
		time.Sleep(10*time.Second - time.Millisecond)
		if s := i.status(t); s.State != harp.StateQueued {
			t.Errorf("before its time is over it is %s (%s)", s.State, s.Reason)
		}
		time.Sleep(2 * time.Millisecond)
		if s := i.status(t); s.State != harp.StateExpired || s.Started != harp.DidNotRun {
			t.Errorf("after it, it is %s (%s), started %s", s.State, s.Reason, s.Started)
		}
		if s := first.status(t); s.State != harp.StateRunning {
			t.Errorf("what runs is %s", s.State)
		}
	})
}

// TestAGreetingThatComesToNoEndIsNotToldAsOnline: an agent that gives up wherever in its greeting has not been connected. The feed does not tell of it
// as one that came, and is silent then about that it is away.
func TestAGreetingThatComesToNoEndIsNotToldAsOnline(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, sys *system) {
		told := func() (types []harp.EventType) {
			t.Helper()
			for _, e := range must[harp.EventPage](t)(sys.caller.EventsPage(t.Context(), harp.EventFilter{After: harp.EventsFromStart, Host: "web01"}, false)).Events {
				types = append(types, e.Type)
			}
			return types
		}
		var want []harp.EventType
		for range 2 {
			frames := greeting()
			for n := range frames {
				a := sys.unmet(t)
				for _, f := range frames[:n] {
					must[any](t)(nil, a.control.Send(f.Type, false, f.Body))
					synctest.Wait()
				}
				a.tr.Close(nil)
				synctest.Wait()
				if got := told(); !slices.Equal(got, want) {
					t.Fatalf("after %d frames it tells %q, want %q", n, got, want)
				}
			}
			a := must[*rawAgent](t)(sys.newRawAgent(t.Context(), "i"))
			synctest.Wait()
			a.tr.Close(nil)
			synctest.Wait()
			want = append(want, harp.EventHostOnline, harp.EventHostAway)
		}
		if got := told(); !slices.Equal(got, want) {
			t.Errorf("it tells %q, want %q", got, want)
		}
	})
}
