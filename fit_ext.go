package harp

import (
	"reflect"
	"slices"
	"strconv"
	"time"
)

// holdsExt reports whether a value, as Value.Any returned it, is an ext or has one inside.
func holdsExt(was any) bool {
	switch was := was.(type) {
	case time.Time, sealed:
		return true
	case []any:
		return slices.ContainsFunc(was, holdsExt)
	case map[string]any:
		for _, item := range was {
			if holdsExt(item) {
				return true
			}
		}
	}
	return false
}

// keepMaps refuses what would decode an ext into a map, before msgpack does: it takes the
// bytes inside for a map's (DecodeMapLen skips the head of any ext), which may say that
// there are billions of entries, and which no validator has seen as such. v is what is
// decoded into; where there is nothing yet, its type decides.
func keepMaps(path string, v reflect.Value, was any) error {
	if !holdsExt(was) {
		return nil
	}
	v = behind(v)
	if !v.IsValid() || decodesItself(v.Type()) {
		return nil
	}
	switch v.Kind() {
	case reflect.Map:
		return keepMap(path, v.Type(), was)
	case reflect.Struct:
		return keepFields(path, v, was)
	case reflect.Slice, reflect.Array:
		return keepItems(path, v, was)
	default:
		return nil
	}
}

// behind follows pointers and interfaces to what is decoded into: the zero reflect.Value
// if that is what Value.Any makes.
func behind(v reflect.Value) reflect.Value {
	for v.Kind() == reflect.Pointer || v.Kind() == reflect.Interface {
		if v.Kind() == reflect.Pointer && v.IsNil() {
			v = reflect.New(v.Type().Elem())
		}
		v = v.Elem()
	}
	return v
}

func keepMap(path string, t reflect.Type, was any) error {
	entries, ok := was.(map[string]any)
	if !ok {
		return misfit(path, was, t)
	}
	for text, was := range entries {
		if err := keepMaps(path+"."+text, reflect.New(t.Elem()), was); err != nil {
			return err
		}
	}
	return nil
}

func keepItems(path string, v reflect.Value, was any) error {
	items, _ := was.([]any)
	for i, was := range items {
		item := reflect.New(v.Type().Elem())
		if i < v.Len() {
			item = v.Index(i)
		}
		if err := keepMaps(path+"["+strconv.Itoa(i)+"]", item, was); err != nil {
			return err
		}
	}
	return nil
}

func keepFields(path string, v reflect.Value, was any) error {
	entries, _ := was.(map[string]any)
	items, _ := was.([]any) // fields in their order
	for i, f := range fieldsOf(v.Type()) {
		field, err := v.FieldByIndexErr(f.index)
		if err != nil { // in an embedded pointer that is nil
			field = reflect.New(v.Type().FieldByIndex(f.index).Type)
		}
		was := entries[f.name]
		if i < len(items) {
			was = items[i]
		}
		if err := keepMaps(path+"."+f.name, field, was); err != nil {
			return err
		}
	}
	return nil
}
