package transport

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/harpcaller/harp/internal/msgpack"
)

// slowConn is an end of a connection over which so many bytes pass a second.
type slowConn struct {
	net.Conn
	rate   int
	closed chan struct{}
	once   sync.Once
}

func (c *slowConn) Write(p []byte) (int, error) {
	select {
	case <-time.After(time.Duration(len(p)) * time.Second / time.Duration(c.rate)):
		return c.Conn.Write(p)
	case <-c.closed:
		return 0, net.ErrClosed
	}
}

func (c *slowConn) Close() error {
	c.once.Do(func() { close(c.closed) })
	return c.Conn.Close()
}

// slowSession makes a session that beats, and whose acceptor can send so many bytes a second.
func slowSession(t *testing.T, rate int, peer Peer, b *Budget) (opener, acceptor *Session) {
	t.Helper()
	options := Options{
		Logger:   slog.New(slog.DiscardHandler),
		MaxFrame: func(Type) int { return MaxFrame },
		Budget:   b,
	}.withDefaults()
	near, far := net.Pipe()
	om, err := newYamux(near, options, true)
	if err != nil {
		t.Fatal(err)
	}
	am, err := newYamux(&slowConn{Conn: far, rate: rate, closed: make(chan struct{})}, options, false)
	if err != nil {
		t.Fatal(err)
	}
	out, in := yamuxStreams(t, om, am)
	opener = newSession(om, out, peer, options, true)
	options.Budget = NewBudget()
	acceptor = newSession(am, in, Peer{}, options, false)
	opener.Beat(10 * time.Second)
	acceptor.Beat(10 * time.Second)
	return opener, acceptor
}

// overASlowLine runs a test body in virtual time. serve begins a session that beats, and whose
// acceptor can send so many bytes a second, and returns its opener.
func overASlowLine(t *testing.T, rate int, body func(t *testing.T, serve func(handle func(*Exchange, Frame)) *Session)) {
	forgetTimers()
	defer forgetTimers()
	synctest.Test(t, func(t *testing.T) {
		opener, acceptor := slowSession(t, rate, Peer{}, nil)
		var reading sync.WaitGroup
		defer reading.Wait()
		defer acceptor.Close(nil)
		defer opener.Close(nil)
		body(t, func(handle func(*Exchange, Frame)) *Session {
			reading.Go(func() { _ = opener.Serve(nil) })
			reading.Go(func() { _ = acceptor.Serve(handle) })
			return opener
		})
	})
}

// forgetTimers empties the pool in which yamux keeps timers, of which one of virtual time is
// of no use in the world's, nor the other way round.
func forgetTimers() {
	runtime.GC() // drops what was not used since the one before
	runtime.GC()
}

// TestLongBodiesEndASessionOverASlowLine: they take turns, and until it is the turn of one
// again 30 s may pass, or three heartbeats.
func TestLongBodiesEndASessionOverASlowLine(t *testing.T) {
	answer := msgpack.AppendBytes(nil, make([]byte, 60_000))
	for _, rate := range []int{100_000, 20_000, 2_000} {
		overASlowLine(t, rate, func(t *testing.T, serve func(func(*Exchange, Frame)) *Session) {
			opener := serve(func(x *Exchange, _ Frame) { _ = x.Send(1, true, answer) })
			var all sync.WaitGroup
			for range maxBodyStreams {
				all.Go(func() {
					x, err := opener.Exchange()
					if err != nil {
						t.Error(err)
						return
					}
					defer x.Release()
					if err := x.Send(1, true, nil); err != nil {
						t.Error(err)
						return
					}
					if f, err := x.Receive(t.Context()); err != nil || len(f.Body) != len(answer) {
						t.Errorf("at %d bytes a second %d bytes came: %v", rate, len(f.Body), err)
					}
				})
			}
			all.Wait()
		})
	}
}

// TestALongSendOutlivesItsExchange: a Send that waits for a slow line to take a long body is
// free when the exchange is released or given up, with the body, and the stream is as good for
// the next one.
func TestALongSendOutlivesItsExchange(t *testing.T) {
	const patience = 10 * time.Second
	for name, giveUp := range map[string]func(near, far *Exchange){
		"released": func(_, far *Exchange) { far.Release() },
		"given up": func(near, _ *Exchange) { near.Release() },
	} {
		t.Run(name, func(t *testing.T) {
			overASlowLine(t, 10_000, func(t *testing.T, serve func(func(*Exchange, Frame)) *Session) {
				begun, sent := make(chan *Exchange), make(chan error)
				opener := serve(func(x *Exchange, first Frame) {
					body := msgpack.AppendBytes(nil, make([]byte, 1<<20))
					if first.Type == 1 {
						begun <- x
					}
					err := x.Send(1, false, body)
					for i := range body {
						body[i] = 0xc1 // which is never used
					}
					sent <- err
				})
				near, err := opener.Exchange()
				if err != nil {
					t.Fatal(err)
				}
				defer near.Release()
				if err := near.Send(1, true, nil); err != nil {
					t.Fatal(err)
				}
				far, start := <-begun, time.Now()
				time.AfterFunc(patience, func() { giveUp(near, far) })
				if err := <-sent; !errors.Is(err, io.ErrClosedPipe) || time.Since(start) > patience+5*time.Second {
					t.Errorf("after %v: %v", time.Since(start), err)
				}
				next, err := opener.Exchange()
				if err != nil {
					t.Fatal(err)
				}
				defer next.Release()
				if err := next.Send(2, true, nil); err != nil {
					t.Fatal(err)
				}
				if f, err := next.Receive(t.Context()); err != nil || len(f.Body) < 1<<20 {
					t.Errorf("then %d bytes came: %v", len(f.Body), err)
				}
				if err := <-sent; err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// TestSlowLinesLeaveRoomToOthers: peers on slow lines have more to send than a budget has room for,
// and what comes over a fast line does not wait for it.
func TestSlowLinesLeaveRoomToOthers(t *testing.T) {
	const slow, each = 8, 8
	forgetTimers()
	defer forgetTimers()
	synctest.Test(t, func(t *testing.T) {
		answer := msgpack.AppendBytes(nil, make([]byte, 1<<20))
		b := NewBudget()
		var working sync.WaitGroup
		defer working.Wait()
		serve := func(name string, rate int) *Session {
			opener, acceptor := slowSession(t, rate, Peer{Identity: Identity{Name: name}}, b)
			working.Go(func() { _ = opener.Serve(nil) })
			working.Go(func() { _ = acceptor.Serve(func(x *Exchange, _ Frame) { _ = x.Send(1, true, answer) }) })
			return opener
		}
		ask := func(s *Session) (Frame, error) {
			x, err := s.Exchange()
			if err != nil {
				return Frame{}, err
			}
			defer x.Release()
			if err := x.Send(1, true, nil); err != nil {
				return Frame{}, err
			}
			return x.Receive(t.Context())
		}
		for i := range slow {
			s := serve(fmt.Sprint("slow", i), 10_000)
			defer s.Close(nil)
			for range each {
				working.Go(func() { _, _ = ask(s) }) // until the session is closed
			}
		}
		time.Sleep(20 * time.Second)
		fast := serve("fast", 10_000_000)
		defer fast.Close(nil)
		start := time.Now()
		if f, err := ask(fast); err != nil || len(f.Body) != len(answer) || time.Since(start) > time.Second {
			t.Errorf("%d bytes came after %v: %v", len(f.Body), time.Since(start), err)
		}
	})
}

// TestASideThatDidNotListenFindsNobodySilent: when frames that waited are taken, it is a moment until
// something comes again, as the peer could not send.
func TestASideThatDidNotListenFindsNobodySilent(t *testing.T) {
	const beat = 10 * time.Millisecond
	forgetTimers()
	defer forgetTimers()
	synctest.Test(t, func(t *testing.T) {
		opener, acceptor := slowSession(t, 1_000_000, Peer{}, nil)
		opener.Beat(beat)
		acceptor.Beat(beat)
		var serving sync.WaitGroup
		defer serving.Wait()
		defer acceptor.Close(nil)
		defer opener.Close(nil)
		serving.Go(func() { _ = opener.Serve(nil) })
		serving.Go(func() {
			_ = acceptor.Serve(func(x *Exchange, _ Frame) {
				for body := msgpack.AppendBytes(nil, make([]byte, 8<<10)); x.Send(1, false, body) == nil; {
				}
			})
		})
		x, err := opener.Exchange()
		if err != nil {
			t.Fatal(err)
		}
		defer x.Release()
		if err := x.Send(1, true, nil); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Second)
		if !opener.isDeaf() {
			t.Fatal("it listens all the time")
		}
		for start := time.Now(); time.Since(start) < 3*beat; {
			if _, err := x.Receive(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	})
}
