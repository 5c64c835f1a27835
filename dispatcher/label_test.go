package dispatcher_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/agent"
	"github.com/harpcaller/harp/dispatcher"
	"github.com/harpcaller/harp/store"
	"github.com/harpcaller/harp/store/memory"
)

// Labels of operators count more than those of the registry, and these more than an agent's; a
// host that never connected has them, too.
func TestLabelsOfOperators(t *testing.T) {
	for _, w := range []wiring{embedded, inMemory, loopback} {
		t.Run(string(w), func(t *testing.T) {
			ctx := t.Context()
			specs := dispatcher.StaticHosts{{Name: "web01", Labels: map[string]string{"role": "web", "env": "prod"}}}
			for i := range 600 {
				specs = append(specs, dispatcher.HostSpec{Name: fmt.Sprintf("db%03d", i)})
			}
			sys := newSystem(t, w, nil, dispatcher.Config{Hosts: specs})
			sys.agentWith("web01", agent.Config{Labels: map[string]string{"role": "agent", "env": "agent", "rack": "agent"}}, greeter)
			hosts := sys.caller.Hosts()
			label := func(want int, text string, set map[string]string, unset ...string) {
				t.Helper()
				if n, err := hosts.Label(ctx, text, set, unset...); err != nil || n != want {
					t.Errorf("label %s: %d, %v", text, n, err)
				}
			}
			label(1, "web01", map[string]string{"role": "op", "tier": "1"})
			label(600, "db*", map[string]string{"tier": "2"})
			label(601, "tier=*", map[string]string{"tier": "3"}) // by the label that is changed

			web := must[harp.HostStatus](t)(hosts.Get(ctx, "web01"))
			if want := map[string]string{"role": "op", "env": "prod", "rack": "agent", "tier": "3"}; !maps.Equal(web.Labels, want) {
				t.Errorf("the labels are %v", web.Labels)
			}
			from := map[string]harp.LabelSource{"role": harp.LabelOfOperator, "env": harp.LabelOfRegistry, "rack": harp.LabelOfAgent, "tier": harp.LabelOfOperator}
			if !maps.Equal(web.LabelSources, from) {
				t.Errorf("they are from %v", web.LabelSources)
			}
			if got, err := sys.caller.Target("role=op or tier=2").Hosts(ctx); err != nil || !slices.Equal(got, []string{"web01"}) {
				t.Errorf("by label are selected %v, %v", got, err)
			}
			label(1, "web01", nil, "role", "none")
			label(1, "web01", map[string]string{"env": "prod"}, "tier")
			if web = must[harp.HostStatus](t)(hosts.Get(ctx, "web01")); web.Labels["role"] != "web" || web.LabelSources["env"] != harp.LabelOfOperator {
				t.Errorf("then the labels are %v of %v", web.Labels, web.LabelSources)
			}

			page := must[harp.EventPage](t)(sys.caller.EventsPage(ctx, harp.EventFilter{After: harp.EventsFromStart, Types: []string{"host.labelled"}, Host: "web01"}, false))
			var told []string
			for _, e := range page.Events {
				told = append(told, e.Reason)
			}
			if !slices.Equal(told, []string{"role=op tier=1", "tier=3", "role- none-", "env=prod tier-"}) {
				t.Errorf("the events tell of %q", told)
			}
			testLabelsRefused(t, sys)
		})
	}
}

func testLabelsRefused(t *testing.T, sys *system) {
	many := map[string]string{}
	for i := range harp.MaxLabels {
		many[fmt.Sprint("k", i)] = strings.Repeat("v", harp.MaxLabelValue)
	}
	if n, err := sys.caller.Hosts().Label(t.Context(), "db000", many, "tier"); err != nil || n != 1 {
		t.Errorf("as many as there may be: %d, %v", n, err)
	}
	one := map[string]string{"k": "v"}
	for _, bad := range []struct {
		target string
		set    map[string]string
		unset  []string
		is     error
		field  string
	}{
		{"", one, nil, harp.ErrInvalid, "target"},
		{"db001 db002", one, nil, harp.ErrInvalid, "target"},
		{"db001", nil, nil, harp.ErrInvalid, "labels"},
		{"db001", map[string]string{"": "v"}, nil, harp.ErrInvalid, "label"},
		{"db001", map[string]string{"k": strings.Repeat("v", 257)}, nil, harp.ErrInvalid, "label k"},
		{"db001", one, []string{"k"}, harp.ErrInvalid, "label k"},
		{"db001", nil, []string{""}, harp.ErrInvalid, "label"},
		{"db001,db000", one, nil, harp.ErrInvalid, "labels"}, // db000 has too many: neither gets it
		{"db001", nil, make([]string, 100), harp.ErrInvalid, "labels"},
		{"db999", one, nil, harp.ErrNotFound, ""},
		{"nobody*", one, nil, harp.ErrNotFound, ""},
	} {
		_, err := sys.caller.Hosts().Label(t.Context(), bad.target, bad.set, bad.unset...)
		if f := harp.FailureOf(err); !errors.Is(err, bad.is) || f.Field != bad.field {
			t.Errorf("to label %s with %v, %v gives %v", bad.target, bad.set, bad.unset, err)
		}
	}
	if h := must[harp.HostStatus](t)(sys.caller.Hosts().Get(t.Context(), "db001")); len(h.Labels) != 1 {
		t.Errorf("afterwards it has %v", h.Labels)
	}
}

// Labels of operators stay when the registry is read anew, when the agent connects, and through
// a restart.
func TestLabelsOfOperatorsAreKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk, registry := memory.NewDisk(), &changing{}
		registry.set(nil, dispatcher.HostSpec{Name: "web01", Labels: map[string]string{"env": "prod"}}, dispatcher.HostSpec{Name: "db01"})
		labels := func(sys *system, want string) {
			t.Helper()
			synctest.Wait()
			h := must[harp.HostStatus](t)(sys.caller.Hosts().Get(t.Context(), "web01"))
			if got := fmt.Sprint(h.Labels); got != want {
				t.Errorf("the labels are %s, want %s", got, want)
			}
		}
		sys := newSystem(t, embedded, memory.OpenDisk(disk, nil), dispatcher.Config{Hosts: registry})
		synctest.Wait()
		if _, err := sys.caller.Hosts().Label(t.Context(), "*", map[string]string{"role": "op"}); err != nil {
			t.Fatal(err)
		}
		sys.agentWith("web01", agent.Config{Labels: map[string]string{"role": "agent"}}, greeter)
		labels(sys, "map[env:prod role:op]")
		registry.set(nil, dispatcher.HostSpec{Name: "web01", Labels: map[string]string{"env": "test", "role": "registry"}})
		must[int](t)(sys.caller.Hosts().Refresh(t.Context()))
		labels(sys, "map[env:test role:op]")
		if err := sys.d.Shutdown(t.Context()); err != nil {
			t.Fatal(err)
		}
		registry.set(nil, dispatcher.HostSpec{Name: "web01"}, dispatcher.HostSpec{Name: "db01"})
		again := must[*dispatcher.Dispatcher](t)(dispatcher.Open(t.Context(), memory.OpenDisk(disk, nil), dispatcher.Config{Hosts: registry}))
		synctest.Wait()
		got, err := again.Caller().Target("role=op").Hosts(t.Context())
		if err != nil || !slices.Equal(got, []string{"db01", "web01"}) {
			t.Errorf("after a restart role=op selects %v, %v", got, err)
		}
		if err := again.Shutdown(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
}

// leavingStore has a caller leave once documents were changed.
type leavingStore struct {
	store.Store
	leave func()
}

func (s *leavingStore) ChangeDocuments(ctx context.Context, c store.DocumentChanges) (int, error) {
	n, err := s.Store.ChangeDocuments(ctx, c)
	s.leave()
	return n, err
}

// Labelling more hosts than are stored at a time goes on though whoever asked for it leaves: else some of
// the hosts that a target selects would have the labels, and others not.
func TestLabellingGoesOnThoughWhoeverAskedHasLeft(t *testing.T) {
	const hosts = 1200
	var specs dispatcher.StaticHosts
	for i := range hosts {
		specs = append(specs, dispatcher.HostSpec{Name: fmt.Sprintf("db%04d", i)})
	}
	ctx, leave := context.WithCancel(t.Context())
	sys := newSystem(t, embedded, &leavingStore{memory.Open(nil), leave}, dispatcher.Config{Hosts: specs})
	long := strings.Repeat("v", harp.MaxLabelValue)
	if n, err := sys.caller.Hosts().Label(ctx, "db*", map[string]string{"role": "db", "a": long, "b": long, "c": long}); n != hosts || err != nil {
		t.Errorf("labelled are %d, %v", n, err)
	}
	if got, err := sys.caller.Target("role=db").Hosts(t.Context()); len(got) != hosts || err != nil {
		t.Errorf("%d have the label, %v", len(got), err)
	}
}

// A host whose removal has begun is removed though whoever asked for that leaves: else it would be there, without the
// labels that operators gave it.
func TestRemovingAHostGoesOnThoughWhoeverAskedHasLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, leave := context.WithCancel(t.Context())
		st := &leavingStore{memory.Open(nil), func() {}}
		sys := newSystem(t, embedded, st, dispatcher.Config{})
		disconnect := sys.agent("web01", greeter)
		if _, err := sys.caller.Hosts().Label(t.Context(), "web01", map[string]string{"role": "web"}); err != nil {
			t.Fatal(err)
		}
		disconnect()
		synctest.Wait()
		st.leave = leave
		if _, err := sys.caller.Hosts().Remove(ctx, "web01"); err != nil {
			t.Error(err)
		}
		if h, err := sys.caller.Hosts().Get(t.Context(), "web01"); !errors.Is(err, harp.ErrNotFound) {
			t.Errorf("it is %+v, %v", h, err)
		}
	})
}
