package store_test

import (
	"reflect"
	"testing"

	"github.com/harpcaller/harp/store"
)

// TestCloneSharesNothing fills all that a job can have, and checks that its clone is equal
// and has no memory in common with it.
func TestCloneSharesNothing(t *testing.T) {
	var j store.Job
	fill(reflect.ValueOf(&j).Elem())
	c := j.Clone()
	if !reflect.DeepEqual(&j, c) {
		t.Fatalf("it is\n%+v, want\n%+v", *c, j)
	}
	apart(t, "Job", reflect.ValueOf(&j), reflect.ValueOf(c))
	if empty := (&store.Job{}).Clone(); !reflect.DeepEqual(*empty, store.Job{}) {
		t.Errorf("of an empty one it is %+v", *empty)
	}
}

// fill gives a value something in each part of it.
func fill(v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem())
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0))
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(reflect.ValueOf("k"), reflect.ValueOf("v"))
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				fill(v.Field(i))
			}
		}
	case reflect.String:
		v.SetString("text")
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int64:
		v.SetInt(7)
	case reflect.Uint8, reflect.Uint32, reflect.Uint64:
		v.SetUint(7)
	default:
		panic("a " + v.Kind().String() + " in a job")
	}
}

// apart checks that two values have no memory in common.
func apart(t *testing.T, what string, a, b reflect.Value) {
	t.Helper()
	switch a.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Map:
		if a.Pointer() == b.Pointer() {
			t.Errorf("%s is the same", what)
		}
	default:
	}
	switch a.Kind() {
	case reflect.Pointer:
		apart(t, what, a.Elem(), b.Elem())
	case reflect.Slice:
		apart(t, what, a.Index(0), b.Index(0))
	case reflect.Struct:
		for i := range a.NumField() {
			if f := a.Type().Field(i); f.IsExported() {
				apart(t, what+"."+f.Name, a.Field(i), b.Field(i))
			}
		}
	default:
	}
}
