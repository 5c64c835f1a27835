package schema

import (
	"encoding/json"
	"reflect"
	"testing"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/needs"
)

// plainArgs have a field of every plain kind.
type plainArgs struct {
	Name    string             `json:"name"`
	Count   int                `json:"count,omitempty"`
	Ratio   *float64           `json:"ratio,omitempty"`
	On      bool               `json:"on,omitempty"`
	Data    []byte             `json:"data,omitempty"`
	Tags    []string           `json:"tags,omitempty"`
	Weights map[string]int     `json:"weights,omitempty"`
	Wait    time.Duration      `json:"wait,omitempty"`
	Inner   struct{ A, B int } `json:"inner,omitempty"`
}

// plainSchemas are schemas with a plain form, and some without.
func plainSchemas(t testing.TB) (with, without []*Args) {
	compile := func(params []string, text []byte) *Args {
		a, err := Compile(harp.ProcedureDoc{Params: params, Args: text})
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	for _, typ := range []reflect.Type{
		reflect.TypeFor[plainArgs](), reflect.TypeFor[struct{}](), reflect.TypeFor[map[string]string](),
		reflect.TypeFor[[]int](), reflect.TypeFor[any](), reflect.TypeFor[float64](), reflect.TypeFor[map[string]any](),
	} {
		sig, err := SignatureOf(typ)
		if err != nil {
			t.Fatal(err)
		}
		with = append(with, compile(sig.Params, sig.Args))
	}
	for _, text := range []string{
		`{"type":"object","properties":{"n":{"type":"integer","minimum":1}}}`,
		`{"type":"object","properties":{"at":{"type":"string","format":"date-time"}}}`,
		`{"type":"object","required":["x"]}`,
		`{"type":"string","pattern":"a"}`,
		`{"type":"array","prefixItems":[{"type":"string"}]}`,
		`{"enum":[1]}`,
		`false`,
	} {
		without = append(without, compile(nil, []byte(text)))
	}
	return with, without
}

func TestPlain(t *testing.T) {
	with, without := plainSchemas(t)
	for i, a := range with {
		if a.typesOnly == nil {
			t.Errorf("schema %d has no plain form", i)
		}
	}
	for i, a := range without {
		if a.typesOnly != nil {
			t.Errorf("schema %d has a plain form", i)
		}
	}
	for text, want := range map[string]bool{
		`{"name":"x"}`: true, `{"name":"x","count":3,"tags":["a"],"weights":{"a":1,"b":2},"inner":{"A":1,"B":2}}`: true,
		`{}`: false, `{"name":3}`: false, `{"name":"x","more":1}`: false, `["x"]`: false, `{"name":"x","count":1.0}`: false,
	} {
		var v harp.Value
		if err := json.Unmarshal([]byte(text), &v); err != nil {
			t.Fatal(err)
		}
		if with[0].typesOnly.accepts(v) != want {
			t.Errorf("%s: %v", text, !want)
		}
	}
	if !with[1].typesOnly.acceptsNone() || with[0].typesOnly.acceptsNone() || with[3].typesOnly.acceptsNone() {
		t.Error("who takes no arguments")
	}
}

// FuzzPlain: what has a plain form and is accepted so, the library accepts, and it
// means the same.
func FuzzPlain(f *testing.F) {
	with, _ := plainSchemas(f)
	ratio := 0.5
	full := plainArgs{"x", 70000, &ratio, true, []byte{1}, []string{"a", "b"}, map[string]int{"a": 1, "b": -300}, time.Hour, struct{ A, B int }{1, 2}}
	for _, v := range []any{
		full,
		plainArgs{Name: "x"},
		map[string]string{"a": "b"},
		[]int{1, 2},
		map[string]any{"value": 1.5},
		nil,
		harp.Value("\x82\xa1b\xa1x\xa1a\xa1y"), // not sorted
		harp.Value("\x81\x01\xa1x"),            // a key that is no text
		harp.Value("\x81\xa5value\xcb\x7f\xf8\x00\x00\x00\x00\x00\x01"),
	} {
		b, err := harp.NewValue(v)
		if err != nil {
			f.Fatal(err)
		}
		f.Add([]byte(b))
	}
	f.Add([]byte("\x82\xa4name\xa1x\xa4name\xa1y")) // twice
	f.Fuzz(func(t *testing.T, b []byte) {
		for i, a := range with {
			got, err := a.Bind(b)
			want, wantErr := a.bindValue(b, nil)
			if (err == nil) != (wantErr == nil) {
				t.Fatalf("schema %d: %v, the library: %v", i, err, wantErr)
			}
			if err != nil {
				continue
			}
			g, gotErr := got.Canonical()
			w, wantErr := want.Canonical()
			if gotErr != nil || wantErr != nil || string(g) != string(w) {
				t.Fatalf("schema %d: %v, the library: %v (%v, %v)", i, got, want, gotErr, wantErr)
			}
		}
	})
}

// TestPlainAllocs: to check plain arguments costs nothing.
func TestPlainAllocs(t *testing.T) {
	needs.NoRaceDetector(t)
	with, _ := plainSchemas(t)
	v, err := harp.NewValue(plainArgs{Name: "x", Data: make([]byte, 100)})
	if err != nil {
		t.Fatal(err)
	}
	if n := testing.AllocsPerRun(100, func() { _, err = with[0].Bind(v) }); n > 0 || err != nil {
		t.Errorf("%v allocations, %v", n, err)
	}
}

// BenchmarkBind checks arguments of a few fields, as they lie there and by the
// library.
func BenchmarkBind(b *testing.B) {
	with, _ := plainSchemas(b)
	v, err := harp.NewValue(plainArgs{Name: "x", Data: make([]byte, 100)})
	if err != nil {
		b.Fatal(err)
	}
	for name, bind := range map[string]func(harp.Value) (harp.Value, error){"plain": with[0].Bind, "library": func(v harp.Value) (harp.Value, error) { return with[0].bindValue(v, nil) }} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := bind(v); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
