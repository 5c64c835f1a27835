package harp

import (
	"testing"
	"time"
)

// TestTimeIsNoMap: a time whose bytes would be those of a map, as of 800 million entries,
// is refused wherever a map is decoded into.
func TestTimeIsNoMap(t *testing.T) {
	at := "\xd7\xff\xdf0000000" // msgpack's library would read a map32 in it
	type inner struct {
		M map[string]string `json:"m"`
		T time.Time         `json:"t"`
	}
	type outer struct {
		inner
		Next *outer         `json:"next"`
		Any  any            `json:"any"`
		Map  map[string]any `json:"map"`
	}
	type chain struct {
		*inner
		List []map[string]int `json:"list"`
	}
	held := any(&map[string]any{})
	for _, c := range []struct {
		name  string
		value string
		into  any
		field string // "": it fits
	}{
		{"a map", at, new(map[string]any), "value"},
		{"a map of texts", at, new(map[string]string), "value"},
		{"a pointer to a map", at, new(*map[string]any), "value"},
		{"a field", "\x81\xa1m" + at, new(inner), "value.m"},
		{"a field by its place", "\x92" + at + "\xc0", new(inner), "value.m"},
		{"a field of what is embedded", "\x81\xa1m" + at, new(outer), "value.m"},
		{"a field of what is embedded and not there", "\x81\xa1m" + at, new(chain), "value.m"},
		{"behind a pointer that is nil", "\x81\xa4next\x81\xa3map" + at, new(outer), "value.next.map"},
		{"in a list", "\x81\xa4list\x92\x80" + at, new(chain), "value.list[1]"},
		{"in a list that is there", "\x91" + at, &[]any{held}, "value[0]"},
		{"in a map", "\x81\xa1k" + at, new(map[string]map[string]any), "value.k"},
		{"a time", "\x81\xa1t" + at, new(inner), ""},
		{"anything", "\x82\xa3any" + at + "\xa4next\xc0", new(outer), ""},
		{"anything in a map", "\x81\xa1k" + at, new(map[string]any), ""},
		{"sealed", "\x81\xa1m\xd4\x53\x80", new(inner), "value.m"},
	} {
		t.Run(c.name, func(t *testing.T) {
			v := Value(c.value)
			if err := v.Validate(); err != nil {
				t.Fatal(err)
			}
			if err := v.Decode(c.into); c.field != "" {
				wantField(t, err, c.field)
			} else if err != nil {
				t.Error(err)
			}
		})
	}
}
