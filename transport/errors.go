package transport

import (
	"errors"

	"github.com/harpcaller/harp/internal/msgpack"
)

// The conditions a caller can test for with errors.Is. What an error wraps says
// more, but only for people.
var (
	// ErrMalformed is a body that is not one msgpack value within its limits.
	ErrMalformed = msgpack.ErrMalformed
	// ErrFrameTooLarge is a frame whose body is longer than its type may be.
	ErrFrameTooLarge = errors.New("transport: frame too large")
	// ErrProtocol is a peer, or a user of this package, that broke the rules of
	// the session: a stream opened by the wrong side, a new exchange while one is
	// in progress, a frame after End, a flood.
	ErrProtocol = errors.New("transport: protocol violation")
	// ErrSilent ends a session whose peer was not heard for three heartbeats.
	ErrSilent = errors.New("transport: peer is silent")
	// ErrSessionClosed is any use of a session that has ended.
	ErrSessionClosed = errors.New("transport: session closed")
	// ErrHandshake is a connection that did not become a Conn; see [HandshakeError].
	ErrHandshake = errors.New("transport: handshake failed")
	// ErrIdentity is a certificate without exactly one harp identity, or an
	// identity that may not speak the protocol.
	ErrIdentity = errors.New("transport: unacceptable identity")
	// ErrNoRoom ends an exchange for which the peer has no room now: nobody there has looked at it. No
	// session ends with it.
	ErrNoRoom = errors.New("transport: the peer has no room for the exchange")
	// ErrOverBudget ends a session whose peer made this side hold more than it may: see [Budget]. It says nothing
	// of what became of its exchanges.
	ErrOverBudget = errors.New("transport: over budget")
	// ErrTooManyExchanges is one more exchange than a session may have under way.
	ErrTooManyExchanges = errors.New("transport: too many exchanges")
)
