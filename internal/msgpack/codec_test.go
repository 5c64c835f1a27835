package msgpack_test

import (
	"bytes"
	"errors"
	"math"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	vmihailenco "github.com/vmihailenco/msgpack/v5"

	"github.com/harpcaller/harp/internal/msgpack"
)

var codec msgpack.Codec

// every has a field of each kind of types and tags.
type every struct {
	Name     string        `msgpack:"name"`
	Count    int8          `msgpack:"count,omitempty"`
	Wait     time.Duration `json:"wait"`
	Size     uint16        `json:"size"`
	Big      uint64        `json:"big,omitempty"`
	Ratio    float64       `json:"ratio,omitempty"`
	Half     float32
	On       bool              `msgpack:"on"`
	Data     []byte            `json:"data,omitempty"`
	Tags     []string          `json:"tags"`
	Labels   map[string]string `json:"labels,omitempty"`
	Numbers  map[int8]int64    `json:"numbers,omitempty"`
	Inner    inner             `json:"inner,omitempty"`
	Many     []inner           `json:"many,omitempty"`
	Pointer  *inner            `json:"pointer,omitempty"`
	Flag     *bool             `json:"flag"`
	Pair     [2]int16          `json:"pair"`
	Digest   [4]byte           `json:"digest"`
	At       time.Time         `json:"at,omitempty"`
	Row      row               `json:"row"`
	Alias    int               `msgpack:"alias,alias:other"`
	Next     *every            `json:"next,omitempty"`
	Hidden   string            `json:"-"`
	secret   string
	Embedded `msgpack:",inline"`
	*Pointed
	NotInline `msgpack:"apart,noinline"`
}

type (
	inner struct {
		A int    `msgpack:"a,omitempty"`
		B []byte `msgpack:"b,omitempty"`
	}
	row struct {
		_msgpack struct{} `msgpack:",as_array"` //nolint:unused // tells the codec how
		X        int
		Y        string
	}
	Embedded struct {
		E     int    `msgpack:"e"`
		Count string // shadowed
	}
	Pointed   struct{ P1, P2 int }
	NotInline struct{ Q int }
)

// zeroer is a type whose pointer alone knows whether it is zero.
type zeroer string

func (z *zeroer) IsZero() bool { return *z == "" }

var yes = true

var full = every{
	Name: "x", Count: -3, Wait: time.Hour, Size: 300, Big: math.MaxUint64, Ratio: 0.5, Half: 0.25, On: true, Data: []byte{1},
	Tags:   []string{"a", ""},
	Labels: map[string]string{"b": "2", "a": "1"}, Numbers: map[int8]int64{-1: 1 << 40}, Inner: inner{1, []byte{2}},
	Many: []inner{{}, {A: 70000}}, Pointer: &inner{A: -1}, Flag: &yes, Pair: [2]int16{-1, 300}, Digest: [4]byte{1, 2, 3, 4},
	At: time.Unix(1700000000, 5).UTC(), Row: row{X: 1, Y: "y"}, Alias: 3, Next: &every{Name: "next"},
	Embedded: Embedded{E: 4}, Pointed: &Pointed{5, 6}, NotInline: NotInline{7},
}

// encode returns the encoding of v by the codec.
func encode(t testing.TB, v any) []byte {
	t.Helper()
	b, err := codec.Append(nil, v)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// encodeByLibrary is the oracle of encode.
func encodeByLibrary(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := vmihailenco.NewEncoder(&b)
	enc.UseCompactInts(true)
	enc.SetSortMapKeys(true)
	enc.SetCustomStructTag("json")
	err := enc.Encode(v)
	return b.Bytes(), err
}

// decodeByLibrary is the oracle of Decode. It may panic.
func decodeByLibrary(b []byte, into any) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = errors.New("panicked")
		}
	}()
	dec := vmihailenco.NewDecoder(bytes.NewReader(b))
	dec.SetCustomStructTag("json")
	return dec.Decode(into)
}

// TestEncodeAsLibrary checks that what the codec writes is, byte for byte, what the library
// writes, of each field of a struct alone as well.
func TestEncodeAsLibrary(t *testing.T) {
	type outer struct {
		Any   any   `msgpack:"any,omitempty"`
		Err   error `msgpack:"err"`
		Empty struct {
			A int `msgpack:"a,omitempty"`
		} `msgpack:"empty,omitempty"`
	}
	type maybe struct {
		At  *time.Time `msgpack:"at,omitempty"`
		Tag *zeroer    `msgpack:"tag,omitempty"`
		Any any        `msgpack:"any,omitempty"`
	}
	values := []any{
		maybe{},
		maybe{At: new(time.Time), Tag: new(zeroer), Any: new(time.Time)},
		maybe{At: new(time.Unix(1, 0)), Tag: new(zeroer("x")), Any: new(time.Unix(1, 0))},
		full,
		&full,
		every{},
		outer{},
		outer{Any: 0},
		outer{Any: inner{}, Err: errors.New("e")},
		outer{Any: []any{nil, 1}},
		outer{Any: time.Time{}},
		[]any{1, "x", nil, map[string]any{"b": 1, "a": []int{300}}, &yes, full},
		map[string]bool{"b": true, "a": false},
		[]inner(nil),
		[]inner{},
		map[int]int(nil),
		[0]int{},
		(*every)(nil),
		time.Unix(0, 0), time.Unix(1, 1), time.Unix(1<<33, 0), time.Unix(1<<34, 0), time.Unix(-1, 999999999),
		time.Time{},
		float32(1.5), math.NaN(), uint8(200), int64(math.MinInt64), strings.Repeat("x", 70000), make([]int, 70000),
		struct{}{},
	}
	v := reflect.ValueOf(full)
	for i := range v.NumField() {
		if f := v.Type().Field(i); f.IsExported() {
			only := reflect.New(v.Type()).Elem()
			only.Field(i).Set(v.Field(i))
			values = append(values, only.Interface())
		}
	}
	for _, v := range values {
		want, err := encodeByLibrary(v)
		if err != nil {
			t.Fatal(err)
		}
		if got := encode(t, v); !bytes.Equal(got, want) {
			t.Errorf("%T %.60v is\n%.200x, by the library\n%.200x", v, v, got, want)
		}
	}
}

// TestEncodeBehind checks that what is encoded stands behind what was there, which stays
// when the encoding fails.
func TestEncodeBehind(t *testing.T) {
	before := []byte("before")
	if got, err := codec.Append(before, full); err != nil || !bytes.Equal(got, append([]byte("before"), encode(t, full)...)) {
		t.Errorf("%q, %v", got, err)
	}
	type itself struct{ Next *itself }
	endless := &itself{}
	endless.Next = endless
	list := []any{nil}
	list[0] = list
	for _, v := range []any{make(chan int), func() {}, 1i, []any{uintptr(1)}, struct{ C chan int }{}, map[string]any{"a": make(chan int)}, endless, list} {
		if got, err := codec.Append(before, v); err == nil || string(got) != "before" {
			t.Errorf("%T: %q, %v", v, got, err)
		}
	}
}

// TestSelfEmbedding checks that a type that embeds itself has an encoding.
func TestSelfEmbedding(t *testing.T) {
	type Loop struct {
		*Loop
		A int
	}
	var got Loop
	if err := codec.Decode(encode(t, Loop{&Loop{A: 1}, 2}), &got); err != nil || got.A != 2 || got.Loop.A != 1 {
		t.Errorf("%+v, %v", got, err)
	}
}

// TestDecode checks that what was encoded is decoded, and shares no memory with its bytes.
func TestDecode(t *testing.T) {
	b := encode(t, full)
	var got every
	if err := codec.Decode(b, &got); err != nil {
		t.Fatal(err)
	}
	clear(b)
	if !reflect.DeepEqual(got, full) {
		t.Errorf("got\n%+v, not\n%+v", got, full)
	}
}

// TestDecodeShared checks that byte slices are parts of what is decoded, and cannot grow
// into what comes after them.
func TestDecodeShared(t *testing.T) {
	b := encode(t, []any{[]byte("one"), "two"})
	var got [][]byte
	if err := codec.DecodeShared(b, &got); err != nil || len(got) != 2 {
		t.Fatal(got, err)
	}
	_ = append(got[0], 'x')
	if string(got[0]) != "one" || string(got[1]) != "two" || cap(got[0]) != 3 {
		t.Errorf("%q", got)
	}
	clear(b)
	if string(got[0]) == "one" {
		t.Error("the slice is a copy")
	}
}

// TestDecodeMerges checks what stays of the variable that is decoded into.
func TestDecodeMerges(t *testing.T) {
	mine := []byte("mine")
	got := every{
		Name: "before", secret: "s", Labels: map[string]string{"a": "1", "b": "1"}, Data: mine, Tags: []string{"x"},
		Pointer: &inner{A: 1}, Pair: [2]int16{1, 2}, Many: []inner{{A: 9, B: mine}}, Flag: &yes, At: time.Unix(1, 0),
	}
	was := got.Pointer
	in := map[string]any{
		"labels": map[string]any{"b": "2", "c": nil}, "data": []byte("your"), "tags": nil, "pointer": map[string]any{"b": []byte{1}},
		"pair": []int{3}, "many": []any{map[string]any{"a": 1}, nil}, "unknown": []any{1, map[string]any{"x": 1.5}}, "flag": nil, "at": nil,
	}
	if err := codec.Decode(encode(t, in), &got); err != nil {
		t.Fatal(err)
	}
	want := every{
		Name: "before", secret: "s", Labels: map[string]string{"a": "1", "b": "2", "c": ""}, Data: []byte("your"),
		Pointer: &inner{1, []byte{1}}, Pair: [2]int16{3, 0}, Many: []inner{{A: 1}, {}},
	}
	if !reflect.DeepEqual(got, want) || got.Pointer != was || string(mine) != "mine" {
		t.Errorf("got\n%+v, not\n%+v, %q", got, want, mine)
	}
}

// TestDecodeInterfaces checks what an interface gets: what Any says, what a pointer in it
// points to, and an error its text.
func TestDecodeInterfaces(t *testing.T) {
	var held inner
	var got struct {
		Any, Pointer, Number any
		Err                  error
		Sized                interface{ Size() int }
	}
	got.Pointer, got.Number = &held, 7
	in := map[string]any{"Any": []any{uint8(200), map[any]any{1: time.Unix(1, 0)}}, "Pointer": inner{A: 3}, "Number": "text", "Err": "e"}
	if err := codec.Decode(encode(t, in), &got); err != nil {
		t.Fatal(err)
	}
	want := []any{int64(200), map[string]any{"1": time.Unix(1, 0).UTC()}}
	if !reflect.DeepEqual(got.Any, want) || held.A != 3 || got.Pointer != &held || got.Number != "text" || got.Err == nil || got.Err.Error() != "e" {
		t.Errorf("%+v", got)
	}
	for _, in := range []map[string]any{{"Err": 1}, {"Sized": "x"}} {
		if err := codec.Decode(encode(t, in), &got); !errors.Is(err, msgpack.ErrMalformed) {
			t.Errorf("%v: %v", in, err)
		}
	}
}

// TestDecodeRefuses checks that what does not fit is refused, and says where that is.
func TestDecodeRefuses(t *testing.T) {
	for _, c := range []struct {
		in         any
		into       any
		path, text string
	}{
		{300, new(int8), "", "300 does not fit int8"},
		{-129, new(int8), "", "-129 does not fit int8"},
		{-1, new(uint64), "", "-1 does not fit uint64"},
		{uint64(math.MaxUint64), new(int64), "", "18446744073709551615 does not fit int64"},
		{1<<53 + 1, new(float64), "", "does not fit float64"},
		{-1<<53 - 1, new(float64), "", "-9007199254740993 does not fit float64"},
		{uint64(math.MaxUint64), new(float64), "", "does not fit float64"},
		{1<<24 + 1, new(float32), "", "does not fit float32"},
		{1.5, new(int), "", "a float does not fit int"},
		{"x", new(int), "", "a string does not fit int"},
		{1, new(string), "", "an integer does not fit string"},
		{1, new([]byte), "", "an integer does not fit []uint8"},
		{true, new(float64), "", "a boolean does not fit float64"},
		{time.Unix(1, 0), new(map[string]any), "", "an extension does not fit map"},
		{time.Unix(1, 0), new(every), "", "an extension does not fit"},
		{map[string]any{"at": "noon"}, new(every), ".at", "noon"},
		{1, new(time.Time), "", "an integer does not fit time.Time"},
		{[]int{1, 2, 3}, new([2]int), "", "3 values do not fit"},
		{"abcde", new([4]byte), "", "5 bytes do not fit"},
		{[]int{1}, new(row), "", "1 values do not fit the 2 fields"},
		{1, new(chan int), "", "chan int"},
		{map[string]any{"many": []any{nil, map[string]any{"a": "x"}}}, new(every), ".many[1].a", "does not fit int"},
		{map[string]any{"numbers": map[int]int{300: 1}}, new(every), ".numbers.300", "300 does not fit int8"},
		{map[string]any{"numbers": map[int]string{3: "x"}}, new(every), ".numbers.3", "does not fit int64"},
		{map[string]any{"row": []any{"x", "y"}}, new(every), ".row.X", "does not fit int"},
		{map[string]any{"pair": []any{1, 70000}}, new(every), ".pair[1]", "70000 does not fit int16"},
		{map[string]any{"next": map[string]any{"P1": "x"}}, new(every), ".next.P1", "does not fit int"},
		{map[any]any{1: 2}, new(every), "", ""},
		{map[[1]int]any{{1}: 2}, new(map[any]any), ".[1]", "no key"},
		{1, nil, "", "cannot decode into"},
		{1, 5, "", "cannot decode into int"},
		{1, (*int)(nil), "", "cannot decode into"},
	} {
		err := codec.Decode(encode(t, c.in), c.into)
		var de *msgpack.DecodeError
		if !errors.As(err, &de) || !errors.Is(err, msgpack.ErrMalformed) || de.Path != c.path || !strings.Contains(de.Err.Error(), c.text) {
			t.Errorf("%v into %T: %v; want %q at %q", c.in, c.into, err, c.text, c.path)
		}
	}
	for _, b := range []string{"", "\x93\x01", "\xa5x", "\x01\x02"} {
		if err := codec.Decode([]byte(b), new([]any)); !errors.Is(err, msgpack.ErrMalformed) {
			t.Errorf("%q: %v", b, err)
		}
	}
}

// TestMessageText checks that a codec of messages writes no string that is not UTF-8, and does not take
// one that comes as bytes.
func TestMessageText(t *testing.T) {
	text := msgpack.Codec{Message: true}
	b, err := text.Append(nil, map[string]any{"a\xff": []string{"b\xff"}})
	if err != nil || string(b) != "\x81\xa4a\ufffd\x91\xa4b\ufffd" {
		t.Errorf("%q, %v", b, err)
	}
	var s string
	if err := text.Decode([]byte("\xc4\x02a\xff"), &s); !errors.Is(err, msgpack.ErrMalformed) {
		t.Errorf("%q, %v", s, err)
	}
	if err := codec.Decode([]byte("\xc4\x02a\xff"), &s); err != nil || s != "a\xff" {
		t.Errorf("%q, %v", s, err)
	}
}

// TestMessageTimes checks that times are integers in messages, none for the zero time, and
// the last that can be said for what is beyond it.
func TestMessageTimes(t *testing.T) {
	type stamped struct {
		At    time.Time `msgpack:"at"`
		Maybe time.Time `msgpack:"maybe,omitempty"`
	}
	message := msgpack.Codec{Message: true}
	last := time.Unix(0, math.MaxInt64).UTC()
	for _, c := range []struct {
		is, becomes stamped
		encoded     string
	}{
		{stamped{}, stamped{}, "\x81\xa2at\x00"},
		{stamped{Maybe: time.Unix(0, 5)}, stamped{Maybe: time.Unix(0, 5).UTC()}, "\x82\xa2at\x00\xa5maybe\x05"},
		{stamped{At: time.Unix(0, 0)}, stamped{At: time.Unix(0, 1).UTC()}, "\x81\xa2at\x01"},
		{stamped{At: time.Unix(0, -1)}, stamped{At: time.Unix(0, -1).UTC()}, "\x81\xa2at\xff"},
		{stamped{At: last.Add(1)}, stamped{At: last}, "\x81\xa2at\xcf\x7f\xff\xff\xff\xff\xff\xff\xff"},
		{stamped{At: time.Date(1, 1, 1, 0, 0, 0, 1, time.UTC)}, stamped{At: time.Unix(0, math.MinInt64).UTC()}, "\x81\xa2at\xd3\x80\x00\x00\x00\x00\x00\x00\x00"},
	} {
		b, err := message.Append(nil, c.is)
		if err != nil || string(b) != c.encoded {
			t.Errorf("%v: %q, %v", c.is, b, err)
		}
		var got stamped
		if err := message.Decode(b, &got); err != nil || got != c.becomes {
			t.Errorf("%v, not %v; %v", got, c.becomes, err)
		}
	}
	for _, b := range []string{"\x81\xa2at\xcf\xff\xff\xff\xff\xff\xff\xff\xff", "\x81\xa2at\xd6\xff\x00\x00\x00\x01", "\x81\xa2at\xa1x"} {
		var de *msgpack.DecodeError
		if err := message.Decode([]byte(b), new(stamped)); !errors.As(err, &de) || de.Path != ".at" {
			t.Errorf("%q: %v", b, err)
		}
	}
}

// upper is a type with ways of its own.
type upper string

// TestCustom checks that a type's own ways are used wherever it stands, in what cannot be
// addressed as well, but not for nil.
func TestCustom(t *testing.T) {
	refused := errors.New("refused")
	c := msgpack.Codec{Custom: func(t reflect.Type) (msgpack.EncodeFunc, msgpack.DecodeFunc) {
		if t != reflect.TypeFor[upper]() {
			return nil, nil
		}
		encode := func(b []byte, v reflect.Value) ([]byte, error) {
			if v.String() == "bad" {
				return nil, refused
			}
			return msgpack.AppendString(b, strings.ToUpper(v.String())), nil
		}
		decode := func(raw []byte, v reflect.Value) error {
			r := msgpack.NewReader(raw)
			if s := string(r.Text()); s != "BAD" {
				v.SetString(strings.ToLower(s))
				return nil
			}
			return refused
		}
		return encode, decode
	}}
	type holder struct {
		U upper
		P *upper
		M map[string]upper
	}
	u := upper("p")
	b, err := c.Append(nil, []any{holder{"u", &u, map[string]upper{"k": "m"}}, holder{}})
	if err != nil {
		t.Fatal(err)
	}
	var got []holder
	if err := c.Decode(b, &got); err != nil || len(got) != 2 || got[0].U != "u" || *got[0].P != "p" || got[0].M["k"] != "m" || !bytes.Contains(b, []byte("\xa1P\xa1P")) {
		t.Errorf("%+v, %v, %q", got, err, b)
	}
	if _, err := c.Append(nil, upper("bad")); !errors.Is(err, refused) {
		t.Error(err)
	}
	if err := c.Decode([]byte("\x81\xa1U\xa3BAD"), &holder{}); !errors.Is(err, refused) {
		t.Error(err)
	}
	got = []holder{{U: "x"}}
	if err := c.Decode([]byte("\x81\xa1U\xc0"), &got[0]); err != nil || got[0].U != "" {
		t.Errorf("%+v, %v", got[0], err)
	}
}

// TestReaderAny checks what values are without a type.
func TestReaderAny(t *testing.T) {
	for in, want := range map[string]any{
		"\xc0": nil, "\xc3": true, "\x7f": int64(127), "\xd0\x80": int64(-128), "\xcf\x7f\xff\xff\xff\xff\xff\xff\xff": int64(math.MaxInt64),
		"\xcf\xff\xff\xff\xff\xff\xff\xff\xff": uint64(math.MaxUint64), "\xca\x3f\x80\x00\x00": 1.0, "\xa1x": "x", "\xc4\x01x": []byte("x"),
		"\x91\x90": []any{[]any{}}, "\x82\x01\x02\xa1k\xc0": map[string]any{"1": int64(2), "k": nil},
		"\xd6\xff\x00\x00\x00\x01": time.Unix(1, 0).UTC(), "\xd4\x53\x01": msgpack.Sealed{Raw: "\xd4\x53\x01"},
		"\xc7\x0c\xff\x00\x00\x00\x05\xff\xff\xff\xff\xff\xff\xff\xff": time.Unix(-1, 5).UTC(),
	} {
		r := msgpack.NewReader([]byte(in))
		if got := r.Any(); !r.Done() || !reflect.DeepEqual(got, want) {
			t.Errorf("%x is %#v, not %#v", in, got, want)
		}
	}
	for _, in := range []string{"", "\xc1", "\xd4\x01\x00", "\xd4\xff\x00", "\xd4\x53", "\x92\x01"} {
		r := msgpack.NewReader([]byte(in))
		if got := r.Any(); r.OK() {
			t.Errorf("%x is %#v", in, got)
		}
	}
}

var (
	// numberRefused is what the codec refuses and the library does not: numbers that it cuts.
	numberRefused = regexp.MustCompile(`: -?\d+ does not fit u?(int|float)`)
	// timeRefused is what the library refuses and the codec does not: nil and texts for a time.
	timeRefused = regexp.MustCompile(`decoding ext len`)
)

// BenchmarkCodec encodes and decodes a struct of a few fields, beside the library.
func BenchmarkCodec(b *testing.B) {
	in := inner{3, make([]byte, 100)}
	for _, way := range []struct {
		name   string
		encode func(any) ([]byte, error)
		decode func([]byte, any) error
	}{
		{"codec", func(v any) ([]byte, error) { return codec.Append(nil, v) }, codec.Decode},
		{"library", encodeByLibrary, decodeByLibrary},
	} {
		b.Run(way.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				sent, err := way.encode(in)
				if err != nil {
					b.Fatal(err)
				}
				var out inner
				if err := way.decode(sent, &out); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// A struct that grows is read from what was written when it had fewer fields, and from nothing that has more.
func TestArrayThatGrows(t *testing.T) {
	type grown struct {
		_msgpack struct{} `msgpack:",as_array,grows"` //nolint:unused // tells the codec how
		A        int
		B        string
		C        *inner
	}
	var c msgpack.Codec
	for n, want := range []grown{{}, {A: 1}, {A: 1, B: "b"}} {
		b := msgpack.AppendArray(nil, n)
		if n > 0 {
			b = msgpack.AppendInt(b, 1)
		}
		if n > 1 {
			b = msgpack.AppendString(b, "b")
		}
		got := grown{A: 7, B: "old", C: &inner{A: 7}}
		if err := c.Decode(b, &got); err != nil || got != want {
			t.Errorf("%d values are read as %+v, %v", n, got, err)
		}
		if err := c.Decode(b, &row{}); (err == nil) != (n == 0 || n == 2) {
			t.Errorf("%d values are read as another struct: %v", n, err)
		}
	}
	if err := c.Decode(append(msgpack.AppendArray(nil, 4), 1, 0xa0, 0xc0, 0xc0), &grown{}); err == nil {
		t.Error("more values are read")
	}
}

// TestMessagesAreMaps: a message could be a list of a type's fields in their order, which nobody describes.
func TestMessagesAreMaps(t *testing.T) {
	type named struct {
		A, B string
	}
	type listed struct {
		_msgpack struct{} `msgpack:",as_array"` //nolint:unused // tells msgpack how
		A, B     string
	}
	list := []byte{0x92, 0xa1, 'x', 0xa1, 'y'}
	messages, users := msgpack.Codec{Message: true}, msgpack.Codec{}
	if err := messages.Decode(list, &named{}); err == nil {
		t.Error("a list is taken for a message")
	}
	var l listed
	if err := messages.Decode(list, &l); err != nil || l.B != "y" {
		t.Errorf("a list where the type says so: %+v, %v", l, err)
	}
	var u named
	if err := users.Decode(list, &u); err != nil || u.B != "y" {
		t.Errorf("a user's list: %+v, %v", u, err)
	}
}
