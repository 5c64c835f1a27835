package schedule

import (
	"math/bits"
	"strings"
	"time"
)

// days are those that an expression names. The zero value names none.
type days struct {
	ofMonth  uint64 // a bit for each, from the second one on
	isLast   bool   // L
	nearest  uint64 // those of 15W
	months   uint64
	weekdays uint64 // from Sunday on, which is also the eighth
	lastOf   uint64 // those of FRIL
	nth      [6]uint64
	either   bool     // a day of month or of week is enough
	years    []uint64 // a bit for each from 0 on; nil: all
}

// readDays reads the last four fields of an expression, in numbers.
func readDays(fields []string) days {
	d := days{
		ofMonth: parts[3].set(fields[0]), months: parts[4].set(fields[1]), weekdays: parts[5].set(fields[2]),
		either: fields[0][0] != '*' && fields[2][0] != '*',
	}
	for item := range strings.SplitSeq(fields[0], ",") {
		if item == "L" {
			d.isLast = true
		} else if day, nearest := strings.CutSuffix(item, "W"); nearest {
			n, _ := parseNumber(day)
			d.nearest |= 1 << n
		}
	}
	for item := range strings.SplitSeq(fields[2], ",") {
		if day, isLast := strings.CutSuffix(item, "L"); isLast {
			n, _ := parseNumber(day)
			d.lastOf |= 1 << n
		} else if day, which, isNth := strings.Cut(item, "#"); isNth {
			n, _ := parseNumber(day)
			nth, _ := parseNumber(which)
			d.nth[nth] |= 1 << n
		}
	}
	d.weekdays |= d.weekdays >> 7 & 1
	if fields[3] != "*" {
		d.years = make([]uint64, parts[6].max/64+1)
		for item := range strings.SplitSeq(fields[3], ",") {
			for year := range parts[6].values(item) {
				d.years[year/64] |= 1 << (year % 64)
			}
		}
	}
	return d
}

// weekdaysAgain is how many years it takes until the calendar, with the days of the week, is the same again.
const weekdaysAgain = 400

// next returns the first day from one on, as its midnight.
func (d *days) next(from time.Time) (time.Time, bool) {
	year, month, day := from.Date()
	last := parts[6].max
	if d.years == nil {
		last = min(last, year+weekdaysAgain)
	}
	for ; year <= last; year, month = year+1, time.January {
		if !d.hasYear(year) {
			day = 1
			continue
		}
		for ; month <= time.December; month, day = month+1, 1 {
			if d.months>>month&1 == 0 {
				continue
			}
			if n, found := nextIn(d.in(year, month), day); found {
				return time.Date(year, month, n, 0, 0, 0, 0, time.UTC), true
			}
		}
	}
	return time.Time{}, false
}

func (d *days) hasYear(year int) bool {
	return d.years == nil || year >= 0 && d.years[year/64]>>(year%64)&1 == 1
}

// in are the days of a month, a bit for each.
func (d *days) in(year int, month time.Month) (set uint64) {
	first := int(time.Date(year, month, 1, 0, 0, 0, 0, time.UTC).Weekday())
	last := time.Date(year, month+1, 0, 0, 0, 0, 0, time.UTC).Day()
	ofMonth, ofWeek := d.ofMonth, uint64(0)
	if d.isLast {
		ofMonth |= 1 << last
	}
	for left := d.nearest; left != 0; left &= left - 1 {
		ofMonth |= workday(bits.TrailingZeros64(left), first, last)
	}
	for day := 1; day <= last; day++ {
		weekdays := d.weekdays | d.nth[(day+6)/7]
		if day > last-7 {
			weekdays |= d.lastOf
		}
		ofWeek |= weekdays >> ((first + day - 1) % 7) & 1 << day
	}
	all := uint64(1)<<(last+1) - 2
	if d.either {
		return (ofMonth | ofWeek) & all
	}
	return ofMonth & ofWeek & all
}

// workday is the day from Monday to Friday nearest to a day of a month, as a bit; 0: the month has no such day. The weekday is that of the first.
func workday(day, first, last int) uint64 {
	switch weekday := (first + day - 1) % 7; {
	case day > last:
		return 0
	case weekday == int(time.Saturday) && day > 1:
		day--
	case weekday == int(time.Saturday):
		day += 2
	case weekday == int(time.Sunday) && day < last:
		day++
	case weekday == int(time.Sunday):
		day -= 2
	}
	return 1 << day
}
