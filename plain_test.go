package harp

import (
	"bytes"
	"reflect"
	"testing"
	"time"
)

// plainStructs has a field of every plain kind.
type plainStructs struct {
	Name   string        `json:"name"`
	Count  int8          `json:"count,omitempty"`
	Wait   time.Duration `json:"wait"`
	Size   uint16        `json:"size"`
	Ratio  float64       `json:"ratio,omitempty"`
	On     bool          `json:"on"`
	Data   []byte        `json:"data,omitempty"`
	Tags   []string
	Inner  struct{ A, B int }   `json:"inner"`
	Many   []struct{ C []byte } `json:"many,omitempty"`
	Hidden string               `json:"-"`
	secret string
}

type itself struct{ Kids []itself }

func TestPlain(t *testing.T) {
	for _, v := range []any{
		plainStructs{}, []byte{}, "", 1, true, 1.5, uint8(3), []string{}, time.Second, []plainStructs{},
	} {
		if plainOf(reflect.TypeOf(v)) == nil {
			t.Errorf("%T has no plain form", v)
		}
	}
	for _, v := range []any{
		itself{},
		time.Time{},
		Args{},
		Value{},
		new(int), float32(1),
		[2]byte{},
		&RemoteError{},
		struct{ At time.Time }{},
		struct{ V Value }{},
		struct{ itself }{},
		struct {
			A int `msgpack:"b"`
		}{},
		struct {
			A int `json:"a,string"`
		}{},
	} {
		if p := plainOf(reflect.TypeOf(v)); p != nil {
			t.Errorf("%T has a plain form", v)
		}
	}
}

// TestPlainKeeps: what a value does not mention stays, and bytes are never written into
// a slice that somebody else may have.
func TestPlainKeeps(t *testing.T) {
	mine := []byte("mine")
	got := plainStructs{Name: "before", secret: "s"}
	v := mustValue(t, map[string]any{"count": 3, "unknown": 1})
	if err := v.Decode(&got); err != nil || got.Name != "before" || got.Count != 3 || got.secret != "s" {
		t.Errorf("%+v, %v", got, err)
	}
	if err := mustValue(t, []byte("other")).Decode(&mine); err != nil || string(mine) != "other" {
		t.Errorf("%q, %v", mine, err)
	}
	raw := mustValue(t, []byte("raw"))
	var out []byte
	if err := raw.Decode(&out); err != nil {
		t.Fatal(err)
	}
	out[0] = 'x'
	if !bytes.Contains(raw, []byte("raw")) {
		t.Error("what was decoded shares its memory with the value")
	}
}

// FuzzPlain: what is read and written without the library is what the library reads
// and writes.
func FuzzPlain(f *testing.F) {
	full := plainStructs{
		"x", -3, time.Hour, 300, 0.5, true,
		[]byte{1},
		[]string{"a"},
		struct{ A, B int }{1, -70000},
		[]struct{ C []byte }{{nil}, {[]byte{}}},
		"", "",
	}
	for _, v := range []any{
		full,
		plainStructs{},
		[]byte("x"), "text", -1, 1 << 40, true, 1.5, nil,
		[]byte("\xff"), // read as a text, which no Value may hold
		[]string{"a", "b"},
		[]int64{1},
		map[string]any{"count": 300},
		map[string]any{"Tags": nil, "name": []byte("b"), "more": 1},
		[]any{"by", 3, "position"},
		Value("\x83\xa4Tags\x91\xa1a\xa4Tags\x90\xa4name\xa1y"), // twice
		Value("\x81\xa5count\xcf\xff\xff\xff\xff\xff\xff\xff\xff"),
	} {
		b, err := NewValue(v)
		if err != nil {
			f.Fatal(err)
		}
		f.Add([]byte(b))
	}
	into := []any{plainStructs{}, []byte{}, "", int16(0), uint64(0), true, 1.5, []string{}, []plainStructs{}}
	f.Fuzz(func(t *testing.T, b []byte) {
		v := Value(b)
		if v.Validate() != nil {
			return
		}
		for _, zero := range into {
			got, want := reflect.New(reflect.TypeOf(zero)), reflect.New(reflect.TypeOf(zero))
			err, wantErr := v.Decode(got.Interface()), v.decodeInto(want.Interface())
			if (err == nil) != (wantErr == nil) || err == nil && !same(got.Elem(), want.Elem()) {
				t.Fatalf("%T: read %+v, %v, the library %+v, %v", zero, got.Elem(), err, want.Elem(), wantErr)
			}
			if err != nil {
				continue
			}
			sent, err := encodeValue(got.Elem().Interface())
			known, wantErr := encodeAny(got.Elem().Interface())
			if (err == nil) != (wantErr == nil) || err == nil && !bytes.Equal(sent, known) {
				t.Fatalf("%T: wrote %x, %v, the library %x, %v", zero, sent, err, known, wantErr)
			}
		}
	})
}

// same is equality by which not a number is itself.
func same(a, b reflect.Value) bool {
	if a.Kind() == reflect.Float64 && a.Float() != a.Float() {
		return b.Float() != b.Float()
	}
	return reflect.DeepEqual(a.Interface(), b.Interface()) || a.Kind() == reflect.Struct && a.Field(4).Float() != a.Field(4).Float()
}

// TestPlainAllocs: a plain value costs itself, and to read it a reader. Under the race
// detector a pool forgets now and then.
func TestPlainAllocs(t *testing.T) {
	type args struct {
		Payload []byte `json:"payload"`
		N       int    `json:"n"`
	}
	var v Value
	var err error
	from := any(args{make([]byte, 100), 3})
	if n := testing.AllocsPerRun(100, func() { v, err = NewValue(from) }); n > 3 || err != nil {
		t.Errorf("NewValue: %v allocations, %v", n, err)
	}
	var got args
	if n := testing.AllocsPerRun(100, func() { got = args{}; err = v.Decode(&got) }); n > 2 || err != nil || got.N != 3 {
		t.Errorf("Decode: %v allocations, %v", n, err)
	}
}

// BenchmarkValue encodes and decodes arguments of a few fields.
func BenchmarkValue(b *testing.B) {
	type args struct {
		Payload []byte `json:"payload"`
		Name    string `json:"name"`
		N       int    `json:"n"`
	}
	in := args{make([]byte, 100), "web01", 3}
	for _, way := range []struct {
		name   string
		encode func(any) (Value, error)
		decode func(Value, any) error
	}{{"plain", NewValue, Value.Decode}, {"library", encodeAny, Value.decodeInto}} {
		b.Run(way.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				v, err := way.encode(in)
				if err != nil {
					b.Fatal(err)
				}
				var out args
				if err := way.decode(v, &out); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
