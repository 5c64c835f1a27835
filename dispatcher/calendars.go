package dispatcher

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"sync"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/calendar"
	"github.com/harpcaller/harp/internal/text"
	"github.com/harpcaller/harp/internal/wire"
	"github.com/harpcaller/harp/store"
)

// Calendars that have a URL are fetched again and again. What was fetched last and could be read is stored with the window, and in
// force: another copy is a change of the window as any other.
const (
	calendarPeriod   = time.Hour       // from one fetch of a calendar to the next, or up to calendarSpread less, so that they are not all at once
	calendarSpread   = 6 * time.Minute //
	calendarRetry    = 5 * time.Minute // after one that failed
	calendarStale    = 24 * time.Hour  // after which it is told that a calendar cannot be fetched
	calendarConfirm  = 6 * time.Hour   // that a copy is still what the server has is stored so often: it is for who is told after a restart
	calendarsAtOnce  = 8               // that the dispatcher fetches again, and that callers have it fetch
	maxCalendarError = 512             // bytes of why one cannot be fetched
)

var errNoCalendars = errors.New("this dispatcher fetches no calendars")

// calendarCopy is what was fetched of the calendar of a window, as it is stored.
type calendarCopy struct {
	Content []byte           `msgpack:"content"`
	Version calendar.Version `msgpack:"version"`
	At      time.Time        `msgpack:"at"`              // when the server had it last
	Since   time.Time        `msgpack:"since,omitempty"` // since when it cannot be fetched; zero: it can
	Why     string           `msgpack:"why,omitempty"`   // why not
	Stale   bool             `msgpack:"stale,omitempty"` // EventWindowStale was told
}

// isFetched reports whether the calendar of a window has a URL.
func isFetched(w *harp.Window) bool { return w.Calendar != nil && w.Calendar.URL != "" }

// checkCalendar returns what is wrong with a URL.
func (d *Dispatcher) checkCalendar(url string) error {
	if d.cfg.Calendars == nil {
		return errNoCalendars
	}
	return d.cfg.Calendars.Check(url)
}

// openFetched asks for the calendar of a window, of which have is the copy before, nil if there is none. It returns the window with the
// copy that is in force then: what is there now if it can be read, else the one before, with why that is so. Errors:
// *harp.FieldError if there is none to be in force; ctx's.
func (d *Dispatcher) openFetched(ctx context.Context, doc windowDocument, have *calendarCopy) (*openWindow, error) {
	var before calendarCopy
	if have != nil {
		before = *have
	}
	err := d.checkCalendar(doc.Window.Calendar.URL)
	var got *calendar.Copy
	if err == nil {
		got, err = d.cfg.Calendars.Fetch(ctx, doc.Window.Calendar.URL, before.Version)
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	now := d.now()
	if err == nil && got != nil {
		doc.Copy = &calendarCopy{Content: got.Content, Version: got.Version, At: now.UTC()}
		to := newOpenWindow(doc, 0)
		if err = to.err; err == nil {
			err = to.checkFuture(now)
		}
		if err == nil || have == nil {
			return to, err
		}
	}
	if have == nil {
		if err == nil {
			err = errors.New("its server says that nothing is new, and has never given anything")
		}
		return nil, &harp.FieldError{Field: "calendar.url", Message: err.Error()}
	}
	if err == nil {
		before.At, before.Since, before.Why, before.Stale = now.UTC(), time.Time{}, "", false
	} else {
		before.note(now, err)
	}
	doc.Copy = &before
	to := newOpenWindow(doc, 0)
	return to, to.err
}

// note notes that the calendar could not be fetched, or what was fetched not be read. What is to come was noted by a clock that was set back
// since: now it was at the latest.
func (c *calendarCopy) note(now time.Time, err error) {
	if c.Since.IsZero() || c.Since.After(now) {
		c.Since = now.UTC()
	}
	c.At = earlier(c.At, now.UTC())
	c.Why = text.Line(err.Error(), maxCalendarError)
}

// fetch is what callers are told of a calendar.
func (c *calendarCopy) fetch() *harp.CalendarFetch {
	if c == nil {
		return nil
	}
	return &harp.CalendarFetch{At: c.At, Bytes: len(c.Content), Since: c.Since, Why: c.Why, Stale: c.Stale}
}

// fetchFor opens a window that a caller puts, whose calendar has a URL.
func (s *service) fetchFor(ctx context.Context, doc windowDocument) (*openWindow, error) {
	if err := s.d.checkCalendar(doc.Window.Calendar.URL); err != nil {
		return nil, &harp.FieldError{Field: "calendar.url", Message: err.Error()}
	}
	leave, err := s.d.calendars.enter(ctx, s.who)
	if err != nil {
		return nil, err
	}
	defer leave()
	var have *calendarCopy
	if old, err := s.d.windows.find(doc.Window.Name); err == nil && isFetched(&old.Window) && old.Window.Calendar.URL == doc.Window.Calendar.URL {
		have = old.Copy
	}
	to, err := s.d.openFetched(ctx, doc, have)
	if err == nil {
		to.asked = time.Now()
		err = to.checkFuture(s.d.now()) // the copy before may have nothing of what is asked for now
	}
	return to, err
}

// calendarSlots bounds what callers have fetched at a time: a principal one calendar, and all of them so many.
type calendarSlots struct {
	all chan struct{}

	mu    sync.Mutex
	byWho map[harp.Principal]*calendarSlot // those that are in use or waited for
}

type calendarSlot struct {
	users int           // guarded by calendarSlots.mu
	token chan struct{} // 1
}

func newCalendarSlots() *calendarSlots {
	return &calendarSlots{all: make(chan struct{}, calendarsAtOnce), byWho: map[harp.Principal]*calendarSlot{}}
}

// enter waits for a slot, and returns what gives it back. Errors: ctx's.
func (cs *calendarSlots) enter(ctx context.Context, who harp.Principal) (leave func(), err error) {
	cs.mu.Lock()
	slot := cs.byWho[who]
	if slot == nil {
		slot = &calendarSlot{token: make(chan struct{}, 1)}
		cs.byWho[who] = slot
	}
	slot.users++
	cs.mu.Unlock()
	forget := func() {
		cs.mu.Lock()
		defer cs.mu.Unlock()
		if slot.users--; slot.users == 0 {
			delete(cs.byWho, who)
		}
	}
	select {
	case slot.token <- struct{}{}:
	case <-ctx.Done():
		forget()
		return nil, context.Cause(ctx)
	}
	select {
	case cs.all <- struct{}{}:
	case <-ctx.Done():
		<-slot.token
		forget()
		return nil, context.Cause(ctx)
	}
	return func() { <-cs.all; <-slot.token; forget() }, nil
}

// calendarLoop fetches calendars again when it is time for that.
func (d *Dispatcher) calendarLoop() {
	timer := time.NewTimer(calendarRetry)
	defer timer.Stop()
	begun := time.Now()
	for {
		wait := d.fetchDue(begun)
		timer.Reset(wait)
		select {
		case <-d.ctx.Done():
			return
		case <-timer.C:
		}
	}
}

// fetchDue fetches the calendars for which it is time, and returns for how long it is for no other. One that is put meanwhile was
// fetched as it was put.
func (d *Dispatcher) fetchDue(begun time.Time) (wait time.Duration) {
	wait = calendarRetry
	var fetching sync.WaitGroup
	defer fetching.Wait()
	room := make(chan struct{}, calendarsAtOnce)
	for _, w := range d.windows.all() {
		if w.Copy == nil {
			continue
		}
		if left := time.Until(w.due(begun)); left > 0 {
			wait = min(wait, left)
			continue
		}
		select {
		case room <- struct{}{}:
		case <-d.ctx.Done():
			return wait
		}
		fetching.Go(func() {
			defer func() { <-room }()
			d.refreshCalendar(d.ctx, w)
		})
	}
	return wait
}

// due is when the calendar of a window is to be fetched next. Those that were not since the dispatcher was opened are in the first minutes.
func (w *openWindow) due(begun time.Time) time.Time {
	hash := fnv.New32a()
	_, _ = hash.Write([]byte(w.Window.Name)) // never fails
	spread := time.Duration(hash.Sum32()%1000) * calendarSpread / 1000
	switch {
	case w.asked.IsZero():
		return begun.Add(spread / 6)
	case !w.Copy.Since.IsZero():
		return w.asked.Add(calendarRetry)
	default:
		return w.asked.Add(calendarPeriod - spread)
	}
}

// refreshCalendar fetches the calendar of a window again. If it is another one, what is held is another at once.
func (d *Dispatcher) refreshCalendar(ctx context.Context, w *openWindow) {
	to, err := d.openFetched(ctx, w.windowDocument, w.Copy)
	if ctx.Err() != nil {
		return
	}
	if err != nil { // the window cannot be told with the copy that it has, and the calendar not be fetched
		failed := *w.Copy
		failed.note(d.now(), err)
		to = w.withCopy(&failed)
	}
	d.windows.changing.Lock()
	defer d.windows.changing.Unlock()
	if is, err := d.windows.find(w.Window.Name); err != nil || is != w {
		return // it is gone, or was put anew
	}
	isOther := w.err != nil || !bytes.Equal(to.Copy.Content, w.Copy.Content)
	if !isOther {
		to = w.withCopy(to.Copy)
	}
	if err := d.storeCopy(ctx, w, to); err != nil {
		d.repeated.Warn("calendar "+w.Window.Name, "calendar cannot be stored: the one before stays in force", "window", w.Window.Name, "err", err)
		failed := *w.Copy
		failed.note(d.now(), fmt.Errorf("what was fetched cannot be stored: %w", err))
		to, isOther = w.withCopy(&failed), false
	}
	to.asked = time.Now()
	d.windows.set(to)
	if isOther {
		d.reviewAllHolds()
		signal(d.windows.changed)
	}
}

// withCopy is the window with another copy that has the same content.
func (w *openWindow) withCopy(c *calendarCopy) *openWindow {
	to := *w
	to.Copy = c
	return &to
}

// storeCopy stores a window with what was fetched, if that says more than what is stored, and tells of it. Whoever changes windows
// calls it. Errors: harp.ErrRefused, the store's.
func (d *Dispatcher) storeCopy(ctx context.Context, w, to *openWindow) error {
	now := d.now()
	was, is := w.Copy, to.Copy
	told := harp.Event{Type: harp.EventWindowChanged, Time: now, Window: w.Window.Name}
	switch {
	case !bytes.Equal(is.Content, was.Content):
		told.Reason = fmt.Sprintf("its calendar is another now, of %d bytes; %d hosts are concerned", len(is.Content), d.countConcerned(ctx, w))
		d.log.Info("calendar of a window is another now", "window", w.Window.Name, "bytes", len(is.Content))
	case is.Since.IsZero() && was.Stale:
		told.Reason = "its calendar can be fetched again"
	case !is.Since.IsZero() && !was.Stale && now.Sub(is.At) >= calendarStale:
		is.Stale = true
		told.Type, told.Reason = harp.EventWindowStale, staleText(is)
		d.log.Warn("calendar of a window cannot be fetched: the last good one stays in force", "window", w.Window.Name, "since", is.Since, "err", is.Why)
	case is.Since.Equal(was.Since) && is.Why == was.Why && is.At.Sub(w.storedAt) < calendarConfirm:
		return nil // what is stored says as much
	default:
		told = harp.Event{}
	}
	content := wire.Encode(to.windowDocument)
	to.size, to.storedAt = len(content), is.At
	if err := d.windows.checkRoom(to); err != nil {
		return err
	}
	c := store.DocumentChanges{Changes: []store.DocumentChange{{Kind: windowKind, Name: w.Window.Name, New: content}}}
	if told.Type != "" {
		c.Events = []harp.Event{told}
	}
	var err error
	if c.Changes[0].Old, err = d.storedDocument(ctx, windowKind, w.Window.Name); err != nil {
		return err
	}
	_, err = d.store.ChangeDocuments(ctx, c)
	return err
}

// countConcerned counts the hosts that a window is about.
func (d *Dispatcher) countConcerned(ctx context.Context, w *openWindow) int {
	hosts, _ := d.fleet.selectHosts(ctx, w.Window.Target) // or it selects none
	return len(hosts)
}

// staleText says since when a calendar cannot be fetched, and why.
func staleText(c *calendarCopy) string {
	return fmt.Sprintf("its calendar cannot be fetched since %s: %s; that of %s stays in force",
		c.Since.Format(time.RFC3339), c.Why, c.At.Format(time.RFC3339))
}

// staleProblem is which calendars cannot be fetched for long; nil: none.
func (ws *windows) staleProblem() error {
	first, count := "", 0
	for _, w := range ws.all() {
		if c := w.Copy; c != nil && c.Stale {
			if count++; count == 1 {
				first = "window " + w.Window.Name + ": " + staleText(c)
			}
		}
	}
	if count > 1 {
		first = fmt.Sprintf("%d calendars cannot be fetched: the first is of %s", count, first)
	}
	if count == 0 {
		return nil
	}
	return errors.New(first)
}
