package supervisor

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
)

// A frame is the length of its body, the CRC-32C of that, both of four bytes and big
// endian, and the body: a byte that says what it is, and the rest. Spool files, the
// socket and the hand-over to a new supervisor are made of frames.

const (
	frameHeader = 8
	maxFrame    = 64 << 20 // bytes of a body
	readStep    = 64 << 10 // what is read of a body at a time, so that a length alone costs no memory
)

var (
	errDamaged = errors.New("damaged")
	castagnoli = crc32.MakeTable(crc32.Castagnoli)
)

// appendFrame appends a frame whose body is kind and what write appends.
func appendFrame(b []byte, kind byte, write func([]byte) []byte) []byte {
	start := len(b)
	b = append(b, make([]byte, frameHeader)...)
	b = write(append(b, kind))
	body := b[start+frameHeader:]
	binary.BigEndian.PutUint32(b[start:], uint32(len(body)))
	binary.BigEndian.PutUint32(b[start+4:], crc32.Checksum(body, castagnoli))
	return b
}

// jsonFrame is a frame of a value as JSON, and bytes that follow it.
func jsonFrame(kind byte, v any, raw []byte) ([]byte, error) {
	text, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	if len(text)+len(raw) > maxFrame-16 {
		return nil, fmt.Errorf("a message of %d bytes, at most %d can be sent", len(text)+len(raw), maxFrame-16)
	}
	return appendFrame(nil, kind, func(b []byte) []byte {
		b = binary.AppendUvarint(b, uint64(len(text)))
		return append(append(b, text...), raw...)
	}), nil
}

// frame is a body that was read.
type frame struct {
	kind byte
	body []byte // without the kind; valid until the next read
}

// decode fills v from what jsonFrame made and returns the bytes that follow.
func (f frame) decode(v any) (raw []byte, err error) {
	n, width := binary.Uvarint(f.body)
	if width <= 0 || n > uint64(len(f.body)-width) {
		return nil, errDamaged
	}
	text := f.body[width : width+int(n)]
	if err := json.Unmarshal(text, v); err != nil {
		return nil, fmt.Errorf("%w: %w", errDamaged, err)
	}
	return f.body[width+int(n):], nil
}

// frames reads frames.
type frames struct {
	r   io.Reader
	buf []byte
}

// unbuffered reads no byte after a frame.
func unbuffered(r io.Reader) *frames { return &frames{r: r} }

func newFrames(r io.Reader) *frames { return &frames{r: bufio.NewReaderSize(r, 32<<10)} }

// next reads a frame. The error is io.EOF at the end, io.ErrUnexpectedEOF within a
// frame, errDamaged for what is none, or that of the reader.
func (f *frames) next() (frame, error) {
	head := make([]byte, frameHeader)
	if _, err := io.ReadFull(f.r, head); err != nil {
		return frame{}, err
	}
	length, sum := binary.BigEndian.Uint32(head), binary.BigEndian.Uint32(head[4:])
	if length == 0 || length > maxFrame {
		return frame{}, errDamaged
	}
	f.buf = f.buf[:0]
	for uint32(len(f.buf)) < length {
		if err := f.more(int(length)); err != nil {
			return frame{}, err
		}
	}
	if crc32.Checksum(f.buf, castagnoli) != sum {
		return frame{}, errDamaged
	}
	return frame{kind: f.buf[0], body: f.buf[1:]}, nil
}

// isDamage reports whether err says what is there in place of a frame, and not that nobody
// can say, as it cannot be read.
func isDamage(err error) bool {
	return errors.Is(err, errDamaged) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
}

// more reads the next part of a body of length bytes.
func (f *frames) more(length int) error {
	had := len(f.buf)
	f.buf = append(f.buf, make([]byte, min(length-had, readStep))...)
	_, err := io.ReadFull(f.r, f.buf[had:])
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// size is how many bytes the frame took.
func (f frame) size() int64 { return frameHeader + 1 + int64(len(f.body)) }

// The bits of a record's flags; the lower ones are its kind.
const (
	flagPartial   = 0x10
	flagTruncated = 0x20
	kindBits      = 0x0f
)

var kinds = []string{kindStdout, kindStderr, kindData}

// appendRecord appends a record without its number.
func appendRecord(b []byte, r *Record) []byte {
	var flags byte
	for i, k := range kinds {
		if k == r.Kind {
			flags = byte(i)
		}
	}
	if r.Partial {
		flags |= flagPartial
	}
	if r.Truncated > 0 {
		flags |= flagTruncated
	}
	b = binary.BigEndian.AppendUint64(append(b, flags), uint64(r.Time))
	if r.Truncated > 0 {
		b = binary.AppendUvarint(b, uint64(r.Truncated))
	}
	return append(b, r.Value...)
}

// decodeRecord is the record of what appendRecord made; its value is b's. The error
// is errDamaged.
func decodeRecord(b []byte) (Record, error) {
	if len(b) < 9 || int(b[0]&kindBits) >= len(kinds) || b[0]&^(kindBits|flagPartial|flagTruncated) != 0 {
		return Record{}, errDamaged
	}
	r := Record{
		Kind: kinds[b[0]&kindBits], Partial: b[0]&flagPartial != 0,
		Time: int64(binary.BigEndian.Uint64(b[1:])),
	}
	value := b[9:]
	if b[0]&flagTruncated != 0 {
		n, width := binary.Uvarint(value)
		if width <= 0 || n == 0 || int64(n) < 0 {
			return Record{}, errDamaged
		}
		r.Truncated, value = int64(n), value[width:]
	}
	r.Value = value
	return r, nil
}

// recordSize is how many bytes a record takes.
func recordSize(r *Record) int64 {
	n := frameHeader + 1 + 9 + int64(len(r.Value))
	if r.Truncated > 0 {
		n += int64(len(binary.AppendUvarint(nil, uint64(r.Truncated))))
	}
	return n
}
