package dispatcher

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/dispatcher/internal/inventory"
	"github.com/harpcaller/harp/store"
	"github.com/harpcaller/harp/store/memory"
	"github.com/harpcaller/harp/target"
)

// A change of groups that is asked for again, as its answer was lost, is done once.
func TestGroupsAreChangedOnce(t *testing.T) {
	d, err := Open(t.Context(), memory.Open(nil), Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
	})
	s, ctx := d.service(harp.Principal{Kind: "caller", Name: "ada"}), t.Context()
	put, other, deleted := harp.NewID(), harp.NewID(), harp.NewID()
	for _, change := range []error{
		s.PutGroup(ctx, put, "g", "web*"), s.PutGroup(ctx, other, "g", "db*"), s.PutGroup(ctx, put, "g", "web*"),
	} {
		if change != nil {
			t.Fatal(change)
		}
	}
	if text, _ := d.groups.texts()("g"); text != "db*" {
		t.Errorf("asked again, the first change is made again: it is %s", text)
	}
	if err := s.PutGroup(ctx, put, "g", "x*"); !errors.Is(err, harp.ErrConflict) {
		t.Errorf("another request under the id gives %v", err)
	}
	for _, change := range []error{
		s.DeleteGroup(ctx, deleted, "g"), s.DeleteGroup(ctx, deleted, "g"), s.PutGroup(ctx, harp.NewID(), "g", "x*"), s.DeleteGroup(ctx, deleted, "g"),
	} {
		if change != nil {
			t.Fatal(change)
		}
	}
	if text, _ := d.groups.texts()("g"); text != "x*" {
		t.Errorf("asked again, the deletion is made again: it is %q", text)
	}
}

// A target that uses several groups means those of one moment, though they are changed while it is read.
func TestGroupsOfATargetAreOfOneMoment(t *testing.T) {
	groupOf := func(name, text string) group { return group{Group: harp.Group{Name: name, Target: text}} }
	in := func(fleet, excluded string) *groups {
		gs := &groups{byName: map[string]group{}}
		gs.set(groupOf("fleet", fleet))
		gs.set(groupOf("excluded", excluded))
		return gs
	}
	hosts := inventory.NewTable([]inventory.Host{{Name: "db01"}, {Name: "web01"}, {Name: "web02"}})
	for name, change := range map[string]func(*groups){
		"applied": func(gs *groups) { gs.replace(in("db01", "web02")) },
		"put":     func(gs *groups) { gs.set(groupOf("excluded", "web02")) },
		"deleted": func(gs *groups) { gs.remove("excluded") },
	} {
		gs := in("web01,web02", "web01")
		text := gs.texts()
		m, err := compileTarget("@fleet and not @excluded", target.NewGroups(func(name string) (string, error) {
			defer change(gs) // before the next is read
			return text(name)
		}))
		if err != nil {
			t.Errorf("%s: %v", name, err)
		} else if got := m.Select(hosts); !slices.Equal(got, []int{2}) {
			t.Errorf("%s: it selects the hosts %v", name, got)
		}
	}
}

// Hosts are labelled once, also where their target does not select them any more.
func TestHostsAreLabelledOnce(t *testing.T) {
	d, err := Open(t.Context(), memory.Open(nil), Config{Hosts: StaticHosts{{Name: "web01", Labels: map[string]string{"role": "web"}}}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
	})
	s, id := d.service(harp.Principal{Kind: "caller", Name: "ada"}), harp.NewID()
	for range 2 {
		n, err := s.LabelHosts(t.Context(), id, "role=web", map[string]string{"role": "db", "a": "b", "c": "d"}, []string{"x"})
		if err != nil || n != 1 {
			t.Errorf("%d hosts are labelled, %v", n, err)
		}
	}
	if _, err := s.LabelHosts(t.Context(), id, "role=web", map[string]string{"role": "db"}, nil); !errors.Is(err, harp.ErrConflict) {
		t.Errorf("another request under the id gives %v", err)
	}
}

// What is asked of a schedule again, as its answer was lost, is done once.
func TestSchedulesAreChangedOnce(t *testing.T) {
	st := memory.Open(nil)
	if _, err := st.OpenSession(t.Context(), store.Session{Host: "web01", At: time.Now()}); err != nil {
		t.Fatal(err)
	}
	d, err := Open(t.Context(), st, Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
	})
	s, ctx := d.service(harp.Principal{Kind: "caller", Name: "ada"}), t.Context()
	request, err := harp.NewBatchRequest("web*", "hello", nil)
	if err != nil {
		t.Fatal(err)
	}
	request.ID = ""
	sch := harp.Schedule{Name: "s", Cron: "0 3 1 1 *", Request: request}
	put, skip, trigger, backfill := harp.NewID(), harp.NewID(), harp.NewID(), harp.NewID()
	to := time.Now()
	from := to.AddDate(-3, 0, 0)
	for n := range 2 {
		if err := s.PutSchedule(ctx, put, sch); err != nil {
			t.Fatal(err)
		}
		if err := s.ChangeSchedule(ctx, skip, "s", harp.ScheduleChange{Kind: harp.SkipOfSchedule}); err != nil {
			t.Fatal(err)
		}
		if got, err := s.TriggerSchedule(ctx, trigger, "s", harp.Trigger{}); err != nil || got.ID != trigger || got.Existed != (n > 0) {
			t.Fatalf("trigger %d: %+v, %v", n, got, err)
		}
		if got, err := s.BackfillSchedule(ctx, backfill, "s", from, to); err != nil || got != 3 {
			t.Fatalf("backfill %d: %d, %v", n, got, err)
		}
	}
	if _, err := s.TriggerSchedule(ctx, trigger, "s", harp.Trigger{EvenIfRunning: true}); !errors.Is(err, harp.ErrConflict) {
		t.Errorf("another under its id: %v", err)
	}
	if _, err := s.BackfillSchedule(ctx, harp.NewID(), "s", from, to); !errors.Is(err, harp.ErrConflict) {
		t.Errorf("a second backfill: %v", err)
	}
	page, err := s.ListSchedules(ctx, "s", "")
	if err != nil || len(page.Items) != 1 || page.Items[0].Version != 1 || page.Items[0].LastBatch != trigger {
		t.Errorf("it is %+v, %v", page, err)
	}
	ledger, err := s.ScheduleLedger(ctx, harp.LedgerFilter{}, "")
	if err != nil || len(ledger.Items) != 2 {
		t.Errorf("the ledger is %+v, %v", ledger, err)
	}
}

// Documents that are applied again, as the answer was lost, are applied once, and how many they were is told.
func TestDocumentsAreAppliedOnce(t *testing.T) {
	d := opened(t, memory.Open(nil), Config{})
	s, ctx := d.service(harp.Principal{Kind: "caller", Name: "ada"}), t.Context()
	first, second := harp.NewID(), harp.NewID()
	group := func(text string) []harp.Document {
		return []harp.Document{{Group: &harp.Group{Name: "g", Target: text}}, {Group: &harp.Group{Name: "h", Target: "db*"}}}
	}
	for i, c := range []struct {
		id, text    string
		count, told int
	}{{first, "web*", 2, 2}, {second, "db*", 1, 1}, {first, "web*", 2, 0}, {second, "db*", 1, 0}} {
		got, err := s.ApplyDocuments(ctx, c.id, "ops", group(c.text), harp.ApplyOptions{})
		if err != nil || got.Count != c.count || len(got.Changes) != c.told {
			t.Errorf("application %d: %+v, %v", i, got, err)
		}
	}
	if text, _ := d.groups.texts()("g"); text != "db*" {
		t.Errorf("asked again, the first is made again: it is %s", text)
	}
	if _, err := s.ApplyDocuments(ctx, first, "ops", group("x*"), harp.ApplyOptions{}); !errors.Is(err, harp.ErrConflict) {
		t.Errorf("another under its id: %v", err)
	}
}
