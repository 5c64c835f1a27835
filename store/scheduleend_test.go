package store_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/store"
)

// noTimes are those of a schedule that comes after others.
type noTimes struct{}

func (noTimes) Next(time.Time) (store.ScheduleTime, bool) { return store.ScheduleTime{}, false }
func (noTimes) Prev(time.Time) (store.ScheduleTime, bool) { return store.ScheduleTime{}, false }

// endOf is the end of a run of a schedule, in the second n.
func endOf(schedule string, n int, state harp.BatchState) store.ScheduleEnd {
	return store.ScheduleEnd{Schedule: schedule, Batch: fmt.Sprint(schedule, n), State: state, At: tick(n)}
}

// decided is what is said of a decision: the kind, or the outcome and reason, the ends, and when it wakes.
func decided(d store.ScheduleDecision) string {
	text := map[store.DecisionKind]string{store.DecideWait: "wait", store.DecideFire: "fire", store.DecideQueue: "queue"}[d.Kind]
	if d.Kind == store.DecideSettle {
		text = fmt.Sprint(d.Entry.Outcome, " ", d.Entry.Reason)
	}
	for _, e := range d.Ends {
		text += " " + e.Batch
	}
	if d.Kind == store.DecideQueue {
		text += fmt.Sprint(" ", d.Life.Waits[len(d.Life.Waits)-1].Batch, d.Cancel)
	}
	if !d.Wake.IsZero() {
		text += fmt.Sprint(" until ", tickOf(d.Wake))
	}
	return text
}

// Each row is the ends that were noted, in their order, what is seen in the second 10, and what is decided, one after another.
func TestScheduleEnds(t *testing.T) {
	const good, bad, stopped = harp.BatchSucceeded, harp.BatchFailed, harp.BatchCancelled
	one := []harp.Dependency{{Schedule: "a"}}
	failed := []harp.Dependency{{Schedule: "a", On: harp.OnFailed}}
	soon := []harp.Dependency{{Schedule: "a", Within: 3 * time.Second}}
	restored := func(e store.ScheduleEnd) store.ScheduleEnd {
		e.Restored = true
		return e
	}
	two := []harp.Dependency{{Schedule: "a", Within: 8 * time.Second}, {Schedule: "b", On: harp.OnEnded}}
	pause := func(since, until int, over bool) func(l *store.ScheduleLife) {
		return func(l *store.ScheduleLife) {
			l.Pauses = []store.SchedulePause{{Reason: "r", Since: tick(since), Until: tick(until), Over: over}}
		}
	}
	for name, c := range map[string]struct {
		after   []harp.Dependency
		ends    []store.ScheduleEnd
		overlap harp.Overlap
		running string
		life    func(l *store.ScheduleLife)
		want    []string
	}{
		"none":                   {one, nil, "", "", nil, []string{"wait"}},
		"fits":                   {one, []store.ScheduleEnd{endOf("a", 9, good)}, "", "", nil, []string{"fire a9", "wait"}},
		"does not":               {one, []store.ScheduleEnd{endOf("a", 8, bad), endOf("a", 9, stopped)}, "", "", nil, []string{"skipped dependency a8", "skipped dependency a9", "wait"}},
		"failed":                 {failed, []store.ScheduleEnd{endOf("a", 7, good), endOf("a", 8, stopped), endOf("a", 9, bad)}, "", "", nil, []string{"skipped dependency a7", "skipped dependency a8", "fire a9", "wait"}},
		"nobody knows":           {two, []store.ScheduleEnd{endOf("b", 9, "")}, "", "", nil, []string{"skipped dependency b9", "wait"}},
		"of another":             {one, []store.ScheduleEnd{endOf("c", 9, good)}, "", "", nil, []string{"skipped dependency c9", "wait"}},
		"of none any more":       {nil, []store.ScheduleEnd{endOf("a", 9, good)}, "", "", nil, []string{"skipped dependency a9", "wait"}},
		"before it was put":      {one, []store.ScheduleEnd{endOf("a", 8, good), endOf("a", 9, good)}, "", "", func(l *store.ScheduleLife) { l.Through = tick(9) }, []string{"skipped dependency a8", "fire a9", "wait"}},
		"restored":               {one, []store.ScheduleEnd{restored(endOf("a", 8, good)), endOf("a", 9, good)}, "", "", nil, []string{"missed restored a8", "fire a9", "wait"}},
		"restored, and set back": {one, []store.ScheduleEnd{restored(endOf("a", 8, good)), endOf("a", 9, good)}, "", "", func(l *store.ScheduleLife) { *l = l.Restore(tick(20)) }, []string{"missed restored a8", "fire a9", "wait"}},
		"restored, and ahead":    {one, []store.ScheduleEnd{restored(endOf("a", 8, good)), endOf("a", 9, good)}, "", "", func(l *store.ScheduleLife) { *l = l.Restore(tick(2)) }, []string{"missed restored a8", "fire a9", "wait"}},
		"too late":               {soon, []store.ScheduleEnd{endOf("a", 6, good), endOf("a", 7, good)}, "", "", nil, []string{"missed catch_up a6", "fire a7", "wait"}},
		"paused":                 {one, []store.ScheduleEnd{endOf("a", 5, good), endOf("a", 9, good)}, "", "", pause(6, 20, false), []string{"skipped paused a5", "skipped paused a9", "wait"}},
		"in a pause":             {one, []store.ScheduleEnd{endOf("a", 5, good), endOf("a", 9, good)}, "", "", pause(3, 7, true), []string{"skipped paused a5", "fire a9", "wait"}},
		"overlap":                {one, []store.ScheduleEnd{endOf("a", 8, good), endOf("a", 9, good)}, harp.OverlapSkip, "r", nil, []string{"skipped overlap a8", "skipped overlap a9", "wait"}},
		"allow":                  {one, []store.ScheduleEnd{endOf("a", 8, good), endOf("a", 9, good)}, harp.OverlapAllow, "r", nil, []string{"fire a8", "fire a9", "wait"}},
		"queue":                  {one, []store.ScheduleEnd{endOf("a", 8, good), endOf("a", 9, good)}, harp.OverlapQueue, "r", nil, []string{"queue a8", "skipped overlap a9", "wait"}},
		"cancel old":             {one, []store.ScheduleEnd{endOf("a", 8, good)}, harp.OverlapCancelOld, "r", nil, []string{"queue a8r", "wait"}},
		"one of two":             {two, []store.ScheduleEnd{endOf("a", 9, good)}, "", "", nil, []string{"wait until 17"}},
		"both":                   {two, []store.ScheduleEnd{endOf("b", 9, stopped), endOf("a", 8, good)}, "", "", nil, []string{"fire a8 b9", "wait"}},
		"both, and one more":     {two, []store.ScheduleEnd{endOf("a", 7, good), endOf("b", 8, bad), endOf("b", 9, good)}, "", "", nil, []string{"fire a7 b8", "wait"}},
		"one again":              {two, []store.ScheduleEnd{endOf("b", 7, bad), endOf("b", 8, good), endOf("a", 9, good)}, "", "", nil, []string{"skipped dependency b7", "fire b8 a9", "wait"}},
		"a failure is no change": {two, []store.ScheduleEnd{endOf("a", 7, good), endOf("a", 8, bad), endOf("b", 9, good)}, "", "", nil, []string{"skipped dependency a8", "fire a7 b9", "wait"}},
		"too late for the other": {two, []store.ScheduleEnd{endOf("a", 1, good), endOf("b", 9, good)}, "", "", nil, []string{"missed catch_up a1", "wait"}},
		"both paused":            {two, []store.ScheduleEnd{endOf("a", 7, good), endOf("b", 9, good)}, "", "", pause(8, 20, false), []string{"skipped paused b9", "wait until 15"}},
		"waits no more":          {soon, nil, harp.OverlapQueue, "", func(l *store.ScheduleLife) { l.Waiting, l.Waits = tick(8), []store.ScheduleEnd{endOf("a", 8, good)} }, []string{"fire a8", "wait"}},
		"waits":                  {soon, nil, harp.OverlapQueue, "r", func(l *store.ScheduleLife) { l.Waiting, l.Waits = tick(8), []store.ScheduleEnd{endOf("a", 8, good)} }, []string{"wait until 11"}},
		"waits too long":         {soon, nil, harp.OverlapQueue, "r", func(l *store.ScheduleLife) { l.Waiting, l.Waits = tick(6), []store.ScheduleEnd{endOf("a", 6, good)} }, []string{"missed catch_up a6", "wait"}},
		"waits over a restore": {one, nil, harp.OverlapQueue, "r", func(l *store.ScheduleLife) {
			l.Waiting, l.Waits = tick(6), []store.ScheduleEnd{endOf("a", 6, good)}
			*l = l.Restore(tick(7))
		}, []string{"missed restored a6", "wait"}},
		"waits over a restore by a clock that is behind": {one, nil, harp.OverlapQueue, "r", func(l *store.ScheduleLife) {
			l.Waiting, l.Waits = tick(6), []store.ScheduleEnd{endOf("a", 6, good)}
			*l = l.Restore(tick(5))
		}, []string{"missed restored a6", "wait"}},
		"waits after a restore by a clock that was ahead": {one, nil, harp.OverlapQueue, "r", func(l *store.ScheduleLife) {
			*l = l.Restore(tick(20))
			l.Unseen = false
			l.Waiting, l.Waits = tick(6), []store.ScheduleEnd{endOf("a", 6, good)}
		}, []string{"wait", "wait"}},
	} {
		t.Run(name, func(t *testing.T) {
			life := store.ScheduleLife{Through: tick(0)}
			if c.life != nil {
				c.life(&life)
			}
			for _, e := range c.ends {
				life = life.NoteEnd(e, tick(10)).Life
			}
			r := store.ScheduleRules{Overlap: c.overlap, CatchUp: time.Second, CatchUpMost: 1, After: c.after}
			var got []string
			for range len(c.want) {
				d := life.Next(r, noTimes{}, store.ScheduleSight{Now: tick(10), Awake: tick(10), Running: c.running})
				got = append(got, decided(d))
				life = d.Life
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("decided is\n%q, want\n%q", got, c.want)
			}
		})
	}
}

// What is put in place of a fire tells of the same ends; a change of what it comes after hides none of them.
func TestScheduleEndsInstead(t *testing.T) {
	r := store.ScheduleRules{After: []harp.Dependency{{Schedule: "a"}, {Schedule: "b"}}}
	at := store.ScheduleSight{Now: tick(10)}
	half := store.ScheduleLife{Through: tick(0)}.NoteEnd(endOf("a", 1, harp.BatchSucceeded), tick(1)).Life
	whole := half.NoteEnd(endOf("b", 2, harp.BatchSucceeded), tick(2)).Life
	d := whole.Next(r, noTimes{}, at).Instead(harp.TimeSkipped, harp.TimeNoHosts, "x")
	if got := decided(d); got != "skipped no_hosts a1 b2" || d.Fires != store.FireAfter || len(d.Life.Ends) > 0 || len(whole.Ends) != 2 {
		t.Errorf("instead it is %s, %+v", got, d)
	}
	if _, err := whole.Change(r, r, noTimes{}, noTimes{}, at); err == nil {
		t.Error("what is due is changed")
	}
	same, err := half.Change(r, store.ScheduleRules{After: slices.Clone(r.After), CatchUpMost: 7}, noTimes{}, noTimes{}, at)
	if err != nil || decided(same.Life.Next(r, noTimes{}, at)) != "wait" {
		t.Errorf("what stays as it was is %+v, %v", same, err)
	}
	other := store.ScheduleRules{After: r.After[:1]}
	changed, err := half.Change(r, other, noTimes{}, noTimes{}, at)
	if got := decided(changed.Life.Next(other, noTimes{}, at)); err != nil || got != "skipped dependency a1" {
		t.Errorf("after a change it is %s, %v", got, err)
	}
	full := half
	for n := range store.MaxEnds - 1 {
		full = full.NoteEnd(endOf("a", n, harp.BatchSucceeded), tick(n)).Life
	}
	if d := full.NoteEnd(endOf("b", 9, harp.BatchSucceeded), tick(9)); decided(d) != "missed catch_up b9" || len(d.Life.Ends) != store.MaxEnds {
		t.Errorf("one too many is %s, and %d are there", decided(d), len(d.Life.Ends))
	}
}

// Whatever happens, each end that was noted is in one entry, or waits, and what fired fits and is of all that it comes after.
func TestScheduleEndsOnce(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		names := []string{"a", "b", "c"}
		dependencies := func() (all []harp.Dependency) {
			for _, name := range names[:rapid.IntRange(1, 3).Draw(rt, "dependencies")] {
				all = append(all, harp.Dependency{
					Schedule: name, On: rapid.SampledFrom([]harp.Ending{"", harp.OnFailed, harp.OnEnded}).Draw(rt, "on"),
					Within: rapid.SampledFrom([]time.Duration{0, 5 * time.Second, harp.NoLimit}).Draw(rt, "within"),
				})
			}
			return all
		}
		r := store.ScheduleRules{Overlap: rapid.SampledFrom([]harp.Overlap{"", harp.OverlapQueue, harp.OverlapCancelOld, harp.OverlapAllow}).Draw(rt, "overlap"), After: dependencies()}
		life, now, running := store.ScheduleLife{Through: tick(0)}, 1, ""
		noted, told, restored := map[string]bool{}, map[string]bool{}, map[string]bool{}
		tell := func(ends []store.ScheduleEnd) {
			for _, e := range ends {
				if told[e.Batch] || !noted[e.Batch] {
					rt.Fatalf("%s is told twice, or never was", e.Batch)
				}
				told[e.Batch] = true
			}
		}
		settle := func() {
			for n := 0; ; n++ {
				d := life.Next(r, noTimes{}, store.ScheduleSight{Now: tick(now), Running: running})
				life = d.Life
				if n > 300 {
					rt.Fatal("it has no end")
				}
				switch d.Kind {
				case store.DecideWait:
					if !d.Wake.IsZero() && !d.Wake.After(tick(now)) {
						rt.Fatalf("it wakes at %v", d.Wake)
					}
					return
				case store.DecideFire:
					if _, paused := life.Paused(tick(now)); paused || running != "" && r.Overlap != harp.OverlapAllow {
						rt.Fatalf("it fires in a pause, or while %s runs", running)
					}
					if slices.ContainsFunc(d.Ends, func(e store.ScheduleEnd) bool { return restored[e.Batch] }) {
						rt.Fatalf("it may have fired for %v before", d.Ends)
					}
					if !d.Nominal.Equal(d.Ends[len(d.Ends)-1].At) || !slices.IsSortedFunc(d.Ends, func(a, b store.ScheduleEnd) int { return a.At.Compare(b.At) }) {
						rt.Fatalf("at %v it fires for %v", d.Nominal, d.Ends)
					}
					if running = fmt.Sprint("r", now); rapid.IntRange(0, 3).Draw(rt, "refused") == 0 {
						d = d.Instead(harp.TimeFailed, "", "")
						life, running = d.Life, ""
					}
					tell(d.Ends)
				case store.DecideSettle:
					if d.Entry.Reason == harp.TimeRestored && !restored[d.Ends[0].Batch] {
						rt.Fatalf("%v ended after it was restored", d.Ends)
					}
					tell(d.Ends)
				case store.DecideQueue:
				}
			}
		}
		for range rapid.IntRange(1, 60).Draw(rt, "steps") {
			switch rapid.IntRange(0, 9).Draw(rt, "what") {
			case 0:
				now += rapid.IntRange(1, 6).Draw(rt, "seconds")
			case 1:
				running = ""
			case 2:
				life = life.Pause(store.SchedulePause{Since: tick(now)}, noTimes{})
			case 3:
				life = life.Unpause(tick(now), noTimes{})
			case 4:
				next := store.ScheduleRules{Overlap: r.Overlap, After: dependencies()}
				settle()
				changed, err := life.Change(r, next, noTimes{}, noTimes{}, store.ScheduleSight{Now: tick(now), Running: running})
				if err != nil {
					rt.Fatal(err)
				}
				life, r = changed.Life, next
			case 5:
				life = life.Restore(tick(now + rapid.IntRange(-20, 20).Draw(rt, "wrong by")))
				for batch := range noted {
					restored[batch] = true
				}
			default:
				now++
				e := endOf(rapid.SampledFrom(names).Draw(rt, "of"), now, rapid.SampledFrom([]harp.BatchState{harp.BatchSucceeded, harp.BatchFailed, harp.BatchCancelled, ""}).Draw(rt, "state"))
				noted[e.Batch] = true
				d := life.NoteEnd(e, tick(now))
				life = d.Life
				tell(d.Ends)
				if rapid.Bool().Draw(rt, "later") {
					continue
				}
			}
			settle()
			for batch := range noted {
				waits := slices.ContainsFunc(slices.Concat(life.Ends, life.Waits), func(e store.ScheduleEnd) bool { return e.Batch == batch })
				if waits == told[batch] {
					rt.Fatalf("%s waits: %v, is told: %v", batch, waits, told[batch])
				}
			}
			if len(life.Ends) >= len(r.After) {
				rt.Fatalf("all of %v wait", life.Ends)
			}
		}
	})
}

// The clock is set back behind the moment at which a schedule was put: what ends from then on counts all the same, also once the clock is
// there again, and what had ended before does not.
func TestScheduleEndsThoughTheClockIsSetBack(t *testing.T) {
	r := store.ScheduleRules{After: []harp.Dependency{{Schedule: "a"}, {Schedule: "b"}}}
	life := store.ScheduleLife{Through: tick(100)}.NoteEnd(endOf("a", 9, harp.BatchSucceeded), tick(10)).Life
	if got := decided(life.Next(r, noTimes{}, store.ScheduleSight{Now: tick(10)})); got != "wait" {
		t.Fatalf("the end of one is %s", got)
	}
	life = life.NoteEnd(endOf("b", 200, harp.BatchSucceeded), tick(201)).Life
	if got := decided(life.Next(r, noTimes{}, store.ScheduleSight{Now: tick(201)})); got != "fire a9 b200" {
		t.Errorf("the ends of both are %s", got)
	}
	before := store.ScheduleLife{Through: tick(100)}.NoteEnd(endOf("a", 99, harp.BatchSucceeded), tick(101)).Life
	if got := decided(before.Next(r, noTimes{}, store.ScheduleSight{Now: tick(101)})); got != "skipped dependency a99" {
		t.Errorf("what ended before it was put is %s", got)
	}
}

// A pause that has ended does not begin anew for what a schedule comes after, where the clock is set back into it.
func TestScheduleEndsInAPauseThatIsOver(t *testing.T) {
	r := store.ScheduleRules{After: []harp.Dependency{{Schedule: "a"}}}
	life := store.ScheduleLife{}.Pause(store.SchedulePause{Reason: "r", Since: tick(2), Until: tick(6)}, noTimes{})
	life = life.EndPause().NoteEnd(endOf("a", 5, harp.BatchSucceeded), tick(7)).Life
	d := life.Next(r, noTimes{}, store.ScheduleSight{Now: tick(7)})
	if got := decided(d); got != "skipped paused a5" {
		t.Errorf("what ended in the pause is %s", got)
	}
	d = d.Life.NoteEnd(endOf("a", 4, harp.BatchSucceeded), tick(4))
	if got := decided(d.Life.Next(r, noTimes{}, store.ScheduleSight{Now: tick(4)})); got != "fire a4" {
		t.Errorf("what ended after the clock was set back is %s", got)
	}
}

// The last end of each schedule that another comes after is told, in the order of these, and how it is known, or that it is not.
func TestScheduleEndsAreTold(t *testing.T) {
	after := []harp.Dependency{{Schedule: "b"}, {Schedule: "none"}, {Schedule: "a"}}
	life := store.ScheduleLife{}
	for _, e := range []store.ScheduleEnd{endOf("a", 1, harp.BatchFailed), endOf("a", 2, harp.BatchSucceeded), endOf("b", 3, ""), endOf("c", 4, harp.BatchSucceeded)} {
		life = life.NoteEnd(e, tick(5)).Life
	}
	var told []string
	for _, e := range life.EndsOf(after) {
		told = append(told, e.String())
	}
	if want := []string{"b b3, nobody knows how it ended", "a a2 succeeded"}; !slices.Equal(told, want) {
		t.Errorf("told is %q, want %q", told, want)
	}
}
