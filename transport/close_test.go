package transport_test

import (
	"context"
	"errors"
	"io"
	"testing"

	"github.com/harpcaller/harp/transport"
)

// What was sent before Close arrives, in exchanges as well.
func TestCloseFlushes(t *testing.T) {
	eachWiring(t, func(t *testing.T, w wiring) {
		e := w.connect(t, transport.Options{}, transport.Options{})
		heard := make(chan int, 1)
		e.serve(t, func(x *transport.Exchange, _ transport.Frame) {
			for n := 1; ; n++ {
				if _, err := x.Receive(context.Background()); err != nil {
					heard <- n
					return
				}
			}
		})
		x := e.exchange(t)
		defer x.Release()
		for range 10 {
			send(t, e.opener.Control(), 3, false, bin(20000))
			send(t, x, 3, false, bin(20000))
		}
		e.opener.Close(nil)
		for i := range 10 {
			if _, err := e.acceptor.Control().Receive(t.Context()); err != nil {
				t.Fatalf("frame %d: %v", i, err)
			}
		}
		if _, err := e.acceptor.Control().Receive(t.Context()); !errors.Is(err, transport.ErrSessionClosed) {
			t.Errorf("at the end: %v", err)
		}
		if n := <-heard; n != 10 {
			t.Errorf("%d frames of an exchange arrived", n)
		}
		<-e.acceptor.Done()
		if err := e.acceptor.Err(); !errors.Is(err, transport.ErrSessionClosed) {
			t.Errorf("the peer's reason: %v", err)
		}
	})
}

func TestCloseReason(t *testing.T) {
	eachWiring(t, func(t *testing.T, w wiring) {
		e := w.connect(t, transport.Options{}, transport.Options{})
		if err := e.opener.Err(); err != nil {
			t.Errorf("before Close: %v", err)
		}
		x := e.exchange(t)
		reason := errors.New("enough")
		e.opener.Close(reason)
		e.opener.Close(errors.New("second"))
		<-e.opener.Done()
		if err := e.opener.Err(); err != reason { //nolint:errorlint // the very same
			t.Errorf("the reason is %v", err)
		}
		for what, err := range map[string]error{
			"Exchange":       second(e.opener.Exchange()),
			"Send":           x.Send(1, false, nil),
			"Receive":        second(x.Receive(t.Context())),
			"control's Send": e.opener.Control().Send(1, false, nil),
			"and Receive":    second(e.opener.Control().Receive(t.Context())),
			"Serve":          errors.Join(transport.ErrSessionClosed, e.opener.Serve(nil)),
		} {
			if !errors.Is(err, transport.ErrSessionClosed) || !errors.Is(err, reason) {
				t.Errorf("%s after Close: %v", what, err)
			}
		}
	})
}

func TestCloseUnblocks(t *testing.T) {
	eachWiring(t, func(t *testing.T, w wiring) {
		e := w.connect(t, transport.Options{}, transport.Options{})
		began := make(chan struct{})
		handled := make(chan error, 1)
		e.serve(t, func(x *transport.Exchange, _ transport.Frame) {
			close(began)
			<-x.Context().Done()
			handled <- second(x.Receive(context.Background()))
		})
		x, unsent := e.exchange(t), e.exchange(t)
		send(t, x, 1, false, nil)
		<-began
		received := make(chan error, 3)
		for _, x := range []*transport.Exchange{x, unsent, e.opener.Control()} {
			go func() { received <- second(x.Receive(context.Background())) }()
		}
		e.opener.Close(nil)
		for range 3 {
			if err := <-received; !errors.Is(err, transport.ErrSessionClosed) {
				t.Errorf("Receive: %v", err)
			}
		}
		<-x.Context().Done()
		if err := <-handled; !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("the handler's Receive: %v", err)
		}
		if err := x.Send(1, false, nil); !errors.Is(err, transport.ErrSessionClosed) {
			t.Errorf("Send: %v", err)
		}
	})
}

func TestCloseInHandler(t *testing.T) {
	eachWiring(t, func(t *testing.T, w wiring) {
		e := w.connect(t, transport.Options{}, transport.Options{})
		reason := errors.New("fed up")
		closed := make(chan struct{})
		e.serve(t, func(x *transport.Exchange, _ transport.Frame) {
			x.Session().Close(reason)
			close(closed)
		})
		_ = e.exchange(t).Send(1, true, nil) // may hear of the end before it returns
		<-closed
		if err := e.acceptor.Err(); !errors.Is(err, reason) {
			t.Errorf("the reason is %v", err)
		}
	})
}

// A blocked Send returns when the session is closed.
func TestCloseUnblocksSend(t *testing.T) {
	eachWiring(t, func(t *testing.T, w wiring) {
		e := w.connect(t, transport.Options{}, transport.Options{})
		e.serve(t, await)
		x := e.exchange(t)
		sent := make(chan error, 1)
		progress := make(chan struct{}, 1)
		go func() {
			for {
				if err := x.Send(1, false, bin(60000)); err != nil {
					sent <- err
					return
				}
				select {
				case progress <- struct{}{}:
				default:
				}
			}
		}()
		<-progress
		e.opener.Close(nil)
		if err := <-sent; !errors.Is(err, transport.ErrSessionClosed) {
			t.Errorf("Send: %v", err)
		}
	})
}
