package transport

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"runtime"
	"testing"
	"testing/synctest"
	"time"
)

func dataFrame(stream, n int) (header, body []byte) {
	header = yamuxFrame(yamuxData, 0, uint32(stream), uint32(n))
	return header, bytes.Repeat([]byte{byte(stream)}, n)
}

func yamuxFrame(kind byte, flags uint16, stream, length uint32) []byte {
	return []byte{
		0, kind, byte(flags >> 8), byte(flags),
		byte(stream >> 24), byte(stream >> 16), byte(stream >> 8), byte(stream),
		byte(length >> 24), byte(length >> 16), byte(length >> 8), byte(length),
	}
}

// gatherPair returns a gather and the peer of its connection, which gives every
// write as one read.
func gatherPair(t *testing.T) (*gather, net.Conn) {
	t.Helper()
	near, far := net.Pipe()
	g := newGather(near, nil, func() {})
	t.Cleanup(func() {
		_ = far.Close()
		_ = g.Close()
	})
	return g, far
}

func write(t *testing.T, w io.Writer, b []byte) {
	t.Helper()
	if n, err := w.Write(b); err != nil || n != len(b) {
		t.Fatalf("wrote %d of %d bytes: %v", n, len(b), err)
	}
}

// nextWrite returns what arrives in one write.
func nextWrite(t *testing.T, r io.Reader) []byte {
	t.Helper()
	b := make([]byte, 1<<20)
	n, err := r.Read(b)
	if err != nil {
		t.Fatal(err)
	}
	return b[:n]
}

func TestGatherHeaderAndBody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, far := gatherPair(t)
		header, body := dataFrame(1, 100)
		write(t, g, header)
		synctest.Wait()
		write(t, g, body)
		if got := nextWrite(t, far); !bytes.Equal(got, append(header, body...)) {
			t.Errorf("the first write had %d bytes", len(got))
		}
		// A body that looks like a header is a body.
		header, _ = dataFrame(1, yamuxHeaderSize)
		write(t, g, header)
		write(t, g, header)
		synctest.Wait()                     // it is on its way
		write(t, g, yamuxFrame(1, 0, 1, 5)) // has no body
		if got := nextWrite(t, far); len(got) != 2*yamuxHeaderSize {
			t.Errorf("the second write had %d bytes", len(got))
		}
		if got := nextWrite(t, far); len(got) != yamuxHeaderSize {
			t.Errorf("the third write had %d bytes", len(got))
		}
	})
}

// What is written while a write is under way goes out together.
func TestGatherGathers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, far := gatherPair(t)
		header, body := dataFrame(1, 100)
		for range 50 {
			write(t, g, header)
			write(t, g, body)
			synctest.Wait()
		}
		if got := nextWrite(t, far); len(got) != 112 {
			t.Errorf("the first write had %d bytes", len(got))
		}
		if got := nextWrite(t, far); len(got) != 49*112 {
			t.Errorf("the second write had %d bytes", len(got))
		}
	})
}

// What is gathered arrives as it was written, however much it grows.
func TestGatherGrows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, far := gatherPair(t)
		var want []byte
		for n := 1; n < 3*gatherSize/2; n += n/3 + 1 {
			header, body := dataFrame(n, n)
			want = append(append(want, header...), body...)
		}
		got := make(chan []byte)
		go func() {
			b := make([]byte, len(want))
			_, _ = io.ReadFull(far, b) // what is missing shows
			got <- b
		}()
		for sent := want; len(sent) > 0; {
			n := int(binary.BigEndian.Uint32(sent[8:]))
			write(t, g, sent[:yamuxHeaderSize])
			write(t, g, sent[yamuxHeaderSize:][:n])
			sent = sent[yamuxHeaderSize+n:]
		}
		if !bytes.Equal(<-got, want) {
			t.Error("something else arrived")
		}
	})
}

// A connection that rests costs neither a goroutine nor a buffer, and one that has little
// to write only a small one.
func TestGatherIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		before := runtime.NumGoroutine()
		g, far := gatherPair(t)
		for range 3 {
			write(t, g, []byte("a"))
			synctest.Wait() // it is on its way
			write(t, g, []byte("b"))
			if size := cap(*g.buf); size > smallGatherSize {
				t.Errorf("two bytes are kept in %d", size)
			}
			g.rest()
			if got := string(nextWrite(t, far)) + string(nextWrite(t, far)); got != "ab" {
				t.Errorf("read %q", got)
			}
			synctest.Wait()
			if n := runtime.NumGoroutine() - before; n > 0 || g.buf != nil {
				t.Errorf("%d goroutines are left, buffer %v", n, g.buf)
			}
		}
	})
}

// Who waits for room when the connection fails, or is closed, waits no longer.
func TestGatherFullFails(t *testing.T) {
	for name, end := range map[string]func(g *gather, far net.Conn){
		"peer closes": func(_ *gather, far net.Conn) { _ = far.Close() },
		"Close":       func(g *gather, _ net.Conn) { _ = g.Close() },
		"finish":      func(g *gather, _ net.Conn) { g.finish() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g, far := gatherPair(t)
				done := make(chan struct{})
				go func() {
					defer close(done)
					for range 20 {
						_, _ = g.Write(make([]byte, 16<<10))
					}
				}()
				synctest.Wait()
				end(g, far)
				<-done
			})
		})
	}
}

// A peer that does not read blocks the writer, and ends the connection after 30 s.
func TestGatherStuck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, _ := gatherPair(t)
		header, body := dataFrame(1, 16<<10)
		start := time.Now()
		total := 0
		var err error
		for err == nil {
			if _, err = g.Write(header); err == nil {
				_, err = g.Write(body)
			}
			if err == nil {
				total += len(body)
			}
		}
		if total > 3*gatherSize {
			t.Errorf("%d bytes were taken", total)
		}
		if !errors.Is(err, os.ErrDeadlineExceeded) || !errors.Is(g.cause(), os.ErrDeadlineExceeded) {
			t.Errorf("write: %v, cause: %v", err, g.cause())
		}
		if took := time.Since(start); took != writeTimeout {
			t.Errorf("after %v", took)
		}
		if _, err := g.Read(make([]byte, 1)); err == nil {
			t.Error("the connection is open")
		}
	})
}

func TestGatherFinish(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, far := gatherPair(t)
		for range 10 {
			write(t, g, make([]byte, 5000))
		}
		got := make(chan int)
		go func() {
			n, _ := io.Copy(io.Discard, far)
			got <- int(n)
		}()
		g.finish()
		write(t, g, []byte("dropped"))
		if n := <-got; n != 50000 {
			t.Errorf("%d bytes arrived", n)
		}
	})
}

// Nothing waits for a peer that does not read when the connection is closed.
func TestGatherCloseStuck(t *testing.T) {
	for name, c := range map[string]struct {
		end  func(*gather)
		took time.Duration
	}{
		"finish": {(*gather).finish, closeTimeout},
		"Close":  {func(g *gather) { _ = g.Close() }, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g, _ := gatherPair(t)
				done := make(chan struct{}, 2)
				go func() {
					for range 20 {
						_, _ = g.Write(make([]byte, 16<<10))
					}
					done <- struct{}{}
				}()
				go func() {
					_, _ = g.Read(make([]byte, 1))
					done <- struct{}{}
				}()
				synctest.Wait()
				start := time.Now()
				c.end(g)
				<-done
				<-done
				if took := time.Since(start); took != c.took {
					t.Errorf("took %v", took)
				}
			})
		})
	}
}

// endConn gives its last bytes together with the end, as TLS does.
type endConn struct {
	net.Conn
	last []byte
}

func (c *endConn) Read(p []byte) (int, error) {
	n := copy(p, c.last)
	c.last = c.last[n:]
	return n, io.EOF
}

// The end is noticed when what was read before it has reached its stream.
func TestGatherLastBytes(t *testing.T) {
	near, far := net.Pipe()
	defer far.Close()
	ended := false
	g := newGather(&endConn{Conn: near, last: []byte("last words")}, nil, func() { ended = true })
	defer g.Close()
	b := make([]byte, 100)
	n, err := g.Read(b)
	if string(b[:n]) != "last words" || err != nil || ended {
		t.Errorf("read %q, %v; ended: %v", b[:n], err, ended)
	}
	for range 2 {
		if n, err := g.Read(b); n != 0 || err != io.EOF || !ended { //nolint:errorlint // an io.Reader's
			t.Errorf("then read %d bytes, %v; ended: %v", n, err, ended)
		}
	}
}

func TestInspector(t *testing.T) {
	header, body := dataFrame(1, 100)
	frame := append(header, body...)
	// A body full of what would be floods outside of it.
	ping := yamuxFrame(yamuxPing, yamuxSYN, 0, 0)
	header, _ = dataFrame(3, 100*len(ping))
	tricky := append(header, bytes.Repeat(ping, 100)...)
	for name, c := range map[string]struct {
		bytes []byte
		opens *limiter
		bad   bool
	}{
		"data":                    {bytes: bytes.Repeat(frame, 100)},
		"pings within a body":     {bytes: tricky},
		"pings, but not too many": {bytes: bytes.Repeat(ping, pingBurst)},
		"too many pings":          {bytes: bytes.Repeat(ping, pingBurst+10), bad: true},
		"too many behind data":    {bytes: append(bytes.Clone(frame), bytes.Repeat(ping, pingBurst+10)...), bad: true},
		"too many between data":   {bytes: bytes.Repeat(append(bytes.Clone(ping), frame...), pingBurst+10), bad: true},
		"a stream for nobody":     {bytes: yamuxFrame(1, yamuxSYN, 1, 0), bad: true},
		"a stream with data":      {bytes: yamuxFrame(0, yamuxSYN, 1, 0), bad: true},
		"a stream":                {bytes: yamuxFrame(1, yamuxSYN, 1, 0), opens: newLimiter(1, 1)},
		"an even stream":          {bytes: yamuxFrame(1, yamuxSYN, 2, 0), opens: newLimiter(1, 1), bad: true},
		"too many streams":        {bytes: bytes.Repeat(yamuxFrame(1, yamuxSYN, 1, 0), 2), opens: newLimiter(0.001, 1), bad: true},
	} {
		for _, size := range []int{1, 5, yamuxHeaderSize, 100, len(c.bytes)} {
			i := inspector{opens: c.opens, pings: newLimiter(0.001, pingBurst)}
			if c.opens != nil {
				i.opens = &limiter{every: c.opens.every, ahead: c.opens.ahead}
			}
			var err error
			for b := c.bytes; len(b) > 0 && err == nil; b = b[min(size, len(b)):] {
				err = i.look(b[:min(size, len(b))])
			}
			if c.bad != errors.Is(err, ErrProtocol) {
				t.Errorf("%s, %d bytes at once: %v", name, size, err)
			}
		}
	}
}
