package client

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/failures"
	"github.com/harpcaller/harp/internal/wire"
	"github.com/harpcaller/harp/transport"
)

// newSchedule is a schedule with much in it.
func newSchedule(t *testing.T, name string) harp.Schedule {
	t.Helper()
	req, err := harp.NewBatchRequest(
		"role=web and not db*", "backup", harp.Args{"level": "full", "n": 3}, harp.Queue(harp.Args{"db": 1}), harp.QueuePerHost(),
		harp.Parallel(5), harp.Rolling("1", "10%"), harp.MaxExecTime(harp.NoLimit), harp.Label("kind", "nightly"), harp.Retry(harp.RetryPolicy{Attempts: 2}),
	)
	if err != nil {
		t.Fatal(err)
	}
	return harp.Schedule{
		Name: name, Doc: "for people", Cron: "30 2 * * *", TZ: "Europe/Madrid", From: at(1), Until: at(1000), Jitter: time.Minute,
		Gap: harp.GapSkip, Repeat: harp.RepeatBoth, Request: req, Overlap: harp.OverlapQueue, CatchUp: time.Hour, CatchUpMost: 2,
		PauseOnFailure: 3, Expect: time.Hour, Labels: map[string]string{"team": "db"},
	}
}

// at is a time, so many hours after a midnight.
func at(hours int) time.Time {
	return time.Date(2027, 3, 28, 0, 0, 0, 0, time.UTC).Add(time.Duration(hours) * time.Hour)
}

// TestScheduleReadsBack: what is put is what is got, but for the id that the request was made with.
func TestScheduleReadsBack(t *testing.T) {
	everywhere(t, func(t *testing.T, d *desk, caller *harp.Caller) {
		want := newSchedule(t, "nightly")
		if err := caller.Schedules().Put(t.Context(), want); err != nil {
			t.Fatal(err)
		}
		got, err := caller.Schedules().Get(t.Context(), "nightly")
		if err != nil {
			t.Fatal(err)
		}
		want.Request.ID = ""
		if !reflect.DeepEqual(got, harp.ScheduleStatus{Schedule: want, Version: 1}) {
			t.Errorf("got %+v\nwant %+v", got.Schedule, want)
		}
		if _, err := caller.Schedules().Get(t.Context(), "hourly"); !errors.Is(err, harp.ErrNotFound) {
			t.Error(err)
		}
	})
}

func TestSchedulesArePaged(t *testing.T) {
	everywhere(t, func(t *testing.T, d *desk, caller *harp.Caller) {
		d.pageSize = 2
		for n := range 5 {
			d.schedules.all = append(d.schedules.all, harp.ScheduleStatus{Schedule: harp.Schedule{Name: fmt.Sprint(n)}})
			d.schedules.ledger = append(d.schedules.ledger, harp.LedgerEntry{Schedule: "s", Outcome: harp.TimeFired, From: at(10 - n), To: at(10 - n), Count: 1})
		}
		n := 0
		for s, err := range caller.Schedules().List(t.Context()) {
			if err != nil || s.Name != fmt.Sprint(n) {
				t.Fatal(s.Name, err)
			}
			n++
		}
		if n != 5 {
			t.Errorf("%d schedules", n)
		}
		for _, limit := range []int{0, 1, 3} {
			n = 0
			for e, err := range caller.Schedules().Ledger(t.Context(), harp.LedgerFilter{Schedule: "s", Limit: limit}) {
				if err != nil || !e.From.Equal(at(10-n)) {
					t.Fatal(e, err)
				}
				n++
			}
			if n != 5 {
				t.Errorf("%d entries with a limit of %d", n, limit)
			}
		}
	})
}

func TestSchedulesAreChanged(t *testing.T) {
	everywhere(t, func(t *testing.T, d *desk, caller *harp.Caller) {
		s, ctx := caller.Schedules(), t.Context()
		for _, err := range []error{
			s.Pause(ctx, "nightly", "freeze", at(5)), s.Unpause(ctx, "nightly"), s.Skip(ctx, "nightly", at(6)), s.Skip(ctx, "nightly", time.Time{}), s.Delete(ctx, "nightly"),
		} {
			if err != nil {
				t.Fatal(err)
			}
		}
		want := []harp.ScheduleChange{
			{Kind: harp.PauseOfSchedule, Reason: "freeze", Until: at(5)},
			{Kind: harp.UnpauseOfSchedule},
			{Kind: harp.SkipOfSchedule, At: at(6)},
			{Kind: harp.SkipOfSchedule},
		}
		if !reflect.DeepEqual(d.schedules.changes, want) {
			t.Errorf("got %+v", d.schedules.changes)
		}
		b, err := s.Trigger(ctx, "nightly", harp.EvenIfPaused())
		if err != nil || harp.CheckID(b.ID()) != nil || d.schedules.trigger != (harp.Trigger{EvenIfPaused: true}) {
			t.Error(b, err, d.schedules.trigger)
		}
		if n, err := s.Backfill(ctx, "nightly", at(0), at(7)); n != 7 || err != nil {
			t.Error(n, err)
		}
		times, err := s.NextFrom(ctx, "nightly", at(1), harp.MaxNextTimes)
		if err != nil || len(times) != harp.MaxNextTimes || times[1] != (harp.Upcoming{Time: at(2).Add(time.Second), Nominal: at(2), Wall: "Sun", Note: "moved"}) {
			t.Error(len(times), err)
		}
	})
}

// TestWrongSchedules: what cannot be is refused before anything is sent, naming the field.
func TestWrongSchedules(t *testing.T) {
	everywhere(t, func(t *testing.T, d *desk, caller *harp.Caller) {
		s, ctx := caller.Schedules(), t.Context()
		wrong := newSchedule(t, "nightly")
		wrong.Jitter = -1
		_, noName := s.Get(ctx, "")
		_, triggered := s.Trigger(ctx, "")
		_, none := s.Next(ctx, "nightly", 0)
		_, many := s.Next(ctx, "nightly", harp.MaxNextTimes+1)
		_, backwards := s.Backfill(ctx, "nightly", at(1), at(1))
		_, without := s.Backfill(ctx, "nightly", time.Time{}, at(1))
		var outcome error
		for _, err := range s.Ledger(ctx, harp.LedgerFilter{Outcomes: []harp.TimeOutcome{"lost"}}) {
			outcome = err
		}
		for _, c := range []struct {
			err   error
			field string
		}{
			{s.Put(ctx, wrong), "jitter"},
			{noName, "name"},
			{s.Delete(ctx, ""), "name"},
			{s.Unpause(ctx, ""), "name"},
			{s.Pause(ctx, "nightly", "\xff", time.Time{}), "reason"},
			{triggered, "name"},
			{none, "n"},
			{many, "n"},
			{backwards, "to"},
			{without, "from"},
			{outcome, "outcomes"},
		} {
			var field *harp.FieldError
			if !errors.As(c.err, &field) || field.Field != c.field {
				t.Errorf("%s: %v", c.field, c.err)
			}
		}
		if delete(d.asked, "Ping"); len(d.asked) != 0 {
			t.Errorf("sent %v", d.asked)
		}
	})
}

// TestTriggerThatMayHaveArrived: the error has the id of the batch under which to ask.
func TestTriggerThatMayHaveArrived(t *testing.T) {
	inMemory(t, func(t *testing.T, f *front) {
		caller := f.dial()
		defer caller.Close()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		release := f.desk.holding("TriggerSchedule")
		go func() {
			f.desk.until(func() bool { return f.desk.asked["TriggerSchedule"] == 1 })
			cancel()
			release()
		}()
		_, err := caller.Schedules().Trigger(ctx, "nightly")
		var call *harp.CallError
		if !errors.As(err, &call) || harp.CheckID(call.JobID) != nil || harp.RanOf(err) != harp.MayHaveRun || !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
}

// TestTriggerRefused: what was refused did not run.
func TestTriggerRefused(t *testing.T) {
	everywhere(t, func(t *testing.T, d *desk, caller *harp.Caller) {
		d.failing("TriggerSchedule", failures.New("conflict", "paused").Err())
		if _, err := caller.Schedules().Trigger(t.Context(), "nightly"); !errors.Is(err, harp.ErrConflict) || harp.RanOf(err) != harp.DidNotRun {
			t.Error(err)
		}
	})
}

// badSchedules are requests of schedules that are wrong, and in which field.
func badSchedules() []badRequest {
	id := harp.NewID()
	put := harp.Schedule{Name: "n", Cron: "@daily", Request: harp.Request{Target: "*", Procedure: "p", Needs: []string{harp.NeedBatch}}}
	withID := put
	withID.Request.ID = id
	return []badRequest{
		{"put under a bad id", wire.TypePutSchedule, wire.PutSchedule{Request: "x", Schedule: put}, "id"},
		{"put nothing", wire.TypePutSchedule, wire.PutSchedule{Request: id}, "name"},
		{"put one run", wire.TypePutSchedule, wire.PutSchedule{Request: id, Schedule: withID}, "id"},
		{"delete under a bad id", wire.TypeDeleteSchedule, wire.DeleteSchedule{Request: "x", Name: "n"}, "id"},
		{"change under a bad id", wire.TypeChangeSchedule, wire.ChangeSchedule{Request: "x", Name: "n"}, "id"},
		{"change to nothing", wire.TypeChangeSchedule, wire.ChangeSchedule{Request: id, Name: "n"}, "kind"},
		{"trigger under a bad id", wire.TypeTrigger, wire.Trigger{Batch: "x", Name: "n"}, "id"},
		{"backfill under a bad id", wire.TypeBackfill, wire.Backfill{Request: "x", Name: "n"}, "id"},
		{"backfill of no name", wire.TypeBackfill, wire.Backfill{Request: id}, "name"},
		{"backfill backwards", wire.TypeBackfill, wire.Backfill{Request: id, Name: "n", From: at(2), To: at(1)}, "to"},
		{"times of no name", wire.TypeNextTimes, wire.NextTimes{Most: 1}, "name"},
		{"no times", wire.TypeNextTimes, wire.NextTimes{Name: "n"}, "n"},
		{"too many times", wire.TypeNextTimes, wire.NextTimes{Name: "n", Most: harp.MaxNextTimes + 1}, "n"},
		{"a ledger of bad outcomes", wire.TypeLedger, wire.LedgerQuery{LedgerFilter: harp.LedgerFilter{Outcomes: []harp.TimeOutcome{"x"}}}, "outcomes"},
		{"a ledger with a bad limit", wire.TypeLedger, wire.LedgerQuery{Page: wire.Page{Limit: -1}}, "limit"},
		{"schedules with a bad limit", wire.TypeSchedules, wire.SchedulesQuery{Page: wire.Page{Limit: -1}}, "limit"},
	}
}

// badRequest is a request that is answered with the field that is wrong.
type badRequest struct {
	name    string
	typ     transport.Type
	message any
	field   string
}
