package transport_test

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/harpcaller/harp/transport"
)

// talk is the opener's side of a session that converses.
type talk struct {
	opener, acceptor *transport.Session
	far              *transport.Control // the acceptor's
	over             chan error         // what Converse returned
}

func converse(t *testing.T, begin func(*transport.Control) error, hear func(transport.Frame) error) talk {
	t.Helper()
	nc, ns := virtual.pipe(t, callerID, dispatcherID)
	conns := make(chan *transport.Conn, 1)
	go func() {
		c, err := transport.Server(t.Context(), ns, nil, map[string]transport.Role{transport.ProtocolCall: transport.RoleCaller})
		if err != nil {
			t.Error(err)
		}
		conns <- c
	}()
	near, err := transport.Client(t.Context(), nc, nil, transport.ProtocolCall, transport.RoleDispatcher)
	if err != nil {
		t.Fatal(err)
	}
	k := talk{over: make(chan error, 1)}
	if k.opener, err = near.Opener(transport.Options{}); err != nil {
		t.Fatal(err)
	}
	if k.acceptor, err = (<-conns).Acceptor(transport.Options{}); err != nil {
		t.Fatal(err)
	}
	go func() { k.over <- k.opener.Converse(t.Context(), begin, hear) }()
	if k.far, err = k.acceptor.Control(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		k.opener.Close(nil)
		k.acceptor.Close(nil)
	})
	return k
}

func (k talk) say(t *testing.T, n int) {
	t.Helper()
	if err := k.far.Send(transport.Frame{Type: 1, Body: []byte{byte(n)}}); err != nil {
		t.Error(err)
	}
}

// What begin does not receive is heard after it, one frame after the other, while
// heartbeats are heard however long that takes.
func TestConverse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var heard []byte
		at := 0
		k := converse(t, func(c *transport.Control) error {
			c.Beat(time.Second)
			f, err := c.Receive(t.Context())
			heard = append(heard, f.Body...)
			time.Sleep(time.Minute)
			return err
		}, func(f transport.Frame) error {
			if at++; at > 1 {
				t.Error("two frames are heard at a time")
			}
			time.Sleep(time.Minute)
			heard = append(heard, f.Body...)
			at--
			return nil
		})
		k.far.Beat(time.Second)
		for n := range 40 { // more than are kept
			k.say(t, n)
		}
		time.Sleep(2 * time.Hour)
		k.say(t, 40)
		time.Sleep(2 * time.Minute)
		k.acceptor.Close(nil)
		if err := <-k.over; !errors.Is(err, transport.ErrSessionClosed) {
			t.Errorf("it ended with %v", err)
		}
		for n := range 41 {
			if len(heard) != 41 || heard[n] != byte(n) {
				t.Fatalf("heard %v", heard)
			}
		}
	})
}

// The first failure ends the session, and nothing is heard after it.
func TestConverseFails(t *testing.T) {
	failure := errors.New("failure")
	for name, early := range map[string]bool{"begin": true, "hear": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				heard := 0
				k := converse(t, func(c *transport.Control) error {
					if !early {
						return nil
					}
					_, err := c.Receive(t.Context())
					return errors.Join(failure, err)
				}, func(transport.Frame) error {
					heard++
					return failure
				})
				for range 3 {
					_ = k.far.Send(transport.Frame{Type: 1}) // the session may be over
				}
				if err := <-k.over; !errors.Is(err, failure) || !errors.Is(k.opener.Err(), failure) {
					t.Errorf("it ended with %v, the session with %v", err, k.opener.Err())
				}
				if early && heard != 0 || heard > 1 {
					t.Errorf("%d frames were heard", heard)
				}
			})
		})
	}
}

// Converse waits for who hears, and Close does not, who may be the one to call it.
func TestConverseIsClosedWithin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reason := errors.New("reason")
		var k talk
		k = converse(t, func(*transport.Control) error { return nil }, func(transport.Frame) error {
			k.opener.Close(reason)
			time.Sleep(time.Hour)
			return nil
		})
		synctest.Wait()
		k.say(t, 1)
		begun := time.Now()
		if err := <-k.over; !errors.Is(err, reason) {
			t.Errorf("it ended with %v", err)
		}
		if took := time.Since(begun); took < time.Hour {
			t.Errorf("it ended after %v", took)
		}
	})
}

// There is a goroutine to hear while there is something to be heard.
func TestConverseIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		heard := 0
		k := converse(t, func(*transport.Control) error { time.Sleep(time.Second); return nil }, func(transport.Frame) error {
			heard++
			time.Sleep(time.Second)
			return nil
		})
		synctest.Wait()
		begins := runtime.NumGoroutine()
		for n := 1; n <= 3; n++ {
			time.Sleep(time.Minute)
			synctest.Wait()
			if idle := runtime.NumGoroutine(); idle >= begins {
				t.Errorf("%d goroutines, %d when it began", idle, begins)
			}
			k.say(t, n)
		}
		time.Sleep(time.Minute)
		k.acceptor.Close(nil)
		if err := <-k.over; !errors.Is(err, transport.ErrSessionClosed) {
			t.Errorf("it ended with %v", err)
		}
		if heard != 3 {
			t.Errorf("%d frames were heard", heard)
		}
	})
}

// A session that has ended lets nobody wait, and a stream is waited for as long as
// ctx allows.
func TestConverseTooLate(t *testing.T) {
	inBubble(t, func(t *testing.T, e ends) {
		hear := func(transport.Frame) error { return nil }
		begin := func(c *transport.Control) error {
			_, err := c.Receive(context.Background())
			return err
		}
		if err := e.opener.Converse(t.Context(), begin, hear); !errors.Is(err, transport.ErrProtocol) {
			t.Errorf("a second control stream: %v", err)
		}
		e.opener.Close(nil)
		if err := e.opener.Converse(t.Context(), begin, hear); err == nil {
			t.Error("a session that has ended converses")
		}
	})
}
