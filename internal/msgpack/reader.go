package msgpack

import (
	"encoding/binary"
	"math"
)

// Reader reads the values of some bytes one after the other. When the next value is not
// what is asked for, or is cut short, the reader fails: it then stands at the end and
// returns zeros only, so that a caller looks at the end whether all went well. A Reader is
// safe on any bytes, but only [Validate] knows whether strings are UTF-8.
type Reader struct {
	b      []byte
	at     int // the first byte not read; to move it is cheaper than to cut b
	failed bool
}

// NewReader returns a reader of b, which must not change while it is read.
func NewReader(b []byte) Reader { return Reader{b: b} }

// OK reports whether the reader has not failed.
func (r *Reader) OK() bool { return !r.failed }

// Done reports whether the reader has not failed and nothing is left.
func (r *Reader) Done() bool { return !r.failed && r.left() == 0 }

// Fail makes the reader fail.
func (r *Reader) Fail() { r.failed, r.at = true, len(r.b) }

func (r *Reader) left() int { return len(r.b) - r.at }

// Kind is what a value is.
type Kind uint8

// The kinds of values. KindNone is that of the end, and of a byte that begins no value.
const (
	KindNone Kind = iota
	KindNil
	KindBool
	KindInt
	KindFloat
	KindString
	KindBytes
	KindArray
	KindMap
	KindExt
)

var kindNames = [...]string{"nothing", "nil", "a boolean", "an integer", "a float", "a string", "bytes", "a list", "a map", "an extension"}

func (k Kind) String() string { return kindNames[k] }

// Kind returns the kind of the next value.
func (r *Reader) Kind() Kind {
	if r.at >= len(r.b) {
		return KindNone
	}
	switch c := r.b[r.at]; {
	case c <= codePosFix || c >= codeNegFix:
		return KindInt
	case c < codeFixArray:
		return KindMap
	case c < codeFixStr:
		return KindArray
	case c < codeNil:
		return KindString
	default:
		return shapes[c-codeNil].kind
	}
}

// nextBytes returns the next n bytes.
func (r *Reader) nextBytes(n int) []byte {
	if n < 0 || n > r.left() {
		r.Fail()
		return nil
	}
	p := r.b[r.at : r.at+n : r.at+n]
	r.at += n
	return p
}

// readNumber reads an unsigned number of size bytes.
func (r *Reader) readNumber(size int) uint64 {
	p := r.nextBytes(size)
	if p == nil {
		return 0
	}
	switch size {
	case 1:
		return uint64(p[0])
	case 2:
		return uint64(binary.BigEndian.Uint16(p))
	case 4:
		return uint64(binary.BigEndian.Uint32(p))
	}
	return binary.BigEndian.Uint64(p)
}

// code reads the first byte of a value.
func (r *Reader) code() byte {
	if r.at >= len(r.b) {
		r.Fail()
		return codeNone
	}
	r.at++
	return r.b[r.at-1]
}

// Int reads an integer of at most 64 bits with a sign.
func (r *Reader) Int() int64 {
	n, negative := r.integer()
	if n > math.MaxInt64 && !negative {
		r.Fail()
		return 0
	}
	return int64(n)
}

// Uint reads an integer that is not negative.
func (r *Reader) Uint() uint64 {
	n, negative := r.integer()
	if negative {
		r.Fail()
		return 0
	}
	return n
}

// integer reads an integer; of a negative one n is the two's complement.
func (r *Reader) integer() (n uint64, negative bool) {
	c := r.code()
	switch {
	case c <= codePosFix:
		return uint64(c), false
	case c >= codeNegFix:
		return uint64(int8(c)), true
	case c >= codeUint8 && c <= codeUint64:
		return r.readNumber(1 << (c - codeUint8)), false
	case c >= codeInt8 && c <= codeInt64:
		size := 1 << (c - codeInt8)
		shift := 64 - 8*size
		n := int64(r.readNumber(size)) << shift >> shift // the sign is the highest bit
		return uint64(n), n < 0
	}
	r.Fail()
	return 0, false
}

// Float reads a float of 32 or 64 bits.
func (r *Reader) Float() float64 {
	switch r.code() {
	case codeFloat:
		return float64(math.Float32frombits(uint32(r.readNumber(4))))
	case codeDouble:
		return math.Float64frombits(r.readNumber(8))
	}
	r.Fail()
	return 0
}

// Nil reads nil.
func (r *Reader) Nil() {
	if r.code() != codeNil {
		r.Fail()
	}
}

// skipNil passes over a nil, if one is next.
func (r *Reader) skipNil() bool {
	if r.at < len(r.b) && r.b[r.at] == codeNil {
		r.at++
		return true
	}
	return false
}

// Bool reads a boolean.
func (r *Reader) Bool() bool {
	c := r.code()
	if c != codeTrue && c != codeFalse {
		r.Fail()
	}
	return c == codeTrue
}

// Text reads a string, as a part of what the reader reads.
func (r *Reader) Text() []byte {
	c := r.code()
	if c >= codeFixStr && c < codeNil {
		return r.nextBytes(int(c - codeFixStr))
	}
	return r.nextBytes(r.length(c, codeStr8))
}

// Bytes reads bytes, as a part of what the reader reads.
func (r *Reader) Bytes() []byte { return r.nextBytes(r.length(r.code(), codeBin8)) }

// key reads the key of a field: a string, bytes, or nil for an empty one.
func (r *Reader) key() []byte {
	switch r.Kind() {
	case KindBytes:
		return r.Bytes()
	case KindNil:
		r.Nil()
		return nil
	default:
		return r.Text()
	}
}

// length reads a length whose code is one of three, of 8, 16 and 32 bits.
func (r *Reader) length(c, first byte) int {
	if c < first || c > first+2 {
		r.Fail()
		return -1
	}
	return r.bounded(r.readNumber(1 << (c - first)))
}

// bounded returns n, which must not be more than the bytes that are left.
func (r *Reader) bounded(n uint64) int {
	if n > uint64(r.left()) {
		r.Fail()
		return -1
	}
	return int(n)
}

// Array reads the head of an array and returns how many values are in it.
func (r *Reader) Array() int {
	c := r.code()
	if c >= codeFixArray && c < codeFixStr {
		return int(c - codeFixArray)
	}
	return r.readCount(c, codeArray16)
}

// Map reads the head of a map and returns how many entries are in it.
func (r *Reader) Map() int {
	c := r.code()
	if c >= codeFixMap && c < codeFixArray {
		return int(c - codeFixMap)
	}
	return r.readCount(c, codeMap16)
}

// readCount reads a number of values whose code is one of two, of 16 and 32 bits. Each value
// has a byte at least.
func (r *Reader) readCount(c, first byte) int {
	if c < first || c > first+1 {
		r.Fail()
		return 0
	}
	return max(0, r.bounded(r.readNumber(2<<(c-first))))
}

// Ext reads an extension: its type and its bytes, as a part of what the reader reads.
func (r *Reader) Ext() (kind byte, body []byte) {
	c := r.code()
	if c >= codeFixExt1 && c <= codeFixExt16 {
		return r.code(), r.nextBytes(1 << (c - codeFixExt1))
	}
	n := r.length(c, codeExt8)
	return r.code(), r.nextBytes(n)
}

// Raw returns the next value as it is encoded, as a part of what the reader reads.
func (r *Reader) Raw() []byte {
	start := r.at
	r.Skip()
	if r.failed {
		return nil
	}
	return r.b[start:r.at:r.at]
}

// Skip passes over a value.
func (r *Reader) Skip() {
	for left := 1; left > 0 && !r.failed; left-- {
		switch r.Kind() {
		case KindMap:
			left += 2 * r.Map()
		case KindArray:
			left += r.Array()
		case KindString:
			r.Text()
		case KindBytes:
			r.Bytes()
		case KindExt:
			r.Ext()
		case KindInt:
			r.integer()
		case KindFloat:
			r.Float()
		default:
			r.skipCode()
		}
	}
}

// skipCode passes over a value that is its first byte.
func (r *Reader) skipCode() {
	if r.code() == codeNone {
		r.Fail()
	}
}
