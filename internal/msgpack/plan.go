package msgpack

import (
	"maps"
	"reflect"
	"slices"
	"strings"
	"unsafe"
)

// plan is how the variables of a type are encoded and decoded, given their address.
type plan struct {
	encode func(e encoding, b []byte, at unsafe.Pointer) []byte
	decode func(d *decoder, at unsafe.Pointer)
	empty  func(unsafe.Pointer) bool // what omitempty leaves out
}

// planOf returns the plan of a type.
func (c *Codec) planOf(t reflect.Type) *plan {
	if plans := c.plans.Load(); plans != nil {
		if p := (*plans)[t]; p != nil {
			return p
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.made = make(map[reflect.Type]*plan)
	if plans := c.plans.Load(); plans != nil {
		maps.Copy(c.made, *plans)
	}
	p := c.compile(t)
	made := c.made
	c.plans.Store(&made)
	return p
}

// compile makes the plan of a type and of all that it is made of. A type that holds itself
// finds its plan in made.
func (c *Codec) compile(t reflect.Type) *plan {
	if p := c.made[t]; p != nil {
		return p
	}
	p := new(plan)
	c.made[t] = p
	*p = c.compileKind(t)
	if t.Implements(zeroerType) {
		p.empty = func(at unsafe.Pointer) bool { return isZero(reflect.NewAt(t, at)) }
	}
	encode, decode := c.custom(t)
	if encode != nil {
		if t.Kind() == reflect.Interface {
			p.empty = func(at unsafe.Pointer) bool { return reflect.NewAt(t, at).Elem().IsNil() }
		}
		p.encode = func(e encoding, b []byte, at unsafe.Pointer) []byte {
			return e.custom(b, encode, reflect.NewAt(t, at).Elem())
		}
	}
	if decode != nil {
		p.decode = func(d *decoder, at unsafe.Pointer) { d.custom(decode, reflect.NewAt(t, at).Elem()) }
	}
	return p
}

func (c *Codec) custom(t reflect.Type) (EncodeFunc, DecodeFunc) {
	if c.Custom == nil {
		return nil, nil
	}
	return c.Custom(t)
}

func (c *Codec) compileKind(t reflect.Type) plan {
	switch t.Kind() {
	case reflect.Bool:
		return plan{encodeBool, decodeBool, isZeroOf[bool]}
	case reflect.Int:
		return signedPlan[int]()
	case reflect.Int8:
		return signedPlan[int8]()
	case reflect.Int16:
		return signedPlan[int16]()
	case reflect.Int32:
		return signedPlan[int32]()
	case reflect.Int64:
		return signedPlan[int64]()
	case reflect.Uint:
		return unsignedPlan[uint]()
	case reflect.Uint8:
		return unsignedPlan[uint8]()
	case reflect.Uint16:
		return unsignedPlan[uint16]()
	case reflect.Uint32:
		return unsignedPlan[uint32]()
	case reflect.Uint64:
		return unsignedPlan[uint64]()
	case reflect.Float32:
		return plan{encodeFloat32, decodeFloat32, isZeroOf[float32]}
	case reflect.Float64:
		return plan{encodeFloat64, decodeFloat64, isZeroOf[float64]}
	case reflect.String:
		return plan{encodeString, decodeString, isZeroOf[string]}
	case reflect.Slice:
		return c.compileSlice(t)
	case reflect.Array:
		return c.compileArray(t)
	case reflect.Map:
		m := mapPlan{t: t, key: c.compile(t.Key()), elem: c.compile(t.Elem())}
		return plan{m.encode, m.decode, m.isEmpty}
	case reflect.Pointer:
		to := pointerPlan{t.Elem(), c.compile(t.Elem())}
		return plan{to.encode, to.decode, isZeroOf[unsafe.Pointer]}
	case reflect.Interface:
		i := interfacePlan{t}
		return plan{i.encode, i.decode, func(at unsafe.Pointer) bool { return i.isEmpty(c, at) }}
	case reflect.Struct:
		if t == timeType {
			return c.timePlan()
		}
		s := c.compileStruct(t)
		return plan{s.encode, s.decode, s.isEmpty}
	default: // channels, functions, complex numbers and unsafe pointers
		no := unfit{t}
		return plan{no.encode, no.decode, func(unsafe.Pointer) bool { return false }}
	}
}

func (c *Codec) compileSlice(t reflect.Type) plan {
	if t.Elem().Kind() == reflect.Uint8 {
		return plan{encodeBytes, decodeBytes, isEmptyBytes}
	}
	l := slicePlan{listPlan{t, t.Elem().Size(), c.compile(t.Elem())}}
	return plan{l.encode, l.decode, l.isEmpty}
}

func (c *Codec) compileArray(t reflect.Type) plan {
	none := func(unsafe.Pointer) bool { return t.Len() == 0 }
	if t.Elem().Kind() == reflect.Uint8 {
		a := byteArrayPlan{t, t.Len()}
		return plan{a.encode, a.decode, none}
	}
	l := arrayPlan{listPlan{t, t.Elem().Size(), c.compile(t.Elem())}, t.Len()}
	return plan{l.encode, l.decode, none}
}

var zeroerType = reflect.TypeFor[interface{ IsZero() bool }]()

// isZero asks what p points to whether it is zero.
func isZero(p reflect.Value) bool {
	if v := p.Elem(); nilable(v) {
		if v.IsNil() {
			return true
		}
		p = v // a pointer may have the method, and a pointer to that has not
	}
	return p.Interface().(interface{ IsZero() bool }).IsZero() //nolint:forcetypeassert // its type was looked at
}

func nilable(v reflect.Value) bool {
	switch v.Kind() {
	case reflect.Interface, reflect.Map, reflect.Pointer, reflect.Slice, reflect.Chan, reflect.Func:
		return true
	default:
		return false
	}
}

// structPlan is the plan of a struct's fields, in their order.
type structPlan struct {
	t       reflect.Type
	fields  []field
	names   map[string]int // of each key the place in fields, or in inlined behind them
	folded  map[string]int // of each field in lower case its place in fields; nil: case counts
	inlined []field        // embedded structs whose fields stand in their place, by their own names
	asArray bool
	grows   bool // of an array: more fields may be added at the end, which are zero where they are missing
	omits   bool // a field may be left out
}

type field struct {
	*plan
	name      string
	key       []byte    // name, encoded
	through   []pointer // embedded pointers on the way
	offset    uintptr   // behind them
	omitEmpty bool
	kind      reflect.Kind // what is asked without a call whether it is empty; 0: nothing
}

// pointer is an embedded pointer to a struct of type t.
type pointer struct {
	offset uintptr
	t      reflect.Type
}

// compileStruct makes the plan of a struct's fields by the rules of the library's tags.
func (c *Codec) compileStruct(t reflect.Type) *structPlan {
	s := &structPlan{t: t, names: make(map[string]int)}
	var omitAll bool
	for i := range t.NumField() {
		f := t.Field(i)
		tag := parseTag(f)
		if tag.name == "-" {
			continue
		}
		if f.Name == "_msgpack" {
			s.asArray = tag.hasOption("as_array") || tag.hasOption("asArray")
			s.grows = tag.hasOption("grows")
			omitAll = tag.hasOption("omitempty")
		}
		if !f.IsExported() && !f.Anonymous {
			continue
		}
		if f.Anonymous && !tag.hasOption("noinline") && c.inline(s, f, tag) {
			continue
		}
		s.addField(c.newField(f, tag, omitAll || tag.hasOption("omitempty")))
		if tag.alias != "" {
			s.names[tag.alias] = len(s.fields) - 1
		}
	}
	s.omits = slices.ContainsFunc(s.fields, func(f field) bool { return f.omitEmpty })
	for i, f := range s.inlined {
		s.names[f.name] = len(s.fields) + i
	}
	if c.FoldCase {
		s.foldNames()
	}
	return s
}

// foldNames lets keys that differ from the names of fields in their case alone find these, as
// package encoding/json does. Of fields that differ so the first is found.
func (s *structPlan) foldNames() {
	s.folded = make(map[string]int, len(s.fields))
	for i := len(s.fields) - 1; i >= 0; i-- {
		s.folded[strings.ToLower(s.fields[i].name)] = i
	}
}

func (c *Codec) newField(f reflect.StructField, tag tag, omitEmpty bool) field {
	kind := f.Type.Kind()
	if f.Type.Implements(zeroerType) {
		kind = reflect.Invalid
	}
	return field{
		plan: c.compile(f.Type), name: tag.name, key: AppendString(nil, tag.name), offset: f.Offset,
		omitEmpty: omitEmpty, kind: kind,
	}
}

func (s *structPlan) addField(f field) {
	s.names[f.name] = len(s.fields)
	s.fields = append(s.fields, f)
}

// inline puts the fields of an embedded struct in its place. It does not if the struct has
// a way of its own to be encoded or decoded, or, unless the tag asks for it, if one of its
// fields has the name of one that is there.
func (c *Codec) inline(s *structPlan, f reflect.StructField, tag tag) bool {
	t := f.Type
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if encode, decode := c.custom(t); t.Kind() != reflect.Struct || encode != nil || decode != nil {
		return false
	}
	if slices.Contains(c.inlining, t) {
		return false
	}
	c.inlining = append(c.inlining, t)
	inner := c.compileStruct(t)
	c.inlining = c.inlining[:len(c.inlining)-1]
	known := func(f field) bool { _, ok := s.names[f.name]; return ok }
	if !tag.hasOption("inline") && slices.ContainsFunc(inner.fields, known) {
		return false
	}
	for _, in := range inner.fields {
		if !known(in) {
			s.addField(in.behind(f))
		}
	}
	s.inlined = append(s.inlined, c.newField(f, tag, false))
	return true
}

// tag is what the tag of a field says.
type tag struct {
	name    string
	alias   string
	options []string
}

func parseTag(f reflect.StructField) tag {
	text := f.Tag.Get("msgpack")
	if text == "" {
		text = f.Tag.Get("json")
	}
	parts := strings.Split(text, ",")
	t := tag{name: strings.TrimSpace(parts[0]), options: parts[1:]}
	if t.name == "" {
		t.name = f.Name
	}
	for _, option := range t.options {
		if alias, ok := strings.CutPrefix(option, "alias:"); ok {
			t.alias = alias
		}
	}
	return t
}

func (t tag) hasOption(option string) bool { return slices.Contains(t.options, option) }

// findField returns the field of a key and its place, nil if there is none. It looks from place
// next on first, as keys come in the order of the fields most often.
func (s *structPlan) findField(key []byte, next int) (*field, int) {
	for i := next; i < len(s.fields); i++ {
		if f := &s.fields[i]; f.name == string(key) {
			return f, i
		}
	}
	i, ok := s.names[string(key)]
	if !ok && s.folded != nil {
		i, ok = s.folded[strings.ToLower(string(key))]
	}
	switch {
	case !ok:
		return nil, next
	case i < len(s.fields):
		return &s.fields[i], i
	}
	return &s.inlined[i-len(s.fields)], next
}

// behind returns the field of a struct that another one embeds as its field outer.
func (f field) behind(outer reflect.StructField) field {
	switch {
	case outer.Type.Kind() == reflect.Pointer:
		f.through = append([]pointer{{outer.Offset, outer.Type.Elem()}}, f.through...)
	case len(f.through) > 0:
		f.through = slices.Clone(f.through)
		f.through[0].offset += outer.Offset
	default:
		f.offset += outer.Offset
	}
	return f
}

// in returns the address of the field of a struct, nil behind an embedded pointer that is
// nil.
func (f *field) in(at unsafe.Pointer) unsafe.Pointer {
	if f.through != nil {
		if at = f.followPointers(at, false); at == nil {
			return nil
		}
	}
	return unsafe.Add(at, f.offset)
}

// followPointers returns where the embedded pointers lead to. If one is nil it returns nil, or
// allocates what the pointer points to.
func (f *field) followPointers(at unsafe.Pointer, allocate bool) unsafe.Pointer {
	for _, through := range f.through {
		to := (*unsafe.Pointer)(unsafe.Add(at, through.offset))
		if *to == nil {
			if !allocate {
				return nil
			}
			*to = reflect.New(through.t).UnsafePointer()
		}
		at = *to
	}
	return at
}

// isLeftOut reports whether omitempty leaves the field of a struct out.
func (f *field) isLeftOut(at unsafe.Pointer) bool {
	at = f.in(at)
	return at == nil || f.omitEmpty && f.isEmpty(at)
}

// isEmpty is empty, which it need not call for the usual kinds.
func (f *field) isEmpty(at unsafe.Pointer) bool {
	switch f.kind {
	case reflect.String:
		return *(*string)(at) == ""
	case reflect.Slice:
		return len(*(*[]byte)(at)) == 0 // of any slice
	case reflect.Int64:
		return *(*int64)(at) == 0
	case reflect.Bool:
		return !*(*bool)(at)
	default:
		return f.empty(at)
	}
}

// isEmpty reports whether nothing of a struct would be written.
func (s *structPlan) isEmpty(at unsafe.Pointer) bool {
	if !s.omits {
		return len(s.fields) == 0
	}
	for i := range s.fields {
		if !s.fields[i].isLeftOut(at) {
			return false
		}
	}
	return true
}
