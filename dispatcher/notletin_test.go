package dispatcher_test

import (
	"context"
	"fmt"
	"net"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/dispatcher"
	"github.com/harpcaller/harp/internal/failures"
	"github.com/harpcaller/harp/internal/wire"
	"github.com/harpcaller/harp/store"
	"github.com/harpcaller/harp/store/memory"
	"github.com/harpcaller/harp/transport"
)

// ungranted is a connection over which no long body is let in, but for so many before.
type ungranted struct {
	transport.Link
	before *atomic.Int32
}

func (g ungranted) Streams(window int) transport.Mux {
	return ungrantedMux{g.Link.Streams(window), g.before}
}

type ungrantedMux struct {
	transport.Mux
	before *atomic.Int32
}

// Opened returns the streams for long bodies: the first is accepted.
func (m ungrantedMux) Opened() (transport.Stream, bool, error) {
	st, ok, err := m.Mux.Opened()
	return ungrantedStream{st, m.before}, ok, err
}

// ungrantedStream is one on which nothing is answered.
type ungrantedStream struct {
	transport.Stream
	before *atomic.Int32
}

func (s ungrantedStream) WriteWithin(p []byte, within time.Duration) error {
	if s.before.Add(-1) < 0 {
		return nil
	}
	return s.Stream.WriteWithin(p, within)
}

// slow is a connection over which a long body takes a time, as its agent lets one in after the other.
type slow struct {
	transport.Link
	by time.Duration
}

func (l slow) Streams(window int) transport.Mux { return slowMux{l.Link.Streams(window), l.by} }

type slowMux struct {
	transport.Mux
	by time.Duration
}

func (m slowMux) Opened() (transport.Stream, bool, error) {
	st, ok, err := m.Mux.Opened()
	return slowStream{st, m.by}, ok, err
}

type slowStream struct {
	transport.Stream
	by time.Duration
}

func (s slowStream) WriteWithin(p []byte, within time.Duration) error {
	time.Sleep(s.by)
	return s.Stream.WriteWithin(p, within)
}

// narrow is a connection over which long bodies come with 8 KiB a second. What is on its way waits in between.
type narrow struct {
	transport.Link
	line chan struct{} // holds a value while a piece comes
}

func (l narrow) Streams(window int) transport.Mux { return narrowMux{l.Link.Streams(window), l.line} }

type narrowMux struct {
	transport.Mux
	line chan struct{}
}

func (m narrowMux) Opened() (transport.Stream, bool, error) {
	st, ok, err := m.Mux.Opened()
	return narrowStream{st, m.line}, ok, err
}

type narrowStream struct {
	transport.Stream
	line chan struct{}
}

func (s narrowStream) Read(p []byte) (int, error) {
	n, err := s.Stream.Read(p[:min(len(p), 8<<10)])
	s.line <- struct{}{}
	time.Sleep(time.Duration(n) * time.Second / (8 << 10))
	<-s.line
	return n, err
}

// notLettingIn connects the agent of a host that lets no call with long arguments in, and is well otherwise.
func (s *system) notLettingIn(t *testing.T, host string) (*rawAgent, <-chan agentExchange) {
	t.Helper()
	return s.lettingIn(t, host, 0)
}

// lettingIn is the same of a host that lets so many in before.
func (s *system) lettingIn(t *testing.T, host string, before int32) (*rawAgent, <-chan agentExchange) {
	t.Helper()
	addr, tc, dial := s.net.dial("dispatcher", host, transport.RoleAgent)
	nc := ungranted{must[net.Conn](t)(dial(t.Context(), addr)).(transport.Link), new(atomic.Int32)}
	nc.before.Store(before)
	a := must[*rawAgent](t)(s.greetOn(t.Context(), nc, tc, wire.Hello{Version: wire.Version, Instance: "i", Journal: "j"}, wire.Held{}))
	asked := a.exchanges(t)
	alive(a)
	synctest.Wait()
	return a, asked
}

// slowToLetIn connects the agent of a host that takes a time to let a call with long arguments in.
func (s *system) slowToLetIn(t *testing.T, host string, by time.Duration, features ...string) *rawAgent {
	t.Helper()
	addr, tc, dial := s.net.dial("dispatcher", host, transport.RoleAgent)
	nc := slow{must[net.Conn](t)(dial(t.Context(), addr)).(transport.Link), by}
	return must[*rawAgent](t)(s.greetOn(t.Context(), nc, tc, wire.Hello{Version: wire.Version, Instance: "i", Journal: "j", Features: features}, wire.Held{}))
}

const callsToAgents = "agents: answers of all peers"

// TestCallsThatAreNotLetInAreNotHeld: an agent that lets no call in costs what its session may, however many it has; when
// the session is over they are sent in the next one.
func TestCallsThatAreNotLetInAreNotHeld(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, sys *system) {
		a, _ := sys.notLettingIn(t, "web01")
		const calls, size = 24, 1 << 20
		for range calls {
			must[*harp.Job](t)(sys.caller.Host("web01").Call(t.Context(), "work", harp.Args{"a": make([]byte, size-100)}, unlimited...))
		}
		synctest.Wait()
		if used := usedOf(t, sys, callsToAgents); used < 2*size || used > 3*size {
			t.Errorf("%d MiB are used", used>>20)
		}
		a.tr.Close(nil)
		synctest.Wait()
		if used := usedOf(t, sys, callsToAgents); used != 0 {
			t.Errorf("%d bytes are used without a session", used)
		}
		a = must[*rawAgent](t)(sys.newRawAgent(t.Context(), "i"))
		alive(a)
		asked := a.exchanges(t)
		time.Sleep(time.Minute)
		for range calls {
			m := expectAttempt(t, asked, 1)
			m.sendFrame(t, wire.TypeAccepted, false, wire.Accepted{Started: &wire.Started{Time: 1}})
			m.sendFrame(t, wire.TypeEnd, true, wire.End{})
			close(m.over)
		}
		time.Sleep(time.Minute)
		if used := usedOf(t, sys, callsToAgents); used != 0 {
			t.Errorf("%d bytes are used when all is over", used)
		}
	})
}

// TestACallThatIsNotLetInIsNotAnswered: it holds its queue's slot no longer than one that is let in and not answered.
func TestACallThatIsNotLetInIsNotAnswered(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, sys *system) {
		a, _ := sys.notLettingIn(t, "web01")
		must[*harp.Job](t)(sys.caller.Host("web01").Call(t.Context(), "work", harp.Args{"a": make([]byte, 1<<20-100)}, unlimited...))
		time.Sleep(7 * time.Minute) // of which a slow line needs two
		if a.tr.Err() != nil {
			t.Errorf("within the time the session ended: %v", a.tr.Err())
		}
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if a.tr.Err() == nil {
			t.Error("the session goes on")
		}
	})
}

// TestEachCallThatIsNotLetInIsPaidFor: so are the shortest that do not travel with the frames, with what CALL adds to them.
func TestEachCallThatIsNotLetInIsPaidFor(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, sys *system) {
		_, asked := sys.notLettingIn(t, "web01")
		var unpaid int64
		for size := 16<<10 - 500; size < 16<<10+100; size += 20 {
			must[*harp.Job](t)(sys.caller.Host("web01").Call(t.Context(), "work", harp.Args{"a": make([]byte, size)}, unlimited...))
			synctest.Wait()
			select {
			case <-asked:
			default:
				unpaid += int64(size)
			}
		}
		if used := usedOf(t, sys, callsToAgents); unpaid == 0 || used < unpaid {
			t.Errorf("calls of %d bytes are not let in, and %d are used", unpaid, used)
		}
	})
}

// TestDeafHostsLeaveRoomToOthers: hosts that let no calls in have all the room that there is for calls, and lose it within two minutes when
// another host's call waits for some. While none does they keep their sessions, and so does always a host that is slow.
func TestDeafHostsLeaveRoomToOthers(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, sys *system) {
		const hosts, calls, size = 40, 4, 1 << 20
		call := func(host string) {
			t.Helper()
			must[*harp.Job](t)(sys.caller.Host(host).Call(t.Context(), "work", harp.Args{"a": make([]byte, size-100)}, unlimited...))
		}
		a := must[*rawAgent](t)(sys.newRawAgent(t.Context(), "i"))
		alive(a)
		asked := a.exchanges(t)
		answer := func() {
			t.Helper()
			select {
			case m := <-asked:
				m.sendFrame(t, wire.TypeAccepted, false, wire.Accepted{Started: &wire.Started{Time: 1}})
				m.sendFrame(t, wire.TypeEnd, true, wire.End{})
				close(m.over)
			case <-a.tr.Done():
				t.Fatalf("the session of the host that waits ended: %v", a.tr.Err())
			}
		}
		call("web01") // it has taken one before
		answer()
		first, _ := sys.notLettingIn(t, "deaf00")
		call("deaf00")
		time.Sleep(3 * time.Minute)
		if first.tr.Err() != nil {
			t.Errorf("nobody waits, and its session ended: %v", first.tr.Err())
		}
		slowly := sys.slowToLetIn(t, "slow", 40*time.Second)
		alive(slowly)
		slowly.exchanges(t)
		for range 12 {
			call("slow")
		}
		for i := range hosts {
			host := fmt.Sprintf("deaf%02d", i+1)
			sys.notLettingIn(t, host)
			for range calls {
				call(host)
			}
		}
		synctest.Wait()
		begun := time.Now()
		call("web01")
		answer()
		if took := time.Since(begun); took > 2*time.Minute {
			t.Errorf("it came after %v", took)
		}
		time.Sleep(2 * time.Second) // for which sessions wait that end
		if first.tr.Err() == nil || slowly.tr.Err() != nil {
			t.Errorf("the sessions ended with %v, that of the slow host with %v", first.tr.Err(), slowly.tr.Err())
		}
	})
}

// TestSlowLinesKeepTheirSessions: hosts behind slow lines are sent more calls than there is room for. What waits between the dispatcher and
// one of them has left the one and not come to the other, for two minutes and more; nobody is deaf, and all calls come.
func TestSlowLinesKeepTheirSessions(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, sys *system) {
		const hosts, calls, size = 40, 3, 1 << 20
		agents := make([]*rawAgent, hosts)
		asked := make([]<-chan agentExchange, hosts)
		for i := range agents {
			addr, tc, dial := sys.net.dial("dispatcher", fmt.Sprintf("far%02d", i), transport.RoleAgent)
			nc := narrow{must[net.Conn](t)(dial(t.Context(), addr)).(transport.Link), make(chan struct{}, 1)}
			agents[i] = must[*rawAgent](t)(sys.greetOn(t.Context(), nc, tc, wire.Hello{Version: wire.Version, Instance: "i", Journal: "j"}, wire.Held{}))
			alive(agents[i])
			asked[i] = agents[i].exchanges(t)
		}
		synctest.Wait()
		for i := range agents {
			for range calls {
				must[*harp.Job](t)(sys.caller.Host(fmt.Sprintf("far%02d", i)).Call(t.Context(), "work", harp.Args{"a": make([]byte, size-100)}, unlimited...))
			}
		}
		for range calls {
			for i, a := range agents {
				select {
				case m := <-asked[i]:
					m.sendFrame(t, wire.TypeAccepted, false, wire.Accepted{Started: &wire.Started{Time: 1}})
					m.sendFrame(t, wire.TypeEnd, true, wire.End{})
					close(m.over)
				case <-a.tr.Done():
					t.Fatalf("a session ended: %v", a.tr.Err())
				}
			}
		}
	})
}

// TestHostsThatGoDeafLeaveRoomToOthers: what hosts have taken before gives them as long as a line may still be full of, and no longer.
func TestHostsThatGoDeafLeaveRoomToOthers(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, sys *system) {
		const hosts, before, calls, size = 40, 5, 4, 1 << 20
		call := func(host string) {
			t.Helper()
			must[*harp.Job](t)(sys.caller.Host(host).Call(t.Context(), "work", harp.Args{"a": make([]byte, size-100)}, unlimited...))
		}
		answer := func(m agentExchange) {
			t.Helper()
			m.sendFrame(t, wire.TypeAccepted, false, wire.Accepted{Started: &wire.Started{Time: 1}})
			m.sendFrame(t, wire.TypeEnd, true, wire.End{})
			close(m.over)
		}
		begun := time.Now()
		for i := range hosts { // the last of them wait already
			host := fmt.Sprintf("deaf%02d", i)
			_, asked := sys.lettingIn(t, host, before)
			for range before {
				call(host)
				answer(<-asked)
			}
			for range calls {
				call(host)
			}
		}
		a := must[*rawAgent](t)(sys.newRawAgent(t.Context(), "i"))
		alive(a)
		asked := a.exchanges(t)
		call("web01")
		answer(<-asked)
		if took := time.Since(begun); took > 7*time.Minute {
			t.Errorf("it came after %v", took)
		}
	})
}

// TestCallsOverASlowLine: of many calls that are sent at once the last have as long as those before them take, though these are
// answered meanwhile.
func TestCallsOverASlowLine(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, sys *system) {
		const calls, size = 15, 1 << 20 // at twice the rate at which a line is slow
		a := sys.slowToLetIn(t, "web01", time.Minute)
		asked := a.exchanges(t)
		alive(a)
		for range calls {
			must[*harp.Job](t)(sys.caller.Host("web01").Call(t.Context(), "work", harp.Args{"a": make([]byte, size-100)}, unlimited...))
		}
		for i := range calls {
			select {
			case m := <-asked:
				m.sendFrame(t, wire.TypeAccepted, false, wire.Accepted{Started: &wire.Started{Time: 1}})
				m.sendFrame(t, wire.TypeEnd, true, wire.End{})
				close(m.over)
			case <-a.tr.Done():
				t.Fatalf("after %d calls the session ended: %v", i, a.tr.Err())
			}
		}
	})
}

// TestWhatIsCancelledBeforeItIsSentDoesNotBegin: a call that waits for room to be sent, behind others over a slow line, and is cancelled
// meanwhile has not started, and gives back its slot at once, or when there is space to store that. It is not sent when there is room.
func TestWhatIsCancelledBeforeItIsSentDoesNotBegin(t *testing.T) {
	for _, c := range []struct {
		calls, size int // more than there is room for, in bytes or in streams
		each        time.Duration
		isFull      bool
	}{
		{17, 1 << 20, time.Minute, false},
		{17, 1 << 20, time.Minute, true},
		{80, 20 << 10, 2 * time.Second, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			calls, size, isFull := c.calls, c.size, c.isFull
			disk := memory.NewDisk()
			sys := newSystem(t, embedded, memory.OpenDisk(disk, nil), dispatcher.Config{})
			a := sys.slowToLetIn(t, "web01", c.each)
			asked := a.exchanges(t)
			alive(a)
			var last interrupted
			for range calls {
				last.job = must[*harp.Job](t)(sys.caller.Host("web01").Call(t.Context(), "work", harp.Args{"a": make([]byte, size-100)}, unlimited...))
				synctest.Wait()
			}
			if isFull {
				disk.SetSpace(store.SpaceCritical)
			}
			must[bool](t)(last.job.Cancel(t.Context()))
			synctest.Wait()
			if isFull {
				disk.SetSpace(store.SpacePlenty)
				time.Sleep(2 * time.Second)
			}
			if s := last.status(t); s.State != harp.StateCancelled || s.Started != harp.DidNotRun || a.tr.Err() != nil {
				t.Errorf("%+v: it is %s, started %q; the session: %v", c, s.State, s.Started, a.tr.Err())
			}
			for n := range calls - 1 {
				var m agentExchange
				select {
				case m = <-asked:
				case <-a.tr.Done():
					t.Fatalf("after %d calls the session ended: %v", n, a.tr.Err())
				}
				m.sendFrame(t, wire.TypeAccepted, false, wire.Accepted{Started: &wire.Started{Time: 1}})
				m.sendFrame(t, wire.TypeEnd, true, wire.End{})
				close(m.over)
			}
			time.Sleep(10 * time.Minute)
			expectNothing(t, asked)
		})
	}
}

// TestWhatIsPausedBeforeItIsSentDoesNotBegin: a call that waits for room to be sent, behind others over a slow line, and whose batch, queue
// or host is paused meanwhile is not sent when there is room, and is when it may start again.
func TestWhatIsPausedBeforeItIsSentDoesNotBegin(t *testing.T) {
	type waiting struct {
		sys   *system
		batch *harp.Batch
		far   *rawAgent
	}
	queue := harp.Args{"q": 1}
	onTwo := []harp.Option{harp.StopAfter("1")}
	for name, c := range map[string]struct {
		opts          []harp.Option
		pause, resume func(t *testing.T, w waiting) error
		reason        string
	}{
		"batch": {
			pause:  func(t *testing.T, w waiting) error { return w.batch.Pause(t.Context(), "lunch") },
			resume: func(t *testing.T, w waiting) error { return w.batch.Resume(t.Context()) },
			reason: harp.ReasonBatch,
		},
		"batch that has stopped": {
			opts: onTwo,
			pause: func(t *testing.T, w waiting) error {
				m := <-w.far.exchanges(t)
				m.sendFrame(t, wire.TypeAccepted, false, wire.Accepted{Started: &wire.Started{Time: 1}})
				m.sendFrame(t, wire.TypeEnd, true, wire.End{Failure: failures.New("failed", "no").Err()})
				close(m.over)
				return nil
			},
			resume: func(t *testing.T, w waiting) error { return w.batch.Resume(t.Context()) },
			reason: harp.ReasonBatch,
		},
		"queue": {
			opts: []harp.Option{harp.Queue(queue)},
			pause: func(t *testing.T, w waiting) error {
				return w.sys.caller.Queues().Pause(t.Context(), queue, "disk", time.Time{})
			},
			resume: func(t *testing.T, w waiting) error { return w.sys.caller.Queues().Unpause(t.Context(), queue) },
			reason: harp.ReasonPaused,
		},
		"host": {
			pause: func(t *testing.T, w waiting) error {
				_, err := w.sys.caller.Hosts().Pause(t.Context(), "web01", "disk", time.Time{})
				return err
			},
			resume: func(t *testing.T, w waiting) error {
				_, err := w.sys.caller.Hosts().Unpause(t.Context(), "web01")
				return err
			},
			reason: harp.ReasonWindow,
		},
	} {
		t.Run(name, func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, sys *system) {
				const calls, size = 2, 1 << 20 // all that there is room for
				a := sys.slowToLetIn(t, "web01", time.Minute, harp.NeedBatch)
				asked := a.exchanges(t)
				alive(a)
				target, w := "web01", waiting{sys: sys}
				if c.opts != nil && c.reason == harp.ReasonBatch {
					w.far = sys.slowToLetIn(t, "web02", 0, harp.NeedBatch)
					alive(w.far)
					target = "web01,web02"
				}
				for range calls {
					must[*harp.Job](t)(sys.caller.Host("web01").Call(t.Context(), "work", harp.Args{"a": make([]byte, size-100)}, unlimited...))
					synctest.Wait()
				}
				opts := append(slices.Clone(unlimited), c.opts...)
				w.batch = must[*harp.Batch](t)(sys.caller.Target(target).Call(t.Context(), "work", harp.Args{"a": make([]byte, size-100)}, opts...))
				synctest.Wait()
				last := interrupted{job: w.batch.Job("web01")}
				if s := last.status(t); s.State != harp.StateSent {
					t.Fatalf("before the pause it is %s", s.State)
				}
				if err := c.pause(t, w); err != nil {
					t.Fatal(err)
				}
				for n := range calls {
					var m agentExchange
					select {
					case m = <-asked:
					case <-time.After(time.Hour):
						t.Fatalf("only %d calls are sent; the session: %v", n, a.tr.Err())
					}
					m.sendFrame(t, wire.TypeAccepted, false, wire.Accepted{Started: &wire.Started{Time: 1}})
					m.sendFrame(t, wire.TypeEnd, true, wire.End{})
					close(m.over)
				}
				time.Sleep(10 * time.Minute)
				expectNothing(t, asked)
				if s := last.status(t); s.State != harp.StateQueued || s.Reason != c.reason || a.tr.Err() != nil {
					t.Errorf("paused it is %s (%s); the session: %v", s.State, s.Reason, a.tr.Err())
				}
				if err := c.resume(t, w); err != nil {
					t.Fatal(err)
				}
				time.Sleep(2 * time.Minute)
				if m := expectAttempt(t, asked, 1); m.call.Job != last.job.ID() {
					t.Errorf("it is asked for %s", m.call.Job)
				}
			})
		})
	}
}

// cancellingStore cancels a job, once, behind a look at it that does not show that.
type cancellingStore struct {
	store.Store
	cancel atomic.Pointer[func(id string)]
}

func (s *cancellingStore) Job(ctx context.Context, id string) (*store.Job, error) {
	j, err := s.Store.Job(ctx, id)
	if cancel := s.cancel.Swap(nil); cancel != nil {
		(*cancel)(id)
	}
	return j, err
}

// TestWhatIsCancelledAsItIsSentDoesNotBegin: a call is cancelled behind the last look at its row before it is sent.
func TestWhatIsCancelledAsItIsSentDoesNotBegin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := &cancellingStore{Store: memory.OpenDisk(memory.NewDisk(), nil)}
		sys := newSystem(t, embedded, st, dispatcher.Config{})
		a := must[*rawAgent](t)(sys.newRawAgent(t.Context(), "i"))
		asked := a.exchanges(t)
		alive(a)
		st.cancel.Store(new(func(id string) {
			must[bool](t)(sys.caller.Job(id).Cancel(t.Context()))
			time.Sleep(time.Millisecond) // until the attempt has heard of it
		}))
		i := interrupted{job: must[*harp.Job](t)(sys.caller.Host("web01").Call(t.Context(), "work", nil))}
		time.Sleep(time.Minute)
		expectNothing(t, asked)
		if s := i.status(t); s.State != harp.StateCancelled || s.Started != harp.DidNotRun || a.tr.Err() != nil {
			t.Errorf("it is %s, started %q; the session: %v", s.State, s.Started, a.tr.Err())
		}
	})
}
