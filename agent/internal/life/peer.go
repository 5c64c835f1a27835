package life

import (
	"fmt"
	"slices"

	"github.com/harpcaller/harp/internal/wire"
)

// FromAcked is the first record that was not acknowledged.
const FromAcked = -1

// Peer is how much of an attempt one peer was told. Another one that asks for the same attempt
// takes its place.
type Peer struct {
	next     int64 // number of the first record that it was not
	flight   flight
	stopping bool
	left     []int64
	end      bool
	waits    bool // for room to be sent the end
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

// handlePeer takes in what peers say.
func (a *Attempt) handlePeer(e *Event, f *Effect) {
	switch e.Kind {
	case Attach:
		a.attach(e, f)
	case Detach:
		if a.peer == e.Peer {
			a.audience, a.peer = away, nil
			a.trim()
			f.Room = true
		}
		f.Leave = a.isReleasable()
	case Ack:
		a.ack(e, f)
	case Abandon:
		a.abandon(f)
	case Settle:
		a.drop(f)
	case Wait:
		e.Peer.waits = true
		a.trim()
	default:
	}
}

// attach makes a peer the one that is told. It fails if there are not as many records. What
// an agent before this one began may have told more than was journalled; one that asks for what another
// dispatcher has acknowledged, or nobody wanted, is told that it was dropped.
func (a *Attempt) attach(e *Event, f *Effect) {
	from := e.Next
	if from == FromAcked {
		from = a.outbox.acked
	}
	if a.audience == awaited {
		a.audience = away
	}
	if from > a.outbox.next() && !a.recalled {
		f.Away, f.Leave = true, a.isReleasable()
		return
	}
	a.outbox.back(from)
	a.audience, a.peer = attached, e.Peer
	a.ackRecords(from, f)
	if e.Size > 0 {
		a.outbox.window = windowOf(e.Size)
	}
	a.peer.next = from
	f.Room = true
}

// ack forgets records that are committed. They may be more than the peer was told: another
// one was before it. It is wrong if there are no such records, or the end is acknowledged that
// the peer was not told.
func (a *Attempt) ack(e *Event, f *Effect) {
	p := e.Peer
	if e.Next > a.outbox.next() || e.Over && !p.end {
		f.Wrong = true
		return
	}
	if a.peer == p {
		a.ackRecords(e.Next, f)
		p.flight.ack(a.outbox.acked)
		p.next = max(p.next, a.outbox.acked)
		if e.Size > 0 {
			a.outbox.window = windowOf(e.Size)
		}
		a.trim()
		f.Room, f.Wake = true, true
	}
	if e.Over {
		a.drop(f)
	}
}

// abandon is for an attempt that nobody will ask for any more. It runs on, unless it is
// interrupted; its records make room, and those to come are dropped.
func (a *Attempt) abandon(f *Effect) {
	a.audience, a.peer = nobody, nil
	a.ackRecords(a.outbox.next(), f)
	a.applyStop(f)
	f.Room = true
	if a.HasEnded() {
		a.drop(f)
	}
}

// News reports whether a peer can be told of more than that the attempt has started, and whether
// that is its end.
func (a *Attempt) News(p *Peer) (news, ends bool) {
	ends = a.HasEnded() && p.next >= a.outbox.next()
	return ends || a.stopped || p.next < a.outbox.next(), ends
}

// NextBytes is about how many bytes what a peer is told next takes beside what is in memory; an
// end that only the journal has may be as long as any.
func (a *Attempt) NextBytes(p *Peer, longestEnd int) int {
	switch _, ends := a.News(p); {
	case ends && a.endBytes == 0 && a.phase == Ended:
		return longestEnd
	case ends:
		return a.endBytes
	case p.next < a.outbox.first:
		return batchBytes
	case p.next < a.outbox.next():
		return max(costOf(a.outbox.held()[p.next-a.outbox.first]), min(a.outbox.bytes, batchBytes))
	}
	return 0
}

// sendToPeer sends a peer what it is to know: that the procedure is being stopped, then records, then
// the end. What memory has not is read in the journal.
func (a *Attempt) sendToPeer(e *Event, f *Effect) {
	if a.peer == nil || a.peer != e.Peer || a.peer.end {
		return // another one is told by now, or nobody; or that was all
	}
	switch e.Kind {
	case Send:
		a.send(e, f)
	case Read:
		a.sendRead(e, f)
	case ReadEnd:
		a.sendReadEnd(e, f)
	default:
	}
}

func (a *Attempt) send(e *Event, f *Effect) {
	p, room := a.peer, a.room()
	switch {
	case a.stopped && !p.stopping:
		p.stopping = true
		f.Message.Stopping = a.stopping
	case len(a.survivors) > 0 && !slices.Equal(p.left, a.survivors) && !a.HasEnded():
		f.Message.Stopping = a.sayLeft()
	case p.next < a.outbox.first && room > 0:
		a.sendSpooled(e, f)
	case p.next >= a.outbox.first && p.next < a.outbox.next() && room > 0:
		a.sendRecords(a.outbox.held()[p.next-a.outbox.first:], f)
	case p.next >= a.outbox.next() && a.HasEnded():
		a.sendEnd(f)
	}
}

// sayLeft says which processes outlive KILL.
func (a *Attempt) sayLeft() *wire.Stopping {
	var m wire.Stopping
	if a.stopped {
		m = *a.stopping
	}
	a.peer.left = slices.Clone(a.survivors)
	m.Left = a.peer.left
	return &m
}

// room is how many bytes of records may be told now. One record may always be.
func (a *Attempt) room() int {
	if len(a.peer.flight.costs) == 0 {
		return max(a.outbox.window, 1)
	}
	return a.outbox.window - a.peer.flight.bytes
}

// sendRecords tells as many of these records as there is room for.
func (a *Attempt) sendRecords(records []wire.Record, f *Effect) {
	p, room := a.peer, a.room()
	records = within(records, room)
	if len(p.flight.costs) > 0 && costOf(records[0]) > room {
		return
	}
	f.Message.Records = &wire.Records{First: p.next, Records: slices.Clone(records)}
	p.flight.add(p.next, records)
	p.next += int64(len(records))
}

// sendSpooled tells records that are in the journal, or were acknowledged and are not there any
// more.
func (a *Attempt) sendSpooled(e *Event, f *Effect) {
	if gone := a.outbox.gone; a.peer.next < gone {
		a.sendDropped(gone-a.peer.next, e.At, f)
		return
	}
	f.Fetch = Fetch{From: a.peer.next, Until: a.outbox.first, Most: min(a.room(), batchBytes)}
}

// sendRead tells what was read in the journal, if it is still what is to be told: some may
// have been acknowledged meanwhile.
func (a *Attempt) sendRead(e *Event, f *Effect) {
	from, until := a.peer.next, a.outbox.first
	switch {
	case e.Fetch.From != from || e.Fetch.Until != until:
		f.Wake = true
	case e.Damaged:
		f.Lack = Lack{Why: Damaged, First: from, Missing: 1}
		a.sendDropped(1, e.At, f)
	case e.Err != nil && !a.spool.on: // which has lost them
		f.Lack = Lack{Why: Missing, First: from, Missing: until - from}
		a.sendDropped(until-from, e.At, f)
	case e.Err != nil:
		f.Err = e.Err
	case len(e.Records) == 0:
		a.sendLacking(until, e.At, f)
	case e.Next > from:
		a.sendDropped(e.Next-from, e.At, f)
	default:
		a.sendRecords(e.Records[:min(int64(len(e.Records)), until-from)], f)
		f.Room = f.Message.Records != nil // memory may have what is told next
	}
}

// sendLacking is for records that the journal has not. Those that it had no room for are
// told as dropped. Others were told, or were to be, when the process ended before they
// were written: so they are as if they had never been.
func (a *Attempt) sendLacking(until, at int64, f *Effect) {
	p := a.peer
	if a.home == Here {
		f.Err = fmt.Errorf("agent: records %d to %d are not in the journal", p.next, until)
		return
	}
	f.Lack = Lack{First: p.next, Missing: until - p.next}
	switch {
	case !a.HasEnded() || len(a.outbox.held()) > 0: // those behind them have their numbers
		f.Lack.Why = Missing
		a.sendDropped(until-p.next, at, f)
	case a.lacks != nil:
		f.Lack.Why, f.Lack.Missing = NoRoom, a.lacks.Next-p.next
		a.sendLacked(at, f)
	default:
		f.Lack.Why, f.Wake = Unwritten, true
		a.outbox.first = p.next
	}
}

// sendDropped tells of up to so many records that are there no more, so that those behind
// them, and the end, can be told. How many bytes they had nobody knows.
func (a *Attempt) sendDropped(n, at int64, f *Effect) {
	one := []wire.Record{{Time: at, Truncated: 1}}
	a.sendRecords(slices.Repeat(one, int(min(n, batchRecords))), f)
	f.Room = f.Message.Records != nil // memory may have what is told next
}

// sendLacked tells of records that the journal had no room for.
func (a *Attempt) sendLacked(at int64, f *Effect) {
	var records []wire.Record
	for n := a.peer.next; n < min(a.lacks.Next, a.peer.next+batchRecords); n++ {
		records = append(records, wire.Record{Time: at, Truncated: a.lacks.dropped(n)})
	}
	a.sendRecords(records, f)
}

// sendEnd tells the end, which is read in the journal if memory has it not.
func (a *Attempt) sendEnd(f *Effect) {
	switch {
	case a.phase == Gone:
		a.sayEnd(&wire.End{Gone: true, Stopped: a.stopping, Started: &wire.Started{Time: a.started}}, f)
	case a.end != nil:
		a.sayEnd(a.end, f)
	default:
		f.Fetch.End = true
	}
}

func (a *Attempt) sendReadEnd(e *Event, f *Effect) {
	switch {
	case e.Damaged, e.Err != nil && !a.spool.on:
		f.Lack.Why, a.phase = EndLost, Gone
		a.sendEnd(f)
	case e.Err != nil:
		f.Err = e.Err
	default:
		a.sayEnd(e.End, f)
	}
}

func (a *Attempt) sayEnd(end *wire.End, f *Effect) {
	if next := a.outbox.next(); end.Records != next {
		said := *end
		said.Records = next
		end = &said
	}
	a.peer.end, f.Message.End = true, end
	a.trim()
}
