package memnet

import (
	"io"
	"net"
	"os"
	"sync"
	"time"

	"github.com/harpcaller/harp/internal/wake"
)

// pipe is one direction of an in-memory stream: a bounded buffer with one reader
// and one writer, and a path between them. It blocks on channels and timers only,
// never on its mutex.
type pipe struct {
	ready chan struct{} // 1 slot: there may be something to read
	room  chan struct{} // 1 slot: there may be room to write
	ends  ends
	size  int

	mu    sync.Mutex // guards what follows; never held while blocked
	buf   []byte
	first int    // index of the next byte to read
	marks []mark // what is still on its way, in order: none arrives before the one before it
}

// ends are the two ends of a connection as a pipe of it sees them.
type ends struct {
	left <-chan struct{} // closed when the connection has ended for the writer
	cut  <-chan struct{} // and for the reader
	path *Path           // from the writer to the reader
	hear func()          // notes that the reader has read something
}

// mark says when bytes arrive that were sent on a slow path.
type mark struct {
	at    time.Time
	bytes int
}

func newPipe(size int, e ends) *pipe {
	return &pipe{
		ready: make(chan struct{}, 1),
		room:  make(chan struct{}, 1),
		ends:  e,
		size:  size,
	}
}

// readBytes waits for bytes. The error is io.EOF at the end of the connection.
func (p *pipe) readBytes(b []byte) (int, error) {
	for {
		n, later := p.poll(b)
		if n > 0 {
			return n, nil
		}
		if p.awaitBytes(later) {
			continue
		}
		if n, _ := p.poll(b); n > 0 {
			return n, nil
		}
		return 0, io.EOF
	}
}

// awaitBytes waits until there may be something to read. It is false when the connection
// has ended.
func (p *pipe) awaitBytes(later later) bool {
	var arrival <-chan time.Time
	if later.in > 0 {
		timer := time.NewTimer(later.in)
		defer timer.Stop()
		arrival = timer.C
	}
	select {
	case <-p.ready:
	case <-later.open:
	case <-arrival:
	case <-p.ends.cut:
		return false
	}
	return true
}

// later is when to look again for what is on its way.
type later struct {
	open <-chan struct{} // the path may be open
	in   time.Duration   // the next of it arrives; 0: nothing is on its way
}

// poll reads what has arrived.
func (p *pipe) poll(b []byte) (int, later) {
	p.mu.Lock()
	defer p.mu.Unlock()
	arrived, wait := p.arrivedLocked()
	n := copy(b, p.buf[p.first:p.first+arrived])
	p.first += n
	if p.first == len(p.buf) {
		p.buf, p.first = p.buf[:0], 0
	}
	if n > 0 {
		wake.Signal(p.room)
		p.ends.hear()
	}
	return n, wait
}

// arrivedLocked returns how many bytes can be read, and when to look for more.
func (p *pipe) arrivedLocked() (int, later) {
	if open := p.ends.path.blocked(); open != nil {
		return 0, later{open: open}
	}
	for len(p.marks) > 0 && time.Until(p.marks[0].at) <= 0 {
		p.marks = p.marks[1:]
	}
	n := len(p.buf) - p.first
	if len(p.marks) == 0 {
		return n, later{}
	}
	for _, m := range p.marks {
		n -= m.bytes
	}
	return n, later{in: time.Until(p.marks[0].at)}
}

// markLocked notes that n bytes are on their way.
func (p *pipe) markLocked(n int) {
	delay := p.ends.path.delay()
	if delay == 0 && len(p.marks) == 0 {
		return
	}
	p.marks = append(p.marks, mark{at: time.Now().Add(delay), bytes: n})
}

// writeBytes waits for room, for at most so long; 0: as long as the connection lasts. The error
// is net.ErrClosed at the end of the connection, or os.ErrDeadlineExceeded.
func (p *pipe) writeBytes(b []byte, within time.Duration) error {
	var timeout <-chan time.Time
	for {
		n, err := p.writeSome(b)
		if b = b[n:]; err != nil || len(b) == 0 {
			return err
		}
		if timeout == nil && within > 0 {
			timer := time.NewTimer(within)
			defer timer.Stop()
			timeout = timer.C
		}
		select {
		case <-p.room:
		case <-p.ends.left:
			return net.ErrClosed
		case <-timeout:
			return os.ErrDeadlineExceeded
		}
	}
}

// writeSome writes what there is room for.
func (p *pipe) writeSome(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.ends.left:
		return 0, net.ErrClosed
	default:
	}
	n := min(len(b), p.size-(len(p.buf)-p.first))
	if p.first > 0 && len(p.buf)+n > cap(p.buf) {
		p.buf = p.buf[:copy(p.buf, p.buf[p.first:])]
		p.first = 0
	}
	p.buf = append(p.buf, b[:n]...)
	p.markLocked(n)
	wake.Signal(p.ready)
	return n, nil
}

// shrink gives back the buffer if it is empty.
func (p *pipe) shrink() {
	p.mu.Lock()
	if len(p.buf) == 0 {
		p.buf = nil
	}
	p.mu.Unlock()
}
