package agent

import (
	"sync"

	"github.com/harpcaller/harp/agent/journal"
	"github.com/harpcaller/harp/internal/wire"
)

// key names an attempt. origin is empty for dispatchers; a direct caller, whose
// job ids are its own affair, has its identity there.
type key struct {
	origin string
	job    string
	number int64
}

// journal is the key in the journal.
func (k key) journal() journal.Key { return journal.Key{Job: k.job, Attempt: k.number} }

// scope is one Connect or Serve: the functions that it started end with it.
type scope struct{ work sync.WaitGroup }

// attempts knows the attempts that run, those whose end is not journalled yet, and
// those that somebody is told of.
type attempts struct {
	most int
	owes func() bool // whether how something ended is to be told that would be lost with the process

	mu       sync.Mutex // guards what follows, and the owner of each attempt
	byKey    map[key]*attempt
	owed     map[*session]struct{} // were told to ask again later
	draining bool                  // nobody is let in any more
	known    bool                  // what goes on without an agent is in it
	astray   bool                  // something has left it since that was looked for, and goes on
	idle     latch                 // that, and nobody is there
}

func newAttempts(most int, owes func() bool) attempts {
	return attempts{most: most, owes: owes, byKey: map[key]*attempt{}, owed: map[*session]struct{}{}}
}

// enter takes on an attempt for a session. It returns the one that is already
// there, or the reason why not now.
func (r *attempts) enter(s *session, at *attempt) (known *attempt, reason string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch known := r.byKey[at.key]; {
	case known != nil && !known.hasLeft():
		return known, ""
	case s.closed || r.draining:
		return nil, wire.NotNowDraining
	case len(r.byKey) >= r.most || at.most > 0 && r.runningLocked(at.info.Procedure) >= at.most:
		r.owed[s] = struct{}{}
		return nil, wire.NotNowBusy
	}
	if s.direct {
		at.owner = s
	}
	r.byKey[at.key] = at
	return nil, ""
}

// runningLocked is how many attempts of a procedure have not ended.
func (r *attempts) runningLocked(procedure string) (n int) {
	for _, at := range r.byKey {
		if at.info != nil && at.info.Procedure == procedure && !at.hasReturned() {
			n++
		}
	}
	return n
}

// recover returns the attempt called k, which is put on the list if that has none
// and make one.
func (r *attempts) recover(k key, make func() *attempt) *attempt {
	r.mu.Lock()
	defer r.mu.Unlock()
	if at := r.byKey[k]; at != nil && !at.hasLeft() {
		return at
	}
	at := make()
	if at != nil {
		r.byKey[k] = at
	}
	return at
}

// find returns the attempt called k; nil if there is none.
func (r *attempts) find(k key) *attempt {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.byKey[k]
}

// leave takes an attempt off the list. Where that makes room, sessions that were
// told to ask again later hear of it.
func (r *attempts) leave(at *attempt, room bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.byKey[at.key] == at {
		delete(r.byKey, at.key)
	}
	r.lookIdleLocked()
	if room {
		r.vacateLocked()
	}
}

// drain lets nobody in any more, and returns what is closed when nobody is there and
// nothing is owed.
func (r *attempts) drain() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.draining = true
	r.lookIdleLocked()
	return r.idle.done()
}

// seek notes that it is looked for what goes on without an agent.
func (r *attempts) seek() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.known, r.astray = false, false
}

// know notes that what goes on without an agent is on the list, but for what was let go since.
func (r *attempts) know() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.known = !r.astray
	r.lookIdleLocked()
}

// letGo notes that something goes on that leaves the list: it is known again what runs when
// that was looked for.
func (r *attempts) letGo() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.known, r.astray = false, true
}

// lookIdle looks whether nothing is to be done any more.
func (r *attempts) lookIdle() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lookIdleLocked()
}

func (r *attempts) lookIdleLocked() {
	if r.draining && r.known && len(r.byKey) == 0 && !r.owes() {
		r.idle.fire()
	}
}

// vacate lets sessions that were told to ask again later hear that they may.
func (r *attempts) vacate() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.vacateLocked()
}

func (r *attempts) vacateLocked() {
	if r.draining {
		return // they may not
	}
	for s := range r.owed {
		signal(s.vacancy)
	}
	clear(r.owed)
}

// owe promises a session to tell when there may be room.
func (r *attempts) owe(s *session) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !s.closed {
		r.owed[s] = struct{}{}
	}
}

// close lets no more attempts in for a session and returns those that end with it:
// a direct caller's own, or all that the dispatcher's sessions of this scope began.
func (r *attempts) close(s *session) []*attempt {
	r.mu.Lock()
	s.closed = true
	delete(r.owed, s)
	r.mu.Unlock()
	return r.pick(func(at *attempt) bool {
		return at.scope == s.scope && (s.direct && at.owner == s || !s.direct && at.key.origin == "")
	})
}

// held lists the attempts of dispatchers.
func (r *attempts) held() []*attempt {
	return r.pick(func(at *attempt) bool { return at.key.origin == "" })
}

// pick lists attempts.
func (r *attempts) pick(wanted func(*attempt) bool) []*attempt {
	r.mu.Lock()
	defer r.mu.Unlock()
	var list []*attempt
	for _, at := range r.byKey {
		if wanted(at) {
			list = append(list, at)
		}
	}
	return list
}

// signal wakes who waits on a channel of one slot.
func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
