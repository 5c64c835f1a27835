package store_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"
	_ "time/tzdata"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/store"
)

// scheduleWorld is a schedule with the world around it, and a naive model of its rules and its ledger.
type scheduleWorld struct {
	rules   store.ScheduleRules
	times   ticks
	life    store.ScheduleLife
	now     int
	awake   int
	jumps   [][2]int
	full    int
	restore int // when it was, last
	running string
	runs    int

	fired   map[int]bool
	ledger  map[int]store.LedgerRun // by From
	byHand  map[int]bool
	again   []int    // of the past, which are to fire once more
	lost    []int    // those that were left as the backup was made
	pauses  [][2]int // the end is far for one that is open
	paused  int      // by the last one until then, if nobody ended it
	history []string
}

func (w scheduleWorld) clone() scheduleWorld {
	w.fired, w.ledger, w.byHand = maps.Clone(w.fired), maps.Clone(w.ledger), maps.Clone(w.byHand)
	w.pauses, w.history = slices.Clone(w.pauses), slices.Clone(w.history)
	w.again, w.jumps = slices.Clone(w.again), slices.Clone(w.jumps)
	return w
}

func newScheduleWorld(r store.ScheduleRules, k ticks) scheduleWorld {
	return scheduleWorld{rules: r, times: k, life: store.ScheduleLife{Through: tick(0)}, restore: -1, fired: map[int]bool{}, ledger: map[int]store.LedgerRun{}, byHand: map[int]bool{}}
}

func (w *scheduleWorld) sight() store.ScheduleSight {
	return store.ScheduleSight{Now: tick(w.now), Awake: tick(w.awake), Jumps: w.clockJumps(), Full: tick(w.full), Running: w.running}
}

func (w *scheduleWorld) clockJumps() (all []store.ClockJump) {
	for _, j := range w.jumps {
		all = append(all, store.ClockJump{From: tick(j[0]), To: tick(j[1])})
	}
	return all
}

func (w *scheduleWorld) isPaused(at int) bool {
	return slices.ContainsFunc(w.pauses, func(p [2]int) bool { return p[0] <= at && at < p[1] })
}

func (w *scheduleWorld) isTooLate(at int) bool {
	return w.now-at > int(w.rules.CatchUp/time.Second)
}

// expect says by the words of the rules what is to happen at a nominal time that is due, but for overlap.
func (w *scheduleWorld) expect(nominal int) (harp.TimeOutcome, string) {
	at := tickOf(w.times.at(nominal).Time)
	later := 0
	for n := nominal + w.times.every; n <= w.now; n += w.times.every {
		if due := tickOf(w.times.at(n).Time); due <= w.now && !w.isPaused(due) && !w.byHand[n] {
			later++
		}
	}
	switch {
	case nominal <= w.restore:
		return harp.TimeMissed, harp.TimeRestored
	case w.isPaused(at):
		return harp.TimeSkipped, harp.TimePaused
	case w.isTooLate(at) && slices.ContainsFunc(w.jumps, func(j [2]int) bool { return j[0] <= at && at < j[1] }):
		return harp.TimeMissed, harp.TimeClock
	case w.isTooLate(at) && at < w.awake:
		return harp.TimeMissed, harp.TimeDown
	case w.isTooLate(at) && at < w.full:
		return harp.TimeMissed, harp.TimeNoSpace
	case w.isTooLate(at) || later >= max(w.rules.CatchUpMost, 1):
		return harp.TimeMissed, harp.TimeTooLate
	case w.now < w.paused:
		return harp.TimeSkipped, harp.TimePaused
	}
	return harp.TimeFired, ""
}

// settle decides until there is nothing more to decide. Of some commits the world hears that they failed.
func (w *scheduleWorld) settle(t testing.TB, fails func() bool) {
	t.Helper()
	for range 1000 {
		before := w.life
		d := w.life.Next(w.rules, w.times, w.sight())
		if d.Kind == store.DecideWait {
			w.checkIdle(t, d)
			if d = w.life.NextBackfill(w.sight()); d.Kind == store.DecideWait {
				w.checkNoBackfill(t)
				return
			}
		}
		if fails() {
			continue
		}
		if before.Unseen && d.Kind == store.DecideSettle && d.Life.Through.Equal(before.Through) && d.Entry.Outcome == "" {
			w.life = d.Life // it was looked at, and there is nothing to do
			continue
		}
		if d.Fires == store.FireBackfill && d.Kind == store.DecideSettle {
			w.checkLost(t, d)
			continue
		}
		if d.Fires == store.FireBackfill {
			w.checkBackfill(t, d)
			continue
		}
		if d.Kind == store.DecideFire && (w.now+w.runs)%5 == 0 {
			d = d.Instead(harp.TimeSkipped, harp.TimeNoHosts, "")
			w.checkInstead(t, d)
		} else {
			w.checkDecision(t, before, d)
		}
		w.life = d.Life
	}
	t.Fatalf("%v: it goes on deciding: %+v", w.history, w.life)
}

func (w *scheduleWorld) fail(t testing.TB, format string, args ...any) {
	t.Helper()
	t.Fatalf("%+v, %+v\n%v\nat %d, awake %d, jump %v, running %q\nlife %+v\n%s", w.rules, w.times, w.history, w.now, w.awake, w.jumps, w.running, w.life, fmt.Sprintf(format, args...))
}

// checkDecision compares with what the rules say, for each nominal time that is settled.
func (w *scheduleWorld) checkDecision(t testing.TB, before store.ScheduleLife, d store.ScheduleDecision) {
	t.Helper()
	w.history = append(w.history, fmt.Sprintf("%d:%d %d %s/%s", w.now, d.Kind, tickOf(d.Nominal), d.Entry.Outcome, d.Entry.Reason))
	from, to := tickOf(before.Through), tickOf(d.Life.Through)
	if to == from {
		w.checkWaited(t, before, d)
		return
	}
	overlaps := w.running != "" && w.rules.Overlap != harp.OverlapAllow
	count := 0
	for n := from + w.times.every; n <= to; n += w.times.every {
		count++
		outcome, reason := w.expect(n)
		if w.byHand[n] {
			if d.Entry.Count > 0 || from+w.times.every != to {
				w.fail(t, "time %d was skipped by hand, and %+v", n, d)
			}
			return
		}
		switch {
		case outcome != harp.TimeFired:
			if d.Kind != store.DecideSettle || d.Entry.Outcome != outcome || d.Entry.Reason != reason {
				w.fail(t, "time %d is to be %s (%s), and %+v", n, outcome, reason, d)
			}
		case !overlaps:
			if d.Kind != store.DecideFire || tickOf(d.Nominal) != n || d.Late != tick(w.now).Sub(w.times.at(n).Time) {
				w.fail(t, "time %d is to fire, and %+v", n, d)
			}
		case w.rules.Overlap == harp.OverlapSkip || !before.Waiting.IsZero():
			if d.Entry.Reason != harp.TimeOverlap || d.Entry.Detail != w.running {
				w.fail(t, "time %d overlaps and is to be skipped, and %+v", n, d)
			}
		default:
			if d.Kind != store.DecideQueue || tickOf(d.Life.Waiting) != n || (d.Cancel == w.running) != (w.rules.Overlap == harp.OverlapCancelOld) {
				w.fail(t, "time %d is to wait, and %+v", n, d)
			}
		}
	}
	if d.Kind != store.DecideSettle && count != 1 {
		w.fail(t, "%d times at once: %+v", count, d)
	}
	w.book(t, d, count)
}

// checkWaited is checkDecision for the time that waited.
func (w *scheduleWorld) checkWaited(t testing.TB, before store.ScheduleLife, d store.ScheduleDecision) {
	t.Helper()
	n := tickOf(before.Waiting)
	if n <= w.restore || before.Unseen {
		if d.Entry.Outcome != harp.TimeMissed || d.Entry.Reason != harp.TimeRestored {
			w.fail(t, "time %d may have fired before a restore, and %+v", n, d)
		}
		w.book(t, d, 1)
		return
	}
	isOld := tickOf(w.times.at(n+2*w.times.every).Time) <= w.now
	switch {
	case n == 0 || !d.Life.Waiting.IsZero():
		w.fail(t, "nothing was settled: %+v", d)
	case isOld:
		if d.Entry.Outcome != harp.TimeMissed || d.Entry.Reason != harp.TimeTooLate {
			w.fail(t, "time %d waits for too long, and %+v", n, d)
		}
	case w.running != "":
		w.fail(t, "time %d is to wait on, and %+v", n, d)
	case w.now < w.paused:
		if d.Entry.Reason != harp.TimePaused {
			w.fail(t, "the schedule is paused, and %+v", d)
		}
	case d.Kind != store.DecideFire || tickOf(d.Nominal) != n || d.Late < 0 || d.Fires != store.FireWaiting:
		w.fail(t, "time %d waits no more, and %+v", n, d)
	}
	w.book(t, d, 1)
}

func (w *scheduleWorld) checkInstead(t testing.TB, d store.ScheduleDecision) {
	t.Helper()
	w.history = append(w.history, fmt.Sprintf("%d: no hosts", w.now))
	if d.Kind != store.DecideSettle || d.Entry.Outcome != harp.TimeSkipped || d.Entry.Reason != harp.TimeNoHosts {
		w.fail(t, "there are no hosts, and %+v", d)
	}
	w.book(t, d, 1)
}

// checkBackfill: the oldest of the past fires, when nothing runs and no pause is on, and moves no time to come. Some of them
// cannot be.
func (w *scheduleWorld) checkBackfill(t testing.TB, d store.ScheduleDecision) {
	t.Helper()
	w.history = append(w.history, fmt.Sprintf("%d: backfill of %d", w.now, tickOf(d.Nominal)))
	if len(w.again) == 0 || tickOf(d.Nominal) != w.again[0] || w.running != "" || w.now < w.paused {
		w.fail(t, "of the past are left %v, and %+v", w.again, d)
	}
	w.again = w.again[1:]
	if (w.now+w.runs)%3 == 0 {
		d = d.Instead(harp.TimeFailed, "refused", "")
		if d.Kind != store.DecideSettle || d.Entry.Count != 1 || !d.Entry.From.Equal(d.Nominal) {
			w.fail(t, "a time of the past was refused, and %+v", d)
		}
	} else {
		w.runs++
		w.running = fmt.Sprint("batch ", w.runs)
	}
	w.moves(t, d.Life)
	w.life = d.Life
}

// checkLost: what was left of a backfill as the backup was made is told once, together, times that follow one another as one entry.
func (w *scheduleWorld) checkLost(t testing.TB, d store.ScheduleDecision) {
	t.Helper()
	var want []store.LedgerRun
	for i, n := range w.lost {
		if i > 0 && n == w.lost[i-1]/w.times.every*w.times.every+w.times.every {
			last := &want[len(want)-1]
			last.To = tick(n)
			last.Count++
			continue
		}
		want = append(want, store.LedgerRun{Outcome: harp.TimeMissed, Reason: harp.TimeRestored, From: tick(n), To: tick(n), Count: 1})
	}
	if got := append([]store.LedgerRun{d.Entry}, d.More...); !slices.Equal(got, want) {
		w.fail(t, "of a backfill before a restore %+v is to be told, and %+v", want, d)
	}
	w.lost = nil
	w.moves(t, d.Life)
	w.life = d.Life
}

// moves checks that a life has settled no time.
func (w *scheduleWorld) moves(t testing.TB, next store.ScheduleLife) {
	t.Helper()
	if !next.Through.Equal(w.life.Through) || !next.Waiting.Equal(w.life.Waiting) || next.Run != w.life.Run || len(next.Backfill) != len(w.again) {
		w.fail(t, "times to come were moved: %+v", next)
	}
}

func (w *scheduleWorld) checkNoBackfill(t testing.TB) {
	t.Helper()
	if len(w.lost) > 0 {
		w.fail(t, "%v were left before a restore, and are not told", w.lost)
	}
	if len(w.again) > 0 && w.running == "" && w.now >= w.paused {
		w.fail(t, "%v of the past are to fire", w.again)
	}
}

// trigger asks for a run now.
func (w *scheduleWorld) trigger(t testing.TB, even bool) {
	t.Helper()
	d, err := w.life.Trigger(even, even, w.sight())
	if refused := !even && (w.running != "" || w.now < w.paused); (err != nil) != refused {
		w.fail(t, "a run by hand: %v", err)
	}
	if err != nil {
		return
	}
	if d.Kind != store.DecideFire || d.Fires != store.FireManual || tickOf(d.Nominal) != w.now {
		w.fail(t, "a run by hand: %+v", d)
	}
	w.moves(t, d.Life)
	w.life = d.Life
	w.runs++
	w.running = fmt.Sprint("batch ", w.runs)
}

// backfill asks for the last two times that are settled.
func (w *scheduleWorld) backfill(t testing.TB) {
	t.Helper()
	var ask []int
	var nominals []time.Time
	for n := tickOf(w.life.Through) / w.times.every * w.times.every; n > 0 && len(ask) < 2; n -= w.times.every {
		if !tick(n).Equal(w.life.Waiting) {
			ask, nominals = append([]int{n}, ask...), append([]time.Time{tick(n)}, nominals...)
		}
	}
	life, err := w.life.AskBackfill(nominals)
	if refused := len(ask) > 0 && len(w.again) > 0; (err != nil) != refused {
		w.fail(t, "a backfill of %v: %v", ask, err)
	}
	if err == nil {
		w.again = append(w.again, ask...)
		w.moves(t, life)
		w.life = life
	}
}

// book writes a decision into the ledger.
func (w *scheduleWorld) book(t testing.TB, d store.ScheduleDecision, count int) {
	t.Helper()
	switch d.Kind {
	case store.DecideFire:
		if n := tickOf(d.Nominal); w.fired[n] {
			w.fail(t, "time %d fires twice", n)
		}
		w.fired[tickOf(d.Nominal)] = true
		w.runs++
		w.running = fmt.Sprint("batch ", w.runs)
	case store.DecideSettle:
		from := tickOf(d.Entry.From)
		if d.Entry.Count != w.ledger[from].Count+count && !d.Entry.AtLeast {
			w.fail(t, "%d times make of %+v an entry %+v", count, w.ledger[from], d.Entry)
		}
		w.ledger[from] = d.Entry
	default:
	}
}

// checkIdle: each nominal time up to the last that is settled is in the ledger, or waits, and the next is to come.
func (w *scheduleWorld) checkIdle(t testing.TB, d store.ScheduleDecision) {
	t.Helper()
	next, _ := w.times.Next(w.life.Through)
	if !d.Wake.Equal(next.Time) || tickOf(next.Time) <= w.now {
		w.fail(t, "it waits until %v, the next time is %+v", d.Wake, next)
	}
	told := len(w.fired)
	for _, entry := range w.ledger {
		told += entry.Count
	}
	for n := range w.byHand {
		if !tick(n).After(w.life.Through) {
			told++
		}
	}
	if !w.life.Waiting.IsZero() {
		told++
	}
	if all := tickOf(w.life.Through) / w.times.every; told != all {
		w.fail(t, "%d of %d times are told of: fired %v, ledger %v, by hand %v", told, all, w.fired, w.ledger, w.byHand)
	}
}

func (w *scheduleWorld) pause(until int) {
	end := tick(until)
	if until > 1<<30 {
		end = time.Time{}
	}
	w.life = w.life.Pause(store.SchedulePause{By: olga, Reason: "disks", Since: tick(w.now), Until: end}, w.times)
	w.unpauseNaively()
	w.pauses = append(w.pauses, [2]int{w.now, until})
	w.paused = until
}

func (w *scheduleWorld) unpauseNaively() {
	w.paused = 0
	for i := range w.pauses {
		w.pauses[i][1] = min(w.pauses[i][1], max(w.now, w.pauses[i][0]))
	}
}

// restored is that a backup was restored at a time, and somebody looks now.
func (w *scheduleWorld) restored(at int) {
	w.running, w.awake, w.restore, w.lost, w.again, w.jumps = "", w.now, w.now, w.again, nil, nil
	w.life = w.life.Restore(tick(at))
}

// scheduleEvents are what may happen to a schedule. Between two of them it decides all there is, but where it says otherwise.
var scheduleEvents = []struct {
	name string
	do   func(t testing.TB, w *scheduleWorld)
	busy bool // nobody decides anything afterwards
}{
	{"second", func(_ testing.TB, w *scheduleWorld) { w.now++ }, false},
	{"away", func(_ testing.TB, w *scheduleWorld) { w.now += 7; w.awake = w.now }, false},
	{"slow", func(_ testing.TB, w *scheduleWorld) { w.now += 4 }, true},
	{"forward", func(_ testing.TB, w *scheduleWorld) {
		w.jumps = append(w.jumps, [2]int{w.now, w.now + 9})
		if w.restore >= 0 && w.restore <= w.now {
			w.restore += 9
		}
		w.now += 9
	}, false},
	{"full", func(_ testing.TB, w *scheduleWorld) { w.now += 5; w.full = w.now }, false},
	{"restore", func(_ testing.TB, w *scheduleWorld) { w.now += 3; w.restored(w.now) }, false},
	{"restore by a clock that is set right", func(_ testing.TB, w *scheduleWorld) { w.now += 3; w.restored(max(w.now-5, 0)) }, false},
	{"restore by a clock that is behind", func(_ testing.TB, w *scheduleWorld) { w.now = max(w.now-5, 0); w.restored(w.now) }, false},
	{"trigger", func(t testing.TB, w *scheduleWorld) { w.trigger(t, false) }, false},
	{"trigger all the same", func(t testing.TB, w *scheduleWorld) { w.trigger(t, true) }, true},
	{"backfill", func(t testing.TB, w *scheduleWorld) { w.backfill(t) }, false},
	{"back", func(_ testing.TB, w *scheduleWorld) { w.now = max(w.now-5, 0) }, false},
	{"succeeds", func(_ testing.TB, w *scheduleWorld) { w.end(true) }, false},
	{"fails", func(_ testing.TB, w *scheduleWorld) { w.end(false) }, false},
	{"pause", func(_ testing.TB, w *scheduleWorld) { w.pause(1 << 40) }, false},
	{"pause for a while", func(_ testing.TB, w *scheduleWorld) { w.pause(w.now + 3) }, true},
	{"unpause", func(_ testing.TB, w *scheduleWorld) {
		w.life = w.life.Unpause(tick(w.now), w.times)
		w.unpauseNaively()
	}, false},
	{"skip", func(t testing.TB, w *scheduleWorld) {
		next, _ := w.times.Next(w.life.Through.Add(time.Duration(w.times.every) * time.Second))
		d, err := w.life.Skip(next.Nominal, w.times)
		if n := tickOf(next.Nominal); (err != nil) != w.byHand[n] {
			w.fail(t, "skip of %d: %v", n, err)
		} else if err == nil {
			w.byHand[n], w.life = true, d.Life
		}
	}, false},
}

func (w *scheduleWorld) end(succeeded bool) {
	if w.running == "" {
		return
	}
	w.running = ""
	var paused bool
	w.life, paused = w.life.Ended(w.rules, w.times, succeeded, "2 runs in a row failed", tick(w.now))
	if paused {
		w.unpauseNaively()
		w.pauses = append(w.pauses, [2]int{w.now, 1 << 40})
		w.paused = 1 << 40
	}
}

func (w *scheduleWorld) happen(t testing.TB, i int, fails func() bool) {
	t.Helper()
	e := scheduleEvents[i]
	w.history = append(w.history, e.name)
	e.do(t, w)
	if !e.busy {
		w.settle(t, fails)
	}
}

func scheduleVariants() (all []scheduleWorld) {
	for _, overlap := range []harp.Overlap{harp.OverlapSkip, harp.OverlapQueue, harp.OverlapCancelOld, harp.OverlapAllow} {
		for _, r := range []store.ScheduleRules{
			{CatchUp: 2 * time.Second, CatchUpMost: 1, PauseOnFailure: 2},
			{CatchUp: 6 * time.Second, CatchUpMost: 2},
		} {
			r.Overlap = overlap
			all = append(all, newScheduleWorld(r, ticks{2, 0}), newScheduleWorld(r, ticks{3, 2}))
		}
	}
	return all
}
