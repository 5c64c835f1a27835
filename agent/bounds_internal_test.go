package agent

import (
	"testing"

	"github.com/harpcaller/harp/internal/boundstest"
)

// TestBoundsStandInOnePlace: each constant in bounds.go is in what harp doctor shows, under a name of its own and with a reason.
func TestBoundsStandInOnePlace(t *testing.T) {
	boundstest.AllShown(t, "bounds.go")
	names := map[string]bool{}
	for _, b := range Bounds() {
		if b.Name == "" || names[b.Name] || b.Most <= 0 || b.Unit == "" || b.Reason == "" {
			t.Errorf("%+v", b)
		}
		names[b.Name] = true
	}
}
