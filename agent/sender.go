package agent

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/agent/internal/life"
	"github.com/harpcaller/harp/internal/wake"
	"github.com/harpcaller/harp/internal/wire"
	"github.com/harpcaller/harp/transport"
)

// startedAfter is how long an attempt runs before its peer is told that it does, unless there is
// something else to tell. That of a shorter one is in its END.
const startedAfter = 5 * time.Millisecond

// sender tells one attempt over one exchange: what has been journalled of it, its
// records as far as the window, and its end. Another exchange that asks for the
// same attempt takes over from it.
type sender struct {
	session *session
	x       *transport.Exchange
	at      *attempt
	over    atomic.Bool    // its end was taken, or another one is told, or nobody hears it
	silent  atomic.Bool    // the peer has said its last word
	ending  sync.WaitGroup // of the goroutine that ends the session

	// Guarded by the attempt's mutex.
	peer   life.Peer
	giveUp context.CancelFunc // ends the wait for room to send; nil: it does not wait
	wake   chan struct{}      // 1 slot: there may be something to tell, or nobody to tell it to
	closed bool               // nothing is heard any more

	lazy bool           // it sends in a goroutine of its own, which is there when there is something to tell before the end
	work sync.WaitGroup // of that
}

// ask is what an exchange wants to be told of an attempt.
type ask struct {
	from     int64          // the first record, or life.FromAcked
	window   int64          // bytes of records ahead of acknowledgement; 0: as before
	greeting transport.Type // ACCEPTED, STARTED, or nothing
}

// telling is what came of a wish to be told of an attempt.
type telling int

const (
	told     telling = iota
	notHere          // there are no such records
	notTaken         // the attempt was not started: see its refusal
	moved            // the attempt was left to the journal just now
)

// sendAttempt sends at over x until its end was taken, or the exchange ends, or another sender
// takes over. What the peer says is heard by the goroutine that reads the session.
func (s *session) sendAttempt(x *transport.Exchange, at *attempt, a ask) telling {
	at.begun.wait() // another exchange may have brought it here just now
	r := &sender{session: s, x: x, at: at, wake: make(chan struct{}, 1)}
	result, adopts := at.attach(r, a)
	if result != told {
		return result
	}
	if adopts {
		at.hold()
	}
	defer at.detach(r)
	defer r.close()
	if r.sendFrom(a.greeting) {
		r.awaitTaken()
	}
	return told
}

// sendFrom tells what there is, behind the greeting, unless END follows that at once: it says
// all that the greeting does. It reports whether END was sent.
func (r *sender) sendFrom(greeting transport.Type) (sentEnd bool) {
	r.x.Listen(r.heard)
	if greeting != 0 && r.endsSoon() {
		greeting = 0
	}
	if !r.greet(greeting) {
		return false
	}
	return r.sendLoop()
}

// endsSoon waits a moment for something to tell, and reports whether that is the end.
func (r *sender) endsSoon() bool {
	timer := time.NewTimer(startedAfter)
	defer timer.Stop()
	for {
		r.at.mu.Lock()
		news, ends := r.at.life.News(&r.peer)
		r.at.mu.Unlock()
		if news || r.over.Load() {
			return ends
		}
		select {
		case <-r.wake:
		case <-timer.C:
			return false
		}
	}
}

// attach makes r the attempt's only sender. It fails if the attempt has left, or there are not as
// many records. adopts says that the attempt was another dispatcher's before.
func (at *attempt) attach(r *sender, a ask) (result telling, adopts bool) {
	at.mu.Lock()
	switch {
	case at.refusal.is():
		at.mu.Unlock()
		return notTaken, false
	case at.hasLeft():
		at.mu.Unlock()
		return moved, false
	}
	f := at.applyLocked(life.Event{Kind: life.Attach, Peer: &r.peer, Next: a.from, Size: a.window})
	if f.Away {
		at.mu.Unlock()
		at.leaveIf(f)
		return notHere, false
	}
	defer at.mu.Unlock()
	if at.sender != nil {
		at.sender.quitLocked()
	}
	at.sender = r
	wake.Signal(r.wake)
	if adopts = at.key.origin == "" && at.store != r.session.store; adopts {
		at.store = r.session.store
	}
	return told, adopts
}

// detach ends a sender. What it leaves behind may be left to the journal.
func (at *attempt) detach(r *sender) {
	at.mu.Lock()
	if at.sender == r {
		at.sender = nil
	}
	f := at.applyLocked(life.Event{Kind: life.Detach, Peer: &r.peer})
	at.mu.Unlock()
	at.leaveIf(f)
}

// greet answers a CALL that was taken on: ACCEPTED with STARTED, STARTED alone in a
// direct session, and nothing to RESUME, or where END follows.
func (r *sender) greet(t transport.Type) bool {
	if t == 0 {
		return true
	}
	r.at.mu.Lock()
	started := wire.Started{Time: r.at.life.Started(), Ran: int64(time.Since(r.at.started))}
	r.at.mu.Unlock()
	if t == wire.TypeAccepted {
		return wire.Send(r.x, t, false, &wire.Accepted{Started: &started}) == nil
	}
	return wire.Send(r.x, t, false, &started) == nil
}

// sendLoop sends what there is to tell, each time what has gathered while the last
// frame was written, until it is over. What cannot be read from the journal is tried
// again. It reports whether END was sent.
func (r *sender) sendLoop() (sentEnd bool) {
	said := ""
	for !r.over.Load() {
		if !r.reserve() {
			return false
		}
		m, err := r.next()
		switch {
		case err != nil:
			if text := err.Error(); text != said {
				said = text
				r.at.log().Error("what the journal has cannot be read, and is tried again", "error", text)
			}
			r.pause()
		case m == life.Message{}:
			<-r.wake
		case r.send(m) != nil:
			return false
		case m.End != nil:
			return true
		}
	}
	return false
}

// freeBytes may be sent without a reservation: the exchange has paid for it.
const freeBytes = 4 << 10

// reserve waits until there is room in memory for what is to be sent next, for which the peer may have
// to take what was sent before. Meanwhile the end is left to the journal. It reports whether
// there is: else another sender has taken over, or the exchange has ended.
func (r *sender) reserve() bool {
	r.at.mu.Lock()
	n := 2 * r.at.life.NextBytes(&r.peer, r.at.limits.MaxResult) // read, and encoded
	r.at.mu.Unlock()
	if n <= 2*freeBytes || r.x.TryReserve(n) {
		return true
	}
	ctx, cancel := context.WithCancel(r.x.Context())
	defer cancel()
	r.at.mu.Lock()
	r.giveUp = cancel
	f := r.at.applyLocked(life.Event{Kind: life.Wait, Peer: &r.peer})
	over := r.over.Load()
	r.at.mu.Unlock()
	r.at.leaveIf(f)
	if over {
		return false
	}
	err := r.x.Reserve(ctx, n)
	r.at.mu.Lock()
	r.giveUp = nil
	r.at.mu.Unlock()
	return err == nil
}

// next returns what is to be sent now. What memory has not is read from the journal; the error
// says why that cannot be done.
func (r *sender) next() (life.Message, error) {
	e := life.Event{Kind: life.Send}
	for {
		e.Peer, e.At = &r.peer, time.Now().UnixNano()
		f := r.at.apply(e)
		if (f.Fetch == life.Fetch{}) {
			return f.Message, f.Err
		}
		e = r.at.fetch(f.Fetch)
	}
}

// send sends a message, and gives back what was reserved for it.
func (r *sender) send(m life.Message) error {
	defer r.x.TryReserve(0)
	switch {
	case m.Stopping != nil:
		return r.x.Send(wire.TypeStopping, false, wire.Encode(m.Stopping))
	case m.Records != nil:
		return r.x.Send(wire.TypeRecords, false, wire.Encode(m.Records))
	case r.session.direct:
		return r.sendDirect(m.End)
	}
	end := *m.End
	end.Taken = r.at.agent.journal.taken(r.session.store)
	return wire.Send(r.x, wire.TypeEnd, true, &end)
}

// sendDirect sends END in a direct session, where nobody acknowledges it.
func (r *sender) sendDirect(end *wire.End) error {
	err := wire.Send(r.x, wire.TypeEnd, true, end)
	if err == nil {
		r.at.settle()
		r.quit()
	}
	return err
}

// pause waits before the journal is read again, or until there is something else to look at.
func (r *sender) pause() {
	select {
	case <-r.wake:
	case <-time.After(retryJournal):
	}
}

// awaitTaken waits until END was taken, or nobody is there to say so.
func (r *sender) awaitTaken() {
	for !r.over.Load() && !r.silent.Load() {
		<-r.wake
	}
}

// wakeLocked lets the sender look for what there is to send.
func (r *sender) wakeLocked() {
	if r.lazy {
		r.startLocked()
	}
	wake.Signal(r.wake)
}

// quit ends the sender. It does not wait for it.
func (r *sender) quit() {
	r.at.mu.Lock()
	defer r.at.mu.Unlock()
	r.quitLocked()
}

func (r *sender) quitLocked() {
	r.over.Store(true)
	if r.giveUp != nil {
		r.giveUp()
	}
	wake.Signal(r.wake)
}

// heard takes what the peer says, ACK or CANCEL, or that the exchange has ended.
func (r *sender) heard(f transport.Frame, err error) {
	if err != nil {
		r.quit()
		return
	}
	switch done, bad := r.handleFrame(f); {
	case bad != nil:
		r.violated(f, bad)
	case done:
		r.quit()
	case f.End:
		r.at.mu.Lock()
		defer r.at.mu.Unlock()
		r.silent.Store(true)
		wake.Signal(r.wake)
	}
}

// violated ends the session, which the goroutine that reads it cannot wait for.
func (r *sender) violated(f transport.Frame, bad error) {
	r.at.mu.Lock()
	defer r.at.mu.Unlock()
	r.quitLocked()
	if !r.closed {
		r.ending.Go(func() { r.session.violated("frame type %d in an exchange: %v", f.Type, bad) })
	}
}

// close lets nothing be heard any more that would end the session.
func (r *sender) close() {
	r.at.mu.Lock()
	r.closed = true
	r.at.mu.Unlock()
	r.ending.Wait()
}

// handleFrame takes one frame. It reports whether the exchange is done. The error is what
// is wrong with the frame.
func (r *sender) handleFrame(f transport.Frame) (done bool, err error) {
	switch f.Type {
	case wire.TypeCancel:
		var m wire.Cancel
		if err := wire.DecodeBody(f.Body, &m); err != nil {
			return false, err
		}
		r.at.cancelled(m)
		return false, nil
	case wire.TypeAck:
		var m wire.Ack
		if err := wire.DecodeBody(f.Body, &m); err != nil {
			return false, err
		}
		return m.End, r.acknowledge(m)
	}
	return false, errors.New("is none of these")
}

// acknowledge notes that what the peer was told is committed. The error says that it was not told.
func (r *sender) acknowledge(m wire.Ack) error {
	f := r.at.apply(life.Event{Kind: life.Ack, Peer: &r.peer, Next: m.Next, Over: m.End, Size: m.Window})
	if f.Wrong {
		return errors.New("acknowledges what was not sent")
	}
	return nil
}

// gone is the cause of a procedure's context when its caller is gone.
func gone(why string) error { return &goneError{why} }

// goneError is harp.ErrCancelled with the reason.
type goneError struct{ why string }

func (e *goneError) Error() string { return "harp: cancelled: " + e.why }

// Is reports whether target is harp.ErrCancelled.
func (e *goneError) Is(target error) bool { return target == harp.ErrCancelled }
