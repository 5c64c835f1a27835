package dispatcher

import (
	"testing"
	"time"

	"github.com/harpcaller/harp/window"
)

// TestHostsSharePausesThatAreTheSame: two hosts that are paused alike share a gate, and nobody gets another one's by the reason that he gives.
func TestHostsSharePausesThatAreTheSame(t *testing.T) {
	since := time.Date(2026, 11, 28, 18, 0, 0, 0, time.UTC)
	pause := func(reason string, until time.Time) window.Pause {
		return window.Pause{What: "host", By: "ann", Kind: "caller", Reason: reason, Since: since, Until: until}
	}
	long, short := pause("disk", time.Time{}), pause("lunch", since.Add(time.Hour))
	text := "disk " + since.String() + " " + time.Time{}.String() + " false} {host ann caller lunch"
	g := gates{from: since, until: since.Add(24 * time.Hour), shared: map[string]*window.Gate{}}
	both := g.gate(nil, []window.Pause{long, short})
	if g.gate(nil, []window.Pause{long, short}) != both {
		t.Error("the same pauses have two gates")
	}
	if g.gate(nil, []window.Pause{pause(text, short.Until)}) == both {
		t.Error("another pause has the gate of both")
	}
}
