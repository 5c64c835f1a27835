// Package schedule says at which moments a schedule fires:
//
//	30 2 * * *              five fields of cron: minute, hour, day of month, month, day of week
//	*/10 30 2 * * *         six: seconds first
//	30 2 1 1 * 2027-2030    six: a year last, if it has four digits
//	0 30 2 1 1 * 2027       seven: both
//	0 9 L * MON#1           names, lists, ranges, steps, and L, W and #
//	@daily                  also @hourly, @midnight, @weekly, @monthly, @yearly, @annually
//	every 90m               by elapsed time, from a beginning on
//	at 2027-03-01 02:00     once
//
// [Parse] reads one, for a time zone and with [Rules]. [Spec.Next], [Spec.Prev] and [Spec.Between]
// tell its moments. Nothing in this package reads a clock: what is asked depends on its arguments and on
// the time zone database alone. A program that may run where there is none imports time/tzdata.
//
// # Days
//
// As in Vixie's cron, a day of month and a day of week that are both restricted are joined by OR:
// "0 9 1 * MON" is each first day of a month and each Monday. A field that begins with * restricts
// nothing in this sense, and they are joined by AND: "0 9 */2 * MON" is each Monday with an odd day. L is the last
// day of the month, 15W the working day nearest to the 15th within its month, FRI#2 the second Friday and FRIL the last.
//
// # When clocks change
//
// A wall time that a clock leaves out is in a gap; one that it shows twice is repeated. By default
// it depends on the expression what happens then, as people expect it:
//
//	the hour begins with *                 intervals: nothing for the gap, each repeated time twice
//	else, minutes or seconds begin with *  once for the gap, at its end; each repeated time twice
//	any other, and at                      once for the gap, at its end; a repeated time the first time
//
// [Gap] and [Repeat] set one rule for every expression. Several wall times that come to one moment are
// one moment, whose Note names them. "every" knows no wall clock.
//
// [ToWall] and [FromWall] map moments to wall times and back, for what is no expression.
//
// [ReadCrontab] reads the tables of cron.
package schedule

import (
	"fmt"
	"iter"
	"strings"
	"time"
)

// Gap says what becomes of a wall time that a clock leaves out.
type Gap string

// The rules for gaps.
const (
	GapByExpression Gap = ""      // what the package's comment says, by how the expression begins
	GapAfter        Gap = "after" // the moment at which the gap ends
	GapSkip         Gap = "skip"  // nothing
)

// Repeat says what becomes of a wall time that a clock shows twice.
type Repeat string

// The rules for repeated times.
const (
	RepeatByExpression Repeat = ""      // what the package's comment says, by how the expression begins
	RepeatFirst        Repeat = "first" // the first time only
	RepeatBoth         Repeat = "both"  // each time
	RepeatLast         Repeat = "last"  // the last time only
)

// Rules bound and shift the moments of an expression. The zero value does neither.
type Rules struct {
	Name   string        // of the schedule, which decides its jitter
	From   time.Time     // the first nominal time that may be; zero: no bound
	Until  time.Time     // the first that may not be any more; zero: no bound
	Jitter time.Duration // each moment comes later than its nominal time by a part of it
	Gap    Gap
	Repeat Repeat
}

// Spec is an expression that was parsed. It never changes, and may be used by several goroutines.
type Spec struct {
	text   string
	rules  Rules
	zone   *time.Location
	source source
}

// source finds the nominal times of an expression.
type source interface {
	// next returns the first fire after a time.
	next(after time.Time) (fire, bool)
}

// fire is a nominal time, and what is to be said of it.
type fire struct {
	at   time.Time
	note string
}

// Moment is a time at which a schedule fires.
type Moment struct {
	Time    time.Time // when it fires, in UTC: Nominal and the jitter
	Nominal time.Time // when it is to fire, in UTC; by this time it is known
	Wall    string    // Nominal as a clock in the schedule's zone shows it: "Sun 2027-03-28 03:00 CEST"
	Note    string    // what a change of the clock did to it, else empty
}

// maxText is how long an expression may be.
const maxText = 1024

// Parse reads an expression for a time zone of the IANA database; none is UTC. Errors: a [*FieldError] that
// names cron (the text), tz, until, jitter, gap or repeat. What is well written and can still never
// fire is found by [Spec.Check].
func Parse(text, zone string, rules Rules) (*Spec, error) {
	loc, err := LoadZone(zone)
	if err != nil {
		return nil, err
	}
	if err := rules.check(); err != nil {
		return nil, err
	}
	s := &Spec{text: strings.TrimSpace(text), rules: rules, zone: loc}
	s.source, err = s.parseSource()
	if err != nil {
		return nil, err
	}
	return s, nil
}

func (r Rules) check() error {
	switch r.Gap {
	case GapByExpression, GapAfter, GapSkip:
	default:
		return &FieldError{Field: "gap", Message: fmt.Sprintf("%q is neither after nor skip", r.Gap)}
	}
	switch r.Repeat {
	case RepeatByExpression, RepeatFirst, RepeatBoth, RepeatLast:
	default:
		return &FieldError{Field: "repeat", Message: fmt.Sprintf("%q is neither first, both nor last", r.Repeat)}
	}
	if r.Jitter < 0 {
		return &FieldError{Field: "jitter", Message: fmt.Sprintf("%v is less than nothing", r.Jitter)}
	}
	if !r.From.IsZero() && !r.Until.IsZero() && !r.Until.After(r.From) {
		return &FieldError{Field: "until", Message: "must be later than from"}
	}
	return nil
}

func (s *Spec) parseSource() (source, error) {
	word, rest, _ := strings.Cut(s.text, " ")
	switch {
	case s.text == "":
		return nil, cronError("", "must be an expression such as 30 2 * * *, @daily, every 90m or at 2027-03-01 02:00")
	case len(s.text) > maxText:
		return nil, cronError("", "is longer than %d bytes", maxText)
	case word == "every":
		return parseInterval(rest, s.rules)
	case word == "at":
		wall, err := parseAt(rest)
		return s.onClock(wall, classPlain), err
	}
	e, err := parseCron(s.text)
	return s.onClock(e, e.class), err
}

// onClock maps wall times to moments of the schedule's zone.
func (s *Spec) onClock(times wallTimes, c class) *clock {
	gap, repeat := c.rules()
	if s.rules.Gap != GapByExpression {
		gap = s.rules.Gap
	}
	if s.rules.Repeat != RepeatByExpression {
		repeat = s.rules.Repeat
	}
	return &clock{zone: s.zone, times: times, gap: gap, repeat: repeat}
}

// String returns the expression as it was given.
func (s *Spec) String() string { return s.text }

// Zone returns the name of the time zone.
func (s *Spec) Zone() string { return s.zone.String() }

// Next returns the first moment whose nominal time is after a time, and false if there is none.
func (s *Spec) Next(after time.Time) (Moment, bool) {
	f, ok := s.next(after)
	if !ok {
		return Moment{}, false
	}
	return s.moment(f), true
}

func (s *Spec) next(after time.Time) (fire, bool) {
	if from := s.rules.From; !from.IsZero() && after.Before(from) {
		after = from.Add(-1)
	}
	f, ok := s.source.next(after)
	if until := s.rules.Until; ok && !until.IsZero() && !f.at.Before(until) {
		return fire{}, false
	}
	return f, ok
}

// farthest is how far back Prev looks.
const farthest = 100 * 366 * 24 * time.Hour

// Prev returns the last moment whose nominal time is before a time, and false if there is none in
// the hundred years before it.
func (s *Spec) Prev(before time.Time) (Moment, bool) {
	found, ok := s.before(before)
	if !ok {
		return Moment{}, false
	}
	// The last fire lies in [found, before): halve that until nothing else is in it.
	for later := before; ; {
		middle := found.at.Add(later.Sub(found.at) / 2)
		f, ok := s.next(middle)
		switch {
		case ok && f.at.Before(later):
			found = f
		case middle.Sub(found.at) < time.Second:
			return s.moment(found), true
		default:
			later = middle.Add(1)
		}
	}
}

// before returns any fire before a time, near to it.
func (s *Spec) before(before time.Time) (fire, bool) {
	for back := time.Minute; ; back *= 8 {
		f, ok := s.next(before.Add(-min(back, farthest)))
		if ok && f.at.Before(before) {
			return f, true
		}
		if back > farthest {
			return fire{}, false
		}
	}
}

// Between returns the moments whose nominal times are in [from, to), in their order.
func (s *Spec) Between(from, to time.Time) iter.Seq[Moment] {
	return func(yield func(Moment) bool) {
		for f, ok := s.next(from.Add(-1)); ok && f.at.Before(to); f, ok = s.next(f.at) {
			if !yield(s.moment(f)) {
				return
			}
		}
	}
}

// What Check looks at.
const (
	checkedYears = 8   // in which a schedule must fire; there may be no 29 February in seven
	checkedFires = 100 // whose jitter must not reach the next one
)

// Check says whether a schedule that begins now has a future. Errors: a [*FieldError] that names
// cron if it fires in no year from now to eight later, or only before now; until if
// that is what keeps it from firing; jitter if it reaches from one of the next hundred nominal times to the one after it.
func (s *Spec) Check(now time.Time) error {
	begin := now
	if s.rules.From.After(now) {
		begin = s.rules.From
	}
	f, ok := s.source.next(begin.Add(-1))
	switch {
	case !ok:
		return s.explainSilence(begin)
	case f.at.After(begin.AddDate(checkedYears, 0, 0)):
		return cronError("", "%q fires first at %s, more than %d years later", s.text, s.moment(f).Wall, checkedYears)
	}
	if until := s.rules.Until; !until.IsZero() && !f.at.Before(until) {
		return &FieldError{Field: "until", Message: "is before " + s.moment(f).Wall + ", when it would fire first"}
	}
	return s.checkJitter(f)
}

// explainSilence says why nothing fires from a time on any more.
func (s *Spec) explainSilence(begin time.Time) error {
	unbounded := *s
	unbounded.rules.From, unbounded.rules.Until = time.Time{}, time.Time{}
	if _, ok := unbounded.next(begin.Add(-farthest)); !ok {
		return cronError("", "%q never fires", s.text)
	}
	last, _ := unbounded.Prev(begin)
	return cronError("", "%q fires no more: %s was the last time", s.text, last.Wall)
}

func (s *Spec) checkJitter(f fire) error {
	for range checkedFires {
		if s.rules.Jitter == 0 {
			return nil
		}
		following, ok := s.next(f.at)
		if !ok {
			return nil
		}
		if !f.at.Add(s.rules.Jitter).Before(following.at) {
			return &FieldError{Field: "jitter", Message: fmt.Sprintf("%v reaches from %s to the next time, %v later", s.rules.Jitter, s.moment(f).Wall, following.at.Sub(f.at))}
		}
		f = following
	}
	return nil
}

func (s *Spec) moment(f fire) Moment {
	at := f.at.UTC()
	return Moment{Time: at.Add(jitter(s.rules.Name, at, s.rules.Jitter)), Nominal: at, Wall: formatWall(at.In(s.zone)), Note: f.note}
}

// FieldError says which field of a schedule is wrong, and what was expected.
type FieldError struct {
	Field   string // as one writes it: cron, tz, from, until, jitter, gap, repeat
	Part    string // which of a cron expression: second, minute, hour, day of month, month, day of week, year
	Message string // what is wrong, or was expected
}

// Error names the field and says what was expected.
func (e *FieldError) Error() string {
	if e.Part != "" {
		return "schedule: invalid " + e.Field + ": " + e.Part + ": " + e.Message
	}
	return "schedule: invalid " + e.Field + ": " + e.Message
}

func cronError(part, format string, args ...any) error {
	return &FieldError{Field: "cron", Part: part, Message: fmt.Sprintf(format, args...)}
}
