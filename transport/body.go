package transport

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/harpcaller/harp/internal/msgpack"
)

// A long body does not travel in the stream of the frames, where all that follows would
// wait for it, but in a stream of its own, which its frame names. yamux lets the streams
// take turns, and each has a window, so that long bodies that are not taken hold up
// no frames.
const (
	// longBody is the length of the shortest body that is long.
	longBody = 16<<10 + 1
	// maxBodyStreams is how many streams for long bodies each side opens. While all are in
	// use, bodies travel with their frames.
	maxBodyStreams = 64
	// maxBodies is how many bytes of long bodies a session has read and not handed on,
	// but for a single one that is longer, or that was overtaken by as many.
	maxBodies = 8 << 20
	// maxStreamBodies is how many of them came on one stream: those of one exchange may not
	// be taken before one of another has come.
	maxStreamBodies = 1 << 20
	// maxAnnounced is how many bodies may have been announced on a stream and not read: its
	// window has no room for more that were written.
	maxAnnounced = mainWindow/longBody + 2
	// acceptTime bounds the wait for a stream that was opened before it was named.
	acceptTime = 5 * time.Second
)

// bodySender is a stream on which this side sends the long bodies of one exchange at a
// time.
type bodySender struct {
	Stream
	busy chan struct{} // 1 slot: who fills it may announce a body and write it
}

// bodyReceiver is a stream on which the peer sends long bodies. The bodies' mutex guards it.
type bodyReceiver struct {
	Stream
	announced []*lateBody // in order
	reading   bool        // readBodies runs
	untaken   int         // bytes of the bodies' that came on it
}

// lateBody is a body that was announced by its frame.
type lateBody struct {
	from     *bodyReceiver
	exchange *Exchange // nil: it is over
	frame    Frame     // which begins the exchange, if it has no place there
	begins   bool
	size     int

	// Guarded by the exchange's mutex.
	body    []byte // nil: it has not come
	dropped bool   // nobody takes it
}

// bodies are the streams of a session for long bodies.
type bodies struct {
	session *Session
	readers sync.WaitGroup // of what the peer sends

	mu      sync.Mutex // guards what follows; never held while blocked
	room    sync.Cond  // untaken is less, or the session ends
	opened  int        // streams of this side
	free    []*bodySender
	streams map[uint32]*bodyReceiver
	untaken int   // bytes that were read, or are being read, and were not taken
	begun   int64 // bytes that were, or are being, read so far
	closed  bool
}

func (b *bodies) init(s *Session) {
	b.session, b.room.L = s, &b.mu
}

// sendLong is Send for a long body. While it is written, frames that are sent after it wait
// at the receiver. It is written to the end also if the exchange ends meanwhile, as the stream
// has to be used again; nobody waits for that.
func (s *Session) sendLong(x *Exchange, f Frame) error {
	st, err := x.bodySender()
	switch {
	case err != nil:
		return err
	case st == nil:
		return s.out.queueFrame(x, f)
	}
	over := x.Context().Done()
	select {
	case st.busy <- struct{}{}:
	case <-over:
		x.sentLong()
		return cmp.Or(s.closedErr(), io.ErrClosedPipe)
	}
	f.on = st.ID()
	if err := s.out.queueFrame(x, f); err != nil {
		<-st.busy
		x.sentLong()
		return err
	}
	body, written := &bodyWriter{rest: f.Body}, make(chan error, 1)
	write := func() {
		written <- s.writeBody(st, body)
		<-st.busy
		x.sentLong()
	}
	if !s.startWork(write) {
		return s.closedErr()
	}
	select {
	case err := <-written:
		return err
	case <-over:
		body.own()
		return cmp.Or(s.closedErr(), io.ErrClosedPipe)
	}
}

// writeBody writes a body. The error is [ErrSessionClosed].
func (s *Session) writeBody(st *bodySender, body *bodyWriter) error {
	buf := bodyBuffers.Get().(*[writeSize]byte)
	defer bodyBuffers.Put(buf)
	for n := body.nextPiece(buf[:]); n > 0; n = body.nextPiece(buf[:]) {
		if err := st.WriteWithin(buf[:n], 0); err != nil { // who takes no bodies may be well otherwise
			s.endLost(fmt.Errorf("write: %w", err))
			return s.closedErr()
		}
	}
	return nil
}

var bodyBuffers = sync.Pool{New: func() any { return new([writeSize]byte) }}

// bodyWriter is what is left of a body to write.
type bodyWriter struct {
	mu   sync.Mutex // guards rest
	rest []byte
}

// nextPiece moves what is written next to buf.
func (b *bodyWriter) nextPiece(buf []byte) (n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	n = copy(buf, b.rest)
	b.rest = b.rest[n:]
	return n
}

// own leaves the body to the one who gave it.
func (b *bodyWriter) own() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.rest = bytes.Clone(b.rest)
}

// bodySender returns the stream of the exchange for long bodies, which it keeps until it is
// over; nil if there is none left. The errors are those of [Exchange.Send].
func (x *Exchange) bodySender() (*bodySender, error) {
	for {
		x.mu.Lock()
		st, released := x.body, x.isReleasedLocked()
		if st != nil && !released {
			x.longSends++
		}
		x.mu.Unlock()
		switch {
		case released:
			return nil, io.ErrClosedPipe
		case st != nil:
			return st, nil
		}
		fresh, err := x.session.bodies.takeSender()
		if fresh == nil || err != nil {
			return nil, err
		}
		x.mu.Lock()
		surplus := fresh
		if x.body == nil && !x.isReleasedLocked() {
			x.body, surplus = fresh, nil
		}
		x.mu.Unlock()
		if surplus != nil {
			x.session.bodies.give(surplus)
		}
	}
}

// sentLong follows a bodySender.
func (x *Exchange) sentLong() {
	x.mu.Lock()
	x.longSends--
	st := x.bodyOverLocked()
	x.mu.Unlock()
	x.session.bodies.give(st)
}

// bodyOverLocked returns the stream that the exchange does not need any more, once; else nil.
func (x *Exchange) bodyOverLocked() (st *bodySender) {
	if x.longSends == 0 && x.isReleasedLocked() {
		st, x.body = x.body, nil
	}
	return st
}

// takeSender returns a free stream or a new one; nil if there can be no more.
func (b *bodies) takeSender() (*bodySender, error) {
	b.mu.Lock()
	n := len(b.free) - 1
	if n >= 0 {
		st := b.free[n]
		b.free = b.free[:n]
		b.mu.Unlock()
		return st, nil
	}
	full := b.opened == maxBodyStreams
	if !full {
		b.opened++
	}
	b.mu.Unlock()
	if full {
		return nil, nil
	}
	st, err := b.session.mux.Open(context.Background())
	if err != nil {
		b.session.endLost(fmt.Errorf("open: %w", err))
		return nil, b.session.closedErr()
	}
	return &bodySender{Stream: st, busy: make(chan struct{}, 1)}, nil
}

// give makes a stream free for another exchange.
func (b *bodies) give(st *bodySender) {
	if st == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.free = append(b.free, st)
}

// announce takes in a frame whose body comes on a stream of its own. The error is
// [ErrProtocol].
func (s *Session) announce(x *Exchange, begins bool, f Frame) error {
	from, err := s.bodies.receiver(f.on)
	if err != nil {
		return err
	}
	late := &lateBody{from: from, exchange: x, begins: begins, frame: f, size: f.size}
	if x != nil {
		f.late = late
		if err := x.announce(f, begins); err != nil {
			return err
		}
	}
	return s.bodies.awaitBody(late)
}

// announce keeps a place for a frame, unless it begins the exchange. The error is
// [ErrProtocol].
func (x *Exchange) announce(f Frame, begins bool) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	take, err := x.admitLocked(f)
	switch {
	case !take:
		f.late.dropped = true
	case !begins:
		x.frames = append(x.frames, f)
	}
	return err
}

// receiver returns a stream of the peer. The error is [ErrProtocol].
func (b *bodies) receiver(id uint32) (*bodyReceiver, error) {
	for {
		b.mu.Lock()
		st, n := b.streams[id], len(b.streams)
		b.mu.Unlock()
		if st != nil {
			return st, nil
		}
		if n == maxBodyStreams {
			return nil, fmt.Errorf("%w: too many streams", ErrProtocol)
		}
		if err := b.acceptStream(); err != nil {
			return nil, err
		}
	}
}

// acceptStream accepts a stream that the peer has opened.
func (b *bodies) acceptStream() error {
	ctx, cancel := context.WithTimeout(context.Background(), acceptTime)
	defer cancel()
	st, err := b.session.mux.Accept(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("%w: a body on a stream that was not opened", ErrProtocol)
	}
	if err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.streams == nil {
		b.streams = make(map[uint32]*bodyReceiver)
	}
	b.streams[st.ID()] = &bodyReceiver{Stream: st}
	return nil
}

// awaitBody lets a body be read. The error is [ErrProtocol].
func (b *bodies) awaitBody(late *lateBody) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	from := late.from
	if len(from.announced) == maxAnnounced {
		return fmt.Errorf("%w: too many long bodies announced", ErrProtocol)
	}
	from.announced = append(from.announced, late)
	if !from.reading {
		from.reading = true
		b.readers.Go(func() { b.readBodies(from) })
	}
	return nil
}

// readBodies reads what was announced on a stream.
func (b *bodies) readBodies(from *bodyReceiver) {
	for {
		late := b.nextLate(from)
		if late == nil {
			return
		}
		body, err := b.readBody(late)
		if err != nil {
			b.session.readFailed(err)
			return
		}
		b.arrived(late, body)
	}
}

// nextLate returns the next body to read, nil if there is none. It waits while too much was
// read and not taken; what has come of a session that ends is in memory anyway.
func (b *bodies) nextLate(from *bodyReceiver) *lateBody {
	b.mu.Lock()
	defer b.mu.Unlock()
	if from.reading = len(from.announced) > 0; !from.reading {
		return nil
	}
	late := from.announced[0]
	from.announced = slices.Delete(from.announced, 0, 1)
	for since := b.begun; !b.hasRoomLocked(late, since) && !b.closed; {
		b.room.Wait()
	}
	b.begun += int64(late.size)
	b.untaken += late.size
	from.untaken += late.size
	return late
}

// hasRoomLocked reports whether a body may be read that waits since so many bytes of bodies
// were begun. Shorter ones find room before a long one does, and would for ever.
func (b *bodies) hasRoomLocked(late *lateBody, since int64) bool {
	if exceeds(late.from.untaken, late.size, maxStreamBodies) {
		return false
	}
	overtaken := b.begun-since >= maxBodies && b.untaken <= maxBodies
	return overtaken || !exceeds(b.untaken, late.size, maxBodies)
}

// exceeds reports whether a body is one too many, which a single one never is.
func exceeds(untaken, size, most int) bool { return untaken > 0 && untaken+size > most }

func (b *bodies) readBody(late *lateBody) ([]byte, error) {
	body, err := readBody(late.from, late.size)
	if err == nil {
		err = msgpack.Validate(body, msgpack.ProtocolLimits)
	}
	return body, err
}

// arrived gives a body to its exchange.
func (b *bodies) arrived(late *lateBody, body []byte) {
	x := late.exchange
	if x == nil {
		b.taken(late)
		return
	}
	if late.begins {
		b.taken(late)
		late.frame.Body = body
		b.session.runHandler(x, late.frame)
		return
	}
	x.mu.Lock()
	late.body = body
	dropped := late.dropped
	var notify func()
	if !dropped && x.frames[0].late == late {
		notify = x.wakeLocked()
	}
	x.mu.Unlock()
	if dropped {
		b.taken(late)
	}
	if notify != nil {
		notify()
	}
}

// taken makes room for other bodies.
func (b *bodies) taken(late *lateBody) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.untaken -= late.size
	late.from.untaken -= late.size
	b.room.Broadcast()
}

// shrink gives back what the streams of the peer need while nothing comes on them.
func (b *bodies) shrink() {
	b.mu.Lock()
	streams := slices.Collect(maps.Values(b.streams))
	b.mu.Unlock()
	for _, st := range streams {
		st.Shrink() // waits while yamux reads on it, which may be as long as the connection lasts
	}
}

// stopWaiting ends every wait for room. What has come is still read.
func (b *bodies) stopWaiting() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	b.room.Broadcast()
}
