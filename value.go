package harp

import (
	"errors"
	"math"
	"slices"
	"sync"

	"github.com/harpcaller/harp/internal/msgpack"
)

// Value is one value as it crosses the wire and lies in the store: raw msgpack.
// The empty Value is nil. Struct fields are named by their json tags, in both
// directions. A Value that came from harp has been validated; the methods of one
// made by hand return ErrInvalid when it is not well formed.
type Value []byte

// nilValue is nil, encoded.
var nilValue = Value(msgpack.AppendNil(nil))

// MaxDepth is how deep a Value may nest.
const MaxDepth = 32

// NewValue encodes v, which must not contain itself. Integers take their shortest
// form; a Value inside v becomes what it holds. The keys of maps may come in any
// order: [Value.Canonical] is for comparing. Errors: ErrInvalid when v holds what no
// Value can, as a channel or a map nested deeper than MaxDepth.
func NewValue(v any) (Value, error) {
	out, err := encodeValue(v)
	if err == nil {
		err = out.Validate()
	}
	return out, err
}

// encodeValue is NewValue for a caller that validates what it returns.
func encodeValue(v any) (Value, error) {
	if v, ok := v.(Value); ok {
		return slices.Clone(v), nil
	}
	if v == nil {
		return nil, nil
	}
	buf := valueBuffers.Get().(*[]byte) //nolint:forcetypeassert // nothing else is there
	defer valueBuffers.Put(buf)
	b, err := valueCodec.Append((*buf)[:0], v)
	if err != nil {
		return nil, &FieldError{Field: "value", Message: err.Error()}
	}
	if cap(b) <= maxValueBuffer {
		*buf = b
	}
	return slices.Clone(b), nil
}

// valueBuffers are what values are encoded into before it is known how long they get.
var valueBuffers = sync.Pool{New: func() any { return new([]byte) }}

// maxValueBuffer is the longest buffer that is kept for the next value.
const maxValueBuffer = 64 << 10

// Validate returns ErrInvalid unless v is empty or one well-formed msgpack value
// within the limits of depth and number of elements.
func (v Value) Validate() error {
	if len(v) == 0 {
		return nil
	}
	if err := msgpack.Validate(v, msgpack.ValueLimits); err != nil {
		return &FieldError{Field: "value", Message: err.Error()}
	}
	return nil
}

// IsNil reports whether v is empty or msgpack nil.
func (v Value) IsNil() bool { return len(v) == 0 || len(v) == 1 && v[0] == nilValue[0] }

// Decode stores the value in the variable that into points to, whose type decides
// how; see [Value.Any] for what an `any` gets. Errors: ErrInvalid when v does not
// fit, as a string into an int, a time into a map or 300 into an int8.
func (v Value) Decode(into any) error {
	if p, ok := into.(*any); ok {
		got, err := v.Any()
		if err == nil {
			*p = got
		}
		return err
	}
	if p, ok := into.(*Value); ok {
		*p = slices.Clone(v)
		return v.Validate()
	}
	if err := v.Validate(); err != nil {
		return err
	}
	if v.IsNil() {
		v = nilValue
	}
	err := valueCodec.Decode(v, into)
	if err == nil {
		return nil
	}
	var misfit *msgpack.DecodeError
	if !errors.As(err, &misfit) {
		return &FieldError{Field: "value", Message: err.Error()}
	}
	return &FieldError{Field: "value" + misfit.Path, Message: misfit.Err.Error()}
}

// Any returns the value as nil, bool, int64 (uint64 only above the largest
// int64), float64, string, []byte, time.Time in UTC, []any or map[string]any.
// Map keys of other types are written as strings; what is sealed stays sealed, and
// only NewValue knows what to do with it. Errors: ErrInvalid.
func (v Value) Any() (any, error) {
	if v.IsNil() {
		return nil, nil
	}
	if err := v.Validate(); err != nil {
		return nil, err
	}
	r := msgpack.NewReader(v)
	return r.Any(), nil
}

// String returns the value as JSON, for people; an invalid Value as its error.
func (v Value) String() string {
	text, err := v.MarshalJSON()
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// Canonical returns the one encoding that all equal values share: map keys sorted
// and strings, integers shortest, floats without fraction as integers. It is how
// queue names and requests are compared. Errors: ErrInvalid, also where a map holds a key
// twice.
func (v Value) Canonical() (Value, error) {
	got, err := v.Any()
	if err != nil || got == nil {
		return nil, err
	}
	c, err := NewValue(wholeFloats(got))
	if err == nil && c.countEntries() != v.countEntries() {
		return nil, &FieldError{Field: "value", Message: "holds a key twice"}
	}
	return c, err
}

// countEntries is how many entries all maps of a valid value have.
func (v Value) countEntries() int {
	r := msgpack.NewReader(v)
	return countEntries(&r)
}

func countEntries(r *msgpack.Reader) int {
	n := 0
	switch r.Kind() {
	case msgpack.KindArray:
		for range r.Array() {
			n += countEntries(r)
		}
	case msgpack.KindMap:
		for range r.Map() {
			n += 1 + countEntries(r) + countEntries(r)
		}
	default:
		r.Skip()
	}
	return n
}

func wholeFloats(v any) any {
	switch v := v.(type) {
	case float64:
		switch {
		case math.IsNaN(v):
			return math.NaN() // of all its bit patterns one
		case v != math.Trunc(v):
		case v >= -(1<<63) && v < 1<<63:
			return int64(v)
		case v >= 1<<63 && v < 1<<64:
			return uint64(v)
		}
	case []any:
		for i := range v {
			v[i] = wholeFloats(v[i])
		}
	case map[string]any:
		for k := range v {
			v[k] = wholeFloats(v[k])
		}
	}
	return v
}

// isNamed reports whether the value, which is valid, is a map whose keys are all
// strings.
func (v Value) isNamed() bool {
	r := msgpack.NewReader(v)
	for range r.Map() {
		r.Text()
		r.Skip()
	}
	return r.Done()
}

// isArray reports whether the value is one.
func (v Value) isArray() bool {
	r := msgpack.NewReader(v)
	return r.Kind() == msgpack.KindArray
}
