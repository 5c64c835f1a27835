package dispatcher_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/agent"
	"github.com/harpcaller/harp/dispatcher"
)

// BenchmarkFollowedFeed is a call and its result, 16 at a time, while so many follow the
// feed: every event of it, or those of a host where nothing happens.
func BenchmarkFollowedFeed(b *testing.B) {
	for _, w := range []wiring{embedded, loopback} {
		for host, what := range map[string]string{"": "all", "idle": "none"} {
			for _, followers := range []int{0, 400} {
				b.Run(fmt.Sprintf("%s, %d of %s", w, followers, what), func(b *testing.B) { benchmarkFeed(b, w, host, followers) })
			}
		}
	}
}

func benchmarkFeed(b *testing.B, w wiring, followed string, followers int) {
	sys := newSystem(b, w, openBadger(b, b.TempDir()), dispatcher.Config{})
	sys.agent("web01", func(a *agent.Agent) {
		agent.Handle(a, harp.NewProc[struct{}, bool]("noop"), func(context.Context, struct{}) (bool, error) { return true, nil })
	})
	ctx, leave := context.WithCancel(b.Context())
	var following sync.WaitGroup
	defer following.Wait()
	defer leave()
	var events atomic.Int64
	for n := range followers {
		if n%100 == 0 && w != embedded { // a connection has so many exchanges
			sys.caller = sys.newCaller()
		}
		caller := sys.caller
		following.Go(func() {
			for _, err := range caller.Events(ctx, harp.EventFilter{Host: followed}) {
				if err == nil {
					events.Add(1)
				} else if ctx.Err() == nil {
					b.Error(err)
				}
			}
		})
	}
	calling := sys.d.Caller()
	defer calling.Close()
	host := calling.Host("web01")
	var left atomic.Int64
	left.Store(int64(b.N))
	var calls sync.WaitGroup
	b.ResetTimer()
	for range 16 {
		calls.Go(func() {
			for left.Add(-1) >= 0 {
				job, err := host.Call(ctx, "noop", nil)
				if err == nil {
					_, err = job.Get(ctx)
				}
				if err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	calls.Wait()
	b.StopTimer()
	b.ReportMetric(float64(events.Load())/float64(b.N), "events/op")
}
