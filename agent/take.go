package agent

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/harpcaller/harp/agent/journal"
	"github.com/harpcaller/harp/internal/wire"
	"github.com/harpcaller/harp/transport"
)

// take returns the next message, nil if there is none now: that the procedure is
// being stopped, then records, then the end. What memory has not is read from the
// journal; the error says why that cannot be done.
func (r *report) take() (transport.Type, any, error) {
	at := r.at
	at.mu.Lock()
	defer at.mu.Unlock()
	room := r.roomLocked()
	switch {
	case at.report != r || at.nobody: // another one is told by now, or nobody
	case at.stopped && !r.stopping && at.stopping != nil:
		r.stopping = true
		return wire.TypeStopping, *at.stopping, nil
	case len(at.survivors) > 0 && !slices.Equal(r.left, at.survivors) && !at.ended:
		return r.takeLeftLocked()
	case r.next < at.outbox.first && room > 0:
		return r.takeSpooledLocked(room)
	case r.next >= at.outbox.first && r.next < at.outbox.next() && room > 0:
		return r.takeHeldLocked(room)
	case r.next >= at.outbox.next() && at.ended && !r.end:
		return r.takeEndLocked()
	}
	return 0, nil, nil
}

// takeLeftLocked returns which processes outlive KILL.
func (r *report) takeLeftLocked() (transport.Type, any, error) {
	var m wire.Stopping
	if r.at.stopped && r.at.stopping != nil {
		m = *r.at.stopping
	}
	r.left = slices.Clone(r.at.survivors)
	m.Left = r.left
	return wire.TypeStopping, m, nil
}

// roomLocked is how many bytes of records may be told now. One record may always be.
func (r *report) roomLocked() int {
	if len(r.flight.costs) == 0 {
		return max(r.at.outbox.window, 1)
	}
	return r.at.outbox.window - r.flight.bytes
}

// takeHeldLocked returns records that are in memory.
func (r *report) takeHeldLocked(room int) (transport.Type, any, error) {
	records := r.at.outbox.batch(r.next, room)
	if len(r.flight.costs) > 0 && costOf(records[0]) > room {
		return 0, nil, nil
	}
	return r.tellLocked(records)
}

// takeSpooledLocked returns records that are in the journal, which is read without
// the lock: what is acknowledged meanwhile may be missing.
func (r *report) takeSpooledLocked(room int) (transport.Type, any, error) {
	at, from, until := r.at, r.next, r.at.outbox.first
	if gone := at.outbox.gone; from < gone {
		return r.tellDroppedLocked(gone-from, room)
	}
	at.mu.Unlock()
	first, records, err := at.spooled(from, min(room, batchBytes))
	at.mu.Lock()
	switch {
	case at.report != r || at.nobody:
		return 0, nil, nil
	case r.next != from || at.outbox.first != until:
		signal(r.wake)
		return 0, nil, nil
	case errors.Is(err, journal.ErrCorrupt):
		at.log().Error("a record cannot be read: it is told as dropped", "record", from, "error", err.Error())
		return r.tellDroppedLocked(1, room)
	case err != nil:
		return 0, nil, err
	case len(records) == 0:
		return r.lackLocked(until, room)
	case first > from:
		return r.tellDroppedLocked(first-from, room)
	}
	records = within(records[:min(int64(len(records)), until-from)], room)
	if len(r.flight.costs) > 0 && costOf(records[0]) > room {
		return 0, nil, nil
	}
	t, message, err := r.tellLocked(records)
	at.openLocked() // memory may have what is told next
	return t, message, err
}

// lackLocked is for records that the journal does not have. Those that it had no room
// for are told as dropped. Others were told, or were to be, when the process ended before
// they were written: so they are as if they had never been.
func (r *report) lackLocked(until int64, room int) (transport.Type, any, error) {
	at := r.at
	switch {
	case at.stay != nil:
		return 0, nil, fmt.Errorf("agent: records %d to %d are not in the journal", r.next, until)
	case !at.ended || len(at.outbox.held()) > 0: // those behind them have their numbers
		at.log().Error("records are not in the journal: they are told as dropped", "first", r.next, "missing", until-r.next)
		return r.tellDroppedLocked(until-r.next, room)
	case at.lacks != nil:
		return r.tellLackedLocked(room)
	}
	at.log().Warn("the last records were not written in time", "first", r.next, "missing", until-r.next)
	at.outbox.first = r.next
	signal(r.wake)
	return 0, nil, nil
}

// tellDroppedLocked tells of up to so many records that are there no more, so that
// those behind them, and the end, can be told. How many bytes they had nobody knows.
func (r *report) tellDroppedLocked(n int64, room int) (transport.Type, any, error) {
	if len(r.flight.costs) > 0 && recordCost > room {
		return 0, nil, nil
	}
	one := []wire.Record{{Time: time.Now().UnixNano(), Truncated: 1}}
	return r.tellLocked(within(slices.Repeat(one, int(min(n, batchRecords))), room))
}

// tellLackedLocked tells of records that the journal had no room for.
func (r *report) tellLackedLocked(room int) (transport.Type, any, error) {
	if len(r.flight.costs) > 0 && recordCost > room {
		return 0, nil, nil
	}
	l := r.at.lacks
	r.at.log().Warn("records were dropped, as the journal had no room for them", "first", r.next, "missing", l.Next-r.next)
	var records []wire.Record
	for n := r.next; n < min(l.Next, r.next+batchRecords); n++ {
		records = append(records, wire.Record{Time: time.Now().UnixNano(), Truncated: l.dropped(n)})
	}
	return r.tellLocked(within(records, room))
}

// tellLocked notes that records are told.
func (r *report) tellLocked(records []wire.Record) (transport.Type, any, error) {
	batch := wire.Records{First: r.next, Records: records}
	r.flight.add(r.next, records)
	r.next += int64(len(records))
	return wire.TypeRecords, batch, nil
}

// takeEndLocked returns END, which is read without the lock if memory has it not.
func (r *report) takeEndLocked() (transport.Type, any, error) {
	at := r.at
	end, err := at.end, error(nil)
	switch {
	case at.gone:
		end = &wire.End{Gone: true, Stopped: at.stopping, Started: &wire.Started{Time: at.started.UnixNano()}}
	case end == nil:
		at.mu.Unlock()
		end, err = at.spooledEnd()
		at.mu.Lock()
	}
	switch {
	case at.report != r || at.nobody:
		return 0, nil, nil
	case errors.Is(err, journal.ErrCorrupt):
		at.log().Error("how the attempt ended cannot be read: it is told as gone", "error", err.Error())
		at.gone = true
		return r.takeEndLocked()
	case err != nil:
		return 0, nil, err
	}
	r.end = true
	if next := at.outbox.next(); end.Records != next {
		said := *end
		said.Records = next
		end = &said
	}
	at.trimLocked()
	return wire.TypeEnd, end, nil
}

// spooled reads records from the journal, from a number on or the first behind it that
// is there, without gaps. Those left out were acknowledged before they were written.
func (at *attempt) spooled(from int64, most int) (first int64, records []wire.Record, err error) {
	j := at.spool.keeper.current()
	if j == nil {
		return 0, nil, journal.ErrClosed
	}
	first, list, err := j.Records(at.spool.key, from, most)
	if err != nil {
		return 0, nil, err
	}
	records = make([]wire.Record, len(list))
	for i, b := range list {
		if err := wire.Decode(b, &records[i]); err != nil {
			return 0, nil, errors.Join(journal.ErrCorrupt, err)
		}
	}
	return first, records, nil
}

// spooledEnd reads END from the journal.
func (at *attempt) spooledEnd() (*wire.End, error) {
	j := at.spool.keeper.current()
	if j == nil {
		return nil, journal.ErrClosed
	}
	end, _, err := endOf(j, at.spool.key)
	return end, err
}

// endOf reads an END from a journal, and which records that has not.
func endOf(j *journal.Journal, k journal.Key) (*wire.End, *lacks, error) {
	body, err := j.Ended(k)
	if err != nil {
		return nil, nil, err
	}
	var kept journalledEnd
	end := new(wire.End)
	if err := errors.Join(wire.Decode(body, &kept), wire.Decode(kept.End, end)); err != nil {
		return nil, nil, errors.Join(journal.ErrCorrupt, err)
	}
	return end, kept.Lacks, nil
}
