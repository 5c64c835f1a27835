package agent

import (
	"testing"

	"github.com/harpcaller/harp/agent/internal/supervisor"
)

// TestKeptElsewhere: an attempt that is behind what its supervisor has let go of passes
// over that, and one that has been asked from further on meanwhile goes on from there.
// Neither loses what the command prints.
func TestKeptElsewhere(t *testing.T) {
	for name, c := range map[string]struct{ kept, want int64 }{
		"it is behind":  {kept: 15, want: 15},
		"it is further": {kept: 5, want: 10},
	} {
		t.Run(name, func(t *testing.T) {
			at := &attempt{}
			at.outbox.first = 10
			if new(running).recover(at, supervisor.End{}, &supervisor.KeptError{First: c.kept}) {
				t.Error("the end is taken for known")
			}
			if got := at.numbered(); got != c.want || at.deaf {
				t.Errorf("the next record is %d, want %d; deaf: %v", got, c.want, at.deaf)
			}
		})
	}
}
