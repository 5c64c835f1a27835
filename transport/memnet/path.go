package memnet

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/harpcaller/harp/transport"
)

// Path is what lies between two identities of a [Network], in one direction. It is
// straight until somebody blocks it or makes it slow. What is sent on it is never
// reordered and never dropped: as with TCP, it arrives when it can, unless the
// connection has ended at the receiver by then.
type Path struct {
	now atomic.Pointer[conditions] // nil: straight

	mu   sync.Mutex // guards held, and every change of now
	held []func()   // what happens when it is open again
}

// conditions is the state of a path that is not straight.
type conditions struct {
	blocked bool
	delay   time.Duration
	over    chan struct{} // closed when the state has changed
}

// route is a path between two identities.
type route struct{ from, to transport.Identity }

// Path returns the path on which what from sends reaches to.
func (n *Network) Path(from, to transport.Identity) *Path {
	n.mu.Lock()
	defer n.mu.Unlock()
	w := route{from, to}
	if n.paths[w] == nil {
		n.paths[w] = &Path{}
	}
	return n.paths[w]
}

// errReset is why a connection ended that was reset.
var errReset = errors.New("connection reset")

// Reset ends the connections between two identities. Both ends notice at once,
// whatever the paths are like.
func (n *Network) Reset(a, b transport.Identity) {
	for _, l := range n.between(a, b) {
		l.endBoth(errReset)
	}
}

// between returns the connections between two identities, oldest first.
func (n *Network) between(a, b transport.Identity) []*link {
	n.mu.Lock()
	defer n.mu.Unlock()
	var found []*link
	for l := range n.links {
		if l.ids == [2]transport.Identity{a, b} || l.ids == [2]transport.Identity{b, a} {
			found = append(found, l)
		}
	}
	slices.SortFunc(found, func(k, l *link) int { return cmp.Compare(k.serial, l.serial) })
	return found
}

// Block holds what is sent from now on, and what has not been received, until Open.
// Nobody is told: whoever waits for an answer waits.
func (r *Path) Block() { r.changeConditions(func(w *conditions) { w.blocked = true }) }

// Open undoes Block: what was held arrives.
func (r *Path) Open() { r.changeConditions(func(w *conditions) { w.blocked = false }) }

// Delay makes what is sent from now on arrive so much later; zero: at once.
func (r *Path) Delay(d time.Duration) {
	r.changeConditions(func(w *conditions) { w.delay = max(d, 0) })
}

func (r *Path) changeConditions(how func(*conditions)) {
	r.mu.Lock()
	old := r.now.Load()
	next := conditions{over: make(chan struct{})}
	if old != nil {
		next.blocked, next.delay = old.blocked, old.delay
	}
	how(&next)
	if next.blocked || next.delay > 0 {
		r.now.Store(&next)
	} else {
		r.now.Store(nil)
	}
	var released []func()
	if !next.blocked {
		released, r.held = r.held, nil
	}
	r.mu.Unlock()
	if old != nil {
		close(old.over)
	}
	for _, f := range released {
		f()
	}
}

// blocked returns nil if what is sent arrives, else what is closed when that may
// have changed.
func (r *Path) blocked() <-chan struct{} {
	if w := r.now.Load(); w != nil && w.blocked {
		return w.over
	}
	return nil
}

// delay returns how long what is sent now takes.
func (r *Path) delay() time.Duration {
	if w := r.now.Load(); w != nil {
		return w.delay
	}
	return 0
}

// carry makes f happen at the other end: now, later, or when the path is open again.
func (r *Path) carry(f func()) {
	if d := r.delay(); d > 0 {
		time.AfterFunc(d, func() { r.deliver(f) })
		return
	}
	r.deliver(f)
}

// deliver calls f unless the path is blocked, and else when it is not.
func (r *Path) deliver(f func()) {
	r.mu.Lock()
	blocked := r.blocked() != nil
	if blocked {
		r.held = append(r.held, f)
	}
	r.mu.Unlock()
	if !blocked {
		f()
	}
}

// awaitPassage waits until something sent now would have arrived. The error is ctx's.
func (r *Path) awaitPassage(ctx context.Context) error {
	if d := r.delay(); d > 0 {
		timer := time.NewTimer(d)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	for over := r.blocked(); over != nil; over = r.blocked() {
		select {
		case <-over:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}
