package history

import (
	"fmt"
	"slices"

	"github.com/harpcaller/harp"
)

// Batch is a batch whose events are held against what it may do: never more members hold a slot than may,
// and none is started before its wave, nor while the batch is paused or cancelled, nor behind as many failures as stop it.
type Batch struct {
	Hosts []string // in its order
	Waves []int    // how many hosts it has reached at the end of each
	Most  int      // members that may hold a slot
	Stop  int      // failures that stop it, each of them of a member; 0: none do

	held     map[string]bool
	wave     int
	failures int // since it was resumed
	halted   bool
}

// Note takes the next event, in the order of the commits, and returns the rule that it breaks and how; "" if it breaks none.
func (b *Batch) Note(e harp.Event) (rule, broken string) {
	switch e.Type {
	case harp.EventBatchPaused, harp.EventBatchCancelRequested:
		b.halted = true
	case harp.EventBatchResumed:
		b.halted, b.failures = false, 0
	case harp.EventBatchWave:
		b.wave++
	case harp.EventJobSent:
		if b.held == nil {
			b.held = map[string]bool{}
		}
		b.held[e.Job] = true
		switch {
		case b.halted:
			return "B4", fmt.Sprintf("%s is started though it is halted, event %s", e.Host, e.Cursor)
		case b.Stop > 0 && b.failures >= b.Stop:
			return "B4", fmt.Sprintf("%s is started behind %d failures, event %s", e.Host, b.failures, e.Cursor)
		case slices.Index(b.Hosts, e.Host) >= b.Waves[b.wave]:
			return "B4", fmt.Sprintf("%s is started in wave %d", e.Host, b.wave+1)
		case len(b.held) > b.Most:
			return "B5", fmt.Sprintf("%d members hold a slot, at most %d may", len(b.held), b.Most)
		}
	default:
		if e.Type == harp.EventJobQueued || e.State.Ended() {
			delete(b.held, e.Job)
		}
		if slices.Contains([]harp.State{harp.StateFailed, harp.StateTimedOut, harp.StateLost, harp.StateRejected, harp.StateExpired}, e.State) {
			b.failures++
		}
	}
	return "", ""
}
