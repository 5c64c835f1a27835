package msgpack_test

import (
	"bytes"
	"encoding/hex"
	"errors"
	"runtime"
	"strings"
	"testing"
	"time"

	vmihailenco "github.com/vmihailenco/msgpack/v5"

	"github.com/harpcaller/harp/internal/msgpack"
	"github.com/harpcaller/harp/internal/needs"
)

func TestValidate(t *testing.T) {
	strict := msgpack.Limits{Depth: 3, Elements: 5}
	ext := msgpack.Limits{Depth: 3, Elements: 5, Ext: true}
	for _, c := range []struct {
		bytes  string
		limits msgpack.Limits
		offset int
		reason string // "": valid
	}{
		{"", strict, 0, "no value"},
		{"c0", strict, 0, ""},
		{"c0c0", strict, 1, "after"},
		{"c1", strict, 0, "0xc1"},
		{"00", strict, 0, ""},
		{"7f", strict, 0, ""},
		{"e0", strict, 0, ""},
		{"ff", strict, 0, ""},
		{"c2", strict, 0, ""},
		{"c3", strict, 0, ""},
		{"ca00000000", strict, 0, ""},
		{"ca000000", strict, 0, "length"},
		{"cb0000000000000000", strict, 0, ""},
		{"cb00000000000000", strict, 0, "length"},
		{"cc00", strict, 0, ""},
		{"cc", strict, 0, "length"},
		{"cd0000", strict, 0, ""},
		{"ce00000000", strict, 0, ""},
		{"cf0000000000000000", strict, 0, ""},
		{"d000", strict, 0, ""},
		{"d10000", strict, 0, ""},
		{"d200000000", strict, 0, ""},
		{"d30000000000000000", strict, 0, ""},
		{"a0", strict, 0, ""},
		{"a161", strict, 0, ""},
		{"a1", strict, 0, "length"},
		{"a1ff", strict, 0, "UTF-8"},
		{"a3eda080", strict, 0, "UTF-8"}, // half of a surrogate pair
		{"d90161", strict, 0, ""},
		{"d9", strict, 0, "short"},
		{"da000161", strict, 0, ""},
		{"da00", strict, 0, "short"},
		{"db0000000161", strict, 0, ""},
		{"db000001", strict, 0, "short"},
		{"dbffffffff61", strict, 0, "length"},
		{"c40161", strict, 0, ""},
		{"c401", strict, 0, "length"},
		{"c40100c0", strict, 3, "after"},
		{"c5000161", strict, 0, ""},
		{"c60000000161", strict, 0, ""},
		{"c6ffffffff", strict, 0, "length"},
		{"c680000000", strict, 0, "length"},
		{"90", strict, 0, ""},
		{"9101", strict, 0, ""},
		{"91", strict, 0, "length"},
		{"92c0", strict, 0, "length"},
		{"9291c0", strict, 3, "short"},
		{"950102030405", strict, 0, ""},
		{"96010203040506", strict, 0, "elements"},
		{"94010203930405", strict, 4, "length"},
		{"9401020392040506", strict, 4, "elements"},
		{"919190", strict, 0, ""},
		{"91919190", strict, 3, "deep"},
		{"dc0000", strict, 0, ""},
		{"dc000101", strict, 0, ""},
		{"dc00", strict, 0, "short"},
		{"dd0000000101", strict, 0, ""},
		{"ddffffffff", strict, 0, "length"},
		{"80", strict, 0, ""},
		{"810102", strict, 0, ""},
		{"8101", strict, 0, "length"},
		{"8201020304", strict, 0, ""},
		{"83010203040506", strict, 0, "elements"},
		{"de00010102", strict, 0, ""},
		{"df000000010102", strict, 0, ""},
		{"df80000001", strict, 0, "length"},
		{"dfffffffff", strict, 0, "length"},
		{"8180a1ff", strict, 2, "UTF-8"},
		{"82a161c0a161c0", strict, 4, "twice"},
		{"82a161c0a162c0", strict, 0, ""},
		{"82a161c0d90161c0", strict, 4, "twice"}, // the same text, longer
		{"82a161c0c40161c0", strict, 4, "twice"}, // as bytes
		{"8201c0cc01c0", strict, 3, "twice"},     // the same number, longer
		{"8201c0ca3f800000c0", strict, 3, "twice"},
		{"82ffc0d3ffffffffffffffffc0", strict, 3, "twice"},
		{"82ffc0cfffffffffffffffffc0", strict, 0, ""}, // -1, and the greatest of 64 bits
		{"8201c0a131c0", strict, 0, ""},
		{"82c0c0c0c0", strict, 3, "twice"},
		{"829101c09101c0", msgpack.Limits{Depth: 3, Elements: 9}, 4, "twice"},
		{"829101c09102c0", msgpack.Limits{Depth: 3, Elements: 9}, 0, ""},
		{"9282a161c0a162c081a161c0", msgpack.Limits{Depth: 3, Elements: 9}, 0, ""},
		{"82a16181a161c0a16281a161c0", msgpack.Limits{Depth: 3, Elements: 9}, 0, ""},
		{"81a16182a161c0a161c0", msgpack.Limits{Depth: 3, Elements: 9}, 7, "twice"},
		{"82a162c0a161c0", strict, 0, ""}, // not sorted
		{"d6ff00000000", strict, 0, "not allowed"},
		{"d6ff00000000", ext, 0, ""},
		{"d6ff000000", ext, 0, "length"},
		{"d6", ext, 0, "short"},
		{"d7ff0000000000000000", ext, 0, ""},
		{"d7ffee6b280000000000", ext, 0, "not a time"}, // 10^9 nanoseconds
		{"d7ffee6b27fc00000000", ext, 0, ""},
		{"c70cff000000000000000000000000", ext, 0, ""},
		{"c70cff3b9aca000000000000000000", ext, 0, "not a time"},
		{"c703ff000000", ext, 0, "not a time"},
		{"d5ff0000", ext, 0, "not a time"},
		{"d45300", ext, 0, ""},
		{"d8" + "53" + strings.Repeat("00", 16), ext, 0, ""},
		{"c80001" + "53" + "00", ext, 0, ""},
		{"c90000000153" + "00", ext, 0, ""},
		{"c9ffffffff53" + "00", ext, 0, "length"},
		{"c70053", ext, 0, ""},
		{"d40100", ext, 0, "not allowed"},
	} {
		b, err := hex.DecodeString(c.bytes)
		if err != nil {
			t.Fatal(err)
		}
		err = msgpack.Validate(b, c.limits)
		if c.reason == "" {
			if err != nil {
				t.Errorf("%s: %v", c.bytes, err)
			}
			continue
		}
		var fe *msgpack.FormatError
		if !errors.As(err, &fe) || !errors.Is(err, msgpack.ErrMalformed) ||
			fe.Offset != c.offset || !strings.Contains(err.Error(), c.reason) {
			t.Errorf("%s: %v; want %q at %d", c.bytes, err, c.reason, c.offset)
		}
	}
}

// Whatever the limits say, the validator's stack has an end.
func TestValidateDepth(t *testing.T) {
	nested := func(n int) []byte { return append(bytes.Repeat([]byte{0x91}, n), 0xc0) }
	for _, c := range []struct {
		depth, nested int
		good          bool
	}{{32, 32, true}, {32, 33, false}, {64, 64, true}, {1000, 64, true}, {1000, 65, false}, {1000, 1 << 20, false}, {0, 0, true}, {0, 1, false}, {-1, 1, false}} {
		err := msgpack.Validate(nested(c.nested), msgpack.Limits{Depth: c.depth, Elements: 1 << 30})
		if (err == nil) != c.good {
			t.Errorf("depth %d of %d: %v", c.nested, c.depth, err)
		}
	}
}

func TestValidateAllocates(t *testing.T) {
	needs.NoRaceDetector(t)
	b := encode(t, map[string]any{"a": []any{int64(1), "text", make([]byte, 1000), 1.5}, "b": map[string]any{"c": nil}})
	if n := testing.AllocsPerRun(100, func() {
		if err := msgpack.Validate(b, msgpack.ProtocolLimits); err != nil {
			t.Error(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// bombs are short messages that claim to be long, or are deep.
var bombs = map[string][]byte{
	"array32":   {0xdd, 0x7f, 0xff, 0xff, 0xff},
	"map32":     {0xdf, 0x7f, 0xff, 0xff, 0xff},
	"str32":     {0xdb, 0x7f, 0xff, 0xff, 0xff},
	"bin32":     {0xc6, 0x7f, 0xff, 0xff, 0xff},
	"ext32":     {0xc9, 0x7f, 0xff, 0xff, 0xff, 0x01},
	"array16":   {0xdc, 0xff, 0xff},
	"depth":     bytes.Repeat([]byte{0x91}, 100000),
	"cut short": {0x92, 0xc0},
}

// TestBombs checks that a decoder of bytes that nobody has validated neither panics nor
// allocates more than the bytes hold.
func TestBombs(t *testing.T) {
	for name, b := range bombs {
		if name == "depth" {
			continue // only validation bounds the nesting
		}
		for _, into := range []any{new(any), new([]int64), new([]any), new(map[string]any), new([]byte), new(string), new(every), new([]every)} {
			var err error
			grown := allocated(func() { err = codec.Decode(b, into) })
			if !errors.Is(err, msgpack.ErrMalformed) {
				t.Errorf("%s into %T: %v", name, into, err)
			}
			if grown > 1<<20 {
				t.Errorf("%s into %T allocated %d KiB", name, into, grown>>10)
			}
		}
	}
}

// allocated returns how many bytes f allocates.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// Of many keys that are not sorted those that come twice are found, in reasonable time.
func TestValidateManyKeys(t *testing.T) {
	const n = 60_000
	b := []byte{0xdf, 0, 0, n >> 8, n & 0xff}
	for i := range n {
		at := (i * 7919) % n // in no order, each once
		b = append(b, 0xce, 0, 0, byte(at>>8), byte(at), 0xc0)
	}
	if err := msgpack.Validate(b, msgpack.ValueLimits); err != nil {
		t.Fatal(err)
	}
	copy(b[len(b)-6:], b[5:11])
	var fe *msgpack.FormatError
	if err := msgpack.Validate(b, msgpack.ValueLimits); !errors.As(err, &fe) || fe.Offset != len(b)-6 || !strings.Contains(err.Error(), "twice") {
		t.Errorf("%v", err)
	}
}

// hasTwice is what Validate says of keys, found without haste: whether a map of v, as [Reader.Any]
// would walk it, has the same string twice.
func hasTwice(r *msgpack.Reader) (twice bool) {
	switch r.Kind() {
	case msgpack.KindArray:
		for range r.Array() {
			twice = hasTwice(r) || twice
		}
	case msgpack.KindMap:
		seen := map[string]bool{}
		for range r.Map() {
			if k := r.Kind(); k == msgpack.KindString || k == msgpack.KindBytes {
				key := ""
				if k == msgpack.KindString {
					key = string(r.Text())
				} else {
					key = string(r.Bytes())
				}
				twice, seen[key] = twice || seen[key], true
			} else {
				twice = hasTwice(r) || twice
			}
			twice = hasTwice(r) || twice
		}
	default:
		r.Skip()
	}
	return twice
}

// FuzzValidate decodes whatever Validate accepts: nothing panics, memory stays within what
// the elements can cost, and the library and the reader agree about where the value ends.
func FuzzValidate(f *testing.F) {
	for _, b := range bombs {
		f.Add(b)
	}
	for _, v := range []any{nil, int64(1), "text", []any{int64(1), "x"}, map[string]any{"a": 1.5, "b": time.Unix(1, 5)}, full} {
		f.Add(encode(f, v))
	}
	f.Add([]byte{0xc7, 0x01, msgpack.SealedExt, 0x00})
	f.Add([]byte{0x82, 0xa1, 'a', 0xc0, 0xa1, 'a', 0xc0})
	f.Add([]byte{0x82, 0xa1, 'a', 0x81, 0xa1, 'a', 0xc0, 0xc4, 1, 'a', 0xc0})
	limits := msgpack.Limits{Depth: 32, Elements: 4096, Ext: true}
	f.Fuzz(func(t *testing.T, b []byte) {
		err := msgpack.Validate(b, limits)
		if err != nil {
			var fe *msgpack.FormatError
			if !errors.As(err, &fe) || fe.Offset < 0 || fe.Offset > len(b) {
				t.Fatalf("%x: %v", b, err)
			}
			return
		}
		grown := allocated(func() {
			for _, into := range []any{new(any), new(every), new([]every), new(map[any]any), new([]byte)} {
				if err := codec.Decode(b, into); err != nil && !errors.Is(err, msgpack.ErrMalformed) {
					t.Fatalf("%x into %T: %v", b, into, err)
				}
			}
		})
		if most := uint64(16<<20 + 100*len(b)); grown > most {
			t.Fatalf("%d bytes allocated %d KiB", len(b), grown>>10)
		}
		r := bytes.NewReader(b)
		if _, err := vmihailenco.NewDecoder(r).DecodeRaw(); err != nil || r.Len() != 0 {
			t.Fatalf("%x: the library leaves %d bytes: %v", b, r.Len(), err)
		}
		if again := msgpack.NewReader(b); hasTwice(&again) {
			t.Fatalf("%x: a key comes twice", b)
		}
		mine := msgpack.NewReader(b)
		if mine.Any(); !mine.Done() {
			t.Fatalf("%x: the reader fails, or leaves something", b)
		}
	})
}

func BenchmarkValidate(b *testing.B) {
	small := encode(b, map[string]any{"id": make([]byte, 16), "seq": 1, "names": []string{"web01"}, "raw": make([]byte, 64)})
	large := encode(b, strings.Repeat("text ", 200000))
	many := append([]byte{0xdc, 0x0f, 0xff}, bytes.Repeat([]byte{0x01}, 4095)...)
	for name, v := range map[string][]byte{"message": small, "1 MB of text": large, "4095 elements": many, "1 MB of bytes": encode(b, make([]byte, 1<<20))} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(len(v)))
			for b.Loop() {
				if err := msgpack.Validate(v, msgpack.ProtocolLimits); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
