package wire

import (
	"cmp"
	"encoding/json"
	"errors"
	"reflect"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/msgpack"
)

// nounWays returns how the types are encoded and decoded of which a message holds more than
// their bytes say.
func nounWays(t reflect.Type) (msgpack.EncodeFunc, msgpack.DecodeFunc) {
	switch t {
	case reflect.TypeFor[harp.Value]():
		return nil, decodeValue
	case reflect.TypeFor[json.RawMessage]():
		return nil, decodeJSON
	case reflect.TypeFor[error]():
		return encodeError, decodeError
	case reflect.TypeFor[Enclosed]():
		return encodeEnclosed, decodeEnclosed
	}
	return nil, nil
}

func decodeValue(raw []byte, v reflect.Value) error {
	value, err := decodeBytes(raw)
	if err == nil {
		err = validate(value)
	}
	v.SetBytes(value)
	return err
}

// validate returns what is wrong with a value. It is wrong with the message and not with a
// field of a request, which harp.ErrInvalid would say.
func validate(value harp.Value) error {
	if err := value.Validate(); err != nil {
		return &msgpack.DecodeError{Err: errors.New(err.Error())}
	}
	return nil
}

func decodeJSON(raw []byte, v reflect.Value) error {
	text, err := decodeBytes(raw)
	if err == nil && len(text) > 0 && !json.Valid(text) {
		err = errors.New("is not JSON")
	}
	v.SetBytes(text)
	return err
}

// decodeBytes returns a part of raw, nil of no bytes.
func decodeBytes(raw []byte) ([]byte, error) {
	r := msgpack.NewReader(raw)
	if r.Kind() != msgpack.KindBytes {
		return nil, errors.New("is " + r.Kind().String() + ", must be bytes")
	}
	b := r.Bytes()
	if len(b) == 0 {
		return nil, nil
	}
	return b, nil
}

// failureCodec is the codec of what an error is encoded as.
var failureCodec = msgpack.Codec{Message: true, Custom: func(t reflect.Type) (msgpack.EncodeFunc, msgpack.DecodeFunc) {
	if t == reflect.TypeFor[harp.Value]() {
		return nil, decodeValue
	}
	return nil, nil
}}

// encodeError encodes an error as its harp.Failure.
func encodeError(b []byte, v reflect.Value) ([]byte, error) {
	f := harp.FailureOf(v.Interface().(error)) //nolint:forcetypeassert // its type was looked at
	return failureCodec.Append(b, &f)
}

func decodeError(raw []byte, v reflect.Value) error {
	var f harp.Failure
	if err := failureCodec.Decode(raw, &f); err != nil {
		return err
	}
	f.Code = cmp.Or(f.Code, "internal") // without a code it would be no error
	limitFailure(&f)
	v.Set(reflect.ValueOf(f.Err()))
	return nil
}

func encodeEnclosed(b []byte, v reflect.Value) ([]byte, error) {
	failure, err := encodeError(nil, v)
	return msgpack.AppendBytes(b, failure), err
}

func decodeEnclosed(raw []byte, v reflect.Value) error {
	failure, err := decodeBytes(raw)
	if err == nil {
		err = msgpack.Validate(failure, msgpack.ProtocolLimits)
	}
	if err != nil {
		return err
	}
	return decodeError(failure, v)
}
