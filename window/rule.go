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

	months    numbers // of BYMONTH
	weeks     numbers // of BYWEEKNO
	yearDays  numbers
	monthDays numbers
	weekdays  []numbers       // from Sunday on: which one of its month or year it is to be, from its end if negative; 0: each
	times     []time.Duration // of the day, in their order
	positions numbers         // of BYSETPOS
}

// numbers are those of a list, a bit for each: to ask for one costs the same however long the list is. The zero value is no list.
type numbers struct {
	most int // the least is below zero as far
	bits []uint64
}

func newNumbers(most int, list ...int) numbers {
	s := numbers{most, make([]uint64, (2*most+64)/64)}
	for _, n := range list {
		s.add(n)
	}
	return s
}

func (s numbers) isGiven() bool { return s.bits != nil }

func (s numbers) add(n int) { s.bits[(n+s.most)/64] |= 1 << ((n + s.most) % 64) }

func (s numbers) has(n int) bool {
	return s.bits != nil && -s.most <= n && n <= s.most && s.bits[(n+s.most)/64]>>((n+s.most)%64)&1 == 1
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
	maxWeeks    = 53 // of a year
)

// ruleReader reads the parts of a rule.
type ruleReader struct {
	rule    rule
	seen    map[string]bool
	hours   []int
	minutes []int
	seconds []int
	until   string
	mostNth int // of BYDAY, without its sign; 0: no item has a number
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
		r.rule.months, err = readSet(name, values, 12, false)
	case "BYWEEKNO":
		r.rule.weeks, err = readSet(name, values, maxWeeks, true)
	case "BYYEARDAY":
		r.rule.yearDays, err = readSet(name, values, 366, true)
	case "BYMONTHDAY":
		r.rule.monthDays, err = readSet(name, values, 31, true)
	case "BYDAY":
		err = r.readWeekdays(values)
	case "BYHOUR":
		r.hours, err = readNumbers(name, values, 0, 23, false)
	case "BYMINUTE":
		r.minutes, err = readNumbers(name, values, 0, 59, false)
	case "BYSECOND":
		r.seconds, err = readNumbers(name, values, 0, 59, false)
	case "BYSETPOS":
		r.rule.positions, err = readSet(name, values, 366, true)
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

// readSet is readNumbers, from 1 on, for a list that is asked for its numbers.
func readSet(name, text string, high int, signed bool) (numbers, error) {
	list, err := readNumbers(name, text, 1, high, signed)
	return newNumbers(high, list...), err
}

func (r *ruleReader) readWeekdays(text string) error {
	r.rule.weekdays = make([]numbers, 7)
	count := 0
	for item := range strings.SplitSeq(text, ",") {
		day, ok := weekdays[item[max(len(item)-2, 0):]]
		if count++; !ok || count > maxItems {
			return fmt.Errorf("BYDAY is %q, and must be weekdays such as MO, 2TU or -1FR", shorten(text))
		}
		nth := 0
		if number := item[:len(item)-2]; number != "" {
			list, err := readNumbers("BYDAY", number, 1, maxWeeks, true)
			if err != nil {
				return err
			}
			nth = list[0]
		}
		if !r.rule.weekdays[day].isGiven() {
			r.rule.weekdays[day] = newNumbers(maxWeeks)
		}
		r.rule.weekdays[day].add(nth)
		r.mostNth = max(r.mostNth, nth, -nth)
	}
	return nil
}

// check refuses parts that do not belong together, as RFC 5545 does.
func (r *ruleReader) check() error {
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
	case r.mostNth != 0 && (freq < monthly || r.seen["BYWEEKNO"]):
		return fmt.Errorf("a number in BYDAY belongs to FREQ=MONTHLY, or YEARLY without BYWEEKNO")
	case r.mostNth > 5 && (freq == monthly || r.seen["BYMONTH"]):
		return fmt.Errorf("a month has at most 5 of a weekday, and BYDAY asks for number %d", r.mostNth)
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
	case full.freq == weekly || full.weeks.isGiven():
		full.weekdays = make([]numbers, 7)
		full.weekdays[start.Weekday()] = newNumbers(maxWeeks, 0)
	case full.freq == yearly:
		if !full.months.isGiven() {
			full.months = newNumbers(12, int(start.Month()))
		}
		full.monthDays = newNumbers(31, start.Day())
	case full.freq == monthly:
		full.monthDays = newNumbers(31, start.Day())
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
	return r.weekdays != nil || r.monthDays.isGiven() || r.yearDays.isGiven()
}

// starts returns the wall times of the rule in [from, to), in their order. first is the DTSTART; it counts as the first
// occurrence even if the rule does not fit it.
func (r *rule) starts(first, from, to time.Time) iter.Seq[time.Time] {
	return func(yield func(time.Time) bool) {
		if !first.Before(from) && first.Before(to) && !r.isPast(first) && !yield(first) {
			return
		}
		var walls []time.Time
		for p := range r.periods(first, r.skip(first, from)) {
			if r.isPast(p.begin()) || !p.begin().Before(to) {
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
	for p := range r.periods(first, 0) {
		if p.begin().After(end) {
			return false
		}
		if walls = r.appendPeriod(walls[:0], p); len(walls) > 0 && !walls[len(walls)-1].Before(first) {
			return true
		}
	}
	return false
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
	if !r.positions.isGiven() {
		return walls
	}
	chosen := walls[:0]
	for i, wall := range walls {
		if r.positions.has(i+1) || r.positions.has(i-len(walls)) {
			chosen = append(chosen, wall)
		}
	}
	return chosen
}

// fits reports whether every part that names days lets a day through.
func (r *rule) fits(d day) bool {
	return (!r.months.isGiven() || r.months.has(d.month)) &&
		(!r.monthDays.isGiven() || r.monthDays.has(d.ofMonth) || r.monthDays.has(d.ofMonth-d.monthLength-1)) &&
		(!r.yearDays.isGiven() || r.yearDays.has(d.ofYear) || r.yearDays.has(d.ofYear-d.yearLength-1)) &&
		(r.weekdays == nil || r.fitsWeekday(d)) &&
		(!r.weeks.isGiven() || r.fitsWeek(d))
}

func (r *rule) fitsWeek(d day) bool {
	fromStart, fromEnd := d.week(r.weekStart)
	return r.weeks.has(fromStart) || r.weeks.has(fromEnd)
}

func (r *rule) fitsWeekday(d day) bool {
	index, length := d.ofMonth, d.monthLength
	if r.freq == yearly && !r.months.isGiven() {
		index, length = d.ofYear, d.yearLength
	}
	nth := r.weekdays[d.weekday]
	return nth.has(0) || nth.has((index+6)/7) || nth.has(-(length-index+7)/7)
}
