package store_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
	_ "time/tzdata"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/store"
)

var olga = harp.Principal{Kind: "user", Name: "olga"}

// TestScheduleLifeSmall goes through all that may happen in a few steps.
func TestScheduleLifeSmall(t *testing.T) {
	depth := 4
	if testing.Short() {
		depth = 3
	}
	var explore func(w scheduleWorld, left int)
	explore = func(w scheduleWorld, left int) {
		if left == 0 {
			return
		}
		for i := range scheduleEvents {
			next := w.clone()
			next.happen(t, i, func() bool { return false })
			explore(next, left-1)
		}
	}
	for _, w := range scheduleVariants() {
		explore(w, depth)
	}
}

// TestScheduleLifeRandom has long histories, in which every third commit fails.
func TestScheduleLifeRandom(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	variants := scheduleVariants()
	for i := range 3000 {
		w := variants[i%len(variants)].clone()
		for range 40 {
			w.happen(t, r.IntN(len(scheduleEvents)), func() bool { return r.IntN(3) == 0 })
		}
	}
}

// TestScheduleLifeLongAway: a month in which nobody was there, of times each second, is settled in a few steps that say the same as the rules do.
func TestScheduleLifeLongAway(t *testing.T) {
	w := newScheduleWorld(store.ScheduleRules{Overlap: harp.OverlapSkip, CatchUp: 10 * time.Minute, CatchUpMost: 3}, ticks{1, 0})
	const month = 30 * 24 * 3600
	const pauseFrom, pauseTo, skipped = 400_000, 900_000, 1_500_000
	w.life = w.life.Pause(store.SchedulePause{By: olga, Since: tick(pauseFrom), Until: tick(pauseTo)}, w.times)
	d, err := w.life.Skip(tick(skipped), w.times)
	if err != nil {
		t.Fatal(err)
	}
	w.life, w.now, w.awake = d.Life, month, month
	var told []string
	for range 100 {
		d := w.life.Next(w.rules, w.times, w.sight())
		if d.Kind == store.DecideWait {
			break
		}
		told = append(told, fmt.Sprintf("%d %s %s %d-%d %d %t", d.Kind, d.Entry.Outcome, d.Entry.Reason, tickOf(d.Entry.From), tickOf(d.Life.Through), d.Entry.Count, d.Entry.AtLeast))
		if w.life = d.Life; d.Kind == store.DecideFire {
			w.running = "batch"
		}
	}
	want := []string{
		"1 missed down 1-399999 10000 true",
		"1 skipped paused 400000-899999 10000 true",
		"1 missed down 900000-1499999 10000 true",
		"1   -62135596800-1500000 0 false", // its entry is there already
		"1 missed down 900000-2591399 20000 true",
		"1 missed catch_up 2591400-2591997 598 false",
		"2   -62135596800-2591998 0 false",
		"1 skipped overlap 2591999-2591999 1 false",
		"1 skipped overlap 2591999-2592000 2 false",
	}
	if !slices.Equal(told, want) {
		t.Errorf("got  %q\nwant %q", told, want)
	}
}

// TestScheduleLifeLongJitter: a run of more times than are counted ends with the last one of which the same is to be said by its
// time, not by its nominal time.
func TestScheduleLifeLongJitter(t *testing.T) {
	for end := 60_000; end < 60_020; end++ {
		w := newScheduleWorld(store.ScheduleRules{Overlap: harp.OverlapSkip, CatchUp: time.Minute}, ticks{4, 3})
		w.now, w.awake = 100_000, 100_000
		w.life = w.life.Pause(store.SchedulePause{By: olga, Since: tick(0), Until: tick(end)}, w.times)
		d := w.life.Next(w.rules, w.times, w.sight())
		last := w.times.at(tickOf(d.Life.Through))
		following, _ := w.times.Next(last.Nominal)
		if !d.Entry.AtLeast || tickOf(last.Time) >= end || tickOf(following.Time) < end {
			t.Fatalf("paused until %d: the run ends with %v, and %v follows", end, last, following)
		}
	}
}

// TestScheduleLifeChange: an edit of the times fires nothing that is past, hides nothing that is due, and fires nothing twice where the clock was set
// back.
func TestScheduleLifeChange(t *testing.T) {
	w := newScheduleWorld(store.ScheduleRules{Overlap: harp.OverlapSkip, CatchUp: 5 * time.Second}, ticks{2, 0})
	w.now = 3
	if _, err := w.life.Change(w.rules, w.rules, w.times, ticks{3, 0}, w.sight()); !errors.Is(err, store.ErrIllegal) {
		t.Errorf("with a time that is due: %v", err)
	}
	w.settle(t, func() bool { return false })
	skipped, err := w.life.Skip(tick(6), w.times)
	if err != nil {
		t.Fatal(err)
	}
	also, err := skipped.Life.Skip(tick(8), w.times)
	if err != nil {
		t.Fatal(err)
	}
	w.life, w.now = also.Life, 1
	changed, err := w.life.Change(w.rules, w.rules, w.times, ticks{3, 0}, w.sight())
	if err != nil || !changed.Life.Through.Equal(tick(2)) || !slices.Equal(changed.Life.Skips, []time.Time{tick(6), tick(8)}) || changed.Entry.Count > 0 {
		t.Errorf("at second 1, with 2 settled: %+v, %v", changed, err)
	}
	w.now = 3
	if changed, err = w.life.Change(w.rules, w.rules, w.times, ticks{3, 0}, w.sight()); err != nil || !changed.Life.Through.Equal(tick(3)) || changed.Entry.Count > 0 {
		t.Errorf("at second 3: %+v, %v", changed, err)
	}
	for _, n := range []int{0, 2, 3, 7} {
		if _, err := changed.Life.Skip(tick(n), ticks{3, 0}); !errors.Is(err, store.ErrIllegal) {
			t.Errorf("skip of second %d: %v", n, err)
		}
	}
}

// A time to come was skipped by hand, an edit of the times took it away, or the zone was gone, and another one brought it back: it fired, though the ledger
// said that it was skipped.
func TestASkippedTimeStaysSkippedThroughEdits(t *testing.T) {
	rules, at := store.ScheduleRules{Overlap: harp.OverlapSkip, CatchUp: time.Minute}, store.ScheduleSight{Now: tick(1)}
	skipped, err := (store.ScheduleLife{Through: tick(0)}).Skip(tick(6), ticks{2, 0})
	if err != nil {
		t.Fatal(err)
	}
	away, err := skipped.Life.Change(rules, rules, ticks{2, 0}, ticks{5, 0}, at)
	if err != nil {
		t.Fatal(err)
	}
	back, err := away.Life.Change(rules, rules, ticks{5, 0}, ticks{6, 0}, at)
	if err != nil {
		t.Fatal(err)
	}
	for name, life := range map[string]store.ScheduleLife{"edits": back.Life, "zone": skipped.Life.SettleUnknown(tick(1)).Life} {
		d := life.Next(rules, ticks{6, 0}, store.ScheduleSight{Now: tick(6)})
		if d.Kind != store.DecideSettle || d.Entry.Outcome != "" || !d.Life.Through.Equal(tick(6)) || len(d.Life.Skips) > 0 {
			t.Errorf("%s: at its time it is decided %+v", name, d)
		}
	}
}

// TestScheduleLifeChangeOfATimeThatWaitsForItsJitter: a time that has come and did not fire yet stays, or the ledger says that it went.
func TestScheduleLifeChangeOfATimeThatWaitsForItsJitter(t *testing.T) {
	rules := store.ScheduleRules{Overlap: harp.OverlapSkip, CatchUp: time.Minute}
	before := ticks{10, 8} // 10 is late by 7, 20 by 5, 30 by 3, 40 by 1
	life := store.ScheduleLife{Through: tick(9)}
	for _, test := range []struct {
		name    string
		life    store.ScheduleLife
		now     int
		after   store.ScheduleTimes
		through time.Time
		entry   bool
	}{
		{"same times", life, 12, before, tick(10).Add(-1), false},
		{"as it comes", life, 10, before, tick(10).Add(-1), false},
		{"before it comes", life, 9, before, tick(9), false},
		{"no jitter", life, 12, ticks{10, 0}, tick(10).Add(-1), false},
		{"fewer times", life, 12, ticks{15, 0}, tick(12), true},
		{"more times, all to come", life, 12, ticks{5, 0}, tick(10).Add(-1), false},
		{"more times, some past", life, 15, ticks{5, 0}, tick(15), true},
		{"none", life, 12, noTimes{}, tick(12), true},
		{"nothing settled before", store.ScheduleLife{Through: tick(1)}, 12, before, tick(10).Add(-1), false},
		{"skipped by hand, stays", store.ScheduleLife{Through: tick(1), Skips: []time.Time{tick(10)}}, 12, before, tick(10).Add(-1), false},
		{"skipped by hand, goes", store.ScheduleLife{Through: tick(1), Skips: []time.Time{tick(10)}}, 12, ticks{15, 0}, tick(12), false},
	} {
		t.Run(test.name, func(t *testing.T) {
			at := store.ScheduleSight{Now: tick(test.now), Awake: tick(0)}
			d, err := test.life.Change(rules, rules, before, test.after, at)
			if err != nil || d.Kind != store.DecideSettle || !d.Life.Through.Equal(test.through) || len(d.Entry.Reason) > 0 != test.entry {
				t.Fatalf("got %+v, %v", d, err)
			}
			want := store.LedgerRun{Outcome: harp.TimeSkipped, Reason: harp.TimeByHand, Detail: "its times were changed", From: tick(10), To: tick(10), Count: 1}
			if test.entry && d.Entry != want {
				t.Errorf("the ledger says %+v", d.Entry)
			}
			stays := slices.Contains(d.Life.Skips, tick(10))
			if was := slices.Contains(test.life.Skips, tick(10)); stays != (was && test.through.Before(tick(10))) {
				t.Errorf("skipped by hand are %v", d.Life.Skips)
			}
		})
	}
}

// TestScheduleLifeChangeOfATimeThatWaitsForARun: a time waits for the end of the last batch as its schedule is given other times. Those of them that were before
// that are none for which it has waited too long.
func TestScheduleLifeChangeOfATimeThatWaitsForARun(t *testing.T) {
	rules := store.ScheduleRules{Overlap: harp.OverlapQueue, CatchUp: time.Hour}
	next, times := rules, ticks{2, 0}
	next.Put = tick(18)
	sight := func(now int, running string) store.ScheduleSight {
		return store.ScheduleSight{Now: tick(now), Awake: tick(0), Running: running}
	}
	changed, err := (store.ScheduleLife{Through: tick(10), Waiting: tick(10)}).Change(rules, next, ticks{10, 0}, times, sight(18, "a"))
	if err != nil {
		t.Fatal(err)
	}
	if d := changed.Life.Next(next, times, sight(18, "a")); d.Kind != store.DecideWait || !d.Life.Waiting.Equal(tick(10)) {
		t.Errorf("put anew it is decided %+v", d)
	}
	if d := changed.Life.Next(next, times, sight(21, "")); d.Kind != store.DecideFire || !d.Nominal.Equal(tick(10)) {
		t.Errorf("after the run it is decided %+v", d)
	}
	if d := changed.Life.Next(next, times, sight(22, "a")); d.Kind != store.DecideSettle || d.Entry.Reason != harp.TimeTooLate || !d.Entry.From.Equal(tick(10)) {
		t.Errorf("when the next time but one is due it is decided %+v", d)
	}
	next.Overlap = harp.OverlapAllow
	if d := changed.Life.Next(next, times, sight(18, "a")); d.Kind != store.DecideFire || !d.Nominal.Equal(tick(10)) {
		t.Errorf("put anew so that runs may overlap it is decided %+v", d)
	}
}

// TestScheduleLifeEntriesReachOverNoFire: an entry of several times has none between them that fired, also one that waited, so that whoever
// reads the ledger backwards may stop at a fire.
func TestScheduleLifeEntriesReachOverNoFire(t *testing.T) {
	for ends := range 1 << 12 { // in which seconds the run that there is ends
		rules := store.ScheduleRules{Overlap: harp.OverlapQueue, CatchUp: time.Hour, CatchUpMost: 100}
		life, times, running := store.ScheduleLife{Through: tick(0)}, ticks{1, 0}, "a"
		var fired []time.Time
		entries := map[time.Time]store.LedgerRun{}
		for now := 1; now <= 12; now++ {
			look := func() {
				for {
					d := life.Next(rules, times, store.ScheduleSight{Now: tick(now), Running: running})
					life = d.Life
					switch d.Kind {
					case store.DecideWait:
						return
					case store.DecideQueue: // it waits for the run
					case store.DecideFire:
						fired, running = append(fired, d.Nominal), fmt.Sprint(now)
					case store.DecideSettle:
						entries[d.Entry.From] = d.Entry
					}
				}
			}
			if ends&(1<<(now-1)) != 0 {
				running = ""
			}
			look()
			if ends&(1<<(12-now)) != 0 { // behind its time, too
				running = ""
				look()
			}
		}
		for _, e := range entries {
			for _, at := range fired {
				if e.From.Before(at) && e.To.After(at) {
					t.Fatalf("runs end in %b: second %d fired, and one entry is %+v", ends, at.Unix(), e)
				}
			}
		}
	}
}

// BenchmarkScheduleLifeSettle settles a day of times each minute.
func BenchmarkScheduleLifeSettle(b *testing.B) {
	r := store.ScheduleRules{Overlap: harp.OverlapSkip, CatchUp: 10 * time.Minute, CatchUpMost: 1}
	for b.Loop() {
		life := store.ScheduleLife{Through: tick(0)}
		for d := life.Next(r, ticks{60, 0}, store.ScheduleSight{Now: tick(86_400), Awake: tick(86_400)}); d.Kind != store.DecideWait; {
			d = d.Life.Next(r, ticks{60, 0}, store.ScheduleSight{Now: tick(86_400), Awake: tick(86_400)})
		}
	}
}

// Of a schedule that is deleted with many times that could not be settled the first ones are counted.
func TestAbandonManyTimes(t *testing.T) {
	life := store.ScheduleLife{Through: tick(0), Skips: []time.Time{tick(1)}}
	skipped := life.Abandon(ticks{1, 0}, tick(20_000))
	many := skipped.Life.Abandon(ticks{1, 0}, tick(20_000))
	if e := many.Entry; skipped.Entry.Outcome != "" || e.Count != 10_000 || !e.AtLeast || !e.From.Equal(tick(2)) || !e.To.Equal(tick(20_000)) || e.Reason != harp.TimeByHand {
		t.Errorf("told are %+v and %+v", skipped.Entry, e)
	}
	if d := many.Life.Abandon(ticks{1, 0}, tick(20_000)); d.Kind != store.DecideWait {
		t.Errorf("left is %+v", d)
	}
}

// A schedule was deleted before all times of its backfill had run, and the ledger did not say what became of the others.
func TestAbandonABackfill(t *testing.T) {
	life := store.ScheduleLife{Through: tick(9), Backfill: []time.Time{tick(3), tick(4), tick(7)}}
	d := life.Abandon(ticks{1, 0}, tick(9))
	want := store.LedgerRun{Outcome: harp.TimeSkipped, Reason: harp.TimeByHand, Detail: "the schedule was deleted", From: tick(3), To: tick(4), Count: 2}
	more := want // 5 and 6 have fired, and no entry reaches over them
	more.From, more.To, more.Count = tick(7), tick(7), 1
	if d.Kind != store.DecideSettle || d.Fires != store.FireBackfill || d.Entry != want || !slices.Equal(d.More, []store.LedgerRun{more}) || !d.Life.Through.Equal(tick(9)) {
		t.Errorf("told is %+v", d)
	}
	if d = d.Life.Abandon(ticks{1, 0}, tick(9)); d.Kind != store.DecideWait {
		t.Errorf("left is %+v", d)
	}
}
