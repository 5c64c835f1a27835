package msgpack

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"reflect"
	"strconv"
	"unicode/utf8"
	"unsafe"
)

// decoder is what is being read. When something does not fit it has an error, its reader has
// failed, and whoever opened a container adds to the path on the way back.
type decoder struct {
	Reader
	codec *Codec
	share bool // byte slices are parts of what is read
	room  int  // items of lists and entries of maps that may still come
	err   error
	path  string
	words [64]string // short strings that were read, each at the place of its hash
}

var (
	errTooMany  = fmt.Errorf("more than %d values", maxElements)
	errNotWhole = errors.New("is cut short, or goes on")
	errNotText  = errors.New("bytes that are not UTF-8 do not fit a string")
)

// refuse fails the decoder.
func (d *decoder) refuse(err error) {
	if d.err == nil {
		d.err = err
	}
	d.Fail()
}

// finishDecoding returns why the decoder has failed, or has not read all, and makes it empty.
func (d *decoder) finishDecoding() error {
	if d.Done() {
		d.b = nil
		return nil
	}
	err := d.err
	if err == nil {
		err = errNotWhole
	}
	err = &DecodeError{Path: d.path, Err: err}
	d.b, d.err, d.path = nil, nil, ""
	return err
}

// misfit refuses the next value for a type that cannot be made of its kind.
func (d *decoder) misfit(t reflect.Type) {
	d.refuse(fmt.Errorf("%s does not fit %s", d.Kind(), t))
}

// addToPath adds a part to the path of what did not fit.
func (d *decoder) addToPath(part string) {
	if d.err != nil {
		d.path = part + d.path
	}
}

func (d *decoder) custom(decode DecodeFunc, v reflect.Value) {
	if d.skipNil() {
		v.SetZero()
		return
	}
	raw := d.Raw()
	if !d.OK() {
		return
	}
	if !d.share {
		raw = bytes.Clone(raw)
	}
	if err := decode(raw, v); err != nil {
		d.refuse(err)
	}
}

func (u unfit) decode(d *decoder, _ unsafe.Pointer) { d.misfit(u.t) }

func decodeBool(d *decoder, at unsafe.Pointer) {
	switch d.Kind() {
	case KindBool:
		*(*bool)(at) = d.Bool()
	case KindNil:
		d.Nil()
		*(*bool)(at) = false
	default:
		d.misfit(reflect.TypeFor[bool]())
	}
}

func decodeSigned[T signed](d *decoder, at unsafe.Pointer) {
	n, negative, ok := d.decodeNumber(reflect.TypeFor[T])
	switch v := T(n); {
	case !ok:
	case n > math.MaxInt64 && !negative || int64(v) != int64(n):
		d.outOfRange(n, negative, reflect.TypeFor[T]())
	default:
		*(*T)(at) = v
	}
}

func decodeUnsigned[T unsigned](d *decoder, at unsafe.Pointer) {
	n, negative, ok := d.decodeNumber(reflect.TypeFor[T])
	switch v := T(n); {
	case !ok:
	case negative || uint64(v) != n:
		d.outOfRange(n, negative, reflect.TypeFor[T]())
	default:
		*(*T)(at) = v
	}
}

// decodeNumber reads an integer, 0 for nil, for a variable of a type that an integer fits.
func (d *decoder) decodeNumber(t func() reflect.Type) (n uint64, negative, ok bool) {
	if d.at < len(d.b) && d.b[d.at] <= codePosFix { // most are
		d.at++
		return uint64(d.b[d.at-1]), false, true
	}
	switch d.Kind() {
	case KindInt:
		n, negative = d.integer()
		return n, negative, d.OK()
	case KindNil:
		d.Nil()
		return 0, false, true
	default:
		d.misfit(t())
		return 0, false, false
	}
}

func (d *decoder) outOfRange(n uint64, negative bool, t reflect.Type) {
	if negative {
		d.refuse(fmt.Errorf("%d does not fit %s", int64(n), t))
		return
	}
	d.refuse(fmt.Errorf("%d does not fit %s", n, t))
}

func decodeFloat64(d *decoder, at unsafe.Pointer) {
	if d.Kind() == KindFloat {
		*(*float64)(at) = d.Float()
		return
	}
	decodeWhole[float64](d, at)
}

// decodeFloat32 decodes a float of 32 bits only: one of 64 would lose digits.
func decodeFloat32(d *decoder, at unsafe.Pointer) {
	if d.at < len(d.b) && d.b[d.at] == codeFloat {
		*(*float32)(at) = float32(d.Float())
		return
	}
	decodeWhole[float32](d, at)
}

// decodeWhole decodes an integer that a float can hold.
func decodeWhole[T float32 | float64](d *decoder, at unsafe.Pointer) {
	n, negative, ok := d.decodeNumber(reflect.TypeFor[T])
	if !ok {
		return
	}
	v := T(n)
	if negative {
		v = T(int64(n))
	}
	if f := float64(v); negative && int64(f) != int64(n) || !negative && (f >= 1<<64 || uint64(f) != n) {
		d.outOfRange(n, negative, reflect.TypeFor[T]())
		return
	}
	*(*T)(at) = v
}

// textOrBytes reads a string or bytes, of which both a string and a byte slice may be made;
// p is nil for nil.
func (d *decoder) textOrBytes(t reflect.Type) (p []byte, ok bool) {
	switch d.Kind() {
	case KindString:
		return d.Text(), d.OK()
	case KindBytes:
		return d.Bytes(), d.OK()
	case KindNil:
		d.Nil()
		return nil, true
	default:
		d.misfit(t)
		return nil, false
	}
}

func decodeString(d *decoder, at unsafe.Pointer) {
	p, ok := d.textOrBytes(reflect.TypeFor[string]())
	switch s := (*string)(at); {
	case !ok:
	case d.codec.Message && !utf8.Valid(p):
		d.refuse(errNotText)
	case *s != string(p):
		*s = d.word(p)
	}
}

// maxWord is the longest string that is kept for the next that is the same.
const maxWord = 32

// word returns p as a string. Names and the like come again and again: for these it needs
// no memory.
func (d *decoder) word(p []byte) string {
	if len(p) > maxWord {
		return string(p)
	}
	hash := uint32(2166136261) // FNV-1a
	for _, c := range p {
		hash = (hash ^ uint32(c)) * 16777619
	}
	kept := &d.words[(hash^hash>>16)%uint32(len(d.words))]
	if *kept != string(p) {
		*kept = string(p)
	}
	return *kept
}

func decodeBytes(d *decoder, at unsafe.Pointer) {
	p, ok := d.textOrBytes(reflect.TypeFor[[]byte]())
	switch {
	case !ok:
	case d.share || p == nil:
		*(*[]byte)(at) = p
	default:
		*(*[]byte)(at) = append(make([]byte, 0, len(p)), p...)
	}
}

func (a byteArrayPlan) decode(d *decoder, at unsafe.Pointer) {
	p, ok := d.textOrBytes(a.t)
	switch {
	case !ok:
	case len(p) > a.n:
		d.refuse(fmt.Errorf("%d bytes do not fit %s", len(p), a.t))
	default:
		v := unsafe.Slice((*byte)(at), a.n)
		clear(v[copy(v, p):])
	}
}

// reserve takes the room of n values in a container, which is bounded: each may cost many
// times the memory of its bytes.
func (d *decoder) reserve(n int) {
	if d.room -= n; d.room < 0 {
		d.refuse(errTooMany)
	}
}

// array reads the head of an array for the type t; n is negative for nil.
func (d *decoder) array(t reflect.Type) (n int, ok bool) {
	switch d.Kind() {
	case KindArray:
		n = d.Array()
		d.reserve(n)
		return n, d.OK()
	case KindNil:
		d.Nil()
		return -1, true
	default:
		d.misfit(t)
		return 0, false
	}
}

// decode makes a slice of its own, as another may share the one that is there.
func (l slicePlan) decode(d *decoder, at unsafe.Pointer) {
	n, ok := d.array(l.t)
	if !ok {
		return
	}
	v := reflect.NewAt(l.t, at).Elem()
	was := reflect.Value{}
	if l.t.Elem().Kind() == reflect.Interface {
		was = reflect.ValueOf(v.Interface()) // interfaces may point to what is to be decoded into
	}
	v.SetZero()
	switch {
	case n == 0:
		v.Set(reflect.MakeSlice(l.t, 0, 0))
	case n > 0:
		v.Grow(n)
		v.SetLen(n)
		if was.IsValid() {
			reflect.Copy(v, was)
		}
		l.decodeItems(d, v.UnsafePointer(), n)
	}
}

func (l arrayPlan) decode(d *decoder, at unsafe.Pointer) {
	n, ok := d.array(l.t)
	switch {
	case !ok:
	case n > l.n:
		d.refuse(fmt.Errorf("%d values do not fit %s", n, l.t))
	default:
		reflect.NewAt(l.t, at).Elem().SetZero()
		l.decodeItems(d, at, max(n, 0))
	}
}

func (l listPlan) decodeItems(d *decoder, first unsafe.Pointer, n int) {
	for i := range n {
		if l.elem.decode(d, l.item(first, i)); !d.OK() {
			d.addToPath("[" + strconv.Itoa(i) + "]")
			return
		}
	}
}

// decode adds to the map that is there.
func (m mapPlan) decode(d *decoder, at unsafe.Pointer) {
	v := reflect.NewAt(m.t, at).Elem()
	switch d.Kind() {
	case KindMap:
	case KindNil:
		d.Nil()
		v.SetZero()
		return
	default:
		d.misfit(m.t)
		return
	}
	n := d.Map()
	if d.reserve(n); v.IsNil() && d.OK() {
		v.Set(reflect.MakeMapWithSize(m.t, n))
	}
	key, elem := reflect.New(m.t.Key()), reflect.New(m.t.Elem())
	for range n {
		if m.decodeEntry(d, v, key, elem); !d.OK() {
			return
		}
	}
}

// decodeEntry adds an entry to v; key and elem are room for it.
func (m mapPlan) decodeEntry(d *decoder, v, key, elem reflect.Value) {
	key.Elem().SetZero()
	elem.Elem().SetZero()
	name := d.Reader
	if m.key.decode(d, key.UnsafePointer()); d.OK() && !key.Elem().Comparable() {
		d.refuse(fmt.Errorf("%s is no key of a map", key.Elem().Type()))
	}
	if d.OK() {
		m.elem.decode(d, elem.UnsafePointer())
	}
	if !d.OK() {
		d.addToPath("." + keyText(name.Any()))
		return
	}
	v.SetMapIndex(key.Elem(), elem.Elem())
}

func (p pointerPlan) decode(d *decoder, at unsafe.Pointer) {
	to := (*unsafe.Pointer)(at)
	if d.skipNil() {
		*to = nil
		return
	}
	if *to == nil {
		*to = reflect.New(p.t).UnsafePointer()
	}
	p.elem.decode(d, *to)
}

// decode decodes into what a pointer in the interface points to; else an interface without
// methods gets what [Reader.Any] returns.
func (i interfacePlan) decode(d *decoder, at unsafe.Pointer) {
	v := reflect.NewAt(i.t, at).Elem()
	switch to := v.Elem(); {
	case d.skipNil():
		v.SetZero()
	case to.Kind() == reflect.Pointer && !to.IsNil():
		d.codec.planOf(to.Type().Elem()).decode(d, to.UnsafePointer())
	case i.t.NumMethod() == 0:
		if got := d.Any(); d.OK() {
			v.Set(reflect.ValueOf(got))
		}
	case i.t == errorType && d.Kind() == KindString:
		v.Set(reflect.ValueOf(errors.New(string(d.Text()))))
	default:
		d.misfit(i.t)
	}
}

// decode decodes a map by its keys, or a list of all fields in their order. In a message a list is another form of the same only where
// the type says so: the order of other types' fields is nobody's business.
func (s *structPlan) decode(d *decoder, at unsafe.Pointer) {
	switch kind := d.Kind(); {
	case kind == KindMap:
		s.decodeMap(d, at)
	case kind == KindArray && (s.asArray || !d.codec.Message):
		s.decodeArray(d, at)
	case kind == KindNil:
		d.Nil()
		reflect.NewAt(s.t, at).Elem().SetZero()
	default:
		d.misfit(s.t)
	}
}

func (s *structPlan) decodeMap(d *decoder, at unsafe.Pointer) {
	next := 0
	for range d.Map() {
		key := d.key()
		var f *field
		if f, next = s.findField(key, next); f == nil {
			d.Skip()
		} else {
			f.decodeIn(d, at)
			next++
		}
		if !d.OK() {
			return
		}
	}
}

func (s *structPlan) decodeArray(d *decoder, at unsafe.Pointer) {
	n := d.Array()
	switch {
	case n == 0, n < len(s.fields) && s.grows:
		reflect.NewAt(s.t, at).Elem().SetZero()
	case n != len(s.fields):
		d.refuse(fmt.Errorf("%d values do not fit the %d fields of %s", n, len(s.fields), s.t))
		return
	}
	for i := range n {
		if s.fields[i].decodeIn(d, at); !d.OK() {
			return
		}
	}
}

// decodeIn decodes into the field of a struct.
func (f *field) decodeIn(d *decoder, at unsafe.Pointer) {
	if f.through != nil {
		at = f.followPointers(at, true)
	}
	if f.decode(d, unsafe.Add(at, f.offset)); !d.OK() {
		d.addToPath("." + f.name)
	}
}
