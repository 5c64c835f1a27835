// Package transport carries frames between two authenticated peers. It knows
// nothing of jobs.
//
// A connection is TLS 1.3 with certificates on both sides, or an in-memory pair
// of the same shape ([Link]). The TLS handshake ends with one byte, 1, by which
// the server says that it has accepted the client's certificate; a client would
// otherwise learn of a refusal only when it reads. Then the connection becomes a
// [Session], in which one side, the opener, begins exchanges and the other, the acceptor,
// answers them, whoever dialled. Exchange 0 is there from the beginning and is for what
// concerns the session as a whole ([Session.Control]).
//
// One stream of yamux, which the opener opens, carries the frames of all exchanges. One
// goroutine reads it and gives each frame to its exchange; what is sent is gathered while
// the write before is under way, and written at once. A body of more than 16 KiB goes on a
// stream of its own, which its frame names, so that nothing waits for it but what follows
// in its exchange; either side opens such streams, at most 64.
//
//	offset  size  field
//	0       4     length of the body in bytes, big endian
//	4       4     exchange, big endian
//	8       1     type
//	9       1     flags: 1 the last frame of the exchange in this direction (End);
//	              2 the body comes on another stream
//	10      n     body: one msgpack value, or nothing; with flag 2 the number of the
//	              stream, 4 bytes, big endian
//
// Exchanges are numbered by the opener, in the order in which their first frames are sent.
// An exchange ends with a frame marked End, in each direction its own; the end of the
// connection is not the end of an exchange and is reported as io.ErrUnexpectedEOF. The
// frame RESET, from either side, gives an exchange up. Frames of an exchange that is over
// are ignored.
//
// Every body is length-capped before it is read and checked by internal/msgpack before
// it is decoded.
package transport
