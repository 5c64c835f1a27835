package memnet

import (
	"bytes"
	"testing"
)

// TestPipeShrink: a pipe that is empty gives back its memory, and one that is not loses
// nothing by being asked to.
func TestPipeShrink(t *testing.T) {
	p := newPipe(1000, ends{path: &Path{}, hear: func() {}})
	sent, got := bytes.Repeat([]byte("0123456789"), 50), make([]byte, 300)
	if err := p.writeBytes(sent, 0); err != nil {
		t.Fatal(err)
	}
	for _, want := range [][]byte{sent[:300], sent[300:]} {
		p.shrink()
		if n, err := p.readBytes(got); err != nil || !bytes.Equal(got[:n], want) {
			t.Errorf("read %q, %v", got[:n], err)
		}
	}
	p.shrink()
	if cap(p.buf) != 0 {
		t.Errorf("of an empty pipe %d bytes are kept", cap(p.buf))
	}
	if err := p.writeBytes(sent[:10], 0); err != nil {
		t.Fatal(err)
	}
	p.shrink()
	if n, err := p.readBytes(got); err != nil || !bytes.Equal(got[:n], sent[:10]) {
		t.Errorf("then %q, %v", got[:n], err)
	}
}
