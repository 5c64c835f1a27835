package transport

import (
	"context"
	"errors"
	"fmt"
	"io"
)

// mux carries streams over one connection: yamux over TLS, or the in-memory pair.
// Everything above it is written once.
type mux interface {
	// open opens a stream. It is called by the opener only. ctx bounds the wait of
	// an in-memory pair; yamux does not know it.
	open(ctx context.Context) (stream, error)
	// accept returns the next stream the peer opened.
	accept(ctx context.Context) (stream, error)
	// rest gives back what only a busy connection needs.
	rest()
	// close ends every stream and the connection, and waits for its goroutines.
	close()
	// cause returns why the connection ended, as far as it is known.
	cause() error
}

// stream is one of a mux's two-way byte streams. A write that was blocked for
// writeTimeout fails, and with it the session.
type stream interface {
	io.ReadWriter
	// Close ends both directions: the peer reads what was written and then io.EOF,
	// and this side's Read and Write return. It may take as long as a write.
	Close() error
	// shrink gives back the memory of an idle stream.
	shrink()
}

// errStreamClosed is a write to a stream that either side has closed. Unlike any
// other failed write it says nothing about the session.
var errStreamClosed = errors.New("transport: stream closed")

// errWrongSide ends the connection of an opener to which a stream is opened.
var errWrongSide = fmt.Errorf("%w: stream opened by the wrong side", ErrProtocol)
