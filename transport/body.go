package transport

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/harpcaller/harp/internal/msgpack"
)

// A long body does not travel in the stream of the frames, where all that follows would
// wait for it, but in a stream of its own, which its frame names. yamux lets the streams
// take turns, and each has a window, so that long bodies that are not taken hold up
// no frames. They are sent when the receiver has let them in, which it does when it has room for
// them: a byte on the same stream says so, for the bodies of the stream in their order. It does not
// come with the frames, which nobody may be reading because those wait that a user is to take who
// waits for the body to be sent. The byte may also say that from then on the first bytes of the
// session's bodies may come ahead of it.

// What lets a body in.
const (
	letIn      = 1
	letInAhead = 2 // and lets others come ahead
)

// LongBody is the length of the shortest body that is long: shorter ones travel with the frames.
const LongBody = 16<<10 + 1

// bodyReceiver is a stream on which the peer sends long bodies. The bodies' mutex guards it.
type bodyReceiver struct {
	Stream
	announced []*lateBody // in order
	reading   bool        // readBodies runs
	kept      int64       // bytes of the budget for what yamux keeps until the next body
}

// lateBody is a body that was announced by its frame.
type lateBody struct {
	from     *bodyReceiver
	exchange *Exchange // nil: it is over
	frame    Frame     // which begins the exchange, if it has no place there
	begins   bool
	size     int
	paid     int64 // to the budget

	// Guarded by the exchange's mutex.
	body    []byte // nil: it has not come
	dropped bool   // nobody takes it
}

// bodies are the streams of a session for long bodies.
type bodies struct {
	session *Session
	readers sync.WaitGroup // of what the peer sends
	sending chan struct{}  // as many slots as there may be streams of this side; who fills one may use one

	mu        sync.Mutex // guards what follows; never held while blocked
	room      sync.Cond  // untaken is less, or the session ends
	free      []Stream   // of this side
	mostAhead int        // bytes that this side may send of bodies that were not let in
	ahead     int        // so many of them are taken
	mayCome   bool       // the peer may send so
	writing   int        // bodies of this side that are not written yet
	moved     time.Time  // when the first of these was begun, or what was written has come over a slow line
	streams   map[uint32]*bodyReceiver
	announced int         // bodies that were not let in
	untaken   int         // bytes that were read, or are being read, and were not taken
	coming    int         // of those, that are being read
	line      []*lateBody // those that wait to be read, the first on each stream, in their order
	closed    bool
}

func (b *bodies) init(s *Session) {
	b.session, b.room.L, b.sending = s, &b.mu, make(chan struct{}, maxBodyStreams)
}

var bodyBuffers = sync.Pool{New: func() any { return new([writeSize]byte) }}

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
	st, ok, err := b.session.mux.Opened() // a sender opens it before it names it
	if err != nil {
		return err
	}
	if !ok {
		return fmt.Errorf("%w: a body on a stream that was not opened", ErrProtocol)
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
	if b.announced++; b.announced > maxAnnounced {
		return fmt.Errorf("%w: too many long bodies announced", ErrProtocol)
	}
	from.announced = append(from.announced, late)
	if late.exchange != nil {
		late.exchange.lates = append(late.exchange.lates, late)
	}
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
		if err := b.grantBody(late); err != nil {
			b.session.endLost(fmt.Errorf("write: %w", err)) // what has come of the body is read
		}
		body, err := b.readBody(late)
		if err != nil {
			b.session.budget.bodies.give(late.paid)
			b.session.readFailed(err)
			return
		}
		b.keepBuffer(late)
		b.noteCome(late)
		b.arrived(late, body)
	}
}

// keepBuffer leaves with yamux what it needed for a body, for the next one of the stream, if the budget has room for
// that: of many that follow each other it would make a third of all garbage.
func (b *bodies) keepBuffer(late *lateBody) {
	from, all := late.from, &b.session.budget.budget.kept
	b.mu.Lock()
	more := 2*int64(min(late.size, mainWindow)) - from.kept // it doubles
	keeps := more <= 0 || all.tryTake(more, nil)
	if keeps && more > 0 {
		from.kept += more
	}
	b.mu.Unlock()
	if !keeps {
		from.Shrink()
	}
}

// noteCome makes room for other bodies to come.
func (b *bodies) noteCome(late *lateBody) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.coming -= late.size
	b.room.Broadcast()
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
	b.line = append(b.line, late)
	for !b.mayReadLocked(late) && !b.closed {
		b.room.Wait()
	}
	b.line = slices.DeleteFunc(b.line, func(l *lateBody) bool { return l == late })
	b.room.Broadcast() // to those behind it
	b.announced--
	b.untaken += late.size
	b.coming += late.size
	if x := late.exchange; x != nil {
		x.untaken += late.size
	}
	return late
}

// notePaid lets the next body of the exchange find room. Before, it could have that which this one waits for, and could not be
// taken before this one.
func (b *bodies) notePaid(late *lateBody) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if x := late.exchange; x != nil {
		x.lates = slices.DeleteFunc(x.lates, func(l *lateBody) bool { return l == late })
		b.room.Broadcast()
	}
}

// grantBody lets a body come as soon as there is room for it in the budget. What has come of a
// session that ends needs none.
func (b *bodies) grantBody(late *lateBody) error {
	s := b.session
	paid := s.budget.bodies.take(s.dying, nil, int64(late.size))
	b.notePaid(late)
	if !paid {
		return nil
	}
	late.paid = int64(late.size)
	s.mux.Expect(late.size)
	grant := []byte{letIn}
	if b.mayComeAhead() {
		grant[0] = letInAhead
	}
	return late.from.WriteWithin(grant, 0)
}

// mayComeAhead lets bodies come ahead for as long as the session lasts, if the budget has room for that.
func (b *bodies) mayComeAhead() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.mayCome && b.session.budget.takeAhead() {
		b.mayCome = true
		b.session.mux.Expect(maxAhead)
	}
	return b.mayCome
}

// mayReadLocked reports whether a body may be read: the first in line, when there is room. If shorter ones went before a long one, or those of
// about its length by chance, it could wait for ever.
func (b *bodies) mayReadLocked(late *lateBody) bool {
	for _, l := range b.line {
		if !l.waitsForOthers() {
			return l == late && b.untaken <= maxBodies && !exceeds(b.coming, late.size, maxComing)
		}
	}
	return false
}

// waitsForOthers reports whether a body cannot be taken before another of its exchange has come, or was taken. It must not have the room for that.
func (l *lateBody) waitsForOthers() bool {
	x := l.exchange
	return x != nil && (x.lates[0] != l || exceeds(x.untaken, l.size, maxExchangeBodies))
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
	b.session.budget.bodies.give(late.paid)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.untaken -= late.size
	if late.exchange != nil {
		late.exchange.untaken -= late.size
	}
	b.room.Broadcast()
}

// shrink gives back what the streams of the peer need while nothing comes on them.
func (b *bodies) shrink() {
	for _, st := range b.giveKept() {
		st.Shrink() // waits while yamux reads on it, which may be as long as the connection lasts
	}
}

// giveKept gives back what was paid for what yamux keeps, and returns the streams of the peer.
func (b *bodies) giveKept() []*bodyReceiver {
	b.mu.Lock()
	defer b.mu.Unlock()
	streams := slices.Collect(maps.Values(b.streams))
	for _, st := range streams {
		b.session.budget.budget.kept.give(st.kept, nil)
		st.kept = 0
	}
	return streams
}

// stopWaiting ends every wait for room. What has come is still read.
func (b *bodies) stopWaiting() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	b.room.Broadcast()
}
