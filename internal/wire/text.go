package wire

import (
	"errors"
	"reflect"
	"strings"
	"unicode/utf8"
)

var errNotText = errors.New("string is not UTF-8")

// isText reports whether every string in v is UTF-8. The validator has seen to those
// that came as strings; bytes are decoded into strings, too.
func isText(v reflect.Value) bool {
	switch v.Kind() {
	case reflect.String:
		return utf8.ValidString(v.String())
	case reflect.Pointer, reflect.Interface:
		return v.IsNil() || isText(v.Elem())
	case reflect.Struct:
		for i := range v.NumField() {
			if !isText(v.Field(i)) {
				return false
			}
		}
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			return true
		}
		for i := range v.Len() {
			if !isText(v.Index(i)) {
				return false
			}
		}
	case reflect.Map:
		for it := v.MapRange(); it.Next(); {
			if !isText(it.Key()) || !isText(it.Value()) {
				return false
			}
		}
	default: // numbers and truth
	}
	return true
}

// text returns a copy of v, a message, in which every string is UTF-8.
func text(v reflect.Value) reflect.Value {
	if v.Kind() == reflect.Pointer && v.IsNil() || isText(v) {
		return v
	}
	c := reflect.New(v.Type()).Elem()
	switch v.Kind() {
	case reflect.String:
		c.SetString(strings.ToValidUTF8(v.String(), string(utf8.RuneError)))
	case reflect.Pointer:
		c.Set(reflect.New(v.Type().Elem()))
		c.Elem().Set(text(v.Elem()))
	case reflect.Interface:
		c.Set(text(v.Elem()))
	case reflect.Struct:
		for i := range v.NumField() {
			c.Field(i).Set(text(v.Field(i)))
		}
	case reflect.Slice:
		c.Set(reflect.MakeSlice(v.Type(), v.Len(), v.Len()))
		for i := range v.Len() {
			c.Index(i).Set(text(v.Index(i)))
		}
	case reflect.Map:
		c.Set(reflect.MakeMapWithSize(v.Type(), v.Len()))
		for it := v.MapRange(); it.Next(); {
			c.SetMapIndex(text(it.Key()), text(it.Value()))
		}
	default:
		c.Set(v)
	}
	return c
}
