package supervisor

import (
	"bytes"
	"sync"
)

// memory is a spool of what is supervised inside this process.
type memory struct {
	max int64

	mu      sync.Mutex // guards what follows
	base    int64      // number of the first record
	records []Record
	seen    int // how many of them
	bytes   int64
}

func newMemory(limit int64) *memory { return &memory{max: limit} }

func (m *memory) add(r *Record) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	own := *r
	own.Value = bytes.Clone(r.Value)
	m.records = append(m.records, own)
	m.bytes += recordSize(r)
	return 0
}

func (m *memory) flush() int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.seen = len(m.records)
	return 0
}

func (m *memory) count() int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.base + int64(m.seen)
}

func (m *memory) full(size int64) (full, passes bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.bytes > 0 && m.bytes+size > m.max, true
}

func (m *memory) keep(next int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := int(min(max(next-m.base, 0), int64(m.seen)))
	for i := range n {
		m.bytes -= recordSize(&m.records[i])
		m.records[i] = Record{}
	}
	m.base += int64(n)
	m.seen -= n
	m.records = m.records[n:]
	if len(m.records) == 0 {
		m.records = nil
	}
}

func (m *memory) cursor(from int64) cursor { return &memoryCursor{m, from} }

func (m *memory) note(byte, any, []byte) error { return nil }
func (m *memory) noteEnd(End) error            { return nil }
func (m *memory) sync() error                  { return nil }
func (m *memory) Close() error                 { return nil }

type memoryCursor struct {
	m    *memory
	next int64
}

func (c *memoryCursor) read(to int64, fn func(int64, Record) error) error {
	for c.next < to {
		r, err := c.m.get(c.next)
		if err == nil {
			err = fn(c.next, r)
		}
		if err != nil {
			return err
		}
		c.next++
	}
	return nil
}

// get returns a record that is there, or errKept.
func (m *memory) get(n int64) (Record, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if n < m.base {
		return Record{}, &KeptError{m.base}
	}
	return m.records[n-m.base], nil
}
