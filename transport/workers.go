package transport

import "sync"

// workers are the goroutines of a session that run handlers. They are kept for the
// next exchange, since a new one would have to grow its stack again. The one that was
// free last is used first, so that as few as possible are kept busy.
type workers struct {
	mu   sync.Mutex // guards what follows
	free []chan func()
	shut bool
}

// maxFree is how many workers are kept. There were as many at work at the same time, and
// when the lanes are tidied those that are free go.
const maxFree = 256

// run runs f in a goroutine that group waits for.
func (w *workers) run(group *sync.WaitGroup, f func()) {
	w.mu.Lock()
	n := len(w.free) - 1
	if n < 0 {
		w.mu.Unlock()
		group.Go(func() { w.loop(f) })
		return
	}
	next := w.free[n]
	w.free[n] = nil
	w.free = w.free[:n]
	w.mu.Unlock()
	next <- f
}

// loop runs f and what comes after it, as long as it is kept.
func (w *workers) loop(f func()) {
	next := make(chan func(), 1)
	for f != nil {
		f()
		if !w.keep(next) {
			return
		}
		f = <-next
	}
}

func (w *workers) keep(next chan func()) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.shut || len(w.free) == maxFree {
		return false
	}
	w.free = append(w.free, next)
	return true
}

// rest ends the workers that are free.
func (w *workers) rest() {
	w.mu.Lock()
	free := w.free
	w.free = nil
	w.mu.Unlock()
	for _, next := range free {
		next <- nil
	}
}

// close ends the workers when they are free.
func (w *workers) close() {
	w.mu.Lock()
	w.shut = true
	w.mu.Unlock()
	w.rest()
}
