package transport_test

import (
	"errors"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/harpcaller/harp/internal/needs"
	"github.com/harpcaller/harp/transport"
)

// The tests of this file are about what a session costs that has nothing to do: a
// dispatcher has ten thousand of them.

// The acceptor's heartbeat follows the opener's: each has to wake up once, not twice.
func TestHeartbeatFollows(t *testing.T) {
	inBubble(t, func(t *testing.T, e ends) {
		e.opener.Beat(10 * time.Second)
		e.acceptor.Beat(10 * time.Second)
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
			e.serve(t, nil)
			e.opener.Beat(every)
			e.acceptor.Beat(every)
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
			e.serve(t, nil)
			e.opener.Beat(every - time.Duration(i)*25*time.Millisecond)
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
	synctest.Test(t, func(t *testing.T) {
		e := virtual.connect(t, transport.Options{}, transport.Options{})
		var all sync.WaitGroup
		all.Go(func() { _ = e.opener.Serve(nil) }) // and nobody reads at the other end
		start, took := time.Now(), time.Duration(0)
		all.Go(func() {
			for x := e.exchange(t); x.Send(1, false, bin(16000)) == nil; {
			}
			took = time.Since(start)
		})
		synctest.Wait() // the peer takes nothing more
		e.opener.Beat(time.Second)
		<-e.opener.Done()
		e.acceptor.Close(nil)
		all.Wait()
		if took != 3*time.Second || !errors.Is(e.opener.Err(), transport.ErrSilent) {
			t.Errorf("the session ended after %v: %v", took, e.opener.Err())
		}
	})
}

// One goroutine at each end, which reads, of which each costs a stack; those that write
// and handle go when the next heartbeat is sent.
func TestIdleSessionGoroutines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const sessions = 10
		before := goroutinesHere()
		var all []ends
		for range sessions {
			e := virtual.connect(t, transport.Options{}, transport.Options{})
			e.serve(t, echo)
			e.opener.Beat(time.Minute)
			e.acceptor.Beat(time.Minute)
			var held []*transport.Exchange
			for range 20 {
				x := e.exchange(t)
				send(t, x, 1, false, nil)
				held = append(held, x)
			}
			for _, x := range held {
				want(t, x, transport.Frame{Type: 1})
				x.Release()
			}
			all = append(all, e)
		}
		for range 2 {
			time.Sleep(time.Minute + 10*time.Second)
			synctest.Wait()
			if got := goroutinesHere() - before; got != 2*sessions {
				t.Errorf("%d goroutines of %d sessions, want one for each end", got, sessions)
			}
		}
		for _, e := range all {
			if err := roundTrip(t.Context(), e.opener); err != nil {
				t.Error(err)
			}
			e.opener.Close(nil)
			e.acceptor.Close(nil)
		}
	})
}

var bubbleName = regexp.MustCompile(`synctest bubble \d+`)

// goroutinesHere counts the goroutines of the synctest bubble of its caller, those of tests beside it left out.
func goroutinesHere() int {
	stacks := make([]byte, 1<<20)
	for n := runtime.Stack(stacks, true); ; n = runtime.Stack(stacks, true) {
		if n < len(stacks) {
			stacks = stacks[:n]
			break
		}
		stacks = make([]byte, 2*len(stacks))
	}
	own, _, _ := strings.Cut(string(stacks), "\n")
	bubble := bubbleName.FindString(own)
	count := 0
	for line := range strings.Lines(string(stacks)) {
		if strings.HasPrefix(line, "goroutine ") && bubble != "" && bubble == bubbleName.FindString(line) {
			count++
		}
	}
	return count
}

// beat sends a heartbeat and a frame behind it, and waits for that: heartbeats are
// not received.
func (e ends) beat(t testing.TB) {
	t.Helper()
	transport.SendBeat(e.opener)
	send(t, e.opener.Control(), 1, false, nil)
	if _, err := e.acceptor.Control().Receive(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// Of both ends together. What they leave, a dispatcher at rest has to collect.
func TestHeartbeatAllocations(t *testing.T) {
	needs.NoRaceDetector(t)
	e := wiring{openerDials: true}.connect(t, transport.Options{}, transport.Options{})
	e.serve(t, nil)
	e.beat(t) // the first one makes buffers
	const budget = 12
	if got := testing.AllocsPerRun(200, func() { e.beat(t) }); got > budget {
		t.Errorf("%v allocations, at most %d", got, budget)
	}
}

// BenchmarkHeartbeat is a heartbeat, with a frame behind it, over TLS on loopback.
func BenchmarkHeartbeat(b *testing.B) {
	e := wiring{openerDials: true}.connect(b, transport.Options{}, transport.Options{})
	e.serve(b, nil)
	b.ReportAllocs()
	for b.Loop() {
		e.beat(b)
	}
}
