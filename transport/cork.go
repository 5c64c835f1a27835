package transport

import (
	"cmp"
	"crypto/tls"
	"net"
	"sync"
)

// maxRecord is the longest piece that TLS encrypts as one.
const maxRecord = 16 << 10

// corked is a TLS connection whose long writes reach the connection beneath in one
// piece: TLS by itself writes each of its records, and each costs a system call.
// Write is for one goroutine.
type corked struct {
	*tls.Conn
	beneath *cork
}

func (c *corked) Write(p []byte) (int, error) {
	if len(p) <= maxRecord {
		return c.Conn.Write(p)
	}
	c.beneath.hold()
	n, err := c.Conn.Write(p)
	return n, cmp.Or(err, c.beneath.release())
}

// cork is a connection that can hold back what is written to it.
type cork struct {
	net.Conn

	mu   sync.Mutex // also while it writes: nothing overtakes what was held back
	held *[]byte    // what is held back; nil: nothing is to be
}

// corkBuffers hold what gather writes at once, and what TLS adds to it.
var corkBuffers = sync.Pool{New: func() any { return newBuffer(gatherSize + 4<<10) }}

func (c *cork) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.held == nil {
		return c.Conn.Write(p)
	}
	*c.held = append(*c.held, p...)
	return len(p), nil
}

// hold holds back what is written from now on.
func (c *cork) hold() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.held = corkBuffers.Get().(*[]byte)
}

// release writes what was held back. The error is the connection's.
func (c *cork) release() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	held := c.held
	c.held = nil
	_, err := c.Conn.Write(*held)
	*held = (*held)[:0]
	corkBuffers.Put(held)
	return err
}
