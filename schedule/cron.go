package schedule

import (
	"iter"
	"math/bits"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// expression is a cron expression: sets of what its fields name, so that asking it costs the same whatever its text is. It is never told
// of a zone.
type expression struct {
	seconds, minutes, hours uint64 // a bit for each
	days                    days
	class                   class
}

// class is how an expression begins, which decides what a change of the clock does to it.
type class uint8

const (
	classPlain   class = iota
	classMinutes       // minutes or seconds begin with *
	classHours         // the hour does
)

// rules returns what is done at gaps and repeated times if nobody says otherwise.
func (c class) rules() (Gap, Repeat) {
	switch c {
	case classHours:
		return GapSkip, RepeatBoth
	case classMinutes:
		return GapAfter, RepeatBoth
	default:
		return GapAfter, RepeatFirst
	}
}

// weekdays is the name of the field whose 0 and 7 are the same.
const weekdays = "day of week"

// part is one of the seven fields of an expression.
type part struct {
	name     string
	min, max int
	steps    int      // what */n counts from
	names    []string // of its values from min on
	special  func(p part, item string) (string, bool)
}

var parts = [...]part{
	{name: "second", max: 59},
	{name: "minute", max: 59},
	{name: "hour", max: 23},
	{name: "day of month", min: 1, max: 31, steps: 1, special: part.specialDay},
	{name: "month", min: 1, max: 12, steps: 1, names: []string{"JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"}},
	{name: weekdays, max: 7, names: []string{"SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"}, special: part.specialWeekday},
	{name: "year", min: 1970, max: 9999},
}

var macros = map[string]string{
	"@yearly": "0 0 1 1 *", "@annually": "0 0 1 1 *", "@monthly": "0 0 1 * *", "@weekly": "0 0 * * 0",
	"@daily": "0 0 * * *", "@midnight": "0 0 * * *", "@hourly": "0 * * * *",
}

var yearLike = regexp.MustCompile(`[0-9]{4}`)

func parseCron(text string) (expression, error) {
	fields, err := splitCron(text)
	if err != nil {
		return expression{}, err
	}
	for i, field := range fields {
		fields[i], err = parts[i].parse(strings.ToUpper(field))
		if err != nil {
			return expression{}, err
		}
	}
	e := expression{seconds: parts[0].set(fields[0]), minutes: parts[1].set(fields[1]), hours: parts[2].set(fields[2]), days: readDays(fields[3:])}
	switch {
	case fields[2][0] == '*':
		e.class = classHours
	case fields[0][0] == '*' || fields[1][0] == '*':
		e.class = classMinutes
	}
	return e, nil
}

// splitCron returns the seven fields.
func splitCron(text string) ([]string, error) {
	if strings.HasPrefix(text, "TZ=") || strings.HasPrefix(text, "CRON_TZ=") {
		return nil, cronError("", "%s: the zone does not belong in the expression; give it as tz", strings.Fields(text)[0])
	}
	if strings.HasPrefix(text, "@") {
		macro, ok := macros[text]
		switch {
		case text == "@reboot":
			return nil, cronError("", "@reboot: a schedule knows times, and nothing of when a host starts")
		case !ok:
			return nil, cronError("", "%.20q is none of @hourly, @daily, @midnight, @weekly, @monthly, @yearly, @annually", text)
		}
		text = macro
	}
	fields := strings.Fields(text)
	switch n := len(fields); {
	case n == 7:
		return fields, nil
	case n == 6 && yearLike.MatchString(fields[5]):
		return append([]string{"0"}, fields...), nil
	case n == 6:
		return append(fields, "*"), nil
	case n == 5:
		return append(append([]string{"0"}, fields...), "*"), nil
	default:
		return nil, cronError("", "has %d fields, and must have 5 to 7", n)
	}
}

// parse reads a field and returns it in numbers.
func (p part) parse(field string) (string, error) {
	items := strings.Split(field, ",")
	for i, item := range items {
		read, err := p.parseItem(item)
		if err != nil {
			return "", err
		}
		if read == "*" && len(items) > 1 {
			return "", cronError(p.name, "%s: * is every value, and cannot be one of a list", field)
		}
		items[i] = read
	}
	return strings.Join(items, ","), nil
}

func (p part) parseItem(item string) (string, error) {
	if item == "" {
		return "", cronError(p.name, "has an empty item")
	}
	if p.special != nil {
		if read, ok := p.special(p, item); ok {
			return read, nil
		}
	}
	values, step, stepped := strings.Cut(item, "/")
	read, err := p.parseValues(values)
	if err != nil || !stepped {
		return read, err
	}
	n, ok := parseNumber(step)
	if !ok || n == 0 {
		return "", cronError(p.name, "%s: a step must be a number from 1 on", item)
	}
	return read + "/" + strconv.Itoa(n), nil
}

// parseValues reads *, a value or a range.
func (p part) parseValues(text string) (string, error) {
	if text == "*" || text == "?" {
		return "*", nil
	}
	first, last, ranged := strings.Cut(text, "-")
	low, err := p.parseValue(first)
	if err != nil || !ranged {
		return strconv.Itoa(low), err
	}
	high, err := p.parseValue(last)
	if err != nil {
		return "", err
	}
	if high == 0 && low > 0 && p.names != nil {
		high = p.max // as in FRI-SUN
	}
	if high < low {
		return "", cronError(p.name, "%s: a range cannot end before it begins", text)
	}
	return strconv.Itoa(low) + "-" + strconv.Itoa(high), nil
}

func (p part) parseValue(text string) (int, error) {
	n, ok := p.value(text)
	if !ok {
		return 0, cronError(p.name, "%q is not in %d-%d%s", text, p.min, p.max, p.orNames())
	}
	return n, nil
}

func (p part) value(text string) (int, bool) {
	for i, name := range p.names {
		if text == name {
			return p.min + i, true
		}
	}
	n, ok := parseNumber(text)
	return n, ok && p.min <= n && n <= p.max
}

func (p part) orNames() string {
	if p.names == nil {
		return ""
	}
	return ", nor one of " + strings.Join(p.names, " ")
}

// specialDay reads L and 15W.
func (p part) specialDay(item string) (string, bool) {
	if item == "L" {
		return item, true
	}
	day, ok := strings.CutSuffix(item, "W")
	n, known := p.value(day)
	return strconv.Itoa(n) + "W", ok && known
}

// specialWeekday reads FRIL and FRI#2.
func (p part) specialWeekday(item string) (string, bool) {
	if day, ok := strings.CutSuffix(item, "L"); ok {
		n, known := p.value(day)
		return strconv.Itoa(n%7) + "L", known
	}
	day, which, ok := strings.Cut(item, "#")
	n, known := p.value(day)
	nth, counts := parseNumber(which)
	return strconv.Itoa(n%7) + "#" + strconv.Itoa(nth), ok && known && counts && 1 <= nth && nth <= 5
}

// parseNumber reads a number without a sign.
func parseNumber(text string) (int, bool) {
	if text == "" || len(text) > 9 || strings.Trim(text, "0123456789") != "" {
		return 0, false
	}
	n, err := strconv.Atoi(text)
	return n, err == nil
}

// set is which values a field has that was read, a bit for each. What special reads is none of them.
func (p part) set(field string) (set uint64) {
	for item := range strings.SplitSeq(field, ",") {
		for n := range p.values(item) {
			set |= 1 << n
		}
	}
	return set
}

// values are those of an item that was read; none of what special reads.
func (p part) values(item string) iter.Seq[int] {
	values, every, stepped := strings.Cut(item, "/")
	first, last, ranged := strings.Cut(values, "-")
	low, isNumber := parseNumber(first)
	high, _ := parseNumber(last)
	step, _ := parseNumber(every)
	switch {
	case first == "*":
		low, high = p.steps, p.max
	case !isNumber:
		low, high = 1, 0
	case stepped && !ranged && p.name == weekdays:
		low, high = low%7, 6 // 1/3 is not Sunday, whose number could be 7
	case stepped && !ranged:
		high = p.max
	case !ranged:
		high = low
	}
	return func(yield func(int) bool) {
		for n := low; n <= high; n += max(step, 1) {
			if !yield(n) {
				return
			}
		}
	}
}

// nextIn is the first value of a set from one on; false if there is none.
func nextIn(set uint64, from int) (int, bool) {
	n := bits.TrailingZeros64(set &^ (1<<from - 1))
	return n, n < 64
}

// nextWall returns the first wall time after another one.
func (e expression) nextWall(after time.Time) (time.Time, bool) {
	after = after.Truncate(time.Second)
	wall := after.Add(time.Second)
	year, month, day := wall.Date()
	today := time.Date(year, month, day, 0, 0, 0, 0, time.UTC)
	from, ok := e.days.next(today)
	if !ok {
		return time.Time{}, false
	}
	if from.Equal(today) {
		if later, ok := e.nextOfDay(wall.Clock()); ok {
			return today.Add(later), true
		}
		if from, ok = e.days.next(today.AddDate(0, 0, 1)); !ok {
			return time.Time{}, false
		}
	}
	first, _ := e.nextOfDay(0, 0, 0) // no set is empty
	return from.Add(first), true
}

// nextOfDay returns the first time of a day from one on; false if there is none.
func (e expression) nextOfDay(hour, minute, second int) (time.Duration, bool) {
	h, ok := nextIn(e.hours, hour)
	if !ok {
		return 0, false
	}
	if h > hour {
		minute, second = 0, 0
	}
	m, ok := nextIn(e.minutes, minute)
	if !ok {
		return e.nextOfDay(hour+1, 0, 0)
	}
	if m > minute {
		second = 0
	}
	s, ok := nextIn(e.seconds, second)
	if !ok {
		return e.nextOfDay(h, m+1, 0)
	}
	return time.Duration(h)*time.Hour + time.Duration(m)*time.Minute + time.Duration(s)*time.Second, true
}

// once is the wall time of "at".
type once time.Time

func parseAt(text string) (once, error) {
	text = strings.TrimSpace(text)
	for _, layout := range []string{"2006-01-02 15:04", "2006-01-02 15:04:05", "2006-01-02T15:04", "2006-01-02T15:04:05"} {
		if wall, err := time.Parse(layout, text); err == nil && len(text) == len(layout) {
			return once(wall), nil
		}
	}
	return once{}, cronError("", "at must be followed by a time on the clock of the schedule's zone, such as 2027-03-01 02:00")
}

func (o once) nextWall(after time.Time) (time.Time, bool) {
	return time.Time(o), time.Time(o).After(after)
}
