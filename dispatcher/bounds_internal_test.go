package dispatcher

import (
	"testing"

	"github.com/harpcaller/harp/internal/boundstest"
)

// TestBoundsStandInOnePlace: each constant in bounds.go is in what harp doctor shows.
func TestBoundsStandInOnePlace(t *testing.T) {
	boundstest.AllShown(t, "bounds.go")
}
