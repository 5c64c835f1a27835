package proxy

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"testing"
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

// silent expects that nothing is heard for a moment.
func silent(t *testing.T, c net.Conn) {
	t.Helper()
	if err := c.SetReadDeadline(time.Now().Add(50 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	if n, err := c.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("heard %d bytes, %v", n, err)
	}
	if err := c.SetReadDeadline(time.Time{}); err != nil {
		t.Fatal(err)
	}
}

func TestDropsOneWay(t *testing.T) {
	p := echoing(t)
	for _, f := range []Faults{{DropUp: true}, {DropDown: true}} {
		p.Set(Faults{})
		c := dial(t, p)
		echo(t, c, []byte("before"))
		p.Set(f)
		if _, err := c.Write([]byte("swallowed")); err != nil {
			t.Fatal(err)
		}
		silent(t, c)
		p.Set(Faults{})
		echo(t, c, []byte("after"))
	}
}

func TestStallsAndLosesNothing(t *testing.T) {
	p := echoing(t)
	for _, f := range []Faults{{StallUp: true}, {StallDown: true}} {
		p.Set(Faults{})
		c := dial(t, p)
		echo(t, c, []byte("before"))
		p.Set(f)
		// What is read already when the stall begins goes through.
		if _, err := c.Write([]byte("1")); err != nil {
			t.Fatal(err)
		}
		one := make([]byte, 2)
		if _, err := io.ReadFull(c, one[:1]); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Write([]byte("2")); err != nil {
			t.Fatal(err)
		}
		silent(t, c)
		p.Set(Faults{})
		if _, err := io.ReadFull(c, one[1:]); err != nil || string(one) != "12" {
			t.Fatalf("%q, %v", one, err)
		}
	}
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
	if _, err := dial(t, p).Read(make([]byte, 1)); err == nil {
		t.Error("it was not reset")
	}
	p.Set(Faults{Refuse: true})
	if _, err := dial(t, p).Read(make([]byte, 1)); err == nil {
		t.Error("it was not refused")
	}
}
