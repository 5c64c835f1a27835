package transport

import (
	"slices"
	"sync"
	"sync/atomic"
)

// Budget is what all peers together can make this side hold in memory, and each of them, and
// each session. A program has one for all its sessions of a kind: see [Options]. There are
// several purses, so that none of what they are for can use up what another needs to go on: what
// was received and not taken (bodies, and frames, which may wait behind them), answers that were
// not sent, and exchanges that peers have opened. Of each an identity takes no more than it leaves
// to others: the first half, another one half of the rest.
//
// Its methods are safe for concurrent use.
type Budget struct {
	bodies, frames, answers, open pool
	ahead                         pool // for bodies that come before they are let in
	kept                          pool // by yamux, between bodies

	mu    sync.Mutex // guards peers
	peers map[Identity]*peerBudget
}

// NewBudget returns a budget of 256 MiB.
func NewBudget() *Budget {
	b := &Budget{peers: make(map[Identity]*peerBudget)}
	b.bodies.most, b.frames.most, b.answers.most, b.open.most = maxReceivedBodies, maxReceivedFrames, maxAnswers, maxOpen
	b.ahead.most, b.kept.most = maxAheadOfAll, maxKept
	return b
}

// IsAwaited reports whether anybody waits for what there is for all peers of room for what is sent to them.
func (b *Budget) IsAwaited() bool { return b.answers.waiting.Load() > 0 }

// peerBudget is the part of a budget that the sessions of one identity share.
type peerBudget struct {
	received, answers, open pool
	held                    [5]share // of bodies, frames, answers, open, ahead of all
	sessions                int      // guarded by the mutex of the budget
}

// sessionBudget is the part of a budget that a session has.
type sessionBudget struct {
	budget                        *Budget
	identity                      Identity
	peer                          *peerBudget
	bodies, frames, answers, open purse
	ahead                         int64 // is paid for bodies ahead; the bodies' mutex guards it
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
	s.bodies.init(maxBodies+MaxFrame, &p.received, &b.bodies, &p.held[0]) // bodies itself sees to less
	s.frames.init(maxWaiting, &p.received, &b.frames, &p.held[1])
	answers := int64(maxSessionAnswers)
	if id.Role == RoleAgent {
		answers = maxSessionCalls
	}
	s.answers.init(answers, &p.answers, &b.answers, &p.held[2])
	s.open.init(maxSessionOpen, &p.open, &b.open, &p.held[3])
	return s
}

// takeAhead takes what bodies ahead cost a session, until it leaves, or nothing if there is no room.
func (s *sessionBudget) takeAhead() bool {
	const price = 2 * maxAhead // what yamux keeps them in doubles
	if !s.budget.ahead.tryTake(price, &s.peer.held[4]) {
		return false
	}
	s.ahead = price
	return true
}

// leave is join undone, when the session holds nothing any more.
func (s *sessionBudget) leave() {
	s.budget.ahead.give(s.ahead, &s.peer.held[4])
	s.budget.mu.Lock()
	defer s.budget.mu.Unlock()
	if s.peer.sessions--; s.peer.sessions == 0 {
		delete(s.budget.peers, s.identity)
	}
}

// purse is the pools that a session draws on for one thing: its own, that of its identity, and
// that of all, of which the identity has a share.
type purse struct {
	own           pool
	identity, all *pool
	held          *share
}

func (p *purse) init(most int64, identity, all *pool, held *share) {
	p.own.most, p.identity, p.all, p.held = most, identity, all, held
}

// tryTake takes n bytes of each pool, or none of any if one of them has not so many left.
func (p *purse) tryTake(n int64) bool {
	switch {
	case !p.own.tryTake(n, nil):
		return false
	case !p.identity.tryTake(n, nil):
		p.own.give(n, nil)
		return false
	case !p.all.tryTake(n, p.held):
		p.own.give(n, nil)
		p.identity.give(n, nil)
		return false
	}
	return true
}

// take takes n bytes of each pool, waiting for them. A session waits first for itself, then for
// those of its identity, so that it is in nobody's way while it has but itself to wait for. It
// returns false, and has taken nothing, if done or over is closed before.
func (p *purse) take(done, over <-chan struct{}, n int64) bool {
	switch {
	case !p.own.take(done, over, n, nil):
		return false
	case !p.identity.take(done, over, n, nil):
		p.own.give(n, nil)
		return false
	case !p.all.take(done, over, n, p.held):
		p.own.give(n, nil)
		p.identity.give(n, nil)
		return false
	}
	return true
}

func (p *purse) give(n int64) {
	if n == 0 {
		return
	}
	p.own.give(n, nil)
	p.identity.give(n, nil)
	p.all.give(n, p.held)
}

// share is how many bytes of a pool one of many has.
type share struct {
	held    atomic.Int64
	skipped bool // while the queue of the pool is looked through, whose mutex guards it
}

// exceeds reports whether n bytes more are more than would be left. One that has nothing may
// always have something.
func (s *share) exceeds(n, left int64) bool {
	if s == nil {
		return false
	}
	held := s.held.Load()
	return held > 0 && held+n > left-n
}

func (s *share) add(n int64) {
	if s != nil {
		s.held.Add(n)
	}
}

// pool is a number of bytes to be held at a time. A single one that is larger than the pool has
// room when nothing else is held. Where it is shared, nobody has more of it than is left: so it is
// never used up by some, however many they are.
type pool struct {
	most    int64
	used    atomic.Int64
	waiting atomic.Int32 // as many as queue

	mu    sync.Mutex // guards queue; never held while blocked
	queue []*poolWaiter
}

// poolWaiter is one that waits for bytes of a pool. Those that came first go first, but for those
// whose share has grown too large.
type poolWaiter struct {
	n     int64
	of    *share        // nil: the pool is not shared
	ready chan struct{} // closed when it has them
}

// tryTake takes n bytes if there are so many, and nobody waits.
func (p *pool) tryTake(n int64, of *share) bool { return p.waiting.Load() == 0 && p.takeFree(n, of) }

func (p *pool) takeFree(n int64, of *share) bool {
	for {
		used := p.used.Load()
		if used > 0 && (used+n > p.most || of.exceeds(n, p.most-used)) {
			return false
		}
		if p.used.CompareAndSwap(used, used+n) {
			of.add(n)
			return true
		}
	}
}

// take takes n bytes, waiting for them. It returns false if done or over is closed before.
func (p *pool) take(done, over <-chan struct{}, n int64, of *share) bool {
	if p.tryTake(n, of) {
		return true
	}
	w := &poolWaiter{n: n, of: of, ready: make(chan struct{})}
	p.mu.Lock()
	p.queue = append(p.queue, w)
	p.waiting.Add(1)
	p.admitLocked() // what was given back before it stood there woke nobody
	p.mu.Unlock()
	select {
	case <-w.ready:
		return true
	case <-done:
	case <-over:
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if i := slices.Index(p.queue, w); i >= 0 {
		p.removeLocked(i)
		p.admitLocked() // those behind it may need less
		return false
	}
	return true // it came at the same time
}

// give gives n bytes back.
func (p *pool) give(n int64, of *share) {
	of.add(-n)
	p.used.Add(-n)
	if p.waiting.Load() == 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.admitLocked()
}

// admitLocked lets those go on for which there is room, in the order in which they came. Whose
// share is too large waits, and all of its that came later, in nobody else's way.
func (p *pool) admitLocked() {
	var skipped []*share
	for i := 0; i < len(p.queue); {
		w := p.queue[i]
		switch {
		case w.of != nil && w.of.skipped:
			i++
		case p.takeFree(w.n, w.of):
			close(w.ready)
			p.removeLocked(i)
		case w.of.exceeds(w.n, p.most-p.used.Load()):
			w.of.skipped = true
			skipped = append(skipped, w.of)
			i++
		default:
			i = len(p.queue)
		}
	}
	for _, s := range skipped {
		s.skipped = false
	}
}

func (p *pool) removeLocked(i int) {
	p.queue = slices.Delete(p.queue, i, i+1)
	p.waiting.Add(-1)
}
