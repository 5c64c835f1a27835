// Package transport carries frames between two authenticated peers. It knows
// nothing of jobs.
//
// A connection is TLS 1.3 with certificates on both sides, or an in-memory pair
// of the same shape ([Network]). The TLS handshake ends with one byte, 1, by which
// the server says that it has accepted the client's certificate; a client would
// otherwise learn of a refusal only when it reads. Then the connection becomes a
// [Session], in which one side, the opener, opens streams and the other accepts
// them, whoever dialled. The first stream is the [Control] stream; it carries the
// heartbeat. All others are lanes: a lane carries one [Exchange] at a time and is
// reused for the next.
//
// A frame is a type, an exchange number and a msgpack body. An exchange ends
// with a frame marked End, in each direction its own; the end of a stream is not
// the end of an exchange and is reported as io.ErrUnexpectedEOF.
//
//	offset  size  field
//	0       4     length of the body in bytes, big endian
//	4       1     type; the highest bit is the End mark
//	5       4     exchange number, big endian; 0 on the control stream
//	9       n     body: one msgpack value, or nothing
//
// Every body is length-capped before it is read and checked by internal/msgpack before
// it is decoded.
package transport
