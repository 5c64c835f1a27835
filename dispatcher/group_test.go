package dispatcher_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/dispatcher"
	"github.com/harpcaller/harp/store/memory"
)

// Groups are made, changed, used, listed and deleted, and each change is an event.
func TestGroups(t *testing.T) {
	for _, w := range []wiring{embedded, inMemory, loopback} {
		t.Run(string(w), func(t *testing.T) {
			ctx := t.Context()
			sys := newSystem(t, w, nil, dispatcher.Config{Hosts: dispatcher.StaticHosts{
				{Name: "db01", Labels: map[string]string{"role": "db"}}, {Name: "web01", Labels: map[string]string{"role": "web"}}, {Name: "web02"},
			}})
			groups := sys.caller.Groups()
			for _, g := range [][2]string{{"web", "role=db"}, {"web", "role=web"}, {"all of it", `@web or role=db`}, {"other.one", `@"all of it" and not @web`}} {
				if err := groups.Put(ctx, g[0], g[1]); err != nil {
					t.Fatalf("put %s: %v", g[0], err)
				}
			}
			for text, want := range map[string][]string{
				"@web": {"web01"}, `@"all of it"`: {"db01", "web01"}, "@other.one": {"db01"}, "@other.one,web02": {"db01", "web02"},
				"not @web": {"db01", "web02"},
			} {
				if got, err := sys.caller.Target(text).Hosts(ctx); err != nil || !slices.Equal(got, want) {
					t.Errorf("%s selects %v, %v", text, got, err)
				}
			}
			all, err := list(groups.List(ctx))
			if err != nil || len(all) != 3 || all[0].Name != "all of it" || all[2].Name != "web" || all[2].Target != "role=web" || all[2].Changed.IsZero() {
				t.Errorf("the groups are %+v, %v", all, err)
			}
			if g := must[harp.Group](t)(groups.Get(ctx, "web")); g != all[2] || (w == loopback) != (g.By.Name != "") && w != inMemory {
				t.Errorf("web is %+v", g)
			}

			err = groups.Delete(ctx, "web")
			if !errors.Is(err, harp.ErrConflict) || !strings.Contains(err.Error(), "all of it") {
				t.Errorf("to delete one that is used gives %v", err)
			}
			for _, name := range []string{"other.one", "all of it", "web"} {
				if err := groups.Delete(ctx, name); err != nil {
					t.Errorf("delete %s: %v", name, err)
				}
			}
			for _, err := range []error{groups.Delete(ctx, "web"), second(groups.Get(ctx, "web"))} {
				if f := harp.FailureOf(err); !errors.Is(err, harp.ErrNotFound) || f.Type != "group" {
					t.Errorf("of one that there is not: %v", err)
				}
			}
			page := must[harp.EventPage](t)(sys.caller.EventsPage(ctx, harp.EventFilter{After: harp.EventsFromStart, Types: []string{"group.*"}}, false))
			var told []string
			for _, e := range page.Events {
				told = append(told, e.Reason)
			}
			if !slices.Equal(told, []string{"web", "web", "all of it", "other.one", "other.one", "all of it", "web"}) {
				t.Errorf("the events tell of %q", told)
			}
		})
	}
}

func second[T any](_ T, err error) error { return err }

// A group that could not be used is refused before it is stored, and the error names the place.
func TestGroupsThatCannotBeAreRefused(t *testing.T) {
	everyWiring(t, func(t *testing.T, sys *system) {
		ctx, groups := t.Context(), sys.caller.Groups()
		put := func(name, text string) {
			if err := groups.Put(ctx, name, text); err != nil {
				t.Fatalf("put %s: %v", name, err)
			}
		}
		put("d1", "web*")
		for i := range 7 {
			put(fmt.Sprint("d", i+2), fmt.Sprint("@d", i+1))
		}
		put("a", "web*")
		put("b", "db* or @a")
		put("m1", "web*")
		for i := range 3 {
			put(fmt.Sprint("m", i+2), strings.Repeat(fmt.Sprintf("@m%d,", i+1), 9)+fmt.Sprint("@m", i+1))
		}
		for _, bad := range []struct{ name, text, field, says string }{
			{"", "web*", "name", "empty"},
			{strings.Repeat("n", 129), "web*", "name", "128"},
			{"x", "", "target", "empty"},
			{"x", "web01 web02", "target", "at byte 6"},
			{"x", "web* or @none", "target", `at byte 8: group "none"`},
			{"x", "db* or @x", "target", `at byte 7: group "x"`},
			{"a", "db* or @b", "target", `at byte 7: group "b": at byte 7: group "a"`},
			{"d9", "@d8", "target", "too many"},
			{"m5", "@m4" + strings.Repeat(",@m4", 9), "target", "as often as these are used"},
			{"x", strings.Repeat("{", 1000), "target", "at byte"},
			{"x", "web[1-999999999]", "target", "at byte"},
			{"x", strings.Repeat("~a,", 10_000) + "~a", "target", "at byte"},
			{"x", strings.Repeat("x", 3<<20), "target", "at byte"},
		} {
			var field *harp.FieldError
			err := groups.Put(ctx, bad.name, bad.text)
			if !errors.As(err, &field) || field.Field != bad.field || !strings.Contains(err.Error(), bad.says) {
				t.Errorf("to put %.20q as %.10q gives %v", bad.text, bad.name, err)
			}
		}
		if n := len(collect(t, groups)); n != 14 {
			t.Errorf("there are %d groups", n)
		}
		_, err := sys.caller.Target("web01 or @none").Hosts(ctx)
		if f := harp.FailureOf(err); f.Field != "target" || !strings.Contains(f.Message, "at byte 9") {
			t.Errorf("an unknown group gives %v", err)
		}
		put("m1", "web*"+strings.Repeat(" or db*", 9))
		for name, call := range map[string]func(target *harp.Target) error{
			"listed":    func(target *harp.Target) error { return second(target.Hosts(ctx)) },
			"explained": func(target *harp.Target) error { return second(target.Explain(ctx, "")) },
			"previewed": func(target *harp.Target) error { return second(target.Preview(ctx, "p", nil)) },
			"called":    func(target *harp.Target) error { return second(target.Call(ctx, "p", nil)) },
		} {
			if f := harp.FailureOf(call(sys.caller.Target("@m4"))); f.Field != "target" || !strings.Contains(f.Message, "as often as these are used") {
				t.Errorf("a group that has become too large is %s: %v", name, f)
			}
		}
	})
}

func collect(t *testing.T, groups *harp.Groups) []harp.Group {
	t.Helper()
	all, err := list(groups.List(t.Context()))
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// Groups outlive their dispatcher.
func TestGroupsAreKept(t *testing.T) {
	disk := memory.NewDisk()
	for range 2 {
		d := must[*dispatcher.Dispatcher](t)(dispatcher.Open(t.Context(), memory.OpenDisk(disk, nil), dispatcher.Config{Hosts: dispatcher.StaticHosts{{Name: "web01"}}}))
		if all := collect(t, d.Caller().Groups()); len(all) == 0 {
			if err := d.Caller().Groups().Put(t.Context(), "web", "web*"); err != nil {
				t.Error(err)
			}
		} else if got, err := d.Caller().Target("@web").Hosts(t.Context()); err != nil || len(got) != 1 {
			t.Errorf("afterwards @web selects %v, %v", got, err)
		}
		if err := d.Shutdown(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}
