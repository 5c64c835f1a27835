package harp

import (
	"bytes"
	"encoding"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"time"

	vmihailenco "github.com/vmihailenco/msgpack/v5"

	"github.com/harpcaller/harp/internal/duration"
	"github.com/harpcaller/harp/internal/msgpack"
)

// valueCodec encodes and decodes the Go values of users. A type that has a way of its own, as
// one with a method MarshalText, is encoded or decoded by github.com/vmihailenco/msgpack,
// which knows these.
var valueCodec = msgpack.Codec{Custom: customWays, FoldCase: true}

func customWays(t reflect.Type) (encode msgpack.EncodeFunc, decode msgpack.DecodeFunc) {
	switch {
	case t == reflect.TypeFor[Value]():
		return encodeInner, decodeInner
	case t == reflect.TypeFor[time.Duration]():
		return nil, decodeDuration
	case t == reflect.TypeFor[msgpack.Sealed]():
		return encodeSealed, nil
	case t == reflect.TypeFor[time.Time](), t.Kind() == reflect.Pointer, t.Kind() == reflect.Interface:
		return nil, nil // the codec knows times; of a pointer it asks for what it points to
	}
	if implements(t, encoders) {
		encode = encodeByLibrary
	}
	if implements(t, decoders) {
		decode = decodeByLibrary
	}
	return encode, decode
}

// implements reports whether t or a pointer to it implements one of some interfaces.
func implements(t reflect.Type, interfaces []reflect.Type) bool {
	return slices.ContainsFunc(interfaces, func(i reflect.Type) bool {
		return t.Implements(i) || reflect.PointerTo(t).Implements(i)
	})
}

var encoders = []reflect.Type{
	reflect.TypeFor[vmihailenco.CustomEncoder](),
	reflect.TypeFor[vmihailenco.Marshaler](),
	reflect.TypeFor[encoding.BinaryMarshaler](),
	reflect.TypeFor[encoding.TextMarshaler](),
}

var decoders = []reflect.Type{
	reflect.TypeFor[vmihailenco.CustomDecoder](),
	reflect.TypeFor[vmihailenco.Unmarshaler](),
	reflect.TypeFor[encoding.BinaryUnmarshaler](),
	reflect.TypeFor[encoding.TextUnmarshaler](),
}

// encodeInner encodes a Value inside another one, where it stands for what it holds.
func encodeInner(b []byte, v reflect.Value) ([]byte, error) {
	if v.Len() == 0 {
		return msgpack.AppendNil(b), nil
	}
	return append(b, v.Bytes()...), nil
}

func decodeInner(raw []byte, v reflect.Value) error {
	v.SetBytes(raw)
	return nil
}

// decodeDuration decodes nanoseconds, or a text as 1m30s: what people type is kept as they
// typed it.
func decodeDuration(raw []byte, v reflect.Value) error {
	r := msgpack.NewReader(raw)
	if r.Kind() == msgpack.KindString {
		d, err := duration.Parse(string(r.Text()))
		v.SetInt(int64(d))
		if err != nil {
			return fmt.Errorf("must be %s", duration.Expected)
		}
		return nil
	}
	kind := r.Kind()
	v.SetInt(r.Int())
	if !r.Done() {
		return fmt.Errorf("%s does not fit %s", kind, v.Type())
	}
	return nil
}

func encodeSealed(b []byte, v reflect.Value) ([]byte, error) {
	return append(b, v.Interface().(msgpack.Sealed).Raw...), nil //nolint:forcetypeassert // its type was looked at
}

// encodeByLibrary encodes a value that has a way of its own, and may panic.
func encodeByLibrary(b []byte, v reflect.Value) (out []byte, err error) {
	defer func() {
		if p := recover(); p != nil {
			out, err = nil, fmt.Errorf("cannot be encoded: %v", p)
		}
	}()
	w := valueWriter{*bytes.NewBuffer(b)}
	enc := vmihailenco.GetEncoder()
	defer vmihailenco.PutEncoder(enc)
	enc.Reset(&w) // forgets the flags
	enc.SetCustomStructTag("json")
	enc.SetSortMapKeys(true)
	enc.UseCompactInts(true)
	if err := enc.EncodeValue(v); err != nil {
		return nil, err
	}
	return w.Bytes(), nil
}

// decodeByLibrary decodes into a value that has a way of its own, and may panic.
func decodeByLibrary(raw []byte, v reflect.Value) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("cannot be decoded: %v", p)
		}
	}()
	dec := vmihailenco.GetDecoder()
	dec.Reset(&valueReader{*bytes.NewReader(raw), msgpack.ExtBodies(raw, msgpack.ValueLimits)})
	dec.SetCustomStructTag("json")
	dec.SetMapDecoder(decodeAnyMap)
	if err := dec.DecodeValue(v); err != nil {
		return err
	}
	vmihailenco.PutDecoder(dec)
	return nil
}

// decodeAnyMap decodes a map into an any as [Value.Any] does.
func decodeAnyMap(dec *vmihailenco.Decoder) (any, error) {
	raw, err := dec.DecodeRaw()
	if err != nil {
		return nil, err
	}
	r := msgpack.NewReader(raw)
	return r.Any(), nil
}

// valueWriter and valueReader mark that a Value is encoded or decoded inside
// another one, where it stands for what it holds, and not inside a message, where
// it is bin.
type (
	valueWriter struct{ bytes.Buffer }
	valueReader struct {
		bytes.Reader
		bodies []msgpack.Span // of exts, that are yet to be read
	}
)

var errExtBody = errors.New("a time or a sealed value is not a map")

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

// The library encodes a Value, which it meets in what a type with a way of its own encodes with
// it, as what it holds. It is told here, as methods would be part of what Value is for.
func init() {
	vmihailenco.Register(Value{}, encodeValueByLibrary, decodeValueByLibrary)
}

func encodeValueByLibrary(enc *vmihailenco.Encoder, field reflect.Value) error {
	v := Value(field.Bytes())
	if _, inside := enc.Writer().(*valueWriter); !inside {
		return enc.EncodeBytes(v)
	}
	if v.IsNil() {
		return enc.EncodeNil()
	}
	return enc.Encode(vmihailenco.RawMessage(v))
}

func decodeValueByLibrary(dec *vmihailenco.Decoder, field reflect.Value) error {
	if code, err := dec.PeekCode(); err == nil && code == nilValue[0] {
		field.SetZero()
		return dec.DecodeNil()
	}
	if _, inside := dec.Buffered().(*valueReader); !inside {
		b, err := dec.DecodeBytes()
		field.SetBytes(b)
		return err
	}
	raw, err := dec.DecodeRaw()
	field.SetBytes(slices.Clone(raw))
	return err
}
