package dispatcher_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/agent"
	"github.com/harpcaller/harp/agent/journal"
	"github.com/harpcaller/harp/dispatcher"
)

// BenchmarkCall is a call and its result, synced at the dispatcher and in the
// agent's journal, over TLS on loopback, with so many in flight.
func BenchmarkCall(b *testing.B) {
	for _, inFlight := range []int{1, 16, 256} {
		b.Run(fmt.Sprint(inFlight), func(b *testing.B) {
			sys := newSystem(b, loopback, openBadger(b, b.TempDir()), dispatcher.Config{})
			sys.agentWith("web01", agent.Config{Journal: journal.Disk(b.TempDir())}, func(a *agent.Agent) {
				agent.Handle(a, harp.NewProc[struct{}, bool]("noop"), func(context.Context, struct{}) (bool, error) { return true, nil })
			})
			caller := sys.d.Caller()
			defer caller.Close()
			host := caller.Host("web01")
			var left atomic.Int64
			left.Store(int64(b.N))
			var calls sync.WaitGroup
			b.ResetTimer()
			for range inFlight {
				calls.Go(func() {
					for left.Add(-1) >= 0 {
						job, err := host.Call(b.Context(), "noop", nil)
						if err == nil {
							_, err = job.Get(b.Context())
						}
						if err != nil {
							b.Error(err)
							return
						}
					}
				})
			}
			calls.Wait()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "jobs/s")
		})
	}
}
