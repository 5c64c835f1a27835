package window

import (
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"
	"time"
)

// rule is a RRULE: a set of days and times of day for every so many days, weeks, months or years. It knows wall times only, which
// are written as times in UTC.
//
// The days of a period are all its days that every part which names days lets through; where none does, those that
// are like DTSTART. RFC 5545 calls some parts expanding and some limiting, which comes to the same.
type rule struct {
	freq      frequency
	interval  int
	count     int       // 0: no bound
	until     time.Time // the last wall time that may be; zero: no bound
	weekStart time.Weekday

	months    []int // of BYMONTH
	weeks     []int // of BYWEEKNO
	yearDays  []int
	monthDays []int
	weekdays  []nthWeekday
	times     []time.Duration // of the day, in their order
	positions []int           // of BYSETPOS
}

// nthWeekday is an item of BYDAY: the nth weekday of its month or year, from its end if n is negative; 0: each.
type nthWeekday struct {
	n   int
	day time.Weekday
}

type frequency uint8

const (
	daily frequency = iota
	weekly
	monthly
	yearly
)

var frequencies = map[string]frequency{"DAILY": daily, "WEEKLY": weekly, "MONTHLY": monthly, "YEARLY": yearly}

var weekdays = map[string]time.Weekday{
	"SU": time.Sunday, "MO": time.Monday, "TU": time.Tuesday, "WE": time.Wednesday, "TH": time.Thursday, "FR": time.Friday, "SA": time.Saturday,
}

// What a rule may ask for.
const (
	maxInterval = 10_000
	maxCount    = 10_000
	maxTimes    = 24 // times of a day
)

// ruleReader reads the parts of a rule.
type ruleReader struct {
	rule    rule
	seen    map[string]bool
	hours   []int
	minutes []int
	seconds []int
	until   string
}

// parseRule reads a RRULE. What UNTIL says is kept as it is written, since it may be in another zone.
func parseRule(text string) (*ruleReader, error) {
	r := &ruleReader{rule: rule{interval: 1, weekStart: time.Monday}, seen: map[string]bool{}}
	for part := range strings.SplitSeq(strings.TrimSuffix(text, ";"), ";") {
		name, values, ok := strings.Cut(strings.ToUpper(part), "=")
		switch {
		case !ok || values == "":
			return nil, fmt.Errorf("%q is no part of a rule, such as FREQ=WEEKLY", shorten(part))
		case r.seen[name]:
			return nil, fmt.Errorf("%s stands in it twice", name)
		}
		if err := r.readPart(name, values); err != nil {
			return nil, err
		}
		r.seen[name] = true
	}
	return r, r.check()
}

func (r *ruleReader) readPart(name, values string) (err error) {
	switch name {
	case "FREQ":
		freq, ok := frequencies[values]
		if !ok {
			return fmt.Errorf("FREQ is %q, and must be DAILY, WEEKLY, MONTHLY or YEARLY", shorten(values))
		}
		r.rule.freq = freq
	case "INTERVAL":
		r.rule.interval, err = readNumber(name, values, 1, maxInterval)
	case "COUNT":
		r.rule.count, err = readNumber(name, values, 1, maxCount)
	case "UNTIL":
		r.until = values
	case "WKST":
		day, ok := weekdays[values]
		if !ok {
			return fmt.Errorf("WKST is %q, and must be a weekday such as MO", shorten(values))
		}
		r.rule.weekStart = day
	case "BYMONTH":
		r.rule.months, err = readNumbers(name, values, 1, 12, false)
	case "BYWEEKNO":
		r.rule.weeks, err = readNumbers(name, values, 1, 53, true)
	case "BYYEARDAY":
		r.rule.yearDays, err = readNumbers(name, values, 1, 366, true)
	case "BYMONTHDAY":
		r.rule.monthDays, err = readNumbers(name, values, 1, 31, true)
	case "BYDAY":
		r.rule.weekdays, err = readWeekdays(values)
	case "BYHOUR":
		r.hours, err = readNumbers(name, values, 0, 23, false)
	case "BYMINUTE":
		r.minutes, err = readNumbers(name, values, 0, 59, false)
	case "BYSECOND":
		r.seconds, err = readNumbers(name, values, 0, 59, false)
	case "BYSETPOS":
		r.rule.positions, err = readNumbers(name, values, 1, 366, true)
	default:
		return fmt.Errorf("%.20q is no part that is known", name)
	}
	return err
}

func readNumber(name, text string, low, high int) (int, error) {
	n, err := strconv.Atoi(text)
	if err != nil || n < low || n > high || text[0] == '+' {
		return 0, fmt.Errorf("%s is %q, and must be in %d to %d", name, shorten(text), low, high)
	}
	return n, nil
}

// maxItems is how many numbers a list may have.
const maxItems = 400

// readNumbers reads a list. If it may be signed, its numbers may count from the end.
func readNumbers(name, text string, low, high int, signed bool) (list []int, err error) {
	for item := range strings.SplitSeq(text, ",") {
		digits, sign := item, 1
		if signed {
			var negative bool
			if digits, negative = strings.CutPrefix(item, "-"); negative {
				sign = -1
			} else {
				digits = strings.TrimPrefix(item, "+")
			}
		}
		if digits == "" || len(list) == maxItems || digits[0] == '-' {
			return nil, fmt.Errorf("%s is %q, and must be numbers in %d to %d", name, shorten(text), low, high)
		}
		n, err := readNumber(name, digits, low, high)
		if err != nil {
			return nil, err
		}
		list = append(list, sign*n)
	}
	return list, nil
}

func readWeekdays(text string) (list []nthWeekday, err error) {
	for item := range strings.SplitSeq(text, ",") {
		day, ok := weekdays[item[max(len(item)-2, 0):]]
		if !ok || len(list) == maxItems {
			return nil, fmt.Errorf("BYDAY is %q, and must be weekdays such as MO, 2TU or -1FR", shorten(text))
		}
		nth := []int{0}
		if number := item[:len(item)-2]; number != "" {
			if nth, err = readNumbers("BYDAY", number, 1, 53, true); err != nil {
				return nil, err
			}
		}
		list = append(list, nthWeekday{nth[0], day})
	}
	return list, nil
}

// check refuses parts that do not belong together, as RFC 5545 does.
func (r *ruleReader) check() error {
	numbered, most := false, 0
	for _, w := range r.rule.weekdays {
		numbered = numbered || w.n != 0
		most = max(most, w.n, -w.n)
	}
	freq := r.rule.freq
	switch {
	case !r.seen["FREQ"]:
		return fmt.Errorf("FREQ is missing")
	case r.seen["COUNT"] && r.seen["UNTIL"]:
		return fmt.Errorf("COUNT and UNTIL exclude each other")
	case r.seen["BYWEEKNO"] && freq != yearly:
		return fmt.Errorf("BYWEEKNO belongs to FREQ=YEARLY")
	case r.seen["BYYEARDAY"] && freq != yearly:
		return fmt.Errorf("BYYEARDAY belongs to FREQ=YEARLY")
	case r.seen["BYMONTHDAY"] && freq == weekly:
		return fmt.Errorf("BYMONTHDAY does not go with FREQ=WEEKLY")
	case numbered && (freq < monthly || r.seen["BYWEEKNO"]):
		return fmt.Errorf("a number in BYDAY belongs to FREQ=MONTHLY, or YEARLY without BYWEEKNO")
	case most > 5 && (freq == monthly || r.seen["BYMONTH"]):
		return fmt.Errorf("a month has at most 5 of a weekday, and BYDAY asks for number %d", most)
	}
	return nil
}

// complete fills in from DTSTART what the rule does not say.
func (r *ruleReader) complete(start time.Time) (rule, error) {
	full := r.rule
	hour, minute, second := start.Clock()
	hours, minutes, seconds := orElse(r.hours, hour), orElse(r.minutes, minute), orElse(r.seconds, second)
	if len(hours)*len(minutes)*len(seconds) > maxTimes {
		return rule{}, fmt.Errorf("asks for more than %d times a day", maxTimes)
	}
	for _, h := range hours {
		for _, m := range minutes {
			for _, s := range seconds {
				full.times = append(full.times, time.Duration(h)*time.Hour+time.Duration(m)*time.Minute+time.Duration(s)*time.Second)
			}
		}
	}
	slices.Sort(full.times)
	full.times = slices.Compact(full.times)
	if full.namesDays() {
		return full, nil
	}
	switch {
	case full.freq == weekly || full.weeks != nil:
		full.weekdays = []nthWeekday{{day: start.Weekday()}}
	case full.freq == yearly:
		full.months = orElse(full.months, int(start.Month()))
		full.monthDays = []int{start.Day()}
	case full.freq == monthly:
		full.monthDays = []int{start.Day()}
	}
	return full, nil
}

func orElse(list []int, n int) []int {
	if list == nil {
		return []int{n}
	}
	return list
}

// namesDays reports whether a part says which days of a period are meant.
func (r *rule) namesDays() bool {
	return r.weekdays != nil || r.monthDays != nil || r.yearDays != nil
}

// starts returns the wall times of the rule in [from, to), in their order. first is the DTSTART; it counts as the first
// occurrence even if the rule does not fit it.
func (r *rule) starts(first, from, to time.Time) iter.Seq[time.Time] {
	return func(yield func(time.Time) bool) {
		if !first.Before(from) && first.Before(to) && !r.isPast(first) && !yield(first) {
			return
		}
		var walls []time.Time
		for k := r.skip(first, from); ; k++ {
			p, ok := r.period(first, k)
			if !ok || r.isPast(p.begin()) || !p.begin().Before(to) {
				return
			}
			walls = r.appendPeriod(walls[:0], p)
			for _, wall := range walls {
				switch {
				case !wall.After(first) || wall.Before(from):
				case r.isPast(wall) || !wall.Before(to) || !yield(wall):
					return
				}
			}
		}
	}
}

// searchedYears are those behind DTSTART in which a rule must fit once, and come to its COUNT.
const searchedYears = 100

// bound replaces COUNT by the last wall time, and refuses a rule that never fits.
func (r *rule) bound(first time.Time) error {
	end := first.AddDate(searchedYears, 0, 0)
	if !r.isEverDue(first, end) {
		return fmt.Errorf("never fits in %d years", searchedYears)
	}
	if r.count == 0 {
		return nil
	}
	n := 0
	for wall := range r.starts(first, first, end) {
		if n++; n == r.count {
			r.until = wall
			return nil
		}
	}
	return fmt.Errorf("does not come to its COUNT in %d years", searchedYears)
}

// isEverDue reports whether the rule has a time from DTSTART on.
func (r *rule) isEverDue(first, end time.Time) bool {
	var walls []time.Time
	for k := 0; ; k++ {
		p, ok := r.period(first, k)
		if !ok || p.begin().After(end) {
			return false
		}
		if walls = r.appendPeriod(walls[:0], p); len(walls) > 0 && !walls[len(walls)-1].Before(first) {
			return true
		}
	}
}

func (r *rule) isPast(wall time.Time) bool { return !r.until.IsZero() && wall.After(r.until) }

// appendPeriod appends the wall times of a period to an empty slice.
func (r *rule) appendPeriod(walls []time.Time, p period) []time.Time {
	d := p.first
	for range p.days {
		if r.fits(d) {
			for _, of := range r.times {
				walls = append(walls, time.Unix(int64(d.number)*secondsOfDay, 0).UTC().Add(of))
			}
		}
		d = d.next()
	}
	if r.positions == nil {
		return walls
	}
	var chosen []int
	for _, n := range r.positions {
		if n < 0 {
			n += len(walls) + 1
		}
		if 1 <= n && n <= len(walls) {
			chosen = append(chosen, n-1)
		}
	}
	slices.Sort(chosen)
	chosen = slices.Compact(chosen)
	for i, from := range chosen {
		walls[i] = walls[from] // from is not less than i
	}
	return walls[:len(chosen)]
}

// fits reports whether every part that names days lets a day through.
func (r *rule) fits(d day) bool {
	return (r.months == nil || slices.Contains(r.months, d.month)) &&
		(r.monthDays == nil || containsEither(r.monthDays, d.ofMonth, d.ofMonth-d.monthLength-1)) &&
		(r.yearDays == nil || containsEither(r.yearDays, d.ofYear, d.ofYear-d.yearLength-1)) &&
		(r.weekdays == nil || r.fitsWeekday(d)) &&
		(r.weeks == nil || r.fitsWeek(d))
}

func containsEither(list []int, fromStart, fromEnd int) bool {
	return slices.Contains(list, fromStart) || slices.Contains(list, fromEnd)
}

func (r *rule) fitsWeek(d day) bool {
	fromStart, fromEnd := d.week(r.weekStart)
	return containsEither(r.weeks, fromStart, fromEnd)
}

func (r *rule) fitsWeekday(d day) bool {
	index, length := d.ofMonth, d.monthLength
	if r.freq == yearly && r.months == nil {
		index, length = d.ofYear, d.yearLength
	}
	for _, w := range r.weekdays {
		if w.day == d.weekday && (w.n == 0 || w.n == (index+6)/7 || w.n == -(length-index+7)/7) {
			return true
		}
	}
	return false
}
