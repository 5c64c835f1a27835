package transport

import (
	"sync"
	"sync/atomic"
)

// Budget is what all peers together can make this side hold in memory, and each of them, and
// each session. A program has one for all its sessions of a kind: see [Options]. There are
// several purses, so that none of what they are for can use up what another needs to go on: what
// was received and not taken (bodies, and frames, which may wait behind them), answers that were
// not sent, and exchanges that peers have opened.
//
// Its methods are safe for concurrent use.
type Budget struct {
	bodies, frames, answers, open pool

	mu    sync.Mutex // guards peers
	peers map[Identity]*peerBudget
}

// NewBudget returns a budget of 256 MiB.
func NewBudget() *Budget {
	b := &Budget{peers: make(map[Identity]*peerBudget)}
	b.bodies.most, b.frames.most, b.answers.most, b.open.most = maxReceivedBodies, maxReceivedFrames, maxAnswers, maxOpen
	return b
}

// peerBudget is the part of a budget that the sessions of one identity share.
type peerBudget struct {
	received, answers, open pool
	sessions                int // guarded by the mutex of the budget
}

// sessionBudget is the part of a budget that a session has.
type sessionBudget struct {
	budget                        *Budget
	identity                      Identity
	peer                          *peerBudget
	bodies, frames, answers, open purse
}

// join returns the part of a new session.
func (b *Budget) join(id Identity) *sessionBudget {
	b.mu.Lock()
	defer b.mu.Unlock()
	p := b.peers[id]
	if p == nil {
		p = &peerBudget{}
		p.received.most, p.answers.most, p.open.most = maxIdentityReceived, maxIdentityAnswers, maxIdentityOpen
		b.peers[id] = p
	}
	p.sessions++
	s := &sessionBudget{budget: b, identity: id, peer: p}
	s.bodies.init(maxBodies+MaxFrame, &p.received, &b.bodies) // bodies itself sees to less
	s.frames.init(maxWaiting, &p.received, &b.frames)
	s.answers.init(maxSessionAnswers, &p.answers, &b.answers)
	s.open.init(maxSessionOpen, &p.open, &b.open)
	return s
}

// leave is join undone, when the session holds nothing any more.
func (s *sessionBudget) leave() {
	s.budget.mu.Lock()
	defer s.budget.mu.Unlock()
	if s.peer.sessions--; s.peer.sessions == 0 {
		delete(s.budget.peers, s.identity)
	}
}

// purse is the pools that a session draws on for one thing: its own, that of its identity, and
// that of all.
type purse struct {
	own    pool
	levels [3]*pool
}

func (p *purse) init(most int64, identity, all *pool) {
	p.own.most = most
	p.levels = [3]*pool{&p.own, identity, all}
}

// tryTake takes n bytes of each pool, or none of any if one of them has not so many left.
func (p *purse) tryTake(n int64) bool {
	for i, l := range p.levels {
		if !l.tryTake(n) {
			for _, taken := range p.levels[:i] {
				taken.give(n)
			}
			return false
		}
	}
	return true
}

// take takes n bytes of each pool, waiting for them. A session waits first for itself, then for
// those of its identity, so that it is in nobody's way while it has but itself to wait for. It
// returns false, and has taken nothing, if done is closed before.
func (p *purse) take(done <-chan struct{}, n int64) bool {
	for i, l := range p.levels {
		if !l.take(done, n) {
			for _, taken := range p.levels[:i] {
				taken.give(n)
			}
			return false
		}
	}
	return true
}

func (p *purse) give(n int64) {
	if n == 0 {
		return
	}
	for _, l := range p.levels {
		l.give(n)
	}
}

// pool is a number of bytes to be held at a time. A single one that is larger than the pool has
// room when nothing else is held.
type pool struct {
	most    int64
	used    atomic.Int64
	waiting atomic.Int32 // as many as queue

	mu    sync.Mutex // guards queue; never held while blocked
	queue []*poolWaiter
}

// poolWaiter is one that waits for bytes of a pool. Those that came first go first.
type poolWaiter struct {
	n     int64
	ready chan struct{} // closed when it has them
}

// tryTake takes n bytes if there are so many, and nobody waits.
func (p *pool) tryTake(n int64) bool { return p.waiting.Load() == 0 && p.takeFree(n) }

func (p *pool) takeFree(n int64) bool {
	for {
		used := p.used.Load()
		if used > 0 && used+n > p.most {
			return false
		}
		if p.used.CompareAndSwap(used, used+n) {
			return true
		}
	}
}

// take takes n bytes, waiting for them. It returns false if done is closed before.
func (p *pool) take(done <-chan struct{}, n int64) bool {
	if p.tryTake(n) {
		return true
	}
	w := &poolWaiter{n: n, ready: make(chan struct{})}
	p.mu.Lock()
	p.queue = append(p.queue, w)
	p.waiting.Add(1)
	p.admitLocked() // what was given back before it stood there woke nobody
	p.mu.Unlock()
	select {
	case <-w.ready:
		return true
	case <-done:
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, q := range p.queue {
		if q == w {
			p.queue = append(p.queue[:i], p.queue[i+1:]...)
			p.waiting.Add(-1)
			p.admitLocked() // those behind it may need less
			return false
		}
	}
	return true // it came at the same time
}

// give gives n bytes back.
func (p *pool) give(n int64) {
	p.used.Add(-n)
	if p.waiting.Load() == 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.admitLocked()
}

// admitLocked lets those go on for which there is room, in the order in which they came.
func (p *pool) admitLocked() {
	for len(p.queue) > 0 && p.takeFree(p.queue[0].n) {
		close(p.queue[0].ready)
		p.queue[0] = nil
		p.queue = p.queue[1:]
		p.waiting.Add(-1)
	}
}
