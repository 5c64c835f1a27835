package schedule

import (
	"fmt"
	"strings"
	"time"
)

// wallTimes are the times of an expression. A wall time is what a clock shows, written as a time in UTC.
type wallTimes interface {
	nextWall(after time.Time) (time.Time, bool)
}

// clock is the source that maps wall times to moments of a zone. A zone is a row of segments of one
// offset, within which wall times and moments differ by it.
type clock struct {
	zone   *time.Location
	times  wallTimes
	gap    Gap
	repeat Repeat
}

// segment is a time in which a zone has one offset.
type segment struct {
	from, to time.Time // to is zero if it never ends
	offset   time.Duration
}

func (s segment) wall(t time.Time) time.Time   { return t.UTC().Add(s.offset) }
func (s segment) moment(w time.Time) time.Time { return w.Add(-s.offset) }
func (s segment) endsBefore(w time.Time) bool  { return !s.to.IsZero() && !w.Before(s.wall(s.to)) }

func (s segment) beginsAfter(w time.Time) bool    { return !s.from.IsZero() && w.Before(s.wall(s.from)) }
func (s segment) hasWall(w time.Time) bool        { return !s.beginsAfter(w) && !s.endsBefore(w) }
func (s segment) justBefore() (wall time.Time)    { return s.wall(s.from).Add(-1) }
func (s segment) overlaps(following segment) bool { return following.offset < s.offset }

// segmentAt returns the segment that a time is in. A Location's bounds are those of a year where there is no change in it, and wrong on 31 December of a leap year.
func (c *clock) segmentAt(t time.Time) segment {
	t = t.In(c.zone)
	_, offset := t.Zone()
	from, to := t.ZoneBounds()
	for probe := t; !to.IsZero() && !to.After(t); {
		probe = probe.Add(24 * time.Hour)
		begin, end := probe.ZoneBounds()
		to = end
		if begin.After(t) {
			to = begin
		}
	}
	return segment{from, to, time.Duration(offset) * time.Second}
}

// Bounds of what zones do.
const (
	longestShift  = 25 * time.Hour // by which a clock was set: a day, in Samoa
	longestOffset = 36 * time.Hour // of a wall time, taken as UTC, and the moment; with room
)

// next walks over segments, past those that have nothing.
func (c *clock) next(after time.Time) (fire, bool) {
	s := c.segmentAt(after)
	wall := s.wall(after)
	for {
		if f, ok := c.nextIn(s, wall); ok {
			return f, true
		}
		if s.to.IsZero() {
			return fire{}, false
		}
		following := c.following(s)
		if f, ok := c.moveOverGap(s, following); ok {
			return f, true
		}
		wall = earlier(wall, following.justBefore())
		upcoming, ok := c.times.nextWall(wall.Add(-longestShift))
		if !ok {
			return fire{}, false
		}
		s, wall = following, following.justBefore()
		if near := upcoming.Add(-longestOffset); near.After(s.from) {
			s = c.segmentAt(near)
			wall = s.wall(near)
		}
	}
}

// nextIn returns the first fire of a segment after a wall time.
func (c *clock) nextIn(s segment, after time.Time) (fire, bool) {
	wall, ok := c.times.nextWall(after)
	if !ok || s.endsBefore(wall) {
		return fire{}, false
	}
	previous, hasPrevious := c.previous(s)
	if hasPrevious && c.repeat == RepeatFirst && previous.overlaps(s) && previous.hasWall(wall) {
		return c.nextIn(s, previous.wall(previous.to).Add(-1))
	}
	f := fire{at: s.moment(wall)}
	again := c.isRepeatedAfter(s, wall)
	switch {
	case again && c.repeat == RepeatLast:
		return fire{}, false
	case again && c.repeat == RepeatFirst:
		f.note = formatWallTime(wall, wall) + " comes twice, runs the first time"
	case again:
		f.note = "the first " + formatWallTime(wall, wall) + " of two"
	case hasPrevious && previous.overlaps(s) && previous.hasWall(wall):
		f.note = "the second " + formatWallTime(wall, wall) + " of two"
	}
	return f, true
}

func (c *clock) previous(s segment) (segment, bool) {
	if s.from.IsZero() {
		return segment{}, false
	}
	p := c.segmentAt(s.from.Add(-1))
	p.to = s.from
	return p, true
}

// following returns the segment behind one that ends.
func (c *clock) following(s segment) segment {
	f := c.segmentAt(s.to)
	f.from = s.to
	return f
}

// isRepeatedAfter reports whether the segment behind s shows a wall time of s again.
func (c *clock) isRepeatedAfter(s segment, wall time.Time) bool {
	if s.to.IsZero() {
		return false
	}
	following := c.following(s)
	return s.overlaps(following) && following.hasWall(wall)
}

// maxNamed is how many wall times of a gap a note names.
const maxNamed = 3

// moveOverGap returns the fire at the end of the gap between two segments, if wall times are in it. One that
// is due at that moment anyway is the same fire.
func (c *clock) moveOverGap(s, following segment) (fire, bool) {
	end := following.wall(s.to)
	if c.gap != GapAfter || following.offset <= s.offset {
		return fire{}, false
	}
	var named []string
	wall, ok := c.times.nextWall(s.wall(s.to).Add(-1))
	for ; ok && wall.Before(end) && len(named) <= maxNamed; wall, ok = c.times.nextWall(wall) {
		named = append(named, formatWallTime(wall, end))
	}
	if len(named) == 0 {
		return fire{}, false
	}
	return fire{at: s.to.UTC(), note: gapNote(named)}, true
}

func gapNote(named []string) string {
	const why = " not exist, runs at the end of the gap"
	switch {
	case len(named) == 1:
		return "moved: " + named[0] + " does" + why
	case len(named) > maxNamed:
		return "moved: " + strings.Join(named[:maxNamed], ", ") + " and more do" + why
	default:
		last := len(named) - 1
		return "moved: " + strings.Join(named[:last], ", ") + " and " + named[last] + " do" + why
	}
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// formatWall writes a time as a clock in its zone shows it.
func formatWall(t time.Time) string {
	if t.Second() != 0 {
		return t.Format("Mon 2006-01-02 15:04:05 MST")
	}
	return t.Format("Mon 2006-01-02 15:04 MST")
}

// formatWallTime writes a wall time; with its day, if that is another one than of the time it is moved to.
func formatWallTime(wall, moved time.Time) string {
	layout := "15:04"
	if wall.Second() != 0 {
		layout = "15:04:05"
	}
	if wall.YearDay() != moved.YearDay() {
		layout = "2006-01-02 " + layout
	}
	return wall.Format(layout)
}

// ToWall returns what a clock in a zone shows at a moment, as a time in UTC.
func ToWall(moment time.Time, zone *time.Location) time.Time {
	_, offset := moment.In(zone).Zone()
	return moment.UTC().Add(time.Duration(offset) * time.Second)
}

// FromWall returns the moment at which a clock in a zone shows a wall time, which is a time in UTC: the first moment
// of two, and the end of the gap for a time that it leaves out. Of two wall times the later one never
// has the earlier moment.
func FromWall(wall time.Time, zone *time.Location) time.Time {
	c := clock{zone: zone}
	s := c.segmentAt(wall.Add(-longestOffset))
	for s.endsBefore(wall) {
		following := c.following(s)
		if following.beginsAfter(wall) {
			return s.to.UTC()
		}
		s = following
	}
	return s.moment(wall)
}

// LoadZone finds a time zone of the IANA database; none is UTC. Errors: a [*FieldError] that names tz. It refuses
// Local, which is another zone on each machine.
func LoadZone(name string) (*time.Location, error) {
	if name == "Local" {
		return nil, &FieldError{Field: "tz", Message: "Local is another zone on each machine"}
	}
	if len(name) > 64 {
		return nil, &FieldError{Field: "tz", Message: "is longer than the name of any zone"}
	}
	loc, err := time.LoadLocation(name)
	if err != nil {
		return nil, &FieldError{Field: "tz", Message: fmt.Sprintf("%q is not a time zone such as Europe/Madrid", name)}
	}
	return loc, nil
}
