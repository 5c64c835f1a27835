package schedules_test

import (
	"context"
	"testing"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/dispatcher"
	"github.com/harpcaller/harp/internal/manifest"
	"github.com/harpcaller/harp/store/memory"
)

// TestDocuments checks that a dispatcher takes the documents of this folder, and that nothing differs then.
func TestDocuments(t *testing.T) {
	set, err := manifest.Read(".")
	if err != nil {
		t.Fatal(err)
	}
	d, err := dispatcher.Open(t.Context(), memory.Open(nil), dispatcher.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := d.Shutdown(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	}()
	schedules := d.Caller().Schedules()
	for _, want := range []int{8, 0} {
		done, err := schedules.Apply(t.Context(), "schedules", set.Documents, harp.ApplyOptions{Prune: true})
		if err != nil || done.Count != want {
			t.Fatalf("%d documents change something, want %d: %v", done.Count, want, set.Wrap(err))
		}
	}
	times, err := schedules.Next(t.Context(), "backup", 3)
	if err != nil || len(times) != 3 {
		t.Errorf("backup fires at %+v, %v", times, err)
	}
}
