package harp

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/harpcaller/harp/internal/msgpack"
)

func mustValue(t testing.TB, v any) Value {
	t.Helper()
	made, err := NewValue(v)
	if err != nil {
		t.Fatal(err)
	}
	return made
}

// wantField fails unless err is ErrInvalid for a field.
func wantField(t testing.TB, err error, field string) {
	t.Helper()
	var fe *FieldError
	if !errors.Is(err, ErrInvalid) || !errors.As(err, &fe) {
		t.Fatalf("got %v, want an ErrInvalid", err)
	}
	if fe.Field != field {
		t.Fatalf("got field %q (%v), want %q", fe.Field, err, field)
	}
}

func TestValueAny(t *testing.T) {
	at := time.Date(2027, 3, 28, 2, 30, 0, 123456789, time.FixedZone("CET", 3600))
	type named struct {
		A int    `json:"a"`
		B string `json:"b,omitempty"`
		c int    //nolint:unused // shows that it is left out
		D any    `json:"-"`
	}
	for _, c := range []struct {
		name string
		in   any
		want any
	}{
		{"nil", nil, nil},
		{"nil map", Args(nil), nil},
		{"nil pointer", (*named)(nil), nil},
		{"bool", true, true},
		{"small int", 5, int64(5)},
		{"negative int", int8(-5), int64(-5)},
		{"large int", int64(math.MinInt64), int64(math.MinInt64)},
		{"uint in range", uint64(math.MaxInt64), int64(math.MaxInt64)},
		{"huge uint", uint64(math.MaxUint64), uint64(math.MaxUint64)},
		{"float32", float32(0.5), 0.5},
		{"float64", 1e300, 1e300},
		{"infinity", math.Inf(-1), math.Inf(-1)},
		{"string", "grüße\x00", "grüße\x00"},
		{"bytes", []byte{1, 2}, []byte{1, 2}},
		{"empty bytes", []byte{}, []byte{}},
		{"time", at, at.UTC()},
		{"old time", time.Unix(-62135596800, 0), time.Unix(-62135596800, 0).UTC()},
		{"duration", time.Second, int64(time.Second)},
		{"list", []string{"a", "b"}, []any{"a", "b"}},
		{"empty list", []int{}, []any{}},
		{"map", map[string]int{"a": 1}, map[string]any{"a": int64(1)}},
		{"int keys", map[int]string{-1: "x", 300: "y"}, map[string]any{"-1": "x", "300": "y"}},
		{"bool keys", map[bool]int{true: 1}, map[string]any{"true": int64(1)}},
		{"float keys", map[float64]int{1.5: 1}, map[string]any{"1.5": int64(1)}},
		{"struct", named{A: 1, D: 2}, map[string]any{"a": int64(1)}},
		{"text marshaler", netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.1").AsSlice()},
		{"nested", map[string]any{"l": []any{1, map[string]any{"x": nil}}}, map[string]any{"l": []any{int64(1), map[string]any{"x": nil}}}},
		{"value", Value{0xc3}, true},
		{"value inside", Args{"v": mustValue(t, []int{1}), "n": Value(nil)}, map[string]any{"v": []any{int64(1)}, "n": nil}},
		{"positional", Pos("a", 2), []any{"a", int64(2)}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := mustValue(t, c.in).Any()
			if err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(got, c.want) {
				t.Errorf("got %#v, want %#v", got, c.want)
			}
		})
	}
	if got, err := mustValue(t, math.NaN()).Any(); err != nil || !math.IsNaN(got.(float64)) {
		t.Error(got, err)
	}
}

func TestNewValueRefuses(t *testing.T) {
	deep := any(1)
	for range MaxDepth + 1 {
		deep = []any{deep}
	}
	for name, v := range map[string]any{
		"channel":       make(chan int),
		"function":      func() {},
		"complex":       complex(1, 2),
		"too deep":      deep,
		"much too deep": deepList(100_000),
		"not UTF-8":     "\xff",
		"key not UTF-8": map[string]int{"\xff": 1},
		"bad value":     Value{0xc1},
		"two values":    Value{1, 2},
		"cut value":     Value{0x92, 1},
		"value in args": Args{"v": Value{0xc1}},
		"too many":      make([]int, msgpack.ValueLimits.Elements+1),
	} {
		t.Run(name, func(t *testing.T) {
			v, err := NewValue(v)
			wantField(t, err, "value")
			if len(v) > 1<<20 {
				t.Error("a large value came with the error")
			}
		})
	}
}

func deepList(n int) any {
	v := any(1)
	for range n {
		v = []any{v}
	}
	return v
}

func TestValueDecode(t *testing.T) {
	type inner struct {
		N uint8 `json:"n,omitempty"`
	}
	type Embedded struct {
		E int8 `json:"e"`
	}
	type target struct {
		Embedded
		A    int8              `json:"a"`
		L    []int16           `json:"l"`
		M    map[int8]string   `json:"m"`
		S    map[string]inner  `json:"s"`
		P    *inner            `json:"p"`
		F    float32           `json:"f"`
		G    float64           `json:"g"`
		U    uint              `json:"u"`
		Arr  [2]uint16         `json:"arr"`
		X    any               `json:"x"`
		XS   []any             `json:"xs"`
		XM   map[string]any    `json:"xm"`
		T    time.Time         `json:"t"`
		TP   *time.Time        `json:"tp"`
		V    Value             `json:"v"`
		D    time.Duration     `json:"d"`
		Raw  []byte            `json:"raw"`
		Txt  netip.Addr        `json:"txt"`
		Ints map[string][]int8 `json:"ints"`
	}
	at := time.Date(2027, 1, 2, 3, 4, 5, 6, time.UTC)
	in := mustValue(t, map[string]any{
		"a": 127, "e": -128, "l": []int{32767}, "m": map[int]string{-128: "x"}, "s": map[string]any{"k": map[string]any{"n": 255}},
		"p": map[string]any{"n": 1}, "f": 16777216, "g": 1 << 53, "u": uint64(math.MaxUint64), "arr": []int{1, 65535},
		"x": 200, "xs": []any{300, at, map[int]int{1: 2}}, "xm": map[string]any{"k": uint16(7), "t": at},
		"t": at, "tp": at, "v": map[string]any{"deep": 1}, "d": int64(time.Minute), "raw": []byte{1},
		"txt": netip.MustParseAddr("10.0.0.1"), "ints": map[string]any{"k": []int{-128}}, "unknown": 1,
	})
	var got target
	if err := in.Decode(&got); err != nil {
		t.Fatal(err)
	}
	want := target{
		Embedded: Embedded{-128}, A: 127, L: []int16{32767}, M: map[int8]string{-128: "x"}, S: map[string]inner{"k": {255}},
		P: &inner{1}, F: 16777216, G: 1 << 53, U: math.MaxUint64, Arr: [2]uint16{1, 65535},
		X: int64(200), XS: []any{int64(300), at, map[string]any{"1": int64(2)}}, XM: map[string]any{"k": int64(7), "t": at},
		T: at, TP: &at, V: mustValue(t, map[string]any{"deep": 1}), D: time.Minute, Raw: []byte{1},
		Txt: netip.MustParseAddr("10.0.0.1"), Ints: map[string][]int8{"k": {-128}},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got\n%+v, want\n%+v", got, want)
	}
}

// TestNarrowing: msgpack cuts integers to the size of their field in silence; harp
// says where.
func TestNarrowing(t *testing.T) {
	type omit struct {
		N uint8 `json:"n,omitempty"`
	}
	type embedded struct{ omit }
	for _, c := range []struct {
		in    any
		into  any
		field string
	}{
		{300, new(int8), "value"},
		{-1, new(uint8), "value"},
		{256, new(uint8), "value"},
		{-1, new(uint64), "value"},
		{uint64(math.MaxUint64), new(int64), "value"},
		{1 << 40, new(int32), "value"},
		{1<<53 + 1, new(float64), "value"},
		{1<<24 + 1, new(float32), "value"},
		{uint64(math.MaxUint64), new(float64), "value"},
		{[]int{1, 300}, new([]int8), "value[1]"},
		{[]int{1, 300}, new([2]int8), "value[1]"},
		{map[string]int{"n": 256}, new(omit), "value.n"},
		{[]int{256}, new(omit), "value.n"},
		{map[string]int{"n": 256}, new(embedded), "value.n"},
		{map[string]any{"k": []any{map[string]any{"n": 256}}}, new(map[string][]*omit), "value.k[0].n"},
		{map[int]string{300: "x"}, new(map[int8]string), "value.300"},
		{map[int]string{300: "x"}, new(map[uint8]string), "value.300"},
		{map[string]int{"k": 300}, new(map[string]int8), "value.k"},
		{"x", new(int), "value"},
		{1, new(string), "value"},
		{1.5, new(int), "value"},
		{[]int{1, 2, 3}, new([2]int), "value"},
		{map[string]int{"a": 1}, new([]int), "value"},
		{1, nil, "value"},
		{1, 5, "value"},
		{1, (*int)(nil), "value"},
	} {
		t.Run(fmt.Sprintf("%v into %T", c.in, c.into), func(t *testing.T) {
			wantField(t, mustValue(t, c.in).Decode(c.into), c.field)
		})
	}
}

// TestDecodeUnhashable: a key that cannot be one is an error, not a panic.
func TestDecodeUnhashable(t *testing.T) {
	v := Value{0x81, 0x91, 0x01, 0x02} // {[1]: 2}
	var m map[any]any
	wantField(t, v.Decode(&m), "value.[1]")
	if got, err := v.Any(); err != nil || !reflect.DeepEqual(got, map[string]any{"[1]": int64(2)}) {
		t.Error(got, err)
	}
}

func TestDecodeSpecial(t *testing.T) {
	v := mustValue(t, Args{"a": 1})
	var x any
	if err := v.Decode(&x); err != nil || !reflect.DeepEqual(x, map[string]any{"a": int64(1)}) {
		t.Error(x, err)
	}
	var same Value
	if err := v.Decode(&same); err != nil || !bytes.Equal(same, v) || &same[0] == &v[0] {
		t.Error("a Value must decode into a copy of itself", err)
	}
	type typed struct{ A int }
	got := typed{7}
	if err := Value(nil).Decode(&got); err != nil || got != (typed{}) {
		t.Error(got, err)
	}
	wantField(t, Value{0xc1}.Decode(&x), "value")
	wantField(t, Value{0xc1}.Decode(&same), "value")
	held := any(&typed{})
	list := []any{held}
	if err := mustValue(t, []any{map[string]any{"A": 3}}).Decode(&list); err != nil {
		t.Error(list, err)
	}
}

// TestSealed: a sealed value passes unopened, shows as stars, and two of them are
// equal only if they are.
func TestSealed(t *testing.T) {
	a := Value{0x81, 0xa1, 'k', 0xd5, msgpack.SealedExt, 1, 2}
	b := Value{0x81, 0xa1, 'k', 0xd5, msgpack.SealedExt, 1, 3}
	if got := a.String(); got != `{"k":"***"}` {
		t.Error(got)
	}
	ca, errA := a.Canonical()
	cb, errB := b.Canonical()
	if errA != nil || errB != nil || bytes.Equal(ca, cb) || !bytes.Equal(ca, a) {
		t.Errorf("%x %x %v %v", ca, cb, errA, errB)
	}
	got, err := a.Any()
	if err != nil {
		t.Fatal(err)
	}
	if text := fmt.Sprint(got); strings.Contains(text, "\x01\x02") || !strings.Contains(text, "***") {
		t.Errorf("%q", text)
	}
	if again := mustValue(t, got); !bytes.Equal(again, a) {
		t.Errorf("%x", again)
	}
}

func TestCanonical(t *testing.T) {
	same := [][]any{
		{map[string]int{"a": 1, "b": 2}, map[string]any{"b": 2.0, "a": uint8(1)}, struct {
			B float32 `json:"b"`
			A int64   `json:"a"`
		}{2, 1}, Value{0x82, 0xa1, 'b', 0xd3, 0, 0, 0, 0, 0, 0, 0, 2, 0xa1, 'a', 1}},
		{1, 1.0, float32(1), uint64(1), Value{0xcf, 0, 0, 0, 0, 0, 0, 0, 1}},
		{0, 0.0, math.Copysign(0, -1)},
		{uint64(1 << 63), float64(1 << 63)},
		{int64(math.MinInt64), float64(-1 << 63)},
		{math.NaN(), float32(math.NaN()), Value{0xcb, 0xff, 0xf8, 0, 0, 0, 0, 0, 9}},
		{"x", Value{0xd9, 1, 'x'}},
		{nil, Value{}, Value{0xc0}},
		{time.Unix(5, 0), time.Unix(5, 0).UTC()},
		{map[string]any{"k": []any{1.0, map[string]any{"z": 0.0, "y": 1}}}, map[string]any{"k": []any{1, map[string]any{"y": 1.0, "z": 0}}}},
		{map[string]int{"1": 2}, map[int]int{1: 2}},
	}
	var seen []Value
	for i, group := range same {
		first, err := mustValue(t, group[0]).Canonical()
		if err != nil {
			t.Fatal(err)
		}
		for _, v := range group {
			got, err := mustValue(t, v).Canonical()
			if err != nil || !bytes.Equal(got, first) {
				t.Errorf("%v: %x (%v), want %x", v, got, err, first)
			}
			again, err := got.Canonical()
			if err != nil || !bytes.Equal(again, got) {
				t.Errorf("%v: the canonical form has another: %x", v, again)
			}
		}
		if slices.ContainsFunc(seen, func(v Value) bool { return bytes.Equal(v, first) }) {
			t.Errorf("group %d equals another", i)
		}
		seen = append(seen, first)
	}
	for _, v := range []any{1.5, 1e300, math.Inf(1), "1", []byte("1"), map[string]any{}, []any{}} {
		if got, err := mustValue(t, v).Canonical(); err != nil || slices.ContainsFunc(seen, func(s Value) bool { return bytes.Equal(s, got) }) {
			t.Errorf("%v: %x %v", v, got, err)
		}
	}
}

// anyValue draws what a Value can hold.
func anyValue(depth int) *rapid.Generator[any] {
	leaves := []*rapid.Generator[any]{
		rapid.Just[any](nil),
		rapid.Bool().AsAny(), rapid.Int64().AsAny(), rapid.Float64().AsAny(), rapid.String().AsAny(),
		rapid.SliceOf(rapid.Byte()).AsAny(),
		rapid.Uint64Min(math.MaxInt64 + 1).AsAny(),
		rapid.Map(rapid.Int64Range(-1<<40, 1<<40), func(s int64) any { return time.Unix(s, s&0xfffff).UTC() }),
	}
	if depth == 0 {
		return rapid.OneOf(leaves...)
	}
	return rapid.OneOf(append(leaves,
		rapid.SliceOfN(anyValue(depth-1), 0, 4).AsAny(),
		rapid.MapOfN(rapid.String(), anyValue(depth-1), 0, 4).AsAny(),
	)...)
}

// TestValueRoundTrip: Any and NewValue are inverse to each other, and a canonical
// form is one.
func TestValueRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v, err := NewValue(anyValue(4).Draw(t, "value"))
		if err != nil {
			t.Fatal(err)
		}
		got, err := v.Any()
		if err != nil {
			t.Fatal(err)
		}
		again, err := NewValue(got)
		if err != nil || !bytes.Equal(again, v) {
			t.Fatalf("%x became %x: %v", []byte(v), []byte(again), err)
		}
		var decoded any
		if err := v.Decode(&decoded); err != nil {
			t.Fatal(err)
		}
		if text, err := v.MarshalJSON(); err != nil || !json.Valid(text) {
			t.Fatalf("%s %v", text, err)
		}
	})
}

// TestValueMessages: a Value is bin inside a message and what it holds inside another
// Value.
func TestValueMessages(t *testing.T) {
	type row struct {
		V Value `msgpack:"v,omitempty"`
	}
	for _, v := range []Value{nil, {0xc3}, mustValue(t, Args{"a": 1})} {
		b := appendMessage(nil, row{v})
		if len(v) > 0 && !bytes.Contains(b, append([]byte{0xc4, byte(len(v))}, v...)) {
			t.Errorf("%x is not bin in %x", []byte(v), b)
		}
		var got row
		if err := requests.Decode(b, &got); err != nil || !bytes.Equal(got.V, v) {
			t.Errorf("%x %v", got.V, err)
		}
	}
}

// FuzzValueDecode: no bytes make a Value panic, whatever they are decoded into.
func FuzzValueDecode(f *testing.F) {
	for _, v := range []any{Args{"a": 1, "l": []int{1}}, []any{1, "x"}, map[int]int{1: 2}, time.Unix(1, 2), 1.5} {
		f.Add([]byte(mustValue(f, v)))
	}
	f.Add([]byte{0x81, 0x91, 0x01, 0x02})
	f.Add([]byte("\xd7\xff\xdf0000000")) // a time that begins like a map of 800 million
	type target struct {
		A int8             `json:"a"`
		L []uint8          `json:"l"`
		M map[int8]float32 `json:"m"`
		X any              `json:"x"`
		T time.Time        `json:"t"`
		V Value            `json:"v"`
		N *target          `json:"n"`
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		v := Value(b)
		valid := v.Validate() == nil
		for _, into := range []any{new(any), new(target), new(map[any]any), new(map[string]any), new([]int8), new(time.Time), new(Value), new(string)} {
			if err := v.Decode(into); err != nil && !errors.Is(err, ErrInvalid) {
				t.Fatalf("%T: %v", into, err)
			} else if err == nil && !valid {
				t.Fatalf("%T: an invalid value was decoded", into)
			}
		}
		if _, err := v.Canonical(); (err == nil) != (valid && !hasAKeyTwice(v)) {
			t.Fatal(valid, err)
		}
		if text, err := v.MarshalJSON(); (err == nil) != valid || valid && !json.Valid(text) {
			t.Fatalf("%v %s %v", valid, text, err)
		}
	})
}

// TestValueWithoutEncoder checks that what the library knows no encoder for is an error.
func TestValueWithoutEncoder(t *testing.T) {
	for _, v := range []any{uintptr(3), struct{ P uintptr }{3}, []any{uintptr(3)}} {
		if got, err := NewValue(v); !errors.Is(err, ErrInvalid) {
			t.Errorf("%T became %v, %v", v, got, err)
		}
	}
}

// hasAKeyTwice reports whether a valid value has fewer entries as Go has it.
func hasAKeyTwice(v Value) bool {
	got, err := v.Any()
	if err != nil {
		return false
	}
	plain, err := NewValue(got)
	return err == nil && plain.countEntries() != v.countEntries()
}

func TestCanonicalRefusesAKeyTwice(t *testing.T) {
	for _, v := range []Value{
		Value("\x82\xa1a\x01\xa1a\x02"),
		Value("\x82\xa1a\x01\xa1a\x01"),
		Value("\x91\x81\xa1b\x82\xa1a\x01\xa1a\x02"),
		Value("\x82\x01\x01\xa11\x02"), // 1 is written as "1"
	} {
		if got, err := v.Canonical(); !errors.Is(err, ErrInvalid) {
			t.Errorf("%x is %x, %v", []byte(v), []byte(got), err)
		}
		if v[0] == 0x82 && v[1] == 0xa1 {
			if name, err := QueueName(v); !errors.Is(err, ErrInvalid) {
				t.Errorf("the queue %x is %x, %v", []byte(v), []byte(name), err)
			}
		}
	}
	if _, err := Value("\x82\xa1a\x81\xa1a\x01\xa1b\x92\x81\xa1a\x01\x81\xa1a\x02").Canonical(); err != nil {
		t.Errorf("keys in several maps: %v", err)
	}
}

// TestDecodeDuration: what people type is kept as they typed it, so that a Go program that
// looks at a job's arguments meets both forms.
func TestDecodeDuration(t *testing.T) {
	type args struct{ Wait time.Duration }
	for _, c := range []struct {
		wait any
		want time.Duration
		ok   bool
	}{
		{time.Minute, time.Minute, true},
		{"1m", time.Minute, true},
		{"2d", 48 * time.Hour, true},
		{int64(5), 5, true},
		{nil, 0, true},
		{"5", 0, false},
		{5.5, 0, false},
		{[]int{5}, 0, false},
		{uint64(1 << 63), 0, false},
	} {
		v, err := NewValue(map[string]any{"Wait": c.wait})
		if err != nil {
			t.Fatal(err)
		}
		var got args
		if err := v.Decode(&got); (err == nil) != c.ok || c.ok && got.Wait != c.want {
			t.Errorf("%v: got %v, %v", c.wait, got.Wait, err)
		}
	}
}
