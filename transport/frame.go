package transport

import (
	"encoding/binary"
	"fmt"
	"io"

	"github.com/harpcaller/harp/internal/msgpack"
)

// Type says what a frame means. Its meaning is the user's, from 0 to 126. 127 is
// the heartbeat of the control stream and never reaches the user.
type Type uint8

const (
	maxType   = 0x7f
	heartbeat = Type(maxType)
	endMark   = 0x80
)

// HeaderSize is the length of a frame's header in bytes.
const HeaderSize = 9

// MaxFrame is the longest body a frame can have, whatever [Options] allow.
const MaxFrame = 6 << 20

// defaultMaxFrame holds a record or a control message at its limit of 64 KiB and
// as much again for what stands beside it.
const defaultMaxFrame = 128 << 10

// firstRead is how much of a body is allocated on the word of its header alone.
const firstRead = 16 << 10

// Frame is one message of a stream. Who receives a Frame owns its Body.
type Frame struct {
	Type     Type
	Exchange uint32 // 0 on the control stream
	End      bool   // the last frame of its exchange in this direction
	Body     []byte // one msgpack value, or nothing
}

// check reports whether a user may send the frame. The error is [ErrProtocol] or
// [ErrFrameTooLarge].
func (f Frame) check() error {
	switch {
	case f.Type >= heartbeat:
		return fmt.Errorf("%w: frame type %d is not the user's", ErrProtocol, f.Type)
	case len(f.Body) > MaxFrame:
		return fmt.Errorf("%w: %d bytes of type %d", ErrFrameTooLarge, len(f.Body), f.Type)
	}
	return nil
}

// appendHeader appends the header of f to b.
func (f Frame) appendHeader(b []byte) []byte {
	t := byte(f.Type)
	if f.End {
		t |= endMark
	}
	b = binary.BigEndian.AppendUint32(b, uint32(len(f.Body)))
	b = append(b, t)
	return binary.BigEndian.AppendUint32(b, f.Exchange)
}

// parseHeader returns the frame without its body, and the body's length.
func parseHeader(h *[HeaderSize]byte) (Frame, uint32) {
	f := Frame{
		Type:     Type(h[4] &^ endMark),
		End:      h[4]&endMark != 0,
		Exchange: binary.BigEndian.Uint32(h[5:]),
	}
	return f, binary.BigEndian.Uint32(h[:4])
}

// frameReader reads frames from a stream.
type frameReader struct {
	r      io.Reader
	limit  func(Type) int
	header [HeaderSize]byte
}

// read returns the next frame, its body checked. At the end of the stream the
// error is io.EOF between frames and io.ErrUnexpectedEOF within one;
// [ErrFrameTooLarge] and [ErrMalformed] are the peer's doing.
func (r *frameReader) read() (Frame, error) {
	if _, err := io.ReadFull(r.r, r.header[:]); err != nil {
		return Frame{}, err
	}
	f, n := parseHeader(&r.header)
	if limit := r.limit(f.Type); int64(n) > int64(limit) {
		return Frame{}, fmt.Errorf("%w: %d bytes of type %d, limit %d", ErrFrameTooLarge, n, f.Type, limit)
	}
	if n == 0 {
		return f, nil
	}
	body, err := readBody(r.r, int(n))
	if err != nil {
		return Frame{}, err
	}
	if err := msgpack.Validate(body, msgpack.ProtocolLimits); err != nil {
		return Frame{}, err
	}
	f.Body = body
	return f, nil
}

// readBody reads n bytes, allocating as they come, four times as many as have come at
// most: a header is no proof that a body follows.
func readBody(r io.Reader, n int) ([]byte, error) {
	b := make([]byte, min(n, firstRead))
	for have := 0; ; {
		if _, err := io.ReadFull(r, b[have:]); err != nil {
			return nil, cutShort(err)
		}
		have = len(b)
		if have == n {
			return b, nil
		}
		grown := make([]byte, min(n, 4*have))
		copy(grown, b)
		b = grown
	}
}

// cutShort makes the end of a stream within a frame what it is.
func cutShort(err error) error {
	if err == io.EOF { //nolint:errorlint // io.Reader returns it bare
		return io.ErrUnexpectedEOF
	}
	return err
}
