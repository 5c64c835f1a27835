//go:build !race

package dispatcher_test

import (
	"fmt"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/dispatcher"
)

// TestReadersOfALongBatchTakeNoMore: what each of many readers of a batch's log makes the dispatcher hold does not grow with the hosts of the batch, neither
// while each is in the middle of a page, nor while all wait for what is still to come.
func TestReadersOfALongBatchTakeNoMore(t *testing.T) {
	const (
		readers = 30
		reading = 2 << 20 // bytes that one may take: its page
		waiting = 16 << 10
	)
	for _, hosts := range []int{1_000, 10_000} {
		t.Run(fmt.Sprint(hosts), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				sys := newSystem(t, embedded, nil, dispatcher.Config{Hosts: registryOf(hosts - 1)})
				gate := newGate()
				sys.agent("web01", gate.register)
				b := must[*harp.Batch](t)(sys.caller.Target("*").Call(t.Context(), "gate", harp.Args{"name": "x"}, harp.WhenOffline(harp.SkipHost), harp.WhenUnfit(harp.SkipHost)))
				<-gate.entered
				before := heapInUse()
				goOn := make(chan struct{})
				var begun, waited, done sync.WaitGroup
				begun.Add(readers)
				waited.Add(readers)
				for range readers {
					done.Go(func() {
						ends := 0
						for r, err := range b.Follow(t.Context(), harp.Since(0)) {
							if err != nil {
								t.Error(err)
								break
							}
							if r.End == nil {
								continue
							}
							switch ends++; ends {
							case 1:
								begun.Done()
								<-goOn
							case hosts - 1:
								waited.Done()
							}
						}
						if ends != hosts {
							t.Errorf("%d of %d hosts ended", ends, hosts)
						}
					})
				}
				begun.Wait()
				synctest.Wait()
				inPage := (heapInUse() - before) / readers
				close(goOn)
				waited.Wait()
				synctest.Wait() // else one may still have its last page
				atEnd := (heapInUse() - before) / readers
				gate.release <- struct{}{}
				done.Wait()
				t.Logf("a reader takes %d bytes in the middle of a page, and %d when it waits", inPage, atEnd)
				if inPage > reading || atEnd > waiting {
					t.Errorf("a reader takes %d bytes in the middle of a page, and %d when it waits; at most %d and %d", inPage, atEnd, reading, waiting)
				}
			})
		})
	}
}
