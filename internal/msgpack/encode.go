package msgpack

import (
	"encoding/binary"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"unicode/utf8"
	"unsafe"
)

// encoding is what encoders need to know. It goes by value, and with it the bytes that have
// been written, so that neither gets into the heap.
type encoding struct {
	codec *Codec
	depth int // of containers and pointers that are open
}

// encodeError is what an encoder panics with; Append recovers it.
type encodeError struct{ error }

var errTooDeep = fmt.Errorf("nested deeper than %d", maxDepth)

// nested returns the encoding inside a container or pointer.
func (e encoding) nested() encoding {
	if e.depth == maxDepth {
		panic(encodeError{errTooDeep})
	}
	e.depth++
	return e
}

// any encodes what an interface holds, which has no address unless it is a pointer: the
// usual types are written as they are, of others a copy.
func (e encoding) any(b []byte, v any) []byte {
	switch v := v.(type) {
	case nil:
		return AppendNil(b)
	case bool:
		return AppendBool(b, v)
	case int:
		return AppendInt(b, int64(v))
	case int64:
		return AppendInt(b, v)
	case float64:
		return AppendFloat(b, v)
	case string:
		return e.string(b, v)
	case []byte:
		return AppendBytes(b, v)
	}
	return e.encodeValue(b, reflect.ValueOf(v))
}

func (e encoding) encodeValue(b []byte, v reflect.Value) []byte {
	if v.Kind() != reflect.Pointer {
		p := reflect.New(v.Type())
		p.Elem().Set(v)
		v = p
	}
	if v.IsNil() {
		return AppendNil(b)
	}
	return e.codec.planOf(v.Type().Elem()).encode(e, b, v.UnsafePointer())
}

func (e encoding) custom(b []byte, encode EncodeFunc, v reflect.Value) []byte {
	if nilable(v) && v.IsNil() {
		return AppendNil(b)
	}
	b, err := encode(b, v)
	if err != nil {
		panic(encodeError{err})
	}
	return b
}

func encodeBool(_ encoding, b []byte, at unsafe.Pointer) []byte { return AppendBool(b, *(*bool)(at)) }

func encodeFloat64(_ encoding, b []byte, at unsafe.Pointer) []byte {
	return AppendFloat(b, *(*float64)(at))
}

func encodeFloat32(_ encoding, b []byte, at unsafe.Pointer) []byte {
	return AppendFloat32(b, *(*float32)(at))
}

func encodeString(e encoding, b []byte, at unsafe.Pointer) []byte { return e.string(b, *(*string)(at)) }

func (e encoding) string(b []byte, s string) []byte {
	if e.codec.Message && !utf8.ValidString(s) {
		s = strings.ToValidUTF8(s, string(utf8.RuneError))
	}
	return AppendString(b, s)
}

func encodeBytes(_ encoding, b []byte, at unsafe.Pointer) []byte {
	return AppendBytes(b, *(*[]byte)(at))
}

func (a byteArrayPlan) encode(_ encoding, b []byte, at unsafe.Pointer) []byte {
	return append(appendBinHead(b, a.n), unsafe.Slice((*byte)(at), a.n)...)
}

func (l slicePlan) encode(e encoding, b []byte, at unsafe.Pointer) []byte {
	v := reflect.NewAt(l.t, at).Elem()
	if v.IsNil() {
		return AppendNil(b)
	}
	return l.encodeItems(e, b, v.UnsafePointer(), v.Len())
}

func (l arrayPlan) encode(e encoding, b []byte, at unsafe.Pointer) []byte {
	return l.encodeItems(e, b, at, l.n)
}

func (l listPlan) encodeItems(e encoding, b []byte, first unsafe.Pointer, n int) []byte {
	e = e.nested()
	b = AppendArray(b, n)
	for i := range n {
		b = l.elem.encode(e, b, l.item(first, i))
	}
	return b
}

// encode writes the entries of a map whose keys are strings in the order of these.
func (m mapPlan) encode(e encoding, b []byte, at unsafe.Pointer) []byte {
	v := reflect.NewAt(m.t, at).Elem()
	if v.IsNil() {
		return AppendNil(b)
	}
	e = e.nested()
	b = AppendMap(b, v.Len())
	keys := v.MapKeys()
	if m.t.Key().Kind() == reflect.String {
		slices.SortFunc(keys, func(a, b reflect.Value) int { return strings.Compare(a.String(), b.String()) })
	}
	key, elem := reflect.New(m.t.Key()), reflect.New(m.t.Elem())
	for _, k := range keys {
		key.Elem().Set(k)
		b = m.key.encode(e, b, key.UnsafePointer())
		elem.Elem().Set(v.MapIndex(k))
		b = m.elem.encode(e, b, elem.UnsafePointer())
	}
	return b
}

func (p pointerPlan) encode(e encoding, b []byte, at unsafe.Pointer) []byte {
	to := *(*unsafe.Pointer)(at)
	if to == nil {
		return AppendNil(b)
	}
	return p.elem.encode(e.nested(), b, to)
}

func (i interfacePlan) encode(e encoding, b []byte, at unsafe.Pointer) []byte {
	v := reflect.NewAt(i.t, at).Elem()
	if i.t == errorType && !v.IsNil() {
		return e.string(b, v.Interface().(error).Error()) //nolint:forcetypeassert // its type was looked at
	}
	return e.nested().any(b, v.Interface())
}

func (u unfit) encode(encoding, []byte, unsafe.Pointer) []byte {
	panic(encodeError{fmt.Errorf("cannot encode %s", u.t)})
}

func (s *structPlan) encode(e encoding, b []byte, at unsafe.Pointer) []byte {
	e = e.nested()
	switch {
	case s.asArray:
		b = AppendArray(b, len(s.fields))
		for i := range s.fields {
			b = s.fields[i].encodeIn(e, b, at)
		}
	case s.omits:
		b = s.encodeSome(e, b, at)
	default:
		b = AppendMap(b, len(s.fields))
		for i := range s.fields {
			b = s.fields[i].encodeIn(e, append(b, s.fields[i].key...), at)
		}
	}
	return b
}

func (f *field) encodeIn(e encoding, b []byte, at unsafe.Pointer) []byte {
	if at = f.in(at); at == nil {
		return AppendNil(b)
	}
	return f.encode(e, b, at)
}

// encodeSome writes the fields that are not left out, and then how many these are.
func (s *structPlan) encodeSome(e encoding, b []byte, at unsafe.Pointer) []byte {
	head, n := len(b), 0
	b = append(b, codeFixMap)
	for i := range s.fields {
		f := &s.fields[i]
		in := f.in(at)
		if in == nil || f.omitEmpty && f.isEmpty(in) {
			continue
		}
		n++
		b = f.encode(e, append(b, f.key...), in)
	}
	return endMap(b, head, n)
}

// endMap puts the number of entries into the head of a map.
func endMap(b []byte, head, n int) []byte {
	if n < 16 {
		b[head] |= byte(n)
		return b
	}
	b = slices.Insert(b, head+1, 0, 0)
	b[head] = codeMap16
	binary.BigEndian.PutUint16(b[head+1:], uint16(n))
	return b
}
