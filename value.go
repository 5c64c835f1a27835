package harp

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"

	"github.com/vmihailenco/msgpack/v5"
	"github.com/vmihailenco/msgpack/v5/msgpcode"

	"github.com/harpcaller/harp/internal/pack"
	"github.com/harpcaller/harp/transport"
)

// Value is one value as it crosses the wire and lies in the store: raw msgpack.
// The empty Value is nil. Struct fields are named by their json tags, in both
// directions. A Value that came from harp has been validated; the methods of one
// made by hand return ErrInvalid when it is not well formed.
type Value []byte

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

// encodeValue is NewValue for who validates what it returns.
func encodeValue(v any) (Value, error) {
	switch v := v.(type) {
	case nil:
		return nil, nil
	case Value:
		return slices.Clone(v), nil
	}
	if out := encodePlain(v); out != nil {
		return out, nil
	}
	return encodeAny(v)
}

// encodeAny is encodeValue by the library.
func encodeAny(v any) (out Value, err error) {
	defer func() {
		if p := recover(); p != nil { // as of what it knows no encoder for
			out, err = nil, &FieldError{Field: "value", Message: fmt.Sprint("cannot be encoded: ", p)}
		}
	}()
	var b valueWriter
	enc := msgpack.GetEncoder()
	defer msgpack.PutEncoder(enc)
	enc.Reset(&b)
	enc.SetCustomStructTag("json")
	enc.SetSortMapKeys(true)
	enc.UseCompactInts(true)
	if err := enc.Encode(v); err != nil {
		return nil, &FieldError{Field: "value", Message: err.Error()}
	}
	return b.Bytes(), nil
}

// Validate returns ErrInvalid unless v is empty or one well-formed msgpack value
// within the limits of depth and number of elements.
func (v Value) Validate() error {
	if len(v) == 0 {
		return nil
	}
	if err := transport.Validate(v, transport.ValueLimits); err != nil {
		return &FieldError{Field: "value", Message: err.Error()}
	}
	return nil
}

// IsNil reports whether v is empty or msgpack nil.
func (v Value) IsNil() bool { return len(v) == 0 || len(v) == 1 && v[0] == msgpcode.Nil }

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
	if v.decodePlain(into) {
		return nil
	}
	return v.decodeInto(into)
}

// decodeInto is Decode by the library, put right.
func (v Value) decodeInto(into any) error {
	if v.IsNil() {
		v = Value{msgpcode.Nil}
	}
	was, err := v.Any()
	if err == nil {
		err = v.decode(into)
	}
	if err != nil {
		return err
	}
	return fit("value", reflect.ValueOf(into).Elem(), was)
}

// decode lets msgpack decode what was validated. It panics where a key cannot be
// hashed, which only the type it decodes into can tell.
func (v Value) decode(into any) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = &FieldError{Field: "value", Message: fmt.Sprint(p)}
		}
	}()
	dec := msgpack.GetDecoder()
	dec.Reset(&valueReader{*bytes.NewReader(v), transport.ExtBodies(v, transport.ValueLimits)})
	dec.SetCustomStructTag("json")
	dec.SetMapDecoder(decodeAny)
	if err := dec.Decode(into); err != nil {
		return &FieldError{Field: "value", Message: err.Error()}
	}
	msgpack.PutDecoder(dec)
	return nil
}

// valueWriter and valueReader mark that a Value is encoded or decoded inside
// another one, where it stands for what it holds, and not inside a message, where
// it is bin.
type (
	valueWriter struct{ bytes.Buffer }
	valueReader struct {
		bytes.Reader
		bodies []transport.Span // of exts, that are yet to be read
	}
)

var errExtBody = errors.New("a time or a sealed value is no map")

// ReadByte reads what says what comes next, and no part of an ext's body: whoever knows
// what that is reads it by Read. msgpack takes an ext for a map where one is decoded
// into (DecodeMapLen skips the head of any ext): its bytes, which nobody has validated as
// such, may say that there are billions of entries.
func (r *valueReader) ReadByte() (byte, error) {
	at := int(r.Size()) - r.Len()
	for len(r.bodies) > 0 && at >= r.bodies[0].To {
		r.bodies = r.bodies[1:]
	}
	if len(r.bodies) > 0 && at >= r.bodies[0].From {
		return 0, errExtBody
	}
	return r.Reader.ReadByte()
}

// EncodeMsgpack implements msgpack.CustomEncoder.
func (v Value) EncodeMsgpack(enc *msgpack.Encoder) error {
	if _, inside := enc.Writer().(*valueWriter); !inside {
		return enc.EncodeBytes(v)
	}
	if v.IsNil() {
		return enc.EncodeNil()
	}
	return enc.Encode(msgpack.RawMessage(v))
}

// DecodeMsgpack implements msgpack.CustomDecoder.
func (v *Value) DecodeMsgpack(dec *msgpack.Decoder) error {
	if _, inside := dec.Buffered().(*valueReader); !inside {
		b, err := dec.DecodeBytes()
		*v = b
		return err
	}
	raw, err := dec.DecodeRaw()
	*v = Value(slices.Clone(raw))
	return err
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
	dec := msgpack.NewDecoder(bytes.NewReader(v))
	got, err := decodeAny(dec)
	if err != nil {
		return nil, &FieldError{Field: "value", Message: err.Error()}
	}
	return got, nil
}

func decodeAny(dec *msgpack.Decoder) (any, error) {
	c, err := dec.PeekCode()
	if err != nil {
		return nil, err
	}
	switch {
	case isMap(c):
		return decodeAnyMap(dec)
	case isArray(c):
		return decodeAnyArray(dec)
	case c == msgpcode.Uint64:
		n, err := dec.DecodeUint64()
		if n > math.MaxInt64 {
			return n, err
		}
		return int64(n), err
	case msgpcode.IsFixedNum(c), c >= msgpcode.Uint8 && c <= msgpcode.Int64:
		return dec.DecodeInt64()
	case c == msgpcode.Float, c == msgpcode.Double:
		return dec.DecodeFloat64()
	case msgpcode.IsExt(c):
		return decodeAnyExt(dec)
	}
	return dec.DecodeInterface()
}

func decodeAnyMap(dec *msgpack.Decoder) (any, error) {
	n, err := dec.DecodeMapLen()
	if err != nil {
		return nil, err
	}
	m := make(map[string]any, n)
	for range n {
		k, err := decodeAny(dec)
		if err != nil {
			return nil, err
		}
		key, ok := k.(string)
		if !ok {
			key = fmt.Sprint(k)
		}
		if m[key], err = decodeAny(dec); err != nil {
			return nil, err
		}
	}
	return m, nil
}

func decodeAnyArray(dec *msgpack.Decoder) (any, error) {
	n, err := dec.DecodeArrayLen()
	if err != nil {
		return nil, err
	}
	list := make([]any, n)
	for i := range list {
		if list[i], err = decodeAny(dec); err != nil {
			return nil, err
		}
	}
	return list, nil
}

// sealed is a value of the reserved ext type, which only its addressee can open,
// as it is encoded.
type sealed struct{ raw string }

// String hides it.
func (sealed) String() string { return "***" }

// MarshalJSON hides it.
func (sealed) MarshalJSON() ([]byte, error) { return []byte(`"***"`), nil }

// EncodeMsgpack implements msgpack.CustomEncoder.
func (s sealed) EncodeMsgpack(enc *msgpack.Encoder) error {
	return enc.Encode(msgpack.RawMessage(s.raw))
}

func decodeAnyExt(dec *msgpack.Decoder) (any, error) {
	raw, err := dec.DecodeRaw()
	if err != nil {
		return nil, err
	}
	id, _, err := msgpack.NewDecoder(bytes.NewReader(raw)).DecodeExtHeader()
	if err != nil {
		return nil, err
	}
	if id == transport.SealedExt {
		return sealed{string(raw)}, nil
	}
	t, err := msgpack.NewDecoder(bytes.NewReader(raw)).DecodeTime()
	return t.UTC(), err
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
// queue names and requests are compared. Errors: ErrInvalid.
func (v Value) Canonical() (Value, error) {
	got, err := v.Any()
	if err != nil || got == nil {
		return nil, err
	}
	return NewValue(wholeFloats(got))
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
	if len(v) == 0 || !isMap(v[0]) {
		return false
	}
	r := pack.NewReader(v)
	for range r.Map() {
		r.Text()
		r.Skip()
	}
	return r.Done()
}

// isArray reports whether the value is one.
func (v Value) isArray() bool { return len(v) > 0 && isArray(v[0]) }

func isMap(c byte) bool { return msgpcode.IsFixedMap(c) || c == msgpcode.Map16 || c == msgpcode.Map32 }

func isArray(c byte) bool {
	return msgpcode.IsFixedArray(c) || c == msgpcode.Array16 || c == msgpcode.Array32
}
