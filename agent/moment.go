package agent

import "sync"

// moment is one that comes once. The channel that tells of it is there only when
// somebody waits.
type moment struct {
	mu   sync.Mutex // guards what follows
	past bool
	told chan struct{} // closed when it comes; nil: nobody waits
}

// comes is called when it does.
func (m *moment) comes() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.told != nil && !m.past {
		close(m.told)
	}
	m.past = true
}

// isPast reports whether it has come.
func (m *moment) isPast() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.past
}

// wait returns when it has come.
func (m *moment) wait() {
	if !m.isPast() {
		<-m.come()
	}
}

// come returns what is closed when it has come.
func (m *moment) come() <-chan struct{} {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.told == nil {
		m.told = make(chan struct{})
		if m.past {
			close(m.told)
		}
	}
	return m.told
}
