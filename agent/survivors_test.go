package agent_test

import (
	"context"
	"slices"
	"testing"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/agent"
	"github.com/harpcaller/harp/internal/wire"
)

// TestProcessesThatOutliveKill checks that the dispatcher is told which they are, beside the
// cause of the stop if there is one, each time that they change, and again in another session.
func TestProcessesThatOutliveKill(t *testing.T) {
	for name, stopped := range map[string]bool{"of an attempt that is stopped": true, "of one that has ended by itself": false} {
		t.Run(name, func(t *testing.T) {
			inMemory(t, func(t *testing.T, p place) {
				release := make(chan struct{})
				m := newMachine(t, p, func(a *agent.Agent) {
					offer(a, "deaf", func(context.Context) (int, error) { <-release; return 0, nil })
				}, agent.Limits{})
				x := m.peer.call("deaf", nil, limits(harp.NoLimit, harp.NoLimit)).accepted()
				cause := ""
				if stopped {
					x.cancel()
					cause = x.stopping().Cause
				}
				check := func(x *exchange, pids ...int64) {
					t.Helper()
					if s := x.stopping(); s.Cause != cause || !slices.Equal(s.Left, pids) {
						t.Errorf("STOPPING %+v, want %q with %v", s, cause, pids)
					}
				}
				m.agent.Outlive(x.id, 11, 12)
				check(x, 11, 12)
				many := make([]int, wire.MaxLeft+1)
				m.agent.Outlive(x.id, many...)
				check(x, make([]int64, wire.MaxLeft)...)
				m.agent.Outlive(x.id, 12)
				check(x, 12)
				m.lose()
				x = m.peer.resume(x.id, 0)
				if stopped {
					x.stopping()
				}
				check(x, 12)
				m.agent.Outlive(x.id)
				close(release)
				if f := x.receive(); f.Type != wire.TypeEnd {
					t.Errorf("frame of type %d after they have gone", f.Type)
				}
			})
		})
	}
}
