package transport

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
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

// halfConn is an end of a net.Pipe whose writing side can be closed.
type halfConn struct {
	net.Conn
	closed chan struct{}
}

func (c *halfConn) CloseWrite() error {
	close(c.closed)
	return nil
}

// connPair returns a yamuxConn and the peer of its connection, which gives every write as
// one read.
func connPair(t *testing.T) (*yamuxConn, *halfConn, net.Conn) {
	t.Helper()
	near, far := net.Pipe()
	half := &halfConn{near, make(chan struct{})}
	c := newYamuxConn(half, false)
	t.Cleanup(func() {
		_ = far.Close()
		_ = c.Close()
	})
	return c, half, far
}

// A header and its body are one write; what has no body is one by itself.
func TestYamuxConnJoinsHeaderAndBody(t *testing.T) {
	c, _, far := connPair(t)
	writes := make(chan []byte, 10)
	go func() {
		for b := make([]byte, 1<<20); ; {
			n, err := far.Read(b)
			if err != nil {
				close(writes)
				return
			}
			writes <- bytes.Clone(b[:n])
		}
	}()
	header, body := dataFrame(1, 100)
	long, longBody := dataFrame(1, 100_000)        // longer than the buffers that are kept
	tricky, _ := dataFrame(1, yamuxHeaderSize)     // a body that looks like a header is a body
	update := yamuxFrame(1, 0, 1, 5)               // has no body
	empty := yamuxFrame(yamuxData, yamuxSYN, 1, 0) // nor has a data frame without bytes
	for _, p := range [][]byte{header, body, tricky, tricky, update, long, longBody, empty, header, body} {
		if n, err := c.Write(p); n != len(p) || err != nil {
			t.Fatal(n, err)
		}
	}
	_ = c.Close()
	for i, want := range [][]byte{
		append(bytes.Clone(header), body...), append(bytes.Clone(tricky), tricky...), update,
		append(bytes.Clone(long), longBody...), empty, append(bytes.Clone(header), body...),
	} {
		if got := <-writes; !bytes.Equal(got, want) {
			t.Errorf("write %d has %d bytes, not %d", i, len(got), len(want))
		}
	}
	if got, ok := <-writes; ok {
		t.Errorf("%d bytes more", len(got))
	}
}

// A peer that does not read blocks the writer, and ends the connection after 30 s.
func TestYamuxConnStuck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _, _ := connPair(t)
		header, body := dataFrame(1, 16<<10)
		start := time.Now()
		_, err := c.Write(header)
		if err == nil {
			_, err = c.Write(body)
		}
		if !errors.Is(err, os.ErrDeadlineExceeded) || !errors.Is(c.cause(), os.ErrDeadlineExceeded) {
			t.Errorf("write: %v, cause: %v", err, c.cause())
		}
		if took := time.Since(start); took < writeTimeout || took > writeTimeout+time.Second {
			t.Errorf("after %v", took)
		}
		if _, err := c.Read(make([]byte, 1)); err == nil {
			t.Error("the connection is open")
		}
	})
}

// finish tells the peer that nothing more comes, waits until it has closed, but for a
// second at most, and what fails then is no cause.
func TestYamuxConnFinish(t *testing.T) {
	for name, c := range map[string]struct {
		peer func(far net.Conn, half *halfConn)
		took time.Duration
	}{
		"the peer closes": {func(far net.Conn, half *halfConn) {
			<-half.closed
			time.Sleep(closeTimeout / 2)
			_ = far.Close()
		}, closeTimeout / 2},
		"the peer does not": {func(net.Conn, *halfConn) {}, closeTimeout},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g, half, far := connPair(t)
				go c.peer(far, half)
				read := make(chan error, 1)
				go func() {
					_, err := g.Read(make([]byte, 1))
					read <- err
				}()
				start := time.Now()
				g.finishSending()
				if took := time.Since(start); took != c.took {
					t.Errorf("took %v", took)
				}
				_ = g.Close()
				if err := <-read; err == nil {
					t.Error("read something")
				}
				if err := g.cause(); err != nil {
					t.Errorf("the cause is %v", err)
				}
			})
		})
	}
}

// A write that is blocked keeps nobody from closing for longer than a second.
func TestYamuxConnCloseStuck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _, _ := connPair(t)
		done := make(chan error)
		go func() {
			_, err := c.Write([]byte("nobody reads this"))
			done <- err
		}()
		synctest.Wait()
		start := time.Now()
		go c.finishSending()
		if err := <-done; err == nil {
			t.Error("it was written")
		}
		if took := time.Since(start); took != closeTimeout {
			t.Errorf("took %v", took)
		}
	})
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
func TestYamuxConnLastBytes(t *testing.T) {
	near, far := net.Pipe()
	defer far.Close()
	g := newYamuxConn(&endConn{Conn: near, last: []byte("last words")}, false)
	defer g.Close()
	b := make([]byte, 100)
	n, err := g.Read(b)
	if string(b[:n]) != "last words" || err != nil || g.cause() != nil {
		t.Errorf("read %q, %v; cause: %v", b[:n], err, g.cause())
	}
	for range 2 {
		if n, err := g.Read(b); n != 0 || err != io.EOF || g.cause() != io.EOF { //nolint:errorlint // an io.Reader's
			t.Errorf("then read %d bytes, %v; cause: %v", n, err, g.cause())
		}
	}
}

func TestInspector(t *testing.T) {
	header, body := dataFrame(1, 100)
	frame := append(header, body...)
	// A body full of what would be forbidden outside of it.
	ping := yamuxFrame(yamuxPing, yamuxSYN, 0, 0)
	header, _ = dataFrame(3, 100*len(ping))
	tricky := append(header, bytes.Repeat(ping, 100)...)
	streams := func(n, first int) (b []byte) {
		for i := range n {
			b = append(b, yamuxFrame(1, yamuxSYN, uint32(first+2*i), 0)...)
		}
		return b
	}
	pieces := func(stream, n, size int) []byte {
		header, body := dataFrame(stream, size)
		return bytes.Repeat(append(header, body...), n)
	}
	ahead := pieces(3, maxAhead/maxPiece, maxPiece)
	for name, c := range map[string]struct {
		bytes  []byte
		opener bool
		bad    bool
	}{
		"the longest piece":              {bytes: pieces(mainStream, 1, maxPiece)},
		"a longer piece":                 {bytes: pieces(mainStream, 1, maxPiece+1), bad: true},
		"as much of bodies as may":       {bytes: ahead},
		"a byte of bodies more":          {bytes: append(bytes.Clone(ahead), pieces(5, 1, 1)...), bad: true},
		"frames beside bodies":           {bytes: append(bytes.Clone(ahead), pieces(mainStream, 1, maxPiece)...)},
		"data":                           {bytes: bytes.Repeat(frame, 100)},
		"pings within a body":            {bytes: tricky},
		"a ping":                         {bytes: ping, bad: true},
		"a ping behind data":             {bytes: append(bytes.Clone(frame), ping...), bad: true},
		"streams for the opener":         {bytes: streams(maxStreams, 2), opener: true},
		"streams for the acceptor":       {bytes: streams(maxStreams, 1)},
		"too many for the opener":        {bytes: streams(maxStreams+1, 2), opener: true, bad: true},
		"too many for the acceptor":      {bytes: streams(maxStreams+1, 1), bad: true},
		"a stream of the acceptor's own": {bytes: streams(1, 2), bad: true},
		"a stream of the opener's own":   {bytes: streams(1, 1), opener: true, bad: true},
		"a stream with data, wrong side": {bytes: yamuxFrame(0, yamuxSYN, 1, 0), opener: true, bad: true},
	} {
		for _, size := range []int{1, 5, yamuxHeaderSize, 100, len(c.bytes)} {
			conn := newYamuxConn(nil, c.opener)
			conn.expected.Store(maxAhead)
			i := conn.inspect
			var err error
			for b := c.bytes; len(b) > 0 && err == nil; b = b[min(size, len(b)):] {
				err = i.inspect(b[:min(size, len(b))])
			}
			if c.bad != errors.Is(err, ErrProtocol) {
				t.Errorf("%s, %d bytes at once: %v", name, size, err)
			}
		}
	}
}
