package dispatcher_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/agent"
	"github.com/harpcaller/harp/dispatcher"
	"github.com/harpcaller/harp/store"
	"github.com/harpcaller/harp/store/memory"
)

// busyStore is a store that counts how often an agent was too busy.
type busyStore struct {
	store.Store
	busy atomic.Int64
}

func (s *busyStore) Apply(ctx context.Context, ts ...store.Transition) ([]store.Change, error) {
	for _, t := range ts {
		if t.Event.Kind == store.NotNow {
			s.busy.Add(1)
		}
	}
	return s.Store.Apply(ctx, ts...)
}

// An agent that takes few calls at a time is not asked again and again for each that
// waits: they all start all the same, without pauses between them.
func TestABusyAgentIsNotAskedForEachCallAgainAndAgain(t *testing.T) {
	const jobs = 200
	for what, test := range map[string]struct {
		most    int
		limits  agent.Limits
		options []agent.ProcOption
	}{
		"exclusive":       {1, agent.Limits{}, []agent.ProcOption{agent.Exclusive()}},
		"ten at a time":   {10, agent.Limits{MaxAttempts: 10}, nil},
		"fifty at a time": {50, agent.Limits{MaxAttempts: 50}, nil},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				busy := &busyStore{Store: memory.Open(nil)}
				sys := newSystem(t, embedded, busy, dispatcher.Config{})
				var running atomic.Int64
				sys.agentWith("web01", agent.Config{Limits: test.limits}, func(a *agent.Agent) {
					agent.Handle(a, harp.NewProc[struct{}, int64]("work"), func(context.Context, struct{}) (int64, error) {
						defer running.Add(-1)
						time.Sleep(time.Second)
						return running.Add(1), nil
					}, test.options...)
				})
				var all []*harp.Job
				for range jobs {
					all = append(all, must[*harp.Job](t)(sys.caller.Host("web01").Call(t.Context(), "work", nil)))
				}
				begun := time.Now()
				for _, job := range all {
					must[harp.Value](t)(job.Get(t.Context()))
				}
				took := time.Since(begun)
				if n := busy.busy.Load(); n > 4*jobs {
					t.Errorf("the agent was asked in vain %d times for %d jobs", n, jobs)
				}
				if want := time.Duration(jobs/test.most) * time.Second; took > want*3/2 {
					t.Errorf("they took %v, want about %v", took, want)
				}
				t.Logf("%d in vain, %v", busy.busy.Load(), took)
			})
		})
	}
}
