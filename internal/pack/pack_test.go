package pack_test

import (
	"bytes"
	"math"
	"testing"

	"github.com/vmihailenco/msgpack/v5"

	"github.com/harpcaller/harp/internal/pack"
	"github.com/harpcaller/harp/transport"
)

// TestAppend: what is written is what the library writes.
func TestAppend(t *testing.T) {
	for _, v := range []any{
		nil, true, false, 0, 1, 127, 128, 255, 256, 65535, 65536, 1 << 31, 1 << 32, math.MaxInt64,
		-1, -32, -33, -128, -129, -32768, -32769, math.MinInt32, math.MinInt32 - 1, math.MinInt64, uint64(math.MaxUint64),
		0.0, -1.5, math.Inf(1), "", "x", string(make([]byte, 31)), string(make([]byte, 32)), string(make([]byte, 256)),
		string(make([]byte, 65536)), []byte(nil),
		[]byte{},
		make([]byte, 255), make([]byte, 256), make([]byte, 65536),
	} {
		want, err := transport.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		if got := appendAny(v); !bytes.Equal(got, want) {
			t.Errorf("%T %.20v: %.20x, the library %.20x", v, v, got, want)
		}
	}
	for _, n := range []int{0, 15, 16, 65535, 65536} {
		var b bytes.Buffer
		enc := msgpack.NewEncoder(&b)
		if err := enc.EncodeArrayLen(n); err != nil {
			t.Fatal(err)
		}
		if err := enc.EncodeMapLen(n); err != nil {
			t.Fatal(err)
		}
		if got := pack.AppendMap(pack.AppendArray(nil, n), n); !bytes.Equal(got, b.Bytes()) {
			t.Errorf("%d: %x, the library %x", n, got, b.Bytes())
		}
	}
}

func appendAny(v any) []byte {
	switch v := v.(type) {
	case bool:
		return pack.AppendBool(nil, v)
	case int:
		return pack.AppendInt(nil, int64(v))
	case uint64:
		return pack.AppendUint(nil, v)
	case float64:
		return pack.AppendFloat(nil, v)
	case string:
		return pack.AppendString(nil, v)
	case []byte:
		return pack.AppendBytes(nil, v)
	}
	return pack.AppendNil(nil)
}

// TestMessage: a message may have more entries than its first byte can say.
func TestMessage(t *testing.T) {
	for _, n := range []int{0, 15, 16, 20} {
		m := pack.Begin([]byte{0xff})
		for i := range n {
			m.Int(string(rune('a'+i)), int64(i))
		}
		r := pack.NewReader(m.End()[1:])
		if got := r.Map(); got != n {
			t.Errorf("%d entries are %d", n, got)
		}
		for i := range n {
			if key, v := string(r.Text()), r.Int(); key != string(rune('a'+i)) || v != int64(i) {
				t.Errorf("%q is %d", key, v)
			}
		}
		if !r.Done() {
			t.Errorf("%d entries cannot be read", n)
		}
	}
}

// TestOwn: who keeps what was read has memory of its own, unless it is given all of it.
func TestOwn(t *testing.T) {
	for _, keep := range []bool{false, true} {
		b := pack.AppendBytes(nil, []byte("x"))
		r := pack.NewReader(b)
		if keep {
			r = pack.NewKeeper(b)
		}
		own := r.Own()
		clear(b)
		if !r.Done() || cap(own) != 1 || (string(own) == "x") == keep {
			t.Errorf("%q", own)
		}
		r = pack.NewReader([]byte{0xc4, 2, 'x'})
		if own := r.Own(); own != nil || r.OK() {
			t.Errorf("%q of what is cut short", own)
		}
	}
}

// FuzzReader: no bytes make a reader panic or read what is not there, and it passes
// over just the values that are valid.
func FuzzReader(f *testing.F) {
	f.Add([]byte("\x82\xa1a\x93\x01\xc0\xcb\x00\x00\x00\x00\x00\x00\x00\x00\xc4\x01x\xd4\x53\x01"))
	f.Add([]byte("\xdf\xff\xff\xff\xff"))
	f.Add([]byte("\xc9\x00\x00\x00\x01\x53x"))
	f.Fuzz(func(t *testing.T, b []byte) {
		r := pack.NewReader(b)
		r.Skip()
		if transport.Validate(b, transport.ValueLimits) == nil && !r.Done() {
			t.Fatal("a valid value was not passed over")
		}
		for _, read := range []func(*pack.Reader){
			func(r *pack.Reader) { r.Int() }, func(r *pack.Reader) { r.Float() }, func(r *pack.Reader) { r.Bool() },
			func(r *pack.Reader) { r.Text() }, func(r *pack.Reader) { r.Bytes() }, func(r *pack.Reader) { r.Nil() },
		} {
			r := pack.NewReader(b)
			if read(&r); r.Done() && len(b) == 0 {
				t.Fatal("read something of nothing")
			}
		}
	})
}
