// Package window says in which spans of time jobs may start or not:
//
//	Once        from one moment to another, or without an end
//	Recurring   for some time from each moment on at which a schedule fires
//	Calendar    the events of an iCalendar file, RFC 5545
//
// Each has Between, which tells its spans. Nothing in this package reads a clock: what is asked depends on its arguments
// and on the time zone database alone.
//
// # Spans
//
// A [Span] contains its beginning and not its end. That of a Recurring begins as the schedule fires, where a clock leaves out
// that time at the end of the gap, and lasts as long as it says by elapsed time. That of an event ends when a clock
// shows its end: an event from 22:00 to 06:00 is an hour shorter in the night in which clocks go forward.
//
// # Calendars
//
// [ReadCalendar] takes what Google, Outlook, Thunderbird, KOrganizer and Nextcloud export: events with DTEND or DURATION,
// in UTC, in a zone, on any clock or of whole days; RRULE, RDATE, EXDATE, and occurrences that were moved, changed or
// cancelled by RECURRENCE-ID. What would be misread is refused with its line: a file that is cut off, a zone that nobody knows, a
// rule that repeats within the day or never fits. A file that was refused opens and closes nothing.
//
// # Gates
//
// A [Window] keeps starts back in its spans; one with Only does so out of them, and of several such windows that concern a
// procedure one is enough. [Window.Expand] finds its spans of a day ahead, once for all hosts; a [Gate] has those of a host and its pauses, and
// [Gate.Judge] says whether a procedure may start at a moment, what keeps it back, and until when. Of moments that a gate does not know it
// says so, and nothing may start.
package window

import (
	"fmt"
	"iter"
	"time"

	"github.com/harpcaller/harp/schedule"
)

// Span is a time from one moment to another, in UTC.
type Span struct {
	From time.Time
	To   time.Time // not in it any more; zero: there is no end
	Note string    // the SUMMARY of an event, or what a change of the clock did to the beginning
}

// Covers reports whether a moment is in the span.
func (s Span) Covers(at time.Time) bool {
	return !at.Before(s.From) && (s.To.IsZero() || at.Before(s.To))
}

// overlaps reports whether the span has a moment in [from, to).
func (s Span) overlaps(from, to time.Time) bool {
	return s.From.Before(to) && (s.To.IsZero() || s.To.After(from)) && from.Before(to)
}

// Source has spans of time. It never changes, and may be used by several goroutines.
type Source interface {
	// Between returns the spans that have a moment in [from, to), whole, by their
	// beginnings. They may overlap.
	Between(from, to time.Time) iter.Seq[Span]
}

// First returns the first span of a source that has a moment in [from, to), with those that follow it without time between them, and false if there
// is none. It has no end where that is not found within two years or 1,000 spans.
func First(source Source, from, to time.Time) (first Span, found bool) {
	for span := range source.Between(from, to) {
		return goOn(source, span), true
	}
	return Span{}, false
}

// maxJoined is how many spans that follow one another without time between them are looked at for their end.
const maxJoined = 1_000

// goOn returns a span with those of its source that follow it without time between them.
func goOn(source Source, span Span) Span {
	if span.To.IsZero() {
		return span
	}
	n, end := 0, span.To.AddDate(maxYears, 0, 0)
	for next := range source.Between(span.To, end) {
		switch n++; {
		case next.From.After(span.To):
			return span
		case next.To.IsZero() || n == maxJoined:
			span.To = time.Time{}
			return span
		case next.To.After(span.To):
			span.To = next.To
		}
	}
	if n > 0 && !span.To.Before(end) {
		span.To = time.Time{}
	}
	return span
}

// Once is a source of one span.
type Once struct {
	From time.Time
	To   time.Time // zero: it has no end
}

// Between returns the span if it has a moment in [from, to).
func (o Once) Between(from, to time.Time) iter.Seq[Span] {
	return func(yield func(Span) bool) {
		span := Span{From: o.From.UTC()}
		if !o.To.IsZero() {
			span.To = o.To.UTC()
		}
		if span.overlaps(from, to) {
			yield(span)
		}
	}
}

// Check says whether the span has a future. Errors: a [*FieldError] that names from if there is none, and to
// if it does not come after from and now.
func (o Once) Check(now time.Time) error {
	switch {
	case o.From.IsZero():
		return &FieldError{Field: "from", Message: "must be a time"}
	case o.To.IsZero():
		return nil
	case !o.To.After(o.From):
		return &FieldError{Field: "to", Message: "must be later than from"}
	case !o.To.After(now):
		return &FieldError{Field: "to", Message: "is past"}
	}
	return nil
}

// Recurring is a source of a span for each nominal time of a schedule.
type Recurring struct {
	Spec *schedule.Spec
	For  time.Duration // how long each lasts
}

// Between returns the spans that have a moment in [from, to), by their beginnings.
func (r Recurring) Between(from, to time.Time) iter.Seq[Span] {
	return func(yield func(Span) bool) {
		if r.For <= 0 || !from.Before(to) {
			return
		}
		for m := range r.Spec.Between(from.Add(1-r.For), to) {
			if !yield(Span{From: m.Nominal, To: m.Nominal.Add(r.For), Note: m.Note}) {
				return
			}
		}
	}
}

// mostAtOnce is how many occurrences of one schedule or event may cover one moment. It bounds what is looked at to find
// those that began before a time.
const mostAtOnce = 100

// Check says whether a window that is made now has a future. Errors: what [schedule.Spec.Check] returns; a [*FieldError]
// that names for if it is less than a second, or so long that more than 100 spans cover one moment.
func (r Recurring) Check(now time.Time) error {
	if r.For < time.Second {
		return &FieldError{Field: "for", Message: "must be one second or more"}
	}
	if err := r.Spec.Check(now); err != nil {
		return err
	}
	first, _ := r.Spec.Next(now.Add(-1))
	at, n := first, 1
	for ; n <= mostAtOnce; n++ {
		following, ok := r.Spec.Next(at.Nominal)
		if !ok || !following.Nominal.Before(first.Nominal.Add(r.For)) {
			return nil
		}
		at = following
	}
	return &FieldError{Field: "for", Message: fmt.Sprintf("%v is so long that more than %d spans of %s overlap", r.For, mostAtOnce, r.Spec)}
}

// FieldError says which field of a window is wrong, and what was expected.
type FieldError struct {
	Field   string // as one writes it: from, to, for
	Message string // what is wrong, or was expected
}

// Error names the field and says what was expected.
func (e *FieldError) Error() string { return "window: invalid " + e.Field + ": " + e.Message }
