package transport

import (
	"context"
	"fmt"
	"io"
	"math"
	"sync/atomic"
)

// Exchange is one question with its answers, alone on its lane. The opener's is
// made by [Session.Exchange] and ends with Release; the acceptor's is the
// handler's in [Session.Serve] and ends when the handler returns.
//
// Send is safe for concurrent use, also beside Receive; of concurrent Receives
// each gets some of the frames.
type Exchange struct {
	lane   *lane
	number uint32
	in     inbox

	sentEnd  atomic.Bool
	gotEnd   atomic.Bool
	released atomic.Bool
	reading  atomic.Bool // the opener's: somebody reads its answers
	self     bool        // the opener's: that is who receives; belongs to who does
}

// ask begins the next exchange of a lane, on the opener's side.
func (l *lane) ask() (*Exchange, error) {
	l.number++
	x := &Exchange{lane: l, number: l.number}
	if l.session.isDying() {
		return nil, l.session.closedErr()
	}
	if l.kept {
		x.reading.Store(true)
		l.take(x)
	}
	return x, nil
}

// take makes x the exchange that the lane's readLoop reads for.
func (l *lane) take(x *Exchange) {
	l.current.Store(x)
	if l.isClosed() { // readLoop may have ended without a look at x
		x.in.close(l.cutShort())
	}
}

// read sees to it that the opener's answers are read: there are none before the first
// question.
func (x *Exchange) read() error {
	l := x.lane
	if !l.session.opener || x.reading.Swap(true) || l.session.start(x.readAnswers) {
		return nil
	}
	return l.session.closedErr()
}

// Listen lets hear take the frames of the exchange, one after the other, in the place
// of Receive, which costs less: no goroutine has to be woken for it. hear may Send and
// Release; while it is at work nothing is read from the lane. An error is the last
// that it hears, and why the lane ended before the exchange was over: as of Receive, but
// also after the peer's End. After Release, or when the handler has returned, nothing
// more comes to it; what came just before it may still be hearing.
//
// The opener calls it once, before it sends. The error is [ErrSessionClosed].
func (x *Exchange) Listen(hear func(Frame, error)) error {
	l := x.lane
	x.in.listen(hear)
	if !l.session.opener || x.reading.Swap(true) {
		return nil
	}
	l.take(x)
	l.kept = true
	if !l.session.start(l.readLoop) {
		return l.session.closedErr()
	}
	return nil
}

// ReadSelf makes Receive read the lane itself, which costs less: no other goroutine has to
// be woken for each frame. Until ReadAhead nothing is read while nobody receives; only one
// goroutine at a time may, and it waits until the lane ends, whatever its ctx does.
//
// The opener calls it once, before it sends.
func (x *Exchange) ReadSelf() { x.self = !x.reading.Swap(true) }

// ReadAhead undoes ReadSelf, where many frames come or one is at work for long: those that come while nobody receives
// are there for TryReceive. It is for who receives.
func (x *Exchange) ReadAhead() {
	if !x.self {
		return
	}
	x.self = false
	if !x.lane.session.start(x.readAnswers) {
		x.in.close(x.lane.cutShort())
	}
}

// readLoop reads a lane of the opener until it ends. Lanes with listeners keep it from
// one exchange to the next.
func (l *lane) readLoop() {
	for {
		f, err := l.read()
		if err == nil {
			err = l.current.Load().deliver(f)
		}
		if err != nil {
			l.close()
			l.current.Load().in.close(err)
			return
		}
	}
}

// Session returns the session of the exchange.
func (x *Exchange) Session() *Session { return x.lane.session }

// Send sends a frame; end marks the last one in this direction. It waits while the peer
// takes nothing, and ends the session if that lasts 30 s. body is the caller's again when
// it returns.
//
// The error is [ErrSessionClosed]; io.ErrClosedPipe after Release or when the
// peer has closed the lane; [ErrProtocol] after End or for a type above 126;
// [ErrFrameTooLarge] for a body above [MaxFrame]. The last two send nothing. With
// [ErrSessionClosed] the peer may have got the frame, and its answer may be there to be
// received: it may have answered and ended the session before Send returned.
func (x *Exchange) Send(t Type, end bool, body []byte) error {
	f := Frame{Type: t, Exchange: x.number, End: end, Body: body}
	if err := f.check(); err != nil {
		return err
	}
	if err := x.read(); err != nil {
		return err
	}
	if err := x.lane.lock(); err != nil {
		return err
	}
	defer x.lane.unlock()
	switch {
	case x.released.Load():
		return x.lane.gone()
	case x.sentEnd.Load():
		return fmt.Errorf("%w: frame after End", ErrProtocol)
	}
	x.sentEnd.Store(end) // before the answer to it can be there
	return x.lane.sendLocked(f)
}

// Receive returns the next frame of the exchange, waiting for it until ctx ends.
//
// The error is io.EOF after End; io.ErrUnexpectedEOF when the lane ended before,
// joined with [ErrSessionClosed] if it was because the session did;
// io.ErrClosedPipe after Release; or ctx's.
func (x *Exchange) Receive(ctx context.Context) (Frame, error) {
	if x.self {
		return x.receiveSelf()
	}
	if err := x.read(); err != nil {
		return Frame{}, fmt.Errorf("%w: %w", io.ErrUnexpectedEOF, err)
	}
	return x.in.take(ctx)
}

// receiveSelf is Receive for who reads the lane as well.
func (x *Exchange) receiveSelf() (Frame, error) {
	for {
		if f, ok, err := x.in.poll(); ok || err != nil {
			return f, err
		}
		x.readAnswer()
	}
}

// TryReceive returns the next frame of the exchange if it has come already. What comes
// instead of one, [Exchange.Receive] says.
func (x *Exchange) TryReceive() (Frame, bool) {
	f, ok, _ := x.in.poll()
	return f, ok
}

// Release ends the opener's exchange. If its End was received, the lane is free
// for the next one; if not, the lane is closed and the peer's handler stopped. It
// is idempotent, and does nothing on the acceptor's side.
func (x *Exchange) Release() {
	l := x.lane
	if !l.session.opener || x.released.Swap(true) {
		return
	}
	x.in.abandon(io.ErrClosedPipe)
	if x.gotEnd.Load() && l.number < math.MaxUint32 {
		l.session.lanes.put(l)
		return
	}
	l.close()
}

// readAnswers reads the opener's lane until End, or until the lane ends.
func (x *Exchange) readAnswers() {
	for !x.gotEnd.Load() && x.readAnswer() {
	}
}

// readAnswer reads one frame, or that the lane has ended.
func (x *Exchange) readAnswer() bool {
	f, err := x.lane.read()
	if err == nil {
		err = x.deliver(f)
	}
	if err != nil {
		x.in.close(err)
		x.lane.close()
	}
	return err == nil
}

// deliver puts a frame into the inbox if it belongs to the exchange, and drops it
// if it belongs to an older one.
func (x *Exchange) deliver(f Frame) error {
	switch {
	case f.Exchange == 0 || f.Type == heartbeat:
		return x.violated("control frame on a lane")
	case f.Exchange > x.number:
		return x.violated("frame of an exchange that was not begun")
	case f.Exchange == x.number:
		return x.accept(f)
	}
	return nil
}

// accept puts a frame of the exchange into the inbox.
func (x *Exchange) accept(f Frame) error {
	if x.gotEnd.Load() {
		return x.violated("frame after End")
	}
	var end error
	if f.End {
		end = io.EOF
		x.gotEnd.Store(true)
	}
	if !x.in.put(f, end, x.lane.session.dying, x.lane.closed) {
		return x.lane.cutShort() // nobody reads on after End
	}
	return nil
}

// violated ends the session.
func (x *Exchange) violated(what string) error {
	x.lane.session.fail(fmt.Errorf("%w: %s", ErrProtocol, what))
	return x.lane.cutShort()
}
