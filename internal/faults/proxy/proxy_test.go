package proxy

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// echoing is a proxy before a server that says everything back.
func echoing(t *testing.T) *Proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var work sync.WaitGroup
	work.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			work.Go(func() {
				defer c.Close()
				_, _ = io.Copy(c, c)
			})
		}
	})
	p, err := New(l.Addr().String(), 1)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(p.Close(), l.Close()); err != nil {
			t.Error(err)
		}
		work.Wait()
	})
	return p
}

func dial(t *testing.T, p *Proxy) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", p.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// echo says something and expects it back.
func echo(t *testing.T, c net.Conn, said []byte) {
	t.Helper()
	if _, err := c.Write(said); err != nil {
		t.Fatal(err)
	}
	heard := make([]byte, len(said))
	if _, err := io.ReadFull(c, heard); err != nil || !bytes.Equal(said, heard) {
		t.Fatalf("heard something else of %d bytes: %v", len(said), err)
	}
}

func TestPasses(t *testing.T) {
	p := echoing(t)
	for _, f := range []Faults{{}, {Delay: time.Millisecond, Jitter: time.Millisecond}, {Piece: 1}, {Rate: 10 << 20, Piece: 100}} {
		p.Set(f)
		echo(t, dial(t, p), bytes.Repeat([]byte("0123456789"), 5000))
	}
}

// A line is one connection through a proxy to somebody who says everything back, over
// pipes in memory and in virtual time: it is known what has gone through.
type line struct {
	*Proxy
	t    *testing.T
	near net.Conn
}

// onLine runs a test body for each of the faults, of a line that they meet when it has
// gone through it before.
func onLine(t *testing.T, faults []Faults, body func(l line)) {
	for _, f := range faults {
		synctest.Test(t, func(t *testing.T) {
			p := &Proxy{change: make(chan struct{})}
			near, a := net.Pipe()
			b, far := net.Pipe()
			var work sync.WaitGroup
			work.Go(func() { p.carry(b, a, true) })
			work.Go(func() { p.carry(a, b, false) })
			work.Go(func() { _, _ = io.Copy(far, far) })
			l := line{p, t, near}
			l.say("before")
			l.hears("before")
			p.Set(f)
			body(l)
			for _, c := range []net.Conn{near, a, b, far} {
				_ = c.Close()
			}
			work.Wait()
		})
	}
}

// say says something, which goes as far as it can.
func (l line) say(text string) {
	go func() { _, _ = l.near.Write([]byte(text)) }() // it waits while it is not read
	synctest.Wait()
}

// hears expects to hear a text, and nothing more.
func (l line) hears(text string) {
	l.t.Helper()
	var heard []byte
	for buf := make([]byte, 64); ; {
		_ = l.near.SetReadDeadline(time.Now().Add(time.Second)) // of virtual time
		n, err := l.near.Read(buf)
		heard = append(heard, buf[:n]...)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			break
		}
		if err != nil {
			l.t.Fatal(err)
		}
	}
	if string(heard) != text {
		l.t.Fatalf("heard %q, want %q", heard, text)
	}
}

func TestDropsOneWay(t *testing.T) {
	onLine(t, []Faults{{DropUp: true}, {DropDown: true}}, func(l line) {
		l.say("swallowed")
		l.hears("")
		l.Set(Faults{})
		l.say("after")
		l.hears("after")
	})
}

func TestStallsAndLosesNothing(t *testing.T) {
	onLine(t, []Faults{{StallUp: true}, {StallDown: true}}, func(l line) {
		l.say("1") // is being read already when the stall begins
		l.hears("1")
		l.say("2")
		l.hears("")
		l.Set(Faults{})
		l.hears("2")
	})
}

func TestEnds(t *testing.T) {
	p := echoing(t)
	c := dial(t, p)
	echo(t, c, []byte("before"))
	p.Cut()
	if _, err := c.Read(make([]byte, 1)); err == nil {
		t.Error("it was not cut")
	}
	p.Set(Faults{Reset: 1})
	if isOpen(p) {
		t.Error("it was not reset")
	}
	p.Set(Faults{Refuse: true})
	if isOpen(p) {
		t.Error("it was not refused")
	}
}

// isOpen reports whether something is read of a new connection. One that is ended at once may end before
// it is known to be there.
func isOpen(p *Proxy) bool {
	c, err := net.Dial("tcp", p.Addr())
	if err != nil {
		return false
	}
	defer c.Close()
	_, err = c.Read(make([]byte, 1))
	return err == nil
}
