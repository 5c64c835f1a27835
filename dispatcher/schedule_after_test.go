package dispatcher_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/harpcaller/harp"
)

// following is a schedule that comes after others.
func following(name string, after ...string) harp.Schedule {
	s := harp.Schedule{Name: name, Request: requestOf("web*", "hello", harp.Args{"name": name})}
	for _, of := range after {
		s.After = append(s.After, harp.Dependency{Schedule: of, On: harp.OnEnded})
	}
	return s
}

func wantField(t *testing.T, what string, err error, field, message string) {
	t.Helper()
	var wrong *harp.FieldError
	if !errors.As(err, &wrong) || wrong.Field != field || !strings.Contains(wrong.Message, message) {
		t.Errorf("%s: %v, want %s: %s", what, err, field, message)
	}
}

// What a schedule comes after is there, and is not the schedule itself, by way of others either; one that others come after cannot be deleted.
func TestSchedulePutAfter(t *testing.T) {
	everyWiring(t, func(t *testing.T, sys *system) {
		sys.agent("web01", greeter)
		ctx, ss := t.Context(), sys.caller.Schedules()
		wantField(t, "none", ss.Put(ctx, following("b", "a")), "after[0].schedule", `there is no schedule "a"`)
		ok(t, ss.Put(ctx, yearly("a", "hello", harp.Args{"name": "a"})))
		ok(t, ss.Put(ctx, following("b", "a")))
		ok(t, ss.Put(ctx, following("c", "a", "b")))
		wantField(t, "a circle", ss.Put(ctx, following("a", "c")), "after[0].schedule", "a after c after a")
		wantField(t, "a longer circle", ss.Put(ctx, following("b", "a", "c")), "after[1].schedule", "b after c after b")
		if err := ss.Delete(ctx, "a"); !errors.Is(err, harp.ErrConflict) || !strings.Contains(err.Error(), "b, c") {
			t.Errorf("delete of one that others come after: %v", err)
		}
		got := must[harp.ScheduleStatus](t)(ss.Get(ctx, "c"))
		if want := following("c", "a", "b"); !slices.Equal(got.After, want.After) || got.Cron != "" || got.TZ != "" || got.Through.IsZero() || got.Err != nil {
			t.Errorf("it is %+v", got)
		}
		ended(t, must[*harp.Batch](t)(ss.Trigger(ctx, "a")), harp.BatchSucceeded, "")
		for e, err := range sys.caller.Events(ctx, harp.EventFilter{After: harp.EventsFromStart, Types: []string{string(harp.EventScheduleFired)}}) {
			if ok(t, err); e.Schedule == "c" {
				break
			}
		}
		wantTold(t, sys.caller, "b", "after fired 1")
		wantTold(t, sys.caller, "c", "after fired 1")
		ok(t, ss.Delete(ctx, "c"))
		ok(t, ss.Put(ctx, following("d", "b")))
		ok(t, ss.Put(ctx, yearly("b", "hello", harp.Args{"name": "b"}))) // it comes after nothing any more
		ok(t, ss.Delete(ctx, "a"))
	})
}

// A set of documents is looked at as it will be: its schedules may come after one another, and after what is gone they may not.
func TestApplyAfter(t *testing.T) {
	everyWiring(t, func(t *testing.T, sys *system) {
		sys.agent("web01", greeter)
		ctx, ss := t.Context(), sys.caller.Schedules()
		root := yearly("root", "hello", harp.Args{"name": "root"})
		for _, dry := range []bool{true, false} {
			apply := func(prune bool, nouns ...any) error {
				_, err := ss.Apply(ctx, "ops", docsOf(nouns...), harp.ApplyOptions{DryRun: dry, Prune: prune})
				return err
			}
			wantField(t, "none", apply(false, root, following("b", "a")), "documents[1].after[0].schedule", `no schedule "a"`)
			wantField(t, "a circle", apply(false, following("a", "c"), following("b", "a"), following("c", "b")), "documents[0].after[0].schedule", "a after c after b after a")
			ok(t, apply(false, following("c", "b"), following("b", "root"), root))
		}
		ok(t, ss.Put(ctx, following("mine", "b")))
		for _, dry := range []bool{true, false} {
			apply := func(prune bool, nouns ...any) error {
				_, err := ss.Apply(ctx, "ops", docsOf(nouns...), harp.ApplyOptions{DryRun: dry, Prune: prune})
				return err
			}
			wantField(t, "a circle through another's", apply(false, following("root", "mine")), "documents[0].after[0].schedule", "root after mine after b after root")
			wantField(t, "one that is pruned", apply(true, following("c", "b")), "documents[0].after[0].schedule", `no schedule "b"`)
			if err := apply(true, root); !errors.Is(err, harp.ErrConflict) || !strings.Contains(err.Error(), "schedule b cannot be deleted: it is needed by mine") {
				t.Errorf("one that another's comes after: %v", err)
			}
		}
		ok(t, ss.Delete(ctx, "mine"))
		done := must[harp.Applied](t)(ss.Apply(ctx, "ops", docsOf(root), harp.ApplyOptions{Prune: true}))
		wantChanges(t, done, "deleted schedule b", "deleted schedule c")
	})
}

// The end of a run is noted with all that come after it in one commit, so that they are not too many.
func TestScheduleFollowersAreBounded(t *testing.T) {
	everyWiring(t, func(t *testing.T, sys *system) {
		ctx, ss := t.Context(), sys.caller.Schedules()
		nouns := []any{yearly("root", "hello", nil)}
		const most = 32
		for n := range most {
			nouns = append(nouns, following(fmt.Sprint("f", n), "root"))
		}
		must[harp.Applied](t)(ss.Apply(ctx, "ops", docsOf(nouns...), harp.ApplyOptions{}))
		if err := ss.Put(ctx, following("more", "root")); !errors.Is(err, harp.ErrRefused) {
			t.Errorf("one more: %v", err)
		}
	})
}
