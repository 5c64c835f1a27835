package agent

import "sync"

// latch fires once. Its channel is allocated only when a goroutine waits for it.
type latch struct {
	mu   sync.Mutex // guards what follows
	past bool
	told chan struct{} // closed when it fires; nil: nobody waits
}

// fire fires it, if it has not.
func (l *latch) fire() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.told != nil && !l.past {
		close(l.told)
	}
	l.past = true
}

// fired reports whether it has.
func (l *latch) fired() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.past
}

// wait returns when it has fired.
func (l *latch) wait() {
	if !l.fired() {
		<-l.done()
	}
}

// done returns what is closed when it has fired.
func (l *latch) done() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.told == nil {
		l.told = make(chan struct{})
		if l.past {
			close(l.told)
		}
	}
	return l.told
}
