package transport

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"sync"
	"syscall"
	"time"

	"github.com/harpcaller/harp/internal/logcount"
)

const (
	defaultHandshakeRate  = 1000
	defaultHandshakeLimit = 64
)

// ServeConfig are the settings of [Serve].
type ServeConfig struct {
	// TLS has the certificate of this side and the ClientCAs of its peers. It may
	// be nil for a listener of package memnet.
	TLS *tls.Config
	// Protocols has the role a peer must have, by protocol.
	Protocols map[string]Role
	// Logger gets a line for the first connection of a network that is refused, and one a
	// minute with how many there were since. Default: slog.Default().
	Logger *slog.Logger
	// HandshakeRate is how many handshakes are made a second with addresses from which a
	// good certificate came before, and as many with others. Default: 1000.
	HandshakeRate float64
	// HandshakeLimit is how many handshakes are made at the same time, half of them with
	// addresses from which a good certificate came before. Sixteen times as many connections
	// wait for their turn, or as many as HandshakeRate lets have it in 20 s if those are more;
	// all others are refused. One network, a /24 of IPv4 or a /64, has at most half of either.
	// Connections whose first message is not there yet do not count; when they become as many
	// as may wait, the oldest is dropped. Default: 64.
	HandshakeLimit int
}

func (c ServeConfig) withDefaults() ServeConfig {
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	if c.HandshakeRate <= 0 {
		c.HandshakeRate = defaultHandshakeRate
	}
	if c.HandshakeLimit <= 0 {
		c.HandshakeLimit = defaultHandshakeLimit
	}
	return c
}

// Serve accepts connections from l and runs handle for each whose handshake
// succeeds, in a goroutine of its own; a connection is closed when its handle
// returns. A handshake that takes longer than 2 s from its turn on, or than 10 s with the
// wait for it, is refused. The ctx of handle ends with ctx.
//
// Serve closes l when ctx ends, and returns nil when every handle has returned.
// Before that it returns only if l fails, with its error, also when every handle
// has returned. While accepting fails for want of descriptors or memory, or because
// a peer has gone, Serve goes on trying.
func Serve(ctx context.Context, l net.Listener, cfg ServeConfig, handle func(context.Context, *Conn)) error {
	cfg = cfg.withDefaults()
	s := server{
		cfg:       cfg,
		config:    serverConfig(cfg.TLS, cfg.Protocols),
		admission: newAdmission(cfg.HandshakeRate, cfg.HandshakeLimit),
		refusals:  logcount.New(cfg.Logger),
		handle:    handle,
	}
	defer s.refusals.Close()
	stop := context.AfterFunc(ctx, func() { l.Close() })
	defer stop()
	defer s.running.Wait()
	err := s.acceptLoop(ctx, l)
	_ = l.Close()
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// server is one Serve.
type server struct {
	cfg       ServeConfig
	config    *tls.Config
	admission *admission
	refusals  *logcount.Logger
	handle    func(context.Context, *Conn)
	running   sync.WaitGroup
}

// acceptLoop accepts until ctx ends or l fails.
func (s *server) acceptLoop(ctx context.Context, l net.Listener) error {
	var wait backoff
	for {
		nc, err := l.Accept()
		switch {
		case err == nil && !s.admission.makeRoom(nc):
			s.logRefused(nc, errNoFiles)
			_ = nc.Close()
		case err == nil:
			wait = 0
			s.running.Go(func() { s.serveConn(ctx, nc) })
		case !isTemporary(err):
			return err
		case wait.sleep(ctx) != nil:
			return ctx.Err()
		default:
			s.cfg.Logger.Warn("accepting connections", "error", err.Error(), "retry", time.Duration(wait))
		}
	}
}

// serveConn makes the handshake and runs handle in a goroutine of its own: what the
// handshake needs of the stack is given back, which handle would keep for as long as it
// runs.
func (s *server) serveConn(ctx context.Context, nc net.Conn) {
	c, err := s.shake(ctx, nc)
	if err != nil {
		if !errors.Is(err, context.Canceled) {
			s.logRefused(nc, err)
		}
		return
	}
	s.running.Go(func() {
		defer c.Close()
		s.handle(ctx, c)
	})
}

// logRefused logs, or counts, a connection that is refused.
func (s *server) logRefused(nc net.Conn, err error) {
	s.refusals.Warn(networkOf(hostOf(nc)), "connection refused", "addr", nc.RemoteAddr().String(), "error", err.Error())
}

// shake makes the handshake when it is the connection's turn.
func (s *server) shake(ctx context.Context, nc net.Conn) (*Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, handshakeTimeout)
	defer cancel()
	begun, turn, err := s.admission.admitConn(ctx, nc)
	if err != nil {
		err = handshakeError(ctx, nc, err)
		_ = nc.Close()
		return nil, err
	}
	defer turn.releaseSlots()
	ctx, cancel = context.WithTimeout(ctx, longestTurn)
	defer cancel()
	c, err := serverShake(ctx, begun, s.config, s.cfg.Protocols)
	if err == nil {
		s.admission.rememberAddr(nc)
	}
	return c, err
}

// temporary are the errors of accepting a connection after which the next may
// succeed.
var temporary = []error{
	syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM,
	syscall.ECONNABORTED, syscall.ECONNRESET, syscall.EINTR,
}

func isTemporary(err error) bool {
	for _, t := range temporary {
		if errors.Is(err, t) {
			return true
		}
	}
	return false
}

// backoff is the wait before the next try, doubled from 5 ms to 1 s.
type backoff time.Duration

// sleep waits. The error is ctx's.
func (b *backoff) sleep(ctx context.Context) error {
	*b = min(max(2**b, backoff(5*time.Millisecond)), backoff(time.Second))
	timer := time.NewTimer(time.Duration(*b))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
