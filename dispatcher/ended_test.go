package dispatcher_test

import (
	"context"
	"errors"
	"testing"

	"github.com/harpcaller/harp"
)

// A word that is no state is refused: it would select nothing.
func TestStatesThatAreNone(t *testing.T) {
	everyWiring(t, func(t *testing.T, sys *system) {
		for _, err := range sys.caller.Jobs(t.Context(), harp.JobFilter{States: []harp.State{harp.StateQueued, "done"}}) {
			isAbout(t, err, "states")
		}
	})
}

// A call whose ctx had ended before it was submitted was neither stored nor run, and says so.
func TestACallOfAnEndedCtx(t *testing.T) {
	everyWiring(t, func(t *testing.T, sys *system) {
		sys.agent("web01", greeter)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		id := harp.NewID()
		_, err := sys.caller.Host("web01").Call(ctx, "hello", harp.Args{"name": "Ada"}, harp.JobID(id))
		if !errors.Is(err, context.Canceled) || harp.RanOf(err) != harp.DidNotRun {
			t.Errorf("got %v, ran: %s", err, harp.RanOf(err))
		}
		if _, err := sys.caller.Job(id).Status(t.Context()); !errors.Is(err, harp.ErrNotFound) {
			t.Errorf("its job: %v", err)
		}
	})
}
