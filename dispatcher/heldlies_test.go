package dispatcher_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/wire"
)

// greetHolding greets the agent of a host that holds attempts, and lets it go.
func (s *system) greetHolding(t *testing.T, host string, held ...wire.HeldAttempt) {
	t.Helper()
	a := must[*rawAgent](t)(s.greetAs(t.Context(), host, wire.Hello{Version: wire.Version, Instance: "i", Journal: "j"}, wire.Held{Attempts: held}))
	synctest.Wait()
	a.tr.Close(nil)
	synctest.Wait()
}

// forgotten returns what the feed names that an agent was told to forget.
func (s *system) forgotten(t *testing.T) (all []harp.Event) {
	t.Helper()
	told := harp.EventFilter{After: harp.EventsFromStart, Types: []string{string(harp.EventHostForgot)}}
	for {
		page := must[harp.EventPage](t)(s.caller.EventsPage(t.Context(), told, false))
		if len(page.Events) == 0 {
			return all
		}
		all, told.After = append(all, page.Events...), page.Cursor
	}
}

// TestManyForgottenAttemptsAreNamed: all that an agent may hold that means well, but not what one holds anew each time.
func TestManyForgottenAttemptsAreNamed(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, sys *system) {
		const most = 30_000 // of an agent's journal
		held := make([]wire.HeldAttempt, most)
		for i := range held {
			held[i] = wire.HeldAttempt{Job: harp.NewID(), Attempt: 1, State: wire.HeldEnded, Fence: 1}
		}
		sys.greetHolding(t, "web01", held...)
		if named := sys.forgotten(t); len(named) != most || named[most-1].Job == "" {
			t.Errorf("%d are named", len(named))
		}
		sys.greetHolding(t, "web01", held...)
		sys.greetHolding(t, "web02", held[:10]...)
		if named := sys.forgotten(t); len(named) != most+10 {
			t.Errorf("with those that are held again %d are named", len(named))
		}
		time.Sleep(time.Hour)
		sys.greetHolding(t, "web01", held[0])
		if named := sys.forgotten(t); len(named) != most+11 {
			t.Errorf("an hour later %d are named", len(named))
		}
	})
}

// TestForgottenAttemptsAreNamedByKnownWords: the feed says nothing that an agent makes up.
func TestForgottenAttemptsAreNamedByKnownWords(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, sys *system) {
		text := "\x1b[2J\u202e" + strings.Repeat("x", 20_000)
		sys.greetHolding(t, "web01", wire.HeldAttempt{Job: text, Attempt: 1, State: text}, wire.HeldAttempt{Job: harp.NewID(), Attempt: 1, State: wire.HeldGone})
		named := sys.forgotten(t)
		if len(named) != 2 || named[0].Reason+named[1].Reason != wire.HeldGone {
			t.Errorf("the feed says %.200q", fmt.Sprint(named))
		}
	})
}

// TestWhatAnAgentHoldsOfOthersIsLoggedOnce: an agent holds, as it says, many attempts of a job of another host.
func TestWhatAnAgentHoldsOfOthersIsLoggedOnce(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, sys *system) {
		sys.greetHolding(t, "web01")
		job := must[*harp.Job](t)(sys.caller.Host("web01").Call(t.Context(), "work", nil))
		held := make([]wire.HeldAttempt, 1000)
		for i := range held {
			held[i] = wire.HeldAttempt{Job: job.ID(), Attempt: int64(i + 1), State: wire.HeldEnded, Fence: 1}
		}
		sys.greetHolding(t, "web02", held...)
		if warned := sys.online.takeWarned(); warned["what an agent holds of a job is of another host"] != 1 {
			t.Errorf("the log has %v", warned)
		}
	})
}
