package store

import (
	"slices"
	"time"

	"github.com/harpcaller/harp"
)

// SchedulePause is a time in which a schedule fires nothing.
type SchedulePause struct {
	By     harp.Principal `msgpack:"by,omitempty"` // zero: the schedule itself, by PauseOnFailure
	Reason string         `msgpack:"reason,omitempty"`
	Since  time.Time      `msgpack:"since"`
	Until  time.Time      `msgpack:"until,omitempty"` // zero: until somebody ends it
	Over   bool           `msgpack:"over,omitempty"`  // somebody ended it, another one took its place, or its end by itself was noted
}

func (p SchedulePause) covers(at time.Time) bool {
	return !at.Before(p.Since) && (p.Until.IsZero() || at.Before(p.Until))
}

func (p SchedulePause) detail() string {
	if p.By.Name == "" || p.Reason == "" {
		return p.By.Name + p.Reason
	}
	return p.By.Name + ": " + p.Reason
}

func (l ScheduleLife) pauseAt(at time.Time) (SchedulePause, bool) {
	i := slices.IndexFunc(l.Pauses, func(p SchedulePause) bool { return p.covers(at) })
	if i < 0 {
		return SchedulePause{}, false
	}
	return l.Pauses[i], true
}

// Paused returns the pause that a schedule is in. It stays in it if the clock is set back to before its beginning.
func (l ScheduleLife) Paused(now time.Time) (SchedulePause, bool) {
	if len(l.Pauses) == 0 {
		return SchedulePause{}, false
	}
	last := l.Pauses[len(l.Pauses)-1]
	return last, !last.Over && (last.Until.IsZero() || now.Before(last.Until))
}

// PauseEnd returns the pause of a schedule that ends by itself, and when; false if there is none, or that was noted already.
func (l ScheduleLife) PauseEnd() (SchedulePause, bool) {
	if len(l.Pauses) == 0 {
		return SchedulePause{}, false
	}
	last := l.Pauses[len(l.Pauses)-1]
	return last, !last.Over && !last.Until.IsZero()
}

// EndPause returns the life of a schedule whose pause has ended by itself, as [ScheduleLife.PauseEnd] says. The clock may be set back
// to before that: it does not begin anew.
func (l ScheduleLife) EndPause() ScheduleLife {
	l.Pauses = slices.Clone(l.Pauses)
	l.Pauses[len(l.Pauses)-1].Over = true
	return l
}

// dropPausesAhead returns the life without pauses that are over and end only after now, as the clock was set back: for what was not looked at yet
// they do not begin anew.
func (l ScheduleLife) dropPausesAhead(now time.Time) ScheduleLife {
	l.Pauses = slices.DeleteFunc(slices.Clone(l.Pauses), func(p SchedulePause) bool { return p.Over && p.Until.After(now) })
	return l
}

// Pause returns the life of a schedule that fires nothing from p.Since on. It takes the place of a pause that has not
// ended.
func (l ScheduleLife) Pause(p SchedulePause, times ScheduleTimes) ScheduleLife {
	l = l.Unpause(p.Since, times)
	l.Pauses = append(l.Pauses, p)
	return l
}

// Unpause returns the life of a schedule that fires again. Times that passed in the pause stay skipped, also those that are
// not settled yet.
func (l ScheduleLife) Unpause(now time.Time, times ScheduleTimes) ScheduleLife {
	next, ok := times.Next(l.Through)
	var kept []SchedulePause
	for _, p := range l.Pauses {
		if p.Until.IsZero() || p.Until.After(now) {
			p.Until = now
		}
		p.Over = true
		covers := ok && p.Until.After(next.Time) || slices.ContainsFunc(l.Ends, func(e ScheduleEnd) bool { return p.covers(e.At) })
		if covers && p.Until.After(p.Since) {
			kept = append(kept, p)
		}
	}
	l.Pauses = kept
	return l
}
