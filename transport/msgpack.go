package transport

import (
	"bytes"
	"fmt"
	"sync"

	"github.com/vmihailenco/msgpack/v5"
)

// Marshal returns v as msgpack: integers in their shortest form, structs as
// maps, the keys of a map[string]any, map[string]string or map[string]bool
// sorted. A field is omitted when empty if its tag says so.
//
// The error is the encoder's, for a v with a part that has no msgpack form, such
// as a channel or a function.
func Marshal(v any) ([]byte, error) {
	buf := buffers.Get().(*bytes.Buffer)
	defer putBuffer(buf)
	enc := msgpack.GetEncoder()
	enc.Reset(buf) // forgets the flags
	enc.UseCompactInts(true)
	enc.SetSortMapKeys(true)
	err := enc.Encode(v)
	msgpack.PutEncoder(enc)
	if err != nil {
		return nil, fmt.Errorf("transport: encode: %w", err)
	}
	return bytes.Clone(buf.Bytes()), nil
}

// Unmarshal validates b and then decodes it into v, which must be a pointer.
// Fields that v does not have are ignored.
//
// Integers are cut silently to the size of a smaller field: use int64 and uint64
// and check the range where they are narrowed.
//
// The error is an [ErrMalformed]: a [*FormatError] when b is not valid, else a
// [*DecodeError].
func Unmarshal(b []byte, v any, l Limits) error {
	if err := Validate(b, l); err != nil {
		return err
	}
	return decode(b, v)
}

// decode decodes validated bytes. The decoder panics where a key cannot be
// hashed, which only the type it decodes into can tell.
func decode(b []byte, v any) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = &DecodeError{Err: fmt.Errorf("%v", p)}
		}
	}()
	dec := msgpack.GetDecoder()
	dec.Reset(bytes.NewReader(b)) // forgets the flags; none is wanted
	if err := dec.Decode(v); err != nil {
		return &DecodeError{Err: err}
	}
	msgpack.PutDecoder(dec)
	return nil
}

// DecodeError is a valid message that does not fit the Go value it was decoded
// into. It is an [ErrMalformed].
type DecodeError struct{ Err error }

func (e *DecodeError) Error() string { return "transport: decode: " + e.Err.Error() }

// Unwrap returns the decoder's error.
func (e *DecodeError) Unwrap() error { return e.Err }

// Is reports whether target is [ErrMalformed].
func (e *DecodeError) Is(target error) bool { return target == ErrMalformed }

// buffers are what Marshal encodes into before it knows the length.
var buffers = sync.Pool{New: func() any { return new(bytes.Buffer) }}

// maxPooled is the largest buffer kept for the next message.
const maxPooled = 64 << 10

func putBuffer(buf *bytes.Buffer) {
	if buf.Cap() > maxPooled {
		return
	}
	buf.Reset()
	buffers.Put(buf)
}
