package transport

import (
	"container/list"
	"context"
	"errors"
	"net"
	"sync"

	"golang.org/x/time/rate"
)

// waitersPerTurn is how many connections wait for each handshake under way.
const waitersPerTurn = 16

// admission decides when a connection may begin its handshake. Those that have
// not sent a byte are only kept, the newest of them; a handshake is what costs.
type admission struct {
	rate  *rate.Limiter
	turns chan struct{} // as many slots as handshakes
	room  chan struct{} // as many slots as connections that have sent something
	share int           // turns one address may have

	mu     sync.Mutex // guards what follows; never held while blocked
	silent *list.List // of net.Conn, the oldest first
	hosts  map[string]*host
}

// host is an address with connections beyond the silent ones.
type host struct {
	turns chan struct{}
	conns int
}

func newAdmission(r rate.Limit, limit int) *admission {
	return &admission{
		rate:   rate.NewLimiter(r, limit),
		turns:  make(chan struct{}, limit),
		room:   make(chan struct{}, limit*waitersPerTurn),
		share:  max(1, limit/2),
		silent: list.New(),
		hosts:  make(map[string]*host),
	}
}

// wait returns when there is room for one more connection, or with ctx's error.
func (a *admission) wait(ctx context.Context) error {
	if err := acquire(ctx, a.room); err != nil {
		return err
	}
	<-a.room
	return nil
}

// turn is the right to make a handshake. It is given back with end.
type turn struct {
	of   *admission
	addr string
	host *host
}

// admit waits for the turn of a connection. It returns the connection to go on
// with. The error is ctx's, that of reading the first byte, or errCrowded.
func (a *admission) admit(ctx context.Context, nc net.Conn) (net.Conn, *turn, error) {
	peeked, err := a.firstByte(ctx, nc)
	if err != nil {
		return nil, nil, err
	}
	if err := acquire(ctx, a.room); err != nil {
		return nil, nil, err
	}
	t := &turn{of: a, addr: hostOf(nc)}
	t.host = a.enter(t.addr)
	if err := t.take(ctx); err != nil {
		t.leave()
		return nil, nil, err
	}
	return peeked, t, nil
}

// take takes a slot of the host's, one of all, and one of the second's.
func (t *turn) take(ctx context.Context) error {
	if err := acquire(ctx, t.host.turns); err != nil {
		return err
	}
	if err := acquire(ctx, t.of.turns); err != nil {
		<-t.host.turns
		return err
	}
	if err := t.of.rate.Wait(ctx); err != nil {
		t.giveBack()
		return err
	}
	return nil
}

func (t *turn) giveBack() {
	<-t.of.turns
	<-t.host.turns
}

func (t *turn) leave() {
	t.of.exit(t.addr, t.host)
	<-t.of.room
}

func (t *turn) end() {
	t.giveBack()
	t.leave()
}

// acquire takes a slot. The error is ctx's.
func acquire(ctx context.Context, slots chan struct{}) error {
	select {
	case slots <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (a *admission) enter(addr string) *host {
	a.mu.Lock()
	defer a.mu.Unlock()
	h := a.hosts[addr]
	if h == nil {
		h = &host{turns: make(chan struct{}, a.share)}
		a.hosts[addr] = h
	}
	h.conns++
	return h
}

func (a *admission) exit(addr string, h *host) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if h.conns--; h.conns == 0 {
		delete(a.hosts, addr)
	}
}

// hostOf returns the address of the peer without its port.
func hostOf(nc net.Conn) string {
	addr := nc.RemoteAddr().String()
	if name, _, err := net.SplitHostPort(addr); err == nil {
		return name
	}
	return addr
}

// errCrowded is why a connection that has sent nothing was dropped.
var errCrowded = errors.New("too many connections that send nothing")

// firstByte waits until the peer has sent something, and returns the connection
// with that still to be read.
func (a *admission) firstByte(ctx context.Context, nc net.Conn) (net.Conn, error) {
	if _, ok := nc.(*memoryConn); ok {
		return nc, nil
	}
	keepAlive(nc)
	c := &peekedConn{Conn: nc}
	stop := context.AfterFunc(ctx, func() { _ = nc.SetReadDeadline(longAgo) })
	defer stop()
	e := a.hush(c)
	err := c.peek()
	if !a.unhush(e) {
		return nil, errCrowded
	}
	if err != nil {
		return nil, err
	}
	return c, nil
}

// hush notes a silent connection and drops the oldest if there are too many.
func (a *admission) hush(c *peekedConn) *list.Element {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.silent.Len() >= cap(a.room) {
		oldest := a.silent.Remove(a.silent.Front()).(*peekedConn)
		oldest.dropped = true
		_ = oldest.SetReadDeadline(longAgo) // whoever reads it closes it
	}
	return a.silent.PushBack(c)
}

// unhush forgets a silent connection. It reports whether it was still kept.
func (a *admission) unhush(e *list.Element) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if e.Value.(*peekedConn).dropped {
		return false
	}
	a.silent.Remove(e)
	return true
}

// peekedConn is a connection of which the first byte was read.
type peekedConn struct {
	net.Conn
	first   [1]byte
	peeked  bool // first is still to be returned
	dropped bool // guarded by the admission
}

// peek waits for the first byte.
func (c *peekedConn) peek() error {
	_, err := c.Conn.Read(c.first[:])
	c.peeked = err == nil
	return err
}

// Read returns the first byte and then the rest.
func (c *peekedConn) Read(p []byte) (int, error) {
	if c.peeked && len(p) > 0 {
		c.peeked = false
		p[0] = c.first[0]
		return 1, nil
	}
	return c.Conn.Read(p)
}
