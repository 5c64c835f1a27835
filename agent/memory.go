package agent

import (
	"sync"
	"sync/atomic"
)

// memory counts the bytes of records and ends that attempts have in memory.
type memory struct {
	most int64
	used atomic.Int64

	mu    sync.Mutex    // guards what follows
	eased chan struct{} // closed when there is room again; nil: nobody waits

	directly sync.Mutex       // guards what follows
	direct   int64            // bytes for direct callers
	byCaller map[string]int64 // of those
}

// count notes that there are so many bytes more for a caller; "": the dispatcher.
func (m *memory) count(caller string, bytes int) {
	if bytes == 0 {
		return
	}
	if caller != "" {
		m.countDirect(caller, int64(bytes))
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

func (m *memory) countDirect(caller string, bytes int64) {
	m.directly.Lock()
	defer m.directly.Unlock()
	if m.byCaller == nil {
		m.byCaller = map[string]int64{}
	}
	m.direct += bytes
	if m.byCaller[caller] += bytes; m.byCaller[caller] == 0 {
		delete(m.byCaller, caller)
	}
}

// isOver reports whether a caller would have more in memory than is left.
func (m *memory) isOver(caller string, bytes int) bool {
	if caller == "" || bytes <= freeBytes {
		return false
	}
	m.directly.Lock()
	defer m.directly.Unlock()
	held, more := m.byCaller[caller], int64(bytes)
	return held > 0 && held+more > maxDirectBytes-m.direct-more
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
