package agent

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/agent/journal"
	"github.com/harpcaller/harp/internal/wire"
)

// emit offers a record. It is the emit of HandleStream.
func (at *attempt) emit(v any) error {
	value, err := harp.NewValue(v)
	if err != nil {
		return inRecord(err)
	}
	if n := len(value); n > at.limits.MaxRecord {
		return &harp.FieldError{Field: "record", Message: fmt.Sprintf("is %d bytes, at most %d", n, at.limits.MaxRecord)}
	}
	at.watch.offered()
	return at.put(wire.Record{Value: value})
}

// inRecord names a record as what was wrong.
func inRecord(err error) error {
	if e, ok := err.(*harp.FieldError); ok { //nolint:errorlint // Value's own error, never wrapped
		return &harp.FieldError{Field: "record", Message: e.Message}
	}
	return err
}

// put numbers a record, when there is room, or drops it if it may not wait.
func (at *attempt) put(r wire.Record) error {
	room, err := at.tryPut(r)
	if room == nil {
		return err
	}
	at.watch.hold()
	defer at.watch.release()
	for room != nil {
		select {
		case <-room:
		case <-at.ctx.Done():
			return context.Cause(at.ctx)
		}
		room, err = at.tryPut(r)
	}
	return err
}

// putNumbered is put for a record that has its number already, and waits as long as
// ctx lasts. One that is here, or that somebody has who asks for those behind it, is
// not put again. One that nobody asks for is as good as acknowledged: if somebody does
// after all, those behind it have the numbers that who made them gave them.
// size is how many bytes of output it is.
func (at *attempt) putNumbered(ctx context.Context, n int64, r wire.Record, size int64) error {
	room, err := at.tryPutNumbered(n, r, size)
	for room != nil {
		select {
		case <-room:
		case <-ctx.Done():
			return ctx.Err()
		}
		room, err = at.tryPutNumbered(n, r, size)
	}
	return err
}

// tryPutNumbered is tryPut for a record that is not dropped: who has it can wait.
func (at *attempt) tryPutNumbered(n int64, r wire.Record, size int64) (room <-chan struct{}, err error) {
	at.mu.Lock()
	defer at.mu.Unlock()
	switch next := at.outbox.next(); {
	case n < next:
		return nil, nil
	case at.nobody:
		at.outbox.ack(n + 1)
		return nil, nil
	case at.deaf:
		at.missed += size + r.Truncated
		return nil, nil
	case n > next:
		return nil, fmt.Errorf("agent: record %d came instead of %d", n, next)
	}
	if busy := at.spool.busy(); busy != nil {
		return busy, nil
	}
	put := at.putAwayLocked
	if at.followedLocked() {
		put = at.putFollowedLocked
	}
	if put(r) == putDone {
		return nil, nil
	}
	return at.roomLocked(), nil
}

// skipTo passes over the records before next, which somebody has who asks for those
// behind them.
func (at *attempt) skipTo(next int64) {
	at.mu.Lock()
	defer at.mu.Unlock()
	at.outbox.ack(next)
	at.ackSpoolLocked()
	at.openLocked()
}

// hearNoMore drops what the command of the attempt still prints, which may have been
// that many bytes.
func (at *attempt) hearNoMore(missed int64) {
	at.mu.Lock()
	defer at.mu.Unlock()
	at.deaf = true
	at.missed += missed
	at.openLocked()
}

// addDroppedTail notes how many bytes were dropped behind the last of the records that
// the command's supervisor has numbered. If a record has a number behind those, an agent
// before this one has said so.
func (at *attempt) addDroppedTail(records, dropped int64) {
	at.mu.Lock()
	defer at.mu.Unlock()
	if at.outbox.next() <= records {
		at.missed += dropped
	}
}

// numbered is the number that the next record gets.
func (at *attempt) numbered() int64 {
	at.mu.Lock()
	defer at.mu.Unlock()
	return at.outbox.next()
}

// keptElsewhere is the first record that is neither on the journal's disk nor
// acknowledged; where there is no journal and the command may go on with another agent, one
// that is in this one's memory is not kept.
func (at *attempt) keptElsewhere() int64 {
	at.mu.Lock()
	defer at.mu.Unlock()
	switch {
	case !at.spool.on && at.task.survives():
		return at.outbox.acked
	case !at.spool.on:
		return at.outbox.next()
	}
	return max(at.outbox.acked, at.spool.synced.next)
}

// roomLocked returns what is closed when there may be room.
func (at *attempt) roomLocked() <-chan struct{} {
	if at.room == nil {
		at.room = make(chan struct{})
	}
	return at.room
}

// tryPut numbers or drops a record, or returns what is closed when there may be
// room.
func (at *attempt) tryPut(r wire.Record) (room <-chan struct{}, err error) {
	at.mu.Lock()
	defer at.mu.Unlock()
	switch {
	case at.ended:
		return nil, fmt.Errorf("%w: the procedure has returned", harp.ErrClosed)
	case at.ctx.Err() != nil && r.Kind != string(harp.KindLog):
		return nil, context.Cause(at.ctx)
	case at.nobody:
		at.missed += int64(len(r.Value))
		return nil, nil
	}
	if busy := at.spool.busy(); busy != nil {
		return busy, nil
	}
	put := at.putAwayLocked
	if at.followedLocked() {
		put = at.putFollowedLocked
	}
	switch put(r) {
	case putDone:
		return nil, nil
	case putNever:
		at.missed += int64(len(r.Value))
		return nil, nil
	case putLater:
	}
	return at.roomLocked(), nil
}

// awayBytes is how many bytes of records wait to be written while nobody is told of
// them.
const awayBytes = 4 * wire.MinWindow

// putting is what became of a record.
type putting int

const (
	putDone  putting = iota
	putLater         // there is no room now
	putNever         // there is no room, and nobody who could make some
)

// followedLocked reports whether somebody is told of the attempt, who holds it back.
func (at *attempt) followedLocked() bool {
	return at.report != nil || at.awaited || !at.spool.on
}

// putFollowedLocked numbers a record if the window has room for it: it is told from
// memory, and journalled as soon as the journal takes it.
func (at *attempt) putFollowedLocked(r wire.Record) putting {
	behind := at.report != nil && at.report.next < at.outbox.first
	if behind || !at.outbox.fits(costOf(r)) {
		return putLater
	}
	at.numberLocked(r)
	at.handLocked()
	at.tellLocked()
	return putDone
}

// putAwayLocked numbers a record if the journal takes it. While the dispatcher is
// away nothing waits for a room that nobody makes.
func (at *attempt) putAwayLocked(r wire.Record) putting {
	full := putNever
	if at.isUpLocked() {
		full = putLater // whoever is there asks for the attempt, or forgets it
	}
	if at.spool.failed != nil {
		return full
	}
	at.outbox.evict(wire.MinWindow-costOf(r), at.spool.synced.next)
	if len(at.spool.commits) > 0 && at.outbox.bytes+costOf(r) > awayBytes {
		return putLater // until what is being written is
	}
	missed := at.missed
	at.numberLocked(r)
	err := at.handAllLocked()
	taken := at.spool.handed.next == at.outbox.next()
	if !taken {
		at.outbox.takeBack()
		at.missed = missed
	}
	if err != nil && !errors.Is(err, journal.ErrFull) {
		at.spool.failed = err
	}
	at.loopLocked()
	if taken {
		return putDone
	}
	return full
}

// numberLocked gives a record its number, and its time unless it has one.
func (at *attempt) numberLocked(r wire.Record) {
	if r.Time == 0 {
		r.Time = time.Now().UnixNano()
	}
	r.Truncated, at.missed = r.Truncated+at.missed, 0
	at.outbox.add(r)
}

// sayMissedLocked tells with a record of its own of those that were dropped last.
func (at *attempt) sayMissedLocked() {
	if at.missed > 0 && !at.nobody {
		at.numberLocked(wire.Record{})
	}
}

// openLocked wakes every goroutine that waits for room. A command's supervisor may wait as
// well, for what is kept elsewhere.
func (at *attempt) openLocked() {
	if r := at.task.cmd; r != nil {
		signal(r.progress)
	}
	if at.room != nil {
		close(at.room)
		at.room = nil
	}
}

// reopen is openLocked for when the session is another one, or none.
func (at *attempt) reopen() {
	at.mu.Lock()
	defer at.mu.Unlock()
	at.openLocked()
}

// tellLocked wakes who is told.
func (at *attempt) tellLocked() {
	if at.report != nil {
		signal(at.report.wake)
	}
	if at.here != nil {
		at.here.tellLocked()
	}
}
