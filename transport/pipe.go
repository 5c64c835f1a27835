package transport

import (
	"io"
	"net"
	"os"
	"sync"
	"time"
)

// pipe is one direction of an in-memory stream: a bounded buffer with one reader
// and one writer. It blocks on channels and timers only, never on its mutex.
type pipe struct {
	ready chan struct{}   // 1 slot: there may be something to read
	room  chan struct{}   // 1 slot: there may be room to write
	cut   <-chan struct{} // closed when the connection ends
	size  int

	mu     sync.Mutex // guards what follows; never held while blocked
	buf    []byte
	first  int  // index of the next byte to read
	ended  bool // the writer is done: io.EOF after what is buffered
	closed bool // the reader is gone
}

func newPipe(size int, cut <-chan struct{}) *pipe {
	return &pipe{
		ready: make(chan struct{}, 1),
		room:  make(chan struct{}, 1),
		cut:   cut,
		size:  size,
	}
}

// read waits for bytes. The error is io.EOF at the end, also at that of the
// connection, and errStreamClosed after close.
func (p *pipe) read(b []byte) (int, error) {
	for {
		n, err := p.poll(b)
		if n > 0 || err != nil {
			return n, err
		}
		select {
		case <-p.ready:
		case <-p.cut:
			if n, err := p.poll(b); n > 0 || err != nil {
				return n, err
			}
			return 0, io.EOF
		}
	}
}

// poll reads what is there.
func (p *pipe) poll(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := copy(b, p.buf[p.first:])
	p.first += n
	if p.first == len(p.buf) {
		p.buf, p.first = p.buf[:0], 0
	}
	switch {
	case p.closed:
		return 0, errStreamClosed
	case n > 0:
		signal(p.room)
	case p.ended:
		return 0, io.EOF
	}
	return n, nil
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
		case <-p.cut:
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
	if p.ended || p.closed {
		return 0, errStreamClosed
	}
	select {
	case <-p.cut:
		return 0, net.ErrClosed
	default:
	}
	n := min(len(b), p.size-(len(p.buf)-p.first))
	if p.first > 0 && len(p.buf)+n > cap(p.buf) {
		p.buf = p.buf[:copy(p.buf, p.buf[p.first:])]
		p.first = 0
	}
	p.buf = append(p.buf, b[:n]...)
	signal(p.ready)
	return n, nil
}

// end is the writer's close.
func (p *pipe) end() {
	p.mu.Lock()
	p.ended = true
	p.mu.Unlock()
	signal(p.ready)
	signal(p.room)
}

// close is the reader's.
func (p *pipe) close() {
	p.mu.Lock()
	p.closed, p.buf, p.first = true, nil, 0
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
