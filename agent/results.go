package agent

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// firstResult is how long the result of a procedure is expected to be that has returned none yet.
	firstResult = 32 << 10
	// expectFor is how long a function keeps room for what it is expected to return: one that takes long
	// does not keep others from beginning.
	expectFor = time.Second
)

// expectation is how long the results of a procedure are: as long as the longest so far.
type expectation struct{ longest atomic.Int64 }

// bytes is how long the next one may be.
func (e *expectation) bytes() int64 {
	if n := e.longest.Load(); n > 0 {
		return n
	}
	return firstResult
}

// note counts a result.
func (e *expectation) note(bytes int) {
	for n := max(int64(bytes), 1); ; {
		longest := e.longest.Load()
		if n <= longest || e.longest.CompareAndSwap(longest, n) {
			return
		}
	}
}

// results is the memory for what functions return. Those that wait for some are served in their order.
type results struct {
	most int64

	mu    sync.Mutex // guards what follows; never held while blocked
	used  int64
	queue []*resultWaiter
}

type resultWaiter struct {
	bytes int64
	ready chan struct{} // closed when it has them
}

// take waits for so many bytes, and returns false if over is closed before. One that needs more than there are
// has them when nobody has any.
func (r *results) take(over <-chan struct{}, bytes int64) bool {
	w := &resultWaiter{bytes: bytes, ready: make(chan struct{})}
	r.mu.Lock()
	r.queue = append(r.queue, w)
	r.admitLocked()
	r.mu.Unlock()
	select {
	case <-w.ready:
		return true
	case <-over:
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	i := slices.Index(r.queue, w)
	if i >= 0 {
		r.queue = slices.Delete(r.queue, i, i+1)
		r.admitLocked() // those behind it may need less
	}
	return i < 0 // it came at the same time
}

// count notes that so many bytes more are in use.
func (r *results) count(bytes int64) {
	if bytes == 0 {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.used += bytes
	r.admitLocked()
}

func (r *results) admitLocked() {
	for len(r.queue) > 0 && (r.used == 0 || r.used+r.queue[0].bytes <= r.most) {
		r.used += r.queue[0].bytes
		close(r.queue[0].ready)
		r.queue = slices.Delete(r.queue, 0, 1)
	}
}

// expect keeps room for what the function will return, for which it may have to wait until that of others is
// on the journal's disk, or the attempt is to stop.
func (at *attempt) expect() {
	n := at.expected.bytes()
	if at.key.origin != "" || at.task.cmd != nil || n <= freeBytes || !at.takeRoom(n, at.ctx.Done()) {
		return
	}
	at.mu.Lock()
	defer at.mu.Unlock()
	at.hasty = time.AfterFunc(expectFor, func() {
		at.mu.Lock()
		defer at.mu.Unlock()
		if at.hasty != nil {
			at.expectLocked(0)
		}
	})
}

// takeRoom waits for room for a result, which it has until the journal has that on its disk. It returns false
// if over is closed before.
func (at *attempt) takeRoom(bytes int64, over <-chan struct{}) bool {
	if !at.agent.ends.take(over, bytes) {
		return false
	}
	at.mu.Lock()
	defer at.mu.Unlock()
	at.expects, at.ending = int(bytes), at.ending+int(bytes)
	return true
}

// expectLocked keeps as much room for the result that is to come, and for that which has, as they need.
func (at *attempt) expectLocked(bytes int) {
	at.expects = bytes
	at.countLocked()
}

// takeTurn waits until a result that may have so many bytes may be encoded and handed to the journal: so that
// there is room for it, few others are at the same time, and the disk is not far behind. It is called by the
// function's goroutine, and again without effect. When the agent stops it waits no more.
func (at *attempt) takeTurn(bytes int64) {
	if at.key.origin != "" || at.hasTurn || bytes <= freeBytes {
		return
	}
	over := at.closing()
	at.mu.Lock()
	has := at.expects > 0
	if at.hasty != nil {
		at.hasty.Stop()
		at.hasty = nil
	}
	at.mu.Unlock()
	if !has && !at.takeRoom(bytes, over) {
		return
	}
	select {
	case at.agent.handing <- struct{}{}:
		at.hasTurn = true
		at.awaitDisk(over)
	case <-over:
	}
}

// awaitDisk waits while the journal's disk is far behind.
func (at *attempt) awaitDisk(over <-chan struct{}) {
	for {
		j := at.agent.journal.current()
		if j == nil {
			return
		}
		eased := j.Busy()
		if eased == nil {
			return
		}
		select {
		case <-eased:
		case <-over:
			return
		}
	}
}

// endTurn lets another result be handed to the journal.
func (at *attempt) endTurn() {
	if at.hasTurn {
		<-at.agent.handing
	}
}

// closing returns what is closed when the agent stops, or lets a command go.
func (at *attempt) closing() <-chan struct{} {
	if at.scope == nil {
		return at.task.cmd.here.Done()
	}
	return at.scope.over.done()
}
