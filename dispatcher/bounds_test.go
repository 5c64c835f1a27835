package dispatcher_test

import (
	"testing"

	"github.com/harpcaller/harp/dispatcher"
	"github.com/harpcaller/harp/store/memory"
)

// TestBoundsAreShown: each has a name of its own, a value and a reason.
func TestBoundsAreShown(t *testing.T) {
	sys := newSystem(t, inMemory, memory.Open(nil), dispatcher.Config{})
	info, err := sys.callerAs("ada").Ping(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for _, b := range info.Bounds {
		if b.Name == "" || names[b.Name] || b.Most <= 0 || b.Used > b.Most || b.Unit == "" || b.Reason == "" {
			t.Errorf("%+v", b)
		}
		names[b.Name] = true
	}
}
