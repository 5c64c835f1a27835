// Package life is the life of an attempt: what an agent knows of one execution of a
// procedure, and what follows from what happens to it. There is no clock, lock, channel,
// input or output here: [Attempt.Next] is given an event with its time, and returns what is
// to be done.
//
//	from                event     to
//	accepted            Start     running
//	accepted            Refuse    refused
//	running             Return    ended, or gone: it ended with the process it ran in
//
// Beside that an attempt has its records, numbered from 0 in their order; how much of all this
// the journal has been handed, and how much it has on disk; the limit or cancel that asks it to
// stop, of several the first, which is handed to the journal before the procedure hears of it; and
// at most one peer that is told of it, in this order: that it stops, records, the end.
//
// While a peer is there, or expected, records wait until its window has room for them.
// While none is, the journal takes them, and what it has no room for is dropped: the next record
// says how much that was.
package life

import (
	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/wire"
)

// Phase is how far an attempt is.
type Phase uint8

// The phases.
const (
	Accepted Phase = iota
	Refused        // it was not begun, and never will be
	Running
	Ended
	Gone // it ended with the process it ran in, and nobody knows how
)

// Home is where an attempt's records are made.
type Home uint8

// The homes.
const (
	Elsewhere  Home = iota // in an agent before this one
	Here                   // in this agent, with which it ends
	Supervised             // with a command's supervisor, which goes on without this agent and has what the journal has not
)

// audience is whether a peer is told of an attempt.
type audience uint8

const (
	away     audience = iota // nobody at present
	awaited                  // its first peer comes now
	attached                 // a peer
	nobody                   // nobody will ask for it: its records are dropped, and so is its end
)

// Attempt is one execution of a procedure. It changes only through [Attempt.Next].
type Attempt struct {
	home     Home
	recalled bool // an agent before this one began it, and may have told more than its journal has
	phase    Phase
	started  int64
	audience audience
	peer     *Peer // nil: none at present

	stopping  *wire.Stopping
	stopped   bool    // the procedure was asked to stop
	survivors []int64 // processes of it that outlive KILL
	end       *wire.End
	endBytes  int    // of the end in memory, about; 0: it ended before
	lacks     *Lacks // of what the journal has of one that ended before

	outbox outbox
	missed int64 // bytes of records that were dropped since the last one
	deaf   bool  // to what its command still prints: that is dropped

	spool spool
}

// New is an attempt that is accepted. Its first peer is awaited, and has a window of so many
// bytes; 0: the least. journalled says whether there is a journal for it.
func New(home Home, journalled bool, window int64) Attempt {
	a := Attempt{home: home, audience: awaited, spool: spool{on: journalled}}
	a.outbox.window = windowOf(window)
	return a
}

// Past is what a journal has of an attempt that began before.
type Past struct {
	Home     Home
	Started  int64
	Records  int64 // how many it had
	Acked    int64
	Stopping *wire.Stopping
	Phase    Phase  // Running: it may go on; Ended; Gone
	Bare     bool   // its end is without the value
	Lacks    *Lacks // the last of its records, if the journal had no room for them
	Alone    bool   // no journal has it
}

// Recall is an attempt of which a journal says what it was.
func Recall(p Past) Attempt {
	a := Attempt{home: p.Home, recalled: true, phase: p.Phase, started: p.Started, stopping: p.Stopping, stopped: p.Stopping != nil, lacks: p.Lacks}
	a.outbox = outbox{window: wire.MinWindow, acked: p.Acked, first: p.Records}
	a.spool = spool{on: !p.Alone, bare: p.Bare}
	a.spool.handed = Progress{Next: p.Records, Stop: p.Stopping != nil, End: a.HasEnded()}
	a.spool.synced = a.spool.handed
	return a
}

// windowOf is how many bytes of records are held for a peer that asks for so many.
func windowOf(asked int64) int {
	if asked <= 0 {
		return wire.MinWindow
	}
	return int(min(asked, wire.Window))
}

// Next is the life of an attempt: it changes by an event, and says what is to be done. What
// it says to hand to the journal comes one by one, each when Taken or NotTaken is said of
// the one before.
func (a *Attempt) Next(e Event) (f Effect) {
	switch e.Kind {
	case Start, Refuse:
		a.begin(&e, &f)
	case Offer, OfferAt, SkipTo, Deafen, DropTail:
		a.record(&e, &f)
	case Stop, StopLate, Survivors, Return:
		a.ending(&e, &f)
	case Hand, Taken, NotTaken, Synced, Unsynced, Reopened:
		a.journal(&e, &f)
	case Attach, Detach, Ack, Abandon, Settle, Wait:
		a.handlePeer(&e, &f)
	case Send, Read, ReadEnd:
		a.sendToPeer(&e, &f)
	}
	return f
}

// begin is how an attempt begins, once, or does not.
func (a *Attempt) begin(e *Event, f *Effect) {
	switch {
	case a.phase != Accepted:
	case e.Kind == Start:
		a.phase, a.started, f.Run = Running, e.At, true
	default:
		a.phase, a.audience, f.Leave = Refused, nobody, true
	}
}

// ending is what brings an attempt nearer to its end.
func (a *Attempt) ending(e *Event, f *Effect) {
	switch e.Kind {
	case Stop:
		a.stop(e.Stopping, f)
	case StopLate:
		a.applyStop(f)
	case Survivors:
		a.survivors, f.Wake = e.Left, true
	case Return:
		a.finish(e, f)
	default:
	}
}

// stop notes why the procedure is to stop, unless it has ended or another reason came before.
// It hears of it when that is journalled, or cannot be.
func (a *Attempt) stop(why *wire.Stopping, f *Effect) {
	if a.HasEnded() || a.stopping != nil {
		return
	}
	a.stopping = why
	if !a.IsHandedOver() {
		a.applyStop(f)
		return
	}
	f.Late = true
	a.handAnew(f)
}

// applyStop asks the procedure to stop, once.
func (a *Attempt) applyStop(f *Effect) {
	if a.stopping == nil || a.stopped {
		return
	}
	a.stopped = true
	f.Stop, f.Wake = a.stopping, true
}

// finish ends the attempt. The end is told without waiting for the journal.
func (a *Attempt) finish(e *Event, f *Effect) {
	a.sayMissed(e.At)
	a.phase = Gone
	if e.End != nil {
		a.phase, a.end, a.endBytes = Ended, e.End, endBytes(e.End)
		a.end.Stopped, a.end.Records = a.stopping, a.outbox.next()
		a.end.Started = &wire.Started{Time: a.started}
	}
	a.handAnew(f)
	f.Room, f.Wake = true, true
	f.Leave = f.Write.Kind == 0 && a.isReleasable()
	if a.audience == nobody {
		a.drop(f)
	}
}

// drop gives up an attempt that nobody will ask for.
func (a *Attempt) drop(f *Effect) {
	a.audience, a.peer = nobody, nil
	f.Drop, f.Leave = true, true
}

// Phase is how far the attempt is.
func (a *Attempt) Phase() Phase { return a.phase }

// HasEnded reports whether nothing of the attempt runs any more.
func (a *Attempt) HasEnded() bool { return a.phase == Ended || a.phase == Gone }

// Started is when it did.
func (a *Attempt) Started() int64 { return a.started }

// Stopping is why it stops; nil: it does not.
func (a *Attempt) Stopping() *wire.Stopping { return a.stopping }

// IsStopped reports whether the procedure was asked to stop.
func (a *Attempt) IsStopped() bool { return a.stopped }

// HasSurvivors reports whether processes of it outlive KILL at present.
func (a *Attempt) HasSurvivors() bool { return len(a.survivors) > 0 }

// IsTold reports whether a peer is told of the attempt.
func (a *Attempt) IsTold() bool { return a.peer != nil }

// Records is the number that the next record gets.
func (a *Attempt) Records() int64 { return a.outbox.next() }

// HeldBytes is how many bytes of records and of the end are in memory.
func (a *Attempt) HeldBytes() int {
	n := a.outbox.bytes
	if a.end != nil {
		n += a.endBytes
	}
	return n
}

// UnsyncedBytes is how many bytes of the end are in memory, of an attempt that is journalled.
func (a *Attempt) UnsyncedBytes() int {
	if a.end == nil || !a.spool.on {
		return 0
	}
	return a.endBytes
}

// endBytes is about how many bytes an END has.
func endBytes(end *wire.End) int {
	n := len(end.Value)
	if end.Failure != nil {
		f := harp.FailureOf(end.Failure)
		n += len(f.Message) + len(f.Data)
	}
	return n
}

// Held is what is said of the attempt in reconciliation.
func (a *Attempt) Held() wire.HeldAttempt {
	h := wire.HeldAttempt{State: wire.HeldAlive, Records: a.outbox.next(), Acked: a.outbox.acked}
	switch {
	case a.phase == Gone:
		h.State = wire.HeldGone
	case a.phase == Ended:
		h.State = wire.HeldEnded
	case a.stopping != nil:
		h.State = wire.HeldStopping
	}
	return h
}
