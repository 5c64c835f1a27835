package transport

import (
	"slices"
	"sync"
	"time"

	"github.com/harpcaller/harp/internal/workers"
)

const (
	// maxIdle is how many idle lanes are kept.
	maxIdle = 16
	// idleTime is how long a lane is idle before it is closed or shrunk.
	idleTime = 10 * time.Second
)

// pool knows the lanes of a session. On the opener's side the idle ones wait in
// it to be used again; on the acceptor's it only gives back their memory.
type pool struct {
	opener  bool
	max     int
	workers workers.Pool // of the acceptor: what handlers run in

	mu    sync.Mutex // guards what follows and the idle fields of lanes
	lanes map[*lane]struct{}
	count int     // lanes, with those about to be opened
	idle  []*lane // the opener's, longest idle first
	timer *time.Timer
	shut  bool
}

// get returns the lane idle for the shortest time, nil if there is none.
func (p *pool) get() *lane {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := len(p.idle) - 1
	if n < 0 {
		return nil
	}
	l := p.idle[n]
	p.idle[n] = nil
	p.idle = p.idle[:n]
	l.idle = time.Time{}
	return l
}

// reserve counts a lane about to be added, if there may be one more.
func (p *pool) reserve() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.count >= p.max {
		return false
	}
	p.count++
	return true
}

// cancel takes back a reservation.
func (p *pool) cancel() {
	p.mu.Lock()
	p.count--
	p.mu.Unlock()
}

// add adds a lane for which there is a reservation.
func (p *pool) add(l *lane) {
	p.mu.Lock()
	if p.lanes == nil {
		p.lanes = make(map[*lane]struct{})
	}
	p.lanes[l] = struct{}{}
	p.mu.Unlock()
}

// remove forgets a lane, idle or busy.
func (p *pool) remove(l *lane) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, ok := p.lanes[l]; ok {
		delete(p.lanes, l)
		p.count--
	}
	if i := slices.Index(p.idle, l); i >= 0 {
		p.idle = slices.Delete(p.idle, i, i+1)
	}
}

// put makes a lane idle.
func (p *pool) put(l *lane) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, ok := p.lanes[l]; !ok {
		return
	}
	l.idle, l.shrunk = time.Now(), false
	if p.opener {
		p.idle = append(p.idle, l)
	}
	p.armLocked(idleTime)
}

// busy makes an idle lane of the acceptor busy.
func (p *pool) busy(l *lane) {
	p.mu.Lock()
	l.idle = time.Time{}
	p.mu.Unlock()
}

// armLocked lets tidy run after d, unless it is to run anyway.
func (p *pool) armLocked(d time.Duration) {
	if p.timer == nil && !p.shut {
		p.timer = time.AfterFunc(d, p.tidy)
	}
}

// tidy closes what is idle for long and beyond maxIdle, and shrinks the others.
func (p *pool) tidy() {
	now := time.Now()
	p.mu.Lock()
	p.timer = nil
	surplus := p.surplusLocked(now)
	idle := p.shrinkLocked(now)
	if idle {
		p.armLocked(idleTime)
	}
	p.mu.Unlock()
	p.workers.ReleaseIdle()
	for _, l := range surplus {
		l.close()
	}
}

// surplusLocked takes the lanes to close out of the idle ones.
func (p *pool) surplusLocked(now time.Time) []*lane {
	n := 0
	for n < len(p.idle)-maxIdle && now.Sub(p.idle[n].idle) >= idleTime {
		n++
	}
	surplus := append([]*lane(nil), p.idle[:n]...)
	m := copy(p.idle, p.idle[n:])
	clear(p.idle[m:])
	p.idle = p.idle[:m]
	for _, l := range surplus {
		l.idle = time.Time{}
	}
	return surplus
}

// shrinkLocked shrinks what is idle for long, once. It reports whether lanes are
// left that may have to be tidied later.
func (p *pool) shrinkLocked(now time.Time) (later bool) {
	for l := range p.lanes {
		switch {
		case l.idle.IsZero() || l.shrunk:
		case now.Sub(l.idle) < idleTime:
			later = true
		default:
			l.shrunk = true
			l.stream.shrink()
		}
	}
	return later
}

// all returns every lane.
func (p *pool) all() []*lane {
	p.mu.Lock()
	defer p.mu.Unlock()
	lanes := make([]*lane, 0, len(p.lanes))
	for l := range p.lanes {
		lanes = append(lanes, l)
	}
	return lanes
}

// close stops tidying.
func (p *pool) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.shut = true
	if p.timer != nil {
		p.timer.Stop()
		p.timer = nil
	}
}
