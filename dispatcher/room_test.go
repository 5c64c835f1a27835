package dispatcher_test

import (
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/dispatcher"
)

// TestCallsForWhichTheAgentHasNoRoom: an agent takes calls with long arguments as long as it has
// room for them. The others were not started and wait for their turn, the session goes on, and all
// of them run once.
func TestCallsForWhichTheAgentHasNoRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sys := newSystem(t, inMemory, nil, dispatcher.Config{})
		g := newGate()
		sys.agent("web01", g.register)
		synctest.Wait()
		const calls = 80 // more than it has room for the arguments of
		long := strings.Repeat("x", 1<<20-100)
		var jobs []*harp.Job
		for range calls {
			jobs = append(jobs, must[*harp.Job](t)(sys.caller.Host("web01").Call(t.Context(), "gate", harp.Args{"name": long})))
		}
		synctest.Wait()
		if n := len(g.entered); n < 20 || n >= calls {
			t.Errorf("%d calls run at a time", n)
		}
		for range calls {
			g.release <- struct{}{}
		}
		var all sync.WaitGroup
		for _, job := range jobs {
			all.Go(func() {
				s, err := job.Wait(t.Context())
				if err != nil || s.State != harp.StateSucceeded {
					t.Errorf("a job ended %s, %v", s.State, err)
				}
			})
		}
		all.Wait()
		if n := len(g.entered); n != calls {
			t.Errorf("%d calls ran", n)
		}
		if st := must[harp.JobStatus](t)(jobs[calls-1].Status(t.Context())); len(st.Attempts) != 1 {
			t.Errorf("%d attempts", len(st.Attempts))
		}
	})
}
