// Package memnet is a network in memory for package transport. Its connections are
// taken by [transport.Client] and [transport.Server]: identity, role and protocol
// are checked as over TLS, but there are no certificates, and sessions are made of
// in-memory streams instead of yamux. All that blocks in it does so in a way that
// testing/synctest knows. [Network.Path] and [Network.Reset] make it as bad as real
// networks are.
package memnet

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"syscall"
	"time"

	"github.com/harpcaller/harp/transport"
)

// Network is as many hosts as are listening on it.
type Network struct {
	mu        sync.Mutex // guards what follows; never held while blocked
	listeners map[string]*listener
	dialled   int // connections so far, for their addresses
	paths     map[route]*Path
	links     map[*link]struct{} // those that have not ended
}

// New returns a network on which nobody listens.
func New() *Network {
	return &Network{
		listeners: make(map[string]*listener),
		paths:     make(map[route]*Path),
		links:     make(map[*link]struct{}),
	}
}

// Listen returns a listener at addr, any string, whose end of each connection is
// id. The error is an [transport.ErrIdentity], or EADDRINUSE in a [net.OpError].
func (n *Network) Listen(addr string, id transport.Identity) (net.Listener, error) {
	if err := id.Validate(); err != nil {
		return nil, err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.listeners[addr] != nil {
		return nil, &net.OpError{Op: "listen", Net: networkName, Addr: address(addr), Err: syscall.EADDRINUSE}
	}
	l := &listener{
		network: n,
		addr:    addr,
		id:      id,
		queue:   make(chan *conn, acceptQueue),
		closed:  make(chan struct{}),
	}
	n.listeners[addr] = l
	return l, nil
}

// Dialer returns a function that connects to a listener of n as id. Its errors
// are [transport.ErrIdentity], ctx's, and ECONNREFUSED in a [net.OpError] when nobody
// listens at the address.
func (n *Network) Dialer(id transport.Identity) func(ctx context.Context, addr string) (net.Conn, error) {
	return func(ctx context.Context, addr string) (net.Conn, error) {
		if err := id.Validate(); err != nil {
			return nil, err
		}
		l, serial := n.route(addr)
		if l == nil {
			return nil, refusedErr(addr)
		}
		link := newLink(n, serial, [2]transport.Identity{id, l.id}, l.addr)
		for _, path := range link.paths { // there and back
			if err := path.awaitPassage(ctx); err != nil {
				return nil, err
			}
		}
		return l.connectLink(ctx, link)
	}
}

// route returns the listener at addr and a number for a connection to it.
func (n *Network) route(addr string) (l *listener, serial int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.dialled++
	return n.listeners[addr], n.dialled
}

func refusedErr(addr string) error {
	return &net.OpError{Op: "dial", Net: networkName, Addr: address(addr), Err: syscall.ECONNREFUSED}
}

// acceptQueue is how many connections a listener has not accepted before more
// have to wait.
const acceptQueue = 128

// listener is a listener of a Network.
type listener struct {
	network *Network
	addr    string
	id      transport.Identity
	queue   chan *conn
	closed  chan struct{}
	once    sync.Once
}

// connectLink makes a connection of link and returns the dialler's end.
func (l *listener) connectLink(ctx context.Context, link *link) (net.Conn, error) {
	select {
	case <-l.closed:
		return nil, refusedErr(l.addr)
	default:
	}
	link.register()
	var err error
	select {
	case l.queue <- &conn{link: link, side: 1}:
		return &conn{link: link, side: 0}, nil
	case <-l.closed:
		err = refusedErr(l.addr)
	case <-ctx.Done():
		err = ctx.Err()
	}
	link.endBoth(io.EOF)
	return nil, err
}

// Accept returns the next connection. The error is net.ErrClosed.
func (l *listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.queue:
		return c, nil
	case <-l.closed:
		return nil, &net.OpError{Op: "accept", Net: networkName, Addr: l.Addr(), Err: net.ErrClosed}
	}
}

// Close frees the address. Connections that nobody accepted are closed.
func (l *listener) Close() error {
	l.once.Do(func() {
		l.network.mu.Lock()
		delete(l.network.listeners, l.addr)
		l.network.mu.Unlock()
		close(l.closed)
		l.drain()
	})
	return nil
}

func (l *listener) drain() {
	for {
		select {
		case c := <-l.queue:
			_ = c.Close()
		default:
			return
		}
	}
}

func (l *listener) Addr() net.Addr { return address(l.addr) }

// networkName is the name of the network in addresses and errors.
const networkName = "memory"

type address string

func (address) Network() string  { return networkName }
func (a address) String() string { return string(a) }

// conn is an end of an in-memory connection. It carries sessions only: Read
// and Write are refused.
type conn struct {
	link *link
	side int
}

var errMemoryConn = errors.New("memnet: a connection carries sessions only")

func (c *conn) Read([]byte) (int, error)         { return 0, errMemoryConn }
func (c *conn) Write([]byte) (int, error)        { return 0, errMemoryConn }
func (c *conn) LocalAddr() net.Addr              { return address(c.link.addrs[c.side]) }
func (c *conn) RemoteAddr() net.Addr             { return address(c.link.addrs[1-c.side]) }
func (c *conn) SetDeadline(time.Time) error      { return nil }
func (c *conn) SetReadDeadline(time.Time) error  { return nil }
func (c *conn) SetWriteDeadline(time.Time) error { return nil }

// Close ends the connection for both ends.
func (c *conn) Close() error {
	c.link.endFrom(c.side, io.EOF)
	return nil
}

// PeerIdentity returns who is at the other end.
func (c *conn) PeerIdentity() transport.Identity { return c.link.ids[1-c.side] }

// Ask is the client's handshake.
func (c *conn) Ask(ctx context.Context, protocol string) error {
	c.link.hello <- protocol
	select {
	case err := <-c.link.verdict:
		if late := c.link.paths[1].awaitPassage(ctx); late != nil {
			return late
		}
		return err
	case <-c.link.cut[c.side]:
		return c.refusal()
	case <-ctx.Done():
		return ctx.Err()
	}
}

// refusal is what became of a handshake whose connection ended.
func (c *conn) refusal() error {
	select {
	case err := <-c.link.verdict:
		return err
	default:
		return io.EOF
	}
}

// Asked is the server's handshake, which Answer ends.
func (c *conn) Asked(ctx context.Context) (protocol string, err error) {
	select {
	case protocol := <-c.link.hello:
		return protocol, c.link.paths[0].awaitPassage(ctx)
	case <-c.link.cut[c.side]:
		return "", io.EOF
	case <-ctx.Done():
		return "", ctx.Err()
	}
}

// Answer ends the server's handshake.
func (c *conn) Answer(refusal error) { c.link.verdict <- refusal }

// Streams carries streams over the connection.
func (c *conn) Streams(window int) transport.Mux { return &mux{conn: c, window: window} }

// mux carries streams over an in-memory connection.
type mux struct {
	*conn
	window int
}

func (m *mux) Open(ctx context.Context) (transport.Stream, error) {
	l := m.link
	number := l.opened.Add(1)
	out, in := l.pipe(m.side, m.window), l.pipe(1-m.side, m.window)
	select {
	case <-l.cut[m.side]:
		return nil, net.ErrClosed
	default:
	}
	select {
	case l.streams[1-m.side] <- &stream{number: number, in: out, out: in}:
	case <-l.cut[m.side]:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	return &stream{number: number, in: in, out: out}, nil
}

func (m *mux) Accept(ctx context.Context) (transport.Stream, error) {
	select {
	case st := <-m.link.streams[m.side]: // also one that came before the end
		return st, nil
	default:
	}
	select {
	case st := <-m.link.streams[m.side]:
		return st, nil
	case <-m.link.cut[m.side]:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (m *mux) Opened() (st transport.Stream, ok bool, err error) {
	select {
	case st := <-m.link.streams[m.side]:
		return st, true, nil
	default:
		return nil, false, nil
	}
}

// Expect does nothing: only what is read takes memory here.
func (m *mux) Expect(int) {}

func (m *mux) Close() { m.link.endFrom(m.side, io.EOF) }

func (m *mux) Cause() error { return m.link.cause(m.side) }

func (m *mux) Heard() time.Time {
	return m.link.born.Add(time.Duration(m.link.heard[m.side].Load()))
}

// stream is an end of a stream.
type stream struct {
	number  uint32
	in, out *pipe
}

func (s *stream) ID() uint32 { return s.number }

func (s *stream) Read(b []byte) (int, error) { return s.in.readBytes(b) }

func (s *stream) WriteWithin(b []byte, within time.Duration) error {
	return s.out.writeBytes(b, within)
}

func (s *stream) Shrink() { s.in.shrink() }
