package window

import (
	"iter"
	"time"
)

const secondsOfDay = 24 * 60 * 60

// day is a day of the calendar.
type day struct {
	number      int // since 1970
	weekday     time.Weekday
	year        int
	month       int
	ofMonth     int // from 1
	ofYear      int // from 1
	monthLength int
	yearLength  int
}

// dayOf returns the day of a wall time.
func dayOf(wall time.Time) day {
	year, month, ofMonth := wall.Date()
	d := day{
		number: numberOf(year, month, ofMonth), weekday: wall.Weekday(), year: year, month: int(month), ofMonth: ofMonth,
		ofYear: wall.YearDay(), yearLength: lengthOf(year),
	}
	d.monthLength = numberOf(year, month+1, 1) - numberOf(year, month, 1)
	return d
}

func numberOf(year int, month time.Month, ofMonth int) int {
	seconds := time.Date(year, month, ofMonth, 0, 0, 0, 0, time.UTC).Unix()
	return int(seconds / secondsOfDay) // a whole number of days
}

func lengthOf(year int) int {
	return numberOf(year+1, time.January, 1) - numberOf(year, time.January, 1)
}

// next returns the day after it.
func (d day) next() day {
	if d.ofMonth == d.monthLength {
		return dayOf(time.Date(d.year, time.Month(d.month), d.ofMonth+1, 0, 0, 0, 0, time.UTC))
	}
	d.number++
	d.ofMonth++
	d.ofYear++
	d.weekday = (d.weekday + 1) % 7
	return d
}

// week returns the number of the day's week in its year, from the first one and from behind the last. The first week of a year is
// the first one that has four days of it.
func (d day) week(start time.Weekday) (fromStart, fromEnd int) {
	sinceStart := (int(d.weekday) - int(start) + 7) % 7
	// A week is of the year that its fourth day is in.
	fourth := d.ofYear - sinceStart + 3
	length := d.yearLength
	switch {
	case fourth < 1:
		length = lengthOf(d.year - 1)
		fourth += length
	case fourth > d.yearLength:
		fourth -= d.yearLength
		length = lengthOf(d.year + 1)
	}
	fromStart = (fourth + 6) / 7
	return fromStart, -((length-fourth)/7 + 1)
}

// period is what a rule looks at as a whole: a day, a week, a month or a year.
type period struct {
	first day
	days  int
}

func (p period) begin() time.Time { return time.Unix(int64(p.first.number)*secondsOfDay, 0).UTC() }

// lastYear is the last one that RFC 5545 can write.
const lastYear = 9999

// period returns the kth period that a rule looks at, from that of DTSTART on, and false past the end of time.
func (r *rule) period(first time.Time, k int) (period, bool) {
	year, month, ofMonth := first.Date()
	n := k * r.interval
	var begin, end time.Time
	switch r.freq {
	case daily:
		begin = time.Date(year, month, ofMonth+n, 0, 0, 0, 0, time.UTC)
		end = begin.AddDate(0, 0, 1)
	case weekly:
		sinceStart := (int(first.Weekday()) - int(r.weekStart) + 7) % 7
		begin = time.Date(year, month, ofMonth-sinceStart+7*n, 0, 0, 0, 0, time.UTC)
		end = begin.AddDate(0, 0, 7)
	case monthly:
		begin = time.Date(year, month+time.Month(n), 1, 0, 0, 0, 0, time.UTC)
		end = begin.AddDate(0, 1, 0)
	case yearly:
		begin = time.Date(year+n, time.January, 1, 0, 0, 0, 0, time.UTC)
		end = begin.AddDate(1, 0, 0)
	}
	return period{dayOf(begin), int(end.Sub(begin) / (24 * time.Hour))}, begin.Year() <= lastYear
}

// daysOf is how many days a period has that has always as many.
var daysOf = [...]int{daily: 1, weekly: 7, monthly: 0, yearly: 0}

// periods are those that a rule looks at from the kth one on. To find a day or a week from the one before it is a fraction of the work.
func (r *rule) periods(first time.Time, k int) iter.Seq[period] {
	days := daysOf[r.freq] * r.interval
	return func(yield func(period) bool) {
		p, ok := r.period(first, k)
		for ; ok && yield(p); k++ {
			if days == 0 || days > 31 {
				p, ok = r.period(first, k+1)
				continue
			}
			for range days {
				p.first = p.first.next()
			}
			ok = p.first.year <= lastYear
		}
	}
}

// skip returns the number of a period that ends before a wall time, or of the first one, so that nothing from that time on
// is in one before it.
func (r *rule) skip(first, from time.Time) int {
	if !from.After(first) {
		return 0
	}
	var periods int
	switch r.freq {
	case daily:
		periods = dayOf(from).number - dayOf(first).number
	case weekly:
		periods = (dayOf(from).number - dayOf(first).number) / 7
	case monthly:
		periods = 12*(from.Year()-first.Year()) + int(from.Month()-first.Month())
	case yearly:
		periods = from.Year() - first.Year()
	}
	return max(periods/r.interval-1, 0)
}
