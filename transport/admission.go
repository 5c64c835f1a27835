package transport

import (
	"container/list"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/netip"
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
	// refused at once comes again sooner. Half of them, which one network may have, are
	// 10,000 at the default rate: a fleet of as many that came back from one address was
	// refused nine times over where there was room for 1,500.
	waitersFor = 20 * time.Second
	// longestWait is when a connection that waits is refused all the same. A
	// dispatcher that is slower than it should be would else give turns only to those
	// whose 10 s are nearly over, and greet nobody.
	longestWait = 8 * time.Second
	// longestTurn is for a handshake of which the peer's first message is there. What is
	// left is one answer, its proof and the way there and back.
	longestTurn = 2 * time.Second
)

// admission decides when a connection may begin its handshake, which is what costs.
// Those whose first message is not there yet are only kept, the newest of them. Addresses
// from which a good certificate came before have turns of their own, so that strangers
// can only crowd out strangers.
type admission struct {
	strangers, greeted *gate

	mu      sync.Mutex   // guards what follows; never held while blocked
	silent  [2]list.List // of *silence, the oldest first: those of strangers, and those of good addresses
	addrs   map[string]struct{}
	maxIdle int // silent ones that are kept
}

// gate lets connections through to their handshakes. Who has waited for long is refused,
// so that nobody waits behind others that have given up; and when very many wait, the others
// are refused at once. One network has at most half of everything.
type gate struct {
	rate  *limiter
	turns chan struct{} // as many slots as handshakes
	room  int           // connections that may wait or have their turn

	mu       sync.Mutex // guards what follows; never held while blocked
	networks map[string]*network
	conns    int // of all networks
}

// network is where neighbours connect from: they wait or have their turn.
type network struct {
	turns chan struct{}
	conns int
}

// longAgo is a deadline that has passed.
var longAgo = time.Unix(1, 0)

func newAdmission(perSecond float64, limit int) *admission {
	a := &admission{
		strangers: newGate(perSecond, limit/2),
		greeted:   newGate(perSecond, limit/2),
		addrs:     make(map[string]struct{}),
	}
	a.maxIdle = a.strangers.room
	return a
}

func newGate(perSecond float64, limit int) *gate {
	limit = max(limit, 1)
	return &gate{
		rate:     newLimiter(perSecond, limit),
		turns:    make(chan struct{}, limit),
		room:     limit + max(limit*waitersPerTurn, int(perSecond*waitersFor.Seconds())),
		networks: make(map[string]*network),
	}
}

// turn is the right to make a handshake. It is given back with releaseSlots.
type turn struct {
	of      *gate
	name    string
	network *network
}

// admitConn waits for the turn of a connection. It returns the connection to go on
// with. The error is ctx's, that of reading the first message, errNoHello, errSilent or
// errCrowded.
func (a *admission) admitConn(ctx context.Context, nc net.Conn) (net.Conn, *turn, error) {
	nc, err := a.awaitHello(ctx, nc)
	if err != nil {
		return nil, nil, err
	}
	addr := hostOf(nc)
	t := &turn{of: a.gateOf(addr), name: networkOf(addr)}
	if t.network, err = t.of.countConn(t.name); err != nil {
		return nil, nil, err
	}
	if err := t.awaitSlots(ctx); err != nil {
		t.of.exit(t.name, t.network)
		return nil, nil, err
	}
	return nc, t, nil
}

// makeRoom sees to it that connections leave files to the rest of the program. It reports whether there is one for nc.
func (a *admission) makeRoom(nc net.Conn) bool {
	used := filesInUse(nc)
	if used > silentFiles {
		a.mu.Lock()
		oldest := a.dropSilentLocked()
		a.mu.Unlock()
		if oldest != nil {
			<-oldest.closed // else more are accepted meanwhile than there are files for
		}
	}
	return used <= strangersFiles || used <= maxFiles && a.gateOf(hostOf(nc)) == a.greeted
}

// gateOf returns the gate for an address.
func (a *admission) gateOf(addr string) *gate {
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, ok := a.addrs[addr]; ok {
		return a.greeted
	}
	return a.strangers
}

// rememberAddr remembers that a good certificate came from where nc does. If there are very many
// such addresses any other is forgotten.
func (a *admission) rememberAddr(nc net.Conn) {
	addr := hostOf(nc)
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, ok := a.addrs[addr]; ok {
		return
	}
	for other := range a.addrs {
		if len(a.addrs) < maxGreeted {
			break
		}
		delete(a.addrs, other)
	}
	a.addrs[addr] = struct{}{}
}

// awaitSlots is takeSlots for no longer than longestWait. The error is ctx's or errCrowded.
func (t *turn) awaitSlots(ctx context.Context) error {
	waiting, cancel := context.WithTimeout(ctx, longestWait)
	defer cancel()
	err := t.takeSlots(waiting)
	if err != nil && ctx.Err() == nil {
		return errCrowded
	}
	return err
}

// takeSlots takes a slot of the network's, one of all, and one of the second's.
func (t *turn) takeSlots(ctx context.Context) error {
	if err := acquire(ctx, t.network.turns); err != nil {
		return err
	}
	if err := acquire(ctx, t.of.turns); err != nil {
		<-t.network.turns
		return err
	}
	if err := t.of.rate.awaitToken(ctx); err != nil {
		t.giveBack()
		return err
	}
	return nil
}

func (t *turn) giveBack() {
	<-t.of.turns
	<-t.network.turns
}

func (t *turn) releaseSlots() {
	t.giveBack()
	t.of.exit(t.name, t.network)
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

// countConn counts a connection. The error is errCrowded.
func (g *gate) countConn(name string) (*network, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	n := g.networks[name]
	if n == nil {
		n = &network{turns: make(chan struct{}, max(1, cap(g.turns)/2))}
	}
	if g.conns >= g.room || n.conns >= max(1, g.room/2) {
		return nil, errCrowded
	}
	g.networks[name] = n
	g.conns++
	n.conns++
	return n, nil
}

func (g *gate) exit(name string, n *network) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.conns--
	if n.conns--; n.conns == 0 {
		delete(g.networks, name)
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

// networkOf returns the network of an address, as much of it as one may have for the asking.
func networkOf(addr string) string {
	ip, err := netip.ParseAddr(addr)
	if err != nil {
		return addr
	}
	ip = ip.Unmap()
	bits := 64
	if ip.Is4() {
		bits = 24
	}
	prefix, _ := ip.WithZone("").Prefix(bits) // an address has so many
	return prefix.String()
}

var (
	// errSilent is why a connection that has not sent its first message was dropped.
	errSilent = errors.New("too many connections that say nothing")
	// errNoFiles is why one is closed that was just accepted.
	errNoFiles = errors.New("too many files are open")
	// errNoHello is for a first message that is none of TLS, or none of ours.
	errNoHello = errors.New("no beginning of TLS 1.3")
)

// silence is a connection that is waited for.
type silence struct {
	conn    net.Conn
	of      *list.List
	closed  chan struct{} // closed when conn is, as it was dropped
	dropped bool          // guarded by the admission
}

// awaitHello waits until the peer's first message is there, and returns the connection
// with that still to be read.
func (a *admission) awaitHello(ctx context.Context, nc net.Conn) (net.Conn, error) {
	if _, ok := nc.(Link); ok {
		return nc, nil
	}
	keepAlive(nc)
	stop := context.AfterFunc(ctx, func() { _ = nc.SetReadDeadline(longAgo) })
	defer stop()
	e := a.hush(nc)
	hello, err := readHello(nc)
	if !a.unhush(e) {
		_ = nc.Close()
		close(e.Value.(*silence).closed)
		return nil, errSilent
	}
	if err != nil {
		return nil, err
	}
	return &handshakeConn{Conn: nc, hello: hello, left: maxHandshake}, nil
}

// readHello reads the record of TLS that holds the whole ClientHello (RFC 8446, 4.1.2 and
// 5.1). The error is that of reading, or errNoHello.
func readHello(r io.Reader) ([]byte, error) {
	const header, handshake, clientHello = 5, 22, 1
	hello := make([]byte, header, 512)
	if _, err := io.ReadFull(r, hello); err != nil {
		return nil, err
	}
	size := int(binary.BigEndian.Uint16(hello[3:]))
	if hello[0] != handshake || size < 4 || size > maxHello {
		return nil, errNoHello
	}
	for len(hello) < header+size { // it grows as they come
		if len(hello) == cap(hello) {
			hello = append(hello, 0)[:len(hello)]
		}
		n, err := r.Read(hello[len(hello):min(cap(hello), header+size)])
		if hello = hello[:len(hello)+n]; err != nil && len(hello) < header+size {
			return nil, err
		}
	}
	message := hello[header:]
	if length := int(message[1])<<16 | int(message[2])<<8 | int(message[3]); message[0] != clientHello || length != size-4 {
		return nil, errNoHello
	}
	return hello, nil
}

// hush notes a silent connection and drops the oldest if there are too many.
func (a *admission) hush(nc net.Conn) *list.Element {
	addr := hostOf(nc)
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.silent[0].Len()+a.silent[1].Len() >= a.maxIdle {
		a.dropSilentLocked()
	}
	of := &a.silent[0]
	if _, ok := a.addrs[addr]; ok {
		of = &a.silent[1]
	}
	return of.PushBack(&silence{conn: nc, of: of, closed: make(chan struct{})})
}

// dropSilentLocked drops the oldest silent connection, one of a stranger if there is any. It returns nil if there is none.
func (a *admission) dropSilentLocked() *silence {
	for i := range a.silent {
		if front := a.silent[i].Front(); front != nil {
			oldest := a.silent[i].Remove(front).(*silence)
			oldest.dropped = true
			_ = oldest.conn.SetReadDeadline(longAgo) // whoever reads it closes it
			return oldest
		}
	}
	return nil
}

// unhush forgets a silent connection. It reports whether it was still kept.
func (a *admission) unhush(e *list.Element) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	s := e.Value.(*silence)
	if !s.dropped {
		s.of.Remove(e)
	}
	return !s.dropped
}
