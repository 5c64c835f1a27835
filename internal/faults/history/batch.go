package history

import (
	"fmt"
	"slices"
	"time"

	"github.com/harpcaller/harp"
)

// Batch is a batch whose events are held against what it may do: never more members hold a slot than may,
// and none is started before its wave, or the time between waves is over, nor while the batch is paused or cancelled, nor behind as many
// failures as stop it. It is paused, and resumed, in turns.
type Batch struct {
	Hosts []string      // in its order
	Waves []int         // how many hosts it has reached at the end of each
	Most  int           // members that may hold a slot
	Stop  int           // failures that stop it, each of them of a member; 0: none do
	Pause time.Duration // between two waves

	held     map[string]bool
	wave     int
	since    time.Time // when its wave began
	paused   bool
	failures int // since it was resumed
	halted   bool
}

// Note takes the next event, in the order of the commits, and returns the rule that it breaks and how; "" if it breaks none.
func (b *Batch) Note(e harp.Event) (rule, broken string) {
	switch e.Type {
	case harp.EventBatchPaused, harp.EventBatchResumed:
		isPaused := e.Type == harp.EventBatchPaused
		if isPaused == b.paused {
			return "B4", fmt.Sprintf("it is told of %s again, event %s: what was told of before is lost", e.Type, e.Cursor)
		}
		b.halted, b.paused = isPaused, isPaused
		if !isPaused {
			b.failures = 0
		}
	case harp.EventBatchCancelRequested:
		b.halted = true
	case harp.EventBatchWave:
		b.wave++
		b.since = e.Time
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
		case e.Time.Before(b.since.Add(b.Pause)):
			return "B4", fmt.Sprintf("%s is started %v after the wave before was over", e.Host, e.Time.Sub(b.since))
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
