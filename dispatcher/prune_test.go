package dispatcher_test

import (
	"errors"
	"testing"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/store"
)

// hello runs a job to its end and returns its id.
func hello(t *testing.T, sys *system) string {
	t.Helper()
	job := must[*harp.Job](t)(sys.caller.Host("web01").Call(t.Context(), "hello", harp.Args{"name": "Ada"}))
	must[harp.Value](t)(job.Get(t.Context()))
	return job.ID()
}

// readEvents returns the events after a cursor that there are.
func readEvents(t *testing.T, sys *system, after string) []harp.Event {
	t.Helper()
	return must[harp.EventPage](t)(sys.caller.EventsPage(t.Context(), harp.EventFilter{After: after}, false)).Events
}

// Pruning by hand deletes what retention would: the events of that time as well. Whoever has
// not read them is told, and nothing that is younger goes.
func TestPruneLeavesTheEventsOfItsTime(t *testing.T) {
	onStore(t, func(st store.Store) store.Store { return st }, func(t *testing.T, sys *system) {
		sys.agent("web01", greeter)
		hello(t, sys)
		old := readEvents(t, sys, harp.EventsFromStart)
		time.Sleep(time.Hour)
		young := hello(t, sys)
		kept := readEvents(t, sys, old[len(old)-1].Cursor)
		if n := must[int](t)(sys.caller.Prune(t.Context(), time.Now().Add(-time.Minute))); n != 1 {
			t.Errorf("%d jobs were deleted, want 1", n)
		}
		got := readEvents(t, sys, harp.EventsFromStart)
		if len(got) != len(kept)+1 || got[0].Cursor != kept[0].Cursor || got[0].Job != young || got[len(kept)].Type != harp.EventJobPruned {
			t.Errorf("the feed tells %v, want %v and %s", got, kept, harp.EventJobPruned)
		}
		if n := len(readEvents(t, sys, old[len(old)-1].Cursor)); n != len(got) {
			t.Errorf("behind the last that was deleted it tells %d events, want %d", n, len(got))
		}
		for _, e := range old[:len(old)-1] {
			if _, err := sys.caller.EventsPage(t.Context(), harp.EventFilter{After: e.Cursor}, false); !errors.Is(err, harp.ErrPruned) {
				t.Errorf("a follower that has not read all of what was deleted gets %v, want ErrPruned", err)
			}
		}
	})
}

// The space of events is given back when no job was deleted with them, too.
func TestSpaceOfEventsIsNotGivenBack(t *testing.T) {
	compacted := &compactedStore{leave: func() {}, compacted: make(chan error, 1)}
	wrap := func(st store.Store) store.Store { compacted.Store = st; return compacted }
	onStore(t, wrap, func(t *testing.T, sys *system) {
		sys.agent("web01", greeter)
		time.Sleep(time.Second)
		must[int](t)(sys.caller.Prune(t.Context(), time.Now()))
		select {
		case err := <-compacted.compacted:
			if err != nil {
				t.Errorf("the space is given back until %v", err)
			}
		default:
			t.Error("no space is given back")
		}
		must[int](t)(sys.caller.Prune(t.Context(), time.Now()))
		if len(compacted.compacted) > 0 {
			t.Error("the space of nothing is given back")
		}
	})
}
