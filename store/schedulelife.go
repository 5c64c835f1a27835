package store

import (
	"fmt"
	"slices"
	"time"

	"github.com/harpcaller/harp"
)

// ScheduleRules are what a schedule says of times that cannot fire as they come.
type ScheduleRules struct {
	Overlap        harp.Overlap
	CatchUp        time.Duration // by how much later than its time it may still fire
	CatchUpMost    int           // how many of the times that are due may fire, the last ones; at least 1
	PauseOnFailure int           // after so many runs in a row that did not succeed the schedule pauses itself; 0: never
	Put            time.Time     // since when its times are these, if they were others before: one that waited for the jitter of others is no later than since then

	After []harp.Dependency // what it comes after, if it has no times
}

// isTooLate reports whether a time is later than it may fire.
func (r ScheduleRules) isTooLate(t ScheduleTime, now time.Time) bool {
	since := t.Time
	if r.Put.After(since) {
		since = r.Put
	}
	return now.Sub(since) > r.CatchUp
}

// ScheduleLife is where a schedule is in its times. It changes only through the decisions of [ScheduleLife.Next] and
// its other methods. None of them reads a clock, and none changes the life that it is asked of.
type ScheduleLife struct {
	Through  time.Time       `msgpack:"through"`            // the last nominal time that is settled: it has fired, is in the ledger, or waits
	Fresh    bool            `msgpack:"fresh,omitempty"`    // no time was settled since it was put, nor of another one of its name
	Waiting  time.Time       `msgpack:"waiting,omitempty"`  // the nominal time that waits for the end of the last batch
	Pauses   []SchedulePause `msgpack:"pauses,omitempty"`   // in their order: the last one, and those before it whose times are not settled
	Skips    []time.Time     `msgpack:"skips,omitempty"`    // nominal times to come that are in the ledger already, skipped by hand
	Backfill []time.Time     `msgpack:"backfill,omitempty"` // nominal times of the past that are to fire once more, the oldest first
	Restored time.Time       `msgpack:"restored,omitempty"` // when it was, by the clock of whoever did that: see RestoredUntil
	Unseen   bool            `msgpack:"unseen,omitempty"`   // nobody has looked at it since
	Looked   time.Time       `msgpack:"looked,omitempty"`   // since when somebody has
	Lost     []time.Time     `msgpack:"lost,omitempty"`     // what was left of a backfill as the backup was made, and is not told yet
	Failures int             `msgpack:"failures,omitempty"` // runs in a row that did not succeed

	Run       LedgerRun `msgpack:"run,omitempty"`        // the last entry since a time fired, which another time may extend
	WaitedRun LedgerRun `msgpack:"waited_run,omitempty"` // the same of times that waited

	Ends  []ScheduleEnd `msgpack:"ends,omitempty"`  // of runs that it comes after, in the order in which they were noted, which are not settled
	Waits []ScheduleEnd `msgpack:"waits,omitempty"` // those for which Waiting is, if it is no time
}

// LedgerRun is an entry of the ledger: one time, several in a row that had the same outcome for the same reason, or ends.
// Entries of runs, and of times skipped by hand, may stand between them.
type LedgerRun struct {
	Outcome harp.TimeOutcome `msgpack:"outcome,omitempty"`
	Reason  string           `msgpack:"reason,omitempty"`
	Detail  string           `msgpack:"detail,omitempty"` // overlap: the batch; paused: by whom and why
	From    time.Time        `msgpack:"from,omitempty"`   // the first nominal time, by which the entry is found
	To      time.Time        `msgpack:"to,omitempty"`     // the last one
	Count   int              `msgpack:"count,omitempty"`
	AtLeast bool             `msgpack:"at_least,omitempty"` // there were more than were counted
}

// extend adds a run to one before it if both tell the same, and returns the entry to write.
func (r LedgerRun) extend(more LedgerRun) LedgerRun {
	if r.Outcome != more.Outcome || r.Reason != more.Reason || r.Detail != more.Detail {
		return more
	}
	r.To, r.Count, r.AtLeast = more.To, r.Count+more.Count, r.AtLeast || more.AtLeast
	return r
}

// ScheduleTime is a time of a schedule.
type ScheduleTime struct {
	Nominal time.Time // its identity
	Time    time.Time // when it fires: Nominal and the jitter
}

// ScheduleTimes tells the times of a schedule. Later nominal times never fire before earlier ones.
type ScheduleTimes interface {
	Next(after time.Time) (ScheduleTime, bool)  // the first nominal time after one
	Prev(before time.Time) (ScheduleTime, bool) // the last nominal time before one
}

// ScheduleSight is what is seen as a schedule is looked at.
type ScheduleSight struct {
	Now     time.Time
	Awake   time.Time   // since when somebody looks; times before it were missed because nobody did
	Jumps   []ClockJump // by which the clock was set forward
	Full    time.Time   // until then nothing could be written
	Running string      // the last batch, if it is not over
}

// ClockJump is that the clock was set forward: it never showed what is in [From, To).
type ClockJump struct{ From, To time.Time }

func (s ScheduleSight) isJumped(at time.Time) bool {
	return slices.ContainsFunc(s.Jumps, func(j ClockJump) bool { return !at.Before(j.From) && at.Before(j.To) })
}

// DecisionKind says what is to be done.
type DecisionKind uint8

// What is to be done. But for DecideWait it is one commit, and the next decision follows.
const (
	DecideWait   DecisionKind = iota // nothing until Wake, or until something else changes
	DecideSettle                     // Entry is written
	DecideFire                       // a batch is made for Nominal, if its target has hosts; see [ScheduleDecision.Instead]
	DecideQueue                      // Nominal waits for the end of the batch; Cancel is cancelled first
)

// FireKind says what a run is made for.
type FireKind uint8

// What a run is made for.
const (
	FireTime     FireKind = iota // a time that has come
	FireWaiting                  // one that has waited for the end of the last batch
	FireManual                   // somebody asked for it
	FireBackfill                 // a time of the past, which somebody asked for
	FireAfter                    // ends of runs that the schedule comes after
)

// ScheduleDecision is what comes next for a schedule, and what its life is once that is committed. Where the commit fails, nothing has
// happened and the same is decided again.
type ScheduleDecision struct {
	Kind    DecisionKind
	Life    ScheduleLife
	Nominal time.Time     // fire, queue
	Fires   FireKind      // fire: what for
	Late    time.Duration // fire: by how much; of a time and of ends
	Ends    []ScheduleEnd // fire, settle: for or of which, in the order of their times; none: it is about times
	Entry   LedgerRun     // settle: replaces the one with the same From; zero if the ledger has the time already
	More    []LedgerRun   // settle: further entries, of what is left of a backfill: none reaches over a time that has fired
	Cancel  string        // queue: the batch to cancel
	Wake    time.Time     // wait: the next time; zero: there is none
	of      ScheduleLife  // fire: the life that it was decided of
}

// maxCounted is how many times of one run are counted; the rest of it is not looked at.
const maxCounted = 10_000

// Next decides about the first time of a schedule that is not settled, in the order of docs/architecture.md: what waits, what was skipped by
// hand, pauses, CatchUp and CatchUpMost, overlap. Asked again and again, each time with the life of the decision before,
// it settles all that is due, each nominal time once, and then says when the next one is. Nothing before Through is
// looked at again, however the clock is set. About ends of runs that the schedule comes after it decides alike: see nextEnd.
func (l ScheduleLife) Next(r ScheduleRules, times ScheduleTimes, at ScheduleSight) ScheduleDecision {
	if !l.Unseen {
		return l.next(r, times, at)
	}
	if !l.Waiting.IsZero() && len(l.Waits) == 0 { // a clock that is behind does not tell that it may have fired
		return l.settleWaiting(harp.TimeMissed, harp.TimeRestored, "")
	}
	l.Unseen, l.Looked = false, at.Awake
	d := l.next(r, times, at)
	if d.Kind == DecideWait {
		return ScheduleDecision{Kind: DecideSettle, Life: l} // since when it is looked at is not forgotten
	}
	return d
}

// next is Next for a schedule at which somebody has looked since it was restored.
func (l ScheduleLife) next(r ScheduleRules, times ScheduleTimes, at ScheduleSight) ScheduleDecision {
	if l.Fresh && at.Now.Before(l.Through) { // the clock was ahead as it was put: nothing has fired that comes now
		l.Through = at.Now
		return ScheduleDecision{Kind: DecideSettle, Life: l}
	}
	if len(l.Lost) > 0 {
		return l.settleLost(times)
	}
	if !l.Waiting.IsZero() {
		if d, decided := l.nextWaiting(r, times, at); decided {
			return d
		}
	}
	if d, decided := l.nextEnd(r, at); decided {
		return d
	}
	next, ok := times.Next(l.Through)
	switch {
	case !ok:
		return ScheduleDecision{Kind: DecideWait, Life: l, Wake: l.endsWake(r)}
	case next.Time.After(at.Now):
		return ScheduleDecision{Kind: DecideWait, Life: l, Wake: next.Time}
	case l.isSkipped(next.Nominal):
		return ScheduleDecision{Kind: DecideSettle, Life: l.settled(next.Nominal)}
	}
	first := l.firstToFire(r, times, at)
	if run := l.judge(r, at, next, first); run.Outcome != "" {
		return l.settle(l.extendRun(r, times, at, run, first))
	}
	if at.Running == "" || r.Overlap == harp.OverlapAllow {
		return l.fire(next, at)
	}
	if r.Overlap == harp.OverlapSkip || !l.Waiting.IsZero() {
		return l.settle(oneTime(harp.TimeSkipped, harp.TimeOverlap, at.Running, next.Nominal))
	}
	d := ScheduleDecision{Kind: DecideQueue, Life: l.settled(next.Nominal), Nominal: next.Nominal}
	d.Life.Waiting, d.Life.Run = next.Nominal, LedgerRun{} // no entry reaches over a time that may fire
	if r.Overlap == harp.OverlapCancelOld {
		d.Cancel = at.Running
	}
	return d
}

// nextWaiting decides about the time that waits, or the ends; false: they go on waiting.
func (l ScheduleLife) nextWaiting(r ScheduleRules, times ScheduleTimes, at ScheduleSight) (ScheduleDecision, bool) {
	nominal := l.Waiting
	switch {
	case len(l.Waits) == 0 && !nominal.After(l.RestoredUntil(at.Jumps)), slices.ContainsFunc(l.Waits, func(e ScheduleEnd) bool { return e.Restored }):
		return l.settleWaiting(harp.TimeMissed, harp.TimeRestored, ""), true
	case slices.ContainsFunc(l.Waits, func(e ScheduleEnd) bool { return e.isTooLate(r, at.Now) }):
		return l.settleWaiting(harp.TimeMissed, harp.TimeTooLate, ""), true
	}
	since := nominal
	if r.Put.After(since) { // times before that are of others
		since = r.Put
	}
	if following, ok := times.Next(since); ok {
		if second, ok := times.Next(following.Nominal); ok && !second.Time.After(at.Now) {
			return l.settleWaiting(harp.TimeMissed, harp.TimeTooLate, ""), true
		}
	}
	if at.Running != "" && r.Overlap != harp.OverlapAllow {
		return ScheduleDecision{}, false
	}
	if p, paused := l.Paused(at.Now); paused {
		return l.settleWaiting(harp.TimeSkipped, harp.TimePaused, p.detail()), true
	}
	d := ScheduleDecision{Kind: DecideFire, Life: l, Nominal: nominal, Fires: FireWaiting, Late: max(at.Now.Sub(nominal), 0), of: l}
	if len(l.Waits) > 0 {
		d.Fires, d.Ends = FireAfter, l.Waits
	}
	d.Life.Waiting, d.Life.Waits, d.Life.WaitedRun, d.Life.Run = time.Time{}, nil, LedgerRun{}, LedgerRun{}
	return d, true
}

// SettleUnknown decides about a schedule of which nobody knows when its times until now were, as its zone is gone: they are told as
// failed, together.
func (l ScheduleLife) SettleUnknown(now time.Time) ScheduleDecision {
	d := ScheduleDecision{Kind: DecideSettle, Life: l}
	if !now.After(l.Through) {
		return d
	}
	d.Life = l.settled(now)
	if !l.Through.IsZero() { // it has been settled once
		d.Entry = LedgerRun{Outcome: harp.TimeFailed, Reason: harp.TimeZone, From: l.Through.Add(1), To: now, AtLeast: true}
	}
	return d
}

func oneTime(outcome harp.TimeOutcome, reason, detail string, nominal time.Time) LedgerRun {
	return LedgerRun{Outcome: outcome, Reason: reason, Detail: detail, From: nominal, To: nominal, Count: 1}
}

// judge says whether a time that is due is skipped or missed, whatever the last batch does. first is what
// firstToFire returns.
func (l ScheduleLife) judge(r ScheduleRules, at ScheduleSight, t ScheduleTime, first time.Time) LedgerRun {
	p, paused := l.pauseAt(t.Time)
	switch tooLate := r.isTooLate(t, at.Now); {
	case !t.Nominal.After(l.RestoredUntil(at.Jumps)): // nobody knows either whether it was paused then, or given less jitter since the backup
		return oneTime(harp.TimeMissed, harp.TimeRestored, "", t.Nominal)
	case paused:
		return oneTime(harp.TimeSkipped, harp.TimePaused, p.detail(), t.Nominal)
	case tooLate && at.isJumped(t.Time):
		return oneTime(harp.TimeMissed, harp.TimeClock, "", t.Nominal)
	case tooLate && t.Time.Before(at.Awake):
		return oneTime(harp.TimeMissed, harp.TimeDown, "", t.Nominal)
	case tooLate && t.Time.Before(at.Full):
		return oneTime(harp.TimeMissed, harp.TimeNoSpace, "", t.Nominal)
	case tooLate || t.Nominal.Before(first):
		return oneTime(harp.TimeMissed, harp.TimeTooLate, "", t.Nominal)
	}
	if p, paused = l.Paused(at.Now); paused { // since its time, which was not decided about yet
		return oneTime(harp.TimeSkipped, harp.TimePaused, p.detail(), t.Nominal)
	}
	return LedgerRun{}
}

// firstToFire returns the first of the last CatchUpMost nominal times that are due and might fire.
func (l ScheduleLife) firstToFire(r ScheduleRules, times ScheduleTimes, at ScheduleSight) (first time.Time) {
	most := max(r.CatchUpMost, 1)
	for before := at.Now.Add(1); most > 0; {
		t, ok := times.Prev(before)
		if !ok || !t.Nominal.After(l.Through) || r.isTooLate(t, at.Now) || !t.Nominal.After(l.RestoredUntil(at.Jumps)) {
			break
		}
		before = t.Nominal
		p, paused := l.pauseAt(t.Time)
		switch {
		case paused && p.Since.Before(before):
			before = p.Since // none of a pause fires
		case paused || t.Time.After(at.Now) || l.isSkipped(t.Nominal):
		default:
			first = t.Nominal
			most--
		}
	}
	return first
}

// extendRun adds to a run those times behind it of which the same is to be said. first is what firstToFire returns.
func (l ScheduleLife) extendRun(r ScheduleRules, times ScheduleTimes, at ScheduleSight, run LedgerRun, first time.Time) LedgerRun {
	for {
		t, ok := times.Next(run.To)
		if !ok || t.Time.After(at.Now) || l.isSkipped(t.Nominal) {
			return run
		}
		one := l.judge(r, at, t, first)
		if one.Outcome != run.Outcome || one.Reason != run.Reason || one.Detail != run.Detail {
			return run
		}
		if run.Count == maxCounted {
			run.To, run.AtLeast = l.lastAlike(r, times, at, t, first), true
			return run
		}
		run.To = one.To
		run.Count++
	}
}

// lastAlike returns the last nominal time from one on before anything else may be to be said: a pause begins or ends there, or what
// is too late, what nobody saw, or a jump of the clock; or it is due no more, the first one to fire or skipped by hand.
func (l ScheduleLife) lastAlike(r ScheduleRules, times ScheduleTimes, at ScheduleSight, t ScheduleTime, first time.Time) time.Time {
	changes := []time.Time{at.Now.Add(-r.CatchUp), at.Awake, at.Full}
	for _, j := range at.Jumps {
		changes = append(changes, j.From, j.To)
	}
	for _, p := range l.Pauses {
		changes = append(changes, p.Since, p.Until)
	}
	end := at.Now.Add(1)
	for _, change := range changes {
		if change.After(t.Time) && change.Before(end) {
			end = change
		}
	}
	bound := end // of nominal times
	for _, nominal := range append([]time.Time{first, l.RestoredUntil(at.Jumps).Add(1)}, l.Skips...) {
		if nominal.After(t.Nominal) && nominal.Before(bound) {
			bound = nominal
		}
	}
	last, ok := times.Prev(bound)
	for ok && last.Nominal.After(t.Nominal) && !last.Time.Before(end) {
		last, ok = times.Prev(last.Nominal)
	}
	if !ok || last.Nominal.Before(t.Nominal) {
		return t.Nominal
	}
	return last.Nominal
}

// settle writes a run, or adds it to the one before.
func (l ScheduleLife) settle(run LedgerRun) ScheduleDecision {
	next := l.settled(run.To)
	next.Run = l.Run.extend(run)
	return ScheduleDecision{Kind: DecideSettle, Life: next, Entry: next.Run}
}

// settleWaiting is settle for the time that waits.
func (l ScheduleLife) settleWaiting(outcome harp.TimeOutcome, reason, detail string) ScheduleDecision {
	next := l
	next.Waiting, next.Waits = time.Time{}, nil
	if len(l.Waits) > 0 {
		return next.settleEnds(l.Waits, outcome, reason, detail)
	}
	next.WaitedRun = l.WaitedRun.extend(oneTime(outcome, reason, detail, l.Waiting))
	return ScheduleDecision{Kind: DecideSettle, Life: next, Entry: next.WaitedRun}
}

func (l ScheduleLife) fire(t ScheduleTime, at ScheduleSight) ScheduleDecision {
	d := ScheduleDecision{Kind: DecideFire, Life: l.settled(t.Nominal), Nominal: t.Nominal, Late: at.Now.Sub(t.Time), of: l}
	d.Life.Run, d.Life.WaitedRun = LedgerRun{}, LedgerRun{}
	return d
}

// Instead returns what is decided in place of a fire when that cannot be: the target selects no hosts, a window refuses all
// of them, there is no space, or the submission is refused.
func (d ScheduleDecision) Instead(outcome harp.TimeOutcome, reason, detail string) ScheduleDecision {
	switch d.Fires {
	case FireWaiting:
		return d.of.settleWaiting(outcome, reason, detail)
	case FireTime:
		return d.of.settle(oneTime(outcome, reason, detail, d.Nominal))
	default: // stands apart from the times that come
		d.Kind, d.Entry = DecideSettle, oneTime(outcome, reason, detail, d.Nominal)
		return d
	}
}

// settled returns the life with a nominal time, and all before it, settled.
func (l ScheduleLife) settled(nominal time.Time) ScheduleLife {
	l.Through, l.Fresh = nominal, false
	l.Skips = slices.DeleteFunc(slices.Clone(l.Skips), func(t time.Time) bool { return !t.After(nominal) })
	return l
}

func (l ScheduleLife) isSkipped(nominal time.Time) bool {
	return slices.ContainsFunc(l.Skips, nominal.Equal)
}

// maxSkips is how many times to come may be skipped by hand.
const maxSkips = 100

// Skip returns the life of a schedule of which one time to come is skipped; its entry, which the decision has, is written at once. Errors: ErrIllegal if there is no such
// time, it is settled, or was skipped before, or a hundred are.
func (l ScheduleLife) Skip(nominal time.Time, times ScheduleTimes) (ScheduleDecision, error) {
	if !nominal.After(l.Through) || l.isSkipped(nominal) || !hasTime(times, nominal) {
		return ScheduleDecision{}, fmt.Errorf("%w: skip of a time that is none, or no more", ErrIllegal)
	}
	if len(l.Skips) >= maxSkips {
		return ScheduleDecision{}, fmt.Errorf("%w: %d times to come are skipped already", ErrIllegal, len(l.Skips))
	}
	l.Skips = slices.SortedFunc(slices.Values(append(slices.Clone(l.Skips), nominal)), time.Time.Compare)
	return ScheduleDecision{Kind: DecideSettle, Life: l, Entry: oneTime(harp.TimeSkipped, harp.TimeByHand, "", nominal)}, nil
}

// Trigger decides about a run that somebody asks for now. Errors: ErrIllegal while the last batch is not over, unless it may run beside
// that, and while the schedule is paused, unless it may run all the same.
func (l ScheduleLife) Trigger(evenIfRunning, evenIfPaused bool, at ScheduleSight) (ScheduleDecision, error) {
	if p, paused := l.Paused(at.Now); paused && !evenIfPaused {
		return ScheduleDecision{}, fmt.Errorf("%w: the schedule is paused: %s", ErrIllegal, p.detail())
	}
	if at.Running != "" && !evenIfRunning {
		return ScheduleDecision{}, fmt.Errorf("%w: batch %s of the schedule is not over", ErrIllegal, at.Running)
	}
	return ScheduleDecision{Kind: DecideFire, Life: l, Nominal: at.Now, Fires: FireManual, of: l}, nil
}

// AskBackfill returns the life of a schedule that fires these nominal times, which are in their order, once more: see
// [ScheduleLife.NextBackfill]. Errors: ErrIllegal for one that is not settled, more than harp.MaxBackfill, or while an earlier backfill is not
// over.
func (l ScheduleLife) AskBackfill(nominals []time.Time) (ScheduleLife, error) {
	switch n := len(nominals); {
	case n == 0:
		return l, nil
	case len(l.Backfill)+len(l.Lost) > 0:
		return l, fmt.Errorf("%w: an earlier backfill has %d times left", ErrIllegal, len(l.Backfill)+len(l.Lost))
	case n > harp.MaxBackfill:
		return l, fmt.Errorf("%w: a backfill of more than %d times", ErrIllegal, harp.MaxBackfill)
	case nominals[n-1].After(l.Through) || slices.ContainsFunc(nominals, l.Waiting.Equal):
		return l, fmt.Errorf("%w: a backfill of a time that is to come", ErrIllegal)
	}
	l.Backfill, l.Fresh = slices.Clone(nominals), false
	return l, nil
}

// settleBackfill decides about all that is left of a backfill together. Times that follow one another are one entry.
func settleBackfill(l ScheduleLife, times ScheduleTimes, left []time.Time, outcome harp.TimeOutcome, reason, detail string) ScheduleDecision {
	d := ScheduleDecision{Kind: DecideSettle, Life: l, Fires: FireBackfill, Entry: oneTime(outcome, reason, detail, left[0])}
	last := &d.Entry
	for _, nominal := range left[1:] {
		if next, ok := times.Next(last.To); ok && next.Nominal.Equal(nominal) {
			last.To = nominal
			last.Count++
			continue
		}
		d.More = append(d.More, oneTime(outcome, reason, detail, nominal))
		last = &d.More[len(d.More)-1]
	}
	return d
}

// NextBackfill decides about the oldest time of the past that is to fire once more: it does when no batch is running and the schedule is
// not paused. It is for when [ScheduleLife.Next] says that there is nothing to do.
func (l ScheduleLife) NextBackfill(at ScheduleSight) ScheduleDecision {
	p, paused := l.Paused(at.Now)
	switch {
	case len(l.Backfill) == 0 || at.Running != "":
		return ScheduleDecision{Kind: DecideWait, Life: l}
	case paused:
		return ScheduleDecision{Kind: DecideWait, Life: l, Wake: p.Until}
	}
	d := ScheduleDecision{Kind: DecideFire, Life: l, Nominal: l.Backfill[0], Fires: FireBackfill, of: l}
	d.Life.Backfill = slices.Clone(l.Backfill[1:])
	return d
}

// Change decides about a schedule whose rules and times are others from now on. What was due before is to be settled first, so that
// no edit fires the past or hides it: of ends until now none counts, unless it comes after the same as before. A time that has come and
// only waits for its jitter stays to come if it is one of the new times and the last of them until now; else it is skipped, which the decision
// has the entry of. Errors: ErrIllegal if something is not settled.
func (l ScheduleLife) Change(r, next ScheduleRules, before, after ScheduleTimes, at ScheduleSight) (ScheduleDecision, error) {
	if l.Next(r, before, at).Kind != DecideWait {
		return ScheduleDecision{}, fmt.Errorf("%w: times of the schedule are due", ErrIllegal)
	}
	d := ScheduleDecision{Kind: DecideSettle, Life: l}
	if len(next.After) > 0 && slices.Equal(r.After, next.After) {
		return d, nil
	}
	through := at.Now
	if t, ok := before.Next(l.Through); ok && !t.Nominal.After(at.Now) {
		following, more := after.Next(t.Nominal)
		switch {
		case hasTime(after, t.Nominal) && (!more || following.Nominal.After(at.Now)):
			through = t.Nominal.Add(-1)
		case !l.isSkipped(t.Nominal):
			d.Entry = oneTime(harp.TimeSkipped, harp.TimeByHand, "its times were changed", t.Nominal)
		}
	}
	if through.After(l.Through) {
		d.Life.Through = through
	}
	d.Life = d.Life.settled(d.Life.Through) // what is skipped stays so, also where the new times have it not: others may have it again
	d.Life = d.Life.dropPausesAhead(at.Now)
	return d, nil
}

// Abandon decides about what would be told nowhere if the schedule were deleted now: what waits for the end of the last batch, ends of runs
// that are not settled, what is left of a backfill, and times that have come and wait for their jitter, or could not be settled. Each decision
// is about one of them, of times about all in a row, and is asked with the life of the one before; DecideWait: nothing is left.
func (l ScheduleLife) Abandon(times ScheduleTimes, now time.Time) ScheduleDecision {
	const why = "the schedule was deleted"
	if len(l.Lost) > 0 {
		return l.settleLost(times)
	}
	if !l.Waiting.IsZero() {
		return l.settleWaiting(harp.TimeSkipped, harp.TimeByHand, why)
	}
	if len(l.Ends) > 0 {
		return l.without(0).settleEnds(l.Ends[:1], harp.TimeSkipped, harp.TimeByHand, why)
	}
	if len(l.Backfill) > 0 {
		d := settleBackfill(l, times, l.Backfill, harp.TimeSkipped, harp.TimeByHand, why)
		d.Life.Backfill = nil
		return d
	}
	t, ok := times.Next(l.Through)
	switch {
	case !ok || t.Nominal.After(now):
		return ScheduleDecision{Kind: DecideWait, Life: l}
	case l.isSkipped(t.Nominal):
		return ScheduleDecision{Kind: DecideSettle, Life: l.settled(t.Nominal)}
	}
	run := oneTime(harp.TimeSkipped, harp.TimeByHand, why, t.Nominal)
	for t, ok = times.Next(run.To); ok && !t.Nominal.After(now) && !l.isSkipped(t.Nominal); t, ok = times.Next(run.To) {
		if run.Count == maxCounted {
			t, _ = times.Prev(now.Add(1))
			run.To, run.AtLeast = t.Nominal, true
			break
		}
		run.To = t.Nominal
		run.Count++
	}
	return l.settle(run)
}

func hasTime(times ScheduleTimes, nominal time.Time) bool {
	t, ok := times.Prev(nominal.Add(1))
	return ok && t.Nominal.Equal(nominal)
}

// Ended returns the life of a schedule of which a run has ended. After as many in a row that did not succeed as PauseOnFailure says
// it is paused, and true is returned.
func (l ScheduleLife) Ended(r ScheduleRules, times ScheduleTimes, succeeded bool, reason string, now time.Time) (ScheduleLife, bool) {
	if succeeded {
		l.Failures = 0
		return l, false
	}
	l.Failures++
	if _, paused := l.Paused(now); paused || r.PauseOnFailure == 0 || l.Failures < r.PauseOnFailure {
		return l, false
	}
	l.Failures = 0
	return l.Pause(SchedulePause{Reason: reason, Since: now}, times), true
}
