package transport

import (
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

// overASlowLine runs a test body in virtual time with a session that beats, and whose
// acceptor can send so many bytes a second.
func overASlowLine(t *testing.T, rate int, handle func(*Exchange, Frame), body func(t *testing.T, opener *Session)) {
	forgetTimers()
	defer forgetTimers()
	synctest.Test(t, func(t *testing.T) {
		options := Options{
			Logger:   slog.New(slog.DiscardHandler),
			MaxFrame: func(Type) int { return MaxFrame },
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
		opener, acceptor := newSession(om, out, Peer{}, options, true), newSession(am, in, Peer{}, options, false)
		var reading sync.WaitGroup
		defer reading.Wait()
		reading.Go(func() { _ = opener.Serve(nil) })
		reading.Go(func() { _ = acceptor.Serve(handle) })
		defer acceptor.Close(nil)
		defer opener.Close(nil)
		opener.Beat(10 * time.Second)
		acceptor.Beat(10 * time.Second)
		body(t, opener)
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
		handle := func(x *Exchange, _ Frame) { _ = x.Send(1, true, answer) }
		overASlowLine(t, rate, handle, func(t *testing.T, opener *Session) {
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
