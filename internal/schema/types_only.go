package schema

import (
	"math"
	"reflect"
	"slices"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/msgpack"
)

// typesOnly checks arguments as they lie there, by a schema that asks for nothing but
// types: objects of typed properties, lists, texts, numbers, bytes. What it accepts
// Bind would return with the same meaning; what it does not may still fit.
type typesOnly struct {
	kinds    kind
	fields   map[string]typedField
	required uint64     // bits of the fields that must be there
	others   *typesOnly // what fields with other names are; nil: there are none
	items    *typesOnly
}

// typedField is a property and its bit, among at most 64.
type typedField struct {
	*typesOnly
	bit uint64
}

// kind is a set of kinds of values.
type kind uint

const (
	kindNil   kind = 1 << msgpack.KindNil
	kindBool  kind = 1 << msgpack.KindBool
	kindInt   kind = 1 << msgpack.KindInt
	kindFloat kind = 1 << msgpack.KindFloat
	kindText  kind = 1 << msgpack.KindString
	kindBytes kind = 1 << msgpack.KindBytes
	kindList  kind = 1 << msgpack.KindArray
	kindMap   kind = 1 << msgpack.KindMap
)

// scalars are what may stand where anything goes: a map or list there may hold what
// Bind writes anew.
const scalars = kindNil | kindBool | kindInt | kindFloat | kindText | kindBytes

// maxTypedFields is how many properties can be marked as seen.
const maxTypedFields = 64

// typesOnlyOf returns the check of a schema that asks for types only, nil if it asks for more.
func typesOnlyOf(s *jsonschema.Schema) *typesOnly {
	if s == nil || isTrue(s) {
		return &typesOnly{kinds: scalars}
	}
	if !asksForTypes(s) {
		return nil
	}
	p := &typesOnly{}
	for _, t := range types(s) {
		k := kindsOf(s, t)
		if k == 0 {
			return nil
		}
		p.kinds |= k
	}
	if p.kinds&kindList != 0 {
		if p.items = typesOnlyOf(s.Items); p.items == nil {
			return nil
		}
	}
	if p.kinds&kindMap != 0 && !p.setFields(s) {
		return nil
	}
	return p
}

// asksForTypes reports whether a schema names types and uses no keyword that is not
// known here.
func asksForTypes(s *jsonschema.Schema) bool {
	rest := *s
	rest.Type, rest.Types, rest.Format, rest.ContentEncoding = "", nil, "", ""
	rest.Properties, rest.Required, rest.AdditionalProperties, rest.Items = nil, nil, nil, nil
	rest.Title, rest.Description, rest.Comment, rest.PropertyOrder = "", "", "", nil
	rest.Default, rest.Examples, rest.Deprecated, rest.ReadOnly, rest.WriteOnly = nil, nil, false, false, false
	return len(types(s)) > 0 && s.Format != formatTime && reflect.DeepEqual(rest, jsonschema.Schema{})
}

// kindsOf returns the forms of a JSON type that need no other look, 0 for a type that
// is none.
func kindsOf(s *jsonschema.Schema, t string) kind {
	switch t {
	case "null":
		return kindNil
	case "boolean":
		return kindBool
	case "integer":
		return kindInt
	case "number":
		return kindInt | kindFloat
	case "string":
		if s.ContentEncoding == encodingBase64 {
			return kindBytes
		}
		return kindText
	case "array":
		return kindList
	case "object":
		return kindMap
	}
	return 0
}

// setFields notes what an object holds. It reports whether their schemas ask for
// types only.
func (p *typesOnly) setFields(s *jsonschema.Schema) bool {
	if len(s.Properties) > maxTypedFields {
		return false
	}
	p.fields = make(map[string]typedField, len(s.Properties))
	bit := uint64(1)
	for name, property := range s.Properties {
		field := typesOnlyOf(property)
		if field == nil {
			return false
		}
		p.fields[name] = typedField{field, bit}
		bit <<= 1
	}
	for _, name := range s.Required {
		field, ok := p.fields[name]
		if !ok {
			return false
		}
		p.required |= field.bit
	}
	if isFalse(s.AdditionalProperties) {
		return true
	}
	p.others = typesOnlyOf(s.AdditionalProperties)
	return p.others != nil
}

// accepts reports whether args, which may be any bytes, are a valid value that fits as
// it is.
func (p *typesOnly) accepts(args harp.Value) bool {
	if p == nil || msgpack.Validate(args, msgpack.ValueLimits) != nil {
		return false
	}
	r := msgpack.NewReader(args)
	p.readValue(&r)
	return r.Done()
}

// emptyMap is what a call without arguments has.
const emptyMap = 0x80

// acceptsNone reports whether there may be no arguments where a map is wanted.
func (p *typesOnly) acceptsNone() bool { return p != nil && p.kinds == kindMap && p.required == 0 }

// readValue reads a value. If it does not fit the reader gets odd.
func (p *typesOnly) readValue(r *msgpack.Reader) {
	k := kind(1) << r.Kind()
	if p.kinds&k == 0 {
		r.Fail()
		return
	}
	switch k {
	case kindBool:
		r.Bool()
	case kindInt:
		r.Int()
	case kindFloat:
		if f := r.Float(); math.IsNaN(f) || math.IsInf(f, 0) {
			r.Fail()
		}
	case kindText:
		r.Text()
	case kindBytes:
		r.Bytes()
	case kindList:
		for range r.Array() {
			p.items.readValue(r)
		}
	case kindMap:
		p.readMap(r)
	default:
		r.Nil()
	}
}

// readMap reads an object whose keys are texts and each there once: of keys that are
// no properties that is known when they are sorted.
func (p *typesOnly) readMap(r *msgpack.Reader) {
	var seen uint64
	var last []byte
	for range r.Map() {
		name := r.Text()
		if f, ok := p.fields[string(name)]; ok {
			if seen&f.bit != 0 {
				r.Fail()
			}
			seen |= f.bit
			f.readValue(r)
			continue
		}
		if p.others == nil || last != nil && slices.Compare(last, name) >= 0 {
			r.Fail()
			return
		}
		last = name
		p.others.readValue(r)
	}
	if seen&p.required != p.required {
		r.Fail()
	}
}
