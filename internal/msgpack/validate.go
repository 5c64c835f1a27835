package msgpack

import (
	"encoding/binary"
	"errors"
	"strconv"
	"sync"
	"unicode/utf8"
)

// SealedExt is the msgpack ext type of a sealed value, 'S'. It is reserved and
// passes unopened.
const SealedExt = 0x53

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
	ValueLimits = Limits{Depth: 32, Elements: maxElements, Ext: true}
)

// ErrMalformed is bytes that are not one msgpack value within its limits, or that do not
// fit the Go value they are decoded into.
var ErrMalformed = errors.New("malformed message")

// FormatError says where and why bytes were refused. It is an [ErrMalformed].
type FormatError struct {
	Offset int    // of the value that was refused
	Reason string // one of a fixed set; holds nothing of the input
}

func (e *FormatError) Error() string {
	return "malformed message: " + e.Reason + " at byte " + strconv.Itoa(e.Offset)
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
	reasonDuplicate = "key of a map comes twice"
)

// Validate reports whether b is exactly one msgpack value within l, so that a
// decoder can be trusted with it: nothing is longer or more than it says, nests
// deeper or holds more elements than l allows, strings are UTF-8, no key of a map comes
// twice, and only the ext types l allows occur. It allocates next to nothing
// unless it refuses.
//
// The error is a [*FormatError].
func Validate(b []byte, l Limits) error {
	v := newValidator(b, l)
	defer v.release()
	if reason := v.validate(); reason != "" {
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
	v := newValidator(b, l)
	defer v.release()
	v.found = &found
	v.validate()
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
	isMap  bool    // the container in hand is a map
	open   int
	left   [maxDepth]uint32
	maps   [maxDepth]int32 // for each open container but the innermost, the place of a map's first key in keys; -1: it is none
	keys   []Span          // of open maps, those of the innermost last
}

// validators are used again for the room that they have for keys.
var validators = sync.Pool{New: func() any { return &validator{keys: make([]Span, 0, 32)} }}

func newValidator(b []byte, l Limits) *validator {
	v := validators.Get().(*validator) //nolint:forcetypeassert // nothing else is there
	v.b, v.at, v.next, v.budget, v.depth, v.ext, v.open, v.keys = b, 0, 0, l.Elements, min(l.Depth, maxDepth), l.Ext, 0, v.keys[:0]
	v.inside, v.isMap = 0, false
	return v
}

// release lets the validator be used again, unless it has room for very many keys.
func (v *validator) release() {
	v.b, v.found = nil, nil
	if cap(v.keys) <= 4096 {
		validators.Put(v)
	}
}

// validate returns why the bytes are refused, "" when they are not.
func (v *validator) validate() string {
	if len(v.b) == 0 {
		return reasonEmpty
	}
	left, first := uint32(1), int32(-1) // of the innermost container
	for {
		for left == 0 {
			if v.open == 0 {
				return v.trailing()
			}
			if first >= 0 && v.hasDuplicates(first) {
				return reasonDuplicate
			}
			v.open--
			left, first = v.left[v.open], v.maps[v.open]
		}
		left--
		v.at = v.next
		if v.at >= len(v.b) {
			return reasonTruncated
		}
		if first >= 0 {
			v.noteKey(left%2 == 1)
		}
		c := v.b[v.at]
		v.next++
		if c <= codePosFix || c >= codeNegFix {
			continue
		}
		if reason := v.checkValue(c); reason != "" {
			return reason
		}
		if v.inside > 0 {
			v.left[v.open], v.maps[v.open] = left, first
			v.open++
			left, first, v.inside = uint32(v.inside), -1, 0 //nolint:gosec // within the bytes that are there, at most maxDeclared
			if v.isMap {
				first = int32(len(v.keys)) //nolint:gosec // likewise
			}
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

// checkValue reads a value behind its first byte, which is no integer's, of a container
// only the head.
func (v *validator) checkValue(c byte) string {
	switch {
	case c < codeFixArray:
		return v.container(2*int(c&0x0f), true)
	case c < codeFixStr:
		return v.container(int(c&0x0f), false)
	case c < codeNil:
		return v.checkText(int(c & 0x1f))
	}
	return v.coded(c)
}

// coded reads a value whose first byte, 0xc0 to 0xdf, is only its code.
func (v *validator) coded(c byte) string {
	shape := shapes[c-codeNil]
	n := shape.size
	if shape.prefix > 0 {
		declared, ok := v.length(shape.prefix)
		if !ok {
			return reasonTruncated
		}
		n = declared
	}
	switch shape.kind {
	case KindNone:
		return reasonCode
	case KindString:
		return v.checkText(n)
	case KindArray:
		return v.container(n, false)
	case KindMap:
		return v.container(2*n, true)
	case KindExt:
		return v.extension(n)
	default:
		return v.skip(n)
	}
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

func (v *validator) checkText(n int) string {
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
func (v *validator) container(n int, isMap bool) string {
	switch {
	case n < 0 || n > len(v.b)-v.next:
		return reasonLength
	case n > v.budget:
		return reasonElements
	case v.open >= v.depth:
		return reasonDepth
	}
	v.budget -= n
	v.inside, v.isMap = n, isMap
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

// shapes describes the codes 0xc0 to 0xdf: what the value is, how many bytes its length
// has that follow, or how many bytes the value has without one.
var shapes = [32]struct {
	kind   Kind
	prefix int
	size   int
}{
	0x00: {kind: KindNil},
	0x02: {kind: KindBool}, // false
	0x03: {kind: KindBool}, // true
	0x04: {kind: KindBytes, prefix: 1},
	0x05: {kind: KindBytes, prefix: 2},
	0x06: {kind: KindBytes, prefix: 4},
	0x07: {kind: KindExt, prefix: 1},
	0x08: {kind: KindExt, prefix: 2},
	0x09: {kind: KindExt, prefix: 4},
	0x0a: {kind: KindFloat, size: 4},
	0x0b: {kind: KindFloat, size: 8},
	0x0c: {kind: KindInt, size: 1}, // without a sign
	0x0d: {kind: KindInt, size: 2},
	0x0e: {kind: KindInt, size: 4},
	0x0f: {kind: KindInt, size: 8},
	0x10: {kind: KindInt, size: 1}, // with a sign
	0x11: {kind: KindInt, size: 2},
	0x12: {kind: KindInt, size: 4},
	0x13: {kind: KindInt, size: 8},
	0x14: {kind: KindExt, size: 1}, // without a prefix
	0x15: {kind: KindExt, size: 2},
	0x16: {kind: KindExt, size: 4},
	0x17: {kind: KindExt, size: 8},
	0x18: {kind: KindExt, size: 16},
	0x19: {kind: KindString, prefix: 1},
	0x1a: {kind: KindString, prefix: 2},
	0x1b: {kind: KindString, prefix: 4},
	0x1c: {kind: KindArray, prefix: 2},
	0x1d: {kind: KindArray, prefix: 4},
	0x1e: {kind: KindMap, prefix: 2},
	0x1f: {kind: KindMap, prefix: 4},
}
