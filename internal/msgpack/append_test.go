package msgpack_test

import (
	"bytes"
	"math"
	"testing"

	vmihailenco "github.com/vmihailenco/msgpack/v5"

	"github.com/harpcaller/harp/internal/msgpack"
)

// TestAppend: what is appended is what the library writes.
func TestAppend(t *testing.T) {
	for _, v := range []any{
		nil, true, false, 0, 1, 127, 128, 255, 256, 65535, 65536, 1 << 31, 1 << 32, math.MaxInt64,
		-1, -32, -33, -128, -129, -32768, -32769, math.MinInt32, math.MinInt32 - 1, math.MinInt64, uint64(math.MaxUint64),
		0.0, -1.5, math.Inf(1), float32(0.1), "", "x", string(make([]byte, 31)), string(make([]byte, 32)), string(make([]byte, 256)),
		string(make([]byte, 65536)), []byte(nil),
		[]byte{},
		make([]byte, 255), make([]byte, 256), make([]byte, 65536),
	} {
		want, err := encodeByLibrary(v)
		if err != nil {
			t.Fatal(err)
		}
		if got := appendAny(v); !bytes.Equal(got, want) {
			t.Errorf("%T %.20v: %.20x, the library %.20x", v, v, got, want)
		}
	}
	for _, n := range []int{0, 15, 16, 65535, 65536} {
		var b bytes.Buffer
		enc := vmihailenco.NewEncoder(&b)
		if err := enc.EncodeArrayLen(n); err != nil {
			t.Fatal(err)
		}
		if err := enc.EncodeMapLen(n); err != nil {
			t.Fatal(err)
		}
		if got := msgpack.AppendMap(msgpack.AppendArray(nil, n), n); !bytes.Equal(got, b.Bytes()) {
			t.Errorf("%d: %x, the library %x", n, got, b.Bytes())
		}
	}
}

func appendAny(v any) []byte {
	switch v := v.(type) {
	case bool:
		return msgpack.AppendBool(nil, v)
	case int:
		return msgpack.AppendInt(nil, int64(v))
	case uint64:
		return msgpack.AppendUint(nil, v)
	case float32:
		return msgpack.AppendFloat32(nil, v)
	case float64:
		return msgpack.AppendFloat(nil, v)
	case string:
		return msgpack.AppendString(nil, v)
	case []byte:
		return msgpack.AppendBytes(nil, v)
	}
	return msgpack.AppendNil(nil)
}

// FuzzReader: no bytes make a reader panic or read what is not there, and it passes
// over just the values that are valid.
func FuzzReader(f *testing.F) {
	f.Add([]byte("\x82\xa1a\x93\x01\xc0\xcb\x00\x00\x00\x00\x00\x00\x00\x00\xc4\x01x\xd4\x53\x01"))
	f.Add([]byte("\xdf\xff\xff\xff\xff"))
	f.Add([]byte("\xc9\x00\x00\x00\x01\x53x"))
	f.Fuzz(func(t *testing.T, b []byte) {
		r := msgpack.NewReader(b)
		r.Skip()
		if msgpack.Validate(b, msgpack.ValueLimits) == nil && !r.Done() {
			t.Fatal("a valid value was not passed over")
		}
		for _, read := range []func(*msgpack.Reader){
			func(r *msgpack.Reader) { r.Int() }, func(r *msgpack.Reader) { r.Float() }, func(r *msgpack.Reader) { r.Bool() },
			func(r *msgpack.Reader) { r.Text() }, func(r *msgpack.Reader) { r.Bytes() }, func(r *msgpack.Reader) { r.Nil() },
			func(r *msgpack.Reader) { r.Uint() }, func(r *msgpack.Reader) { r.Any() }, func(r *msgpack.Reader) { r.Ext() },
		} {
			r := msgpack.NewReader(b)
			if read(&r); r.Done() && len(b) == 0 {
				t.Fatal("read something of nothing")
			}
		}
	})
}
