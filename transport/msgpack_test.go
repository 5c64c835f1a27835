package transport_test

import (
	"bytes"
	"encoding/hex"
	"errors"
	"math"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/vmihailenco/msgpack/v5"

	"github.com/harpcaller/harp/transport"
)

// message stands for those of the protocol.
type message struct {
	ID    []byte             `msgpack:"id"`
	Seq   int64              `msgpack:"seq"`
	Names []string           `msgpack:"names,omitempty"`
	Tags  map[string]string  `msgpack:"tags,omitempty"`
	Raw   msgpack.RawMessage `msgpack:"raw,omitempty"`
}

// The bytes of messages, which never change.
func TestMarshalGolden(t *testing.T) {
	for _, c := range []struct {
		v     any
		bytes string
	}{
		{nil, "c0"},
		{int64(1), "01"},
		{int64(-33), "d0df"},
		{int64(math.MinInt64), "d38000000000000000"},
		{uint64(300), "cd012c"},
		{uint64(math.MaxUint64), "cfffffffffffffffff"},
		{time.Second, "ce3b9aca00"},
		{map[string]any{"b": int64(1), "a": true, "c": []byte{1}}, "83a161c3a16201a163c40101"},
		{map[string]string{"z": "", "y": "x"}, "82a179a178a17aa0"},
		{message{ID: []byte{1, 2}, Seq: 7}, "82a26964c4020102a373657107"},
		{message{Names: []string{"ü"}, Raw: []byte{0xc3}}, "84a26964c0a373657100a56e616d657391a2c3bca3726177c3"},
	} {
		b, err := transport.Marshal(c.v)
		if err != nil {
			t.Fatal(err)
		}
		if got := hex.EncodeToString(b); got != c.bytes {
			t.Errorf("%#v is %s, not %s", c.v, got, c.bytes)
		}
		if err := transport.Validate(b, transport.ProtocolLimits); err != nil {
			t.Errorf("%#v: %v", c.v, err)
		}
	}
}

func TestMarshalRefuses(t *testing.T) {
	if _, err := transport.Marshal(make(chan int)); err == nil {
		t.Error("a channel was encoded")
	}
	if b, err := transport.Marshal(int64(5)); err != nil || !bytes.Equal(b, []byte{5}) {
		t.Errorf("after a failure: %x, %v", b, err)
	}
}

func TestUnmarshal(t *testing.T) {
	sent := message{ID: []byte("id"), Seq: 1 << 40, Names: []string{"a"}, Tags: map[string]string{"k": "v"}, Raw: []byte{0x91, 0x01}}
	b, err := transport.Marshal(sent)
	if err != nil {
		t.Fatal(err)
	}
	var got message
	if err := transport.Unmarshal(b, &got, transport.ProtocolLimits); err != nil {
		t.Fatal(err)
	}
	clear(b) // who gives bytes keeps them
	if string(got.ID) != "id" || got.Seq != 1<<40 || got.Tags["k"] != "v" || !bytes.Equal(got.Raw, sent.Raw) {
		t.Errorf("got %+v", got)
	}
}

func TestUnmarshalRefuses(t *testing.T) {
	var m message
	var decode *transport.DecodeError
	for name, c := range map[string]struct {
		bytes []byte
		into  any
	}{
		"text for a number":    {[]byte{0x81, 0xa3, 's', 'e', 'q', 0xa1, 'x'}, &m},
		"a list for a message": {[]byte{0x91, 0x01}, &m},
		"keys without a hash":  {[]byte{0x81, 0xc4, 0x01, 0x00, 0x01}, new(map[any]any)},
		"an unknown ext":       {[]byte{0xd4, transport.SealedExt, 0}, new(any)},
	} {
		err := transport.Unmarshal(c.bytes, c.into, transport.ValueLimits)
		if !errors.Is(err, transport.ErrMalformed) || !errors.As(err, &decode) {
			t.Errorf("%s: %v", name, err)
		}
	}
	var format *transport.FormatError
	if err := transport.Unmarshal([]byte{0xc1}, &m, transport.ValueLimits); !errors.As(err, &format) || format.Offset != 0 {
		t.Errorf("not msgpack: %v", err)
	}
}

// None of the messages that make the decoder allocate without limit reaches it.
func TestUnmarshalBombs(t *testing.T) {
	for name, b := range bombs {
		for _, into := range []any{new(any), new([]int64), new([]any), new(map[string]any), new([]message), new([]byte), new(message)} {
			var err error
			grown := allocated(func() { err = transport.Unmarshal(b, into, transport.ProtocolLimits) })
			if !errors.Is(err, transport.ErrMalformed) {
				t.Errorf("%s into %T: %v", name, into, err)
			}
			if grown > 1<<20 {
				t.Errorf("%s into %T allocated %d KiB", name, into, grown>>10)
			}
		}
	}
}

func TestValidate(t *testing.T) {
	strict := transport.Limits{Depth: 3, Elements: 5}
	ext := transport.Limits{Depth: 3, Elements: 5, Ext: true}
	for _, c := range []struct {
		bytes  string
		limits transport.Limits
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
		err = transport.Validate(b, c.limits)
		if c.reason == "" {
			if err != nil {
				t.Errorf("%s: %v", c.bytes, err)
			}
			continue
		}
		var fe *transport.FormatError
		if !errors.As(err, &fe) || !errors.Is(err, transport.ErrMalformed) ||
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
		err := transport.Validate(nested(c.nested), transport.Limits{Depth: c.depth, Elements: 1 << 30})
		if (err == nil) != c.good {
			t.Errorf("depth %d of %d: %v", c.nested, c.depth, err)
		}
	}
}

func TestValidateAllocates(t *testing.T) {
	b, err := transport.Marshal(map[string]any{"a": []any{int64(1), "text", bin(1000), 1.5}, "b": map[string]any{"c": nil}})
	if err != nil {
		t.Fatal(err)
	}
	if n := testing.AllocsPerRun(100, func() {
		if err := transport.Validate(b, transport.ProtocolLimits); err != nil {
			t.Error(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// FuzzValidate decodes whatever Validate accepts: nothing panics, memory stays
// within what the elements can cost, and the decoder agrees about where it ends.
func FuzzValidate(f *testing.F) {
	for _, b := range bombs {
		f.Add(b)
	}
	for _, v := range []any{nil, int64(1), "text", []any{int64(1), "x"}, map[string]any{"a": 1.5, "b": time.Unix(1, 5)}, message{Seq: 1}} {
		b, err := transport.Marshal(v)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Add([]byte{0xc7, 0x01, transport.SealedExt, 0x00})
	limits := transport.Limits{Depth: 32, Elements: 4096, Ext: true}
	f.Fuzz(func(t *testing.T, b []byte) {
		err := transport.Validate(b, limits)
		if err != nil {
			var fe *transport.FormatError
			if !errors.As(err, &fe) || fe.Offset < 0 || fe.Offset > len(b) {
				t.Fatalf("%x: %v", b, err)
			}
			return
		}
		grown := allocated(func() {
			for _, into := range []any{new(any), new(message), new([]message), new(map[any]any), new([]byte), new(msgpack.RawMessage)} {
				if err := transport.Unmarshal(b, into, limits); err != nil && !errors.Is(err, transport.ErrMalformed) {
					t.Fatalf("%x into %T: %v", b, into, err)
				}
			}
		})
		if most := uint64(16<<20 + 100*len(b)); grown > most {
			t.Fatalf("%d bytes allocated %d KiB", len(b), grown>>10)
		}
		// One value, all of it: the decoder must end where Validate did.
		r := bytes.NewReader(b)
		if _, err := msgpack.NewDecoder(r).DecodeRaw(); err != nil || r.Len() != 0 {
			t.Fatalf("%x: the decoder leaves %d bytes: %v", b, r.Len(), err)
		}
		if _, err := msgpack.NewDecoder(bytes.NewReader(b)).DecodeInterface(); err != nil && transport.Validate(b, transport.ProtocolLimits) == nil {
			if !strings.Contains(err.Error(), "msgpack: invalid code") && !strings.Contains(err.Error(), "decoding string") {
				t.Fatalf("%x: %v", b, err) // other than keys that are no strings
			}
		}
	})
}

func BenchmarkValidate(b *testing.B) {
	small, err := transport.Marshal(message{ID: make([]byte, 16), Seq: 1, Names: []string{"web01"}, Raw: bin(64)})
	if err != nil {
		b.Fatal(err)
	}
	large, err := transport.Marshal(strings.Repeat("text ", 200000))
	if err != nil {
		b.Fatal(err)
	}
	many := append([]byte{0xdc, 0x0f, 0xff}, bytes.Repeat([]byte{0x01}, 4095)...)
	for name, v := range map[string][]byte{"message": small, "1 MB of text": large, "4095 elements": many, "1 MB of bytes": bin(1 << 20)} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(len(v)))
			for b.Loop() {
				if err := transport.Validate(v, transport.ProtocolLimits); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkFrame(b *testing.B) {
	for _, n := range []int{100, 16 << 10, 1 << 20} {
		f := transport.Frame{Type: 1, Exchange: 1, Body: bin(n)}
		sent := transport.AppendFrame(nil, f)
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(len(sent)))
			r := bytes.NewReader(nil)
			for b.Loop() {
				r.Reset(sent)
				if _, err := transport.ReadFrame(r, anySize); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkMessage(b *testing.B) {
	m := message{ID: make([]byte, 16), Seq: 1, Names: []string{"web01"}, Raw: bin(64)}
	b.ReportAllocs()
	for b.Loop() {
		encoded, err := transport.Marshal(m)
		if err != nil {
			b.Fatal(err)
		}
		var got message
		if err := transport.Unmarshal(encoded, &got, transport.ProtocolLimits); err != nil {
			b.Fatal(err)
		}
	}
}
