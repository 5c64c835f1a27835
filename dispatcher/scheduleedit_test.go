package dispatcher_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/dispatcher"
)

// A schedule that is put anew with other times fires none of those that were before, however much it may catch up.
func TestAnEditFiresNothingOfThePast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sys := newSystem(t, embedded, nil, dispatcher.Config{})
		sys.agent("web01", greeter)
		ctx, ss := t.Context(), sys.caller.Schedules()
		s := yearly("s", "hello", harp.Args{"name": "Ada"})
		ok(t, ss.Put(ctx, s))
		time.Sleep(10*time.Minute + 30*time.Second)
		s.Cron, s.CatchUp, s.CatchUpMost, s.Overlap = "* * * * *", time.Hour, 100, harp.OverlapAllow
		edited := time.Now()
		ok(t, ss.Put(ctx, s))
		if got := must[harp.ScheduleStatus](t)(ss.Get(ctx, "s")); got.Through.Before(edited) {
			t.Errorf("edited at %v it is settled through %v", edited, got.Through)
		}
		time.Sleep(time.Minute)
		entries := allOf(t, ss.Ledger(ctx, harp.LedgerFilter{Schedule: "s"}))
		if len(entries) != 1 || entries[0].Outcome != harp.TimeFired || entries[0].From.Before(edited) {
			t.Errorf("its ledger has %+v", entries)
		}
	})
}

// jittered is a schedule of each hour that fires by its jitter up to half an hour later, and the first of its times that is more than two minutes late.
func jittered(t *testing.T, ss *harp.Schedules) (s harp.Schedule, nominal, fires time.Time) {
	t.Helper()
	s = yearly("s", "hello", harp.Args{"name": "Ada"})
	s.Cron, s.Jitter = "0 * * * *", 30*time.Minute
	ok(t, ss.Put(t.Context(), s))
	for _, up := range must[[]harp.Upcoming](t)(ss.Next(t.Context(), "s", 24)) {
		if up.Time.Sub(up.Nominal) > 2*time.Minute {
			return s, up.Nominal, up.Time
		}
	}
	t.Fatal("no time is late by its jitter")
	return s, nominal, fires
}

// A schedule was put anew between a time of it and the moment at which that fires by its jitter, and that time neither fired nor was in the ledger.
func TestAnEditLostTheTimeThatWaitedForItsJitter(t *testing.T) {
	for name, edit := range map[string]struct {
		change func(*harp.Schedule)
		want   harp.LedgerEntry
	}{
		"the arguments": {
			func(s *harp.Schedule) { s.Request.Args = requestOf("web*", "hello", harp.Args{"name": "Bob"}).Args },
			harp.LedgerEntry{Outcome: harp.TimeFired},
		},
		"the jitter": {func(s *harp.Schedule) { s.Jitter = time.Minute }, harp.LedgerEntry{Outcome: harp.TimeFired}},
		"no jitter":  {func(s *harp.Schedule) { s.Jitter = 0 }, harp.LedgerEntry{Outcome: harp.TimeFired}},
		"no jitter, so long after the time that it would be missed": {
			func(s *harp.Schedule) { s.Jitter, s.CatchUp = 0, time.Minute }, harp.LedgerEntry{Outcome: harp.TimeFired},
		},
		"other times": {
			func(s *harp.Schedule) { s.Cron = "30 * * * *" },
			harp.LedgerEntry{Outcome: harp.TimeSkipped, Reason: harp.TimeByHand, Detail: "its times were changed"},
		},
		"more times": {
			func(s *harp.Schedule) { s.Cron, s.Jitter, s.CatchUpMost = "* * * * *", 0, 100 },
			harp.LedgerEntry{Outcome: harp.TimeSkipped, Reason: harp.TimeByHand, Detail: "its times were changed"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				sys := newSystem(t, embedded, nil, dispatcher.Config{})
				sys.agent("web01", greeter)
				ctx, ss := t.Context(), sys.caller.Schedules()
				s, nominal, fires := jittered(t, ss)
				time.Sleep(time.Until(nominal.Add(90 * time.Second)))
				edit.change(&s)
				ok(t, ss.Put(ctx, s))
				time.Sleep(time.Until(fires.Add(time.Second)))
				entries := allOf(t, ss.Ledger(ctx, harp.LedgerFilter{Schedule: "s", From: nominal, To: nominal.Add(time.Second)}))
				if len(entries) != 1 || !entries[0].From.Equal(nominal) {
					t.Fatalf("of %v its ledger has %+v", nominal, entries)
				}
				got, want := entries[0], edit.want
				if got.Outcome != want.Outcome || got.Reason != want.Reason || got.Detail != want.Detail || (got.By != harp.Principal{}) != (want.Reason == harp.TimeByHand) {
					t.Errorf("of %v its ledger has %+v", nominal, got)
				}
				later := allOf(t, ss.Ledger(ctx, harp.LedgerFilter{Schedule: "s", From: nominal.Add(time.Second), To: nominal.Add(90 * time.Second)}))
				if len(later) != 0 {
					t.Errorf("the edit fired the past: %+v", later)
				}
			})
		})
	}
}
