package dispatcher

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/wire"
	"github.com/harpcaller/harp/store"
)

// Which windows were told of as open is a document, which changes in the commit of the events: each opening and each end is told
// once, whatever dies in between.
const (
	openWindowsKind = "windows"
	openWindowsName = "open"
)

const tellRetry = 10 * time.Second // after a commit that could not be made

// windowLoop makes all gates anew from time to time, and when it is asked to, and tells of windows that open and close and of
// pauses of hosts that end by themselves.
func (d *Dispatcher) windowLoop() {
	timer := time.NewTimer(gatesRenewed)
	defer timer.Stop()
	renewal := time.Now().Add(gatesRenewed)
	for {
		if !time.Now().Before(renewal) {
			d.renewAllHolds()
			renewal = time.Now().Add(gatesRenewed)
		}
		wait := tellRetry
		next, err := d.writeWindowEvents(d.ctx)
		ends, endErr := d.writePauseEvents(d.ctx)
		if err = errors.Join(err, endErr); err == nil {
			wait = min(next, ends)
		} else if d.ctx.Err() == nil {
			d.repeated.Warn("windows", "events of windows and pauses cannot be written yet", "err", err)
		}
		timer.Reset(min(wait, time.Until(renewal)))
		select {
		case <-d.ctx.Done():
			return
		case <-d.windows.stale:
			renewal = time.Time{}
		case <-d.windows.changed:
		case <-timer.C:
		}
	}
}

// signal has a loop that waits for a channel with room for one look again.
func signal(to chan struct{}) {
	select {
	case to <- struct{}{}:
	default:
	}
}

// writeWindowEvents writes events of windows that have opened or closed since it did so last, and returns for how long there will be
// no others. Errors: the store's.
func (d *Dispatcher) writeWindowEvents(ctx context.Context) (wait time.Duration, err error) {
	d.windows.changing.Lock()
	defer d.windows.changing.Unlock()
	old, err := d.storedDocument(ctx, openWindowsKind, openWindowsName)
	if err != nil {
		return 0, err
	}
	var told []string
	if old != nil {
		if err := wire.Decode(old, &told); err != nil {
			told = nil // then those that are open are told of once more
		}
	}
	now := d.now()
	open, next := d.windows.gates.openAt(now)
	wait = gatesRenewed
	if !next.IsZero() {
		wait = max(next.Sub(now), time.Millisecond)
	}
	names := slices.Sorted(maps.Keys(open))
	if slices.Equal(names, told) {
		return wait, nil
	}
	c := store.DocumentChanges{Changes: []store.DocumentChange{{Kind: openWindowsKind, Name: openWindowsName, Old: old, New: wire.Encode(names)}}}
	for _, name := range names {
		if !slices.Contains(told, name) {
			c.Events = append(c.Events, d.windowEvent(harp.EventWindowOpened, name, now, open[name]))
		}
	}
	for _, name := range told {
		if _, is := open[name]; is {
			continue
		}
		if _, err := d.windows.find(name); !errors.Is(err, harp.ErrNotFound) { // else it is told of as deleted
			c.Events = append(c.Events, d.windowEvent(harp.EventWindowClosed, name, now, time.Time{}))
		}
	}
	if _, err := d.store.ChangeDocuments(ctx, c); err != nil {
		return 0, fmt.Errorf("tell of windows: %w", err)
	}
	return wait, nil
}

func (d *Dispatcher) windowEvent(what harp.EventType, name string, now, until time.Time) harp.Event {
	e := harp.Event{Type: what, Time: now, Window: name, Until: until}
	if w, err := d.windows.find(name); err == nil {
		e.Reason = w.Window.Reason
	}
	return e
}

// openAt returns the windows that cover a moment, each with its end, and when the next one opens or closes; zero: at no time that is known.
func (g *gates) openAt(now time.Time) (open map[string]time.Time, next time.Time) {
	g.making.Lock()
	defer g.making.Unlock()
	open = map[string]time.Time{}
	for _, w := range g.windows {
		span, covers, ok := w.spans.At(now)
		switch {
		case covers:
			open[w.spans.Name] = span.To
			next = earlier(next, span.To)
		case ok:
			next = earlier(next, span.From)
		}
	}
	return open, next
}
