package transport_test

import (
	"context"
	"errors"
	"io"
	"slices"
	"testing"

	"github.com/harpcaller/harp/internal/needs"
	"github.com/harpcaller/harp/transport"
)

// heard is what somebody who listens has heard.
type heard struct {
	frames chan transport.Frame
	end    chan error
}

func newHeard() *heard { return &heard{make(chan transport.Frame, 100), make(chan error, 1)} }

func (h *heard) hear(f transport.Frame, err error) {
	if err != nil {
		h.end <- err
		return
	}
	h.frames <- f
}

// listening begins an exchange and listens to it.
func (e ends) listening(t testing.TB, hear func(transport.Frame, error)) *transport.Exchange {
	t.Helper()
	x := e.exchange(t)
	x.Listen(hear)
	return x
}

// TestListen: who listens hears each frame in its order, and nothing after End.
func TestListen(t *testing.T) {
	eachWiring(t, func(t *testing.T, w wiring) {
		e := w.connect(t, transport.Options{}, transport.Options{})
		e.serve(t, echo)
		for range 4 {
			h := newHeard()
			x := e.listening(t, h.hear)
			for i := range transport.Type(50) {
				send(t, x, i, i == 49, nil)
			}
			for i := range transport.Type(50) {
				if f := <-h.frames; f.Type != i || f.End != (i == 49) {
					t.Fatalf("frame %d is %d", i, f.Type)
				}
			}
			x.Release()
			if err := roundTrip(t.Context(), e.opener); err != nil {
				t.Fatal(err)
			}
			if len(h.end) > 0 {
				t.Error("an end after End")
			}
		}
	})
}

// TestListenLate: what was there before is heard first, and Release from within ends
// the hearing.
func TestListenLate(t *testing.T) {
	eachWiring(t, func(t *testing.T, w wiring) {
		e := w.connect(t, transport.Options{}, transport.Options{})
		order := make(chan []transport.Type, 1)
		e.serve(t, func(x *transport.Exchange, first transport.Frame) {
			second, err := x.Receive(context.Background())
			if err != nil {
				t.Error(err)
				return
			}
			types := []transport.Type{first.Type, second.Type}
			h := newHeard()
			x.Listen(h.hear)
			for range 18 {
				f := <-h.frames
				types = append(types, f.Type)
			}
			order <- types
			_ = x.Send(1, false, nil)
			_ = x.Send(1, true, nil)
		})
		released := make(chan struct{})
		x := e.exchange(t)
		x.Listen(func(transport.Frame, error) {
			x.Release()
			close(released)
		})
		for i := range transport.Type(20) {
			send(t, x, i, i == 19, nil)
		}
		if types := <-order; !slices.IsSorted(types) {
			t.Errorf("heard %v", types)
		}
		<-released
		if err := x.Send(1, true, nil); !errors.Is(err, io.ErrClosedPipe) {
			t.Errorf("after Release: %v", err)
		}
	})
}

// TestListenBehindEnd: that the peer has gone is heard behind its End, too.
func TestListenBehindEnd(t *testing.T) {
	eachWiring(t, func(t *testing.T, w wiring) {
		e := w.connect(t, transport.Options{}, transport.Options{})
		h, listens, end := newHeard(), make(chan struct{}), make(chan error)
		e.serve(t, func(x *transport.Exchange, _ transport.Frame) {
			x.Listen(h.hear)
			close(listens)
			end <- <-h.end
		})
		x := e.exchange(t)
		send(t, x, 1, true, nil)
		<-listens
		x.Release()
		if err := <-end; !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("heard %v", err)
		}
	})
}

// TestListenEnds: that the peer gave the exchange up and the end of the session are
// heard, once.
func TestListenEnds(t *testing.T) {
	eachWiring(t, func(t *testing.T, w wiring) {
		e := w.connect(t, transport.Options{}, transport.Options{})
		left := newHeard()
		e.serve(t, func(x *transport.Exchange, first transport.Frame) {
			if first.Type == 1 {
				return // gives the exchange up
			}
			x.Listen(left.hear)
			<-x.Context().Done()
		})
		h := newHeard()
		x := e.listening(t, h.hear)
		send(t, x, 1, false, nil)
		if err := <-h.end; !errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, transport.ErrSessionClosed) {
			t.Errorf("given up: %v", err)
		}
		x.Release()
		x = e.listening(t, h.hear)
		send(t, x, 2, false, nil)
		x.Release() // without an answer
		if err := <-left.end; !errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, transport.ErrSessionClosed) {
			t.Errorf("the acceptor: %v", err)
		}
		x = e.listening(t, h.hear)
		send(t, x, 2, false, nil)
		e.opener.Close(nil)
		for range 2 {
			if err := <-h.end; !errors.Is(err, transport.ErrSessionClosed) {
				t.Errorf("the session: %v", err)
			}
			e.listeningAgain(x, h.hear)
		}
	})
}

// listeningAgain listens to an exchange of a session that has ended.
func (e ends) listeningAgain(x *transport.Exchange, hear func(transport.Frame, error)) {
	<-e.opener.Done()
	x.Listen(hear)
}

// TestAwait: what waits is woken once, for a frame or for the end, and not for what is
// there already.
func TestAwait(t *testing.T) {
	eachWiring(t, func(t *testing.T, w wiring) {
		e := w.connect(t, transport.Options{}, transport.Options{})
		e.serve(t, echo)
		x := e.exchange(t)
		defer x.Release()
		woken := make(chan struct{}, 10)
		wake := func() { woken <- struct{}{} }
		if f, ok, err := x.TryReceive(); ok || err != nil {
			t.Errorf("received %+v, %v of nothing", f, err)
		}
		for i := range 3 {
			if !x.Await(wake) {
				t.Fatal("there is something already")
			}
			send(t, x, 1, false, nil)
			send(t, x, 2, i == 2, nil)
			<-woken
			want(t, x, transport.Frame{Type: 1})
			want(t, x, transport.Frame{Type: 2, End: i == 2})
			if len(woken) > 0 {
				t.Error("woken twice")
			}
		}
		if x.Await(wake) {
			t.Error("waits for what comes after End")
		}
		if _, ok, err := x.TryReceive(); ok || err != io.EOF { //nolint:errorlint // it comes bare
			t.Errorf("after End: %v", err)
		}
		x = e.exchange(t)
		send(t, x, 1, false, nil)
		want(t, x, transport.Frame{Type: 1})
		if !x.Await(wake) {
			t.Fatal("there is something already")
		}
		e.opener.Close(nil)
		<-woken
		if _, _, err := x.TryReceive(); !errors.Is(err, transport.ErrSessionClosed) {
			t.Errorf("at the end of the session: %v", err)
		}
	})
}

// TestListenAllocs: an exchange with a listener costs no more than what it carries.
func TestListenAllocs(t *testing.T) {
	needs.NoRaceDetector(t)
	e := wiring{memory: true, openerDials: true}.connect(t, transport.Options{}, transport.Options{})
	e.serve(t, answer)
	done := make(chan struct{}, 1)
	n := testing.AllocsPerRun(200, func() {
		x := e.listening(t, func(transport.Frame, error) { done <- struct{}{} })
		if err := x.Send(1, true, body100); err != nil {
			t.Fatal(err)
		}
		<-done
		x.Release()
	})
	if n > 16 {
		t.Errorf("%v allocations", n)
	}
}

// TestReceiveAllocs: nor does one whose answer is received.
func TestReceiveAllocs(t *testing.T) {
	e := wiring{memory: true, openerDials: true}.connect(t, transport.Options{}, transport.Options{})
	e.serve(t, answer)
	n := testing.AllocsPerRun(200, func() {
		if err := roundTrip(t.Context(), e.opener); err != nil {
			t.Fatal(err)
		}
	})
	if n > 12 {
		t.Errorf("%v allocations", n)
	}
}

// TestListenUnsent: the end of the session is heard in an exchange whose first frame it kept
// from being sent, too.
func TestListenUnsent(t *testing.T) {
	eachWiring(t, func(t *testing.T, w wiring) {
		for name, size := range map[string]int{"short": 0, "long": 20_000} {
			t.Run(name, func(t *testing.T) {
				e := w.connect(t, transport.Options{}, transport.Options{})
				e.serve(t, echo)
				h := newHeard()
				x := e.listening(t, h.hear)
				e.opener.Close(nil)
				if err := x.Send(1, true, bin(size)); !errors.Is(err, transport.ErrSessionClosed) {
					t.Errorf("Send: %v", err)
				}
				select {
				case err := <-h.end:
					if !errors.Is(err, transport.ErrSessionClosed) || !errors.Is(err, io.ErrUnexpectedEOF) {
						t.Errorf("heard %v", err)
					}
				default:
					t.Error("nothing was heard")
				}
			})
		}
	})
}
