package transport

import (
	"container/list"
	"context"
	"errors"
	"net"
	"sync"
	"time"
)

const (
	// waitersPerTurn is how many connections wait for each handshake under way, at
	// least.
	waitersPerTurn = 16
	// waitersFor is the time in which as many handshakes may be made as connections
	// wait, at least. More wait than will have their turn: to refuse an agent costs the
	// same sooner or later, most of it the agent's key for the handshake, and who is
	// refused at once comes again sooner. Half of them, which one address may have, are
	// 10,000 at the default rate: a fleet of as many that came back from one address was
	// refused nine times over where there was room for 1,500.
	waitersFor = 20 * time.Second
	// longestWait is when a connection that waits is refused all the same. A
	// dispatcher that is slower than it should be would else give turns only to those
	// whose 10 s are nearly over, and greet nobody.
	longestWait = 8 * time.Second
)

// admission decides when a connection may begin its handshake. Those that have
// not sent a byte are only kept, the newest of them; a handshake is what costs.
// Who has waited for long is refused, so that nobody waits behind others that have given
// up; and when very many wait, the others are refused at once.
type admission struct {
	rate  *limiter
	turns chan struct{} // as many slots as handshakes
	room  int           // connections that may wait or have their turn

	mu     sync.Mutex // guards what follows; never held while blocked
	silent *list.List // of *peekedConn, the oldest first
	hosts  map[string]*host
	conns  int // of all hosts
}

// host is an address with connections that wait or have their turn. It has at
// most half of all.
type host struct {
	turns chan struct{}
	conns int
}

// longAgo is a deadline that has passed.
var longAgo = time.Unix(1, 0)

func newAdmission(perSecond float64, limit int) *admission {
	return &admission{
		rate:   newLimiter(perSecond, limit),
		turns:  make(chan struct{}, limit),
		room:   limit + max(limit*waitersPerTurn, int(perSecond*waitersFor.Seconds())),
		silent: list.New(),
		hosts:  make(map[string]*host),
	}
}

// turn is the right to make a handshake. It is given back with end.
type turn struct {
	of   *admission
	addr string
	host *host
}

// admit waits for the turn of a connection. It returns the connection to go on
// with. The error is ctx's, that of reading the first byte, errSilent or
// errCrowded.
func (a *admission) admit(ctx context.Context, nc net.Conn) (net.Conn, *turn, error) {
	peeked, err := a.firstByte(ctx, nc)
	if err != nil {
		return nil, nil, err
	}
	t := &turn{of: a, addr: hostOf(nc)}
	if t.host, err = a.enter(t.addr); err != nil {
		return nil, nil, err
	}
	if err := t.await(ctx); err != nil {
		a.exit(t.addr, t.host)
		return nil, nil, err
	}
	return peeked, t, nil
}

// await is take for no longer than longestWait. The error is ctx's or errCrowded.
func (t *turn) await(ctx context.Context) error {
	waiting, cancel := context.WithTimeout(ctx, longestWait)
	defer cancel()
	err := t.take(waiting)
	if err != nil && ctx.Err() == nil {
		return errCrowded
	}
	return err
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
	if err := t.of.rate.wait(ctx); err != nil {
		t.giveBack()
		return err
	}
	return nil
}

func (t *turn) giveBack() {
	<-t.of.turns
	<-t.host.turns
}

func (t *turn) end() {
	t.giveBack()
	t.of.exit(t.addr, t.host)
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

// errCrowded is why a connection that would have to wait for long is refused.
var errCrowded = errors.New("too many handshakes under way")

// enter counts a connection. The error is errCrowded.
func (a *admission) enter(addr string) (*host, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	h := a.hosts[addr]
	if h == nil {
		h = &host{turns: make(chan struct{}, max(1, cap(a.turns)/2))}
	}
	if a.conns >= a.room || h.conns >= max(1, a.room/2) {
		return nil, errCrowded
	}
	a.hosts[addr] = h
	a.conns++
	h.conns++
	return h, nil
}

func (a *admission) exit(addr string, h *host) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.conns--
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

// errSilent is why a connection that has sent nothing was dropped.
var errSilent = errors.New("too many connections that send nothing")

// firstByte waits until the peer has sent something, and returns the connection
// with that still to be read.
func (a *admission) firstByte(ctx context.Context, nc net.Conn) (net.Conn, error) {
	if _, ok := nc.(Link); ok {
		return nc, nil
	}
	keepAlive(nc)
	c := &peekedConn{Conn: nc}
	stop := context.AfterFunc(ctx, func() { _ = nc.SetReadDeadline(longAgo) })
	defer stop()
	e := a.hush(c)
	err := c.peek()
	if !a.unhush(e) {
		return nil, errSilent
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
	if a.silent.Len() >= a.room {
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
