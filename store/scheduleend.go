package store

import (
	"slices"
	"time"

	"github.com/harpcaller/harp"
)

// ScheduleEnd is that a run of a schedule has ended, as it is noted with each schedule that comes after it.
type ScheduleEnd struct {
	Schedule string          `msgpack:"schedule"`
	Batch    string          `msgpack:"batch"`
	State    harp.BatchState `msgpack:"state,omitempty"` // "": nobody knows how
	At       time.Time       `msgpack:"at"`
	Restored bool            `msgpack:"restored,omitempty"` // the run was there as a backup was made: what comes after it may have fired since
}

// String is what an entry of the ledger says of it.
func (e ScheduleEnd) String() string {
	if e.State == "" {
		return e.Schedule + " " + e.Batch + ", nobody knows how it ended"
	}
	return e.Schedule + " " + e.Batch + " " + string(e.State)
}

// MaxEnds is how many ends a schedule has that are not settled.
const MaxEnds = 100

// NoteEnd notes the end of a run that the schedule comes after. Where too many are not settled it is settled at once: only then there is an
// Entry. The clock was set back where the ends that count begin only after now: from then on all count. So it was where a pause that is over
// ends only then: it does not begin anew.
func (l ScheduleLife) NoteEnd(e ScheduleEnd, now time.Time) ScheduleDecision {
	if l.Through.After(now) && e.At.Before(l.Through) {
		l.Through = e.At
	}
	l = l.dropPausesAhead(now)
	if len(l.Ends) >= MaxEnds {
		return l.settleEnds([]ScheduleEnd{e}, harp.TimeMissed, harp.TimeTooLate, "too many ended before")
	}
	l.Ends = append(slices.Clone(l.Ends), e)
	return ScheduleDecision{Kind: DecideSettle, Life: l}
}

// EndsOf returns the last end that is not settled of each of what the schedule comes after, where there is one.
func (l ScheduleLife) EndsOf(after []harp.Dependency) (ends []ScheduleEnd) {
	for _, d := range after {
		for _, e := range slices.Backward(l.Ends) {
			if e.Schedule == d.Schedule {
				ends = append(ends, e)
				break
			}
		}
	}
	return ends
}

// dependency is what the rules say of the schedule whose run has ended; false: nothing any more.
func (e ScheduleEnd) dependency(r ScheduleRules) (harp.Dependency, bool) {
	i := slices.IndexFunc(r.After, func(d harp.Dependency) bool { return d.Schedule == e.Schedule })
	if i < 0 {
		return harp.Dependency{}, false
	}
	return r.After[i], true
}

// isTooLate reports whether an end is longer ago than it may be.
func (e ScheduleEnd) isTooLate(r ScheduleRules, now time.Time) bool {
	d, _ := e.dependency(r)
	return d.Within > 0 && now.Sub(e.At) > d.Within
}

// nextEnd decides about the ends of runs that the schedule comes after, in the order in which they were noted; false: none is to be settled,
// those that are there wait for others. One that does not fit is skipped, as is one that another run of the same schedule
// replaces. Those of all that it comes after are one fire, as a time is: its nominal time is that of the last of them.
func (l ScheduleLife) nextEnd(r ScheduleRules, at ScheduleSight) (ScheduleDecision, bool) {
	for i, e := range l.Ends {
		if run := l.judgeEnd(r, at, e); run.Outcome != "" {
			return l.without(i).settleEnds([]ScheduleEnd{e}, run.Outcome, run.Reason, run.Detail), true
		}
		if older := slices.IndexFunc(l.Ends[:i], func(o ScheduleEnd) bool { return o.Schedule == e.Schedule }); older >= 0 {
			return l.without(older).settleEnds(l.Ends[older:older+1], harp.TimeSkipped, harp.TimeDependency, "it ended again before the others did"), true
		}
		if i+1 == len(r.After) {
			return l.decideEnds(r, at), true
		}
	}
	return ScheduleDecision{}, false
}

// judgeEnd says whether an end counts at all.
func (l ScheduleLife) judgeEnd(r ScheduleRules, at ScheduleSight, e ScheduleEnd) LedgerRun {
	d, known := e.dependency(r)
	p, paused := l.pauseAt(e.At)
	switch {
	case e.Restored:
		return oneTime(harp.TimeMissed, harp.TimeRestored, "", e.At)
	case !known || e.At.Before(l.Through):
		return oneTime(harp.TimeSkipped, harp.TimeDependency, "before the schedule was put", e.At)
	case !d.On.Fits(e.State):
		return oneTime(harp.TimeSkipped, harp.TimeDependency, "", e.At)
	case paused:
		return oneTime(harp.TimeSkipped, harp.TimePaused, p.detail(), e.At)
	case e.isTooLate(r, at.Now):
		return oneTime(harp.TimeMissed, harp.TimeTooLate, "", e.At)
	}
	return LedgerRun{}
}

// decideEnds decides about the first ends, which are one of each that the schedule comes after.
func (l ScheduleLife) decideEnds(r ScheduleRules, at ScheduleSight) ScheduleDecision {
	n := len(r.After)
	ends := slices.SortedStableFunc(slices.Values(l.Ends[:n]), func(a, b ScheduleEnd) int { return a.At.Compare(b.At) })
	nominal := ends[n-1].At
	rest := l
	rest.Ends = slices.Clone(l.Ends[n:])
	p, paused := l.Paused(at.Now)
	switch {
	case paused:
		return rest.settleEnds(ends, harp.TimeSkipped, harp.TimePaused, p.detail())
	case at.Running == "" || r.Overlap == harp.OverlapAllow:
		d := ScheduleDecision{Kind: DecideFire, Life: rest, Nominal: nominal, Fires: FireAfter, Late: max(at.Now.Sub(nominal), 0), Ends: ends, of: l}
		d.Life.Run = LedgerRun{}
		return d
	case r.Overlap == harp.OverlapSkip || !l.Waiting.IsZero():
		return rest.settleEnds(ends, harp.TimeSkipped, harp.TimeOverlap, at.Running)
	}
	d := ScheduleDecision{Kind: DecideQueue, Life: rest, Nominal: nominal}
	d.Life.Waiting, d.Life.Waits = nominal, ends
	if r.Overlap == harp.OverlapCancelOld {
		d.Cancel = at.Running
	}
	return d
}

// without returns the life without an end, which is being settled.
func (l ScheduleLife) without(i int) ScheduleLife {
	l.Ends = slices.Delete(slices.Clone(l.Ends), i, i+1)
	return l
}

// settleEnds writes what became of ends, which are in the order of their times and in the life no more.
func (l ScheduleLife) settleEnds(ends []ScheduleEnd, outcome harp.TimeOutcome, reason, detail string) ScheduleDecision {
	entry := oneTime(outcome, reason, detail, ends[len(ends)-1].At)
	return ScheduleDecision{Kind: DecideSettle, Life: l, Entry: entry, Fires: FireAfter, Ends: slices.Clone(ends)}
}

// endsWake is when the first of the ends that wait, for others or for the end of the last batch, is too late; zero: none will be.
func (l ScheduleLife) endsWake(r ScheduleRules) (wake time.Time) {
	for _, e := range slices.Concat(l.Ends, l.Waits) {
		d, _ := e.dependency(r)
		if d.Within <= 0 || d.Within == harp.NoLimit {
			continue
		}
		if at := e.At.Add(d.Within + 1); wake.IsZero() || at.Before(wake) {
			wake = at
		}
	}
	return wake
}
