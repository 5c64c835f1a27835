package rows

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"time"

	"github.com/harpcaller/harp/internal/msgpack"
	"github.com/harpcaller/harp/store"
)

// ErrDamaged is store.ErrDamaged.
var ErrDamaged = store.ErrDamaged

const (
	pieceSize = 64 << 10 // longest part of a value under one key
	crcSize   = 4
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// seal returns payload as it is stored under key: behind a CRC-32C of both, so
// that a value under another's key is damaged, too.
func seal(key, payload []byte) []byte {
	out := make([]byte, crcSize, crcSize+len(payload))
	out = append(out, payload...)
	binary.BigEndian.PutUint32(out, checksum(key, out[crcSize:]))
	return out
}

// unseal is the inverse of seal; the payload lies inside value. Errors:
// ErrDamaged.
func unseal(key, value []byte) ([]byte, error) {
	if len(value) < crcSize || binary.BigEndian.Uint32(value) != checksum(key, value[crcSize:]) {
		return nil, fmt.Errorf("%w under key %q", ErrDamaged, key)
	}
	return value[crcSize:], nil
}

// IsWhole reports whether a value is as it was written under key.
func IsWhole(key, value []byte) bool {
	_, err := unseal(key, value)
	return err == nil
}

func checksum(key, payload []byte) uint32 {
	return crc32.Update(crc32.Checksum(key, castagnoli), castagnoli, payload)
}

// split cuts a payload into what is stored under its key, which is sealed and begins
// with the number of further pieces, and those pieces.
func split(key, payload []byte) (first []byte, more [][]byte) {
	head := min(len(payload), pieceSize)
	for rest := payload[head:]; len(rest) > 0; {
		n := min(len(rest), pieceSize)
		more = append(more, rest[:n])
		rest = rest[n:]
	}
	const count = 2 // usual bytes of the number
	first = binary.AppendUvarint(make([]byte, crcSize, crcSize+count+head), uint64(len(more)))
	first = append(first, payload[:head]...)
	binary.BigEndian.PutUint32(first, checksum(key, first[crcSize:]))
	return first, more
}

// join is the inverse of split, behind unseal: it fetches the further pieces, of which it returns
// the number. The payload is the caller's only if there are any.
func join(key, first []byte, get func(key []byte) ([]byte, error)) (payload []byte, more int, err error) {
	n, size := binary.Uvarint(first)
	if size <= 0 {
		return nil, 0, fmt.Errorf("%w under key %q", ErrDamaged, key)
	}
	payload = first[size:]
	if n == 0 {
		return payload, 0, nil
	}
	payload = bytes.Clone(payload)
	for i := range int(n) {
		k := pieceKey(key, i)
		value, err := get(k)
		if err != nil {
			return nil, 0, err
		}
		piece, err := unseal(k, value)
		if err != nil {
			return nil, 0, err
		}
		payload = append(payload, piece...)
	}
	return payload, int(n), nil
}

// usual is how long a row is, unless a caller's values are long.
const usual = 512

// encoding encodes and decodes rows.
var encoding = msgpack.Codec{Message: true}

// encode returns a row as msgpack.
func encode(row any) []byte { return appendRow(make([]byte, 0, usual), row) }

// appendRow appends what encode returns to b.
func appendRow(b []byte, row any) []byte {
	b, err := encoding.Append(b, row)
	if err != nil {
		panic(fmt.Sprintf("store: encode %T: %v", row, err)) // rows hold nothing that cannot be encoded
	}
	return b
}

// decode is the inverse of encode; it copies. The bytes have passed their
// checksum. Errors: ErrDamaged.
func decode(payload []byte, into any) error {
	if err := encoding.Decode(payload, into); err != nil {
		return fmt.Errorf("%w: %T: %w", ErrDamaged, into, err)
	}
	return nil
}

// nanos is how times are stored; 0 is the zero time.
func nanos(t time.Time) int64 { return msgpack.Nanos(t) }

func fromNanos(n int64) time.Time { return msgpack.FromNanos(n) }
