package transport_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/harpcaller/harp/transport"
)

// TestLongBodies: bodies of every length come back as they were sent, in their order, in
// many exchanges at a time.
func TestLongBodies(t *testing.T) {
	eachWiring(t, func(t *testing.T, w wiring) {
		large := transport.Options{MaxFrame: func(transport.Type) int { return transport.MaxFrame }}
		e := w.connect(t, large, large)
		e.serve(t, echo)
		var all sync.WaitGroup
		for i := range 80 { // more than there are streams
			all.Go(func() {
				if err := talk(t.Context(), e.opener, i); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
	})
}

// TestBuffersAreKeptBetweenBodies: what yamux needed for a body is kept for the next one, of all sessions no more than
// the budget has, and given back at the next heartbeat, and with the session.
func TestBuffersAreKeptBetweenBodies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, b := virtual, transport.NewBudget()
		o := transport.Options{Budget: b, MaxFrame: func(transport.Type) int { return transport.MaxFrame }}
		var all []ends
		send := func(n int) {
			e := w.connect(t, transport.Options{MaxFrame: o.MaxFrame}, o)
			e.serve(t, echo)
			all = append(all, e)
			x, err := e.opener.Exchange()
			if err != nil {
				t.Fatal(err)
			}
			defer x.Release()
			if err := x.Send(1, true, bin(n)); err != nil {
				t.Fatal(err)
			}
			if _, err := x.Receive(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		send(100_000)
		if n := transport.KeptBuffers(b); n < 200_000 || n > 201_000 {
			t.Errorf("%d bytes are kept", n)
		}
		all[0].acceptor.Beat(10 * time.Second)
		all[0].opener.Beat(10 * time.Second)
		time.Sleep(time.Minute)
		if n := transport.KeptBuffers(b); n != 0 {
			t.Errorf("%d bytes are kept of a session that rests", n)
		}
		for range 10 {
			send(1 << 20)
		}
		if n := transport.KeptBuffers(b); n < transport.MaxKept/2 || n > transport.MaxKept {
			t.Errorf("%d bytes are kept of all", n)
		}
		for _, e := range all {
			e.opener.Close(nil)
			<-e.acceptor.Done()
		}
		wantNothingHeld(t, b)
	})
}

// talk sends bodies of several lengths and receives them.
func talk(ctx context.Context, s *transport.Session, i int) error {
	x, err := s.Exchange()
	if err != nil {
		return err
	}
	defer x.Release()
	sizes := []int{10, 20_000, 0, 16_380, 16_390, 70_000, i * 1000, 3}
	for n, size := range sizes {
		if err := x.Send(transport.Type(n), n == len(sizes)-1, bin(size)); err != nil {
			return fmt.Errorf("send %d bytes: %w", size, err)
		}
	}
	for n, size := range sizes {
		f, err := x.Receive(ctx)
		if err != nil {
			return fmt.Errorf("receive %d bytes: %w", size, err)
		}
		if f.Type != transport.Type(n) || !bytes.Equal(f.Body, bin(size)) || f.End != (n == len(sizes)-1) {
			return fmt.Errorf("frame %d with %d bytes came where %d were expected", f.Type, len(f.Body), size)
		}
	}
	return nil
}

// TestLongBodiesThatNobodyTakes: they hold up no other exchange.
func TestLongBodiesThatNobodyTakes(t *testing.T) {
	const size = 500_000
	synctest.Test(t, func(t *testing.T) {
		large := transport.Options{MaxFrame: func(transport.Type) int { return transport.MaxFrame }}
		e := wiring{memory: true, openerDials: true}.connect(t, large, large)
		e.serve(t, func(x *transport.Exchange, first transport.Frame) {
			if first.Type == 2 {
				_ = x.Send(2, true, bin(size))
				return
			}
			for x.Send(1, false, bin(256<<10)) == nil {
			}
		})
		standing := e.exchange(t)
		defer standing.Release()
		send(t, standing, 1, true, nil)
		synctest.Wait()
		x := e.exchange(t)
		defer x.Release()
		send(t, x, 2, true, nil)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if f, err := x.Receive(ctx); err != nil || len(f.Body) < size {
			t.Errorf("received %d bytes, %v", len(f.Body), err)
		}
	})
}

// openLink is a link that says when a stream is opened.
type openLink struct {
	transport.Link
	opens func()
}

func (l openLink) Streams(window int) transport.Mux { return openMux{l.Link.Streams(window), l.opens} }

type openMux struct {
	transport.Mux
	opens func()
}

func (m openMux) Open(ctx context.Context) (transport.Stream, error) {
	m.opens()
	return m.Mux.Open(ctx)
}

// TestReleaseWhileAStreamIsOpened: the stream is there for the next exchange.
func TestReleaseWhileAStreamIsOpened(t *testing.T) {
	var x *transport.Exchange
	opened := 0
	e := openEnds(t, func() {
		if opened++; x != nil {
			x.Release()
		}
	})
	e.serve(t, echo)
	for range 3 {
		x = e.exchange(t)
		switch err := x.Send(1, true, bin(20_000)); {
		case err == nil:
			x.Release()
		case !errors.Is(err, io.ErrClosedPipe):
			t.Fatal(err)
		}
	}
	if opened > 3 { // the body before may not have been let in yet
		t.Errorf("opened %d streams, the session's among them", opened)
	}
}

// openEnds is a session whose opener says when it opens a stream.
func openEnds(t *testing.T, opens func()) (e ends) {
	t.Helper()
	nc, ns := wiring{memory: true}.pipe(t, dispatcherID, agentID)
	var shake sync.WaitGroup
	shake.Go(func() {
		c, err := transport.Server(t.Context(), ns, nil, map[string]transport.Role{transport.ProtocolAgent: transport.RoleDispatcher})
		if err == nil {
			e.acceptor, err = c.Acceptor(t.Context(), quiet(transport.Options{}))
		}
		if err != nil {
			t.Error(err)
		}
	})
	var link net.Conn = openLink{nc.(transport.Link), opens}
	c, err := transport.Client(t.Context(), link, nil, transport.ProtocolAgent, transport.RoleAgent)
	if err == nil {
		e.opener, err = c.Opener(t.Context(), quiet(transport.Options{}))
	}
	shake.Wait()
	if err != nil || t.Failed() {
		t.Fatal(err)
	}
	return e
}

// TestALargeBodyBehindManySmallOnes: where others always wait for the room that one of them
// leaves, a large one is read, too.
func TestALargeBodyBehindManySmallOnes(t *testing.T) {
	const exchanges, large = 60, 1 << 20
	synctest.Test(t, func(t *testing.T) {
		options := transport.Options{MaxFrame: func(transport.Type) int { return transport.MaxFrame }}
		e := virtual.connect(t, options, options)
		flooded, came := make(chan *transport.Exchange, exchanges), make(chan int, 1)
		e.serve(t, func(x *transport.Exchange, first transport.Frame) {
			if first.Type == 1 {
				flooded <- x
				<-x.Context().Done()
				return
			}
			f, _ := x.Receive(context.Background())
			came <- len(f.Body)
		})
		var sending sync.WaitGroup
		defer sending.Wait()
		defer e.opener.Close(nil)
		var floods []*transport.Exchange
		for range exchanges {
			x := e.exchange(t)
			send(t, x, 1, false, nil)
			sending.Go(func() {
				for n := 0; n < 10 && x.Send(1, false, bin(60_000)) == nil; n++ {
				}
			})
			floods = append(floods, <-flooded)
		}
		synctest.Wait() // nothing more has room
		x := e.exchange(t)
		send(t, x, 2, false, nil)
		sending.Go(func() { _ = x.Send(2, true, bin(large)) })
		for n := range 300 { // of 600
			time.Sleep(time.Millisecond)
			for i := range floods { // one of them has a body that may be taken
				_, ok, err := floods[(n+i)%exchanges].TryReceive()
				if err != nil {
					t.Fatal(err)
				}
				if ok {
					break
				}
			}
			select {
			case size := <-came:
				if size < large {
					t.Errorf("%d bytes came", size)
				}
				return
			default:
			}
		}
		t.Error("it was overtaken again and again")
	})
}

// TestBodiesOfAnExchangeAreLetInInOrder: where there is room for one of them, a later one that had it would keep the earlier one from coming,
// which has to be taken first.
func TestBodiesOfAnExchangeAreLetInInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := transport.NewBudget()
		transport.LimitBodies(b, 30_000)
		e := virtual.connect(t, transport.Options{}, transport.Options{Budget: b})
		e.serve(t, func(x *transport.Exchange, f transport.Frame) {
			for !f.End {
				var err error
				if f, err = x.Receive(context.Background()); err != nil {
					return
				}
			}
			_ = x.Send(1, true, nil)
		})
		for range 500 {
			x := e.exchange(t)
			send(t, x, 1, false, nil)
			var sent sync.WaitGroup
			for range 5 {
				sent.Go(func() { send(t, x, 1, false, body20k) })
			}
			sent.Wait()
			send(t, x, 1, true, nil)
			want(t, x, transport.Frame{Type: 1, End: true})
			x.Release()
		}
	})
}
