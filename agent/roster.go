package agent

import (
	"sync"

	"github.com/harpcaller/harp/internal/wire"
)

// key names an attempt. origin is empty for dispatchers; a direct caller, whose
// job ids are its own affair, has its identity there.
type key struct {
	origin string
	job    string
	number int64
}

// roster knows the attempts that the agent has not forgotten.
type roster struct {
	most int

	mu       sync.Mutex // guards what follows, and the owner of each attempt
	attempts map[key]*attempt
	owed     map[*session]struct{} // were told that the agent is busy
}

func newRoster(most int) roster {
	return roster{most: most, attempts: map[key]*attempt{}, owed: map[*session]struct{}{}}
}

// enter takes on an attempt for a session. It returns the one that is already
// there, or the reason why not now.
func (r *roster) enter(s *session, at *attempt) (known *attempt, reason string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch known := r.attempts[at.key]; {
	case known != nil:
		known.owner = s
		return known, ""
	case s.closed:
		return nil, wire.NotNowDraining
	case len(r.attempts) >= r.most:
		r.owed[s] = struct{}{}
		return nil, wire.NotNowBusy
	}
	at.owner = s
	r.attempts[at.key] = at
	return nil, ""
}

// adopt returns the attempt called k, which is the session's from now on; nil if
// there is none.
func (r *roster) adopt(s *session, k key) *attempt {
	r.mu.Lock()
	defer r.mu.Unlock()
	at := r.attempts[k]
	if at != nil {
		at.owner = s
	}
	return at
}

// find returns the attempt called k; nil if there is none.
func (r *roster) find(k key) *attempt {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.attempts[k]
}

// leave forgets an attempt. Sessions that were told that the agent is busy hear
// that it is not.
func (r *roster) leave(at *attempt) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.attempts[at.key] == at {
		delete(r.attempts, at.key)
	}
	for s := range r.owed {
		signal(s.vacancy)
	}
	clear(r.owed)
}

// close lets no more attempts in for a session and returns those it has.
func (r *roster) close(s *session) []*attempt {
	r.mu.Lock()
	defer r.mu.Unlock()
	s.closed = true
	delete(r.owed, s)
	var own []*attempt
	for _, at := range r.attempts {
		if at.owner == s {
			own = append(own, at)
		}
	}
	return own
}

// disown is close for a session that is gone: its attempts are nobody's.
func (r *roster) disown(s *session) []*attempt {
	own := r.close(s)
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, at := range own {
		if at.owner == s {
			at.owner = nil
		}
	}
	return own
}

// held lists the attempts of dispatchers that are nobody's.
func (r *roster) held() []*attempt {
	r.mu.Lock()
	defer r.mu.Unlock()
	var list []*attempt
	for k, at := range r.attempts {
		if k.origin == "" && at.owner == nil {
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
