package dispatcher_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/dispatcher"
)

// docsOf are documents of nouns.
func docsOf(nouns ...any) (documents []harp.Document) {
	for _, noun := range nouns {
		switch noun := noun.(type) {
		case harp.Schedule:
			documents = append(documents, harp.Document{Schedule: &noun})
		case harp.Group:
			documents = append(documents, harp.Document{Group: &noun})
		case harp.Window:
			documents = append(documents, harp.Document{Window: &noun})
		}
	}
	return documents
}

// changesOf says what was changed, as "action kind name field=old>new".
func changesOf(a harp.Applied) (all []string) {
	for _, c := range a.Changes {
		text := fmt.Sprintf("%s %s %s", c.Action, c.Kind, c.Name)
		for _, f := range c.Fields {
			text += fmt.Sprintf(" %s=%s>%s", f.Field, f.Old, f.New)
		}
		all = append(all, text)
	}
	return all
}

func wantChanges(t testing.TB, a harp.Applied, want ...string) {
	t.Helper()
	if got := changesOf(a); a.Count != len(want) || !slices.Equal(got, want) {
		t.Fatalf("%d changes are\n%s\nwant\n%s", a.Count, strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// A set of documents is made, changed and deleted whole; what is as it was is not touched, and a dry run changes nothing.
func TestApply(t *testing.T) {
	everyWiring(t, func(t *testing.T, sys *system) {
		sys.agent("web01", greeter)
		ctx, c := t.Context(), sys.caller
		apply := func(dry, prune bool, nouns ...any) harp.Applied {
			t.Helper()
			return must[harp.Applied](t)(c.Schedules().Apply(ctx, "ops", docsOf(nouns...), harp.ApplyOptions{DryRun: dry, Prune: prune}))
		}
		onGroup := yearly("nightly", "hello", harp.Args{"name": "Ada"})
		onGroup.Request.Target = "@web"
		group := harp.Group{Name: "web", Target: "@all and web*"}
		of := harp.Group{Name: "all", Target: "*"}
		w := harp.Window{Name: "patches", Target: "@web", Cron: "0 3 * * 6", For: time.Hour, SchedulesOnly: true}
		nouns := []any{onGroup, yearly("other", "hello", nil), w, group, of}
		made := []string{"made group all", "made group web", "made schedule nightly", "made schedule other", "made window patches"}
		wantChanges(t, apply(true, true, nouns...), made...)
		if all := allOf(t, c.Schedules().List(ctx)); len(all) != 0 {
			t.Fatalf("a dry run makes %+v", all)
		}
		wantChanges(t, apply(false, true, nouns...), made...)
		wantChanges(t, apply(false, true, nouns...))
		is := must[harp.ScheduleStatus](t)(c.Schedules().Get(ctx, "nightly"))
		if is.ManagedBy != "ops" || is.Version != 1 || is.TZ != "UTC" || is.Through.IsZero() {
			t.Errorf("the schedule is %+v", is)
		}
		if g := must[harp.Group](t)(c.Groups().Get(ctx, "web")); g.ManagedBy != "ops" || g.Target != group.Target || g.Changed.IsZero() {
			t.Errorf("the group is %+v", g)
		}
		if got := must[harp.WindowStatus](t)(c.Maintenance().Get(ctx, "patches")); got.ManagedBy != "ops" || got.TZ != "UTC" || got.Span.From.IsZero() {
			t.Errorf("the window is %+v", got)
		}
		batch := must[*harp.Batch](t)(c.Schedules().Trigger(ctx, "nightly"))
		if st := must[harp.BatchStatus](t)(batch.Wait(ctx)); st.State != harp.BatchSucceeded {
			t.Errorf("its run is %+v", st)
		}

		onGroup.Cron, onGroup.Doc, onGroup.Request.Args = "0 4 1 1 *", "about", valueOf(t, harp.Args{"name": "Eve", "more": []int{1}})
		group.Target, w.For = "web01", 2*time.Hour
		changed := []string{
			"deleted group all",
			`changed group web target="@all and web*">"web01"`,
			`changed schedule nightly cron="0 3 1 1 *">"0 4 1 1 *" doc=>"about" request.args.more=>[1] request.args.name="Ada">"Eve"`,
			"deleted schedule other",
			`changed window patches for="1h0m0s">"2h0m0s"`,
		}
		wantChanges(t, apply(true, true, onGroup, w, group), changed...)
		if wantChanges(t, apply(true, false, onGroup, w, group), changed[1], changed[2], changed[4]); len(allOf(t, c.Groups().List(ctx))) != 2 {
			t.Error("a dry run deletes a group")
		}
		wantChanges(t, apply(false, true, onGroup, w, group), changed...)
		if is = must[harp.ScheduleStatus](t)(c.Schedules().Get(ctx, "nightly")); is.Version != 2 || is.LastBatch != batch.ID() || is.Cron != "0 4 1 1 *" {
			t.Errorf("the schedule is %+v", is)
		}
		if _, err := c.Schedules().Get(ctx, "other"); !errors.Is(err, harp.ErrNotFound) {
			t.Errorf("what is in no document: %v", err)
		}
		wantChanges(t, apply(false, true), "deleted group web", "deleted schedule nightly", "deleted window patches")
		var told []string
		for _, e := range must[harp.EventPage](t)(c.EventsPage(ctx, harp.EventFilter{After: harp.EventsFromStart, Types: []string{"documents.*"}}, false)).Events {
			told = append(told, e.Reason)
		}
		if want := []string{"ops: 5 made, 0 changed, 0 deleted", "ops: 0 made, 3 changed, 2 deleted", "ops: 0 made, 0 changed, 3 deleted"}; !slices.Equal(told, want) {
			t.Errorf("the events are %q", told)
		}
	})
}

func valueOf(t testing.TB, v any) harp.Value {
	t.Helper()
	return must[harp.Value](t)(harp.NewValue(v))
}

// What somebody manages is nobody else's to put, delete or end, but may be paused, skipped and run; what was put by hand is taken over.
func TestApplyManages(t *testing.T) {
	everyWiring(t, func(t *testing.T, sys *system) {
		sys.agent("web01", greeter)
		ctx, c := t.Context(), sys.caller
		s, g := yearly("s", "hello", harp.Args{"name": "Ada"}), harp.Group{Name: "g", Target: "web*"}
		w := harp.Window{Name: "w", Target: "db*", From: time.Now().Add(-time.Hour).UTC().Truncate(time.Second)}
		ok(t, c.Schedules().Put(ctx, s))
		ok(t, c.Groups().Put(ctx, g.Name, g.Target))
		ok(t, c.Maintenance().Put(ctx, w))
		wantChanges(t, must[harp.Applied](t)(c.Schedules().Apply(ctx, "ops", docsOf(s, g, w), harp.ApplyOptions{})),
			`changed group g managed_by=>"ops"`, `changed schedule s managed_by=>"ops"`, `changed window w managed_by=>"ops"`)
		for what, err := range map[string]error{
			"put a schedule": c.Schedules().Put(ctx, s), "delete a schedule": c.Schedules().Delete(ctx, "s"),
			"put a group": c.Groups().Put(ctx, "g", "db*"), "delete a group": c.Groups().Delete(ctx, "g"),
			"put a window": c.Maintenance().Put(ctx, w), "delete a window": c.Maintenance().Delete(ctx, "w"), "end a window": c.Maintenance().End(ctx, "w"),
			"apply it for another": second(c.Schedules().Apply(ctx, "others", docsOf(s), harp.ApplyOptions{})),
			"apply a group so":     second(c.Schedules().Apply(ctx, "others", docsOf(g), harp.ApplyOptions{DryRun: true})),
			"apply a window so":    second(c.Schedules().Apply(ctx, "others", docsOf(w), harp.ApplyOptions{})),
		} {
			if !errors.Is(err, harp.ErrConflict) || !strings.Contains(err.Error(), "is managed by ops") {
				t.Errorf("to %s: %v", what, err)
			}
		}
		ok(t, c.Schedules().Pause(ctx, "s", "why", time.Time{}))
		ok(t, c.Schedules().Unpause(ctx, "s"))
		ok(t, c.Schedules().Skip(ctx, "s", time.Time{}))
		must[*harp.Batch](t)(c.Schedules().Trigger(ctx, "s"))
		wantChanges(t, must[harp.Applied](t)(c.Schedules().Apply(ctx, "ops", docsOf(s, g, w), harp.ApplyOptions{Prune: true})))
		wantChanges(t, must[harp.Applied](t)(c.Schedules().Apply(ctx, "others", nil, harp.ApplyOptions{Prune: true})))
	})
}

// Of a set in which something is wrong nothing is applied, and the error says where.
func TestApplyRefused(t *testing.T) {
	everyWiring(t, func(t *testing.T, sys *system) {
		ctx, c := t.Context(), sys.caller
		good, used := yearly("good", "hello", nil), harp.Group{Name: "used", Target: "web*"}
		ok(t, second(c.Schedules().Apply(ctx, "ops", docsOf(used), harp.ApplyOptions{})))
		ok(t, c.Groups().Put(ctx, "user", "@used"))
		never, nobody, gone, far := yearly("s", "hello", nil), yearly("s", "hello", nil), yearly("s", "hello", nil), yearly("s", "hello", nil)
		never.Cron, nobody.Request.Target, gone.Cron, far.TZ = "0 0 31 2 *", "@nobody", "at 2001-01-01 00:00", "Mars/Phobos"
		for field, wrong := range map[string]any{
			"documents[1].cron": never, "documents[1].target": nobody, "documents[1].tz": far,
			"documents[1].target: it": harp.Group{Name: "a", Target: "@a"}, "documents[1].for": harp.Window{Name: "w", Target: "*", Cron: "* * * * *", For: 10000 * time.Hour},
			"documents[1].target: momentary": harp.Window{Name: "w", Target: "host.online=true", Cron: "@daily", For: time.Hour},
			"documents[1].calendar":          harp.Window{Name: "w", Target: "*", Calendar: &harp.WindowCalendar{Content: []byte("x")}},
			"documents[1].to":                harp.Window{Name: "w", Target: "*", From: time.Unix(1, 0), To: time.Unix(2, 0)},
			"documents[1].cron: past":        gone,
		} {
			for _, dry := range []bool{true, false} {
				_, err := c.Schedules().Apply(ctx, "ops", docsOf(good, wrong, used), harp.ApplyOptions{DryRun: dry})
				var is *harp.FieldError
				if field, _, _ = strings.Cut(field, ": "); !errors.As(err, &is) || !errors.Is(err, harp.ErrInvalid) || is.Field != field {
					t.Errorf("%s: %v", field, err)
				}
			}
		}
		_, err := c.Schedules().Apply(ctx, "ops", docsOf(good), harp.ApplyOptions{Prune: true})
		if !errors.Is(err, harp.ErrConflict) || !strings.Contains(err.Error(), "group used is used by group user") {
			t.Errorf("a group that is used: %v", err)
		}
		ok(t, c.Groups().Delete(ctx, "user"))
		ok(t, c.Maintenance().Put(ctx, harp.Window{Name: "user", Target: "@used", Cron: "@daily", For: time.Hour}))
		if _, err := c.Schedules().Apply(ctx, "ops", nil, harp.ApplyOptions{Prune: true}); !errors.Is(err, harp.ErrConflict) || !strings.Contains(err.Error(), "window user") {
			t.Errorf("a group that a window uses: %v", err)
		}
		momentary := harp.Group{Name: "used", Target: "host.online=true"}
		if _, err := c.Schedules().Apply(ctx, "ops", docsOf(momentary), harp.ApplyOptions{}); !errors.Is(err, harp.ErrInvalid) || !strings.Contains(err.Error(), "host.online in group used") {
			t.Errorf("a group that a window cannot use: %v", err)
		}
		if all := allOf(t, c.Schedules().List(ctx)); len(all) != 0 {
			t.Errorf("there are %+v", all)
		}
		if g := must[harp.Group](t)(c.Groups().Get(ctx, "used")); g.Target != "web*" {
			t.Errorf("the group is %+v", g)
		}
	})
}

// inTimeOf runs a test body in virtual time.
func inTimeOf(t *testing.T, body func(t *testing.T, sys *system)) {
	synctest.Test(t, func(t *testing.T) { body(t, newSystem(t, embedded, nil, dispatcher.Config{})) })
}

// A schedule of the past that is as its document says is no error: it has fired.
func TestApplyPast(t *testing.T) {
	inTimeOf(t, func(t *testing.T, sys *system) {
		ctx, c := t.Context(), sys.caller
		once := yearly("once", "hello", nil)
		once.Cron = "at " + time.Now().UTC().Add(time.Hour).Format("2006-01-02 15:04")
		window := harp.Window{Name: "w", Target: "*", From: time.Now().UTC().Truncate(time.Second), To: time.Now().UTC().Truncate(time.Second).Add(time.Hour)}
		ok(t, second(c.Schedules().Apply(ctx, "ops", docsOf(once, window), harp.ApplyOptions{})))
		time.Sleep(3 * time.Hour)
		wantTold(t, c, "once", "time skipped no_hosts 1")
		wantChanges(t, must[harp.Applied](t)(c.Schedules().Apply(ctx, "ops", docsOf(once, window), harp.ApplyOptions{Prune: true})))
		once.Doc = "x"
		if _, err := c.Schedules().Apply(ctx, "ops", docsOf(once, window), harp.ApplyOptions{}); !errors.Is(err, harp.ErrInvalid) {
			t.Errorf("changed it is: %v", err)
		}
	})
}

// What is due of a schedule fires by the document that there was.
func TestApplySettlesFirst(t *testing.T) {
	inTimeOf(t, func(t *testing.T, sys *system) {
		ctx, c := t.Context(), sys.caller
		s := yearly("s", "hello", nil)
		s.Cron = "* * * * *"
		ok(t, second(c.Schedules().Apply(ctx, "ops", docsOf(s), harp.ApplyOptions{})))
		time.Sleep(10*time.Minute + time.Second)
		s.Cron = "0 3 1 1 *"
		ok(t, second(c.Schedules().Apply(ctx, "ops", docsOf(s), harp.ApplyOptions{})))
		wantTold(t, c, "s", "time skipped no_hosts 10")
		time.Sleep(time.Hour)
		wantTold(t, c, "s", "time skipped no_hosts 10")
	})
}

// What is stored is there after a restart, with who manages it.
func TestApplyLasts(t *testing.T) {
	dir := t.TempDir()
	for n := range 2 {
		d, err := dispatcher.Open(t.Context(), openBadger(t, dir), dispatcher.Config{})
		if err != nil {
			t.Fatal(err)
		}
		c := d.Caller()
		got := must[harp.Applied](t)(c.Schedules().Apply(t.Context(), "ops", docsOf(yearly("s", "hello", nil), harp.Group{Name: "g", Target: "*"}, harp.Window{Name: "w", Target: "*", Cron: "@daily", For: time.Hour}), harp.ApplyOptions{}))
		if got.Count != 3*(1-n) {
			t.Errorf("opened %d times it changes %q", n, changesOf(got))
		}
		if err := c.Schedules().Delete(t.Context(), "s"); !errors.Is(err, harp.ErrConflict) {
			t.Errorf("opened %d times: %v", n, err)
		}
		ok(t, d.Shutdown(context.WithoutCancel(t.Context())))
	}
}

// Documents that the dispatcher reads itself are replaced whole. Those that are refused change nothing, and Health and an event say so.
func TestReplaceDocuments(t *testing.T) {
	sys := newSystem(t, embedded, nil, dispatcher.Config{})
	ctx, c := t.Context(), sys.caller
	documents, broken := docsOf(yearly("s", "hello", nil), harp.Group{Name: "g", Target: "*"}), error(nil)
	read := func() ([]harp.Document, func(error) error, error) {
		return documents, func(err error) error { return fmt.Errorf("file:7: %w", err) }, broken
	}
	wantHealth := func(want string) {
		t.Helper()
		h := sys.d.Health(ctx)
		if err := h.Checks["documents"]; (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) || !h.Ready {
			t.Errorf("health is %v, %v", err, h.Ready)
		}
	}
	wantHealth("")
	wantChanges(t, must[harp.Applied](t)(sys.d.ReplaceDocuments(ctx, "folder", read)), "made group g", "made schedule s")
	good := documents
	documents = docsOf(harp.Group{Name: "g", Target: "web and"})
	if _, err := sys.d.ReplaceDocuments(ctx, "folder", read); !errors.Is(err, harp.ErrInvalid) || !strings.Contains(err.Error(), "file:7: ") {
		t.Errorf("what is wrong: %v", err)
	}
	wantHealth("file:7: ")
	documents, broken = nil, errors.New("gone\nand more"+strings.Repeat("ü", harp.MaxWhy))
	if _, err := sys.d.ReplaceDocuments(ctx, "folder", read); !errors.Is(err, broken) {
		t.Errorf("what cannot be read: %v", err)
	}
	wantHealth("gone")
	if err := sys.d.Health(ctx).Checks["documents"]; !errors.Is(err, broken) || !strings.HasSuffix(err.Error(), "; tried again in 10s") {
		t.Errorf("health does not say when it is tried again: %v", err)
	}
	if s := must[harp.ScheduleStatus](t)(c.Schedules().Get(ctx, "s")); s.ManagedBy != "folder" || s.Version != 1 {
		t.Errorf("it is %+v", s)
	}
	documents, broken = good[:1], nil
	wantChanges(t, must[harp.Applied](t)(sys.d.ReplaceDocuments(ctx, "folder", read)), "deleted group g")
	wantHealth("")
	var told []string
	for _, e := range must[harp.EventPage](t)(c.EventsPage(ctx, harp.EventFilter{After: harp.EventsFromStart, Types: []string{"documents.*"}}, false)).Events {
		told = append(told, string(e.Type)+" "+e.Reason[:min(len(e.Reason), 22)])
	}
	want := []string{"documents.applied folder: 2 made, 0 chan", "documents.refused folder: file:7: invali", "documents.refused folder: gone; and more", "documents.applied folder: 0 made, 0 chan"}
	if !slices.Equal(told, want) {
		t.Errorf("the events are %q", told)
	}
}

// A set whose schedule uses a group that is in no document any more is refused, as it is by a dispatcher that has had neither: its runs would
// fail from then on.
func TestAGroupThatASetNeedsIsNotPruned(t *testing.T) {
	everyWiring(t, func(t *testing.T, sys *system) {
		ctx, c := t.Context(), sys.caller
		s, g := yearly("s", "hello", nil), harp.Group{Name: "g", Target: "web*"}
		s.Request.Target = "@g"
		ok(t, second(c.Schedules().Apply(ctx, "ops", docsOf(yearly("a", "hello", nil), s, g), harp.ApplyOptions{Prune: true})))
		for _, dry := range []bool{true, false} {
			_, err := c.Schedules().Apply(ctx, "ops", docsOf(yearly("a", "hello", nil), s), harp.ApplyOptions{Prune: true, DryRun: dry})
			var is *harp.FieldError
			if !errors.As(err, &is) || is.Field != "documents[1].target" {
				t.Errorf("dry %v: %v", dry, err)
			}
		}
		if _, err := c.Groups().Get(ctx, "g"); err != nil {
			t.Error(err)
		}
		ok(t, second(c.Schedules().Apply(ctx, "ops", docsOf(yearly("a", "hello", nil)), harp.ApplyOptions{Prune: true})))
	})
}
