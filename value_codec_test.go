package harp

import (
	"bytes"
	"testing"

	"github.com/harpcaller/harp/internal/needs"
)

// TestDecodeKeeps: what a value does not mention stays, and bytes are never written into
// a slice that somebody else may have.
func TestDecodeKeeps(t *testing.T) {
	type target struct {
		Name   string `json:"name"`
		Count  int8   `json:"count,omitempty"`
		secret string
	}
	mine := []byte("mine")
	got := target{Name: "before", secret: "s"}
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

// TestValueAllocs: a value costs itself.
func TestValueAllocs(t *testing.T) {
	needs.NoRaceDetector(t)
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
	b.ReportAllocs()
	for b.Loop() {
		v, err := NewValue(in)
		if err != nil {
			b.Fatal(err)
		}
		var out args
		if err := v.Decode(&out); err != nil {
			b.Fatal(err)
		}
	}
}
