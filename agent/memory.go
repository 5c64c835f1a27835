package agent

import (
	"sync"
	"sync/atomic"
)

// maxHeldBytes is about how many bytes of records the attempts of an agent have in memory together, whatever
// windows their dispatcher and callers state: beyond, each of them may have wire.MinWindow.
const maxHeldBytes = 64 << 20

// memory counts the bytes of records and ends that attempts have in memory.
type memory struct {
	most int64
	used atomic.Int64

	mu    sync.Mutex    // guards what follows
	eased chan struct{} // closed when there is room again; nil: nobody waits
}

// count notes that there are so many bytes more.
func (m *memory) count(bytes int) {
	if bytes == 0 {
		return
	}
	now := m.used.Add(int64(bytes))
	if now >= m.most || now-int64(bytes) < m.most {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.eased != nil {
		close(m.eased)
		m.eased = nil
	}
}

// full returns nil, or, if there are more than is good, what is closed when there are fewer.
func (m *memory) full() <-chan struct{} {
	if m.used.Load() < m.most {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.eased == nil {
		m.eased = make(chan struct{})
	}
	eased := m.eased
	if m.used.Load() < m.most { // and nobody may have closed it
		close(eased)
		m.eased = nil
	}
	return eased
}
