// Package workers is a pool of goroutines for work that comes again and again: a new one
// would have to grow its stack again.
package workers

import "sync"

// Pool is goroutines, at work or free. The zero value has none. Its methods are safe for
// concurrent use.
type Pool struct {
	mu   sync.Mutex // guards what follows
	free []chan func()
	shut bool
}

// maxFree is how many free goroutines are kept. There were as many at work at the same
// time, and ReleaseIdle ends those that are free.
const maxFree = 256

// Go runs f in a goroutine that group waits for, as long as it is kept. The one that was
// free last is used first, so that as few as possible are kept busy.
func (p *Pool) Go(group *sync.WaitGroup, f func()) {
	p.mu.Lock()
	n := len(p.free) - 1
	if n < 0 {
		p.mu.Unlock()
		group.Go(func() { p.workLoop(f) })
		return
	}
	next := p.free[n]
	p.free[n] = nil
	p.free = p.free[:n]
	p.mu.Unlock()
	next <- f
}

// workLoop runs f and what comes after it, as long as it is kept.
func (p *Pool) workLoop(f func()) {
	next := make(chan func(), 1)
	for f != nil {
		f()
		if !p.keepFree(next) {
			return
		}
		f = <-next
	}
}

func (p *Pool) keepFree(next chan func()) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.shut || len(p.free) == maxFree {
		return false
	}
	p.free = append(p.free, next)
	return true
}

// ReleaseIdle ends the goroutines that are free.
func (p *Pool) ReleaseIdle() {
	p.mu.Lock()
	free := p.free
	p.free = nil
	p.mu.Unlock()
	for _, next := range free {
		next <- nil
	}
}

// Close ends the goroutines that are free, and keeps none from now on.
func (p *Pool) Close() {
	p.mu.Lock()
	p.shut = true
	p.mu.Unlock()
	p.ReleaseIdle()
}
