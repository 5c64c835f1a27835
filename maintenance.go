package harp

import (
	"context"
	"fmt"
	"iter"
	"time"
)

// Maintenance looks at maintenance windows, changes them, and says what they make of a start. It is safe
// for concurrent use.
type Maintenance struct{ service Service }

// Maintenance returns the handle for maintenance windows.
func (c *Caller) Maintenance() *Maintenance { return &Maintenance{service: c.service} }

// Window keeps procedures from starting on the hosts of its Target: within its spans, or with Only
// outside of them. Only starts are kept back: what runs goes on. Its spans are given by From, by Cron or
// by Calendar. A zero field means: the default.
type Window struct {
	Name   string `json:"name" msgpack:"name"`                         // 1 to MaxWindowName bytes, none of them of a control character
	Doc    string `json:"doc,omitempty" msgpack:"doc,omitempty"`       // for people
	Reason string `json:"reason,omitempty" msgpack:"reason,omitempty"` // for those whose jobs wait
	Target string `json:"target" msgpack:"target"`                     // as [target.Parse] reads it; not by what a host is at the moment, such as host.online

	Mode          WindowMode `json:"mode,omitempty" msgpack:"mode,omitempty"`                // default: WindowHold
	Only          bool       `json:"only,omitempty" msgpack:"only,omitempty"`                // starts are allowed within its spans alone; of several such windows one is enough
	SchedulesOnly bool       `json:"schedules_only,omitempty" msgpack:"schedonly,omitempty"` // it concerns what schedules start, and nothing else
	Procedures    []string   `json:"procedures,omitempty" msgpack:"procs,omitempty"`         // which it concerns; * is any text, ? one character; default: all
	Exempt        []string   `json:"exempt,omitempty" msgpack:"exempt,omitempty"`            // which it does not, as in Procedures
	All           bool       `json:"all,omitempty" msgpack:"all,omitempty"`                  // it concerns procedures with [TraitReadOnly] too

	From time.Time `json:"from,omitzero" msgpack:"from,omitempty"` // once, from then
	To   time.Time `json:"to,omitzero" msgpack:"to,omitempty"`     // until then; zero: until somebody ends it

	Cron string        `json:"cron,omitempty" msgpack:"cron,omitempty"` // again and again: begins as a [Schedule] with it would fire
	For  time.Duration `json:"for,omitempty" msgpack:"for,omitempty"`   // and lasts so long
	TZ   string        `json:"tz,omitempty" msgpack:"tz,omitempty"`     // of Cron and Calendar, of the IANA database; default: the dispatcher's time_zone as it is put, from then on

	Calendar *WindowCalendar `json:"calendar,omitempty" msgpack:"cal,omitempty"` // the events of a calendar
}

// WindowCalendar is an iCalendar file, RFC 5545, as calendar programs export it: its Content, or the URL where the dispatcher
// fetches it, each hour. What was fetched last and could be read stays in force, whatever becomes of the server.
type WindowCalendar struct {
	Content []byte            `json:"content,omitempty" msgpack:"content"`       // at most MaxCalendar bytes
	URL     string            `json:"url,omitempty" msgpack:"url,omitempty"`     // https, of a host that the dispatcher may reach
	Event   string            `json:"event,omitempty" msgpack:"event,omitempty"` // only events whose SUMMARY is like this; * is any text, ? one character
	Zones   map[string]string `json:"zones,omitempty" msgpack:"zones,omitempty"` // zones of the file that nobody knows, and their names in the IANA database
}

// WindowMode says what becomes of a start that a window keeps back.
type WindowMode string

// The modes.
const (
	WindowHold   WindowMode = "hold"   // it waits, queued(window)
	WindowRefuse WindowMode = "refuse" // a call is refused, and a host of a batch left out; what was queued before waits
)

// Check returns ErrInvalid, naming the field, unless the window is within its limits and says in one way when it
// is. What is in Target, Cron, TZ and Calendar is not looked at: the dispatcher does that.
func (w Window) Check() error {
	if err := checkShown("name", w.Name, MaxWindowName); err != nil {
		return err
	}
	if err := checkName("target", w.Target, MaxTarget); err != nil {
		return err
	}
	for _, text := range []struct {
		field, value string
		most         int
	}{{"doc", w.Doc, MaxScheduleDoc}, {"reason", w.Reason, MaxWhy}, {"tz", w.TZ, MaxTZ}, {"cron", w.Cron, MaxCron}} {
		if err := checkText(text.field, text.value, text.most); err != nil {
			return err
		}
	}
	switch w.Mode {
	case "", WindowHold, WindowRefuse:
	default:
		return &FieldError{Field: "mode", Message: fmt.Sprintf("must be %q or %q; the default is %q", WindowHold, WindowRefuse, WindowHold)}
	}
	if err := checkPatterns("procedures", w.Procedures); err != nil {
		return err
	}
	if err := checkPatterns("exempt", w.Exempt); err != nil {
		return err
	}
	return w.checkWhen()
}

func checkPatterns(field string, patterns []string) error {
	if len(patterns) > MaxWindowPatterns {
		return &FieldError{Field: field, Message: fmt.Sprintf("must be at most %d", MaxWindowPatterns)}
	}
	for _, pattern := range patterns {
		if err := checkName(field, pattern, MaxProcedureName); err != nil {
			return err
		}
	}
	return nil
}

// checkWhen refuses a window that says in no way when it is, or in more than one.
func (w Window) checkWhen() error {
	ways := 0
	for _, given := range []bool{!w.From.IsZero(), w.Cron != "", w.Calendar != nil} {
		if given {
			ways++
		}
	}
	switch {
	case ways != 1:
		return &FieldError{Field: "from", Message: "exactly one of from, cron and calendar must be given"}
	case !w.To.IsZero() && w.From.IsZero():
		return &FieldError{Field: "to", Message: "needs from"}
	case !w.To.IsZero() && !w.To.After(w.From):
		return &FieldError{Field: "to", Message: "must be later than from"}
	case w.Cron != "" && w.For < time.Second:
		return &FieldError{Field: "for", Message: "must be one second or more"}
	case w.Cron == "" && w.For != 0:
		return &FieldError{Field: "for", Message: "needs cron"}
	case w.TZ != "" && !w.From.IsZero():
		return &FieldError{Field: "tz", Message: "needs cron or calendar"}
	}
	if err := checkTime("from", w.From); err != nil {
		return err
	}
	if err := checkTime("to", w.To); err != nil {
		return err
	}
	if w.Calendar == nil {
		return nil
	}
	return w.Calendar.check()
}

func (c *WindowCalendar) check() error {
	switch {
	case c.URL != "" && len(c.Content) > 0:
		return &FieldError{Field: "calendar.url", Message: "cannot be combined with content"}
	case len(c.Content) == 0 && c.URL == "":
		return &FieldError{Field: "calendar", Message: "must not be empty"}
	case len(c.Content) > MaxCalendar:
		return tooLong("calendar", len(c.Content), MaxCalendar)
	case len(c.Zones) > MaxWindowPatterns:
		return &FieldError{Field: "zones", Message: fmt.Sprintf("must be at most %d", MaxWindowPatterns)}
	}
	for unknown, zone := range c.Zones {
		if err := checkText("zones", unknown, MaxTZ); err != nil {
			return err
		}
		if err := checkName("zones", zone, MaxTZ); err != nil {
			return err
		}
	}
	if err := checkText("calendar.url", c.URL, MaxReceiverURL); err != nil {
		return err
	}
	return checkText("event", c.Event, MaxScheduleDoc)
}

// Span is a time from one moment to another, in UTC.
type Span struct {
	From time.Time `json:"from" msgpack:"from"`
	To   time.Time `json:"to,omitzero" msgpack:"to,omitempty"`      // not in it any more; zero: there is no end
	Note string    `json:"note,omitempty" msgpack:"note,omitempty"` // the SUMMARY of an event, or what a change of the clock did to the beginning
}

// WindowStatus is a window and where it is in its spans. Times are UTC by the dispatcher's clock, zero where
// there is none.
type WindowStatus struct {
	Window
	ManagedBy string    `msgpack:"managed,omitempty"` // who applies its document; "": it was put by hand
	By        Principal `msgpack:"by"`                // who put it
	Changed   time.Time `msgpack:"changed"`           // when
	Open      bool      `msgpack:"open,omitempty"`    // Span covers this moment
	Span      Span      `msgpack:"span,omitempty"`    // that of this moment, or else the next within a year, with those that follow it without time between them; zero: there is none
	Err       error     `msgpack:"failure,omitempty"` // why it cannot be told when it is: until it is put anew it keeps back everything that it may concern

	Fetch *CalendarFetch `msgpack:"fetch,omitempty"` // of a calendar that has a URL
}

// CalendarFetch is what became of fetching a calendar from its URL. Times are UTC by the dispatcher's clock.
type CalendarFetch struct {
	At    time.Time `json:"at" msgpack:"at"`                           // when its server said last that it has what is in force
	Bytes int       `json:"bytes" msgpack:"bytes"`                     // of that
	Since time.Time `json:"since,omitzero" msgpack:"since,omitempty"`  // since when it cannot be fetched, or what is fetched be read; zero: it can
	Why   string    `json:"why,omitempty" msgpack:"why,omitempty"`     // why not
	Stale bool      `json:"stale,omitempty" msgpack:"stale,omitempty"` // At is more than a day ago: [EventWindowStale] was told
}

// Verdict says what windows and pauses make of the start of a procedure on a host at a moment. Times are UTC.
type Verdict struct {
	At         time.Time  `json:"at" msgpack:"at"`
	May        bool       `json:"may" msgpack:"may,omitempty"`                    // nothing keeps it back
	Mode       WindowMode `json:"mode,omitempty" msgpack:"mode,omitempty"`        // what becomes of it, if something does
	Obstacles  []Obstacle `json:"obstacles,omitempty" msgpack:"-"`                // that keep it back
	Until      time.Time  `json:"until,omitzero" msgpack:"until,omitempty"`       // when this changes; zero: at no time that is known
	KnownUntil time.Time  `json:"known_until,omitzero" msgpack:"known,omitempty"` // of later moments nothing is known yet
}

// List yields all windows, by name. Errors: ErrUnavailable, ErrClosed.
func (m *Maintenance) List(ctx context.Context) iter.Seq2[WindowStatus, error] {
	return pages(func(cursor string) (Page[WindowStatus], error) { return m.service.ListWindows(ctx, "", cursor) })
}

// Get returns one window. Errors: ErrInvalid (no name), ErrNotFound, ErrUnavailable, ErrClosed.
func (m *Maintenance) Get(ctx context.Context, name string) (WindowStatus, error) {
	if err := checkName("name", name, MaxWindowName); err != nil {
		return WindowStatus{}, err
	}
	page, err := m.service.ListWindows(ctx, name, "")
	switch {
	case err != nil:
		return WindowStatus{}, err
	case len(page.Items) == 0:
		return WindowStatus{}, notFoundError("window", name)
	}
	return page.Items[0], nil
}

// Put makes a window, or replaces the one of its name. When it returns, what it keeps back is kept back, and
// what waited for its spans and need not any more may start.
//
// Errors: ErrInvalid, naming the field: target (it cannot be read, or asks what a host is at the moment), cron (it cannot be
// read, or never fires), tz (no such zone), to (it is past), for (more than 100 spans would cover one moment), calendar (what
// cannot be told, with its line), calendar.url (it cannot be fetched; if the window has this URL already, what was fetched before stays in force instead), zones, and what [Window.Check] says; ErrRefused (there are too many), ErrConflict (its document is applied by whoever is named), ErrDenied,
// ErrUnavailable, ErrClosed.
func (m *Maintenance) Put(ctx context.Context, w Window) error {
	if err := w.Check(); err != nil {
		return err
	}
	return m.service.PutWindow(ctx, NewID(), w)
}

// Delete deletes a window: it keeps nothing back any more. Errors: ErrInvalid (no name), ErrNotFound, ErrConflict (its document is
// applied by whoever is named), ErrDenied, ErrUnavailable, ErrClosed.
func (m *Maintenance) Delete(ctx context.Context, name string) error {
	if err := checkName("name", name, MaxWindowName); err != nil {
		return err
	}
	return m.service.DeleteWindow(ctx, NewID(), name)
}

// End ends the span that covers this moment, of a window that is once: its To becomes now. Errors: ErrInvalid (no
// name), ErrNotFound, ErrConflict (it is not open, or not once: delete it, or put it anew; or its document is applied by whoever is named), ErrDenied, ErrUnavailable,
// ErrClosed.
func (m *Maintenance) End(ctx context.Context, name string) error {
	if err := checkName("name", name, MaxWindowName); err != nil {
		return err
	}
	return m.service.EndWindow(ctx, NewID(), name)
}

// Spans returns the spans of a window that have a moment in [from, to), MaxWindowSpans at most, by their beginnings. Errors:
// ErrInvalid (no name; from, to: to is not later, or more than two years later), ErrNotFound, ErrUnavailable, ErrClosed.
func (m *Maintenance) Spans(ctx context.Context, name string, from, to time.Time) ([]Span, error) {
	if err := CheckSpans(name, from, to); err != nil {
		return nil, err
	}
	return m.service.WindowSpans(ctx, name, from, to)
}

// Preview returns the spans that a window would have, as Spans does of one that is there, and stores nothing. A calendar at a URL is fetched for
// that. Errors: as Put, of which it refuses what that would; ErrInvalid (from, to), as Spans.
func (m *Maintenance) Preview(ctx context.Context, w Window, from, to time.Time) ([]Span, error) {
	if err := CheckPreview(w, from, to); err != nil {
		return nil, err
	}
	return m.service.PreviewWindow(ctx, w, from, to)
}

// CheckPreview returns ErrInvalid, naming the field, unless [Maintenance.Preview] may be asked so.
func CheckPreview(w Window, from, to time.Time) error {
	if err := w.Check(); err != nil {
		return err
	}
	return CheckSpans(w.Name, from, to)
}

// CheckSpans returns ErrInvalid, naming the field, unless [Maintenance.Spans] may be asked so.
func CheckSpans(name string, from, to time.Time) error {
	if err := checkName("name", name, MaxWindowName); err != nil {
		return err
	}
	if err := checkBounds(from, to); err != nil {
		return err
	}
	if to.After(from.AddDate(2, 0, 0)) {
		return &FieldError{Field: "to", Message: "must be at most two years later than from"}
	}
	return nil
}

// Why says what windows and pauses make of the start of a procedure on a host at a moment, at most a day ahead; the zero time is
// now. It is judged as a call by hand. Errors: ErrInvalid (no host; no procedure; at, of which nothing is known), ErrNotFound
// (the host), ErrUnavailable, ErrClosed.
func (m *Maintenance) Why(ctx context.Context, host, procedure string, at time.Time) (Verdict, error) {
	if err := CheckStart(host, procedure, at); err != nil {
		return Verdict{}, err
	}
	return m.service.JudgeStart(ctx, host, procedure, at)
}

// CheckStart returns ErrInvalid, naming the field, unless [Maintenance.Why] may be asked so.
func CheckStart(host, procedure string, at time.Time) error {
	if err := checkName("host", host, MaxHostName); err != nil {
		return err
	}
	if err := checkName("procedure", procedure, MaxProcedureName); err != nil {
		return err
	}
	return checkTime("at", at)
}

// Held yields the jobs that wait for windows, or for the pause of a host, newest first. Errors: ErrUnavailable, ErrClosed.
func (m *Maintenance) Held(ctx context.Context) iter.Seq2[JobStatus, error] {
	return func(yield func(JobStatus, error) bool) {
		for s, err := range (&Caller{service: m.service}).Jobs(ctx, JobFilter{States: []State{StateQueued}}) {
			if err == nil && s.Reason != ReasonWindow {
				continue
			}
			if !yield(s, err) {
				return
			}
		}
	}
}
