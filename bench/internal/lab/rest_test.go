package lab

import (
	"testing"
	"time"
)

// TestLookHoldsEachPing checks that a process at rest is looked at over whole intervals of its
// clients' pings: in part of one it depends on when it begins how many pings it holds.
func TestLookHoldsEachPing(t *testing.T) {
	for pings, want := range map[time.Duration]time.Duration{
		0:                 100 * time.Second,
		10 * time.Second:  100 * time.Second,
		40 * time.Second:  2 * time.Minute,
		100 * time.Second: 100 * time.Second,
		2 * time.Minute:   2 * time.Minute,
		5 * time.Minute:   5 * time.Minute,
	} {
		if got := lookFor(pings); got != want {
			t.Errorf("pings every %s are looked at for %s, want %s", pings, got, want)
		}
	}
}
