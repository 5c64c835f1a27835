package transport

import (
	"cmp"
	"fmt"
	"io"
	"runtime"
	"sync"
	"time"

	"github.com/harpcaller/harp/internal/wake"
)

const (
	// writeSize is the most bytes written to a stream at once: with the header that yamux
	// puts before them they are one record of TLS.
	writeSize = 16<<10 - yamuxHeaderSize
	// smallBuffer is how large a buffer is that a resting session keeps.
	smallBuffer = 1 << 10
)

// writer is the coalescing writer of a session: it queues frames and writes at once all that
// were queued while the write before was under way.
type writer struct {
	session *Session
	stream  Stream
	loop    func()        // writeLoop, here so that to start it allocates nothing
	wake    chan struct{} // 1 slot: there may be something to write

	mu      sync.Mutex // guards what follows; never held while blocked
	room    sync.Cond  // the buffer was taken, or an exchange is over, or the session
	buf     []byte     // what to write next
	spare   []byte     // what was written last
	writing bool       // writeLoop runs
	resting bool       // writeLoop goes when nothing is left
	closed  bool
	drained chan struct{} // closed when writeLoop is over; nil: nobody waits for it
}

func (w *writer) init(s *Session, st Stream) {
	w.session, w.stream, w.room.L, w.wake = s, st, &w.mu, make(chan struct{}, 1)
	w.loop = w.writeLoop
}

// queueFrame queues a frame of an exchange, waiting while too much is queued. The errors are
// those of [Exchange.Send].
func (w *writer) queueFrame(x *Exchange, f Frame) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	for {
		switch {
		case w.closed:
			return w.session.closedErr()
		case x.released || x.refused:
			return cmp.Or(w.session.closedErr(), io.ErrClosedPipe) // exchanges are refused before the writer is closed
		case x.sentEnd:
			return fmt.Errorf("%w: frame after End", ErrProtocol)
		}
		most := maxQueued
		if x == w.session.control {
			most = maxControlQueued
		}
		if len(w.buf) <= most {
			break
		}
		w.room.Wait()
	}
	if x.number == 0 && x != w.session.control {
		if err := w.session.numberExchange(x); err != nil {
			return err
		}
	}
	f.Exchange = x.number
	x.sentEnd = f.End && x != w.session.control
	w.appendLocked(f)
	return nil
}

// hasNumber reports whether the first frame of an exchange was sent.
func (w *writer) hasNumber(x *Exchange) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return x.number != 0 || x == w.session.control
}

// queueLocked lets a frame be written with the next that is appended.
func (w *writer) queueLocked(f Frame) {
	if w.buf == nil {
		w.buf, w.spare = w.spare[:0], nil
	}
	w.buf = f.append(w.buf)
}

func (w *writer) appendLocked(f Frame) {
	w.queueLocked(f)
	if len(w.buf) > maxUnread { // what waits for nobody, as that exchanges are given up
		w.session.failSession(fmt.Errorf("%w: it takes nothing of what is sent", ErrOverBudget))
	}
	if w.writing {
		wake.Signal(w.wake)
		return
	}
	w.writing, w.resting = w.session.startWork(w.loop), false
}

// sendBeat queues a heartbeat.
func (w *writer) sendBeat() {
	w.sendSignal(Frame{Type: beatType})
}

// sendSignal queues a frame that does not wait.
func (w *writer) sendSignal(f Frame) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.closed {
		w.appendLocked(f)
	}
}

// refuse lets nothing more be sent in an exchange that the peer has given up.
func (w *writer) refuse(x *Exchange, why error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	x.refused, x.given = true, why
	w.room.Broadcast()
}

// releaseExchange ends an exchange for this side. The peer knows if it has given it up itself, or
// this side was the last that had something to say: see [Exchange.Release]. A handler that
// has sent its End may still wait for the opener's.
func (w *writer) releaseExchange(x *Exchange, gotEnd bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if x.released {
		return
	}
	x.released = true
	known := x.refused || x.sentEnd && (gotEnd || !w.session.opener)
	switch reset := newReset(x.number, 0); {
	case x.number == 0 || known || w.closed:
	case gotEnd && w.session.opener: // hardly anybody waits for it: it goes with what is sent next
		w.queueLocked(reset)
	default:
		w.appendLocked(reset)
	}
	w.session.forgetExchange(x)
	w.room.Broadcast()
}

// writeLoop writes what was queued, until it is to rest and nothing is left.
func (w *writer) writeLoop() {
	var written []byte
	for {
		buf, over := w.takeQueued(written)
		written = nil
		if over {
			return
		}
		if buf == nil {
			<-w.wake
			runtime.Gosched() // what others are about to send comes with it
			continue
		}
		for rest := buf; len(rest) > 0; {
			n := min(len(rest), writeSize)
			if err := w.stream.WriteWithin(rest[:n], writeTimeout); err != nil {
				w.failWrite(err)
				return
			}
			rest = rest[n:]
		}
		written = buf
	}
}

// takeQueued takes what is queued; nil if that is nothing.
func (w *writer) takeQueued(written []byte) (buf []byte, over bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	most := maxQueued
	if w.resting {
		most = smallBuffer
	}
	if cap(written) <= most && cap(written) > cap(w.spare) {
		w.spare = written
	}
	if len(w.buf) == 0 {
		if over = w.resting || w.closed; over {
			w.overLocked()
		}
		return nil, over
	}
	buf, w.buf = w.buf, nil
	w.room.Broadcast()
	return buf, false
}

// failWrite ends the session when a write fails.
func (w *writer) failWrite(err error) {
	w.session.endLost(fmt.Errorf("write: %w", err)) // first: who finds the writer closed asks why
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
	w.overLocked()
	w.room.Broadcast()
}

// close lets nothing more be sent, and waits until what is queued was written, but not
// for long.
func (w *writer) close(patience time.Duration) {
	w.mu.Lock()
	w.closed = true
	w.room.Broadcast()
	var drained chan struct{}
	if w.writing {
		wake.Signal(w.wake)
		drained = make(chan struct{})
		w.drained = drained
	}
	w.mu.Unlock()
	if drained == nil {
		return
	}
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-drained:
	case <-timer.C:
	}
}

// overLocked notes that the loop writes no more.
func (w *writer) overLocked() {
	w.writing = false
	if w.drained != nil {
		close(w.drained)
		w.drained = nil
	}
}

// rest gives back the buffers.
func (w *writer) rest() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.spare, w.resting = nil, true
	wake.Signal(w.wake)
}
