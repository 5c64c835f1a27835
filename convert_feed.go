package harp

import (
	"fmt"
	"time"

	"github.com/harpcaller/harp/internal/wire"
)

// The messages of retries, events and upkeep; as convert.go.

// retryToWire returns nothing for the default.
func retryToWire(p RetryPolicy) *wire.Retry {
	if p.IsZero() {
		return nil
	}
	w := &wire.Retry{Attempts: int64(p.Attempts), Backoff: int64(p.Backoff), MaxBackoff: int64(p.MaxBackoff)}
	for _, s := range p.On {
		w.On = append(w.On, string(s))
	}
	return w
}

func retryFromWire(w *wire.Retry) RetryPolicy {
	if w == nil {
		return RetryPolicy{}
	}
	p := RetryPolicy{Attempts: int(w.Attempts), Backoff: time.Duration(w.Backoff), MaxBackoff: time.Duration(w.MaxBackoff)}
	for _, s := range w.On {
		p.On = append(p.On, State(s))
	}
	return p
}

func eventQueryToWire(f EventFilter, wait bool) wire.EventsQuery {
	return wire.EventsQuery{After: f.After, Types: f.Types, Job: f.Job, Host: f.Host, Wait: wait}
}

func eventQueryFromWire(w wire.EventsQuery) (EventFilter, error) {
	f := EventFilter{After: w.After, Types: w.Types, Job: w.Job, Host: w.Host}
	if len(f.Types) > wire.MaxEventTypes {
		return EventFilter{}, &FieldError{Field: "types", Message: fmt.Sprintf("at most %d", wire.MaxEventTypes)}
	}
	return f, nil
}

// eventsToWire takes as many events of a page as an answer holds, at least one.
func eventsToWire(p EventPage) wire.Events {
	rows, n := fill(p.Events, wire.MaxRows, func(e Event) any { return eventToWire(e) })
	w := wire.Events{Events: rows, Cursor: p.Cursor}
	if n < len(p.Events) {
		w.Cursor = p.Events[n-1].Cursor
	}
	return w
}

func eventsFromWire(w wire.Events) (EventPage, error) {
	events, err := rowsFromWire(w.Events, eventFromWire)
	return EventPage{Events: events, Cursor: w.Cursor}, err
}

func eventToWire(e Event) wire.Event {
	return wire.Event{
		Cursor: e.Cursor, Time: nanos(e.Time), Type: string(e.Type),
		Job: e.Job, Host: e.Host, Procedure: e.Procedure, Queue: e.Queue,
		State: string(e.State), Reason: e.Reason, Attempt: int64(e.Attempt),
		By: principalToWire(e.By), Labels: e.Labels,
	}
}

func eventFromWire(w wire.Event) (Event, error) {
	var r reader
	return Event{
		Cursor: w.Cursor, Time: fromNanos(w.Time), Type: EventType(w.Type),
		Job: w.Job, Host: w.Host, Procedure: w.Procedure, Queue: r.value("queue", w.Queue),
		State: State(w.State), Reason: w.Reason, Attempt: r.number("attempt", w.Attempt),
		By: principalFromWire(w.By), Labels: w.Labels,
	}, r.err
}

func queueChangeToWire(name Value, c QueueChange) wire.QueueChange {
	w := wire.QueueChange{Name: name, Paused: c.Paused}
	if c.Concurrency != nil {
		n := int64(*c.Concurrency)
		w.Concurrency = &n
	}
	return w
}

func queueChangeFromWire(w wire.QueueChange) (QueueChange, error) {
	c := QueueChange{Paused: w.Paused}
	if w.Concurrency == nil {
		return c, nil
	}
	var r reader
	n := r.number("concurrency", *w.Concurrency)
	c.Concurrency = &n
	return c, r.err
}
