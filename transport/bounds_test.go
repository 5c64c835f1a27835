package transport

import (
	"testing"

	"github.com/harpcaller/harp/internal/boundstest"
)

// TestBoundsStandInOnePlace: each constant in bounds.go is in what harp doctor shows, but for those that say in which steps and how often.
func TestBoundsStandInOnePlace(t *testing.T) {
	boundstest.AllShown(t, "bounds.go", "exchangeBody", "maxPrepaid", "refusalRate", "refusalBurst", "freeWaiting", "waitingStep", "maxReason")
}
