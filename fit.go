package harp

import (
	"encoding"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/vmihailenco/msgpack/v5"
)

// fit goes over what msgpack has decoded and puts right what it does in silence. A
// number that was cut to its type's size (300 into an int8 gives 44) is refused;
// what is an `any` becomes what Value.Any says, and a time is in UTC. was is the
// value as Value.Any returned it.
func fit(path string, v reflect.Value, was any) error {
	for v.Kind() == reflect.Pointer && !v.IsNil() {
		v = v.Elem()
	}
	if was == nil {
		return nil
	}
	if t, ok := timeIn(v); ok {
		*t = t.UTC()
		return nil
	}
	if decodesItself(v.Type()) {
		return nil
	}
	switch v.Kind() {
	case reflect.Interface:
		return fitAny(path, v, was)
	case reflect.Struct:
		return fitStruct(path, v, was)
	case reflect.Map:
		return fitMap(path, v, was)
	case reflect.Slice, reflect.Array:
		return fitList(path, v, was)
	default:
		return fitNumber(path, v, was)
	}
}

// timeIn returns the time that v is.
func timeIn(v reflect.Value) (*time.Time, bool) {
	if v.Type() != reflect.TypeFor[time.Time]() || !v.CanAddr() || !v.CanInterface() {
		return nil, false
	}
	t, ok := v.Addr().Interface().(*time.Time)
	return t, ok
}

// fitAny replaces what an `any` got, unless it held a pointer to decode into.
func fitAny(path string, v reflect.Value, was any) error {
	switch {
	case v.Elem().Kind() == reflect.Pointer:
		return fit(path, v.Elem(), was)
	case v.NumMethod() == 0 && v.CanSet():
		v.Set(reflect.ValueOf(was))
	}
	return nil
}

func fitStruct(path string, v reflect.Value, was any) error {
	fields := fieldsOf(v.Type())
	switch was := was.(type) {
	case map[string]any:
		for _, f := range fields {
			if err := f.fit(path+"."+f.name, v, was[f.name]); err != nil {
				return err
			}
		}
	case []any: // fields in their order
		for i, f := range fields[:min(len(fields), len(was))] {
			if err := f.fit(path+"."+f.name, v, was[i]); err != nil {
				return err
			}
		}
	}
	return nil
}

func fitMap(path string, v reflect.Value, was any) error {
	entries, ok := was.(map[string]any)
	if !ok || v.IsNil() {
		return nil
	}
	t := v.Type()
	for text, was := range entries {
		path := path + "." + text
		key, known := keyFrom(text, t.Key())
		if !known {
			return nil
		}
		if !key.IsValid() {
			return misfit(path, text, t.Key())
		}
		if elem := v.MapIndex(key); elem.IsValid() {
			settled := reflect.New(t.Elem()).Elem()
			settled.Set(elem)
			if err := fit(path, settled, was); err != nil {
				return err
			}
			v.SetMapIndex(key, settled)
		}
	}
	return nil
}

// keyFrom makes a map's key of its text: the zero reflect.Value of a number that is
// too large for it. known is false for keys that are neither strings nor integers.
func keyFrom(text string, t reflect.Type) (key reflect.Value, known bool) {
	key = reflect.New(t).Elem()
	switch {
	case decodesItself(t):
		return key, false
	case key.Kind() == reflect.String:
		key.SetString(text)
	case key.CanInt():
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil || key.OverflowInt(n) {
			return reflect.Value{}, true
		}
		key.SetInt(n)
	case key.CanUint():
		n, err := strconv.ParseUint(text, 10, 64)
		if err != nil || key.OverflowUint(n) {
			return reflect.Value{}, true
		}
		key.SetUint(n)
	default:
		return key, false
	}
	return key, true
}

func fitList(path string, v reflect.Value, was any) error {
	items, ok := was.([]any)
	if !ok {
		return nil
	}
	for i, was := range items[:min(len(items), v.Len())] {
		if err := fit(path+"["+strconv.Itoa(i)+"]", v.Index(i), was); err != nil {
			return err
		}
	}
	return nil
}

func fitNumber(path string, v reflect.Value, was any) error {
	fits := true
	switch {
	case v.CanInt():
		if n, ok := was.(int64); ok {
			fits = v.Int() == n
		} else if _, ok := was.(uint64); ok {
			fits = false
		}
	case v.CanUint():
		switch n := was.(type) {
		case int64:
			fits = n >= 0 && v.Uint() == uint64(n)
		case uint64:
			fits = v.Uint() == n
		}
	case v.CanFloat():
		fits = holds(v.Float(), was)
	}
	if !fits {
		return misfit(path, was, v.Type())
	}
	return nil
}

// holds reports whether f is the number was, as far as a float can be.
func holds(f float64, was any) bool {
	switch n := was.(type) {
	case int64:
		return f >= -(1<<63) && f < 1<<63 && int64(f) == n
	case uint64:
		return f >= 0 && f < 1<<64 && uint64(f) == n
	case float64:
		return math.IsInf(f, 0) == math.IsInf(n, 0)
	}
	return true
}

func misfit(path string, was any, t reflect.Type) error {
	return &FieldError{Field: path, Message: fmt.Sprintf("%v does not fit %s", was, t)}
}

// structField is a field as msgpack names it.
type structField struct {
	name  string
	index []int
}

// fit fits the field of a struct, unless an embedded pointer on the way is nil.
func (f structField) fit(path string, v reflect.Value, was any) error {
	field, err := v.FieldByIndexErr(f.index)
	if err != nil {
		return nil
	}
	return fit(path, field, was)
}

var structFields sync.Map // reflect.Type to []structField

// fieldsOf returns the fields of a struct in their order, embedded ones inlined.
func fieldsOf(t reflect.Type) []structField {
	if known, ok := structFields.Load(t); ok {
		return known.([]structField) //nolint:forcetypeassert // nothing else is stored
	}
	var fields []structField
	for i := range t.NumField() {
		f := t.Field(i)
		name, inline := fieldName(f)
		switch {
		case name == "-":
		case inline:
			for _, inner := range fieldsOf(structType(f.Type)) {
				fields = append(fields, structField{inner.name, append([]int{i}, inner.index...)})
			}
		case f.IsExported():
			fields = append(fields, structField{name, f.Index})
		}
	}
	structFields.Store(t, fields)
	return fields
}

// fieldName returns the name of a field, "-" if it has none, and whether the fields
// of what it embeds stand in its place.
func fieldName(f reflect.StructField) (name string, inline bool) {
	tag := f.Tag.Get("msgpack")
	if tag == "" {
		tag = f.Tag.Get("json")
	}
	name, _, _ = strings.Cut(tag, ",")
	if name == "" {
		name = f.Name
	}
	t := structType(f.Type)
	return name, f.Anonymous && t.Kind() == reflect.Struct && !decodesItself(t)
}

// structType follows pointers.
func structType(t reflect.Type) reflect.Type {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return t
}

var selfDecoders sync.Map // reflect.Type to bool

// decodesItself reports whether a type has its own way to be decoded, which is not
// looked into.
func decodesItself(t reflect.Type) bool {
	if known, ok := selfDecoders.Load(t); ok {
		return known.(bool) //nolint:forcetypeassert // nothing else is stored
	}
	does := slices.ContainsFunc(decoders, func(i reflect.Type) bool {
		return t.Implements(i) || reflect.PointerTo(t).Implements(i)
	})
	selfDecoders.Store(t, does)
	return does
}

var decoders = []reflect.Type{
	reflect.TypeFor[msgpack.CustomDecoder](),
	reflect.TypeFor[msgpack.Unmarshaler](),
	reflect.TypeFor[encoding.BinaryUnmarshaler](),
	reflect.TypeFor[encoding.TextUnmarshaler](),
}
