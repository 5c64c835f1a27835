package transport_test

import (
	"context"
	"errors"
	"io"
	"runtime"
	"testing"

	"github.com/harpcaller/harp/transport"
)

// await is a handler that does nothing until its exchange ends.
func await(x *transport.Exchange, _ transport.Frame) { <-x.Context().Done() }

// Release before the peer's End gives the exchange up for both, whether this side has
// sent its End or not, and whether the handler has asked for its context yet or not.
func TestRelease(t *testing.T) {
	eachWiring(t, func(t *testing.T, w wiring) {
		for _, end := range []bool{false, true} {
			e := w.connect(t, transport.Options{}, transport.Options{})
			heard := make(chan error, 1)
			refused, begun := make(chan error, 1), make(chan struct{}, 1)
			e.serve(t, func(x *transport.Exchange, f transport.Frame) {
				if f.Type == 2 {
					answer(x, f)
					return
				}
				begun <- struct{}{}
				if f.Type == 3 {
					if _, err := e.acceptor.Control().Receive(context.Background()); err != nil { // follows the RESET
						t.Error(err)
					}
				}
				<-x.Context().Done()
				heard <- second(x.Receive(context.Background()))
				refused <- x.Send(1, true, nil)
			})
			for _, typ := range []transport.Type{1, 3} {
				x := e.exchange(t)
				send(t, x, typ, end, nil)
				<-begun
				x.Release()
				x.Release()
				if typ == 3 {
					send(t, e.opener.Control(), 1, false, nil)
				}
				told := io.ErrUnexpectedEOF
				if end {
					told = io.EOF
				}
				if err := <-heard; err != told { //nolint:errorlint // it comes bare
					t.Errorf("End %v: the handler received %v", end, err)
				}
				if err := <-refused; !errors.Is(err, io.ErrClosedPipe) {
					t.Errorf("End %v: the handler's Send: %v", end, err)
				}
				wantEnd(t, x, io.ErrClosedPipe)
				if err := x.Send(1, true, nil); !errors.Is(err, io.ErrClosedPipe) {
					t.Errorf("Send after Release: %v", err)
				}
				<-x.Context().Done()
			}
			x := e.exchange(t)
			send(t, x, 2, true, nil)
			want(t, x, transport.Frame{Type: 2, End: true})
			x.Release()
			if err := errors.Join(e.opener.Err(), e.acceptor.Err()); err != nil {
				t.Errorf("the session ended: %v", err)
			}
		}
	})
}

// A handler that has sent its End and waits for that of the opener hears that the opener
// has released the exchange without, with what is sent next.
func TestReleaseWithoutEndAfterThePeers(t *testing.T) {
	eachWiring(t, func(t *testing.T, w wiring) {
		e := w.connect(t, transport.Options{}, transport.Options{})
		heard := make(chan error, 1)
		e.serve(t, func(x *transport.Exchange, f transport.Frame) {
			answer(x, f)
			if !f.End {
				heard <- second(x.Receive(context.Background()))
			}
		})
		x := e.exchange(t)
		send(t, x, 1, false, nil)
		want(t, x, transport.Frame{Type: 1, End: true})
		x.Release()
		if err := roundTrip(t.Context(), e.opener); err != nil {
			t.Fatal(err)
		}
		if err := <-heard; err != io.ErrUnexpectedEOF { //nolint:errorlint // it comes bare
			t.Errorf("the handler received %v", err)
		}
	})
}

// An exchange in which nothing was sent leaves nothing behind.
func TestReleaseUnused(t *testing.T) {
	eachWiring(t, func(t *testing.T, w wiring) {
		e := w.connect(t, transport.Options{MaxExchanges: 1}, transport.Options{})
		e.serve(t, echo)
		for range 3 {
			x := e.exchange(t)
			x.Release()
			x.Release()
			if err := x.Send(1, true, nil); !errors.Is(err, io.ErrClosedPipe) {
				t.Errorf("Send after Release: %v", err)
			}
		}
		if err := roundTrip(t.Context(), e.opener); err != nil {
			t.Error(err)
		}
	})
}

// A handler that returns without End, or never returns, is no end.
func TestHandlerWithoutEnd(t *testing.T) {
	eachWiring(t, func(t *testing.T, w wiring) {
		e := w.connect(t, transport.Options{}, transport.Options{})
		e.serve(t, func(x *transport.Exchange, f transport.Frame) {
			_ = x.Send(f.Type, f.Type == 3, f.Body)
			if f.Type == 2 {
				runtime.Goexit()
			}
		})
		for _, end := range []bool{false, true} {
			for _, typ := range []transport.Type{1, 2} {
				x := e.exchange(t)
				send(t, x, typ, end, nil)
				want(t, x, transport.Frame{Type: typ})
				wantEnd(t, x, io.ErrUnexpectedEOF)
				<-x.Context().Done()
				if err := x.Send(1, true, nil); err == nil {
					t.Error("sent what nobody wants")
				}
				x.Release()
			}
		}
		if e.opener.Err() != nil || e.acceptor.Err() != nil {
			t.Errorf("the session ended: %v, %v", e.opener.Err(), e.acceptor.Err())
		}
		x := e.exchange(t)
		send(t, x, 3, true, nil)
		want(t, x, transport.Frame{Type: 3, End: true})
		x.Release()
	})
}

// Frames of an exchange that is over for this side are ignored, on either side.
func TestLateFrames(t *testing.T) {
	eachWiring(t, func(t *testing.T, w wiring) {
		e := w.connect(t, transport.Options{}, transport.Options{})
		e.serve(t, func(x *transport.Exchange, f transport.Frame) {
			switch f.Type {
			case 1: // is over at once
				_ = x.Send(1, true, nil)
			case 2: // goes on when it is over for the opener
				for x.Send(2, false, bin(100)) == nil {
				}
			}
		})
		for range 50 {
			x := e.exchange(t)
			send(t, x, 1, false, nil)
			want(t, x, transport.Frame{Type: 1, End: true})
			for range 3 {
				send(t, x, 1, false, nil)
			}
			send(t, x, 1, true, nil)
			x.Release()
			x = e.exchange(t)
			send(t, x, 2, true, nil)
			want(t, x, transport.Frame{Type: 2, Body: bin(100)})
			x.Release()
		}
		if err := errors.Join(e.opener.Err(), e.acceptor.Err()); err != nil {
			t.Errorf("the session ended: %v", err)
		}
	})
}

func TestReceiveContext(t *testing.T) {
	eachWiring(t, func(t *testing.T, w wiring) {
		e := w.connect(t, transport.Options{}, transport.Options{})
		e.serve(t, echo)
		x := e.exchange(t)
		defer x.Release()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := x.Receive(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("Receive: %v", err)
		}
		if _, err := e.opener.Control().Receive(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("control: %v", err)
		}
		send(t, x, 1, true, nil)
		want(t, x, transport.Frame{Type: 1, End: true})
	})
}

// Serve returns why the session ended, when all handlers have returned.
func TestServeReturns(t *testing.T) {
	eachWiring(t, func(t *testing.T, w wiring) {
		e := w.connect(t, transport.Options{}, transport.Options{})
		reason := errors.New("reason")
		began, hold, served := make(chan struct{}), make(chan struct{}), make(chan error, 1)
		go func() {
			served <- e.acceptor.Serve(func(*transport.Exchange, transport.Frame) {
				close(began)
				<-hold
			})
		}()
		send(t, e.exchange(t), 1, true, nil)
		<-began
		e.acceptor.Close(reason)
		select {
		case err := <-served:
			t.Errorf("Serve did not wait for its handler: %v", err)
		default:
		}
		close(hold)
		if err := <-served; err != reason { //nolint:errorlint // the very same
			t.Errorf("Serve: %v", err)
		}
	})
}
