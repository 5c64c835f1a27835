package harptest_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/agent"
	"github.com/harpcaller/harp/harptest"
)

// An agent that is told to stop ends what runs as a crash would be judged: what is declared
// idempotent is tried again, of the rest nobody knows how far it came, and what the function
// itself returns counts.
func TestAnAgentThatStopsIsNoWorseThanOneThatCrashes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sys := harptest.New(t, harptest.Options{Agents: []string{"web01"}, Register: func(a *agent.Agent) {
			hang := func(ctx context.Context, _ struct{}) (int, error) {
				info, _ := agent.FromContext(ctx)
				if info.Attempt == 1 {
					<-ctx.Done()
					return 0, ctx.Err()
				}
				return info.Attempt, nil
			}
			agent.Handle(a, harp.NewProc[struct{}, int]("safe"), hang, agent.Idempotent())
			agent.Handle(a, harp.NewProc[struct{}, int]("once"), hang)
			agent.Handle(a, harp.NewProc[struct{}, string]("tidy"), func(ctx context.Context, _ struct{}) (string, error) {
				<-ctx.Done()
				return "tidied up", nil
			})
		}})
		call := func(procedure string) *harp.Job {
			job, err := sys.Caller().Host("web01").Call(t.Context(), procedure, nil)
			if err != nil {
				t.Fatal(err)
			}
			return job
		}
		safe, once, tidy := call("safe"), call("once"), call("tidy")
		synctest.Wait()
		sys.StopAgent("web01")
		time.Sleep(5 * time.Second) // nothing of it is told again
		sys.StartAgent("web01")
		sys.WaitOnline("web01")
		if n, err := harp.Get[int](t.Context(), safe); n != 2 || err != nil {
			t.Errorf("idempotent: attempt %d, %v", n, err)
		}
		_, err := once.Get(t.Context())
		if f := harp.FailureOf(err); !errors.Is(err, harp.ErrLost) || f.Type != harp.LostAgentStopped {
			t.Errorf("once: %+v", f)
		}
		if status, err := once.Status(t.Context()); err != nil || status.State != harp.StateLost || status.Reason != harp.LostAgentStopped || status.Late != nil {
			t.Errorf("once: %+v, %v", status, err)
		}
		if s, err := harp.Get[string](t.Context(), tidy); s != "tidied up" || err != nil {
			t.Errorf("tidy: %q, %v", s, err)
		}
	})
}
