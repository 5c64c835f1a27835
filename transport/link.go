package transport

import (
	"context"
	"fmt"
	"io"
	"net"
	"time"
)

// Link is a connection that carries streams by itself and whose ends know each other.
// [Client] and [Server] take it as it is, without TLS and yamux. Package memnet makes
// them, for tests in virtual time.
type Link interface {
	net.Conn
	// PeerIdentity returns who is at the other end.
	PeerIdentity() Identity
	// Ask says which protocol the client speaks, and returns what the server answered; else
	// the error is ctx's, or io.EOF when the connection has ended.
	Ask(ctx context.Context, protocol string) error
	// Asked returns what the client asked for. The error is ctx's, or io.EOF.
	Asked(ctx context.Context) (protocol string, err error)
	// Answer says why the client is refused; nil: it is not.
	Answer(refusal error)
	// Streams returns what carries streams, on each of which a writer may be so many bytes
	// ahead of the reader. It owns the connection.
	Streams(window int) Mux
}

// Mux carries streams over one connection. Everything above it is written once.
type Mux interface {
	// Open opens a stream. ctx may not be known where that does not wait for the peer.
	Open(ctx context.Context) (Stream, error)
	// Accept returns the next stream that the peer opened.
	Accept(ctx context.Context) (Stream, error)
	// Opened is Accept where that need not wait. ok is false if the peer has opened no other.
	Opened() (st Stream, ok bool, err error)
	// Expect lets n more bytes come on the streams that are not the first. A Mux may end the
	// connection of a peer that sends more than was expected.
	Expect(n int)
	// Close ends every stream and the connection, and waits for its goroutines.
	Close()
	// Cause returns why the connection ended, as far as it is known.
	Cause() error
	// Heard returns when something last came over the connection, if anything has.
	Heard() time.Time
}

// Stream is one of a Mux's two-way byte streams. Either direction is for one goroutine at
// a time.
type Stream interface {
	io.Reader
	// WriteWithin writes p, for at most so long; 0: as long as the connection lasts. What
	// fails ends the session.
	WriteWithin(p []byte, d time.Duration) error
	// ID is the number of the stream, the same at both ends and never 0.
	ID() uint32
	// Shrink gives back the memory of an idle stream.
	Shrink()
}

// linkPeer describes the other end of a link.
func linkPeer(l Link, protocol string) Peer {
	id := l.PeerIdentity()
	return Peer{
		Identity:    id,
		Addr:        l.RemoteAddr().String(),
		Protocol:    protocol,
		Fingerprint: fingerprint([]byte(id.String())),
	}
}

// askLink is the client's handshake over a link.
func askLink(ctx context.Context, l Link, protocol string, want Role) (Peer, error) {
	peer := linkPeer(l, protocol)
	if err := peer.Identity.require(want); err != nil {
		return Peer{}, err
	}
	return peer, l.Ask(ctx, protocol)
}

// shakeLink is the server's handshake over a link.
func shakeLink(ctx context.Context, l Link, allow map[string]Role) (Peer, error) {
	protocol, err := l.Asked(ctx)
	if err != nil {
		return Peer{}, err
	}
	peer := linkPeer(l, protocol)
	err = authorize(peer.Identity, protocol, allow)
	if err != nil {
		l.Answer(fmt.Errorf("refused by the peer: %w", err))
		return Peer{}, err
	}
	l.Answer(nil)
	return peer, nil
}
