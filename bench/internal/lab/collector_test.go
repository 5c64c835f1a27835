package lab

import (
	"fmt"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/harpcaller/harp/internal/tune"
)

// TestCollector checks that a peer that is said to collect as harp does so, and that the note
// says the floor that harp has.
func TestCollector(t *testing.T) {
	t.Setenv("GOGC", "")
	const mine = 123
	defer debug.SetGCPercent(debug.SetGCPercent(mine))
	for c, want := range map[Collector]tune.Saving{
		AsItComes: {Percent: mine}, AsAgent: tune.Agent, AsDispatcher: tune.Dispatcher,
	} {
		undo := c.Set()
		if got := debug.SetGCPercent(mine); got < want.Percent || c == AsItComes && got != mine {
			t.Errorf("%s: the heap may grow by %d %%, want %d, or more while it is small", c, got, want.Percent)
		}
		undo()
		if floor := fmt.Sprintf("GOGC=%d and %d MiB", want.Percent, want.Floor>>20); c != AsItComes && !strings.Contains(c.String(), floor) {
			t.Errorf("%q does not say %q", c, floor)
		}
	}
}
