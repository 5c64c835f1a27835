package transport_test

import (
	"strconv"
	"testing"

	"github.com/harpcaller/harp/transport"
)

// BenchmarkFrameWrite writes frames of so many bytes into a buffer that has room for
// them, as a session does.
func BenchmarkFrameWrite(b *testing.B) {
	for _, n := range []int{0, 100, 16 << 10} {
		f := transport.Frame{Type: 1, Exchange: 1, Body: bin(n)}
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			buf := transport.AppendFrame(nil, f)
			b.ReportAllocs()
			b.SetBytes(int64(len(buf)))
			for b.Loop() {
				buf = transport.AppendFrame(buf[:0], f)
			}
		})
	}
}
