package window

import (
	"cmp"
	"io"
	"iter"
	"slices"
	"strings"
	"time"
)

// Calendar is a source of the spans of events. It never changes, and may be used by several goroutines.
type Calendar struct {
	events []event

	found, kept int    // events in the file, and those of them that are selected, cancelled ones too
	selected    string // as CalendarOptions has it
}

// CalendarOptions say how an iCalendar file is read.
type CalendarOptions struct {
	Zone  *time.Location    // in which times are that name none, and days begin; nil is UTC
	Zones map[string]string // zones of the file that nobody knows, and their names in the IANA database
	Event string            // only events whose SUMMARY is like this, with * for any text and ? for one character; empty: all
}

// What a calendar may have at most, and what is told of it at once.
const (
	maxFile   = 1 << 20 // bytes
	maxEvents = 1_000
	maxDepth  = 8      // of components in one another
	maxSpans  = 10_000 // of one Between
	maxYears  = 2
)

// ReadCalendar reads an iCalendar file. Errors: what r returns; a [*CalendarError] with the line for what is
// no calendar, has no end, is longer than 1 MiB or has more than 1,000 events that are selected, and for an event that cannot
// be told; a [*FieldError] that names zones.
func ReadCalendar(r io.Reader, o CalendarOptions) (*Calendar, error) {
	text, err := io.ReadAll(io.LimitReader(r, maxFile+1))
	if err != nil {
		return nil, err
	}
	if len(text) > maxFile {
		return nil, lineError(0, "", "is longer than 1 MiB")
	}
	zones, err := newZones(o)
	if err != nil {
		return nil, err
	}
	reader := calendarReader{lines: contentLines{text: strings.TrimPrefix(string(text), "\uFEFF")}, zones: zones, selected: o.Event}
	if err := reader.readComponents(); err != nil {
		return nil, err
	}
	return reader.calendar()
}

// calendarReader reads the lines of a file.
type calendarReader struct {
	lines    contentLines
	zones    *zones
	selected string // SUMMARY

	open   []string // components that have begun and not ended
	events []rawEvent
	kept   int // of the events those that are selected
	zone   struct{ id, location string }
}

// rawEvent is an event as it stands in the file: the properties that matter.
type rawEvent struct {
	line       int
	properties []property
}

// readComponents reads all lines, and returns an error for what is no whole calendar.
func (r *calendarReader) readComponents() error {
	whole := false
	for {
		p, ok, err := r.lines.next()
		switch {
		case err != nil && !whole && r.open == nil:
			return r.noCalendar()
		case err != nil:
			return err
		case !ok && r.open != nil:
			return lineError(r.lines.line, "", "is cut off: END:%s is missing", shorten(r.open[0]))
		case !ok && !whole:
			return lineError(0, "", "is empty")
		case !ok:
			return nil
		}
		if r.open == nil && (p.name != "BEGIN" || !strings.EqualFold(p.rest, ":VCALENDAR")) {
			return r.noCalendar()
		}
		if err := r.readProperty(p); err != nil {
			return err
		}
		whole = true
	}
}

func (r *calendarReader) noCalendar() error {
	return lineError(r.lines.line, "", "is no iCalendar file: BEGIN:VCALENDAR was expected here")
}

func (r *calendarReader) readProperty(p property) error {
	switch p.name {
	case "BEGIN":
		return r.begin(p)
	case "END":
		return r.end(p)
	}
	if len(r.open) != 2 {
		return nil
	}
	switch r.open[1] {
	case "VEVENT":
		if eventProperties[p.name] {
			last := &r.events[len(r.events)-1]
			last.properties = append(last.properties, p)
		}
	case "VTIMEZONE":
		v, err := p.parse()
		if err != nil {
			return err
		}
		switch p.name {
		case "TZID":
			r.zone.id = v.text
		case "X-LIC-LOCATION":
			r.zone.location = v.text
		}
	}
	return nil
}

func (r *calendarReader) begin(p property) error {
	if len(r.open) == maxDepth {
		return p.errorf("more than %d components are in one another", maxDepth)
	}
	name := strings.ToUpper(p.rest[1:])
	r.open = append(r.open, name)
	if len(r.open) == 2 {
		switch name {
		case "VEVENT":
			r.events = append(r.events, rawEvent{line: p.line})
		case "VTIMEZONE":
			r.zone.id, r.zone.location = "", ""
		}
	}
	return nil
}

func (r *calendarReader) end(p property) error {
	name, last := strings.ToUpper(p.rest[1:]), len(r.open)-1
	if name != r.open[last] {
		return p.errorf("of %s, but %s has not ended", shorten(name), shorten(r.open[last]))
	}
	if r.open = r.open[:last]; last == 0 {
		r.open = nil
	}
	if last != 1 {
		return nil
	}
	switch name {
	case "VEVENT":
		if r.events[len(r.events)-1].isSelected(r.selected) {
			r.kept++
		}
		if r.kept > maxEvents {
			return p.errorf("the calendar has more than %d events", maxEvents)
		}
	case "VTIMEZONE":
		r.zones.located[r.zone.id] = r.zone.location
	}
	return nil
}

// calendar makes events of what was read.
func (r *calendarReader) calendar() (*Calendar, error) {
	builder := newEventBuilder(r.zones)
	wanted := map[string]bool{} // UIDs
	for _, raw := range r.events {
		if raw.isSelected(r.selected) {
			wanted[raw.uid()] = true
		}
	}
	for i, raw := range r.events {
		if !wanted[raw.uid()] {
			continue
		}
		if err := builder.readReplacement(i, raw); err != nil {
			return nil, err
		}
	}
	all := &Calendar{found: len(r.events), kept: r.kept, selected: r.selected}
	for i, raw := range r.events {
		if !raw.isSelected(r.selected) || builder.isReplaced(i, raw) {
			continue
		}
		e, ok, err := builder.build(raw)
		switch {
		case err != nil:
			return nil, err
		case ok:
			all.events = append(all.events, e)
		}
	}
	return all, nil
}

// Events returns how many events the calendar has, those included that stand for an occurrence of another one.
func (c *Calendar) Events() int { return len(c.events) }

// Check refuses a calendar that has no event, or none that is selected: one that was emptied by mistake, or a pattern that is
// wrong, would say nothing where it should. Events that are past, or cancelled, are events. Errors: [*CalendarError].
func (c *Calendar) Check(time.Time) error {
	switch {
	case c.kept > 0:
		return nil
	case c.found > 0:
		return lineError(0, "", "has no event like %q, of %d", c.selected, c.found)
	}
	return lineError(0, "", "has no event")
}

// step is how much of a calendar is expanded at once.
const step = 31 * 24 * time.Hour

// Between returns the spans that have a moment in [from, to), by their beginnings. It ends two years after from,
// and after 10,000 spans.
func (c *Calendar) Between(from, to time.Time) iter.Seq[Span] {
	return func(yield func(Span) bool) {
		if end := from.AddDate(maxYears, 0, 0); end.Before(to) {
			to = end
		}
		told := 0
		for begin, first := from, true; begin.Before(to); begin, first = begin.Add(step), false {
			end := begin.Add(step)
			if to.Before(end) {
				end = to
			}
			for _, span := range c.expand(begin, end, first) {
				if told++; told > maxSpans || !yield(span) {
					return
				}
			}
		}
	}
}

// expand returns the spans that begin in [from, to), and those that began before and last until then if they are asked for.
func (c *Calendar) expand(from, to time.Time, withBegun bool) (spans []Span) {
	for i := range c.events {
		e := &c.events[i]
		earliest := from
		if withBegun {
			earliest = from.Add(-e.longest)
		}
		for span := range e.starting(earliest, to) {
			if span.To.After(span.From) && span.overlaps(from, to) {
				spans = append(spans, span)
			}
		}
	}
	slices.SortFunc(spans, func(a, b Span) int {
		return cmp.Or(a.From.Compare(b.From), a.To.Compare(b.To), strings.Compare(a.Note, b.Note))
	})
	return slices.Compact(spans)
}
