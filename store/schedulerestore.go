package store

import (
	"slices"
	"time"

	"github.com/harpcaller/harp"
)

// Restore returns the life of a schedule that was restored from a backup: no time until then fires, and none of the past is made up for, as
// it may have fired since the backup was made.
func (l ScheduleLife) Restore(at time.Time) ScheduleLife {
	l.Restored, l.Unseen, l.Fresh, l.Lost, l.Backfill = at, true, false, slices.Concat(l.Lost, l.Backfill), nil
	l.Ends, l.Waits = slices.Clone(l.Ends), slices.Clone(l.Waits)
	for _, ends := range [][]ScheduleEnd{l.Ends, l.Waits} {
		for i := range ends {
			ends[i].Restored = true
		}
	}
	return l
}

// RestoredUntil is the time until which nobody knows what fired since the backup was made, from which the schedule was restored: when somebody looked at it
// first, since whoever had it before may have gone on until then. Where the clock was set forward since, that is by the clock as it is now.
func (l ScheduleLife) RestoredUntil(jumps []ClockJump) time.Time {
	until := l.Restored
	if l.Looked.After(until) {
		until = l.Looked
	}
	for _, j := range jumps {
		if !until.IsZero() && !j.From.Before(until) {
			until = until.Add(j.To.Sub(j.From))
		}
	}
	return until
}

// settleLost decides about what was left of a backfill as the backup was made: it may have fired since.
func (l ScheduleLife) settleLost(times ScheduleTimes) ScheduleDecision {
	d := settleBackfill(l, times, l.Lost, harp.TimeMissed, harp.TimeRestored, "")
	d.Life.Lost = nil
	return d
}
