package pack

import (
	"encoding/binary"
	"math"
)

// Reader reads values one after the other. What it cannot read, as it is not there or
// not in its plain form, makes it odd, and then it returns nothing but zeros. It is
// safe on any bytes, but does not look whether a text is UTF-8.
type Reader struct {
	b    []byte
	at   int // of what was not read yet; to move it is cheaper than to cut b
	odd  bool
	kept bool
}

// NewReader returns a reader of b, which must not change while it is read.
func NewReader(b []byte) Reader { return Reader{b: b} }

// NewKeeper returns a reader of b whose Own returns parts of b: nobody else uses that
// any more.
func NewKeeper(b []byte) Reader { return Reader{b: b, kept: true} }

// OK reports whether all was read that was asked for.
func (r *Reader) OK() bool { return !r.odd }

// Done reports whether all was read, and nothing is left.
func (r *Reader) Done() bool { return !r.odd && r.left() == 0 }

// left is how many bytes were not read yet.
func (r *Reader) left() int { return len(r.b) - r.at }

// Fail makes the reader odd.
func (r *Reader) Fail() { r.odd, r.at = true, len(r.b) }

// Peek returns the first byte of the next value, 0xc1, which begins none, at the end.
func (r *Reader) Peek() byte {
	if r.at >= len(r.b) {
		return codeNone
	}
	return r.b[r.at]
}

// take returns the next n bytes.
func (r *Reader) take(n int) []byte {
	if n < 0 || n > r.left() {
		r.Fail()
		return nil
	}
	p := r.b[r.at : r.at+n : r.at+n]
	r.at += n
	return p
}

// number reads an unsigned number of so many bytes.
func (r *Reader) number(size int) uint64 {
	p := r.take(size)
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
	switch c := r.code(); {
	case c <= codePosFix || c >= codeNegFix:
		return int64(int8(c))
	case c >= codeUint8 && c <= codeUint64:
		n := r.number(1 << (c - codeUint8))
		if n > math.MaxInt64 {
			r.Fail()
			return 0
		}
		return int64(n)
	case c >= codeInt8 && c <= codeInt64:
		size := 1 << (c - codeInt8)
		shift := 64 - 8*size
		return int64(r.number(size)) << shift >> shift //nolint:gosec // the sign is the highest bit
	}
	r.Fail()
	return 0
}

// Float reads a float of 64 bits.
func (r *Reader) Float() float64 {
	if r.code() != codeDouble {
		r.Fail()
		return 0
	}
	return math.Float64frombits(r.number(8))
}

// Nil reads nil.
func (r *Reader) Nil() {
	if r.code() != codeNil {
		r.Fail()
	}
}

// Bool reads a truth.
func (r *Reader) Bool() bool {
	c := r.code()
	if c != codeTrue && c != codeFalse {
		r.Fail()
	}
	return c == codeTrue
}

// Text reads a text, as a part of what the reader reads.
func (r *Reader) Text() []byte {
	c := r.code()
	if c >= codeFixStr && c < codeNil {
		return r.take(int(c - codeFixStr))
	}
	return r.take(r.length(c, codeStr8))
}

// Bytes reads bytes, as a part of what the reader reads.
func (r *Reader) Bytes() []byte { return r.take(r.length(r.code(), codeBin8)) }

// Own reads bytes for who keeps them.
func (r *Reader) Own() []byte {
	p := r.Bytes()
	if r.kept || !r.OK() {
		return p
	}
	return append(make([]byte, 0, len(p)), p...)
}

// length reads a length whose code is one of three, of 8, 16 and 32 bits.
func (r *Reader) length(c, first byte) int {
	if c < first || c > first+2 {
		r.Fail()
		return -1
	}
	n := r.number(1 << (c - first))
	if n > uint64(r.left()) { //nolint:gosec // never negative
		r.Fail()
		return -1
	}
	return int(n) //nolint:gosec // bounded
}

// Array reads the head of an array.
func (r *Reader) Array() int {
	c := r.code()
	if c >= codeFixArray && c < codeFixStr {
		return int(c - codeFixArray)
	}
	return r.count(c, codeArray16)
}

// Map reads the head of a map.
func (r *Reader) Map() int {
	c := r.code()
	if c >= codeFixMap && c < codeFixArray {
		return int(c - codeFixMap)
	}
	return r.count(c, codeMap16)
}

// count reads a number of values whose code is one of two, of 16 and 32 bits.
func (r *Reader) count(c, first byte) int {
	if c < first || c > first+1 {
		r.Fail()
		return 0
	}
	n := r.number(2 << (c - first))
	if n > uint64(r.left()) { //nolint:gosec // never negative; each value is a byte at least
		r.Fail()
		return 0
	}
	return int(n) //nolint:gosec // bounded
}

// Skip passes over a value.
func (r *Reader) Skip() {
	for left := 1; left > 0 && !r.odd; left-- {
		c := r.Peek()
		switch {
		case c >= codeFixMap && c < codeFixArray || c == codeMap16 || c == codeMap32:
			left += 2 * r.Map()
		case c >= codeFixArray && c < codeFixStr || c == codeArray16 || c == codeArray32:
			left += r.Array()
		case c >= codeFixStr && c < codeNil || c >= codeStr8 && c <= codeStr32:
			r.Text()
		case c >= codeBin8 && c <= codeBin32:
			r.Bytes()
		default:
			r.skipCoded(r.code())
		}
	}
}

// skipCoded passes over what is behind the code of a value without parts.
func (r *Reader) skipCoded(c byte) {
	switch {
	case c <= codePosFix || c >= codeNegFix || c == codeNil || c == codeFalse || c == codeTrue:
	case c >= codeUint8 && c <= codeUint64:
		r.take(1 << (c - codeUint8))
	case c >= codeInt8 && c <= codeInt64:
		r.take(1 << (c - codeInt8))
	case c == codeFloat:
		r.take(4)
	case c == codeDouble:
		r.take(8)
	case c >= codeFixExt1 && c <= codeFixExt16:
		r.take(1 + 1<<(c-codeFixExt1))
	case c >= codeExt8 && c <= codeExt32:
		r.take(1 + r.length(c, codeExt8))
	default:
		r.Fail()
	}
}
