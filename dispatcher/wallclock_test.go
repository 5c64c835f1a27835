package dispatcher

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// setClock is a wall clock that a test sets, and that may be slow to read.
type setClock struct {
	ahead time.Duration
	slow  []time.Duration // how long the next readings take
	told  []time.Duration // what it was set by, as was noticed
}

func (s *setClock) read() time.Time {
	if len(s.slow) > 0 {
		wait := s.slow[0]
		s.slow = s.slow[1:]
		time.Sleep(wait)
	}
	return time.Now().Add(s.ahead)
}

func (s *setClock) clock() *wallClock {
	return newWallClock(s.read, func(by time.Duration) { s.told = append(s.told, by) })
}

// The clock counts as set from half a second on, either way, and is told once.
func TestTheClockCountsAsSetFromHalfASecondOn(t *testing.T) {
	for _, sign := range []time.Duration{1, -1} {
		synctest.Test(t, func(t *testing.T) {
			var s setClock
			c := s.clock()
			time.Sleep(time.Hour)
			s.ahead = sign * (setStep - 1)
			if now := c.now(); len(s.told) != 0 || !now.Equal(time.Now().Add(s.ahead)) {
				t.Errorf("it is %v and was set by %v", now, s.told)
			}
			s.ahead = sign * setStep
			for range 3 {
				time.Sleep(time.Hour)
				if now := c.now(); len(s.told) != 1 || s.told[0] != sign*setStep || !now.Equal(time.Now().Add(s.ahead)) {
					t.Errorf("it is %v and was set by %v", now, s.told)
				}
			}
			s.ahead = 0
			c.now()
			if len(s.told) != 2 || s.told[1] != -sign*setStep {
				t.Errorf("put right it was set by %v", s.told)
			}
		})
	}
}

// A clock that is slow to read was not set: it is read again.
func TestAClockThatIsSlowToReadWasNotSet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s setClock
		c := s.clock()
		s.slow = []time.Duration{time.Second, setStep / 2, setStep/2 - 1, time.Hour}
		if now := c.noteSet(); !now.Equal(time.Now()) || len(s.told) != 0 || len(s.slow) != 1 {
			t.Errorf("it is %v, was set by %v, and %d readings are left", now, s.told, len(s.slow))
		}
	})
}

// A clock that is far off is suspicious until it is put right or a day is over; one that was
// set by less is not.
func TestSuspicionLastsADay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s setClock
		c := s.clock()
		s.ahead = setFar - 1
		if err := c.suspicion(); err != nil {
			t.Errorf("of a clock that was set by less: %v", err)
		}
		for way, by := range map[string]time.Duration{"forward": time.Hour, "back": -time.Hour} {
			s.ahead = by
			c.now()
			time.Sleep(3 * time.Second)
			err := c.suspicion()
			if err == nil || !strings.Contains(err.Error(), "was set 1h0m0s "+way+" 3s ago") {
				t.Errorf("of a clock that was set by %v: %v", by, err)
			}
			s.ahead = 0
			if err := c.suspicion(); err != nil {
				t.Errorf("of a clock that was put right: %v", err)
			}
		}
		s.ahead = setFar
		c.now()
		time.Sleep(setLong - time.Nanosecond)
		if c.suspicion() == nil {
			t.Error("it is trusted before a day is over")
		}
		time.Sleep(time.Nanosecond)
		if err := c.suspicion(); err != nil {
			t.Errorf("after a day: %v", err)
		}
		s.ahead = 0 // which is far off what it is trusted by now
		if c.suspicion() == nil {
			t.Error("it is set back by a minute and trusted")
		}
	})
}
