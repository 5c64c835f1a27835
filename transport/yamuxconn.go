package transport

import (
	"encoding/binary"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/harpcaller/harp/internal/wake"
)

const (
	// writeTimeout is how long a write may be blocked before the peer counts as dead.
	writeTimeout = 30 * time.Second
	// closeTimeout is how long Close tries to send what was written, and then how
	// long it waits for the peer to have read it.
	closeTimeout = time.Second
)

// The parts of a yamux header.
const (
	yamuxHeaderSize = 12
	yamuxData       = 0
	yamuxPing       = 2
	yamuxSYN        = 1

	mainStream = 1 // which the opener opens first
)

// yamuxConn is the connection beneath yamux. yamux writes the header of a data frame and
// its body one after the other; they are written at once, as one record of TLS. What is
// read passes an inspection.
//
// Write is for one goroutine, yamux's sender; so is Read. Close may be called from any.
type yamuxConn struct {
	net.Conn
	inspect inspector
	born    time.Time
	heard   atomic.Int64 // when something last came, since born

	held     [yamuxHeaderSize]byte // a data header without its body
	holding  bool
	readErr  error         // what the next Read returns
	readDone chan struct{} // closed when Read has failed
	once     sync.Once

	expected   atomic.Int64  // bytes of bodies that were let in so far
	unaccepted atomic.Int32  // streams that the peer has opened
	accepting  chan struct{} // 1 slot: there are fewer
	finishing  chan struct{} // closed when this side closes

	mu      sync.Mutex // guards what follows
	until   time.Time  // the deadline of writes
	err     error      // the first failure of a read or a write
	closing bool
}

// joinBuffers are where header and body come together.
var joinBuffers = sync.Pool{New: func() any { b := make([]byte, 0, writeSize+yamuxHeaderSize); return &b }}

// newYamuxConn returns the connection beneath yamux on nc. The streams of the opener,
// yamux's client, are odd.
func newYamuxConn(nc net.Conn, opener bool) *yamuxConn {
	c := &yamuxConn{Conn: nc, born: time.Now(), readDone: make(chan struct{}), accepting: make(chan struct{}, 1), finishing: make(chan struct{})}
	c.inspect.unaccepted, c.inspect.expected = &c.unaccepted, &c.expected
	if !opener {
		c.inspect.parity = 1
	}
	return c
}

func (c *yamuxConn) Write(p []byte) (int, error) {
	if isDataHeader(p) && !c.holding {
		copy(c.held[:], p)
		c.holding = true
		return len(p), nil
	}
	c.extendDeadline()
	var err error
	if c.holding {
		c.holding = false
		buf := joinBuffers.Get().(*[]byte)
		_, err = c.Conn.Write(append(append((*buf)[:0], c.held[:]...), p...))
		joinBuffers.Put(buf)
	} else {
		_, err = c.Conn.Write(p)
	}
	if err != nil {
		c.noteFailure(fmt.Errorf("write: %w", err))
		_ = c.Close()
		return 0, err
	}
	return len(p), nil
}

// extendDeadline lets a write take as long as any may.
func (c *yamuxConn) extendDeadline() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if latest := time.Now().Add(writeTimeout); !c.closing && latest.After(c.until) {
		c.until = latest.Add(deadlineStep)
		_ = c.SetWriteDeadline(c.until) // fails only on a closed connection
	}
}

// isDataHeader reports whether p is the header of a data frame whose body is the next
// write.
func isDataHeader(p []byte) bool {
	return len(p) == yamuxHeaderSize && p[1] == yamuxData && binary.BigEndian.Uint32(p[8:]) > 0
}

// Read reads from the connection. A flood is [ErrProtocol]. An error comes alone,
// when what was read before it has reached its stream, and the streams were accepted: yamux
// loses those that are not when it ends.
func (c *yamuxConn) Read(p []byte) (int, error) {
	if c.readErr != nil {
		return 0, c.endRead(c.readErr)
	}
	n, err := c.Conn.Read(p)
	if n > 0 {
		c.heard.Store(int64(time.Since(c.born)))
	}
	if bad := c.inspect.inspect(p[:n]); bad != nil {
		n, err = 0, bad
	}
	if err != nil && n == 0 {
		return 0, c.endRead(err)
	}
	c.readErr = err
	return n, nil
}

func (c *yamuxConn) endRead(err error) error {
	c.noteFailure(err)
	c.once.Do(func() {
		close(c.readDone)
		c.awaitAccepted()
	})
	return err
}

// accepted notes that a stream of the peer was accepted.
func (c *yamuxConn) accepted() {
	c.unaccepted.Add(-1)
	wake.Signal(c.accepting)
}

// awaitAccepted waits until the streams of the peer are accepted, but not for long, or
// until this side closes.
func (c *yamuxConn) awaitAccepted() {
	timer := time.NewTimer(closeTimeout)
	defer timer.Stop()
	for c.unaccepted.Load() > 0 {
		select {
		case <-c.accepting:
		case <-c.finishing:
			return
		case <-timer.C:
			return
		}
	}
}

// noteFailure notes the first failure.
func (c *yamuxConn) noteFailure(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err == nil && !c.closing {
		c.err = err
	}
}

// cause returns the first failure before finish.
func (c *yamuxConn) cause() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// finishSending tells the peer that nothing more comes and lets it close first, for at most a
// second. To close while it still sends would destroy what it has not read yet.
func (c *yamuxConn) finishSending() {
	c.mu.Lock()
	if !c.closing {
		close(c.finishing)
	}
	c.closing = true
	failed := c.err != nil
	_ = c.SetWriteDeadline(time.Now().Add(closeTimeout)) // fails only on a closed connection
	c.mu.Unlock()
	half, ok := c.Conn.(interface{ CloseWrite() error })
	if failed || !ok || half.CloseWrite() != nil {
		return
	}
	timer := time.NewTimer(closeTimeout)
	defer timer.Stop()
	select {
	case <-c.readDone:
	case <-timer.C:
	}
}

// inspector reads along and sees what a peer does that costs more to read than to write:
// pings, each of which is answered by a goroutine and none of which it has a reason for,
// streams beyond those it may open, and bodies that were not let in.
type inspector struct {
	parity     uint32 // of the streams that the peer opens
	opened     int
	unaccepted *atomic.Int32 // counts them, too
	expected   *atomic.Int64 // how many bytes of bodies were let in
	bodies     int64         // how many have come, or been announced by their headers
	header     [yamuxHeaderSize]byte
	have       int    // bytes of header read
	skip       uint32 // bytes of body to come
}

// inspect reads along in p. The error is [ErrProtocol].
func (i *inspector) inspect(p []byte) error {
	for len(p) > 0 {
		if i.skip > 0 {
			n := min(len(p), int(min(i.skip, 1<<30)))
			i.skip -= uint32(n)
			p = p[n:]
			continue
		}
		n := copy(i.header[i.have:], p)
		i.have += n
		p = p[n:]
		if i.have < yamuxHeaderSize {
			return nil
		}
		i.have = 0
		if err := i.frame(); err != nil {
			return err
		}
	}
	return nil
}

// frame judges the header just read.
func (i *inspector) frame() error {
	kind, flags := i.header[1], binary.BigEndian.Uint16(i.header[2:])
	stream := binary.BigEndian.Uint32(i.header[4:])
	if kind == yamuxData {
		i.skip = binary.BigEndian.Uint32(i.header[8:])
		if stream != mainStream {
			i.bodies += int64(i.skip)
		}
	}
	switch {
	case kind == yamuxPing:
		return fmt.Errorf("%w: ping", ErrProtocol)
	case i.skip > maxPiece:
		return fmt.Errorf("%w: %d bytes at once", ErrProtocol, i.skip)
	case i.bodies > i.expected.Load():
		return fmt.Errorf("%w: bodies that were not let in", ErrProtocol)
	case flags&yamuxSYN == 0:
		return nil
	case stream%2 != i.parity:
		return fmt.Errorf("%w: stream %d opened by the wrong side", ErrProtocol, stream)
	}
	if i.opened++; i.opened > maxStreams {
		return fmt.Errorf("%w: too many streams", ErrProtocol)
	}
	i.unaccepted.Add(1)
	return nil
}
