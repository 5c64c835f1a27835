package transport

import (
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"
)

// writeSize is the most bytes written to a stream at once: other streams get
// their turn in between, and no buffer below grows beyond it.
const writeSize = 16 << 10

// writeBuffers are where frames are put together, smallWriteBuffers where short ones
// are: each lane that writes has one, and most frames are short.
var (
	writeBuffers      = sync.Pool{New: func() any { return newBuffer(writeSize) }}
	smallWriteBuffers = sync.Pool{New: func() any { return newBuffer(smallWriteSize) }}
)

// smallWriteSize is the longest frame that is short.
const smallWriteSize = 1 << 10

func newBuffer(size int) *[]byte {
	b := make([]byte, 0, size)
	return &b
}

// lane is a stream with frames on it. The control stream is one, too.
//
// send is safe for concurrent use; read is for one goroutine at a time.
type lane struct {
	session *Session
	stream  stream
	reader  frameReader
	sending chan struct{} // 1 slot: who fills it may write
	closed  chan struct{} // this side closed the lane, or saw it closed
	once    sync.Once
	number  uint32                   // of the opener's exchange in hand; belongs to who has the lane
	kept    bool                     // the opener's readLoop runs; belongs to who has the lane
	current atomic.Pointer[Exchange] // for which it reads

	// The acceptor's. Those behind free belong to who took what is in it.
	free  chan struct{} // 1 slot: no handler is at work
	hand  *Exchange     // the last one that was answered
	aside func()        // what runs before the next part of its handler
	part  func()        // the next part; nil: it is over
	serve func()        // runs the next part

	// users are the lane itself, until it is closed, and the handler at work on
	// it. While there are any the lane counts.
	users atomic.Int32

	idle   time.Time // since when; zero while busy. Guarded by the pool
	shrunk bool      // since it became idle. Guarded by the pool
}

func newLane(s *Session, st stream) *lane {
	l := &lane{
		session: s,
		stream:  st,
		reader:  frameReader{r: st, limit: s.maxFrame},
		sending: make(chan struct{}, 1),
		closed:  make(chan struct{}),
	}
	l.users.Store(1)
	return l
}

// send writes a frame when it is its turn.
func (l *lane) send(f Frame) error {
	if err := l.lock(); err != nil {
		return err
	}
	defer l.unlock()
	return l.sendLocked(f)
}

// lock waits for the turn to write. The error is [ErrSessionClosed], or
// io.ErrClosedPipe if the lane is closed.
func (l *lane) lock() error {
	select {
	case l.sending <- struct{}{}:
		return nil
	default: // it is not its turn yet
	}
	select {
	case l.sending <- struct{}{}:
		return nil
	case <-l.closed:
	case <-l.session.dying:
	}
	return l.gone()
}

func (l *lane) unlock() { <-l.sending }

// sendLocked writes a frame. A write that fails, other than because the lane is
// closed, ends the session. The error is [ErrSessionClosed] or io.ErrClosedPipe.
func (l *lane) sendLocked(f Frame) error {
	err := l.write(f)
	if err == nil {
		return nil
	}
	if !l.isClosed() && !errors.Is(err, errStreamClosed) {
		l.session.lost(fmt.Errorf("write: %w", err))
	}
	return l.gone()
}

// write writes header and body, a short frame in one piece.
func (l *lane) write(f Frame) error {
	buffers := &writeBuffers
	if HeaderSize+len(f.Body) <= smallWriteSize {
		buffers = &smallWriteBuffers
	}
	buf := buffers.Get().(*[]byte)
	defer buffers.Put(buf)
	b := f.appendHeader(*buf)
	n := min(len(f.Body), writeSize-HeaderSize)
	b = append(b, f.Body[:n]...)
	for rest := f.Body[n:]; ; {
		if _, err := l.stream.Write(b); err != nil || len(rest) == 0 {
			return err
		}
		n := min(len(rest), writeSize)
		b, rest = rest[:n], rest[n:]
	}
}

// read returns the next frame. A bad one ends the session. The error is
// io.ErrUnexpectedEOF, joined with [ErrSessionClosed] if the session has ended,
// or io.ErrClosedPipe after close.
func (l *lane) read() (Frame, error) {
	f, err := l.reader.read()
	if err == nil {
		l.session.hear()
		return f, nil
	}
	return Frame{}, l.readFailed(err)
}

func (l *lane) readFailed(err error) error {
	s := l.session
	switch {
	case errors.Is(err, ErrMalformed), errors.Is(err, ErrFrameTooLarge):
		s.fail(err)
	case l.isClosed() && !s.isDying():
		return io.ErrClosedPipe
	default:
		s.check()
	}
	return l.cutShort()
}

// cutShort is the error of a lane that ended without End.
func (l *lane) cutShort() error {
	if l.session.isDying() {
		return fmt.Errorf("%w: %w", io.ErrUnexpectedEOF, l.session.closedErr())
	}
	return io.ErrUnexpectedEOF
}

// gone is the error of using a closed lane.
func (l *lane) gone() error {
	if l.session.isDying() {
		return l.session.closedErr()
	}
	return io.ErrClosedPipe
}

func (l *lane) isClosed() bool {
	select {
	case <-l.closed:
		return true
	default:
		return false
	}
}

// close closes the stream, which is never used again. Closing may have to wait
// for the connection, so that another goroutine does it.
func (l *lane) close() {
	l.once.Do(func() {
		close(l.closed)
		l.session.start(func() { l.stream.Close() })
		l.leave()
	})
}

// leave ends one use of the lane. With the last the lane leaves the pool.
func (l *lane) leave() {
	if l.users.Add(-1) == 0 {
		l.session.lanes.remove(l)
	}
}
