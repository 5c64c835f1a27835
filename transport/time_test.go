package transport_test

import (
	"context"
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/harpcaller/harp/transport"
)

// The tests of this file run in virtual time, over the in-memory transport.
var virtual = wiring{memory: true, openerDials: true}

func inBubble(t *testing.T, f func(t *testing.T, e ends)) {
	synctest.Test(t, func(t *testing.T) {
		e := virtual.connect(t, transport.Options{}, transport.Options{})
		f(t, e)
		e.opener.Close(nil)
		e.acceptor.Close(nil)
	})
}

func TestHeartbeatKeepsAlive(t *testing.T) {
	inBubble(t, func(t *testing.T, e ends) {
		e.openerControl.Beat(10 * time.Second)
		e.acceptorControl.Beat(10 * time.Second)
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
		e.openerControl.Beat(10 * time.Second)
		e.acceptorControl.Beat(10 * time.Second)
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
		e.opener.Close(nil)
		e = virtual.connect(t, transport.Options{}, transport.Options{})
		e.acceptorControl.Beat(10 * time.Second) // heard by the opener, who says nothing
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

// Any frame is a sign of life, on whatever stream.
func TestSilenceCountsEveryStream(t *testing.T) {
	inBubble(t, func(t *testing.T, e ends) {
		e.serve(t, echo)
		x := e.exchange(t)
		e.acceptorControl.Beat(10 * time.Second)
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
		e.acceptorControl.Beat(time.Hour)
		time.Sleep(2 * time.Hour)
		e.acceptorControl.Beat(time.Second)
		e.openerControl.Beat(time.Second)
		time.Sleep(time.Minute)
		if err := errors.Join(e.acceptor.Err(), e.opener.Err()); err != nil {
			t.Fatalf("the session ended with %v", err)
		}
		e.openerControl.Beat(0)
		e.acceptorControl.Beat(0)
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
		e.acceptorControl.Beat(10 * time.Second)
		for e.acceptor.Err() == nil {
			time.Sleep(time.Second)
			e.acceptorControl.Change(9*time.Second, 20*time.Second)
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
		e.openerControl.Change(time.Second, time.Second) // nothing is to be changed yet
		e.openerControl.Beat(10 * time.Second)
		e.acceptorControl.Beat(10 * time.Second)
		e.openerControl.Change(10*time.Second, time.Minute)
		e.acceptorControl.Change(time.Minute, 10*time.Second)
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
		e.acceptorControl.Beat(0)
		<-e.opener.Done()
		if after := time.Since(start); after < 114*time.Second || after > 180*time.Second {
			t.Errorf("the session ended after %v: %v", after, e.opener.Err())
		}
	})
}

// A frame may go in the place of a heartbeat, and is as good.
func TestOnBeat(t *testing.T) {
	inBubble(t, func(t *testing.T, e ends) {
		asked := 0
		e.openerControl.OnBeat(func() (transport.Frame, bool) {
			asked++
			return transport.Frame{Type: 5, Body: []byte{byte(asked)}}, asked == 2
		})
		e.openerControl.Beat(10 * time.Second)
		e.acceptorControl.Beat(10 * time.Second)
		f, err := e.acceptorControl.Receive(t.Context())
		if want := (transport.Frame{Type: 5, Body: []byte{2}}); err != nil || !equal(f, want) {
			t.Errorf("received %+v, %v", f, err)
		}
		time.Sleep(time.Hour)
		if err := errors.Join(e.opener.Err(), e.acceptor.Err()); err != nil || asked < 300 {
			t.Errorf("asked %d times; %v", asked, err)
		}
	})
}

// Who does not receive is deaf; that does not make the peer silent.
func TestDeafIsNotSilent(t *testing.T) {
	inBubble(t, func(t *testing.T, e ends) {
		e.acceptorControl.Beat(time.Second)
		for range 20 {
			if err := e.openerControl.Send(transport.Frame{Type: 1, Body: bin(100)}); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Minute)
		if err := e.acceptor.Err(); err != nil {
			t.Fatalf("the session ended with %v", err)
		}
		for range 20 {
			if _, err := e.acceptorControl.Receive(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		<-e.acceptor.Done()
		if err := e.acceptor.Err(); !errors.Is(err, transport.ErrSilent) {
			t.Errorf("the session ended with %v", err)
		}
	})
}

// A write blocked for 30 s ends the session.
func TestBlockedWrite(t *testing.T) {
	inBubble(t, func(t *testing.T, e ends) {
		e.serve(t, func(ctx context.Context, _ *transport.Exchange, _ transport.Frame) { <-ctx.Done() })
		x := e.exchange(t)
		var err error
		var blocked time.Time
		for err == nil {
			blocked = time.Now()
			err = x.Send(1, false, bin(60000))
		}
		if !errors.Is(err, transport.ErrSessionClosed) {
			t.Errorf("Send: %v", err)
		}
		if after := time.Since(blocked); after != 30*time.Second {
			t.Errorf("after %v", after)
		}
		<-e.opener.Done()
		<-e.acceptor.Done()
	})
}

// Release does not wait for a Send that is blocked, and unblocks it.
func TestReleaseUnblocksSend(t *testing.T) {
	inBubble(t, func(t *testing.T, e ends) {
		e.serve(t, func(ctx context.Context, _ *transport.Exchange, _ transport.Frame) { <-ctx.Done() })
		x := e.exchange(t)
		sent := make(chan error)
		go func() {
			var err error
			for err == nil {
				err = x.Send(1, false, bin(60000))
			}
			sent <- err
		}()
		synctest.Wait()
		x.Release()
		if err := <-sent; !errors.Is(err, io.ErrClosedPipe) {
			t.Errorf("Send: %v", err)
		}
		if err := e.opener.Err(); err != nil {
			t.Errorf("the session ended: %v", err)
		}
	})
}

// That the peer closed a lane is no matter to the session, also when it is a Send
// that finds out.
func TestSendOnClosedLane(t *testing.T) {
	inBubble(t, func(t *testing.T, e ends) {
		e.serve(t, func(_ context.Context, x *transport.Exchange, f transport.Frame) {
			for range 20 { // more than the peer reads ahead
				_ = x.Send(f.Type, false, nil)
			}
		})
		x := e.exchange(t)
		send(t, x, 1, false, nil)
		synctest.Wait()
		if err := x.Send(1, false, nil); !errors.Is(err, io.ErrClosedPipe) {
			t.Errorf("Send: %v", err)
		}
		if err := errors.Join(e.opener.Err(), e.acceptor.Err()); err != nil {
			t.Errorf("the session ended: %v", err)
		}
		for range 20 {
			want(t, x, transport.Frame{Type: 1})
		}
		wantEnd(t, x, io.ErrUnexpectedEOF)
	})
}

// A slow handler is waited for; its inbox does not grow.
func TestBackpressure(t *testing.T) {
	inBubble(t, func(t *testing.T, e ends) {
		const frames = 1000
		e.serve(t, func(ctx context.Context, x *transport.Exchange, f transport.Frame) {
			n := 1
			for ; !f.End; n++ {
				time.Sleep(time.Second)
				var err error
				if f, err = x.Receive(ctx); err != nil {
					return
				}
			}
			_ = x.Send(1, true, bin(n-1))
		})
		x := e.exchange(t)
		start := time.Now()
		for i := range frames {
			send(t, x, 1, i == frames-1, bin(20000))
		}
		if took := time.Since(start); took < 900*time.Second {
			t.Errorf("%d frames were taken within %v", frames, took)
		}
		want(t, x, transport.Frame{Type: 1, End: true, Body: bin(frames - 1)})
	})
}

func TestIdleLanes(t *testing.T) {
	inBubble(t, func(t *testing.T, e ends) {
		e.serve(t, answer)
		lanes := func(want int) {
			t.Helper()
			synctest.Wait()
			for who, s := range map[string]*transport.Session{"opener": e.opener, "acceptor": e.acceptor} {
				if all, idle := transport.Lanes(s); all != want || idle != want {
					t.Errorf("the %s has %d lanes, %d idle; want %d", who, all, idle, want)
				}
			}
		}
		use := func(n int) {
			t.Helper()
			var held []*transport.Exchange
			for range n {
				held = append(held, e.exchange(t))
			}
			for _, x := range held {
				send(t, x, 1, true, nil)
				want(t, x, transport.Frame{Type: 1, End: true})
				x.Release()
			}
		}
		use(40)
		lanes(40)
		time.Sleep(4 * time.Second)
		use(20)
		time.Sleep(7 * time.Second)
		lanes(20) // 20 were idle for 10 s, the others for less
		time.Sleep(10 * time.Second)
		lanes(16)
		time.Sleep(time.Hour)
		lanes(16)
		use(1)
		lanes(16)
	})
}

// Opening lanes has a pace once a burst is used up, which ctx may find too slow.
func TestOpeningPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := virtual.connect(t, transport.Options{MaxLanes: 10}, transport.Options{MaxLanes: 10})
		e.serve(t, func(ctx context.Context, _ *transport.Exchange, _ transport.Frame) { <-ctx.Done() })
		start := time.Now()
		for range 1010 {
			x := e.exchange(t)
			send(t, x, 1, true, nil)
			x.Release()
			synctest.Wait()
		}
		if took := time.Since(start); took < 990*time.Millisecond || took > 1100*time.Millisecond {
			t.Errorf("1000 lanes took %v", took)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Microsecond)
		defer cancel()
		if _, err := e.opener.Exchange(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Exchange: %v", err)
		}
		e.opener.Close(nil)
		e.acceptor.Close(nil)
	})
}

func TestHandshakeTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, side := range []string{"client", "server"} {
			nc, ns := virtual.pipe(t, callerID, dispatcherID)
			start := time.Now()
			var err error
			if side == "client" {
				_, err = transport.Client(t.Context(), nc, nil, transport.ProtocolCall, transport.RoleDispatcher)
			} else {
				_, err = transport.Server(t.Context(), ns, nil, nil)
			}
			if !errors.Is(err, transport.ErrHandshake) || !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%s: %v", side, err)
			}
			if took := time.Since(start); took != 10*time.Second {
				t.Errorf("%s: after %v", side, took)
			}
		}
	})
}

// TestSessionEndsBeforeEndHasRoom: the session ends while the last frame of an exchange
// waits behind those that nobody has received. They are received, and then that the rest
// is missing.
func TestSessionEndsBeforeEndHasRoom(t *testing.T) {
	for _, begin := range []func(*testing.T, ends) *transport.Exchange{
		func(t *testing.T, e ends) *transport.Exchange { return e.exchange(t) },
		func(t *testing.T, e ends) *transport.Exchange {
			x := selfReading(t, e.opener)
			x.ReadAhead()
			return x
		},
		func(t *testing.T, e ends) *transport.Exchange {
			listenOnce(t, e.opener)
			return e.exchange(t)
		},
	} {
		inBubble(t, func(t *testing.T, e ends) {
			const waiting = 16
			e.serve(t, func(_ context.Context, x *transport.Exchange, f transport.Frame) {
				for range f.Type - 1 {
					_ = x.Send(1, false, nil)
				}
				_ = x.Send(2, true, nil)
			})
			x := begin(t, e)
			send(t, x, 1+waiting, true, nil)
			synctest.Wait()
			e.opener.Close(nil)
			for range waiting {
				want(t, x, transport.Frame{Type: 1})
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			defer cancel()
			if f, err := x.Receive(ctx); !errors.Is(err, io.ErrUnexpectedEOF) || !errors.Is(err, transport.ErrSessionClosed) {
				t.Errorf("then came type %d, %v", f.Type, err)
			}
		})
	}
}

// TestConnectionEndsWhileControlIsFull: the connection ends while frames of the control
// stream wait for somebody who receives them, so that nobody reads it. Whoever reads a lane
// notices that it was the session that ended, and all else ends with it.
func TestConnectionEndsWhileControlIsFull(t *testing.T) {
	for _, asks := range []func(*testing.T, ends) func() error{
		func(t *testing.T, e ends) func() error {
			x := e.exchange(t)
			send(t, x, 1, false, nil)
			return func() error { return second(x.Receive(context.Background())) }
		},
		func(t *testing.T, e ends) func() error {
			x := selfReading(t, e.opener)
			send(t, x, 1, false, nil)
			return func() error { return second(x.Receive(context.Background())) }
		},
		func(t *testing.T, e ends) func() error {
			h := newHeard()
			send(t, listening(t, e.opener, h.hear), 1, false, nil)
			return func() error { return <-h.end }
		},
	} {
		inBubble(t, func(t *testing.T, e ends) {
			e.serve(t, func(ctx context.Context, _ *transport.Exchange, _ transport.Frame) { <-ctx.Done() })
			for range 100 {
				if err := e.acceptorControl.Send(transport.Frame{Type: 1}); err != nil {
					t.Fatal(err)
				}
			}
			receive := asks(t, e)
			synctest.Wait()
			e.acceptor.Close(nil)
			if err := receive(); !errors.Is(err, io.ErrUnexpectedEOF) || !errors.Is(err, transport.ErrSessionClosed) {
				t.Errorf("the lane: %v", err)
			}
			<-e.opener.Done()
			if err := e.opener.Err(); !errors.Is(err, transport.ErrSessionClosed) {
				t.Errorf("the session: %v", err)
			}
		})
	}
}
