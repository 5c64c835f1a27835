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

// badRoads is a session over a network whose roads can be bad. The agent opens the
// exchanges.
type badRoads struct {
	there, back *transport.Road // from the agent, and to it
	reset       func()
	dial        func(context.Context) error // makes one more connection
	a, d        *transport.Session
	ca, cd      *transport.Control
}

// onBadRoads runs a test body in virtual time.
func onBadRoads(t *testing.T, body func(t *testing.T, r *badRoads)) {
	synctest.Test(t, func(t *testing.T) {
		n := transport.NewNetwork()
		l, err := n.Listen("d:1", dispatcherID)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		r := &badRoads{
			there: n.Road(agentID, dispatcherID), back: n.Road(dispatcherID, agentID),
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
		r.begin(t, conn, <-served)
		defer r.d.Close(nil)
		defer r.a.Close(nil)
		body(t, r)
	})
}

func (r *badRoads) begin(t *testing.T, agent, dispatcher *transport.Conn) {
	var err error
	if r.a, err = agent.Opener(transport.Options{}); err == nil {
		r.ca, err = r.a.Control(t.Context())
	}
	if err == nil {
		r.d, err = dispatcher.Acceptor(transport.Options{})
	}
	if err == nil {
		err = r.ca.Send(transport.Frame{Type: 1})
	}
	if err == nil {
		r.cd, err = r.d.Control(t.Context())
	}
	if err == nil {
		_, err = r.cd.Receive(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
}

// within is how a Receive that may take so long ends.
func within(t *testing.T, c *transport.Control, d time.Duration) (transport.Type, error) {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	f, err := c.Receive(ctx)
	return f.Type, err
}

func TestABlockedRoadHoldsOneDirection(t *testing.T) {
	onBadRoads(t, func(t *testing.T, r *badRoads) {
		r.there.Block()
		for typ := range transport.Type(3) {
			if err := r.ca.Send(transport.Frame{Type: typ}); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := within(t, r.cd, time.Minute); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("over a blocked road came %v", err)
		}
		if err := r.cd.Send(transport.Frame{Type: 9}); err != nil {
			t.Fatal(err)
		}
		if typ, err := within(t, r.ca, 0+time.Nanosecond); typ != 9 || err != nil {
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
	onBadRoads(t, func(t *testing.T, r *badRoads) {
		begun := time.Now()
		r.there.Delay(3 * time.Second)
		for typ := range transport.Type(2) {
			if err := r.ca.Send(transport.Frame{Type: typ}); err != nil {
				t.Fatal(err)
			}
		}
		r.there.Delay(0) // what follows does not overtake
		if err := r.ca.Send(transport.Frame{Type: 2}); err != nil {
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
		if err := r.ca.Send(transport.Frame{Type: 4}); err != nil {
			t.Fatal(err)
		}
		if typ, err := within(t, r.cd, time.Nanosecond); typ != 4 || err != nil {
			t.Errorf("when the road is straight again: %v, %v", typ, err)
		}
	})
}

// Who closes a connection over a blocked road is alone with knowing it.
func TestTheEndOfAConnectionTravels(t *testing.T) {
	onBadRoads(t, func(t *testing.T, r *badRoads) {
		r.there.Block()
		if err := r.ca.Send(transport.Frame{Type: 7}); err != nil {
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
	onBadRoads(t, func(t *testing.T, r *badRoads) {
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
			t.Fatalf("it passed a road that was blocked meanwhile: %v", err)
		}
		r.there.Open()
		<-r.d.Done()
	})
}

func TestReset(t *testing.T) {
	onBadRoads(t, func(t *testing.T, r *badRoads) {
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
	onBadRoads(t, func(t *testing.T, r *badRoads) {
		for _, road := range []*transport.Road{r.there, r.back} {
			road.Block()
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			if err := r.dial(ctx); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("over a blocked road: %v", err)
			}
			time.AfterFunc(time.Second, road.Open)
			cancel()
			begun := time.Now()
			if err := r.dial(t.Context()); err != nil || time.Since(begun) != time.Second {
				t.Errorf("when it opens: %v after %v", err, time.Since(begun))
			}
			road.Delay(2 * time.Second)
			begun = time.Now()
			if err := r.dial(t.Context()); err != nil || time.Since(begun) != 2*time.Second {
				t.Errorf("when it is slow: %v after %v", err, time.Since(begun))
			}
			road.Delay(0)
		}
	})
}

// A peer that is cut off is silent, and so is who is cut off from it.
func TestABlockedRoadIsSilence(t *testing.T) {
	onBadRoads(t, func(t *testing.T, r *badRoads) {
		r.ca.Beat(time.Second)
		r.cd.Beat(time.Second)
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
