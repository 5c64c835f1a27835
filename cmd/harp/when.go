package main

import (
	"errors"
	"strconv"
	"time"
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
	return at.Local().Format("2006-01-02 15:04:05")
}

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
