package transport

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/harpcaller/harp/internal/wake"
)

// Exchange is one question with its answers. The opener's is made by [Session.Exchange]
// and ends with Release; the acceptor's is the handler's in [Session.Serve] and ends when
// the handler returns.
//
// Its methods are safe for concurrent use; of concurrent Receives each gets some of the
// frames.
type Exchange struct {
	session *Session

	// Guarded by the writer's mutex.
	price    int64  // what it has taken of the budget, as the peer has opened it
	number   uint32 // 0 until the first frame is sent, and the control's
	sentEnd  bool
	refused  bool  // the peer has given it up
	given    error // why
	released bool

	mu     sync.Mutex    // guards what follows; never held while blocked
	frames []Frame       // received and not taken
	gotEnd bool          // the last frame of the peer has come
	end    error         // what follows the frames; nil: more may come
	over   bool          // the exchange has ended, be it behind the peer's End
	ready  chan struct{} // 1 slot: there may be something to take; nil: nobody has waited
	notify func()        // is called when there is; nil: nobody is to be woken
	ctx    context.Context
	cancel context.CancelFunc

	reserved int64 // bytes of the answer that are reserved

	hasHandler bool // a handler has it, which releases it; only those that read the session touch it

	// Guarded by the mutex of bodies.
	lates   []*lateBody // announced and not let in
	untaken int         // bytes of long bodies that came and were not taken
}

// frameCost is what a frame takes of memory beside its body.
const frameCost = 128

// Session returns the session of the exchange.
func (x *Exchange) Session() *Session { return x.session }

// Context returns a context that ends with the exchange.
func (x *Exchange) Context() context.Context {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.ctx == nil {
		x.ctx, x.cancel = context.WithCancel(context.Background())
		if x.over {
			x.cancel()
		}
	}
	return x.ctx
}

// Send sends a frame; end marks the last one in this direction. It waits while the peer
// takes nothing, and ends the session if that lasts 30 s, or until the exchange is over. body
// is the caller's again when it returns.
//
// The error is [ErrSessionClosed]; io.ErrClosedPipe after Release or when the
// peer has given the exchange up, joined with [ErrNoRoom] if it had none for it;
// [ErrProtocol] after End or for a type above 125;
// [ErrFrameTooLarge] for a body above [MaxFrame]. The last two send nothing. With
// [ErrSessionClosed] the peer may have got the frame, and its answer may be there to be
// received.
func (x *Exchange) Send(t Type, end bool, body []byte) error {
	f := Frame{Type: t, End: end, Body: body}
	if err := f.checkSize(); err != nil {
		return err
	}
	if end && x == x.session.control {
		return fmt.Errorf("%w: End of the control exchange", ErrProtocol)
	}
	send := x.session.out.queueFrame
	if len(body) >= LongBody && x != x.session.control {
		send = x.session.sendLong
	}
	err := send(x, f)
	if err == io.ErrClosedPipe && x.hadNoRoom() { //nolint:errorlint // it is returned bare
		err = fmt.Errorf("%w: %w", ErrNoRoom, err)
	}
	if errors.Is(err, ErrSessionClosed) && !x.session.out.hasNumber(x) {
		x.endUnsent()
	}
	return err
}

// hadNoRoom reports whether the peer had no room for the exchange.
func (x *Exchange) hadNoRoom() bool {
	x.session.out.mu.Lock()
	defer x.session.out.mu.Unlock()
	return errors.Is(x.given, ErrNoRoom)
}

// endUnsent ends an exchange that has no number yet: the end of the session finds only
// those that have one.
func (x *Exchange) endUnsent() {
	x.close(fmt.Errorf("%w: %w", io.ErrUnexpectedEOF, x.session.closedErr()))
}

// Reserve reserves n bytes of memory for an answer that is about to be made, in place of what
// was reserved before, and waits while that is more than the [Budget] has for answers that
// were not sent. So a peer that reads none of its answers cannot let more of them be made. What
// is reserved is held until the exchange is over; to reserve less than before does not wait.
//
// An opener may reserve as well what it is about to send. The error is ctx's, io.ErrClosedPipe when the exchange is over, or
// [ErrSessionClosed].
func (x *Exchange) Reserve(ctx context.Context, n int) error {
	x.mu.Lock()
	more := int64(n) - x.reserved
	if more < 0 {
		x.reserved = int64(n)
	}
	over := x.over
	x.mu.Unlock()
	answers := &x.session.budget.answers
	if more < 0 {
		answers.give(-more)
	}
	switch {
	case over:
		return io.ErrClosedPipe
	case more <= 0:
		return nil
	}
	if !answers.take(ctx.Done(), x.session.dying, more) {
		return cmp.Or(context.Cause(ctx), x.session.closedErr())
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.isReleasedLocked() {
		answers.give(more)
		return io.ErrClosedPipe
	}
	x.reserved += more
	return nil
}

// TryReserve is Reserve where that does not wait. It reports whether it did.
func (x *Exchange) TryReserve(n int) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	answers, more := &x.session.budget.answers, int64(n)-x.reserved
	switch {
	case x.over:
		return false
	case more > 0 && !answers.tryTake(more):
		return false
	case more < 0:
		answers.give(-more)
	}
	x.reserved = int64(n)
	return true
}

// takeReserved returns what is reserved, which somebody else gives back.
func (x *Exchange) takeReserved() int64 {
	x.mu.Lock()
	defer x.mu.Unlock()
	n := x.reserved
	x.reserved = 0
	return n
}

// Receive returns the next frame of the exchange, waiting for it until ctx ends.
//
// The error is io.EOF after End; io.ErrUnexpectedEOF when the peer gave the exchange up
// before, joined with [ErrSessionClosed] if it was because the session ended, and with
// [ErrNoRoom] if the peer has no room for the exchange, and nobody there has looked at it;
// io.ErrClosedPipe after Release; or ctx's. Of the control exchange it is
// [ErrSessionClosed] or ctx's.
func (x *Exchange) Receive(ctx context.Context) (Frame, error) {
	for {
		f, ok, err := x.TryReceive()
		if ok || err != nil {
			return f, err
		}
		select {
		case <-x.mayReceive():
		case <-x.session.done:
			x.endUnsent()
		case <-ctx.Done():
			return Frame{}, ctx.Err()
		}
	}
}

// mayReceive returns what is filled when there may be something to take.
func (x *Exchange) mayReceive() <-chan struct{} {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.ready == nil {
		x.ready = make(chan struct{}, 1)
		x.ready <- struct{}{} // whatever came before there was anything to fill
	}
	return x.ready
}

// TryReceive returns the next frame of the exchange if it has come already. If none will
// come any more, it returns the errors of [Exchange.Receive].
func (x *Exchange) TryReceive() (f Frame, ok bool, err error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	switch {
	case len(x.frames) == 0 && x.end != nil:
		wake.Signal(x.ready) // for the next who waits
		return Frame{}, false, x.end
	case !x.hasNextLocked():
		return Frame{}, false, nil
	}
	f, x.frames[0] = x.frames[0], Frame{}
	x.frames = x.frames[1:]
	if x.hasNextLocked() {
		wake.Signal(x.ready)
	}
	x.session.handled(f)
	if f.late != nil {
		f.Body, f.late = f.late.body, nil
	}
	return f, true, nil
}

// hasNextLocked reports whether the next frame has come, with its body.
func (x *Exchange) hasNextLocked() bool {
	return len(x.frames) > 0 && (x.frames[0].late == nil || x.frames[0].late.body != nil)
}

// Await lets notify be called when there is something for TryReceive to return, once, by
// the goroutine that reads the session, so that notify must not wait for anything. It is
// false, and notify is not called, if there is something already.
func (x *Exchange) Await(notify func()) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.hasNextLocked() || len(x.frames) == 0 && x.end != nil {
		return false
	}
	x.notify = notify
	return true
}

// Listen lets hear take the frames of the exchange, one after the other, in the place
// of Receive, and costs less: no goroutine has to be woken for it. It is called by the
// goroutine that reads the session, so that hear must not wait for anything. An error is
// the last that it hears, one of [Exchange.Receive] that is not io.EOF; it comes behind
// End as well, when the peer has gone that has said its last.
func (x *Exchange) Listen(hear func(Frame, error)) {
	var listen func()
	listen = func() {
		for {
			f, ok, err := x.TryReceive()
			switch {
			case ok:
				hear(f, nil)
			case err == io.EOF: //nolint:errorlint // admitLocked sets it bare
				x.awaitOver(hear)
				return
			case err != nil:
				if err != io.ErrClosedPipe { //nolint:errorlint // Release sets it bare
					hear(Frame{}, err)
				}
				return
			case x.Await(listen):
				return
			}
		}
	}
	listen()
}

// awaitOver lets hear be told when the exchange, in which the peer has sent its End, is
// given up by it or ends with the session.
func (x *Exchange) awaitOver(hear func(Frame, error)) {
	x.mu.Lock()
	if !x.over {
		x.notify = func() { x.awaitOver(hear) }
	}
	gone := x.over && x.end == io.EOF //nolint:errorlint // else it was released
	x.mu.Unlock()
	if gone {
		hear(Frame{}, io.ErrUnexpectedEOF)
	}
}

// deliver takes in a frame that was read. The error is [ErrProtocol].
func (x *Exchange) deliver(f Frame) error {
	x.mu.Lock()
	take, err := x.admitLocked(f)
	var notify func()
	if take {
		f.paid = x.session.takeInline()
		x.session.unhandled(f)
		x.frames = append(x.frames, f)
		if x.hasNextLocked() {
			notify = x.wakeLocked()
		}
	}
	x.mu.Unlock()
	if notify != nil {
		notify()
	}
	return err
}

// admitLocked notes that a frame has come, and reports whether anybody is to take it. The
// error is [ErrProtocol].
func (x *Exchange) admitLocked(f Frame) (take bool, err error) {
	switch {
	case x.gotEnd:
		return false, fmt.Errorf("%w: frame after End", ErrProtocol)
	case x.end != nil: // it is over for this side
		x.gotEnd = f.End
		return false, nil
	case f.End:
		x.gotEnd, x.end = true, io.EOF
	}
	return true, nil
}

// wakeLocked wakes Receive, and returns what else is to be woken.
func (x *Exchange) wakeLocked() (notify func()) {
	wake.Signal(x.ready)
	notify, x.notify = x.notify, nil
	return notify
}

// close lets the exchange end with err, behind the frames that have come, unless it has
// ended before. What the peer does not want to hear is not sent any more.
func (x *Exchange) close(err error) {
	if x != x.session.control {
		x.session.out.refuse(x, err) // before anybody is told
	}
	x.mu.Lock()
	cut := (x.end != nil || errors.Is(err, ErrSessionClosed)) && x.cutLocked() // else the bodies still come
	if x.end == nil || cut {
		x.end = err
	}
	x.over = true
	notify := x.wakeLocked()
	cancel := x.cancel
	x.mu.Unlock()
	if notify != nil {
		notify()
	}
	if cancel != nil {
		cancel() // after notify: a handler that returns for it lets nothing be heard any more
	}
}

// isReleasedLocked reports whether this side has ended the exchange.
func (x *Exchange) isReleasedLocked() bool {
	return x.end == io.ErrClosedPipe //nolint:errorlint // Release sets it bare
}

// isGivenUp reports whether the peer has given the exchange up, or the session has ended.
func (x *Exchange) isGivenUp() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.over
}

// cutLocked drops the frames from the first one on whose body has not come, and reports
// whether there was one.
func (x *Exchange) cutLocked() bool {
	for i, f := range x.frames {
		if f.late != nil && f.late.body == nil {
			x.dropLocked(x.frames[i:])
			x.frames = x.frames[:i]
			return true
		}
	}
	return false
}

// dropLocked lets nobody take frames any more.
func (x *Exchange) dropLocked(frames []Frame) {
	for _, f := range frames {
		if f.late != nil && f.late.body == nil {
			f.late.dropped = true // it is counted when it comes
			continue
		}
		x.session.handled(f)
	}
}

// Release ends the exchange for this side: what comes in it is dropped. If the peer has
// more to say, it is told to give the exchange up. It is idempotent, and does nothing to
// the control exchange.
func (x *Exchange) Release() {
	if x == x.session.control {
		return
	}
	x.mu.Lock()
	x.dropLocked(x.frames)
	gotEnd := x.gotEnd
	x.frames, x.end, x.notify, x.over = nil, io.ErrClosedPipe, nil, true
	x.session.budget.answers.give(x.reserved)
	x.reserved = 0
	if x.cancel != nil {
		x.cancel()
	}
	wake.Signal(x.ready)
	x.mu.Unlock()
	x.session.out.releaseExchange(x, gotEnd)
}
