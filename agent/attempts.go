package agent

import (
	"sync"
	"time"

	"github.com/harpcaller/harp/agent/journal"
	"github.com/harpcaller/harp/internal/wake"
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
type scope struct {
	work  sync.WaitGroup
	begin sync.Once   // of its grace
	grace *time.Timer // nil before that
	over  latch       // its grace is over: what it runs is to end
}

// drain lets attempts go on until they have ended by themselves or the scope's grace is over, which
// begins when this is called first. It returns false if gone is closed before.
func (st *scope) drain(own []*attempt, grace time.Duration, gone <-chan struct{}) bool {
	st.begin.Do(func() { st.grace = time.AfterFunc(grace, st.over.fire) })
	for _, at := range own {
		select {
		case <-at.returned.done():
		case <-st.over.done():
			return true
		case <-gone:
			return false
		}
	}
	return true
}

// attempts knows the attempts that run, those whose end is not journalled yet, and
// those that somebody is told of.
type attempts struct {
	most int
	owes func() bool // whether how something ended is to be told that would be lost with the process

	mu       sync.Mutex // guards what follows, and the owner of each attempt
	byKey    map[key]*attempt
	bytes    int                   // of the requests of those that run
	origins  map[string]int        // how many have come from whom: see key
	owed     map[*session]struct{} // were told to ask again later
	draining bool                  // nobody is let in any more
	known    bool                  // what goes on without an agent is in it
	astray   bool                  // something has left it since that was looked for, and goes on
	idle     latch                 // that, and nobody is there
}

func newAttempts(most int, owes func() bool) attempts {
	return attempts{most: most, owes: owes, byKey: map[key]*attempt{}, owed: map[*session]struct{}{}, origins: map[string]int{}}
}

// enter takes on an attempt for a session. It returns the one that is already
// there, or the reason why not now. As long as it is not known what runs, nothing begins of which only so much may run
// at a time.
func (a *attempts) enter(s *session, at *attempt) (known *attempt, reason string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch known := a.byKey[at.key]; {
	case known != nil && !known.hasLeft():
		return known, ""
	case s.closed || a.draining:
		return nil, wire.NotNowDraining
	case a.isFullLocked(at), at.most > 0 && (!a.known || a.runningLocked(at.info.Procedure) >= at.most):
		a.owed[s] = struct{}{}
		return nil, wire.NotNowBusy
	}
	if s.direct {
		at.owner = s
	}
	a.putLocked(at.key, at)
	return nil, ""
}

// isFullLocked reports whether there is no place for an attempt. A sixteenth of the places is for those who have
// none yet: so nobody can keep all others out.
func (a *attempts) isFullLocked(at *attempt) bool {
	most := a.most
	if a.origins[at.key.origin] > 0 {
		most -= most / 16
	}
	return len(a.byKey) >= most || a.bytes > 0 && a.bytes+at.size > maxCallBytes
}

// putLocked puts an attempt on the list, nil: takes what is there off it.
func (a *attempts) putLocked(k key, at *attempt) {
	if before := a.byKey[k]; before != nil {
		a.bytes -= before.size
		if a.origins[k.origin]--; a.origins[k.origin] == 0 {
			delete(a.origins, k.origin)
		}
	}
	if at == nil {
		delete(a.byKey, k)
		return
	}
	a.byKey[k] = at
	a.origins[k.origin]++
	a.bytes += at.size
}

// runningLocked is how many attempts of a procedure have not ended.
func (a *attempts) runningLocked(procedure string) (n int) {
	for _, at := range a.byKey {
		if at.info != nil && at.info.Procedure == procedure && !at.hasReturned() {
			n++
		}
	}
	return n
}

// runs reports whether anything runs that a dispatcher asked for.
func (a *attempts) runs() bool {
	return len(a.pick(func(at *attempt) bool { return at.key.origin == "" && at.begun.fired() && !at.hasReturned() })) > 0
}

// recover returns the attempt called k, which is put on the list if that has none
// and make one.
func (a *attempts) recover(k key, make func() *attempt) *attempt {
	a.mu.Lock()
	defer a.mu.Unlock()
	if at := a.byKey[k]; at != nil && !at.hasLeft() {
		return at
	}
	at := make()
	if at != nil {
		a.putLocked(k, at)
	}
	return at
}

// find returns the attempt called k; nil if there is none.
func (a *attempts) find(k key) *attempt {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.byKey[k]
}

// leave takes an attempt off the list. Where that makes room, sessions that were
// told to ask again later hear of it.
func (a *attempts) leave(at *attempt, room bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.byKey[at.key] == at {
		a.putLocked(at.key, nil)
	}
	a.lookIdleLocked()
	if room {
		a.vacateLocked()
	}
}

// drain lets nobody in any more, and returns what is closed when nobody is there and
// nothing is owed.
func (a *attempts) drain() <-chan struct{} {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.draining = true
	a.lookIdleLocked()
	return a.idle.done()
}

// seek notes that it is looked for what goes on without an agent.
func (a *attempts) seek() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.known, a.astray = false, false
}

// know notes that what goes on without an agent is on the list, but for what was let go since.
func (a *attempts) know() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.known = !a.astray
	a.lookIdleLocked()
	a.vacateLocked()
}

// letGo notes that something goes on that leaves the list: it is known again what runs when
// that was looked for.
func (a *attempts) letGo() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.known, a.astray = false, true
}

// lookIdle looks whether nothing is to be done any more.
func (a *attempts) lookIdle() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.lookIdleLocked()
}

func (a *attempts) lookIdleLocked() {
	if a.draining && a.known && len(a.byKey) == 0 && !a.owes() {
		a.idle.fire()
	}
}

// vacate lets sessions that were told to ask again later hear that they may.
func (a *attempts) vacate() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.vacateLocked()
}

func (a *attempts) vacateLocked() {
	if a.draining {
		return // they may not
	}
	for s := range a.owed {
		wake.Signal(s.vacancy)
	}
	clear(a.owed)
}

// owe promises a session to tell when there may be room.
func (a *attempts) owe(s *session) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !s.closed {
		a.owed[s] = struct{}{}
	}
}

// close lets no more attempts in for a session and returns those that end with it:
// a direct caller's own, or all that the dispatcher's sessions of this scope began.
func (a *attempts) close(s *session) []*attempt {
	a.mu.Lock()
	s.closed = true
	delete(a.owed, s)
	a.mu.Unlock()
	return a.pick(func(at *attempt) bool {
		return at.scope == s.scope && (s.direct && at.owner == s || !s.direct && at.key.origin == "")
	})
}

// held lists the attempts of dispatchers.
func (a *attempts) held() []*attempt {
	return a.pick(func(at *attempt) bool { return at.key.origin == "" })
}

// pick lists attempts.
func (a *attempts) pick(wanted func(*attempt) bool) []*attempt {
	a.mu.Lock()
	defer a.mu.Unlock()
	var list []*attempt
	for _, at := range a.byKey {
		if wanted(at) {
			list = append(list, at)
		}
	}
	return list
}
