package dispatcher_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/agent"
	"github.com/harpcaller/harp/dispatcher"
)

// BenchmarkBatch is a batch over so many agents and all its results, synced at the dispatcher. The
// agents' journals and the network are in memory.
func BenchmarkBatch(b *testing.B) {
	const hosts = 2000
	sys := newSystem(b, embedded, openBadger(b, b.TempDir()), dispatcher.Config{})
	for n := range hosts {
		sys.agent(fmt.Sprintf("web%04d", n), func(a *agent.Agent) {
			agent.Handle(a, harp.NewProc[struct{}, bool]("noop"), func(context.Context, struct{}) (bool, error) { return true, nil })
		})
	}
	b.ReportAllocs()
	for b.Loop() {
		batch, err := sys.caller.Target("web*").Call(b.Context(), "noop", nil)
		if err != nil {
			b.Fatal(err)
		}
		n := 0
		for r, err := range batch.Results(b.Context()) {
			if err != nil || r.State != harp.StateSucceeded {
				b.Fatal(r, err)
			}
			n++
		}
		if n != hosts {
			b.Fatalf("%d hosts answered", n)
		}
	}
	b.ReportMetric(float64(b.N*hosts)/b.Elapsed().Seconds(), "members/s")
}
