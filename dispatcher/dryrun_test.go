package dispatcher_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/agent"
)

// A dry run reaches the agent as one, also as the retry of a job that was none, and a
// procedure that has none is not run.
func TestDryRun(t *testing.T) {
	everyWiring(t, func(t *testing.T, sys *system) {
		var plain atomic.Int64
		sys.agent("web01", func(a *agent.Agent) {
			agent.Handle(a, harp.NewProc[struct{}, bool]("careful"), func(ctx context.Context, _ struct{}) (bool, error) {
				info, _ := agent.FromContext(ctx)
				return info.DryRun, nil
			}, agent.DryRun())
			agent.Handle(a, harp.NewProc[struct{}, int64]("plain"), func(context.Context, struct{}) (int64, error) {
				return plain.Add(1), nil
			})
		})
		host := sys.caller.Host("web01")
		real := must[*harp.Job](t)(host.Call(t.Context(), "careful", nil))
		if must[bool](t)(harp.Get[bool](t.Context(), real)) {
			t.Error("a call for real was a dry run")
		}
		dry := must[*harp.Job](t)(host.Call(t.Context(), "careful", nil, harp.DryRun()))
		again := must[*harp.Job](t)(real.Retry(t.Context(), harp.DryRun()))
		for _, job := range []*harp.Job{dry, again} {
			if !must[bool](t)(harp.Get[bool](t.Context(), job)) || !must[harp.JobStatus](t)(job.Status(t.Context())).DryRun {
				t.Error("a dry run was none")
			}
		}
		if _, err := host.Call(t.Context(), "careful", nil, harp.JobID(real.ID()), harp.DryRun()); !errors.Is(err, harp.ErrConflict) {
			t.Errorf("a dry run under the id of a real one gives %v", err)
		}
		none := must[*harp.Job](t)(host.Call(t.Context(), "plain", nil, harp.DryRun()))
		if _, err := none.Get(t.Context()); !errors.Is(err, harp.ErrRejected) || harp.RanOf(err) != harp.DidNotRun || plain.Load() != 0 {
			t.Errorf("a procedure without a dry run ran %d times: %v", plain.Load(), err)
		}
	})
}

// An exclusive procedure runs once at a time, and the job that waits for it says so.
func TestExclusiveProcedureIsWaitedFor(t *testing.T) {
	everyWiring(t, func(t *testing.T, sys *system) {
		g := newGate()
		sys.agent("web01", func(a *agent.Agent) {
			agent.Handle(a, harp.NewProc[struct{ Name string }, string]("alone"), func(_ context.Context, in struct{ Name string }) (string, error) {
				g.entered <- in.Name
				<-g.release
				return in.Name, nil
			}, agent.Exclusive())
		})
		host := sys.caller.Host("web01")
		first := must[*harp.Job](t)(host.Call(t.Context(), "alone", harp.Args{"Name": "first"}))
		<-g.entered
		second := must[*harp.Job](t)(host.Call(t.Context(), "alone", harp.Args{"Name": "second"}))
		for e, err := range sys.caller.Events(t.Context(), harp.EventFilter{After: harp.EventsFromStart, Types: []string{string(harp.EventJobQueued)}}) {
			if err != nil {
				t.Fatal(err)
			}
			if e.Job == second.ID() && e.Reason == harp.ReasonAgentBusy {
				break
			}
		}
		g.release <- struct{}{}
		if name := <-g.entered; name != "second" {
			t.Errorf("then %s ran", name)
		}
		g.release <- struct{}{}
		must[harp.Value](t)(first.Get(t.Context()))
		must[harp.Value](t)(second.Get(t.Context()))
	})
}
