package dispatcher_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/agent"
	"github.com/harpcaller/harp/dispatcher"
	"github.com/harpcaller/harp/internal/wire"
	"github.com/harpcaller/harp/store"
	"github.com/harpcaller/harp/store/memory"
	"github.com/harpcaller/harp/transport"
)

// The intervals of the tests of this file: what is configured is right for two agents,
// and eight are told four times as much.
const (
	shortBeat = 10 * time.Millisecond
	longBeat  = 80 * time.Millisecond
)

// beatingAgent is a rawAgent with heartbeats. It says what it is told in told.
type beatingAgent struct {
	*rawAgent
	told chan time.Duration
}

func (s *system) newBeatingAgent(features ...string) beatingAgent {
	hello := wire.Hello{Version: wire.Version, Instance: "i", Journal: "j", Features: features}
	a := beatingAgent{must[*rawAgent](s.t)(s.greetRaw(s.t.Context(), hello)), make(chan time.Duration, 100)}
	a.tr.Beat(time.Duration(a.welcome.Heartbeat))
	s.online.wait("web01")
	go func() {
		for {
			f, err := a.control.Receive(context.Background())
			if err != nil {
				return
			}
			var m wire.Beat
			if err := wire.Decode(f.Body, &m); err != nil || f.Type != wire.TypeBeat {
				s.t.Errorf("frame %d is %x: %v", f.Type, f.Body, err)
			}
			a.told <- time.Duration(m.Heartbeat)
		}
	}()
	return a
}

// hold holds to an interval that it was told.
func (a beatingAgent) hold(t *testing.T, every time.Duration) {
	t.Helper()
	a.tr.Beat(every)
	a.sendFrame(t, wire.TypeBeat, wire.Beat{Heartbeat: int64(every)})
	synctest.Wait()
}

// expectPace checks how far apart what the dispatcher sends is.
func (a beatingAgent) expectPace(t *testing.T, every time.Duration) {
	t.Helper()
	synctest.Wait()
	first := a.tr.Heard()
	for n, last := 0, first; n < 20; {
		time.Sleep(time.Millisecond)
		synctest.Wait()
		heard := a.tr.Heard()
		if heard.Equal(last) {
			if time.Since(heard) > 2*every {
				t.Fatalf("nothing was heard for %v", time.Since(heard))
			}
			continue
		}
		if gap := heard.Sub(last); n > 0 && (gap < every*8/10 || gap > every*12/10) {
			t.Errorf("heartbeats are %v apart, want %v", gap, every)
		}
		n, last = n+1, heard
	}
}

// expectSilenceAfter checks when the dispatcher gives up who says nothing any more.
func (a beatingAgent) expectSilenceAfter(t *testing.T, want time.Duration) {
	t.Helper()
	a.tr.Beat(0)
	begun := time.Now()
	<-a.tr.Done()
	if waited := time.Since(begun); waited > want || waited < want*2/3-want/20 {
		t.Errorf("it was given up after %v, want three intervals, %v, after it was last heard", waited, want)
	}
}

// fill connects agents until there are n more.
func (s *system) fill(n int) (stop func()) {
	s.t.Helper()
	var stops []func()
	for i := range n {
		stops = append(stops, s.agent(fmt.Sprint("other", i), func(*agent.Agent) {}))
	}
	return func() {
		for _, stop := range stops {
			stop()
		}
	}
}

func withBeats(t *testing.T, body func(t *testing.T, sys *system)) {
	synctest.Test(t, func(t *testing.T) {
		body(t, newSystem(t, embedded, nil, dispatcher.Config{Heartbeat: shortBeat}))
	})
}

// Those who came first are told what is right for the fleet that came after them, and
// for what is left of it.
func TestTheIntervalFollowsTheFleet(t *testing.T) {
	withBeats(t, func(t *testing.T, sys *system) {
		a := sys.newBeatingAgent(wire.FeatureBeat)
		a.expectPace(t, shortBeat)
		stop := sys.fill(7)
		if told := <-a.told; told != longBeat {
			t.Errorf("with eight agents it is told %v", told)
		}
		a.hold(t, longBeat)
		a.expectPace(t, longBeat)
		stop()
		if told := <-a.told; told != shortBeat {
			t.Errorf("with one agent it is told %v", told)
		}
		a.hold(t, shortBeat)
		a.expectPace(t, shortBeat)
		if len(a.told) > 0 || a.tr.Err() != nil {
			t.Errorf("it was told %d times more; %v", len(a.told), a.tr.Err())
		}
		a.expectSilenceAfter(t, 3*shortBeat)
	})
}

// What is nearly right is left as it is.
func TestASmallChangeIsNotTold(t *testing.T) {
	withBeats(t, func(t *testing.T, sys *system) {
		stop := sys.fill(7)
		defer stop()
		a := sys.newBeatingAgent(wire.FeatureBeat)
		time.Sleep(time.Second)
		if first := time.Duration(a.welcome.Heartbeat); first > longBeat || first < longBeat*3/4 {
			t.Errorf("the eighth is welcomed with %v", first)
		}
		if len(a.told) > 0 {
			t.Errorf("it is told %v", <-a.told)
		}
	})
}

// An agent that hears of a longer interval late waits no longer than it did for the
// dispatcher, which goes on as before. When it is dead it is noticed.
func TestALongerIntervalHeardLate(t *testing.T) {
	withBeats(t, func(t *testing.T, sys *system) {
		a := sys.newBeatingAgent(wire.FeatureBeat)
		stop := sys.fill(7)
		defer stop()
		<-a.told
		a.expectPace(t, shortBeat)
		time.Sleep(time.Second)
		if len(a.told) > 0 || a.tr.Err() != nil {
			t.Errorf("it was told %d times more; %v", len(a.told), a.tr.Err())
		}
		a.expectSilenceAfter(t, 3*longBeat)
	})
}

// An agent that hears of a shorter interval late is not silent.
func TestAShorterIntervalHeardLate(t *testing.T) {
	withBeats(t, func(t *testing.T, sys *system) {
		a := sys.newBeatingAgent(wire.FeatureBeat)
		stop := sys.fill(7)
		a.hold(t, <-a.told)
		stop()
		<-a.told
		a.expectPace(t, shortBeat) // or it would not hear enough as soon as it heeds it
		time.Sleep(time.Second)
		if len(a.told) > 0 || a.tr.Err() != nil {
			t.Errorf("it was told %d times more; %v", len(a.told), a.tr.Err())
		}
		a.hold(t, shortBeat)
		time.Sleep(time.Second)
		if a.tr.Err() != nil {
			t.Errorf("the session ended: %v", a.tr.Err())
		}
		a.expectSilenceAfter(t, 3*shortBeat)
	})
}

// An agent of before there was BEAT keeps the interval that it was welcomed with.
func TestAnAgentThatKnowsNoBeatIsToldNone(t *testing.T) {
	withBeats(t, func(t *testing.T, sys *system) {
		a := sys.newBeatingAgent()
		stop := sys.fill(7)
		defer stop()
		a.expectPace(t, shortBeat)
		if len(a.told) > 0 {
			t.Errorf("it is told %v", <-a.told)
		}
		a.expectSilenceAfter(t, 3*shortBeat)
	})
}

// An answer to nothing is a breach of the protocol: it would let an agent put off
// what is due.
func TestABeatThatNobodyAskedForEndsTheSession(t *testing.T) {
	withBeats(t, func(t *testing.T, sys *system) {
		a := sys.newBeatingAgent(wire.FeatureBeat)
		a.sendFrame(t, wire.TypeBeat, wire.Beat{Heartbeat: int64(longBeat)})
		synctest.Wait()
		if !errors.Is(a.tr.Err(), transport.ErrSessionClosed) {
			t.Errorf("the session ended with %v", a.tr.Err())
		}
	})
}

// The jobs of a host that falls silent are unknown after three of the intervals in
// force, not of those that it was welcomed with.
func TestJobsAreUnknownByTheIntervalInForce(t *testing.T) {
	withBeats(t, func(t *testing.T, sys *system) {
		a := sys.newBeatingAgent(wire.FeatureBeat)
		asked := a.exchanges(t)
		stop := sys.fill(7)
		defer stop()
		a.hold(t, <-a.told)
		job := must[*harp.Job](t)(sys.caller.Host("web01").Call(t.Context(), "work", nil))
		m := <-asked
		m.sendFrame(t, wire.TypeAccepted, false, wire.Accepted{Started: &wire.Started{Time: 1}})
		synctest.Wait()
		a.tr.Close(nil)
		time.Sleep(3*longBeat - longBeat/4)
		synctest.Wait()
		if s := must[harp.JobStatus](t)(job.Status(t.Context())); s.State != harp.StateRunning {
			t.Errorf("too soon it is %s", s.State)
		}
		time.Sleep(longBeat / 2)
		synctest.Wait()
		if s := must[harp.JobStatus](t)(job.Status(t.Context())); s.State != harp.StateUnknown {
			t.Errorf("then it is %s", s.State)
		}
	})
}

// Agents that come and go by the dozen make none of the others come anew.
func TestAFleetThatChangesLosesNobody(t *testing.T) {
	withBeats(t, func(t *testing.T, sys *system) {
		sys.agent("stays", func(*agent.Agent) {})
		for _, n := range []int{20, 5, 60, 0, 40, 1} {
			stop := sys.fill(n)
			time.Sleep(2 * time.Second)
			for i := range n {
				if again := len(sys.online.host(fmt.Sprint("other", i))); again > 0 {
					t.Errorf("of %d, one came again", n)
				}
			}
			stop()
			time.Sleep(time.Duration(n) * time.Millisecond)
		}
		time.Sleep(time.Second)
		if again := len(sys.online.host("stays")); again > 0 {
			t.Errorf("it came again %d times", again)
		}
	})
}

// After a restart nobody is silent before three of the intervals that the fleet had.
func TestAFleetThatComesBackKeepsItsInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const hosts, want = 40, 3 * 400 * time.Millisecond
		st := memory.Open(nil)
		for i := range hosts {
			name := fmt.Sprint("host", i)
			must[uint64](t)(st.OpenSession(t.Context(), store.Session{Host: name, At: time.Now()}))
			row := must[store.Host](t)(st.Host(t.Context(), name))
			row.Connected = true
			if err := st.PutHost(t.Context(), row); err != nil {
				t.Fatal(err)
			}
		}
		st.SetGate("host0", store.Gate{Open: true, Most: 1})
		call := store.Submission{Job: store.Job{ID: harp.NewID(), Host: "host0", Procedure: "p", OfflineWait: harp.NoLimit, SubmitTime: time.Now()}}
		call.Request.Request = harp.Request{ID: call.Job.ID, Host: "host0", Procedure: "p"}.Encode()
		if out := must[[]store.Submitted](t)(st.Submit(t.Context(), []store.Submission{call}, time.Now())); out[0].Job.State != harp.StateSent {
			t.Fatalf("%+v", out)
		}
		sys := newSystem(t, embedded, st, dispatcher.Config{Heartbeat: shortBeat})
		opened := time.Now()
		job := sys.caller.Job(call.Job.ID)
		for must[harp.JobStatus](t)(job.Status(t.Context())).State != harp.StateUnknown {
			time.Sleep(time.Millisecond)
		}
		if took := time.Since(opened); took < want || took > want+want/10 {
			t.Errorf("its host was taken for silent after %v, want %v", took, want)
		}
	})
}
