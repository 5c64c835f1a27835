package transport

import (
	"bytes"
	"testing"
)

// writes records what is written to a stream.
type writes struct {
	stream
	all []byte
	n   []int
}

func (w *writes) Write(p []byte) (int, error) {
	w.all = append(w.all, p...)
	w.n = append(w.n, len(p))
	return len(p), nil
}

// A short frame is one write; no write is longer than others should have to wait.
func TestLaneWrites(t *testing.T) {
	for _, c := range []struct{ body, writes int }{
		{0, 1},
		{1, 1},
		{writeSize - HeaderSize, 1},
		{writeSize - HeaderSize + 1, 2},
		{2*writeSize - HeaderSize, 2},
		{2*writeSize - HeaderSize + 1, 3},
		{1 << 20, 65},
	} {
		w := &writes{}
		l := &lane{stream: w}
		f := Frame{Type: 3, Exchange: 9, End: true, Body: bytes.Repeat([]byte{7}, c.body)}
		if err := l.write(f); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(w.all, append(f.appendHeader(nil), f.Body...)) {
			t.Errorf("a body of %d bytes is damaged", c.body)
		}
		if len(w.n) != c.writes {
			t.Errorf("a body of %d bytes took %d writes", c.body, len(w.n))
		}
		for _, n := range w.n {
			if n > writeSize {
				t.Errorf("%d bytes in one write", n)
			}
		}
	}
}
