package dispatcher

import "sync/atomic"

// crew are the goroutines that attempts run in. Those that are free are kept for the next
// ones, since a new one would have to grow its stack again.
type crew struct {
	next chan func() // taken by one that is free
	free atomic.Int32
}

// maxFree is how many goroutines without an attempt are kept.
const maxFree = 256

// goKept runs f as work that Shutdown waits for; false once the dispatcher is closing.
func (d *Dispatcher) goKept(f func()) bool {
	select {
	case d.crew.next <- f:
		return true
	default: // nobody is free
	}
	if !d.begin() {
		return false
	}
	go func() {
		defer d.work.Done()
		d.crew.loop(f, d.ctx.Done())
	}()
	return true
}

// loop runs f and what comes after it, as long as it is kept.
func (c *crew) loop(f func(), stop <-chan struct{}) {
	for {
		f()
		if c.free.Add(1) > maxFree {
			c.free.Add(-1)
			return
		}
		select {
		case f = <-c.next:
			c.free.Add(-1)
		case <-stop:
			return
		}
	}
}
