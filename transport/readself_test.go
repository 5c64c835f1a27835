package transport_test

import (
	"context"
	"errors"
	"io"
	"testing"

	"github.com/harpcaller/harp/transport"
)

// selfReading begins an exchange of which who receives reads the answers.
func selfReading(t testing.TB, s *transport.Session) *transport.Exchange {
	t.Helper()
	x, err := s.Exchange(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	x.ReadSelf()
	return x
}

// TestReadSelf: who reads the lane receives each frame in its order and then the end, on
// a lane that others read before and after, and also where it is read all the time.
func TestReadSelf(t *testing.T) {
	eachWiring(t, func(t *testing.T, w wiring) {
		e := w.connect(t, transport.Options{}, transport.Options{MaxLanes: 1})
		e.serve(t, echo)
		for round := range 6 {
			x := selfReading(t, e.opener)
			for i := range transport.Type(50) {
				send(t, x, i, i == 49, nil)
			}
			for i := range transport.Type(50) {
				if i == 25 && round%2 == 1 {
					x.ReadAhead()
				}
				want(t, x, transport.Frame{Type: i, End: i == 49})
			}
			if _, err := x.Receive(t.Context()); !errors.Is(err, io.EOF) {
				t.Errorf("after End: %v", err)
			}
			x.ReadAhead() // there is nothing to read any more
			x.Release()
			if _, err := x.Receive(t.Context()); !errors.Is(err, io.ErrClosedPipe) {
				t.Errorf("after Release: %v", err)
			}
			if err := roundTrip(t.Context(), e.opener); err != nil {
				t.Fatal(err)
			}
			if round == 3 {
				listenOnce(t, e.opener)
			}
		}
		if n, _ := transport.Lanes(e.opener); n != 1 {
			t.Errorf("%d lanes", n)
		}
	})
}

// listenOnce makes an exchange with a listener, after which its lane is read all the time.
func listenOnce(t *testing.T, s *transport.Session) {
	t.Helper()
	h := newHeard()
	x := listening(t, s, h.hear)
	send(t, x, 1, true, nil)
	<-h.frames
	x.Release()
}

// TestReadAhead: what comes while nobody receives is read only once that is wanted.
func TestReadAhead(t *testing.T) {
	eachWiring(t, func(t *testing.T, w wiring) {
		e := w.connect(t, transport.Options{}, transport.Options{})
		sent, over := make(chan struct{}), make(chan struct{})
		e.serve(t, func(ctx context.Context, x *transport.Exchange, _ transport.Frame) {
			defer close(over)
			send(t, x, 1, false, nil)
			send(t, x, 2, false, nil)
			close(sent)
			if _, err := x.Receive(ctx); err != nil {
				t.Error(err)
			}
			send(t, x, 3, true, nil)
		})
		x := selfReading(t, e.opener)
		send(t, x, 1, false, nil)
		want(t, x, transport.Frame{Type: 1})
		<-sent
		if f, ok := x.TryReceive(); ok {
			t.Errorf("frame %d was read for nobody", f.Type)
		}
		x.ReadAhead()
		want(t, x, transport.Frame{Type: 2})
		send(t, x, 2, true, nil)
		want(t, x, transport.Frame{Type: 3, End: true})
		x.Release()
		<-over // a session that ends before Send has returned makes it fail
	})
}

// TestReadSelfEnds: who reads the lane is told of its end and of that of the session, and
// not left waiting by a ReadAhead that comes too late.
func TestReadSelfEnds(t *testing.T) {
	eachWiring(t, func(t *testing.T, w wiring) {
		e := w.connect(t, transport.Options{}, transport.Options{})
		begun := make(chan struct{})
		e.serve(t, func(ctx context.Context, x *transport.Exchange, first transport.Frame) {
			if first.Type == 1 {
				return // closes the lane
			}
			begun <- struct{}{}
			<-ctx.Done()
		})
		x := selfReading(t, e.opener)
		send(t, x, 1, false, nil)
		if _, err := x.Receive(t.Context()); !errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, transport.ErrSessionClosed) {
			t.Errorf("the lane: %v", err)
		}
		x.Release()
		x, y := selfReading(t, e.opener), selfReading(t, e.opener)
		send(t, x, 2, false, nil)
		<-begun
		send(t, y, 2, false, nil)
		<-begun
		ended := make(chan error, 1)
		go func() {
			_, err := x.Receive(context.Background())
			ended <- err
		}()
		e.opener.Close(nil)
		if err := <-ended; !errors.Is(err, io.ErrUnexpectedEOF) || !errors.Is(err, transport.ErrSessionClosed) {
			t.Errorf("the session: %v", err)
		}
		y.ReadAhead()
		if _, err := y.Receive(t.Context()); !errors.Is(err, io.ErrUnexpectedEOF) || !errors.Is(err, transport.ErrSessionClosed) {
			t.Errorf("read ahead after the session: %v", err)
		}
	})
}

// TestReadSelfAllocs: an exchange whose answers are read where they are received costs no
// more than what it carries.
func TestReadSelfAllocs(t *testing.T) {
	e := wiring{memory: true, openerDials: true}.connect(t, transport.Options{}, transport.Options{})
	e.serve(t, answer)
	n := testing.AllocsPerRun(200, func() {
		x := selfReading(t, e.opener)
		if err := x.Send(1, true, body100); err != nil {
			t.Fatal(err)
		}
		if _, err := x.Receive(t.Context()); err != nil {
			t.Fatal(err)
		}
		x.Release()
	})
	if n > 9 {
		t.Errorf("%v allocations", n)
	}
}
