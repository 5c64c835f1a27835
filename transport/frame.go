package transport

import (
	"encoding/binary"
	"fmt"
	"io"

	"github.com/harpcaller/harp/internal/msgpack"
)

// Type says what a frame means. Its meaning is the user's, from 0 to 125. 126 gives an
// exchange up, 127 is the heartbeat; neither reaches the user.
type Type uint8

const (
	resetType = Type(126)
	beatType  = Type(127)
)

// The flags of a frame.
const (
	endFlag  = 1 << iota // the last frame of its exchange in this direction
	longFlag             // the body comes on another stream; behind the header is its number, of 4 bytes
	noFlag
)

// HeaderSize is the length of a frame's header in bytes.
const HeaderSize = 10

// MaxFrame is the longest body a frame can have, whatever [Options] allow.
const MaxFrame = 6 << 20

// defaultMaxFrame holds a record or a control message at its limit of 64 KiB and
// as much again for what stands beside it.
const defaultMaxFrame = 128 << 10

// firstRead is how much of a body is allocated on the word of its header alone.
const firstRead = 16 << 10

// Frame is one message of an exchange. Who receives a Frame owns its Body.
type Frame struct {
	Type     Type
	Exchange uint32 // 0: the control exchange
	End      bool   // the last frame of its exchange in this direction
	Body     []byte // one msgpack value, or nothing

	on   uint32    // the stream that its body comes on; 0: it comes here
	size int       // of that body
	late *lateBody // where it comes to
	paid int64     // to the budget, for a long body that came here, until it is taken
}

// resetReason is why an exchange is given up, as RESET says it in its body: nothing, or a number.
type resetReason byte

// overBudget: this side has no room for the exchange, and nobody has looked at it.
const overBudget = resetReason(1)

// newReset gives an exchange up.
func newReset(exchange uint32, why resetReason) Frame {
	f := Frame{Type: resetType, Exchange: exchange}
	if why != 0 {
		f.Body = []byte{byte(why)}
	}
	return f
}

// resetErr is what an exchange ends with that the peer gave up.
func (f Frame) resetErr() error {
	if len(f.Body) == 1 && resetReason(f.Body[0]) == overBudget {
		return errNotLookedAt
	}
	return io.ErrUnexpectedEOF
}

// errNotLookedAt is that of an exchange which the peer has not taken.
var errNotLookedAt = fmt.Errorf("%w: %w", ErrNoRoom, io.ErrUnexpectedEOF)

// checkSize reports whether a user may send the frame. The error is [ErrProtocol] or
// [ErrFrameTooLarge].
func (f Frame) checkSize() error {
	switch {
	case f.Type >= resetType:
		return fmt.Errorf("%w: frame type %d is not the user's", ErrProtocol, f.Type)
	case len(f.Body) > MaxFrame:
		return fmt.Errorf("%w: %d bytes of type %d", ErrFrameTooLarge, len(f.Body), f.Type)
	}
	return nil
}

// append appends the frame as it is sent.
func (f Frame) append(b []byte) []byte {
	var flags byte
	if f.End {
		flags |= endFlag
	}
	if f.on != 0 {
		flags |= longFlag
	}
	b = binary.BigEndian.AppendUint32(b, uint32(len(f.Body)))
	b = binary.BigEndian.AppendUint32(b, f.Exchange)
	b = append(b, byte(f.Type), flags)
	if f.on != 0 {
		return binary.BigEndian.AppendUint32(b, f.on)
	}
	return append(b, f.Body...)
}

// parseHeader returns the frame without its body. The error is [ErrProtocol].
func parseHeader(h *[HeaderSize]byte) (f Frame, long bool, err error) {
	flags := h[9]
	f = Frame{
		Exchange: binary.BigEndian.Uint32(h[4:]),
		Type:     Type(h[8]),
		End:      flags&endFlag != 0,
		size:     int(binary.BigEndian.Uint32(h[:])),
	}
	if flags >= noFlag || f.Type > beatType {
		err = fmt.Errorf("%w: frame of type %d with flags %#x", ErrProtocol, f.Type, flags)
	}
	return f, flags&longFlag != 0, err
}

// frameReader reads frames.
type frameReader struct {
	r      io.Reader
	limit  func(Type) int
	pay    func(Frame) error // for a long body that comes with its frame; nil: it is free
	header [HeaderSize]byte
}

// readFrame returns the next frame, its body checked. At the end of the stream the
// error is io.EOF between frames and io.ErrUnexpectedEOF within one;
// [ErrFrameTooLarge] and [ErrMalformed] are the peer's doing.
func (r *frameReader) readFrame() (Frame, error) {
	if _, err := io.ReadFull(r.r, r.header[:]); err != nil {
		return Frame{}, err
	}
	f, long, err := parseHeader(&r.header)
	if err != nil {
		return Frame{}, err
	}
	if limit := r.limit(f.Type); f.size > limit {
		return Frame{}, fmt.Errorf("%w: %d bytes of type %d, limit %d", ErrFrameTooLarge, f.size, f.Type, limit)
	}
	switch {
	case long:
		f.on, err = r.readStream(f)
	case f.size >= LongBody && r.pay != nil:
		if err = r.pay(f); err != nil {
			return Frame{}, err
		}
		fallthrough
	case f.size > 0:
		f.Body, err = readBody(r.r, f.size)
		if err == nil {
			err = msgpack.Validate(f.Body, msgpack.ProtocolLimits)
		}
	}
	if err != nil {
		return Frame{}, err
	}
	return f, nil
}

// readStream reads on which stream the body of a frame comes.
func (r *frameReader) readStream(f Frame) (uint32, error) {
	var b [4]byte
	if _, err := io.ReadFull(r.r, b[:]); err != nil {
		return 0, cutShort(err)
	}
	on := binary.BigEndian.Uint32(b[:])
	if on == 0 || f.size < LongBody || f.Exchange == 0 || f.Type >= resetType {
		return 0, fmt.Errorf("%w: %d bytes of exchange %d on stream %d", ErrProtocol, f.size, f.Exchange, on)
	}
	return on, nil
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
