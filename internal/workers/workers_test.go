package workers

import (
	"sync"
	"testing"
	"testing/synctest"
)

// idle returns how many goroutines are kept when nothing moves any more.
func (p *Pool) idle() int {
	synctest.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.free)
}

// TestPool: goroutines are kept for what is to be run next, at most so many, and end when
// they are to.
func TestPool(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c Pool
		var all sync.WaitGroup
		atOnce := func(n, left int) {
			var ran sync.WaitGroup
			ran.Add(n)
			hold := make(chan struct{})
			for range n {
				c.Go(&all, func() { ran.Done(); <-hold })
			}
			ran.Wait()
			if got := c.idle(); got != left {
				t.Errorf("%d are free while %d are at work", got, n)
			}
			close(hold)
		}
		const more = maxFree + 3
		atOnce(more, 0)
		if n := c.idle(); n != maxFree {
			t.Errorf("%d are kept of %d", n, more)
		}
		atOnce(10, maxFree-10)
		if n := c.idle(); n != maxFree {
			t.Errorf("%d are kept", n)
		}
		c.ReleaseIdle()
		all.Wait() // hangs if one does not end
		atOnce(10, 0)
		if n := c.idle(); n != 10 {
			t.Errorf("%d are kept after Rest", n)
		}
		c.Close()
		all.Wait()
		atOnce(10, 0)
		all.Wait()
	})
}

// TestPoolLatest: the one that was free last is used first.
func TestPoolLatest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c Pool
		var all sync.WaitGroup
		hold := []chan struct{}{make(chan struct{}), make(chan struct{})}
		for _, h := range hold {
			c.Go(&all, func() { <-h })
		}
		for i, h := range hold {
			close(h)
			if n := c.idle(); n != i+1 {
				t.Fatalf("%d are free, not %d", n, i+1)
			}
		}
		first, release := c.free[0], make(chan struct{})
		c.Go(&all, func() { <-release })
		if c.idle() != 1 || c.free[0] != first {
			t.Error("the one that was free first is used")
		}
		close(release)
		c.Close()
		all.Wait()
	})
}
