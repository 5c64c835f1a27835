package dispatcher_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/dispatcher"
	"github.com/harpcaller/harp/store"
	"github.com/harpcaller/harp/store/memory"
)

const day = 24 * time.Hour

// Rules say how long what ends from then on is kept, over restarts; what has ended is kept as the rule said that held then.
func TestRetentionRulesHoldForWhatEndsFromThenOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := memory.NewDisk()
		n := newNetwork(t, embedded)
		var sys *system
		open := func() {
			st := memory.OpenDisk(disk, nil)
			if _, err := st.OpenSession(t.Context(), store.Session{Host: "web01", At: time.Now()}); err != nil {
				t.Fatal(err)
			}
			sys = newSystemOn(t, embedded, n, st, dispatcher.Config{Retain: 2 * time.Hour})
		}
		end := func() string {
			t.Helper()
			job := must[*harp.Job](t)(sys.caller.Host("web01").Call(t.Context(), "hello", nil, harp.OfflineWait(harp.NoLimit)))
			if _, err := job.Cancel(t.Context()); err != nil {
				t.Fatal(err)
			}
			return job.ID()
		}
		restart := func() {
			if err := sys.d.Shutdown(t.Context()); err != nil {
				t.Fatal(err)
			}
			open()
		}
		open()
		rule := harp.RetentionRule{Name: "hello", Procedure: "h*", States: []harp.State{harp.StateCancelled}, Keep: time.Hour}
		put := func() {
			t.Helper()
			if err := sys.caller.Retention().Put(t.Context(), rule); err != nil {
				t.Fatal(err)
			}
		}
		before := end()
		put()
		first := end()
		restart()
		second := end()
		rule.Keep = 5 * time.Hour
		put()
		third := end()
		restart()
		if err := sys.caller.Retention().Delete(t.Context(), "hello"); err != nil {
			t.Fatal(err)
		}
		last := end()
		for id, want := range map[string]harp.Kept{
			before: {Keep: 2 * time.Hour}, first: {Rule: "hello", Keep: time.Hour}, second: {Rule: "hello", Keep: time.Hour}, third: {Rule: "hello", Keep: 5 * time.Hour}, last: {Keep: 2 * time.Hour},
		} {
			got := must[harp.Kept](t)(sys.caller.Retention().Explain(t.Context(), id))
			if got.Rule != want.Rule || got.Keep != want.Keep || got.ID != id || !got.Until.Equal(got.Ended.Add(want.Keep)) || got.Ended.IsZero() {
				t.Errorf("it is kept as %+v, want %+v", got, want)
			}
		}
		all := []string{before, first, second, third, last}
		left := func(after time.Duration, want ...string) {
			t.Helper()
			time.Sleep(after)
			var got []string
			for _, id := range all {
				if _, err := sys.caller.Job(id).Status(t.Context()); err == nil {
					got = append(got, id)
				} else if !errors.Is(err, harp.ErrPruned) {
					t.Fatal(err)
				}
			}
			if !slices.Equal(got, want) {
				t.Errorf("left are %v, want %v", got, want)
			}
		}
		left(50*time.Minute, before, first, second, third, last)
		left(30*time.Minute, before, third, last)
		left(time.Hour, third)
		restart()
		left(2*time.Hour, third)
		left(time.Hour)
	})
}

// Pruning by hand keeps what a rule keeps, and not what no rule does.
func TestPruneByHandHeedsRules(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sys := newSystem(t, embedded, nil, dispatcher.Config{Retain: harp.NoLimit})
		sys.agent("web01", greeter)
		other := hello(t, sys)
		if err := sys.caller.Retention().Put(t.Context(), harp.RetentionRule{Name: "r", Keep: 2 * day, MaxBytes: 1 << 30}); err != nil {
			t.Fatal(err)
		}
		kept := hello(t, sys)
		if all := must[[]harp.RetentionStatus](t)(sys.caller.Retention().List(t.Context())); len(all) != 1 || all[0].Bytes == 0 {
			t.Errorf("what is kept by rules is listed as %+v", all)
		}
		time.Sleep(day)
		if n := must[int](t)(sys.caller.Prune(t.Context(), time.Now())); n != 1 {
			t.Errorf("%d jobs were deleted, want 1", n)
		}
		if _, err := sys.caller.Job(other).Status(t.Context()); !errors.Is(err, harp.ErrPruned) {
			t.Error(err)
		}
		if _, err := sys.caller.Job(kept).Status(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

func TestRetentionRulesAreBounded(t *testing.T) {
	everyWiring(t, func(t *testing.T, sys *system) {
		r, ctx := sys.caller.Retention(), t.Context()
		own := sys.d.Caller().Retention() // of a caller elsewhere there may be half of them
		for n := range harp.MaxRetentionRules {
			if err := own.Put(ctx, harp.RetentionRule{Name: fmt.Sprint(n), Order: -n, Keep: day}); err != nil {
				t.Fatal(err)
			}
		}
		if err := r.Put(ctx, harp.RetentionRule{Name: "more", Keep: day}); !errors.Is(err, harp.ErrRefused) {
			t.Errorf("one more: %v", err)
		}
		if err := r.Put(ctx, harp.RetentionRule{Name: "7", MaxBytes: 1 << 30}); err != nil {
			t.Errorf("another in its place: %v", err)
		}
		all := must[[]harp.RetentionStatus](t)(r.List(ctx))
		if len(all) != harp.MaxRetentionRules || all[0].Name != "99" || all[98].Name != "0" || all[99].Name != "7" || all[0].By.Kind == "" || all[0].Changed.IsZero() {
			t.Errorf("there are %d, the first is %+v, the last %s", len(all), all[0], all[99].Name)
		}
		if err := r.Delete(ctx, "more"); !errors.Is(err, harp.ErrNotFound) {
			t.Error(err)
		}
		if err := r.Delete(ctx, "0"); err != nil {
			t.Error(err)
		}
		if _, err := r.Explain(ctx, harp.NewID()); !errors.Is(err, harp.ErrNotFound) {
			t.Error(err)
		}
		var told []string
		for _, e := range readEvents(t, sys, harp.EventsFromStart) {
			if e.Type == harp.EventRetentionChanged {
				told = append(told, e.Reason)
			}
		}
		if len(told) != harp.MaxRetentionRules+2 || told[0] != "0" || told[101] != "0" {
			t.Errorf("told are %v", told)
		}
	})
}

// Rules are documents, too: what is applied is managed, and nobody else changes it.
func TestRetentionRulesAreApplied(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sys := newSystem(t, embedded, nil, dispatcher.Config{})
		sys.agent("web01", greeter)
		ctx, r := t.Context(), sys.caller.Retention()
		apply := func(o harp.ApplyOptions, rules ...harp.RetentionRule) harp.Applied {
			t.Helper()
			var documents []harp.Document
			for _, rule := range rules {
				documents = append(documents, harp.Document{Retention: &rule})
			}
			return must[harp.Applied](t)(sys.caller.Schedules().Apply(ctx, "ops", documents, o))
		}
		a, b := harp.RetentionRule{Name: "a", Procedure: "hello", Keep: day}, harp.RetentionRule{Name: "b", Order: 9, Keep: 2 * day}
		if done := apply(harp.ApplyOptions{DryRun: true}, a, b); done.Count != 2 || len(must[[]harp.RetentionStatus](t)(r.List(ctx))) != 0 {
			t.Errorf("a dry run did %+v", done)
		}
		if done := apply(harp.ApplyOptions{}, a, b); done.Count != 2 {
			t.Errorf("it did %+v", done)
		}
		if done := apply(harp.ApplyOptions{}, a, b); done.Count != 0 {
			t.Errorf("a second time it did %+v", done)
		}
		if kept := must[harp.Kept](t)(r.Explain(ctx, hello(t, sys))); kept.Rule != "a" {
			t.Errorf("it is kept as %+v", kept)
		}
		if err := r.Put(ctx, a); !errors.Is(err, harp.ErrConflict) {
			t.Error(err)
		}
		if err := r.Delete(ctx, "a"); !errors.Is(err, harp.ErrConflict) {
			t.Error(err)
		}
		b.Keep = harp.NoLimit
		done := apply(harp.ApplyOptions{Prune: true}, b)
		if done.Count != 2 || done.Changes[0].Action != harp.DocumentDeleted || len(done.Changes[1].Fields) != 1 || done.Changes[1].Fields[0] != (harp.FieldChange{Field: "keep", Old: `"48h0m0s"`, New: `"none"`}) {
			t.Errorf("it did %+v", done)
		}
		if kept := must[harp.Kept](t)(r.Explain(ctx, hello(t, sys))); kept.Rule != "b" || kept.Keep != harp.NoLimit || !kept.Until.IsZero() {
			t.Errorf("it is kept as %+v", kept)
		}
		bad := harp.RetentionRule{Name: "bad"}
		var field *harp.FieldError
		if _, err := sys.caller.Schedules().Apply(ctx, "ops", []harp.Document{{Retention: &b}, {Retention: &bad}}, harp.ApplyOptions{}); !errors.As(err, &field) || field.Field != "documents[1].keep" {
			t.Error(err)
		}
	})
}

// A batch is kept as a whole, and so its members are; before its end no rule holds.
func TestRetentionOfABatchIsExplained(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sys := newSystem(t, embedded, nil, dispatcher.Config{RetainBytes: 1 << 40})
		sys.agent("web01", greeter)
		r, ctx := sys.caller.Retention(), t.Context()
		if err := r.Put(ctx, harp.RetentionRule{Name: "r", States: []harp.State{harp.StateSucceeded}, Keep: day, MaxBytes: 1 << 20}); err != nil {
			t.Fatal(err)
		}
		b := must[*harp.Batch](t)(sys.caller.Target("web01").Call(ctx, "hello", harp.Args{"name": "Ada"}))
		must[harp.BatchStatus](t)(b.Wait(ctx))
		kept := must[harp.Kept](t)(r.Explain(ctx, b.ID()))
		if kept.Rule != "r" || kept.Keep != day || kept.MaxBytes != 1<<20 || kept.Batch != "" {
			t.Errorf("it is kept as %+v", kept)
		}
		kept.ID, kept.Batch = b.Job("web01").ID(), b.ID()
		if got := must[harp.Kept](t)(r.Explain(ctx, kept.ID)); got != kept {
			t.Errorf("its member is kept as %+v, want %+v", got, kept)
		}
		waits := must[*harp.Job](t)(sys.caller.Host("web01").Call(ctx, "hello", harp.Args{"name": "Ada"}, harp.StartAfter(time.Now().Add(time.Hour))))
		if got := must[harp.Kept](t)(r.Explain(ctx, waits.ID())); got != (harp.Kept{ID: waits.ID()}) {
			t.Errorf("one that has not ended is kept as %+v", got)
		}
	})
}
