package transport

import (
	"cmp"
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"sync"
	"time"
)

// handshakeTimeout is the longest a handshake may take.
const handshakeTimeout = 10 * time.Second

// Stage is the step of connecting at which a [HandshakeError] happened.
type Stage string

// The stages, in order.
const (
	StageDial     Stage = "dial"     // no connection; for who dials, not of this package
	StageTLS      Stage = "tls"      // bytes that are not TLS 1.3, protocol, certificate chain, time
	StageIdentity Stage = "identity" // the certificate is good, but not of whom it must be
)

// HandshakeError is a connection that did not become a [Conn]. It is an
// [ErrHandshake], and whatever its cause is.
type HandshakeError struct {
	Stage Stage
	Addr  string
	Err   error
}

func (e *HandshakeError) Error() string {
	return fmt.Sprintf("transport: handshake with %s: %s: %v", e.Addr, e.Stage, e.Err)
}

// Unwrap returns the cause.
func (e *HandshakeError) Unwrap() error { return e.Err }

// Is reports whether target is [ErrHandshake].
func (e *HandshakeError) Is(target error) bool { return target == ErrHandshake }

// Conn is a connection whose handshake is done and whose peer is known. One
// session is made of it, by [Conn.Opener] or [Conn.Acceptor].
type Conn struct {
	nc   net.Conn
	peer Peer

	mu      sync.Mutex // guards what follows; never held while blocked
	closed  bool
	claimed bool // a session was made of it, or is being made
	session *Session
}

// Client makes the client's side of the handshake over nc, which it closes on
// error: TLS 1.3 with the certificates of tc, in which the peer speaks protocol
// and its certificate has an identity of the role wanted. Peers are known by their
// identity, so that tc needs no ServerName; if it has one, that is verified as
// well. tc must have RootCAs; the peer must be of the fleet of the certificate that this side
// shows. ctx bounds the handshake, and so do 10 s.
//
// Client returns when the peer has accepted this side's certificate.
//
// The error is a [*HandshakeError]; its cause is ctx's if ctx ended.
func Client(ctx context.Context, nc net.Conn, tc *tls.Config, protocol string, want Role) (*Conn, error) {
	return shake(ctx, nc, func(ctx context.Context) (net.Conn, Peer, error) {
		if l, ok := nc.(Link); ok {
			peer, err := askLink(ctx, l, protocol, want)
			return nc, peer, err
		}
		config, own := clientConfig(tc, protocol, want)
		hc := &handshakeConn{Conn: nc, left: maxAnswered}
		c := tls.Client(hc, config)
		peer, err := shakeTLS(ctx, hc, c, func(nc net.Conn, id Identity) error {
			if err := own.checkPeer(id); err != nil {
				return err
			}
			return awaitWelcome(nc)
		})
		return c, peer, err
	})
}

// Server makes the server's side of the handshake over nc, which it closes on
// error: TLS 1.3 in which the client must show a certificate, whose identity must
// be of the role that allow has for the protocol, and of the fleet of the certificate that
// this side shows. tc must have ClientCAs; its GetConfigForClient is not used. ctx bounds the
// handshake, and so do 10 s.
//
// The error is a [*HandshakeError]; its cause is ctx's if ctx ended.
func Server(ctx context.Context, nc net.Conn, tc *tls.Config, allow map[string]Role) (*Conn, error) {
	return serverShake(ctx, nc, serverConfig(tc, allow), allow)
}

// serverShake is Server with the configuration made.
func serverShake(ctx context.Context, nc net.Conn, config *tls.Config, allow map[string]Role) (*Conn, error) {
	return shake(ctx, nc, func(ctx context.Context) (net.Conn, Peer, error) {
		if l, ok := nc.(Link); ok {
			peer, err := shakeLink(ctx, l, allow)
			return nc, peer, err
		}
		hc, ok := nc.(*handshakeConn)
		if !ok {
			hc = &handshakeConn{Conn: nc, left: maxHello + maxHandshake}
		}
		c := tls.Server(hc, config)
		peer, err := shakeTLS(ctx, hc, c, sendWelcome)
		return c, peer, err
	})
}

// shake runs a handshake within its time.
func shake(ctx context.Context, nc net.Conn, with func(context.Context) (net.Conn, Peer, error)) (*Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, handshakeTimeout)
	defer cancel()
	keepAlive(nc)
	secured, peer, err := with(ctx)
	if err != nil {
		err = handshakeError(ctx, nc, err)
		_ = nc.Close()
		return nil, err
	}
	return &Conn{nc: secured, peer: peer}, nil
}

// Peer returns who is at the other end.
func (c *Conn) Peer() Peer { return c.peer }

// Close closes the connection and, with [ErrSessionClosed], the session made of
// it. It returns the error of closing the connection when there is no session.
func (c *Conn) Close() error {
	c.mu.Lock()
	session, closed := c.session, c.closed
	c.closed = true
	c.mu.Unlock()
	switch {
	case session != nil:
		session.Close(nil)
		return nil
	case closed:
		return nil
	}
	return c.nc.Close()
}

// Opener makes the session in which this side begins exchanges. The session owns the
// connection from then on. ctx bounds the wait for the stream that carries it. The error is
// [ErrProtocol] when the connection has a session, [ErrSessionClosed] when it is closed,
// or ctx's.
func (c *Conn) Opener(ctx context.Context, o Options) (*Session, error) {
	return c.openSession(ctx, o, true)
}

// Acceptor makes the session in which this side answers exchanges. The session owns the
// connection from then on. ctx bounds the wait for the stream that carries it. The error is
// [ErrProtocol] when the connection has a session, [ErrSessionClosed] when it is closed,
// or ctx's.
func (c *Conn) Acceptor(ctx context.Context, o Options) (*Session, error) {
	return c.openSession(ctx, o, false)
}

func (c *Conn) openSession(ctx context.Context, o Options, opener bool) (*Session, error) {
	o = o.withDefaults()
	m, err := c.claimStreams(o, opener)
	if err != nil {
		return nil, err
	}
	carry := m.Accept
	if opener {
		carry = m.Open
	}
	main, err := carry(ctx)
	if err != nil {
		m.Close()
		return nil, cmp.Or(ctx.Err(), fmt.Errorf("%w: %w", ErrSessionClosed, cmp.Or(m.Cause(), err)))
	}
	s := newSession(m, main, c.peer, o, opener)
	c.mu.Lock()
	c.session = s
	closed := c.closed
	c.mu.Unlock()
	if closed {
		s.Close(nil)
	}
	return s, nil
}

// claimStreams makes streams of the connection, once.
func (c *Conn) claimStreams(o Options, opener bool) (Mux, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.closed:
		return nil, ErrSessionClosed
	case c.claimed:
		return nil, fmt.Errorf("%w: the connection has a session", ErrProtocol)
	}
	c.claimed = true
	return newMux(c.nc, o, opener)
}

func newMux(nc net.Conn, o Options, opener bool) (Mux, error) {
	if l, ok := nc.(Link); ok {
		return l.Streams(mainWindow), nil
	}
	return newYamux(nc, o, opener)
}

// keepAlive lets the kernel notice within a minute that a peer is gone, when
// nothing is sent.
func keepAlive(nc net.Conn) {
	const interval, count = 15 * time.Second, 3
	if tcp, ok := nc.(interface {
		SetKeepAliveConfig(net.KeepAliveConfig) error
	}); ok {
		_ = tcp.SetKeepAliveConfig(net.KeepAliveConfig{Enable: true, Idle: interval, Interval: interval, Count: count})
	}
}
