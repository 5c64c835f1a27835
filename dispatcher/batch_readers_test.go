package dispatcher_test

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/agent"
	"github.com/harpcaller/harp/dispatcher"
)

// readEnds reads the log of a batch by so many readers at a time, and returns when each has seen the end of every host once.
func readEnds(t testing.TB, b *harp.Batch, hosts, readers int) {
	t.Helper()
	var reading sync.WaitGroup
	for range readers {
		reading.Go(func() {
			seen := make(map[string]bool, hosts)
			for r, err := range b.Follow(t.Context(), harp.Since(0)) {
				if err != nil {
					t.Error(err)
					return
				}
				if r.End == nil {
					continue
				}
				if seen[r.Host] {
					t.Errorf("%s ended twice", r.Host)
				}
				seen[r.Host] = true
			}
			if len(seen) != hosts {
				t.Errorf("%d of %d hosts ended", len(seen), hosts)
			}
		})
	}
	reading.Wait()
}

// Each of 100 readers of a batch's log sees the end of every host once, while the log is being written.
func TestManyReadersOfABatch(t *testing.T) {
	for _, w := range []wiring{embedded, loopback} {
		t.Run(string(w), func(t *testing.T) {
			t.Parallel()
			const hosts, away, readers = 20, 380, 100
			sys := newSystem(t, w, nil, dispatcher.Config{Hosts: registryOf(away)})
			gate := newGate()
			for n := range hosts {
				sys.agent(fmt.Sprintf("web%02d", n+1), gate.register)
			}
			b := must[*harp.Batch](t)(sys.caller.Target("*").Call(t.Context(), "gate", harp.Args{"name": "x"}, harp.WhenOffline(harp.SkipHost), harp.WhenUnfit(harp.SkipHost)))
			done := make(chan struct{})
			go func() {
				defer close(done)
				readEnds(t, b, hosts+away, readers)
			}()
			for range hosts {
				<-gate.entered
				gate.release <- struct{}{}
			}
			<-done
		})
	}
}

// BenchmarkBatchReaders is a batch over 10,000 agents whose log is followed by so many readers, and how much memory
// this process, of which the agents and the readers are a part, has in use at most more than before it was submitted.
func BenchmarkBatchReaders(b *testing.B) {
	for _, readers := range []int{1, 100} {
		b.Run(fmt.Sprint(readers), func(b *testing.B) {
			const hosts = 10_000
			sys := newSystem(b, embedded, openBadger(b, b.TempDir()), dispatcher.Config{})
			for n := range hosts {
				sys.agent(fmt.Sprintf("web%05d", n), func(a *agent.Agent) {
					agent.Handle(a, harp.NewProc[struct{}, bool]("noop"), func(context.Context, struct{}) (bool, error) { return true, nil })
				})
			}
			before, most := heapInUse(), int64(0)
			b.ResetTimer()
			for range b.N {
				batch, err := sys.caller.Target("web*").Call(b.Context(), "noop", nil)
				if err != nil {
					b.Fatal(err)
				}
				stop := make(chan struct{})
				var watching sync.WaitGroup
				watching.Go(func() {
					for {
						select {
						case <-stop:
							return
						default:
							most = max(most, heapInUse())
						}
					}
				})
				readEnds(b, batch, hosts, readers)
				close(stop)
				watching.Wait()
			}
			b.ReportMetric(float64(b.N*hosts*readers)/b.Elapsed().Seconds(), "ends/s")
			b.ReportMetric(float64(max(most, before)-before)/(1<<20), "MiB-more")
		})
	}
}
