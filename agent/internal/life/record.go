package life

import (
	"github.com/harpcaller/harp/internal/wire"
)

// awayBytes is how many bytes of records wait to be written while no peer is there.
const awayBytes = 4 * wire.MinWindow

// record is what happens to records before they are told.
func (a *Attempt) record(e *Event, f *Effect) {
	switch e.Kind {
	case Offer:
		a.offer(e, f)
	case OfferAt:
		a.offerAt(e, f)
	case SkipTo:
		a.ackRecords(e.Next, f)
		f.Room, f.Wake = true, true // a peer may be told that they were dropped
	case Deafen:
		a.deaf, f.Room = true, true
		a.missed += e.Size
	case DropTail: // if a record has a number behind those, an agent before this one has said so
		if a.outbox.next() <= e.Next {
			a.missed += e.Size
		}
	default:
	}
}

// offer numbers a record, or drops it where it may not wait.
func (a *Attempt) offer(e *Event, f *Effect) {
	switch {
	case a.HasEnded():
		f.Put = Over
	case a.audience == nobody:
		a.missed += int64(len(e.Record.Value))
		f.Put = Kept
	case e.Busy:
		f.Put = Later
	default:
		onFull := Dropped
		if e.Up {
			onFull = Later // the dispatcher that is there asks for the attempt, or forgets it
		}
		a.put(e, onFull, f)
	}
}

// offerAt is offer for a record that has its number, and that is not dropped: its supervisor,
// which has it, can wait. One that is here, or that a peer has which asks for those
// behind it, is not put again. One that nobody asks for is as good as acknowledged: if somebody
// does after all, those behind it have the numbers that the supervisor gave them.
func (a *Attempt) offerAt(e *Event, f *Effect) {
	switch next := a.outbox.next(); {
	case e.Next < next:
		f.Put = Kept
	case a.HasEnded():
		f.Put = Over
	case a.audience == nobody:
		a.outbox.ack(e.Next + 1)
		f.Put = Kept
	case a.deaf:
		a.missed += e.Size + e.Record.Truncated
		f.Put = Kept
	case e.Next > next:
		f.Put = Gap
	case e.Busy:
		f.Put = Later
	default:
		a.put(e, Later, f)
	}
}

// isFollowed reports whether a peer makes room for records, or nothing but memory does.
func (a *Attempt) isFollowed() bool {
	return a.peer != nil || a.audience == awaited || !a.spool.on
}

func (a *Attempt) put(e *Event, onFull Put, f *Effect) {
	if a.isFollowed() {
		a.putFollowed(e, f)
	} else {
		a.putAway(e, onFull, f)
	}
}

// putFollowed numbers a record if the window has room for it: it is told from memory, and
// journalled as soon as the journal takes it.
func (a *Attempt) putFollowed(e *Event, f *Effect) {
	behind := a.peer != nil && a.peer.next < a.outbox.first
	if behind || !a.outbox.fits(costOf(e.Record)) {
		f.Put = Later
		return
	}
	a.number(e.Record, e.At)
	f.Put, f.Wake = Kept, true
	a.hand(f)
}

// putAway numbers a record if the journal takes it. While the dispatcher is away nothing
// waits for room that nobody makes.
func (a *Attempt) putAway(e *Event, onFull Put, f *Effect) {
	s := &a.spool
	if s.failed != nil {
		a.notPut(e.Record, onFull, f)
		return
	}
	cost := costOf(e.Record)
	a.outbox.evict(wire.MinWindow-cost, s.synced.Next)
	if s.handed != s.synced && a.outbox.bytes+cost > awayBytes {
		f.Put = Later // until what is being written is
		return
	}
	s.try = try{kind: WriteRecords, onFull: onFull, missed: a.missed}
	a.number(e.Record, e.At)
	a.write(f)
}

// notPut is for a record that was not numbered.
func (a *Attempt) notPut(r wire.Record, onFull Put, f *Effect) {
	if onFull == Dropped {
		a.missed += int64(len(r.Value))
	}
	f.Put = onFull
}

// number gives a record its number, and its time unless it has one.
func (a *Attempt) number(r wire.Record, at int64) {
	if r.Time == 0 {
		r.Time = at
	}
	r.Truncated, a.missed = r.Truncated+a.missed, 0
	a.outbox.add(r)
}

// sayMissed tells with a record of its own of those that were dropped last.
func (a *Attempt) sayMissed(at int64) {
	if a.missed > 0 && a.audience != nobody {
		a.number(wire.Record{}, at)
	}
}
