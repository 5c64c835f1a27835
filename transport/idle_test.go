package transport_test

import (
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/harpcaller/harp/transport"
)

// The tests of this file are about what a session costs that has nothing to do: a
// dispatcher has ten thousand of them.

// The acceptor's heartbeat follows the opener's: each has to wake up once, not twice.
func TestHeartbeatFollows(t *testing.T) {
	inBubble(t, func(t *testing.T, e ends) {
		e.openerControl.Beat(10 * time.Second)
		e.acceptorControl.Beat(10 * time.Second)
		begin := time.Now()
		for beats, last := 0, begin; beats < 50; {
			time.Sleep(100 * time.Millisecond)
			synctest.Wait()
			asked, answered := e.acceptor.Heard(), e.opener.Heard()
			if asked.Equal(last) {
				continue
			}
			if !answered.Equal(asked) {
				t.Fatalf("the opener's heartbeat came after %v, the acceptor's after %v", asked.Sub(begin), answered.Sub(begin))
			}
			beats, last = beats+1, asked
		}
	})
}

// The first heartbeats of sessions that began together are spread over the interval, and
// those of the acceptors with them.
func TestFirstHeartbeatsSpread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const every, sessions = 10 * time.Second, 50
		var all []ends
		for range sessions {
			e := virtual.connect(t, transport.Options{}, transport.Options{})
			e.openerControl.Beat(every)
			e.acceptorControl.Beat(every)
			all = append(all, e)
		}
		begin := time.Now()
		inTenth := map[time.Duration]int{}
		for range 10 {
			time.Sleep(every / 10)
			synctest.Wait()
			for _, e := range all {
				asked, answered := e.acceptor.Heard(), e.opener.Heard()
				if !asked.Equal(answered) {
					t.Errorf("the opener's first heartbeat came after %v, the acceptor's after %v", asked.Sub(begin), answered.Sub(begin))
				}
				if time.Since(asked) < every/10 && asked.After(begin) {
					inTenth[time.Since(begin)]++
				}
			}
		}
		if len(inTenth) < 6 {
			t.Errorf("the first heartbeats came at %v", inTenth)
		}
		for _, e := range all {
			if !e.acceptor.Heard().After(begin) {
				t.Error("one came later than after the interval")
			}
			e.opener.Close(nil)
			e.acceptor.Close(nil)
		}
	})
}

// Openers of one process send their heartbeats at the same moments, also where their
// intervals differ a little, some dozens of them in an interval, and not all at one.
func TestHeartbeatsComeTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const every, step = 10 * time.Second, 1 << 26 * time.Nanosecond // 67 ms
		moments := map[time.Duration]int{}
		var sessions []ends
		for i := range 100 {
			e := virtual.connect(t, transport.Options{}, transport.Options{})
			e.openerControl.Beat(every - time.Duration(i)*25*time.Millisecond)
			sessions = append(sessions, e)
			time.Sleep(7 * time.Millisecond)
		}
		time.Sleep(every + every/5)
		var first time.Time
		for _, e := range sessions {
			heard := e.acceptor.Heard()
			if first.IsZero() {
				first = heard
			}
			moments[heard.Sub(first)]++
			if apart := heard.Sub(first) % step; apart != 0 {
				t.Errorf("heartbeats %v apart", apart)
			}
			e.opener.Close(nil)
			e.acceptor.Close(nil)
		}
		if len(moments) < 5 {
			t.Errorf("the heartbeats of 100 sessions came at %d moments", len(moments))
		}
	})
}

// That a heartbeat cannot be sent does not keep the peer's silence from being noticed.
func TestSilenceWhileBlocked(t *testing.T) {
	inBubble(t, func(t *testing.T, e ends) {
		start := time.Now()
		sent := make(chan struct{})
		go func() {
			defer close(sent)
			for e.openerControl.Send(transport.Frame{Type: 1, Body: bin(60000)}) == nil {
			}
		}()
		synctest.Wait() // the peer takes nothing more
		e.openerControl.Beat(time.Second)
		<-e.opener.Done()
		<-sent
		if took := time.Since(start); took != 3*time.Second {
			t.Errorf("the session ended after %v: %v", took, e.opener.Err())
		}
	})
}

// Four goroutines at each end, of which each costs a stack.
func TestIdleSessionGoroutines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const sessions, most = 10, 8
		synctest.Wait()
		before := runtime.NumGoroutine()
		var all []ends
		for range sessions {
			all = append(all, virtual.connect(t, transport.Options{}, transport.Options{}))
		}
		synctest.Wait() // those of handshakes are gone
		if got := runtime.NumGoroutine() - before; got > sessions*most {
			t.Errorf("%d goroutines of %d sessions, at most %d each", got, sessions, most)
		}
		for _, e := range all {
			e.opener.Close(nil)
			e.acceptor.Close(nil)
		}
	})
}

// beat sends a heartbeat and a frame behind it, and waits for that: heartbeats are
// not received.
func (e ends) beat(t testing.TB) {
	t.Helper()
	transport.SendBeat(e.openerControl)
	if err := e.openerControl.Send(transport.Frame{Type: 1}); err != nil {
		t.Fatal(err)
	}
	if _, err := e.acceptorControl.Receive(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// Of both ends together. What they leave, a dispatcher at rest has to collect.
func TestHeartbeatAllocations(t *testing.T) {
	e := wiring{openerDials: true}.connect(t, transport.Options{}, transport.Options{})
	e.beat(t) // the first one makes buffers
	const budget = 12
	if got := testing.AllocsPerRun(200, func() { e.beat(t) }); got > budget {
		t.Errorf("%v allocations, at most %d", got, budget)
	}
}

// BenchmarkHeartbeat is a heartbeat, with a frame behind it, over TLS on loopback.
func BenchmarkHeartbeat(b *testing.B) {
	e := wiring{openerDials: true}.connect(b, transport.Options{}, transport.Options{})
	b.ReportAllocs()
	for b.Loop() {
		e.beat(b)
	}
}
