package transport_test

import (
	"context"
	"errors"
	"io"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/harpcaller/harp/transport"
)

// The tests of this file run in virtual time, over the in-memory transport.
var virtual = wiring{memory: true, openerDials: true}

// inBubble runs a test body with a session whose ends are read, and whose handlers echo.
func inBubble(t *testing.T, f func(t *testing.T, e ends)) { inBubbleWith(t, echo, f) }

// inBubbleWith is inBubble with another handler.
func inBubbleWith(t *testing.T, handle func(*transport.Exchange, transport.Frame), f func(t *testing.T, e ends)) {
	synctest.Test(t, func(t *testing.T) {
		e := virtual.connect(t, transport.Options{}, transport.Options{})
		e.serve(t, handle)
		f(t, e)
		e.opener.Close(nil)
		e.acceptor.Close(nil)
	})
}

// What waits to be taken, beyond 1 MiB, holds the reader and with it the peer, of which
// nothing is lost. Neither side takes the other for silent meanwhile.
func TestDeafIsNotSilent(t *testing.T) {
	const frames, size = 600, 16_000
	for name, far := range map[string]func(e ends, x *transport.Exchange) *transport.Exchange{
		"control":  func(e ends, _ *transport.Exchange) *transport.Exchange { return e.acceptor.Control() },
		"exchange": func(_ ends, x *transport.Exchange) *transport.Exchange { return x },
	} {
		t.Run(name, func(t *testing.T) {
			begun := make(chan *transport.Exchange, 1)
			hold := func(x *transport.Exchange, _ transport.Frame) {
				begun <- x
				<-x.Context().Done()
			}
			inBubbleWith(t, hold, func(t *testing.T, e ends) {
				e.opener.Beat(time.Second)
				e.acceptor.Beat(time.Second)
				near := e.exchange(t)
				send(t, near, 1, false, nil)
				far := far(e, <-begun)
				if name == "control" {
					near = e.opener.Control()
				}
				var all sync.WaitGroup
				sent := 0
				all.Go(func() {
					for n := range frames {
						if err := near.Send(transport.Type(n%100), false, bin(size)); err != nil {
							t.Error(err)
							return
						}
						sent++
					}
				})
				synctest.Wait()
				if waiting := transport.Waiting(e.acceptor); waiting < 1<<20 || waiting > 1<<20+size+1000 {
					t.Errorf("%d bytes wait", waiting)
				}
				if name == "exchange" && sent == frames { // control frames are queued without limit
					t.Error("the peer was not held")
				}
				time.Sleep(20 * time.Second) // less than a write may be blocked
				if err := errors.Join(e.opener.Err(), e.acceptor.Err()); err != nil {
					t.Fatalf("the session ended with %v", err)
				}
				for n := range frames {
					f, err := far.Receive(t.Context())
					if err != nil || f.Type != transport.Type(n%100) || len(f.Body) < size {
						t.Fatalf("frame %d: type %d, %d bytes, %v", n, f.Type, len(f.Body), err)
					}
				}
				all.Wait()
				if waiting := transport.Waiting(e.acceptor); waiting != 0 {
					t.Errorf("%d bytes wait when all was taken", waiting)
				}
				time.Sleep(time.Minute)
				if err := errors.Join(e.opener.Err(), e.acceptor.Err()); err != nil {
					t.Fatalf("then the session ended with %v", err)
				}
			})
		})
	}
}

// A side that did not listen gives its peer the whole time to be heard again.
func TestSilenceAfterDeafness(t *testing.T) {
	inBubble(t, func(t *testing.T, e ends) {
		e.acceptor.Beat(time.Second)
		for range 20 {
			send(t, e.opener.Control(), 1, false, bin(100_000))
		}
		time.Sleep(time.Minute)
		if err := e.acceptor.Err(); err != nil {
			t.Fatalf("the session ended with %v", err)
		}
		start := time.Now()
		for range 20 {
			if _, err := e.acceptor.Control().Receive(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		<-e.acceptor.Done()
		if err := e.acceptor.Err(); !errors.Is(err, transport.ErrSilent) {
			t.Errorf("the session ended with %v", err)
		}
		if took := time.Since(start); took != 3*time.Second {
			t.Errorf("the session ended after %v", took)
		}
	})
}

// What was not taken of an exchange that is released waits no more.
func TestReleaseMakesRoom(t *testing.T) {
	begun := make(chan *transport.Exchange, 1)
	hold := func(x *transport.Exchange, f transport.Frame) {
		if f.Type == 2 {
			begun <- x
			<-x.Context().Done()
			return
		}
		answer(x, f)
	}
	inBubbleWith(t, hold, func(t *testing.T, e ends) {
		x := e.exchange(t)
		send(t, x, 2, false, nil)
		held := <-begun
		var all sync.WaitGroup
		all.Go(func() {
			var err error
			for i := 0; i < 400 && err == nil; i++ { // until the exchange is given up
				err = x.Send(1, false, bin(16_000))
			}
			if !errors.Is(err, io.ErrClosedPipe) {
				t.Error(err)
			}
		})
		all.Go(func() {
			if err := roundTrip(t.Context(), e.opener); err != nil { // waits for the reader
				t.Error(err)
			}
		})
		synctest.Wait()
		if waiting := transport.Waiting(e.acceptor); waiting < 1<<20 || waiting > 1<<20+20_000 {
			t.Errorf("%d bytes wait", waiting)
		}
		held.Release()
		all.Wait()
		synctest.Wait()
		if waiting := transport.Waiting(e.acceptor); waiting != 0 {
			t.Errorf("%d bytes wait", waiting)
		}
	})
}

// A write blocked for 30 s ends the session.
func TestBlockedWrite(t *testing.T) {
	for name, send := range map[string]func(*transport.Exchange, *transport.Exchange) error{
		"exchange": func(x, _ *transport.Exchange) error { return x.Send(1, false, bin(16000)) },
		"control":  func(_, c *transport.Exchange) error { return c.Send(1, false, bin(16000)) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e := virtual.connect(t, transport.Options{}, transport.Options{})
				var reading sync.WaitGroup
				reading.Go(func() { _ = e.opener.Serve(nil) }) // and nobody reads at the other end
				x := e.exchange(t)
				start := time.Now()
				for range 400 { // more than is on its way
					if err := send(x, e.opener.Control()); err != nil {
						break
					}
				}
				<-e.opener.Done()
				if took := time.Since(start); took < 30*time.Second || took > 32*time.Second {
					t.Errorf("after %v: %v", took, e.opener.Err())
				}
				if err := x.Send(1, false, nil); !errors.Is(err, transport.ErrSessionClosed) {
					t.Errorf("Send: %v", err)
				}
				e.acceptor.Close(nil)
				reading.Wait()
			})
		})
	}
}

// Send waits when 256 KiB are queued, which Release and the end of the session end; what
// is sent on the control exchange does not wait.
func TestSendWaits(t *testing.T) {
	ends := map[string]struct {
		end func(e ends, x *transport.Exchange)
		err error
	}{
		"Release":         {func(_ ends, x *transport.Exchange) { x.Release() }, io.ErrClosedPipe},
		"Close":           {func(e ends, _ *transport.Exchange) { e.opener.Close(nil) }, transport.ErrSessionClosed},
		"the peer closes": {func(e ends, _ *transport.Exchange) { e.acceptor.Close(nil) }, transport.ErrSessionClosed},
		"nothing":         {func(ends, *transport.Exchange) { time.Sleep(time.Hour) }, transport.ErrSessionClosed},
	}
	for name, c := range ends {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e := virtual.connect(t, transport.Options{}, transport.Options{})
				var reading sync.WaitGroup
				reading.Go(func() { _ = e.opener.Serve(nil) }) // and nobody reads at the other end
				blocked, other := e.exchange(t), e.exchange(t)
				sent, done := 0, make(chan error)
				go func() {
					var err error
					for ; err == nil; err = blocked.Send(1, false, bin(1000)) {
						sent += 1003 + transport.HeaderSize
					}
					done <- err
				}()
				synctest.Wait()
				const window = 1 << 20
				if most := window + 2*256<<10; sent < window+256<<10 || sent > most+2000 {
					t.Errorf("%d bytes were taken", sent)
				}
				if queued := transport.Queued(e.opener); queued > 256<<10+1100 { // and the frame that was too much
					t.Errorf("%d bytes are queued", queued)
				}
				for range 700 {
					send(t, e.opener.Control(), 1, false, bin(1000)) // does not wait
				}
				others := make(chan error, 1)
				go func() { others <- other.Send(1, true, nil) }()
				synctest.Wait()
				select {
				case err := <-others:
					t.Errorf("another exchange did not wait: %v", err)
				default:
				}
				c.end(e, blocked)
				if err := <-done; !errors.Is(err, c.err) {
					t.Errorf("Send: %v", err)
				}
				if name == "Release" && e.opener.Err() != nil {
					t.Errorf("the session ended: %v", e.opener.Err())
				}
				e.opener.Close(nil)
				if err := <-others; !errors.Is(err, transport.ErrSessionClosed) {
					t.Errorf("the other exchange: %v", err)
				}
				e.acceptor.Close(nil)
				reading.Wait()
			})
		})
	}
}

// A Send that waits is ended when the peer gives the exchange up.
func TestResetUnblocksSend(t *testing.T) {
	for _, size := range []int{16_000, 60_000} {
		synctest.Test(t, func(t *testing.T) {
			hold := make(chan struct{})
			e := virtual.connect(t, transport.Options{}, transport.Options{})
			e.serve(t, func(*transport.Exchange, transport.Frame) { <-hold })
			x := e.exchange(t)
			sent := make(chan error)
			go func() {
				var err error
				for err == nil {
					err = x.Send(1, false, bin(size))
				}
				sent <- err
			}()
			synctest.Wait()
			time.Sleep(20 * time.Second)
			close(hold)
			if err := <-sent; !errors.Is(err, io.ErrClosedPipe) {
				t.Errorf("Send: %v", err)
			}
			wantEnd(t, x, io.ErrUnexpectedEOF)
			x.Release()
			synctest.Wait()
			if err := errors.Join(e.opener.Err(), e.acceptor.Err()); err != nil {
				t.Errorf("the session ended: %v", err)
			}
			if waiting := transport.Waiting(e.acceptor); waiting != 0 {
				t.Errorf("%d bytes wait", waiting)
			}
			e.opener.Close(nil)
			e.acceptor.Close(nil)
		})
	}
}

// That the peer gave an exchange up is no matter to the session, also when it is a Send
// that finds out, and what came before is received.
func TestSendInAnExchangeGivenUp(t *testing.T) {
	hasty := func(x *transport.Exchange, f transport.Frame) {
		for range 20 {
			_ = x.Send(f.Type, false, nil)
		}
	}
	inBubbleWith(t, hasty, func(t *testing.T, e ends) {
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

// A slow handler is waited for.
func TestBackpressure(t *testing.T) {
	slow := func(x *transport.Exchange, f transport.Frame) {
		n := 1
		for ; !f.End; n++ {
			time.Sleep(time.Second)
			var err error
			if f, err = x.Receive(context.Background()); err != nil {
				return
			}
		}
		_ = x.Send(1, true, bin(n-1))
	}
	for size, ahead := range map[int]time.Duration{15_000: 390, 20_000: 650} { // frames
		inBubbleWith(t, slow, func(t *testing.T, e ends) {
			const frames = 1000
			x := e.exchange(t)
			start := time.Now()
			for i := range frames {
				send(t, x, 1, i == frames-1, bin(size))
			}
			if took := time.Since(start); took < (frames-ahead)*time.Second {
				t.Errorf("%d frames of %d bytes were taken within %v", frames, size, took)
			}
			want(t, x, transport.Frame{Type: 1, End: true, Body: bin(frames - 1)})
		})
	}
}

// What a busy session had gathered is given back when it rests, with the goroutine that
// writes, and a session that has rested works as before.
func TestRestGivesBuffersBack(t *testing.T) {
	inBubble(t, func(t *testing.T, e ends) {
		e.opener.Beat(10 * time.Second)
		e.acceptor.Beat(10 * time.Second)
		body := bin(16000)
		for range 3 {
			var all sync.WaitGroup
			for range 20 {
				all.Go(func() {
					x := e.exchange(t)
					defer x.Release()
					send(t, x, 1, true, body)
					want(t, x, transport.Frame{Type: 1, End: true, Body: body})
				})
			}
			all.Wait()
			time.Sleep(25 * time.Second)
			synctest.Wait()
			for name, s := range map[string]*transport.Session{"opener": e.opener, "acceptor": e.acceptor} {
				if kept, writing := transport.Kept(s); kept > 1<<10 || writing {
					t.Errorf("the %s keeps %d bytes; writing: %v", name, kept, writing)
				}
			}
		}
		if err := errors.Join(e.opener.Err(), e.acceptor.Err()); err != nil {
			t.Errorf("the session ended: %v", err)
		}
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

// TestSessionEndsBeforeFramesAreTaken: the session ends while frames wait that nobody has
// received. They are received, and then the End if it was among them, else that the rest
// is missing.
func TestSessionEndsBeforeFramesAreTaken(t *testing.T) {
	some := func(x *transport.Exchange, f transport.Frame) {
		for range 16 {
			_ = x.Send(1, false, nil)
		}
		if f.Type == 2 {
			_ = x.Send(1, true, nil)
		} else {
			<-x.Context().Done()
		}
	}
	for _, end := range []error{io.ErrUnexpectedEOF, io.EOF} {
		inBubbleWith(t, some, func(t *testing.T, e ends) {
			x := e.exchange(t)
			typ := transport.Type(1)
			if end == io.EOF { //nolint:errorlint // the very same
				typ = 2
			}
			send(t, x, typ, true, nil)
			synctest.Wait()
			e.opener.Close(nil)
			for range 16 {
				want(t, x, transport.Frame{Type: 1})
			}
			if typ == 2 {
				want(t, x, transport.Frame{Type: 1, End: true})
			}
			f, err := x.Receive(t.Context())
			if !errors.Is(err, end) || errors.Is(err, transport.ErrSessionClosed) != (typ == 1) {
				t.Errorf("then came type %d, %v", f.Type, err)
			}
		})
	}
}

// TestConnectionEndsWhileNothingIsRead: the connection ends while so much waits to be
// taken that nobody reads. The next heartbeat notices, and all ends with it.
func TestConnectionEndsWhileNothingIsRead(t *testing.T) {
	inBubbleWith(t, await, func(t *testing.T, e ends) {
		e.opener.Beat(time.Second)
		e.acceptor.Beat(time.Second)
		for range 20 {
			send(t, e.acceptor.Control(), 1, false, bin(100_000))
		}
		x := e.exchange(t)
		send(t, x, 1, false, nil)
		synctest.Wait()
		start := time.Now()
		e.acceptor.Close(nil)
		if _, err := x.Receive(context.Background()); !errors.Is(err, io.ErrUnexpectedEOF) || !errors.Is(err, transport.ErrSessionClosed) {
			t.Errorf("the exchange: %v", err)
		}
		<-e.opener.Done()
		if took := time.Since(start); took > 3*time.Second {
			t.Errorf("the session ended after %v: %v", took, e.opener.Err())
		}
	})
}
