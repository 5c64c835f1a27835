package dispatcher

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// setStep is how far the wall clock may be off what has gone by before it counts as
	// set. It is corrected by less all the time.
	setStep = 500 * time.Millisecond

	// setFar is how far off it must be for what goes by the date to wait, and setLong how long
	// that waits: until then somebody may have put it right.
	setFar  = time.Minute
	setLong = 24 * time.Hour
)

// wallClock is the wall clock. It notices when that is set, which is told before a time by
// the clock as it was set is used.
type wallClock struct {
	read  func() time.Time
	first time.Time              // by the wall clock,
	begun time.Time              // and by the one that is never set
	onSet func(by time.Duration) // is called with that
	ahead atomic.Int64           // by how much it was set since then, which was told

	judged chan struct{} // whether it is right is another

	mu      sync.Mutex    // guards what follows, and telling
	trusted time.Duration // how far ahead it was when it was right, or, where nobody knows whether it is, at since
	since   time.Time     // since when it is not; zero: it is
	unknown bool          // whether it is
}

func newWallClock(read func() time.Time, onSet func(by time.Duration)) *wallClock {
	return &wallClock{read: read, onSet: onSet, first: read().Round(0), begun: time.Now(), judged: make(chan struct{}, 1)}
}

// now is the time.
func (c *wallClock) now() time.Time {
	wall := c.read().Round(0)
	if isSet(c.aheadAt(wall, time.Now()) - time.Duration(c.ahead.Load())) {
		return c.noteSet()
	}
	return wall
}

// moved is a time that was read when the clock was so far ahead, by the clock as it was set
// since.
func (c *wallClock) moved(ahead int64, at time.Time) time.Time {
	if at.IsZero() {
		return at
	}
	return at.Add(time.Duration(c.ahead.Load() - ahead))
}

func isSet(by time.Duration) bool { return by.Abs() >= setStep }

// aheadAt is how far the wall clock is ahead of where it was begun, now.
func (c *wallClock) aheadAt(wall, now time.Time) time.Duration {
	return wall.Sub(c.first) - now.Sub(c.begun)
}

// noteSet is now when the clock seems to have been set.
func (c *wallClock) noteSet() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		before := time.Now()
		wall := c.read().Round(0)
		if time.Since(before) >= setStep/2 {
			continue // the two clocks were not read at the same time
		}
		if by := c.aheadAt(wall, before) - time.Duration(c.ahead.Load()); isSet(by) {
			c.onSet(by)
			c.ahead.Add(int64(by))
			c.judgeLocked()
		}
		return wall
	}
}

// judgeLocked notes since when the clock has been far off what it was.
func (c *wallClock) judgeLocked() {
	ahead := time.Duration(c.ahead.Load())
	isFar := (ahead - c.trusted).Abs() >= setFar
	switch {
	case isFar && c.unknown:
		c.trusted, c.since = ahead, time.Now()
	case isFar:
		c.since = time.Now()
	case c.unknown:
		return
	default:
		c.since = time.Time{}
	}
	signal(c.judged)
}

// clockDocument is what is stored of a clock that is not right, so that a restart does not take it for one that is.
type clockDocument struct {
	Ahead time.Duration `msgpack:"ahead"` // of the right time; 0: nobody knows
	Since time.Time     `msgpack:"since"` // by this clock; zero: it is right
}

// document is what is to be stored of the clock.
func (c *wallClock) document() (doc clockDocument) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.since.IsZero() {
		doc.Since = c.read().Add(-time.Since(c.since)).UTC()
		if !c.unknown {
			doc.Ahead = time.Duration(c.ahead.Load()) - c.trusted
		}
	}
	return doc
}

// resumeFrom goes on with what was stored of the clock, unless that was as it is for long, or is not as it was any more.
func (c *wallClock) resumeFrom(doc clockDocument) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if passed := c.read().Sub(doc.Since); !doc.Since.IsZero() && passed >= 0 && passed < setLong {
		c.trusted, c.since, c.unknown = time.Duration(c.ahead.Load())-doc.Ahead, time.Now().Add(-passed), doc.Ahead == 0
	}
}

// doubt takes the clock for one that may not be right, as what was stored of it cannot be read.
func (c *wallClock) doubt() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.trusted, c.since, c.unknown = time.Duration(c.ahead.Load()), time.Now(), true
	signal(c.judged)
}

// suspicion is why what goes by the date has to wait: nil if the clock was not set, or put
// right, or has been as it is for long.
func (c *wallClock) suspicion() error {
	c.now()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.since.IsZero() {
		return nil
	}
	ahead := time.Duration(c.ahead.Load())
	if time.Since(c.since) >= setLong {
		c.trusted, c.since, c.unknown = ahead, time.Time{}, false
		signal(c.judged)
		return nil
	}
	if c.unknown {
		return fmt.Errorf("whether the clock is right was stored and cannot be read: until %v are over, nothing is deleted for its age", setLong)
	}
	by, way := (ahead - c.trusted).Round(time.Second), "forward"
	if by < 0 {
		by, way = -by, "back"
	}
	return fmt.Errorf("the clock was set %v %s %v ago: until it is right again, or %v are over, nothing is deleted for its age",
		by, way, time.Since(c.since).Round(time.Second), setLong)
}
