package main

import (
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/harpcaller/harp/internal/duration"
)

// times is how times are shown to people: --time. JSON has them in RFC 3339, always.
type times string

const (
	timesLocal    times = "" // in the zone of who reads it
	timesRelative times = "relative"
	timesISO      times = "iso"
	timesUnix     times = "unix"
)

// String returns the flag's value.
func (t *times) String() string {
	if *t == timesLocal {
		return "local"
	}
	return string(*t)
}

// Set reads the flag.
func (t *times) Set(word string) error {
	switch times(word) {
	case "local":
		*t = timesLocal
	case timesRelative, timesISO, timesUnix:
		*t = times(word)
	default:
		return errors.New("must be local, relative, iso or unix")
	}
	return nil
}

// Type names the flag's type in the help.
func (t *times) Type() string { return "form" }

// clock is a time for people; "" if it is none.
func (t times) clock(at, now time.Time) string {
	switch {
	case at.IsZero():
		return ""
	case t == timesRelative:
		return relative(now.Sub(at))
	case t == timesISO:
		return at.UTC().Format("2006-01-02T15:04:05.000Z")
	case t == timesUnix:
		return strconv.FormatInt(at.Unix(), 10)
	}
	return at.Local().Format(localTime)
}

// localTime is how a time is printed by default, with its offset from UTC, and taken back.
const localTime = "2006-01-02 15:04:05Z07:00"

// stamp is the time of a record, which stands before its text.
func (t times) stamp(at, now time.Time) string {
	switch t {
	case timesLocal:
		return at.Local().Format("15:04:05.000")
	case timesUnix:
		return strconv.FormatFloat(float64(at.UnixMilli())/1000, 'f', 3, 64)
	default:
		return t.clock(at, now)
	}
}

// clock is a time for people, as --time says.
func (c *cli) clock(at time.Time) string { return c.times.clock(at, time.Now()) }

// untilText is when something ends: until a time or, as --time says, for how long from now.
func (c *cli) untilText(at time.Time) string {
	if left := time.Until(at); c.times == timesRelative && left > 0 {
		return "for another " + age(left)
	}
	return "until " + c.clock(at)
}

// atText is when something was or will be: at a time, or how long ago or from now.
func (c *cli) atText(at time.Time) string {
	if c.times == timesRelative {
		return c.clock(at)
	}
	return "at " + c.clock(at)
}

// relative is how long ago something was: 12s ago, 3m ago, 4h ago, 2d ago; or, of what
// is yet to come, in 12s.
func relative(ago time.Duration) string {
	if ago < 0 {
		return "in " + age(-ago)
	}
	return age(ago) + " ago"
}

// age is a duration in one unit, rounded down.
func age(d time.Duration) string {
	const day = 24 * time.Hour
	switch {
	case d < time.Minute:
		return strconv.Itoa(int(d/time.Second)) + "s"
	case d < time.Hour:
		return strconv.Itoa(int(d/time.Minute)) + "m"
	case d < 2*day:
		return strconv.Itoa(int(d/time.Hour)) + "h"
	}
	return strconv.Itoa(int(d/day)) + "d"
}

// moment is a flag for a time, in any form in which times are printed, or a duration from now.
type moment struct {
	t    time.Time
	past bool // a duration counts back from now
}

// String returns the flag's value.
func (m *moment) String() string {
	if m.t.IsZero() {
		return ""
	}
	return m.t.Format(time.RFC3339)
}

// Set reads the flag.
func (m *moment) Set(text string) (err error) {
	m.t, err = parseMoment(text, time.Now(), m.past)
	return err
}

// Type names the flag's type in the help.
func (m *moment) Type() string { return "time" }

// parseMoment reads a time. A duration is that long before now if the past is meant, else from
// now; a time of day is the last or the next one. What says no zone is local.
func parseMoment(text string, now time.Time, past bool) (time.Time, error) {
	now = now.Local()
	text = strings.TrimSpace(text)
	switch text {
	case "now":
		return now, nil
	case "today":
		return midnight(now, 0), nil
	case "yesterday":
		return midnight(now, -1), nil
	}
	if length, ok := strings.CutSuffix(text, " ago"); ok {
		text, past = length, true
	} else if length, ok := strings.CutPrefix(text, "in "); ok {
		text, past = length, false
	}
	if d, err := duration.Parse(text); err == nil && d >= 0 {
		if past {
			d = -d
		}
		return now.Add(d), nil
	}
	for _, layout := range []string{time.RFC3339, localTime, "2006-01-02T15:04Z07:00", "2006-01-02 15:04Z07:00", "2006-01-02T15:04:05", time.DateTime, "2006-01-02T15:04", "2006-01-02 15:04", time.DateOnly} {
		if t, err := time.ParseInLocation(layout, text, now.Location()); err == nil {
			return t, nil
		}
	}
	for _, layout := range []string{time.TimeOnly, "15:04"} {
		if t, err := time.ParseInLocation(layout, text, now.Location()); err == nil {
			return timeOfDay(t, now, past), nil
		}
	}
	if t, ok := unixTime(text); ok {
		return t, nil
	}
	return time.Time{}, errors.New("must be a time such as 2026-01-31, 06:00 or 2026-01-31T12:00:00Z, or a duration such as 2h or 1w")
}

// midnight is when a day begins, so many days from now.
func midnight(now time.Time, days int) time.Time {
	return time.Date(now.Year(), now.Month(), now.Day()+days, 0, 0, 0, 0, now.Location())
}

// timeOfDay is the last time, or the next, that clocks show it.
func timeOfDay(t, now time.Time, past bool) time.Time {
	on := func(days int) time.Time {
		return time.Date(now.Year(), now.Month(), now.Day()+days, t.Hour(), t.Minute(), t.Second(), t.Nanosecond(), now.Location())
	}
	switch today := on(0); {
	case past && today.After(now):
		return on(-1)
	case !past && !today.After(now):
		return on(1)
	default:
		return today
	}
}

// unixTime reads seconds since 1970, as --time unix prints them.
func unixTime(text string) (time.Time, bool) {
	const fewest = 9 // digits: fewer are no time that anybody means
	whole, fraction, _ := strings.Cut(text, ".")
	seconds, err := strconv.ParseInt(whole, 10, 64)
	if err != nil || len(whole) < fewest || len(whole) > fewest+3 {
		return time.Time{}, false
	}
	nanos := 0
	if fraction != "" {
		if nanos, err = strconv.Atoi((fraction + "000000000")[:9]); err != nil || len(fraction) > 9 {
			return time.Time{}, false
		}
	}
	return time.Unix(seconds, int64(nanos)).Local(), true
}
