package transport

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// TestAPoolWakesWhoJustStandsInLine checks that what is given back between a look that found nothing and the wait
// for more is not overlooked: nothing else might be given back for long.
func TestAPoolWakesWhoJustStandsInLine(t *testing.T) {
	p := &pool{most: 1}
	var taking sync.WaitGroup
	for i := range 20_000 {
		if !p.tryTake(1, nil) {
			t.Fatal("what was given back is not there")
		}
		stuck, took := make(chan struct{}), false
		timer := time.AfterFunc(10*time.Second, func() { close(stuck) })
		var looking atomic.Bool
		taking.Go(func() {
			looking.Store(true)
			took = p.take(stuck, nil, 1, nil)
		})
		for !looking.Load() {
			runtime.Gosched()
		}
		for range i % 64 { // at each moment
			looking.Load()
		}
		p.give(1, nil)
		taking.Wait()
		timer.Stop()
		if !took {
			t.Fatalf("it waits for what is there, in turn %d", i)
		}
		p.give(1, nil)
	}
}
