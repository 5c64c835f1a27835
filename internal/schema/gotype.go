package schema

import (
	"encoding"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/vmihailenco/msgpack/v5"

	"github.com/harpcaller/harp"
)

// Form says how the arguments of a call fill the one value that a procedure's
// function takes.
type Form int

// The forms.
const (
	FormNamed  Form = iota // a struct or map: the arguments by name
	FormList               // a slice or array: the positional arguments
	FormSingle             // one of another type: the argument called value
	FormAny                // an any or harp.Value: the arguments as they are
)

// SingleName is what the only parameter of a procedure of the form FormSingle is
// called.
const SingleName = "value"

// Signature is what a Go type says of a procedure's arguments.
type Signature struct {
	Form   Form
	Params []string        // in order; only structs and FormSingle have them
	Args   json.RawMessage // JSON Schema
}

// SignatureOf returns the arguments of a procedure whose function takes a t. The
// error says which type in t has no schema.
func SignatureOf(t reflect.Type) (Signature, error) {
	s, err := forType(t)
	if err != nil {
		return Signature{}, err
	}
	sig := Signature{Form: formOf(t)}
	switch sig.Form {
	case FormSingle:
		sig.Params = []string{SingleName}
		s = single(s)
	case FormNamed:
		sig.Params = s.PropertyOrder
		s.Type, s.Types = "object", nil // no arguments are an empty map
	case FormList, FormAny:
	}
	sig.Args, err = json.Marshal(s)
	return sig, err
}

// Of returns the JSON Schema of t, for records and results. The error says which
// type in t has no schema.
func Of(t reflect.Type) (json.RawMessage, error) {
	s, err := forType(t)
	if err != nil {
		return nil, err
	}
	return json.Marshal(s)
}

func single(s *jsonschema.Schema) *jsonschema.Schema {
	return &jsonschema.Schema{
		Type:                 "object",
		Properties:           map[string]*jsonschema.Schema{SingleName: s},
		Required:             []string{SingleName},
		AdditionalProperties: &jsonschema.Schema{Not: &jsonschema.Schema{}},
	}
}

func formOf(t reflect.Type) Form {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	s := special(t)
	switch k := t.Kind(); {
	case s != nil && len(types(s)) == 0, k == reflect.Interface:
		return FormAny
	case s != nil:
		return FormSingle
	case k == reflect.Struct, k == reflect.Map:
		return FormNamed
	case k == reflect.Slice, k == reflect.Array:
		return FormList
	}
	return FormSingle
}

// forType makes the schema of t.
func forType(t reflect.Type) (*jsonschema.Schema, error) {
	w := walker{schemas: map[reflect.Type]*jsonschema.Schema{}, path: map[reflect.Type]bool{}}
	if err := w.walk(t); err != nil {
		return nil, err
	}
	return w.make(t)
}

// walker finds the types whose schema differs from what the library would make of
// them, so that schemas tell what is on the wire.
type walker struct {
	schemas map[reflect.Type]*jsonschema.Schema
	path    map[reflect.Type]bool // the types t is inside of
}

func (w *walker) make(t reflect.Type) (*jsonschema.Schema, error) {
	s, err := jsonschema.ForType(t, &jsonschema.ForOptions{TypeSchemas: w.schemas})
	if err != nil {
		return nil, err
	}
	mend(s)
	return s, nil
}

// mend lets a pointer to what may be anything be anything: the library makes it
// nothing but null.
func mend(s *jsonschema.Schema) {
	if s == nil {
		return
	}
	if len(s.Types) == 1 && s.Types[0] == "null" {
		s.Types = nil
	}
	mend(s.Items)
	mend(s.AdditionalProperties)
	for _, p := range s.Properties {
		mend(p)
	}
}

func (w *walker) walk(t reflect.Type) error {
	if s := special(t); s != nil {
		w.schemas[t] = s
		return nil
	}
	if w.path[t] {
		return fmt.Errorf("type %v holds itself", t)
	}
	w.path[t] = true
	defer delete(w.path, t)
	switch t.Kind() {
	case reflect.Uintptr:
		return fmt.Errorf("type %v has no form on the wire", t)
	case reflect.Pointer, reflect.Slice, reflect.Array:
		return w.walk(t.Elem())
	case reflect.Map:
		return w.walkMap(t)
	case reflect.Struct:
		return w.walkStruct(t)
	default:
		return nil
	}
}

// walkMap lets a nil map be what it is on the wire.
func (w *walker) walkMap(t reflect.Type) error {
	if t.Key().Kind() != reflect.String || special(t.Key()) != nil {
		return fmt.Errorf("type %v: the keys must be strings", t)
	}
	if err := w.walk(t.Elem()); err != nil {
		return err
	}
	elem, err := w.make(t.Elem())
	if err != nil {
		return err
	}
	w.schemas[t] = &jsonschema.Schema{Types: []string{"null", "object"}, AdditionalProperties: elem}
	return nil
}

func (w *walker) walkStruct(t reflect.Type) error {
	for _, f := range reflect.VisibleFields(t) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if !f.IsExported() || f.Anonymous || f.Tag.Get("json") == "-" {
			continue
		}
		if other, _, _ := strings.Cut(f.Tag.Get("msgpack"), ","); other != "" && other != name {
			return fmt.Errorf("type %v: field %s has another name by its msgpack tag than by its json tag", t, f.Name)
		}
		if err := w.walk(f.Type); err != nil {
			return fmt.Errorf("field %s: %w", f.Name, err)
		}
	}
	return nil
}

// special returns the schema of a type that is not on the wire what its kind is,
// nil for all others.
func special(t reflect.Type) *jsonschema.Schema {
	isBytes := (t.Kind() == reflect.Slice || t.Kind() == reflect.Array) && t.Elem().Kind() == reflect.Uint8
	switch {
	case t.Kind() == reflect.Interface, t.Kind() == reflect.Pointer:
		return nil
	case t == reflect.TypeFor[time.Time]():
		return &jsonschema.Schema{Type: "string", Format: formatTime}
	case t == reflect.TypeFor[time.Duration]():
		return &jsonschema.Schema{Type: "integer", Format: formatNanoseconds}
	case t == reflect.TypeFor[harp.Value](), implements[msgpack.CustomEncoder](t), implements[msgpack.Marshaler](t):
		return &jsonschema.Schema{}
	case implements[encoding.BinaryMarshaler](t), isBytes && t.Kind() == reflect.Array:
		return &jsonschema.Schema{Type: "string", ContentEncoding: encodingBase64}
	case implements[encoding.TextMarshaler](t):
		return &jsonschema.Schema{Type: "string"}
	case isBytes:
		return &jsonschema.Schema{Types: []string{"null", "string"}, ContentEncoding: encodingBase64}
	}
	return nil
}

func implements[I any](t reflect.Type) bool {
	i := reflect.TypeFor[I]()
	return t.Implements(i) || reflect.PointerTo(t).Implements(i)
}
