package window

import (
	"strconv"
	"strings"
	"time"

	"github.com/harpcaller/harp/schedule"
)

// eventTime is a time as it stands in a calendar.
type eventTime struct {
	wall   time.Time
	zone   *time.Location
	isDate bool // it is a day, on the clock of those who look

	isFloating bool // it names no zone: beside a DTSTART it is on the clock of that
}

func (t eventTime) moment() time.Time { return schedule.FromWall(t.wall, t.zone) }

// wallIn returns the time on the wall clock of another zone.
func (t eventTime) wallIn(zone *time.Location) time.Time {
	if t.isDate || t.isFloating || t.zone == zone {
		return t.wall
	}
	return schedule.ToWall(t.moment(), zone)
}

// readTime reads a date, 20270328, or a time, 20270328T023000, which is in UTC with a Z behind it, else in the zone of the property
// or, without one, of no zone.
func (b *eventBuilder) readTime(v value, text string) (eventTime, error) {
	const date, clock = "20060102", "20060102T150405"
	bare, isUTC := strings.CutSuffix(text, "Z")
	layout := clock
	if len(text) == len(date) {
		layout = date
	}
	wall, err := time.Parse(layout, bare)
	switch {
	case err != nil || len(bare) != len(layout) || wall.Year() == 0:
		return eventTime{}, v.errorf("%q is no date as 20270328 and no time as 20270328T023000", shorten(text))
	case v.kind == "DATE" && layout == clock:
		return eventTime{}, v.errorf("%q is no date as 20270328, and VALUE=DATE says so", shorten(text))
	case layout == date:
		return eventTime{wall: wall, zone: b.zones.none, isDate: true}, nil
	case isUTC:
		return eventTime{wall: wall, zone: time.UTC}, nil
	}
	zone, err := b.zones.find(v)
	return eventTime{wall: wall, zone: zone, isFloating: v.zone == ""}, err
}

// parseDuration reads a duration of RFC 5545 that is not negative: P1W, P2DT3H, PT90M.
func parseDuration(text string) (time.Duration, bool) {
	text, ok := strings.CutPrefix(strings.TrimPrefix(strings.ToUpper(text), "+"), "P")
	if !ok || text == "" || strings.HasSuffix(text, "T") {
		return 0, false
	}
	const day = 24 * time.Hour
	days, clock, _ := strings.Cut(text, "T")
	inDays, ok := sumUnits(days, []unit{{'W', 7 * day}, {'D', day}})
	inTime, valid := sumUnits(clock, []unit{{'H', time.Hour}, {'M', time.Minute}, {'S', time.Second}})
	return inDays + inTime, ok && valid && inDays+inTime <= searchedYears*366*day
}

type unit struct {
	letter byte
	is     time.Duration
}

// sumUnits adds up numbers with their units, each once and in their order.
func sumUnits(text string, units []unit) (sum time.Duration, ok bool) {
	for _, u := range units {
		number, rest, found := strings.Cut(text, string(u.letter))
		if !found {
			continue
		}
		n, err := strconv.ParseUint(number, 10, 32)
		if err != nil || time.Duration(n) > searchedYears*366*24*time.Hour/u.is {
			return 0, false
		}
		sum += time.Duration(n) * u.is
		text = rest
	}
	return sum, text == ""
}
