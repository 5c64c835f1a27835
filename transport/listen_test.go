package transport_test

import (
	"context"
	"errors"
	"io"
	"slices"
	"testing"

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
func listening(t testing.TB, s *transport.Session, hear func(transport.Frame, error)) *transport.Exchange {
	t.Helper()
	x, err := s.Exchange(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := x.Listen(hear); err != nil {
		t.Fatal(err)
	}
	return x
}

// TestListen: who listens hears each frame in its order, from one exchange to the next
// on the same lane, and Receive works on that lane as well.
func TestListen(t *testing.T) {
	eachWiring(t, func(t *testing.T, w wiring) {
		e := w.connect(t, transport.Options{}, transport.Options{MaxLanes: 1})
		e.serve(t, echo)
		for round := range 6 {
			if round%3 == 2 {
				if err := roundTrip(t.Context(), e.opener); err != nil {
					t.Fatal(err)
				}
				continue
			}
			h := newHeard()
			x := listening(t, e.opener, h.hear)
			for i := range transport.Type(50) {
				send(t, x, i, i == 49, nil)
			}
			for i := range transport.Type(50) {
				if f := <-h.frames; f.Type != i {
					t.Fatalf("frame %d is %d", i, f.Type)
				}
			}
			x.Release()
			if len(h.end) > 0 {
				t.Error("an end after End")
			}
		}
		if n, _ := transport.Lanes(e.opener); n != 1 {
			t.Errorf("%d lanes", n)
		}
	})
}

// TestListenLate: what was there before is heard first, and Release from within ends
// the hearing.
func TestListenLate(t *testing.T) {
	eachWiring(t, func(t *testing.T, w wiring) {
		e := w.connect(t, transport.Options{}, transport.Options{})
		order := make(chan []transport.Type, 1)
		e.serve(t, func(ctx context.Context, x *transport.Exchange, first transport.Frame) {
			second, err := x.Receive(ctx)
			if err != nil {
				t.Error(err)
				return
			}
			types := []transport.Type{first.Type, second.Type}
			h := newHeard()
			if err := x.Listen(h.hear); err != nil {
				t.Error(err)
			}
			for range 18 {
				f := <-h.frames
				types = append(types, f.Type)
			}
			order <- types
			_ = x.Send(1, true, nil)
		})
		released := make(chan struct{})
		var x *transport.Exchange
		x = listening(t, e.opener, func(transport.Frame, error) {
			x.Release()
			close(released)
		})
		for i := range transport.Type(20) {
			send(t, x, i, i == 19, nil)
		}
		types := <-order
		if !slices.IsSorted(types) {
			t.Errorf("heard %v", types)
		}
		<-released
		if err := x.Send(1, true, nil); !errors.Is(err, io.ErrClosedPipe) && !errors.Is(err, transport.ErrProtocol) {
			t.Errorf("after Release: %v", err)
		}
	})
}

// TestListenEnds: the end of a lane and that of the session are heard, once.
func TestListenEnds(t *testing.T) {
	eachWiring(t, func(t *testing.T, w wiring) {
		e := w.connect(t, transport.Options{}, transport.Options{})
		left := newHeard()
		e.serve(t, func(ctx context.Context, x *transport.Exchange, first transport.Frame) {
			if first.Type == 1 {
				return // closes the lane
			}
			if err := x.Listen(left.hear); err != nil {
				t.Error(err)
			}
			<-ctx.Done()
		})
		h := newHeard()
		x := listening(t, e.opener, h.hear)
		send(t, x, 1, false, nil)
		if err := <-h.end; !errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, transport.ErrSessionClosed) {
			t.Errorf("the lane: %v", err)
		}
		x.Release()
		x = listening(t, e.opener, h.hear)
		send(t, x, 2, false, nil)
		x.Release() // without an answer: closes the lane
		if err := <-left.end; !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("the acceptor: %v", err)
		}
		x = listening(t, e.opener, h.hear)
		send(t, x, 2, false, nil)
		e.opener.Close(nil)
		if err := <-h.end; !errors.Is(err, transport.ErrSessionClosed) {
			t.Errorf("the session: %v", err)
		}
		if err := x.Listen(h.hear); err != nil && !errors.Is(err, transport.ErrSessionClosed) {
			t.Error(err)
		}
	})
}

// TestListenAfterEnd: who listens hears after the peer's End only how the lane has ended,
// if it did before the exchange was over.
func TestListenAfterEnd(t *testing.T) {
	eachWiring(t, func(t *testing.T, w wiring) {
		e := w.connect(t, transport.Options{}, transport.Options{})
		h := newHeard()
		e.serve(t, func(ctx context.Context, x *transport.Exchange, _ transport.Frame) {
			if err := x.Listen(h.hear); err != nil {
				t.Error(err)
			}
			<-ctx.Done()
		})
		x := listening(t, e.opener, newHeard().hear)
		send(t, x, 1, false, nil)
		send(t, x, 2, true, nil)
		if f := <-h.frames; f.Type != 2 || !f.End {
			t.Errorf("heard %+v", f)
		}
		x.Release() // without an answer: closes the lane
		if err := <-h.end; !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("the end of the lane: %v", err)
		}
	})
}

// TestListenAllocs: an exchange with a listener costs no more than what it carries.
func TestListenAllocs(t *testing.T) {
	e := wiring{memory: true, openerDials: true}.connect(t, transport.Options{}, transport.Options{})
	e.serve(t, answer)
	done := make(chan struct{}, 1)
	n := testing.AllocsPerRun(200, func() {
		x := listening(t, e.opener, func(transport.Frame, error) { done <- struct{}{} })
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
