package agent

import (
	"context"
	"fmt"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/agent/internal/life"
	"github.com/harpcaller/harp/internal/wake"
	"github.com/harpcaller/harp/internal/wire"
)

// emit offers a record. It is the emit of HandleStream.
func (at *attempt) emit(v any) error {
	if at.heldBack.Load() {
		at.awaitEase()
	}
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

// put offers a record of the function.
func (at *attempt) put(r wire.Record) error {
	return at.offer(at.ctx, life.Event{Kind: life.Offer, Record: r})
}

// offer offers a record, and waits for room as long as ctx lasts.
func (at *attempt) offer(ctx context.Context, e life.Event) error {
	room, eased, err := at.tryOffer(e)
	at.heldBack.Store(room != nil)
	if room == nil {
		return err
	}
	at.watch.hold()
	defer at.watch.release()
	for room != nil {
		select {
		case <-room:
		case <-eased:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		room, eased, err = at.tryOffer(e)
	}
	return err
}

// awaitEase waits while a record could not be kept: so that one is not encoded to wait. It is for functions that
// were held back before.
func (at *attempt) awaitEase() {
	at.watch.hold()
	defer at.watch.release()
	for {
		at.mu.Lock()
		busy, room := at.busyLocked(), at.roomLocked()
		at.mu.Unlock()
		if busy == nil {
			return
		}
		select {
		case <-room:
		case <-busy:
		case <-at.ctx.Done():
			return
		}
	}
}

// tryOffer returns what is closed when there may be room in the window, and in what all share, if
// there is none now.
func (at *attempt) tryOffer(e life.Event) (room, eased <-chan struct{}, err error) {
	if len(e.Record.Value) > freeBytes { // many that find room at the same time would all take it
		at.agent.offering <- struct{}{}
		defer func() { <-at.agent.offering }()
	}
	at.mu.Lock()
	defer at.mu.Unlock()
	if e.Kind == life.Offer && at.ctx.Err() != nil && e.Record.Kind != string(harp.KindLog) && !at.life.HasEnded() {
		return nil, nil, context.Cause(at.ctx)
	}
	busy := at.busyLocked()
	e.At, e.Up, e.Busy = time.Now().UnixNano(), at.isUpLocked(), busy != nil
	switch at.applyLocked(e).Put {
	case life.Later:
		return at.roomLocked(), busy, nil
	case life.Over:
		return nil, nil, fmt.Errorf("%w: the procedure has returned", harp.ErrClosed)
	case life.Gap:
		return nil, nil, fmt.Errorf("agent: record %d came instead of %d", e.Next, at.life.Records())
	default: // it is numbered, or dropped
		return nil, nil, nil
	}
}

// roomLocked returns what is closed when there may be room.
func (at *attempt) roomLocked() <-chan struct{} {
	if at.room == nil {
		at.room = make(chan struct{})
	}
	return at.room
}

// openLocked wakes every goroutine that waits for room. A command's supervisor may wait as
// well, for what is kept elsewhere.
func (at *attempt) openLocked() {
	if r := at.task.cmd; r != nil {
		wake.Signal(r.progress)
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
