package transport

import (
	"encoding/binary"
	"strconv"
	"unicode/utf8"
)

// SealedExt is the msgpack ext type of a sealed value, 'S'. It is reserved and
// passes unopened.
const SealedExt = 0x53

// timeExt is the msgpack ext type of a time, -1.
const timeExt = 0xff

// maxDepth is the deepest nesting any Limits can allow; it fixes the size of the
// validator's stack.
const maxDepth = 64

// Limits bound what [Validate] accepts.
type Limits struct {
	Depth    int  // containers inside each other, at most 64
	Elements int  // values inside containers, all together; a map entry counts as two
	Ext      bool // whether a time (-1) and a sealed value ([SealedExt]) may occur
}

var (
	// ProtocolLimits are the limits of every body of a frame.
	ProtocolLimits = Limits{Depth: 32, Elements: 4096}
	// ValueLimits are the limits of a user's value, which travels as bin inside a body.
	ValueLimits = Limits{Depth: 32, Elements: 262144, Ext: true}
)

// FormatError says where and why bytes were refused. It is an [ErrMalformed].
type FormatError struct {
	Offset int    // of the value that was refused
	Reason string // one of a fixed set; holds nothing of the input
}

func (e *FormatError) Error() string {
	return "transport: malformed message: " + e.Reason + " at byte " + strconv.Itoa(e.Offset)
}

// Is reports whether target is [ErrMalformed].
func (e *FormatError) Is(target error) bool { return target == ErrMalformed }

// Why Validate refuses.
const (
	reasonEmpty     = "no value"
	reasonTruncated = "value is cut short"
	reasonTrailing  = "bytes after the value"
	reasonCode      = "code 0xc1"
	reasonLength    = "length exceeds the message"
	reasonDepth     = "nested too deep"
	reasonElements  = "too many elements"
	reasonUTF8      = "string is not UTF-8"
	reasonExt       = "ext type is not allowed"
	reasonTime      = "ext is not a time"
)

// Validate reports whether b is exactly one msgpack value within l, so that a
// decoder can be trusted with it: nothing is longer or more than it says, nests
// deeper or holds more elements than l allows, strings are UTF-8, and only the
// ext types l allows occur. It allocates nothing unless it refuses.
//
// The error is a [*FormatError].
func Validate(b []byte, l Limits) error {
	v := validator{b: b, budget: l.Elements, depth: min(l.Depth, maxDepth), ext: l.Ext}
	if reason := v.run(); reason != "" {
		return &FormatError{Offset: v.at, Reason: reason}
	}
	return nil
}

// Span is a part of some bytes: from one to before another.
type Span struct{ From, To int }

// ExtBodies returns where in b, a value that is valid within l, the bytes of times and of
// sealed values lie, behind what says that they are such.
func ExtBodies(b []byte, l Limits) []Span {
	var found []Span
	v := validator{b: b, budget: l.Elements, depth: min(l.Depth, maxDepth), ext: l.Ext, found: &found}
	v.run()
	return found
}

// validator walks one value. left holds, for each open container but the innermost,
// how many values it still lacks.
type validator struct {
	b      []byte
	at     int // start of the value in hand
	next   int // first byte not read
	budget int // elements that may still be declared
	depth  int
	ext    bool
	found  *[]Span // gets the bodies of exts; nil: nobody asks
	inside int     // how many values the value in hand holds; 0: it is no container, or empty
	open   int
	left   [maxDepth]uint32
}

// run returns why the bytes are refused, "" when they are not.
func (v *validator) run() string {
	if len(v.b) == 0 {
		return reasonEmpty
	}
	for left := uint32(1); ; { // of the innermost container
		for left == 0 {
			if v.open == 0 {
				return v.trailing()
			}
			v.open--
			left = v.left[v.open]
		}
		left--
		v.at = v.next
		if v.at >= len(v.b) {
			return reasonTruncated
		}
		c := v.b[v.at]
		v.next++
		if c <= 0x7f || c >= 0xe0 {
			continue
		}
		if reason := v.value(c); reason != "" {
			return reason
		}
		if v.inside > 0 {
			v.left[v.open] = left
			v.open++
			left, v.inside = uint32(v.inside), 0 //nolint:gosec // within the bytes that are there, at most maxDeclared
		}
	}
}

// trailing refuses what is behind the value.
func (v *validator) trailing() string {
	if v.next < len(v.b) {
		v.at = v.next
		return reasonTrailing
	}
	return ""
}

// value reads a value behind its first byte, which is no integer's, of a container
// only the head.
func (v *validator) value(c byte) string {
	switch {
	case c <= 0x8f:
		return v.container(2 * int(c&0x0f))
	case c <= 0x9f:
		return v.container(int(c & 0x0f))
	case c <= 0xbf:
		return v.text(int(c & 0x1f))
	}
	return v.coded(c)
}

// coded reads a value whose first byte, 0xc0 to 0xdf, is only its kind.
func (v *validator) coded(c byte) string {
	k := kinds[c-0xc0]
	n := k.size
	if k.prefix > 0 {
		declared, ok := v.length(k.prefix)
		if !ok {
			return reasonTruncated
		}
		n = declared
	}
	switch k.form {
	case formScalar:
		return v.skip(n)
	case formText:
		return v.text(n)
	case formArray:
		return v.container(n)
	case formMap:
		return v.container(2 * n)
	case formExt:
		return v.extension(n)
	case formNone:
	}
	return reasonCode
}

// maxDeclared keeps twice a declared length within an int of 32 bits.
const maxDeclared = 1 << 30

// length reads a big endian length of size bytes, -1 for one no message has.
func (v *validator) length(size int) (n int, ok bool) {
	if len(v.b)-v.next < size {
		return 0, false
	}
	p := v.b[v.next:]
	v.next += size
	switch size {
	case 1:
		return int(p[0]), true
	case 2:
		return int(binary.BigEndian.Uint16(p)), true
	}
	if long := binary.BigEndian.Uint32(p); long <= maxDeclared {
		return int(long), true
	}
	return -1, true
}

func (v *validator) skip(n int) string {
	if n < 0 || n > len(v.b)-v.next {
		return reasonLength
	}
	v.next += n
	return ""
}

func (v *validator) text(n int) string {
	start := v.next
	if reason := v.skip(n); reason != "" {
		return reason
	}
	if !utf8.Valid(v.b[start:v.next]) {
		return reasonUTF8
	}
	return ""
}

// container opens an array or map of n values. Each value is at least one byte.
func (v *validator) container(n int) string {
	switch {
	case n < 0 || n > len(v.b)-v.next:
		return reasonLength
	case n > v.budget:
		return reasonElements
	case v.open >= v.depth:
		return reasonDepth
	}
	v.budget -= n
	v.inside = n
	return ""
}

func (v *validator) extension(n int) string {
	if v.next >= len(v.b) {
		return reasonTruncated
	}
	kind := v.b[v.next]
	if !v.ext || (kind != timeExt && kind != SealedExt) {
		return reasonExt
	}
	v.next++
	start := v.next
	if reason := v.skip(n); reason != "" {
		return reason
	}
	if kind == timeExt && !isTime(v.b[start:v.next]) {
		return reasonTime
	}
	if v.found != nil {
		*v.found = append(*v.found, Span{start, v.next})
	}
	return ""
}

// isTime reports whether p is one of the three forms of a time, its nanoseconds
// below one second.
func isTime(p []byte) bool {
	const second = 1_000_000_000
	switch len(p) {
	case 4:
		return true
	case 8:
		return binary.BigEndian.Uint64(p)>>34 < second
	case 12:
		return binary.BigEndian.Uint32(p) < second
	}
	return false
}

type form uint8

const (
	formNone form = iota // 0xc1, never used
	formScalar
	formText
	formArray
	formMap
	formExt
)

// kinds describes the codes 0xc0 to 0xdf: how many bytes of length follow, or
// how many bytes the value has without one.
var kinds = [32]struct {
	form   form
	prefix int
	size   int
}{
	0x00: {form: formScalar},            // nil
	0x02: {form: formScalar},            // false
	0x03: {form: formScalar},            // true
	0x04: {form: formScalar, prefix: 1}, // bin 8
	0x05: {form: formScalar, prefix: 2},
	0x06: {form: formScalar, prefix: 4},
	0x07: {form: formExt, prefix: 1}, // ext 8
	0x08: {form: formExt, prefix: 2},
	0x09: {form: formExt, prefix: 4},
	0x0a: {form: formScalar, size: 4}, // float 32
	0x0b: {form: formScalar, size: 8},
	0x0c: {form: formScalar, size: 1}, // uint 8
	0x0d: {form: formScalar, size: 2},
	0x0e: {form: formScalar, size: 4},
	0x0f: {form: formScalar, size: 8},
	0x10: {form: formScalar, size: 1}, // int 8
	0x11: {form: formScalar, size: 2},
	0x12: {form: formScalar, size: 4},
	0x13: {form: formScalar, size: 8},
	0x14: {form: formExt, size: 1}, // fixext 1
	0x15: {form: formExt, size: 2},
	0x16: {form: formExt, size: 4},
	0x17: {form: formExt, size: 8},
	0x18: {form: formExt, size: 16},
	0x19: {form: formText, prefix: 1}, // str 8
	0x1a: {form: formText, prefix: 2},
	0x1b: {form: formText, prefix: 4},
	0x1c: {form: formArray, prefix: 2}, // array 16
	0x1d: {form: formArray, prefix: 4},
	0x1e: {form: formMap, prefix: 2}, // map 16
	0x1f: {form: formMap, prefix: 4},
}
