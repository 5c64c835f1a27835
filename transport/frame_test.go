package transport_test

import (
	"bytes"
	"encoding/hex"
	"errors"
	"io"
	"strconv"
	"testing"
	"testing/iotest"

	"github.com/harpcaller/harp/internal/msgpack"
	"github.com/harpcaller/harp/transport"
)

func anySize(transport.Type) int { return transport.MaxFrame }

// The bytes of a frame, which never change.
func TestFrameGolden(t *testing.T) {
	for _, c := range []struct {
		frame transport.Frame
		bytes string
	}{
		{transport.Frame{}, "00000000000000000000"},
		{transport.Frame{Type: 127}, "00000000000000007f00"},
		{transport.Frame{Type: 1, Exchange: 1, End: true}, "00000000000000010101"},
		{transport.Frame{Type: 126, Exchange: 1<<32 - 1, End: true, Body: []byte{0xc0}}, "00000001ffffffff7e01c0"},
		{transport.Frame{Type: 5, Exchange: 0x01020304, Body: []byte{0x92, 0x01, 0xa1, 'x'}}, "000000040102030405009201a178"},
	} {
		b := transport.AppendFrame(nil, c.frame)
		if got := hex.EncodeToString(b); got != c.bytes {
			t.Errorf("%+v is %s, not %s", c.frame, got, c.bytes)
		}
		f, err := transport.ReadFrame(iotest.OneByteReader(bytes.NewReader(b)), anySize)
		if err != nil || !equal(f, c.frame) {
			t.Errorf("%s is %+v, %v", c.bytes, f, err)
		}
	}
}

func TestFrameCutShort(t *testing.T) {
	whole := transport.AppendFrame(nil, transport.Frame{Type: 1, Exchange: 1, Body: bin(40000)})
	for _, n := range []int{0, 1, 8, 9, 10, 11, 16000, 17000, 40000, len(whole) - 1} {
		want := io.ErrUnexpectedEOF
		if n == 0 {
			want = io.EOF
		}
		_, err := transport.ReadFrame(bytes.NewReader(whole[:n]), anySize)
		if !errors.Is(err, want) {
			t.Errorf("cut at %d: %v", n, err)
		}
	}
}

// FuzzFrame reads any bytes as frames: nothing is received that is too large or
// malformed, and what is received is what was sent.
func FuzzFrame(f *testing.F) {
	f.Add([]byte{})
	f.Add(transport.AppendFrame(nil, transport.Frame{Type: 1, Exchange: 1, Body: bin(10)}))
	f.Add(transport.AppendFrame(nil, transport.Frame{Type: 127}))
	f.Add(header(1<<32-1, 1, 1))
	for _, bomb := range bombs {
		f.Add(transport.AppendFrame(nil, transport.Frame{Type: 3, Exchange: 1, Body: bomb}))
	}
	limit := func(t transport.Type) int { return int(t) * 100 }
	f.Fuzz(func(t *testing.T, b []byte) {
		r := bytes.NewReader(b)
		for {
			before := len(b) - r.Len()
			frame, err := transport.ReadFrame(r, limit)
			if err != nil {
				return
			}
			if len(frame.Body) > limit(frame.Type) {
				t.Fatalf("%d bytes of type %d", len(frame.Body), frame.Type)
			}
			if len(frame.Body) > 0 && msgpack.Validate(frame.Body, msgpack.ProtocolLimits) != nil {
				t.Fatal("a malformed body was received")
			}
			if b[before+9]&2 != 0 {
				continue // the body comes elsewhere
			}
			if again := transport.AppendFrame(nil, frame); !bytes.Equal(again, b[before:len(b)-r.Len()]) {
				t.Fatalf("read %x from %x", again, b[before:len(b)-r.Len()])
			}
		}
	})
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
