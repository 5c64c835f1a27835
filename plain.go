package harp

import (
	"encoding"
	"reflect"
	"slices"
	"strings"
	"sync"

	"github.com/vmihailenco/msgpack/v5"

	"github.com/harpcaller/harp/internal/pack"
)

// plain writes and reads the values of one type without the library: booleans,
// numbers, texts, bytes, and lists and structs of these. What it writes is what the
// library writes. What it cannot read as the library and fit would, it fails at, and
// they are asked.
type plain struct {
	write func(b []byte, v reflect.Value) []byte
	read  func(r *pack.Reader, v reflect.Value)
}

var plains sync.Map // reflect.Type to *plain

// plainOf returns the plain form of a type, nil if it has none.
func plainOf(t reflect.Type) *plain {
	if known, ok := plains.Load(t); ok {
		return known.(*plain) //nolint:forcetypeassert // nothing else is stored
	}
	p := makePlain(t, 0)
	plains.Store(t, p)
	return p
}

// makePlain makes the plain form of a type so deep inside another one. One that holds
// itself has none.
func makePlain(t reflect.Type, depth int) *plain {
	if depth > MaxDepth || decodesItself(t) || encodesItself(t) {
		return nil
	}
	switch t.Kind() {
	case reflect.Bool:
		return &plain{writeBool, readBool}
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return &plain{writeInt, readInt}
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return &plain{writeUint, readUint}
	case reflect.Float64:
		return &plain{writeFloat, readFloat}
	case reflect.String:
		return &plain{writeText, readText}
	case reflect.Slice:
		return plainSlice(t, depth)
	case reflect.Struct:
		return plainStruct(t, depth)
	default:
		return nil
	}
}

// encodesItself reports whether a type has its own way to be encoded.
func encodesItself(t reflect.Type) bool {
	return slices.ContainsFunc(encoders, func(i reflect.Type) bool {
		return t.Implements(i) || reflect.PointerTo(t).Implements(i)
	})
}

var encoders = []reflect.Type{
	reflect.TypeFor[msgpack.CustomEncoder](),
	reflect.TypeFor[msgpack.Marshaler](),
	reflect.TypeFor[encoding.BinaryMarshaler](),
	reflect.TypeFor[encoding.TextMarshaler](),
	reflect.TypeFor[error](),
	reflect.TypeFor[interface{ IsZero() bool }](), // decides what is empty
}

func writeBool(b []byte, v reflect.Value) []byte { return pack.AppendBool(b, v.Bool()) }

func readBool(r *pack.Reader, v reflect.Value) { v.SetBool(r.Bool()) }

func writeInt(b []byte, v reflect.Value) []byte { return pack.AppendInt(b, v.Int()) }

func readInt(r *pack.Reader, v reflect.Value) {
	n := r.Int()
	if v.OverflowInt(n) {
		r.Fail()
		return
	}
	v.SetInt(n)
}

func writeUint(b []byte, v reflect.Value) []byte { return pack.AppendUint(b, v.Uint()) }

func readUint(r *pack.Reader, v reflect.Value) {
	n := r.Int()
	if n < 0 || v.OverflowUint(uint64(n)) {
		r.Fail()
		return
	}
	v.SetUint(uint64(n))
}

func writeFloat(b []byte, v reflect.Value) []byte { return pack.AppendFloat(b, v.Float()) }

func readFloat(r *pack.Reader, v reflect.Value) { v.SetFloat(r.Float()) }

func writeText(b []byte, v reflect.Value) []byte { return pack.AppendString(b, v.String()) }

func readText(r *pack.Reader, v reflect.Value) { v.SetString(string(r.Text())) }

func writeBytes(b []byte, v reflect.Value) []byte { return pack.AppendBytes(b, v.Bytes()) }

// readBytes reads bytes into a slice of their own. The library may write into one
// that is there.
func readBytes(r *pack.Reader, v reflect.Value) {
	p := r.Bytes()
	if v.Cap() > 0 || !r.OK() {
		r.Fail()
		return
	}
	v.SetBytes(append(make([]byte, 0, len(p)), p...))
}

func plainSlice(t reflect.Type, depth int) *plain {
	if t.Elem().Kind() == reflect.Uint8 {
		if t.Elem() != reflect.TypeFor[byte]() {
			return nil
		}
		return &plain{writeBytes, readBytes}
	}
	item := makePlain(t.Elem(), depth+1)
	if item == nil {
		return nil
	}
	return &plain{item.writeSlice, item.readSlice}
}

func (p *plain) writeSlice(b []byte, v reflect.Value) []byte {
	if v.IsNil() {
		return pack.AppendNil(b)
	}
	b = pack.AppendArray(b, v.Len())
	for i := range v.Len() {
		b = p.write(b, v.Index(i))
	}
	return b
}

func (p *plain) readSlice(r *pack.Reader, v reflect.Value) {
	n := r.Array()
	if v.Cap() > 0 || !r.OK() {
		r.Fail()
		return
	}
	v.Set(reflect.MakeSlice(v.Type(), n, n))
	for i := range n {
		p.read(r, v.Index(i))
	}
}

// plainFields are those of a struct, in their order.
type plainFields []plainField

type plainField struct {
	*plain
	name      string
	index     int
	omitEmpty bool
}

func plainStruct(t reflect.Type, depth int) *plain {
	var fields plainFields
	for i := range t.NumField() {
		f := t.Field(i)
		tag := f.Tag.Get("json")
		name, options, _ := strings.Cut(tag, ",")
		_, other := f.Tag.Lookup("msgpack")
		switch {
		case other || f.Anonymous || f.Name == "_msgpack" || strings.ContainsAny(tag, `'":\ `):
			return nil
		case !f.IsExported() || name == "-":
			continue
		case options != "" && options != "omitempty" || options != "" && f.Type.Kind() == reflect.Struct:
			return nil
		case name == "":
			name = f.Name
		}
		p := makePlain(f.Type, depth+1)
		if p == nil || fields.find([]byte(name), 0) >= 0 {
			return nil
		}
		fields = append(fields, plainField{p, name, i, options != ""})
	}
	return &plain{fields.write, fields.read}
}

// find returns the place of a field, -1 if there is none. It looks at first, which is
// most often right.
func (fields plainFields) find(name []byte, first int) int {
	if first < len(fields) && fields[first].name == string(name) {
		return first
	}
	return slices.IndexFunc(fields, func(f plainField) bool { return f.name == string(name) })
}

func (fields plainFields) write(b []byte, v reflect.Value) []byte {
	m := pack.Begin(b)
	for _, f := range fields {
		field := v.Field(f.index)
		if f.omitEmpty && isEmpty(field) {
			continue
		}
		m.Key(f.name)
		m.B = f.write(m.B, field)
	}
	return m.End()
}

// isEmpty reports what omitempty leaves out.
func isEmpty(v reflect.Value) bool {
	switch v.Kind() {
	case reflect.Slice:
		return v.Len() == 0
	case reflect.Float64:
		return v.Float() == 0
	default:
		return v.IsZero()
	}
}

func (fields plainFields) read(r *pack.Reader, v reflect.Value) {
	at := 0
	for range r.Map() {
		at = fields.find(r.Text(), at)
		if at < 0 {
			r.Fail()
			return
		}
		fields[at].read(r, v.Field(fields[at].index))
		at++
	}
}

// encodePlain returns v as a Value, nil if its type has no plain form.
func encodePlain(v any) Value {
	p := plainOf(reflect.TypeOf(v))
	if p == nil {
		return nil
	}
	buf := plainBuffers.Get().(*[]byte) //nolint:forcetypeassert // nothing else is there
	b := p.write((*buf)[:0], reflect.ValueOf(v))
	out := Value(slices.Clone(b))
	if cap(b) <= maxPlainBuffer {
		*buf = b
	}
	plainBuffers.Put(buf)
	return out
}

// plainBuffers are what is written into before it is known how long it gets.
var plainBuffers = sync.Pool{New: func() any { return new([]byte) }}

// maxPlainBuffer is the longest that is kept for the next value.
const maxPlainBuffer = 64 << 10

// decodePlain stores a value that is valid where into points to. false: it is not as
// plain as that, and into may hold a part of it.
func (v Value) decodePlain(into any) bool {
	to := reflect.ValueOf(into)
	if to.Kind() != reflect.Pointer || to.IsNil() {
		return false
	}
	p := plainOf(to.Type().Elem())
	if p == nil {
		return false
	}
	r := pack.NewReader(v)
	p.read(&r, to.Elem())
	return r.Done()
}
