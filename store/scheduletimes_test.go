package store_test

import (
	"testing"
	"time"
	_ "time/tzdata"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/schedule"
	"github.com/harpcaller/harp/store"
)

// tick is a moment of these tests, in seconds.
func tick(n int) time.Time { return time.Unix(int64(n), 0).UTC() }

func tickOf(t time.Time) int { return int(t.Unix()) }

// ticks are the times of a schedule: every so many seconds, from the first on, each late by a part of its jitter.
type ticks struct{ every, jitter int }

func (k ticks) at(n int) store.ScheduleTime {
	late := 0
	if k.jitter > 0 {
		late = n / k.every * 7 % (k.jitter + 1)
	}
	return store.ScheduleTime{Nominal: tick(n), Time: tick(n + late)}
}

func (k ticks) Next(after time.Time) (store.ScheduleTime, bool) {
	return k.at(tickOf(after)/k.every*k.every + k.every), true
}

func (k ticks) Prev(before time.Time) (store.ScheduleTime, bool) {
	n := (tickOf(before.Add(time.Second-1)) - 1) / k.every * k.every
	return k.at(n), n > 0
}

// specTimes are the times of a Spec.
type specTimes struct{ *schedule.Spec }

func (s specTimes) Next(after time.Time) (store.ScheduleTime, bool) {
	m, ok := s.Spec.Next(after)
	return store.ScheduleTime{Nominal: m.Nominal, Time: m.Time}, ok
}

func (s specTimes) Prev(before time.Time) (store.ScheduleTime, bool) {
	m, ok := s.Spec.Prev(before)
	return store.ScheduleTime{Nominal: m.Nominal, Time: m.Time}, ok
}

// TestScheduleLifeOfSpec: a schedule with an end, on a dispatcher that was away over a change of the clock.
func TestScheduleLifeOfSpec(t *testing.T) {
	spec, err := schedule.Parse("30 2 * * *", "Europe/Madrid", schedule.Rules{Name: "nightly", Jitter: time.Minute, Until: time.Date(2027, 3, 30, 0, 0, 0, 0, time.UTC)})
	if err != nil {
		t.Fatal(err)
	}
	times := specTimes{spec}
	rules := store.ScheduleRules{Overlap: harp.OverlapQueue, CatchUp: time.Hour, CatchUpMost: 1}
	life := store.ScheduleLife{Through: time.Date(2027, 3, 26, 12, 0, 0, 0, time.UTC)}
	now := time.Date(2027, 3, 29, 0, 45, 0, 0, time.UTC)
	sight := store.ScheduleSight{Now: now, Awake: now}
	missed := life.Next(rules, times, sight)
	want := store.LedgerRun{
		Outcome: harp.TimeMissed, Reason: harp.TimeDown, Count: 2,
		From: time.Date(2027, 3, 27, 1, 30, 0, 0, time.UTC), To: time.Date(2027, 3, 28, 1, 0, 0, 0, time.UTC), // 02:30 does not exist
	}
	if missed.Kind != store.DecideSettle || missed.Entry != want {
		t.Fatalf("got %+v, want %+v", missed, want)
	}
	fire := missed.Life.Next(rules, times, sight)
	if fire.Kind != store.DecideFire || !fire.Nominal.Equal(time.Date(2027, 3, 29, 0, 30, 0, 0, time.UTC)) || fire.Late <= 14*time.Minute-1 || fire.Late > 15*time.Minute {
		t.Fatalf("got %+v", fire)
	}
	if d := fire.Life.Next(rules, times, sight); d.Kind != store.DecideWait || !d.Wake.IsZero() {
		t.Fatalf("behind the last time: %+v", d)
	}
	// Without a time behind it, one that waits does so for as long as it takes.
	sight.Running = "batch"
	queued := missed.Life.Next(rules, times, sight)
	if queued.Kind != store.DecideQueue {
		t.Fatalf("while a batch runs: %+v", queued)
	}
	sight.Now = now.AddDate(1, 0, 0)
	if d := queued.Life.Next(rules, times, sight); d.Kind != store.DecideWait {
		t.Fatalf("a year later: %+v", d)
	}
	sight.Running = ""
	if d := queued.Life.Next(rules, times, sight); d.Kind != store.DecideFire || !d.Nominal.Equal(fire.Nominal) {
		t.Fatalf("once the batch is over: %+v", d)
	}
}
