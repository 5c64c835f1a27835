package transport_test

import (
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/harpcaller/harp/transport"
)

func TestHeartbeatKeepsAlive(t *testing.T) {
	inBubble(t, func(t *testing.T, e ends) {
		e.opener.Beat(10 * time.Second)
		e.acceptor.Beat(10 * time.Second)
		for range 100 {
			time.Sleep(time.Minute)
			for _, s := range []*transport.Session{e.opener, e.acceptor} {
				if err := s.Err(); err != nil {
					t.Fatal(err)
				}
				if ago := time.Since(s.Heard()); ago > 11*time.Second {
					t.Errorf("last heard %v ago", ago)
				}
			}
		}
	})
}

// The interval varies by a tenth, and not by more. The first heartbeat comes at any moment
// within it.
func TestHeartbeatJitter(t *testing.T) {
	inBubble(t, func(t *testing.T, e ends) {
		start := time.Now()
		e.opener.Beat(10 * time.Second)
		e.acceptor.Beat(10 * time.Second)
		seen := make(map[time.Duration]bool)
		last := time.Duration(0)
		for at := time.Duration(0); at < 20*time.Minute; at += 100 * time.Millisecond {
			time.Sleep(100 * time.Millisecond)
			synctest.Wait()
			heard := e.acceptor.Heard().Sub(start)
			if heard == last {
				continue
			}
			switch gap := heard - last; {
			case last == 0 && gap <= 10*time.Second:
			case gap < 9*time.Second || gap > 11*time.Second:
				t.Errorf("a heartbeat after %v", gap)
			default:
				seen[gap.Round(100*time.Millisecond)] = true
			}
			last = heard
		}
		if len(seen) < 8 {
			t.Errorf("only %d different intervals", len(seen))
		}
	})
}

func TestSilence(t *testing.T) {
	inBubble(t, func(t *testing.T, e ends) {
		time.Sleep(time.Hour) // nothing was heard, and nothing had to be
		start := time.Now()
		e.acceptor.Beat(10 * time.Second) // heard by the opener, who says nothing
		<-e.acceptor.Done()
		if err := e.acceptor.Err(); !errors.Is(err, transport.ErrSilent) {
			t.Errorf("the session ended with %v", err)
		}
		if after := time.Since(start); after != 30*time.Second {
			t.Errorf("the session ended after %v", after)
		}
		<-e.opener.Done()
		if err := e.opener.Err(); !errors.Is(err, transport.ErrSessionClosed) {
			t.Errorf("the peer's ended with %v", err)
		}
	})
}

// Any frame is a sign of life, of whatever exchange.
func TestSilenceCountsEveryFrame(t *testing.T) {
	inBubble(t, func(t *testing.T, e ends) {
		x := e.exchange(t)
		e.acceptor.Beat(10 * time.Second)
		for range 20 {
			time.Sleep(29 * time.Second)
			send(t, x, 1, false, nil)
			want(t, x, transport.Frame{Type: 1})
		}
		if err := e.acceptor.Err(); err != nil {
			t.Errorf("the session ended with %v", err)
		}
		start := time.Now()
		<-e.acceptor.Done()
		if after := time.Since(start); after != 30*time.Second {
			t.Errorf("the session ended after %v", after)
		}
	})
}

// Another interval counts from the moment it is set.
func TestBeatAgain(t *testing.T) {
	inBubble(t, func(t *testing.T, e ends) {
		e.acceptor.Beat(time.Hour)
		time.Sleep(2 * time.Hour)
		e.acceptor.Beat(time.Second)
		e.opener.Beat(time.Second)
		time.Sleep(time.Minute)
		if err := errors.Join(e.acceptor.Err(), e.opener.Err()); err != nil {
			t.Fatalf("the session ended with %v", err)
		}
		e.opener.Beat(0)
		e.acceptor.Beat(0)
		time.Sleep(24 * time.Hour)
		if err := errors.Join(e.acceptor.Err(), e.opener.Err()); err != nil {
			t.Fatalf("the session ended with %v", err)
		}
	})
}

// To change the intervals puts off neither the heartbeat nor the notice of silence.
func TestChangeBeginsNothingAnew(t *testing.T) {
	inBubble(t, func(t *testing.T, e ends) {
		start := time.Now()
		e.acceptor.Beat(10 * time.Second)
		for e.acceptor.Err() == nil {
			time.Sleep(time.Second)
			e.acceptor.ChangeBeat(9*time.Second, 20*time.Second)
			if ago := time.Since(e.opener.Heard()); ago > 12*time.Second {
				t.Fatalf("no heartbeat for %v", ago)
			}
		}
		if after := time.Since(start); after < time.Minute || after > 61*time.Second { // one look a second
			t.Errorf("the session ended after %v: %v", after, e.acceptor.Err())
		}
	})
}

// Each side may hold to an interval of its own.
func TestChangeForEachSide(t *testing.T) {
	inBubble(t, func(t *testing.T, e ends) {
		e.opener.ChangeBeat(time.Second, time.Second) // nothing is to be changed yet
		e.opener.Beat(10 * time.Second)
		e.acceptor.Beat(10 * time.Second)
		e.opener.ChangeBeat(10*time.Second, time.Minute)
		e.acceptor.ChangeBeat(time.Minute, 10*time.Second)
		time.Sleep(time.Hour)
		if err := errors.Join(e.opener.Err(), e.acceptor.Err()); err != nil {
			t.Fatalf("the session ended with %v", err)
		}
		if ago := time.Since(e.acceptor.Heard()); ago > 11*time.Second {
			t.Errorf("the opener was heard %v ago", ago)
		}
		if ago := time.Since(e.opener.Heard()); ago < 0 || ago > 66*time.Second {
			t.Errorf("the acceptor was heard %v ago", ago)
		}
		start := time.Now()
		e.acceptor.Beat(0)
		<-e.opener.Done()
		if after := time.Since(start); after < 114*time.Second || after > 180*time.Second {
			t.Errorf("the session ended after %v: %v", after, e.opener.Err())
		}
	})
}

// A frame may go in the place of a heartbeat, and is as good.
func TestOnBeat(t *testing.T) {
	inBubble(t, func(t *testing.T, e ends) {
		var times atomic.Int32
		e.opener.OnBeat(func() (transport.Frame, bool) {
			asked := times.Add(1)
			return transport.Frame{Type: 5, Body: []byte{byte(asked)}}, asked == 2
		})
		e.opener.Beat(10 * time.Second)
		e.acceptor.Beat(10 * time.Second)
		f, err := e.acceptor.Control().Receive(t.Context())
		if want := (transport.Frame{Type: 5, Body: []byte{2}}); err != nil || !equal(f, want) {
			t.Errorf("received %+v, %v", f, err)
		}
		time.Sleep(time.Hour)
		if err := errors.Join(e.opener.Err(), e.acceptor.Err()); err != nil || times.Load() < 300 {
			t.Errorf("asked %d times; %v", times.Load(), err)
		}
	})
}
