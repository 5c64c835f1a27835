package transport

import (
	"io"
	"net"
	"os"
	"sync"
	"time"
)

// pipe is one direction of an in-memory stream: a bounded buffer with one reader
// and one writer, and a road between them. It blocks on channels and timers only,
// never on its mutex.
type pipe struct {
	ready chan struct{} // 1 slot: there may be something to read
	room  chan struct{} // 1 slot: there may be room to write
	ends  ends
	size  int

	mu     sync.Mutex // guards what follows; never held while blocked
	buf    []byte
	first  int    // index of the next byte to read
	marks  []mark // what is still on its way, in order: none arrives before the one before it
	ended  bool   // the writer is done: io.EOF after what is buffered
	closed bool   // the reader is gone
}

// ends are the two ends of a connection as a pipe of it sees them.
type ends struct {
	left <-chan struct{} // closed when the connection has ended for the writer
	cut  <-chan struct{} // and for the reader
	road *Road           // from the writer to the reader
	back *Road           // on which the writer hears that the reader is gone
}

// mark says when bytes arrive that were sent on a slow road.
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

// read waits for bytes. The error is io.EOF at the end, also at that of the
// connection, and errStreamClosed after close.
func (p *pipe) read(b []byte) (int, error) {
	for {
		n, later, err := p.poll(b)
		if n > 0 || err != nil {
			return n, err
		}
		if p.wait(later) {
			continue
		}
		if n, _, err := p.poll(b); n > 0 || err != nil {
			return n, err
		}
		return 0, io.EOF
	}
}

// wait waits until there may be something to read. It is false when the connection
// has ended.
func (p *pipe) wait(later later) bool {
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
	open <-chan struct{} // the road may be open
	in   time.Duration   // the next of it arrives; 0: nothing is on its way
}

// poll reads what has arrived.
func (p *pipe) poll(b []byte) (int, later, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return 0, later{}, errStreamClosed
	}
	arrived, wait := p.arrivedLocked()
	n := copy(b, p.buf[p.first:p.first+arrived])
	p.first += n
	if p.first == len(p.buf) {
		p.buf, p.first = p.buf[:0], 0
	}
	switch {
	case n > 0:
		signal(p.room)
	case p.ended && wait == later{}:
		return 0, wait, io.EOF
	}
	return n, wait, nil
}

// arrivedLocked returns how many bytes can be read, and when to look for more.
func (p *pipe) arrivedLocked() (int, later) {
	if open := p.ends.road.blocked(); open != nil {
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

// markLocked notes that n bytes, or the end, are on their way.
func (p *pipe) markLocked(n int) {
	delay := p.ends.road.delay()
	if delay == 0 && len(p.marks) == 0 {
		return
	}
	p.marks = append(p.marks, mark{at: time.Now().Add(delay), bytes: n})
}

// write waits for room, for at most writeTimeout. The error is errStreamClosed
// after end or close, net.ErrClosed at the end of the connection, or
// os.ErrDeadlineExceeded.
func (p *pipe) write(b []byte) (int, error) {
	var timeout <-chan time.Time
	for total := 0; ; {
		n, err := p.offer(b[total:])
		total += n
		if err != nil || total == len(b) {
			return total, err
		}
		if timeout == nil {
			timer := time.NewTimer(writeTimeout)
			defer timer.Stop()
			timeout = timer.C
		}
		select {
		case <-p.room:
		case <-p.ends.back.blocked():
		case <-p.ends.left:
			return total, net.ErrClosed
		case <-timeout:
			return total, os.ErrDeadlineExceeded
		}
	}
}

// offer writes what there is room for.
func (p *pipe) offer(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended || p.closed && p.ends.back.blocked() == nil {
		return 0, errStreamClosed
	}
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
	signal(p.ready)
	return n, nil
}

// end is the writer's close.
func (p *pipe) end() {
	p.mu.Lock()
	if !p.ended {
		p.ended = true
		p.markLocked(0)
	}
	p.mu.Unlock()
	signal(p.ready)
	signal(p.room)
}

// close is the reader's.
func (p *pipe) close() {
	p.mu.Lock()
	p.closed, p.buf, p.first, p.marks = true, nil, 0, nil
	p.mu.Unlock()
	signal(p.ready)
	signal(p.room)
}

// shrink gives back the buffer if it is empty.
func (p *pipe) shrink() {
	p.mu.Lock()
	if len(p.buf) == 0 {
		p.buf = nil
	}
	p.mu.Unlock()
}
