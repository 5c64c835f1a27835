package window

import (
	"iter"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/harpcaller/harp/schedule"
)

// event is an event of a calendar that takes time.
type event struct {
	zone    *time.Location
	first   time.Time     // wall time
	length  time.Duration // on the wall clock
	rule    *rule         // nil: it does not repeat
	dates   []Span        // beside the rule's, by their beginnings
	without exclusions    // by EXDATE
	moved   exclusions    // by events of their own; those of one UID share it
	longest time.Duration // that a span may last
	note    string
}

// exclusion says which occurrence of an event is left out: that of a moment, that of a time on the clock of the event, or those of a day.
type exclusion struct {
	isDay, isWall bool
	number        int64 // seconds or days since 1970
}

type exclusions map[exclusion]bool

// longestShift is by how much more or less time passes between two moments than a wall clock shows.
const longestShift = 26 * time.Hour

// starting returns the spans that begin in [from, to): those of the rule, and then those of dates.
func (e *event) starting(from, to time.Time) iter.Seq[Span] {
	return func(yield func(Span) bool) {
		begin, end := schedule.ToWall(from, e.zone).Add(-longestShift), schedule.ToWall(to, e.zone).Add(longestShift)
		for wall := range e.walls(begin, end) {
			at := schedule.FromWall(wall, e.zone)
			if at.Before(from) || !at.Before(to) || e.leavesOut(at, wall) {
				continue
			}
			if !yield(e.span(wall)) {
				return
			}
		}
		i, _ := slices.BinarySearchFunc(e.dates, from, func(s Span, t time.Time) int { return s.From.Compare(t) })
		for _, span := range e.dates[i:] {
			if !span.From.Before(to) || !yield(span) {
				return
			}
		}
	}
}

// walls returns the wall times at which it begins, without those of dates.
func (e *event) walls(from, to time.Time) iter.Seq[time.Time] {
	if e.rule != nil {
		return e.rule.starts(e.first, from, to)
	}
	return func(yield func(time.Time) bool) {
		if !e.first.Before(from) && e.first.Before(to) {
			yield(e.first)
		}
	}
}

func (e *event) span(wall time.Time) Span {
	return Span{From: schedule.FromWall(wall, e.zone), To: schedule.FromWall(wall.Add(e.length), e.zone), Note: e.note}
}

func (e *event) leavesOut(moment, wall time.Time) bool {
	return e.without.have(moment, wall) || e.moved.have(moment, wall)
}

func (x exclusions) have(moment, wall time.Time) bool {
	return len(x) > 0 && (x[exclusion{number: moment.Unix()}] || x[exclusion{isWall: true, number: wall.Unix()}] || x[dayExclusion(wall)])
}

func dayExclusion(wall time.Time) exclusion {
	year, month, ofMonth := wall.Date()
	return exclusion{isDay: true, number: int64(numberOf(year, month, ofMonth))}
}

// eventProperties are those that say when an event is, or whether it is meant.
var eventProperties = map[string]bool{
	"UID": true, "SUMMARY": true, "STATUS": true, "SEQUENCE": true, "RECURRENCE-ID": true,
	"DTSTART": true, "DTEND": true, "DURATION": true, "RRULE": true, "EXRULE": true, "RDATE": true, "EXDATE": true,
}

func (raw rawEvent) find(name string) (property, bool) {
	for _, p := range raw.properties {
		if p.name == name {
			return p, true
		}
	}
	return property{}, false
}

// text returns the value of a property, empty if there is none. Errors: that the property is broken.
func (raw rawEvent) text(name string) (string, error) {
	p, ok := raw.find(name)
	if !ok {
		return "", nil
	}
	v, err := p.parse()
	return v.text, err
}

// uid returns what an event and those for its occurrences have in common.
func (raw rawEvent) uid() string {
	uid, _ := raw.text("UID") // a broken one is found as the event is built
	return uid
}

func (raw rawEvent) summary() (string, error) {
	text, err := raw.text("SUMMARY")
	return strings.ToValidUTF8(unescape(text), "\uFFFD"), err
}

// isSelected reports whether the SUMMARY is like a pattern. One that is broken may be: so the file is refused for it.
func (raw rawEvent) isSelected(pattern string) bool {
	summary, err := raw.summary()
	return pattern == "" || err != nil || MatchGlob(pattern, summary)
}

// eventBuilder makes events of what stands in a file.
type eventBuilder struct {
	zones    *zones
	replaced map[string]replacements // by UID: occurrences that have an event of their own
	latest   map[recurrence]version  // of those events
}

// replacements are the occurrences of one UID, as an event of times knows them and as one of whole days does.
type replacements struct{ ofTimes, ofDays exclusions }

// recurrence is an occurrence of an event.
type recurrence struct {
	uid string
	at  exclusion
}

// version is one of several events for an occurrence. That of the highest SEQUENCE is meant, and the later one of two.
type version struct{ sequence, index int }

func newEventBuilder(z *zones) *eventBuilder {
	return &eventBuilder{zones: z, replaced: map[string]replacements{}, latest: map[recurrence]version{}}
}

// readReplacement notes an event that stands for an occurrence of another one.
func (b *eventBuilder) readReplacement(index int, raw rawEvent) error {
	p, ok := raw.find("RECURRENCE-ID")
	if !ok {
		return nil
	}
	v, err := p.parse()
	if err != nil {
		return err
	}
	if v.scope != "" {
		return p.errorf("RANGE=%s changes all later occurrences, which is not supported", shorten(v.scope))
	}
	at, err := b.exclusion(v, v.text)
	if err != nil {
		return err
	}
	uid := raw.uid()
	if b.replaced[uid].ofTimes == nil {
		b.replaced[uid] = replacements{exclusions{}, exclusions{}}
	}
	b.replaced[uid].ofTimes[at] = true
	b.replaced[uid].ofDays[at.asDay(b.zones.none)] = true
	text, err := raw.text("SEQUENCE")
	if err != nil {
		return err
	}
	sequence, _ := strconv.Atoi(text) // none is 0
	key := recurrence{uid, at}
	if before, ok := b.latest[key]; !ok || sequence >= before.sequence {
		b.latest[key] = version{sequence, index}
	}
	return nil
}

// isReplaced reports whether another event stands for the same occurrence as this one.
func (b *eventBuilder) isReplaced(index int, raw rawEvent) bool {
	p, ok := raw.find("RECURRENCE-ID")
	if !ok {
		return false
	}
	v, err := p.parse()
	if err != nil {
		return false
	}
	at, err := b.exclusion(v, v.text)
	return err == nil && b.latest[recurrence{raw.uid(), at}].index != index
}

// exclusion reads an item of EXDATE or RECURRENCE-ID.
func (b *eventBuilder) exclusion(v value, text string) (exclusion, error) {
	t, err := b.readTime(v, text)
	switch {
	case err != nil:
		return exclusion{}, err
	case t.isDate:
		return dayExclusion(t.wall), nil
	case t.isFloating:
		return exclusion{isWall: true, number: t.wall.Unix()}, nil
	}
	return exclusion{number: t.moment().Unix()}, nil
}

// build makes an event. It returns false for one that was cancelled or takes no time.
func (b *eventBuilder) build(raw rawEvent) (event, bool, error) {
	values, err := raw.values()
	if err != nil {
		return event{}, false, err
	}
	if strings.EqualFold(values["STATUS"].text, "CANCELLED") {
		return event{}, false, nil
	}
	start, ok := values["DTSTART"]
	if !ok {
		return event{}, false, lineError(raw.line, "VEVENT", "has no DTSTART")
	}
	first, err := b.readTime(start, start.text)
	if err != nil {
		return event{}, false, err
	}
	e := event{zone: first.zone, first: first.wall, without: exclusions{}, note: shorten(unescape(values["SUMMARY"].text))}
	if e.length, err = b.readLength(values, first); err != nil {
		return event{}, false, err
	}
	_, isReplacement := values["RECURRENCE-ID"]
	if err := b.readRule(&e, values["RRULE"], isReplacement); err != nil {
		return event{}, false, err
	}
	switch {
	case isReplacement:
	case first.isDate:
		e.moved = b.replaced[raw.uid()].ofDays
	default:
		e.moved = b.replaced[raw.uid()].ofTimes
	}
	if err := b.readDates(&e, raw, first.isDate); err != nil {
		return event{}, false, err
	}
	e.longest += e.length + longestShift
	return e, e.length > 0 || e.dates != nil, nil
}

// values takes the properties apart, of which but SUMMARY, RDATE and EXDATE there may be one each.
func (raw rawEvent) values() (map[string]value, error) {
	all := map[string]value{}
	for _, p := range raw.properties {
		switch _, twice := all[p.name]; {
		case p.name == "RDATE" || p.name == "EXDATE":
			continue
		case p.name == "EXRULE":
			return nil, p.errorf("is not supported; EXDATE is")
		case twice && p.name != "SUMMARY":
			return nil, p.errorf("stands in the event twice")
		}
		v, err := p.parse()
		if err != nil {
			return nil, err
		}
		all[p.name] = v
	}
	return all, nil
}

// asDay returns the day of an occurrence, by which one of a whole-day event is known.
func (x exclusion) asDay(zone *time.Location) exclusion {
	switch {
	case x.isDay:
		return x
	case x.isWall:
		return dayExclusion(time.Unix(x.number, 0).UTC())
	}
	return dayExclusion(schedule.ToWall(time.Unix(x.number, 0), zone))
}

// readLength returns how long an event is on the wall clock of its beginning.
func (b *eventBuilder) readLength(values map[string]value, first eventTime) (time.Duration, error) {
	end, hasEnd := values["DTEND"]
	duration, hasDuration := values["DURATION"]
	switch {
	case hasEnd && hasDuration:
		return 0, duration.errorf("and DTEND exclude each other")
	case hasDuration:
		length, ok := parseDuration(duration.text)
		if !ok {
			return 0, duration.errorf("%q is no duration such as PT1H30M or P2D", shorten(duration.text))
		}
		return length, nil
	case !hasEnd && first.isDate:
		return 24 * time.Hour, nil
	case !hasEnd:
		return 0, nil
	}
	last, err := b.readTime(end, end.text)
	switch {
	case err != nil:
		return 0, err
	case last.isDate != first.isDate:
		return 0, end.errorf("must be a date if DTSTART is one, and else a time")
	}
	wall := last.wallIn(first.zone)
	switch {
	case wall.Before(first.wall):
		return 0, end.errorf("is before DTSTART")
	case first.isDate && wall.Equal(first.wall): // as programs write it that take DTEND for the last day
		return 24 * time.Hour, nil
	case wall.After(first.wall.AddDate(searchedYears, 0, 0)):
		return 0, end.errorf("is more than %d years after DTSTART", searchedYears)
	}
	return wall.Sub(first.wall), nil
}

func (b *eventBuilder) readRule(e *event, v value, isReplacement bool) error {
	switch {
	case v.name == "":
		return nil
	case isReplacement:
		return v.errorf("an event with RECURRENCE-ID is one occurrence and cannot repeat")
	}
	read, err := parseRule(v.text)
	if err != nil {
		return v.errorf("%v", err)
	}
	full, err := read.complete(e.first)
	if err != nil {
		return v.errorf("%v", err)
	}
	if read.until != "" {
		last, err := b.readTime(value{property: v.property}, read.until)
		if err != nil {
			return err
		}
		if full.until = last.wallIn(e.zone); last.isDate {
			full.until = last.wall.AddDate(0, 0, 1).Add(-1)
		}
	}
	if err := full.bound(e.first); err != nil {
		return v.errorf("%v", err)
	}
	e.rule = &full
	n := 0
	for range full.starts(e.first, e.first, e.first.Add(e.length)) {
		if n++; n > mostAtOnce {
			return v.errorf("the event is so long that more than %d occurrences overlap", mostAtOnce)
		}
	}
	return nil
}

// readDates reads RDATE and EXDATE.
func (b *eventBuilder) readDates(e *event, raw rawEvent, wholeDay bool) error {
	for _, p := range raw.properties {
		if p.name != "RDATE" && p.name != "EXDATE" {
			continue
		}
		v, err := p.parse()
		if err != nil {
			return err
		}
		for item := range strings.SplitSeq(v.text, ",") {
			if p.name == "EXDATE" {
				x, err := b.exclusion(v, item)
				if err != nil {
					return err
				}
				if wholeDay {
					x = x.asDay(e.zone)
				}
				e.without[x] = true
				continue
			}
			span, err := b.readDate(e, v, item, wholeDay)
			if err != nil {
				return err
			}
			e.dates = append(e.dates, span)
			e.longest = max(e.longest, span.To.Sub(span.From))
		}
	}
	e.dates = slices.DeleteFunc(e.dates, func(s Span) bool { return e.leavesOut(s.From, schedule.ToWall(s.From, e.zone)) })
	slices.SortFunc(e.dates, func(a, b Span) int { return a.From.Compare(b.From) })
	return nil
}

// readDate reads an item of RDATE: a date or time, as DTSTART is, or a period.
func (b *eventBuilder) readDate(e *event, v value, text string, wholeDay bool) (Span, error) {
	begin, end, isPeriod := strings.Cut(text, "/")
	t, err := b.readDateTime(e, v, begin)
	switch {
	case err != nil:
		return Span{}, err
	case t.isDate != wholeDay || t.isDate && isPeriod:
		return Span{}, v.errorf("must have dates if DTSTART is one, and else times or periods")
	case !isPeriod:
		return e.span(t.wallIn(e.zone)), nil
	}
	span := Span{From: t.moment(), Note: e.note}
	if length, ok := parseDuration(end); ok {
		span.To = schedule.FromWall(t.wall.Add(length), t.zone)
		return span, nil
	}
	last, err := b.readDateTime(e, v, end)
	if err != nil {
		return Span{}, err
	}
	if span.To = last.moment(); span.To.Before(span.From) || span.To.After(span.From.AddDate(searchedYears, 0, 0)) {
		return Span{}, v.errorf("%q is no period", shorten(text))
	}
	return span, nil
}

// readDateTime is readTime for a time that is on the clock of the event where it names no zone.
func (b *eventBuilder) readDateTime(e *event, v value, text string) (eventTime, error) {
	t, err := b.readTime(v, text)
	if t.isFloating {
		t.zone = e.zone
	}
	return t, err
}
