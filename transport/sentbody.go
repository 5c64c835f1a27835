package transport

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"sync"
	"time"
)

// SlowLine is how many bytes a second come at least over a line that is slow, and not dead.
const SlowLine = 8 << 10

// maxOnWay is how many bytes of long bodies may have been written and have not come: what is let in at a time, a single one that is
// longer, and what comes ahead.
const maxOnWay = 2*maxComing + maxAhead

// sendLong is Send for a long body. While it is written, frames that are sent after it wait
// at the receiver. It is written to the end also if the exchange ends meanwhile, as the stream
// has to be used again; nobody waits for that.
func (s *Session) sendLong(x *Exchange, f Frame) error {
	over := x.Context().Done()
	select {
	case s.bodies.sending <- struct{}{}:
	case <-over:
		return cmp.Or(s.closedErr(), io.ErrClosedPipe)
	case <-s.dying: // nobody gives a slot back, and the end of the session does not find an exchange of which nothing was sent
		return s.closedErr()
	}
	st, err := s.bodies.openSender()
	if err != nil {
		<-s.bodies.sending
		return err
	}
	f.on = st.ID()
	s.mux.Expect(1) // the byte that lets it in
	if err := s.out.queueFrame(x, f); err != nil {
		s.bodies.releaseSender(st)
		return err
	}
	body, written := &sentBody{session: s, stream: st, rest: f.Body}, make(chan error, 1)
	body.ahead = s.bodies.takeAhead(len(f.Body))
	s.bodies.noteWriting()
	write := func() {
		err := body.write()
		s.bodies.noteWritten()
		written <- err
		if err == nil && body.awaitGrant() == nil {
			s.bodies.releaseSender(st)
		}
		body.release()
	}
	if !s.startWork(write) {
		return s.closedErr()
	}
	select {
	case err := <-written:
		return err
	case <-over:
		body.own(x)
		return cmp.Or(s.closedErr(), io.ErrClosedPipe)
	}
}

// openSender returns a free stream or a new one. The error is [ErrSessionClosed].
func (b *bodies) openSender() (Stream, error) {
	b.mu.Lock()
	if n := len(b.free) - 1; n >= 0 {
		st := b.free[n]
		b.free = b.free[:n]
		b.mu.Unlock()
		return st, nil
	}
	b.mu.Unlock()
	st, err := b.session.mux.Open(context.Background())
	if err != nil {
		b.session.endLost(fmt.Errorf("open: %w", err))
		return nil, b.session.closedErr()
	}
	return st, nil
}

// releaseSender makes a stream free for another body.
func (b *bodies) releaseSender(st Stream) {
	b.mu.Lock()
	b.free = append(b.free, st)
	b.mu.Unlock()
	<-b.sending
}

// takeAhead returns how many bytes of a body may be sent before it is let in.
func (b *bodies) takeAhead(size int) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := min(size, b.mostAhead-b.ahead)
	b.ahead += n
	return n
}

// noteWriting notes that a body begins to be written.
func (b *bodies) noteWriting() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if now := time.Now(); b.writing == 0 && b.moved.Before(now) {
		b.moved = now
	}
	b.writing++
}

// noteMoved notes that a piece of a body was written, which comes behind what is on its way.
func (b *bodies) noteMoved(size int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	moved := b.moved.Add(overSlowLine(size))
	if b.moved.Before(now) {
		moved = now.Add(overSlowLine(size))
	}
	if latest := now.Add(overSlowLine(maxOnWay)); moved.After(latest) {
		moved = latest
	}
	b.moved = moved
}

// overSlowLine returns how long so many bytes take over a slow line.
func overSlowLine(size int) time.Duration {
	return time.Duration(size) * time.Second / SlowLine
}

// noteWritten notes that a body is written, or will not be.
func (b *bodies) noteWritten() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.writing--
}

// StuckFor returns for how long the peer has taken nothing of the long bodies that are sent to it, though all that was written before would
// have come over a slow line; at most 0 if there are none, or that would not.
func (s *Session) StuckFor() time.Duration {
	b := &s.bodies
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.writing == 0 {
		return 0
	}
	return time.Since(b.moved)
}

// noteGrant notes what let a body in of which so many bytes might be sent before.
func (b *bodies) noteGrant(grant byte, ahead int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ahead -= ahead
	if grant == letInAhead {
		b.mostAhead = maxAhead
	}
}

// sentBody is a body on its way. One goroutine writes it.
type sentBody struct {
	session *Session
	stream  Stream
	ahead   int  // bytes of it that may be sent before it is let in
	granted bool // it is let in

	mu       sync.Mutex // guards what follows
	rest     []byte     // what is left to write
	reserved int64      // of the budget, for what is left when its exchange is over
	written  bool
}

// write writes the body. The error is [ErrSessionClosed].
func (b *sentBody) write() error {
	buf := bodyBuffers.Get().(*[writeSize]byte)
	defer bodyBuffers.Put(buf)
	for ahead := b.ahead; b.hasMore(); {
		if !b.granted && ahead == 0 {
			if err := b.awaitGrant(); err != nil {
				return err
			}
		}
		most := writeSize
		if !b.granted {
			most = min(most, ahead)
		}
		n := b.nextPiece(buf[:most])
		ahead -= n
		if err := b.stream.WriteWithin(buf[:n], 0); err != nil { // who takes no bodies may be well otherwise
			b.session.endLost(fmt.Errorf("write: %w", err))
			return b.session.closedErr()
		}
		b.session.bodies.noteMoved(n)
	}
	return nil
}

// awaitGrant waits until the peer lets the body in. The error is [ErrSessionClosed].
func (b *sentBody) awaitGrant() error {
	if b.granted {
		return nil
	}
	var grant [1]byte
	if _, err := io.ReadFull(b.stream, grant[:]); err != nil {
		b.session.endLost(fmt.Errorf("read: %w", err))
		return b.session.closedErr()
	}
	b.granted = true
	b.session.bodies.noteGrant(grant[0], b.ahead)
	return nil
}

func (b *sentBody) hasMore() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.rest) > 0
}

// nextPiece moves what is written next to buf.
func (b *sentBody) nextPiece(buf []byte) (n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	n = copy(buf, b.rest)
	b.rest = b.rest[n:]
	return n
}

// own leaves the body to the one who gave it, as its exchange is over. What is left of it
// keeps what was reserved for it until it is written.
func (b *sentBody) own(x *Exchange) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.written {
		b.rest = bytes.Clone(b.rest)
		b.reserved = x.takeReserved()
	}
}

// release gives back what the body has kept.
func (b *sentBody) release() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.rest, b.written = nil, true
	b.session.budget.answers.give(b.reserved)
}
