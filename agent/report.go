package agent

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/wire"
	"github.com/harpcaller/harp/transport"
)

// report tells one attempt over one exchange: what has been journalled of it, its
// records as far as the window, and its end. Another exchange that asks for the
// same attempt takes over from it.
type report struct {
	session *session
	x       *transport.Exchange
	at      *attempt
	over    atomic.Bool    // its end was taken, or another one is told, or nobody hears it
	silent  atomic.Bool    // the peer has said its last word
	ending  sync.WaitGroup // who ends the session

	// Guarded by the attempt's mutex, as is what was told.
	wake   chan struct{} // 1 slot: there may be something to tell, or nobody to tell it to
	closed bool          // nothing is heard any more
	adopts bool          // the attempt was another dispatcher's before

	next     int64 // number of the first record that was not
	flight   flight
	stopping bool
	left     []int64
	end      bool
}

// flight is what the records that were told and not acknowledged cost.
type flight struct {
	first int64
	costs []int32
	bytes int
}

// add counts records that are told now.
func (f *flight) add(first int64, records []wire.Record) {
	if len(f.costs) == 0 {
		f.first = first
	}
	for _, r := range records {
		f.costs = append(f.costs, int32(costOf(r))) //nolint:gosec // a record is at most wire.MaxMessage
		f.bytes += costOf(r)
	}
}

// ack counts the records before next no longer.
func (f *flight) ack(next int64) {
	for len(f.costs) > 0 && f.first < next {
		f.bytes -= int(f.costs[0])
		f.costs = f.costs[1:]
		f.first++
	}
}

// ask is what an exchange wants to be told of an attempt.
type ask struct {
	from     int64          // the first record, or fromAcked
	window   int64          // bytes of records ahead of acknowledgement; 0: as before
	greeting transport.Type // ACCEPTED, STARTED, or nothing
}

// fromAcked is the first record that was not acknowledged.
const fromAcked = -1

// telling is what came of a wish to be told of an attempt.
type telling int

const (
	told     telling = iota
	notHere          // there are no such records
	notTaken         // the attempt was not started: see its denial
	moved            // the attempt was left to the journal just now
)

// tell reports at over x until its end was taken, or the exchange ends, or another report
// takes over. What the peer says is heard by the goroutine that reads the session.
func (s *session) tell(x *transport.Exchange, at *attempt, a ask) telling {
	at.begun.wait() // another exchange may have brought it here just now
	r := &report{session: s, x: x, at: at, wake: make(chan struct{}, 1)}
	started, result := at.attach(r, a)
	if result != told {
		at.release()
		return result
	}
	if r.adopts {
		at.hold()
	}
	defer at.detach(r)
	defer r.close()
	if r.tellFrom(a.greeting, started) {
		r.awaitTaken()
	}
	return told
}

// tellFrom tells what there is, behind the greeting, unless END follows that at once: it says
// all that the greeting does. It reports whether END was sent.
func (r *report) tellFrom(greeting transport.Type, started wire.Started) (sentEnd bool) {
	r.x.Listen(r.heard)
	if greeting != 0 && r.endsSoon() {
		greeting = 0
	}
	if !r.greet(greeting, started) {
		return false
	}
	return r.sendLoop()
}

// endsSoon waits a moment for something to tell, and reports whether that is the end.
func (r *report) endsSoon() bool {
	timer := time.NewTimer(startedAfter)
	defer timer.Stop()
	for {
		r.at.mu.Lock()
		ends := r.at.ended && r.next >= r.at.outbox.next()
		news := ends || r.at.stopped || r.next < r.at.outbox.next() || r.over.Load()
		r.at.mu.Unlock()
		if news {
			return ends
		}
		select {
		case <-r.wake:
		case <-timer.C:
			return false
		}
	}
}

// attach makes r the one who is told. It fails if the attempt has left, or there are
// not as many records. What ended with its process may have told more than was
// journalled; who asks for what another dispatcher has acknowledged, or nobody wanted,
// is told that it was dropped.
func (at *attempt) attach(r *report, a ask) (wire.Started, telling) {
	at.mu.Lock()
	defer at.mu.Unlock()
	at.awaited = false
	from := a.from
	if from == fromAcked {
		from = at.outbox.acked
	}
	switch {
	case at.no.is():
		return wire.Started{}, notTaken
	case at.hasLeft():
		return wire.Started{}, moved
	case from > at.outbox.next() && at.stay != nil:
		return wire.Started{}, notHere
	}
	at.outbox.back(from)
	if at.report != nil {
		at.report.quitLocked()
	}
	at.report, at.nobody = r, false
	if at.key.origin == "" && at.store != r.session.store {
		at.store, r.adopts = r.session.store, true
	}
	at.outbox.ack(from)
	at.ackSpoolLocked()
	if a.window > 0 {
		at.outbox.window = window(a.window)
	}
	at.openLocked()
	r.next = from
	signal(r.wake)
	return wire.Started{Time: at.started.UnixNano()}, told
}

// detach ends a report. What it leaves behind may be left to the journal.
func (at *attempt) detach(r *report) {
	at.mu.Lock()
	if at.report == r {
		at.report = nil
		at.trimLocked()
		at.openLocked()
	}
	at.mu.Unlock()
	at.release()
}

// isTold reports whether somebody is told of the attempt.
func (at *attempt) isTold() bool {
	at.mu.Lock()
	defer at.mu.Unlock()
	return at.report != nil
}

// greet answers a CALL that was taken on: ACCEPTED with STARTED, STARTED alone in a
// direct session, and nothing to RESUME, or where END follows.
func (r *report) greet(t transport.Type, started wire.Started) bool {
	var body []byte
	started.Ran = int64(r.at.ranSoFar())
	switch t {
	case wire.TypeAccepted:
		body = wire.Encode(wire.Accepted{Started: &started})
	case wire.TypeStarted:
		body = wire.Encode(started)
	default:
		return true
	}
	return r.x.Send(t, false, body) == nil
}

// sendLoop sends what there is to tell, each time what has gathered while the last
// frame was written, until it is over. What cannot be read from the journal is tried
// again. It reports whether END was sent.
func (r *report) sendLoop() (sentEnd bool) {
	said := ""
	for !r.over.Load() {
		t, message, err := r.take()
		if err != nil {
			if text := err.Error(); text != said {
				said = text
				r.at.log().Error("what the journal has cannot be read, and is tried again", "error", text)
			}
			r.pause()
			continue
		}
		if message == nil {
			<-r.wake
			continue
		}
		end := t == wire.TypeEnd
		if end && !r.session.direct {
			message = r.at.agent.withPosition(*message.(*wire.End))
		}
		if err := r.x.Send(t, end, wire.Encode(message)); err != nil {
			return false
		}
		if end {
			r.sentEnd()
			return true
		}
	}
	return false
}

// pause waits before the journal is read again, or until there is something else to look at.
func (r *report) pause() {
	select {
	case <-r.wake:
	case <-time.After(retryJournal):
	}
}

// sentEnd follows END, which in a direct session nobody acknowledges.
func (r *report) sentEnd() {
	if r.session.direct {
		r.at.settle()
		r.quit()
	}
}

// awaitTaken waits until END was taken, or nobody is there to say so.
func (r *report) awaitTaken() {
	for !r.over.Load() && !r.silent.Load() {
		<-r.wake
	}
}

// quit ends the report. It does not wait for it.
func (r *report) quit() {
	r.at.mu.Lock()
	defer r.at.mu.Unlock()
	r.quitLocked()
}

func (r *report) quitLocked() {
	r.over.Store(true)
	signal(r.wake)
}

// heard takes what the peer says, ACK or CANCEL, or that the exchange has ended.
func (r *report) heard(f transport.Frame, err error) {
	if err != nil {
		r.quit()
		return
	}
	switch done, bad := r.hear(f); {
	case bad != nil:
		r.violated(f, bad)
	case done:
		r.quit()
	case f.End:
		r.at.mu.Lock()
		defer r.at.mu.Unlock()
		r.silent.Store(true)
		signal(r.wake)
	}
}

// violated ends the session, which the goroutine that reads it cannot wait for.
func (r *report) violated(f transport.Frame, bad error) {
	r.at.mu.Lock()
	defer r.at.mu.Unlock()
	r.quitLocked()
	if !r.closed {
		r.ending.Go(func() { r.session.violated("frame type %d in an exchange: %v", f.Type, bad) })
	}
}

// close lets nothing be heard any more that would end the session.
func (r *report) close() {
	r.at.mu.Lock()
	r.closed = true
	r.at.mu.Unlock()
	r.ending.Wait()
}

// hear takes one frame. It reports whether the exchange is done. The error is what
// is wrong with the frame.
func (r *report) hear(f transport.Frame) (done bool, err error) {
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
		return r.acknowledge(m)
	}
	return false, errors.New("is none of these")
}

// acknowledge takes an ACK.
func (r *report) acknowledge(m wire.Ack) (done bool, err error) {
	if !r.at.acknowledge(r, m) {
		return false, errors.New("acknowledges what was not sent")
	}
	if m.End {
		r.at.settle()
	}
	return m.End, nil
}

// acknowledge forgets records that are committed. They may be more than r was told:
// another report was before it. It fails if there are no such records, or END is
// acknowledged that r was not told.
func (at *attempt) acknowledge(r *report, m wire.Ack) bool {
	at.mu.Lock()
	defer at.mu.Unlock()
	if m.Next > at.outbox.next() || m.End && !r.end {
		return false
	}
	if at.report != r {
		return true // another one is told by now
	}
	at.outbox.ack(m.Next)
	at.ackSpoolLocked()
	r.flight.ack(at.outbox.acked)
	r.next = max(r.next, at.outbox.acked)
	if m.Window > 0 {
		at.outbox.window = window(m.Window)
	}
	at.trimLocked()
	at.openLocked()
	signal(r.wake)
	return true
}

// gone is the cause of a procedure's context when who asked for it is gone.
func gone(why string) error { return &goneError{why} }

// goneError is harp.ErrCancelled with the reason.
type goneError struct{ why string }

func (e *goneError) Error() string { return "harp: cancelled: " + e.why }

// Is reports whether target is harp.ErrCancelled.
func (e *goneError) Is(target error) bool { return target == harp.ErrCancelled }
