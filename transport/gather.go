package transport

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"sync"
	"time"
)

const (
	// writeTimeout is how long a write may be blocked before the peer counts as dead.
	writeTimeout = 30 * time.Second
	// closeTimeout is how long Close tries to send what was written, and then how
	// long it waits for the peer to have read it.
	closeTimeout = time.Second
	// gatherSize is how many bytes are gathered before writers wait.
	gatherSize = 64 << 10
	// smallGatherSize is how many come together while little is said.
	smallGatherSize = 1 << 10
)

// The parts of a yamux header that the wrapper looks at.
const (
	yamuxHeaderSize = 12
	yamuxData       = 0
	yamuxPing       = 2
	yamuxSYN        = 1
)

// gatherBuffers are the buffers of connections that have something to write, so
// that an idle connection has none; smallGatherBuffers those of connections that have
// little: where thousands send a heartbeat together, each has one.
var (
	gatherBuffers      = sync.Pool{New: func() any { return newBuffer(gatherSize + yamuxHeaderSize) }}
	smallGatherBuffers = sync.Pool{New: func() any { return newBuffer(smallGatherSize) }}
)

// gather is the connection beneath yamux. It writes at once what yamux writes in
// pieces, as much as has come together while the write before was under way: the
// header of a data frame is held back until its body comes. What is read passes
// through an inspector, which ends the connection when the peer floods it. A goroutine
// writes from the first write on until there is nothing to write and rest was called: an
// idle connection has none, and a busy one does not start it again and again.
//
// Write is for one goroutine, yamux's sender; so is Read. Close may be called
// from any.
type gather struct {
	nc      net.Conn
	inspect inspector
	ending  func() // called before yamux can notice the end; may be called again

	held     [yamuxHeaderSize]byte // a data header without its body
	holding  bool
	readErr  error         // what the next Read returns
	readDone chan struct{} // closed when Read has failed
	wake     chan struct{} // 1 slot: the writer has to look
	writer   sync.WaitGroup
	loop     func() // writeLoop, here so that to start it allocates nothing

	mu      sync.Mutex    // guards what follows; never held while blocked
	buf     *[]byte       // what to write next; nil when nothing
	room    chan struct{} // 1 slot: the buffer was taken, or nothing is written any more; nil: there always was room
	writing bool          // the writer runs; it does while there is a buf
	resting bool          // the writer goes when there is nothing to write
	closing bool
	err     error // the first failure of a read or a write

	closeOnce, readOnce sync.Once
}

// newGather returns the wrapper of nc. opens says how many streams the peer may
// open, nil for none.
func newGather(nc net.Conn, opens *limiter, ending func()) *gather {
	g := &gather{
		nc:       nc,
		ending:   ending,
		inspect:  inspector{opens: opens, pings: newLimiter(pingRate, pingBurst)},
		readDone: make(chan struct{}),
		wake:     make(chan struct{}, 1),
	}
	g.loop = g.writeLoop
	return g
}

// Write queues p, waiting while the queue is full. The error is that of an
// earlier read or write.
func (g *gather) Write(p []byte) (int, error) {
	if isDataHeader(p) && !g.holding {
		copy(g.held[:], p)
		g.holding = true
		return len(p), nil
	}
	for {
		ok, err := g.queue(p)
		if err != nil {
			return 0, err
		}
		if ok {
			return len(p), nil
		}
		<-g.room // made by queue
	}
}

// queue appends p, behind the header held back for it, if there is room. A
// connection that is closing has room for all and keeps nothing: to yamux an
// error would be a reason to cut finish short.
func (g *gather) queue(p []byte) (ok bool, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.err != nil || g.closing {
		return true, g.err
	}
	n := len(p)
	if g.holding {
		n += len(g.held)
	}
	if g.buf != nil && len(*g.buf)+n > gatherSize {
		if g.room == nil {
			g.room = make(chan struct{}, 1)
		}
		return false, nil
	}
	g.makeRoomLocked(n)
	if g.holding {
		*g.buf = append(*g.buf, g.held[:]...)
		g.holding = false
	}
	*g.buf = append(*g.buf, p...)
	if g.writing {
		signal(g.wake)
		return true, nil
	}
	g.writing = true
	g.writer.Add(1)
	go g.loop()
	return true, nil
}

// makeRoomLocked sees to a buffer that has room for n bytes more.
func (g *gather) makeRoomLocked(n int) {
	small := g.buf
	if small != nil && cap(*small)-len(*small) >= n {
		return
	}
	if small == nil && n <= smallGatherSize {
		g.buf = smallGatherBuffers.Get().(*[]byte)
		return
	}
	g.buf = gatherBuffers.Get().(*[]byte)
	if small != nil {
		*g.buf = append(*g.buf, *small...)
		recycle(small)
	}
}

// isDataHeader reports whether p, a write of yamux, is the header of a data frame
// whose body is the next write.
func isDataHeader(p []byte) bool {
	return len(p) == yamuxHeaderSize && p[1] == yamuxData && binary.BigEndian.Uint32(p[8:]) > 0
}

// writeLoop writes what was queued until it is to go, or a failure.
func (g *gather) writeLoop() {
	defer g.writer.Done()
	for {
		buf, over := g.take()
		if over {
			return
		}
		if buf == nil {
			<-g.wake
			continue
		}
		_, err := g.nc.Write(*buf)
		recycle(buf)
		if err != nil {
			g.fail(fmt.Errorf("write: %w", err))
			_ = g.nc.Close()
			g.giveUp()
			return
		}
	}
}

// take takes what is queued and sets the deadline for writing it. If the writer is over,
// the next who queues starts another one.
func (g *gather) take() (buf *[]byte, over bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	buf, g.buf = g.buf, nil
	if buf == nil && (g.resting || g.closing) {
		g.writing, g.resting = false, false
		over = true
	}
	if buf != nil && !g.closing {
		g.setWriteDeadline(writeTimeout)
	}
	signal(g.room)
	return buf, over
}

// rest lets the writer go as soon as there is nothing to write.
func (g *gather) rest() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.resting = g.writing
	signal(g.wake)
}

// giveUp lets who waits for room see that nothing is written any more.
func (g *gather) giveUp() {
	g.mu.Lock()
	defer g.mu.Unlock()
	signal(g.room)
}

func (g *gather) setWriteDeadline(d time.Duration) {
	_ = g.nc.SetWriteDeadline(time.Now().Add(d)) // fails only on a closed connection
}

func recycle(buf *[]byte) {
	pool := &gatherBuffers
	switch size := cap(*buf); {
	case size > gatherSize+yamuxHeaderSize:
		return
	case size <= smallGatherSize:
		pool = &smallGatherBuffers
	}
	*buf = (*buf)[:0]
	pool.Put(buf)
}

// Read reads from the connection. A flood is [ErrProtocol]. An error comes alone,
// when what was read before it has reached its stream.
func (g *gather) Read(p []byte) (int, error) {
	if g.readErr != nil {
		return 0, g.endRead(g.readErr)
	}
	n, err := g.nc.Read(p)
	if bad := g.inspect.look(p[:n]); bad != nil {
		n, err = 0, bad
	}
	if err != nil && n == 0 {
		return 0, g.endRead(err)
	}
	g.readErr = err
	return n, nil
}

func (g *gather) endRead(err error) error {
	g.fail(err)
	g.readOnce.Do(func() { close(g.readDone) })
	g.ending()
	return err
}

// fail notes the first failure.
func (g *gather) fail(err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.err == nil && !g.closing {
		g.err = err
	}
}

// cause returns the first failure, nil if there was none before Close.
func (g *gather) cause() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.err
}

// Close drops what is queued, closes the connection and unblocks Read and Write.
// yamux calls it when a session fails.
func (g *gather) Close() error {
	g.closeOnce.Do(func() { g.shut(0) })
	return nil
}

// finish sends what is queued, for at most a second, waits as long for the peer
// to have read it, and closes the connection. What is written from now on is
// dropped.
func (g *gather) finish() {
	g.closeOnce.Do(func() { g.shut(closeTimeout) })
}

func (g *gather) shut(patience time.Duration) {
	g.ending()
	g.mu.Lock()
	g.closing = true
	g.setWriteDeadline(patience)
	g.mu.Unlock()
	signal(g.wake)
	g.writer.Wait()
	if patience > 0 && g.cause() == nil {
		g.linger(patience)
	}
	_ = g.nc.Close()
}

// linger tells the peer that nothing more comes and lets it close first. To close
// while it still sends would destroy what it has not read yet.
func (g *gather) linger(patience time.Duration) {
	half, ok := g.nc.(interface{ CloseWrite() error })
	if !ok || half.CloseWrite() != nil {
		return
	}
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-g.readDone:
	case <-timer.C:
	}
}

// signal fills a 1-slot channel.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// A peer has no reason to ping at all; some are forgiven.
const (
	pingRate  = 10
	pingBurst = 32
)

// inspector reads along and counts what costs the reader more than the writer:
// pings, each answered by a goroutine, and new streams.
type inspector struct {
	opens  *limiter // nil: the peer opens none
	pings  *limiter
	header [yamuxHeaderSize]byte
	have   int    // bytes of header read
	skip   uint32 // bytes of body to come
}

// look reads along in p. The error is [ErrProtocol].
func (i *inspector) look(p []byte) error {
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
	}
	switch {
	case kind == yamuxPing && !i.pings.allow():
		return fmt.Errorf("%w: flood of pings", ErrProtocol)
	case kind < yamuxPing && flags&yamuxSYN != 0:
		return i.opened(stream)
	}
	return nil
}

// opened judges a new stream. Those of the opener, yamux's client, are odd.
func (i *inspector) opened(stream uint32) error {
	switch {
	case i.opens == nil:
		return errWrongSide
	case stream%2 == 0:
		return fmt.Errorf("%w: even stream number", ErrProtocol)
	case !i.opens.allow():
		return fmt.Errorf("%w: flood of new streams", ErrProtocol)
	}
	return nil
}

var _ io.ReadWriteCloser = (*gather)(nil)
