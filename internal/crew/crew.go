// Package crew keeps goroutines for work that comes again and again: a new one would have
// to grow its stack again.
package crew

import "sync"

// Crew is goroutines, at work or free. The zero value has none. Its methods are safe for
// concurrent use.
type Crew struct {
	mu   sync.Mutex // guards what follows
	free []chan func()
	shut bool
}

// maxFree is how many free goroutines are kept. There were as many at work at the same
// time, and Rest ends those that are free.
const maxFree = 256

// Go runs f in a goroutine that group waits for, as long as it is kept. The one that was
// free last is used first, so that as few as possible are kept busy.
func (c *Crew) Go(group *sync.WaitGroup, f func()) {
	c.mu.Lock()
	n := len(c.free) - 1
	if n < 0 {
		c.mu.Unlock()
		group.Go(func() { c.loop(f) })
		return
	}
	next := c.free[n]
	c.free[n] = nil
	c.free = c.free[:n]
	c.mu.Unlock()
	next <- f
}

// loop runs f and what comes after it, as long as it is kept.
func (c *Crew) loop(f func()) {
	next := make(chan func(), 1)
	for f != nil {
		f()
		if !c.keep(next) {
			return
		}
		f = <-next
	}
}

func (c *Crew) keep(next chan func()) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.shut || len(c.free) == maxFree {
		return false
	}
	c.free = append(c.free, next)
	return true
}

// Rest ends the goroutines that are free.
func (c *Crew) Rest() {
	c.mu.Lock()
	free := c.free
	c.free = nil
	c.mu.Unlock()
	for _, next := range free {
		next <- nil
	}
}

// Close ends the goroutines that are free, and keeps none from now on.
func (c *Crew) Close() {
	c.mu.Lock()
	c.shut = true
	c.mu.Unlock()
	c.Rest()
}
