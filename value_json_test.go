package harp

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"
)

func TestValueJSON(t *testing.T) {
	at := time.Date(2027, 3, 28, 2, 30, 0, 5000, time.FixedZone("CET", 3600))
	for _, c := range []struct {
		in   any
		want string
	}{
		{nil, "null"},
		{[]byte("hi"), `"aGk="`},
		{at, `"2027-03-28T01:30:00.000005Z"`},
		{math.NaN(), `"NaN"`},
		{math.Inf(1), `"+Inf"`},
		{math.Inf(-1), `"-Inf"`},
		{uint64(math.MaxUint64), "18446744073709551615"},
		{int64(math.MinInt64), "-9223372036854775808"},
		{"<a&b>", `"<a&b>"`},
		{"\x00\x1b[31m", "\"\\u0000\\u001b[31m\""},
		{1.5, "1.5"},
		{map[string]any{"b": 1, "a": []any{nil, true}}, `{"a":[null,true],"b":1}`},
		{map[int]string{2: "x"}, `{"2":"x"}`},
		{[]any{math.NaN(), map[string]any{"t": at}}, `["NaN",{"t":"2027-03-28T01:30:00.000005Z"}]`},
	} {
		got := mustValue(t, c.in).String()
		if got != c.want {
			t.Errorf("%v: got %s, want %s", c.in, got, c.want)
		}
	}
	if text := (Value{0xc1}).String(); !strings.Contains(text, "invalid value") {
		t.Error(text)
	}
	if _, err := json.Marshal(struct{ V Value }{Value{0xc1}}); err == nil {
		t.Error("an invalid value was marshalled")
	}
}

func TestValueUnmarshalJSON(t *testing.T) {
	for text, want := range map[string]any{
		"null":                   nil,
		"1":                      int64(1),
		"-0":                     int64(0),
		"1.0":                    1.0,
		"1e2":                    100.0,
		"9223372036854775808":    uint64(1 << 63),
		"-9223372036854775808":   int64(math.MinInt64),
		`"x"`:                    "x",
		` {"a":[1,{"b":null}]} `: map[string]any{"a": []any{int64(1), map[string]any{"b": nil}}},
		strings.Repeat("[", 32) + "" + strings.Repeat("]", 32): nestedLists(32),
	} {
		var v Value
		if err := v.UnmarshalJSON([]byte(text)); err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if got, err := v.Any(); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %#v %v, want %#v", text, got, err, want)
		}
	}
	for _, text := range []string{
		"", "{", "1 2", "nul", "18446744073709551616", "-9223372036854775809", "1e400", `{"a":1}x`,
		strings.Repeat("[", 33) + strings.Repeat("]", 33), strings.Repeat("[", 100_000),
	} {
		v := Value{0xc3}
		if err := v.UnmarshalJSON([]byte(text)); !errors.Is(err, ErrInvalid) {
			t.Errorf("%.20s: %v", text, err)
		}
		if !bytes.Equal(v, Value{0xc3}) {
			t.Errorf("%.20s: the value was changed", text)
		}
	}
}

func nestedLists(n int) any {
	v := any([]any{})
	for range n - 1 {
		v = []any{v}
	}
	return v
}

// FuzzValueJSON: any JSON text is refused or becomes a Value that prints as the same
// JSON again.
func FuzzValueJSON(f *testing.F) {
	for _, seed := range []string{`{"a":[1,2.5,"x",null,true]}`, "1e2", `"\ud800"`, "18446744073709551615", "[[[]]]", "-0.0", `{"":{"":0}}`, "1e20", "100000000000000100.0"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var v Value
		if err := v.UnmarshalJSON(text); err != nil {
			if !errors.Is(err, ErrInvalid) {
				t.Fatal(err)
			}
			return
		}
		printed, err := v.MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		var again Value
		if err := again.UnmarshalJSON(printed); err != nil {
			t.Fatal(err)
		}
		a, errA := v.Canonical()
		b, errB := again.Canonical()
		if errA != nil || errB != nil || !bytes.Equal(a, b) {
			t.Fatalf("%s became %s", text, printed)
		}
	})
}
