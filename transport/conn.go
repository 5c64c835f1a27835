package transport

import (
	"context"
	"crypto/tls"
	"log/slog"
	"net"
)

// Stage is the step of connecting at which a [HandshakeError] happened.
type Stage string

// The stages, in order.
const (
	StageDial     Stage = "dial"     // no connection; set by who dials
	StageTLS      Stage = "tls"      // TLS: version, protocol, certificate chain
	StageIdentity Stage = "identity" // the certificate is good but not the one wanted
)

// HandshakeError is a connection that did not become a Conn. It is an [ErrHandshake].
type HandshakeError struct {
	Stage Stage
	Addr  string
	Err   error
}

func (e *HandshakeError) Error() string { panic("todo") }

// Unwrap returns the cause.
func (e *HandshakeError) Unwrap() error { return e.Err }

// Is reports whether target is [ErrHandshake].
func (e *HandshakeError) Is(target error) bool { return target == ErrHandshake }

// Conn is a connection whose handshake is done and whose peer is known.
type Conn struct{}

// Client makes the client's side of the handshake over nc.
func Client(ctx context.Context, nc net.Conn, tc *tls.Config, protocol string, want Role) (*Conn, error) {
	panic("todo")
}

// Server makes the server's side of the handshake over nc.
func Server(ctx context.Context, nc net.Conn, tc *tls.Config, allow map[string]Role) (*Conn, error) {
	panic("todo")
}

// Peer returns who is at the other end.
func (c *Conn) Peer() Peer { panic("todo") }

// Close closes the connection and the session made of it.
func (c *Conn) Close() error { panic("todo") }

// Opener makes the session in which this side opens streams.
func (c *Conn) Opener(o Options) (*Session, error) { panic("todo") }

// Acceptor makes the session in which this side accepts streams.
func (c *Conn) Acceptor(o Options) (*Session, error) { panic("todo") }

// Options are the settings of a session. The zero value works.
type Options struct {
	// Logger gets one line when the peer breaks the protocol. Default: slog.Default().
	Logger *slog.Logger
	// MaxFrame returns the longest body this side receives of a type, at most
	// [MaxFrame]. Default: 128 KiB for every type.
	MaxFrame func(Type) int
	// MaxLanes is the number of lanes the session may have. Default: 4096.
	MaxLanes int
	// Window is the number of bytes of a stream the peer may send ahead of the
	// reader, 256 KiB (the default) to 4 MiB.
	Window int
}
