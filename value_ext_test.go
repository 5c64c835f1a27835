package harp

import (
	"errors"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/vmihailenco/msgpack/v5"
)

// ownDecoder is a type whose own decoder hands on to the library what it got.
type ownDecoder struct{ m map[string]any }

func (o *ownDecoder) DecodeMsgpack(dec *msgpack.Decoder) error { return dec.Decode(&o.m) }

// TestTimeIsNoMap: a time whose bytes would be those of a map is refused wherever a map is
// decoded into, whatever way it got there.
func TestTimeIsNoMap(t *testing.T) {
	at := "\xd7\xff\x81\xa1k\xa4vvvv" // with \xdf for \x81 a map of 800 million
	type Inner struct {
		M map[string]any `json:"m"`
		T time.Time      `json:"t"`
	}
	type hidden struct {
		M map[string]any `json:"m"`
	}
	type outer struct {
		Inner
		Next *outer         `json:"next"`
		Any  any            `json:"any"`
		Map  map[string]any `json:"map"`
	}
	type embedsHidden struct {
		hidden
		N int `json:"n"`
	}
	type shadows struct {
		M int `json:"m"`
		Inner
	}
	type noinline struct {
		Inner `msgpack:"inner,noinline"`
	}
	type alias struct {
		M map[string]any `msgpack:"m,alias:mm"`
	}
	held := any(&map[string]any{})
	for _, c := range []struct {
		name, value string
		into        any
	}{
		{"a map", at, new(map[string]any)},
		{"a map of texts", at, new(map[string]string)},
		{"a pointer to a map", at, new(*map[string]any)},
		{"a field", "\x81\xa1m" + at, new(Inner)},
		{"a field by its place", "\x92" + at + "\xc0", new(Inner)},
		{"a field of what is embedded", "\x81\xa1m" + at, new(outer)},
		{"behind a pointer that is nil", "\x81\xa4next\x81\xa3map" + at, new(outer)},
		{"in a list", "\x92\x80" + at, new([]map[string]int)},
		{"in a list that is there", "\x91" + at, &[]any{held}},
		{"in a map", "\x81\xa1k" + at, new(map[string]map[string]any)},
		{"key as bin", "\x81\xc4\x01m" + at, new(Inner)},
		{"a key of a map before others", "\x82\xa1k" + at + "\xa1l\xc0", new(map[string]map[string]any)},
		{"embedded by its own name", "\x81\xa5Inner\x81\xa1m" + at, new(outer)},
		{"embedded and not exported by its own name", "\x81\xa6hidden\x81\xa1m" + at, new(embedsHidden)},
		{"embedded whose field is shadowed", "\x81\xa5Inner\x81\xa1m" + at, new(shadows)},
		{"shadowed, by its place", "\x92\x01\x82\xa1m" + at + "\xa1t\xc0", new(shadows)},
		{"not inline", "\x81\xa5inner\x81\xa1m" + at, new(noinline)},
		{"alias", "\x81\xa2mm" + at, new(alias)},
		{"a decoder of its own", at, new(ownDecoder)},
		{"sealed", "\x81\xa1m\xd4\x53\x80", new(Inner)},
	} {
		t.Run(c.name, func(t *testing.T) {
			if err := Value(c.value).Validate(); err != nil {
				t.Fatal(err)
			}
			var fe *FieldError
			if err := Value(c.value).Decode(c.into); !errors.As(err, &fe) || !strings.HasPrefix(fe.Field, "value") {
				t.Errorf("%v", err)
			}
		})
	}
}

// TestTimesAreRead: the bytes of times and sealed values are read where these belong.
func TestTimesAreRead(t *testing.T) {
	at := "\xd7\xff\x81\xa1k\xa4vvvv"
	var all struct {
		T    time.Time            `json:"t"`
		List []time.Time          `json:"list"`
		Map  map[string]time.Time `json:"map"`
		Any  any                  `json:"any"`
		Raw  Value                `json:"raw"`
		Last int                  `json:"last"`
	}
	v := Value("\x87\xa1t" + at + "\xa4list\x92" + at + at + "\xa3map\x81\xa1k" + at +
		"\xa3any" + at + "\xa3raw\x91\xd4\x53\x80\xa5other" + at + "\xa4last\x07")
	if err := v.Decode(&all); err != nil {
		t.Fatal(err)
	}
	want := all.T
	if want.IsZero() || len(all.List) != 2 || all.List[1] != want || all.Map["k"] != want || all.Any != any(want) ||
		string(all.Raw) != "\x91\xd4\x53\x80" || all.Last != 7 {
		t.Errorf("%+v", all)
	}
}

// TestDecodeAllocates: a few bytes take no more than a megabyte, though they say, where no
// map is, that there are four million entries.
func TestDecodeAllocates(t *testing.T) {
	v := Value("\x82\xa1m\xd7\xff\xdf\x00\x40\x00\x00\xa1k\xc0\xa1n\xc0")
	if err := v.Validate(); err != nil {
		t.Fatal(err)
	}
	var into struct {
		M map[string]any `json:"m"`
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	err := v.Decode(&into)
	runtime.ReadMemStats(&after)
	if n := after.TotalAlloc - before.TotalAlloc; n > 1<<20 {
		t.Errorf("%d bytes of value took %d MB (%v)", len(v), n>>20, err)
	}
}
