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
	"github.com/harpcaller/harp/transport/memnet"
)

// badPaths is a session over a network whose paths can be bad. The agent opens the
// exchanges.
type badPaths struct {
	there, back *memnet.Path // from the agent, and to it
	reset       func()
	dial        func(context.Context) error // makes one more connection
	a, d        *transport.Session
	ca, cd      *transport.Exchange                        // their controls
	handle      func(*transport.Exchange, transport.Frame) // of d
}

// onBadPaths runs a test body in virtual time.
func onBadPaths(t *testing.T, body func(t *testing.T, r *badPaths)) { onBadPathsWith(t, nil, body) }

// onBadPathsWith is onBadPaths with a handler for the dispatcher's exchanges.
func onBadPathsWith(t *testing.T, handle func(*transport.Exchange, transport.Frame), body func(t *testing.T, r *badPaths)) {
	synctest.Test(t, func(t *testing.T) {
		n := memnet.New()
		l, err := n.Listen("d:1", dispatcherID)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		r := &badPaths{
			handle: handle,
			there:  n.Path(agentID, dispatcherID), back: n.Path(dispatcherID, agentID),
			reset: func() { n.Reset(dispatcherID, agentID) },
			dial: func(ctx context.Context) error {
				nc, err := n.Dialer(agentID)(ctx, "d:1")
				if err == nil {
					err = nc.Close()
				}
				return err
			},
		}
		served := make(chan *transport.Conn)
		go func() {
			nc, err := l.Accept()
			if err != nil {
				t.Error(err)
			}
			c, err := transport.Server(t.Context(), nc, nil, map[string]transport.Role{transport.ProtocolAgent: transport.RoleAgent})
			if err != nil {
				t.Error(err)
			}
			served <- c
		}()
		nc, err := n.Dialer(agentID)(t.Context(), "d:1")
		if err != nil {
			t.Fatal(err)
		}
		conn, err := transport.Client(t.Context(), nc, nil, transport.ProtocolAgent, transport.RoleDispatcher)
		if err != nil {
			t.Fatal(err)
		}
		reading := r.begin(t, conn, <-served)
		defer reading.Wait()
		defer r.d.Close(nil)
		defer r.a.Close(nil)
		body(t, r)
	})
}

func (r *badPaths) begin(t *testing.T, agent, dispatcher *transport.Conn) *sync.WaitGroup {
	var err error
	if r.a, err = agent.Opener(t.Context(), transport.Options{}); err == nil {
		r.d, err = dispatcher.Acceptor(t.Context(), transport.Options{})
	}
	if err != nil {
		t.Fatal(err)
	}
	r.ca, r.cd = r.a.Control(), r.d.Control()
	var reading sync.WaitGroup
	reading.Go(func() { _ = r.a.Serve(nil) })
	reading.Go(func() { _ = r.d.Serve(r.handle) })
	return &reading
}

// within is how a Receive that may take so long ends.
func within(t *testing.T, c *transport.Exchange, d time.Duration) (transport.Type, error) {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	f, err := c.Receive(ctx)
	return f.Type, err
}

func TestABlockedRoadHoldsOneDirection(t *testing.T) {
	onBadPaths(t, func(t *testing.T, r *badPaths) {
		r.there.Block()
		for typ := range transport.Type(3) {
			if err := r.ca.Send(typ, false, nil); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := within(t, r.cd, time.Minute); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("over a blocked path came %v", err)
		}
		if err := r.cd.Send(9, false, nil); err != nil {
			t.Fatal(err)
		}
		if typ, err := within(t, r.ca, time.Nanosecond); typ != 9 || err != nil {
			t.Errorf("the other direction: %v, %v", typ, err)
		}
		r.there.Open()
		for want := range transport.Type(3) {
			if typ, err := within(t, r.cd, time.Nanosecond); typ != want || err != nil {
				t.Errorf("after Open came %v, %v instead of %d", typ, err, want)
			}
		}
	})
}

func TestADelay(t *testing.T) {
	onBadPaths(t, func(t *testing.T, r *badPaths) {
		begun := time.Now()
		r.there.Delay(3 * time.Second)
		for typ := range transport.Type(2) {
			if err := r.ca.Send(typ, false, nil); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()  // it is on its way
		r.there.Delay(0) // what follows does not overtake
		if err := r.ca.Send(2, false, nil); err != nil {
			t.Fatal(err)
		}
		for want := range transport.Type(3) {
			if typ, err := within(t, r.cd, time.Minute); typ != want || err != nil {
				t.Errorf("came %v, %v instead of %d", typ, err, want)
			}
			if took := time.Since(begun); took != 3*time.Second {
				t.Errorf("it took %v", took)
			}
		}
		if err := r.ca.Send(4, false, nil); err != nil {
			t.Fatal(err)
		}
		if typ, err := within(t, r.cd, time.Nanosecond); typ != 4 || err != nil {
			t.Errorf("when the path is straight again: %v, %v", typ, err)
		}
	})
}

// Who closes a connection over a blocked path is alone with knowing it.
func TestTheEndOfAConnectionTravels(t *testing.T) {
	onBadPaths(t, func(t *testing.T, r *badPaths) {
		r.there.Block()
		if err := r.ca.Send(7, false, nil); err != nil {
			t.Fatal(err)
		}
		r.a.Close(nil)
		time.Sleep(time.Hour)
		synctest.Wait()
		if err := r.d.Err(); err != nil {
			t.Fatalf("the other end knows: %v", err)
		}
		r.there.Open()
		if typ, err := within(t, r.cd, time.Nanosecond); typ != 7 || err != nil {
			t.Errorf("what was sent before: %v, %v", typ, err)
		}
		synctest.Wait()
		if err := r.d.Err(); !errors.Is(err, transport.ErrSessionClosed) {
			t.Errorf("after Open the other end has %v", err)
		}
	})
}

func TestADelayedEnd(t *testing.T) {
	onBadPaths(t, func(t *testing.T, r *badPaths) {
		r.there.Delay(time.Minute)
		r.a.Close(nil)
		time.Sleep(time.Minute - 1)
		synctest.Wait()
		if err := r.d.Err(); err != nil {
			t.Fatalf("the end was not delayed: %v", err)
		}
		r.there.Block()
		time.Sleep(time.Hour)
		synctest.Wait()
		if err := r.d.Err(); err != nil {
			t.Fatalf("it passed a path that was blocked meanwhile: %v", err)
		}
		r.there.Open()
		<-r.d.Done()
	})
}

func TestReset(t *testing.T) {
	onBadPaths(t, func(t *testing.T, r *badPaths) {
		r.there.Block()
		r.back.Block()
		r.reset()
		<-r.a.Done()
		<-r.d.Done()
		if err := r.a.Err(); !errors.Is(err, transport.ErrSessionClosed) || errors.Is(err, io.EOF) {
			t.Errorf("the agent's end: %v", err)
		}
	})
}

// A connection is there when a packet has gone there and one has come back.
func TestDiallingOverBadRoads(t *testing.T) {
	onBadPaths(t, func(t *testing.T, r *badPaths) {
		for _, path := range []*memnet.Path{r.there, r.back} {
			path.Block()
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			if err := r.dial(ctx); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("over a blocked path: %v", err)
			}
			time.AfterFunc(time.Second, path.Open)
			cancel()
			begun := time.Now()
			if err := r.dial(t.Context()); err != nil || time.Since(begun) != time.Second {
				t.Errorf("when it opens: %v after %v", err, time.Since(begun))
			}
			path.Delay(2 * time.Second)
			begun = time.Now()
			if err := r.dial(t.Context()); err != nil || time.Since(begun) != 2*time.Second {
				t.Errorf("when it is slow: %v after %v", err, time.Since(begun))
			}
			path.Delay(0)
		}
	})
}

// A peer that is cut off is silent, and so is who is cut off from it.
func TestABlockedRoadIsSilence(t *testing.T) {
	onBadPaths(t, func(t *testing.T, r *badPaths) {
		r.a.Beat(time.Second)
		r.d.Beat(time.Second)
		time.Sleep(time.Minute)
		r.there.Block()
		time.Sleep(time.Minute)
		synctest.Wait()
		if err := r.d.Err(); !errors.Is(err, transport.ErrSilent) {
			t.Errorf("who hears nothing has %v", err)
		}
		if err := r.a.Err(); !errors.Is(err, transport.ErrSessionClosed) || errors.Is(err, transport.ErrSilent) {
			t.Errorf("who is told of the end has %v", err)
		}
	})
}
