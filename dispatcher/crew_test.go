package dispatcher

import (
	"sync"
	"testing"
	"testing/synctest"
)

// TestCrew: goroutines are kept for what is to be run next, at most so many, and end when
// they are to stop.
func TestCrew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := crew{next: make(chan func())}
		stop, hold := make(chan struct{}), make(chan struct{})
		var all, ran sync.WaitGroup
		const more = maxFree + 3
		for range more {
			all.Go(func() { c.loop(func() { <-hold }, stop) })
		}
		synctest.Wait()
		if n := c.free.Load(); n != 0 {
			t.Errorf("%d are free while all are at work", n)
		}
		close(hold)
		synctest.Wait()
		if n := c.free.Load(); n != maxFree {
			t.Errorf("%d are free", n)
		}
		for range 2 * more {
			ran.Add(1)
			select {
			case c.next <- ran.Done:
			default:
				t.Fatal("nobody is free")
			}
			ran.Wait()
			synctest.Wait()
		}
		close(stop)
		all.Wait()
	})
}
