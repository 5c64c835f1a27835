package transport

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"syscall"
	"time"
)

// Network is a network in memory, of as many hosts as are listening on it. Its
// connections are recognised by [Client] and [Server]: identity, role and protocol
// are checked as over TLS, but there are no certificates, and sessions are made of
// in-memory streams instead of yamux. All that blocks in it does so in a way that
// testing/synctest knows. [Network.Road] and [Network.Reset] make it as bad as real
// ones are.
type Network struct {
	mu        sync.Mutex // guards what follows; never held while blocked
	listeners map[string]*memoryListener
	dialled   int // connections so far, for their addresses
	roads     map[way]*Road
	links     map[*memoryLink]struct{} // those that have not ended
}

// NewNetwork returns a network on which nobody listens.
func NewNetwork() *Network {
	return &Network{
		listeners: make(map[string]*memoryListener),
		roads:     make(map[way]*Road),
		links:     make(map[*memoryLink]struct{}),
	}
}

// Listen returns a listener at addr, any string, whose end of each connection is
// id. The error is an [ErrIdentity], or EADDRINUSE in a [net.OpError].
func (n *Network) Listen(addr string, id Identity) (net.Listener, error) {
	if err := id.Validate(); err != nil {
		return nil, err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.listeners[addr] != nil {
		return nil, &net.OpError{Op: "listen", Net: memoryNet, Addr: memoryAddr(addr), Err: syscall.EADDRINUSE}
	}
	l := &memoryListener{
		network: n,
		addr:    addr,
		id:      id,
		queue:   make(chan *memoryConn, acceptQueue),
		closed:  make(chan struct{}),
	}
	n.listeners[addr] = l
	return l, nil
}

// Dialer returns a function that connects to a listener of n as id. Its errors
// are [ErrIdentity], ctx's, and ECONNREFUSED in a [net.OpError] when nobody
// listens at the address.
func (n *Network) Dialer(id Identity) func(ctx context.Context, addr string) (net.Conn, error) {
	return func(ctx context.Context, addr string) (net.Conn, error) {
		if err := id.Validate(); err != nil {
			return nil, err
		}
		l, serial := n.route(addr)
		if l == nil {
			return nil, refused(addr)
		}
		link := newMemoryLink(n, serial, [2]Identity{id, l.id}, l.addr)
		for _, road := range link.roads { // there and back
			if err := road.pass(ctx); err != nil {
				return nil, err
			}
		}
		return l.connect(ctx, link)
	}
}

// route returns the listener at addr and a number for a connection to it.
func (n *Network) route(addr string) (l *memoryListener, serial int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.dialled++
	return n.listeners[addr], n.dialled
}

func refused(addr string) error {
	return &net.OpError{Op: "dial", Net: memoryNet, Addr: memoryAddr(addr), Err: syscall.ECONNREFUSED}
}

// acceptQueue is how many connections a listener has not accepted before more
// have to wait.
const acceptQueue = 128

// memoryListener is a listener of a Network.
type memoryListener struct {
	network *Network
	addr    string
	id      Identity
	queue   chan *memoryConn
	closed  chan struct{}
	once    sync.Once
}

// connect makes a connection of link and returns the dialler's end.
func (l *memoryListener) connect(ctx context.Context, link *memoryLink) (net.Conn, error) {
	select {
	case <-l.closed:
		return nil, refused(l.addr)
	default:
	}
	link.begin()
	var err error
	select {
	case l.queue <- &memoryConn{link: link, side: 1}:
		return &memoryConn{link: link, side: 0}, nil
	case <-l.closed:
		err = refused(l.addr)
	case <-ctx.Done():
		err = ctx.Err()
	}
	link.endBoth(io.EOF)
	return nil, err
}

// Accept returns the next connection. The error is net.ErrClosed.
func (l *memoryListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.queue:
		return c, nil
	case <-l.closed:
		return nil, &net.OpError{Op: "accept", Net: memoryNet, Addr: l.Addr(), Err: net.ErrClosed}
	}
}

// Close frees the address. Connections that nobody accepted are closed.
func (l *memoryListener) Close() error {
	l.once.Do(func() {
		l.network.mu.Lock()
		delete(l.network.listeners, l.addr)
		l.network.mu.Unlock()
		close(l.closed)
		l.drain()
	})
	return nil
}

func (l *memoryListener) drain() {
	for {
		select {
		case c := <-l.queue:
			_ = c.Close()
		default:
			return
		}
	}
}

func (l *memoryListener) Addr() net.Addr { return memoryAddr(l.addr) }

// memoryNet is the name of the network in addresses and errors.
const memoryNet = "memory"

type memoryAddr string

func (memoryAddr) Network() string  { return memoryNet }
func (a memoryAddr) String() string { return string(a) }

// memoryConn is an end of an in-memory connection. It carries sessions only: Read
// and Write are refused.
type memoryConn struct {
	link *memoryLink
	side int
}

var errMemoryConn = errors.New("transport: an in-memory connection carries sessions only")

func (c *memoryConn) Read([]byte) (int, error)         { return 0, errMemoryConn }
func (c *memoryConn) Write([]byte) (int, error)        { return 0, errMemoryConn }
func (c *memoryConn) LocalAddr() net.Addr              { return memoryAddr(c.link.addrs[c.side]) }
func (c *memoryConn) RemoteAddr() net.Addr             { return memoryAddr(c.link.addrs[1-c.side]) }
func (c *memoryConn) SetDeadline(time.Time) error      { return nil }
func (c *memoryConn) SetReadDeadline(time.Time) error  { return nil }
func (c *memoryConn) SetWriteDeadline(time.Time) error { return nil }

// Close ends the connection for both ends.
func (c *memoryConn) Close() error {
	c.link.end(c.side, io.EOF)
	return nil
}

// peer describes the other end.
func (c *memoryConn) peer(protocol string) Peer {
	id := c.link.ids[1-c.side]
	return Peer{
		Identity:    id,
		Addr:        c.RemoteAddr().String(),
		Protocol:    protocol,
		Fingerprint: fingerprint([]byte(id.String())),
	}
}

// shakeClient is the client's handshake.
func (c *memoryConn) shakeClient(ctx context.Context, protocol string, want Role) (Peer, error) {
	peer := c.peer(protocol)
	if err := peer.Identity.require(want); err != nil {
		return Peer{}, err
	}
	c.link.hello <- protocol
	select {
	case err := <-c.link.verdict:
		if late := c.link.roads[1].pass(ctx); late != nil {
			return Peer{}, late
		}
		return peer, err
	case <-c.link.cut[c.side]:
		return Peer{}, c.refusal()
	case <-ctx.Done():
		return Peer{}, ctx.Err()
	}
}

// refusal is what became of a handshake whose connection ended.
func (c *memoryConn) refusal() error {
	select {
	case err := <-c.link.verdict:
		return err
	default:
		return io.EOF
	}
}

// shakeServer is the server's handshake.
func (c *memoryConn) shakeServer(ctx context.Context, allow map[string]Role) (Peer, error) {
	select {
	case protocol := <-c.link.hello:
		if err := c.link.roads[0].pass(ctx); err != nil {
			return Peer{}, err
		}
		peer := c.peer(protocol)
		err := judge(peer.Identity, protocol, allow)
		if err != nil {
			c.link.verdict <- fmt.Errorf("refused by the peer: %w", err)
			return Peer{}, err
		}
		c.link.verdict <- nil
		return peer, nil
	case <-c.link.cut[c.side]:
		return Peer{}, io.EOF
	case <-ctx.Done():
		return Peer{}, ctx.Err()
	}
}

// memoryMux carries streams over an in-memory connection.
type memoryMux struct {
	*memoryConn
	window int
}

func (*memoryMux) rest() {}

func newMemoryMux(c *memoryConn, window int, opener bool) *memoryMux {
	l := c.link
	l.mu.Lock()
	l.opener[c.side] = opener
	early := opener && len(l.streams[c.side]) > 0
	l.mu.Unlock()
	if early {
		l.endBoth(errWrongSide)
	}
	return &memoryMux{memoryConn: c, window: window}
}

func (m *memoryMux) open(ctx context.Context) (stream, error) {
	l := m.link
	out, in := l.pipe(m.side, m.window), l.pipe(1-m.side, m.window)
	select {
	case <-l.cut[m.side]:
		return nil, net.ErrClosed
	default:
	}
	select {
	case l.streams[1-m.side] <- &memoryStream{in: out, out: in}:
	case <-l.cut[m.side]:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	l.mu.Lock()
	wrong := l.opener[1-m.side]
	l.mu.Unlock()
	if wrong {
		l.endBoth(errWrongSide)
	}
	return &memoryStream{in: in, out: out}, nil
}

func (m *memoryMux) accept(ctx context.Context) (stream, error) {
	select {
	case st := <-m.link.streams[m.side]:
		return st, nil
	case <-m.link.cut[m.side]:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (m *memoryMux) close() { m.link.end(m.side, io.EOF) }

func (m *memoryMux) cause() error { return m.link.cause(m.side) }

// memoryStream is an end of a stream.
type memoryStream struct{ in, out *pipe }

func (s *memoryStream) Read(b []byte) (int, error)  { return s.in.read(b) }
func (s *memoryStream) Write(b []byte) (int, error) { return s.out.write(b) }

func (s *memoryStream) Close() error {
	s.out.end()
	s.in.close()
	return nil
}

func (s *memoryStream) shrink() { s.in.shrink() }
