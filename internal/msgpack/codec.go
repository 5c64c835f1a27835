// Package msgpack is harp's codec: it appends values to bytes and reads them from bytes one
// by one (AppendInt, [Reader]), looks at bytes from outside before anything else does
// ([Validate]), and encodes and decodes Go values ([Codec]).
//
// Structs are maps whose keys are the names of the fields' msgpack tags, or of their json
// tags, or the fields' own. The options of a tag are those of
// github.com/vmihailenco/msgpack: omitempty, inline, noinline, alias, and as_array of a
// field _msgpack. What is written is, byte for byte, what that library writes with compact
// integers and sorted keys. With the option grows of that field an array may lack the last fields, which
// are zero then.
package msgpack

import (
	"fmt"
	"reflect"
	"sync"
	"sync/atomic"
)

// Codec encodes and decodes Go values. It compiles a plan for each type when it first meets
// it. A Codec must not be copied, or changed after its first use.
type Codec struct {
	// Custom returns how a type is encoded or decoded that has a way of its own. Where a
	// function is nil, the type is encoded or decoded by what it is made of. Custom may be nil.
	Custom func(reflect.Type) (EncodeFunc, DecodeFunc)
	// FoldCase takes a key for a field that differs from it in its case alone, as package
	// encoding/json does, where no other has it.
	FoldCase bool
	// Message says that what is encoded is a message or a row of harp's own and not a user's
	// value. Strings are UTF-8: U+FFFD is written in place of what is not, and what is not is
	// refused. A time is an integer, as [Nanos] makes it.
	Message bool

	plans atomic.Pointer[map[reflect.Type]*plan] // replaced when there are more; few types are met

	mu       sync.Mutex             // guards the compilation that is going on
	made     map[reflect.Type]*plan // plans, some of which lack their parts until the outermost is made
	inlining []reflect.Type         // embedded structs, one inside the other
}

// EncodeFunc appends the encoding of v, which can be addressed but must not be changed, to b.
type EncodeFunc func(b []byte, v reflect.Value) ([]byte, error)

// DecodeFunc decodes a value, other than nil, into v, which can be set. It may keep the bytes.
type DecodeFunc func(raw []byte, v reflect.Value) error

// maxElements is how many values a list or map that is decoded may hold, all together.
const maxElements = 262144

// maxDepth is the deepest nesting that is validated, encoded or decoded.
const maxDepth = 64

// Append appends the encoding of v to b. Errors: what a Codec cannot encode, as a channel, a
// value that contains itself, or what a function of Custom returned; b is then as it was.
func (c *Codec) Append(b []byte, v any) (out []byte, err error) {
	defer func() {
		if p := recover(); p != nil {
			failed, ok := p.(encodeError)
			if !ok {
				panic(p)
			}
			out, err = b, failed.error
		}
	}()
	return encoding{codec: c}.any(b, v), nil
}

// Decode decodes one value from b into what into points to. It costs a bounded amount of
// memory for each byte, but bytes from outside that are to be decoded into an any, into a
// type that holds itself, or by a function of Custom, must have been accepted by [Validate]
// first, which bounds how deep they nest.
//
// Struct fields and map entries that b does not mention stay as they are; keys that a struct
// does not have are passed over; of a key that comes twice, which Validate refuses, the last counts; nil makes
// anything zero. A number that does not fit its Go type is refused.
//
// The error is a [*DecodeError]; into may then hold a part of the value.
func (c *Codec) Decode(b []byte, into any) error { return c.decodeInto(b, into, false) }

// DecodeShared is Decode for a caller that does not use b any more: byte slices are parts
// of b.
func (c *Codec) DecodeShared(b []byte, into any) error { return c.decodeInto(b, into, true) }

func (c *Codec) decodeInto(b []byte, into any, share bool) error {
	to := reflect.ValueOf(into)
	if to.Kind() != reflect.Pointer || to.IsNil() {
		return &DecodeError{Err: fmt.Errorf("cannot decode into %T", into)}
	}
	d := decoders.Get().(*decoder) //nolint:forcetypeassert // nothing else is there
	d.Reader, d.codec, d.share, d.room = NewReader(b), c, share, maxElements
	c.planOf(to.Type().Elem()).decode(d, to.UnsafePointer())
	err := d.finishDecoding()
	decoders.Put(d)
	return err
}

// decoders are used again: the functions of a plan let them escape.
var decoders = sync.Pool{New: func() any { return new(decoder) }}

// DecodeError is a value that does not fit the Go value it was decoded into. It is an
// [ErrMalformed].
type DecodeError struct {
	Path string // of what does not fit, as ".name[3]"; "": the value itself
	Err  error
}

func (e *DecodeError) Error() string { return "decode" + e.Path + ": " + e.Err.Error() }

// Unwrap returns the reason.
func (e *DecodeError) Unwrap() error { return e.Err }

// Is reports whether target is [ErrMalformed].
func (e *DecodeError) Is(target error) bool { return target == ErrMalformed }
