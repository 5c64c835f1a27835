package transport

import (
	"log/slog"
	"net"
	"testing"
)

// Close unblocks this side's Read, though the peer never closes its side.
func TestYamuxStreamClose(t *testing.T) {
	near, far := net.Pipe()
	options := Options{Logger: slog.New(slog.DiscardHandler)}.withDefaults()
	opener, err := newYamux(near, options, true)
	if err != nil {
		t.Fatal(err)
	}
	acceptor, err := newYamux(far, options, false)
	if err != nil {
		t.Fatal(err)
	}
	defer acceptor.close()
	defer opener.close()
	for _, from := range []*yamuxMux{opener, acceptor} {
		out, err := opener.open(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		in, err := acceptor.accept(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		st := out
		if from == acceptor {
			st = in
		}
		read := make(chan error)
		go func() {
			_, err := st.Read(make([]byte, 1))
			read <- err
		}()
		if err := st.Close(); err != nil {
			t.Error(err)
		}
		if err := <-read; err == nil {
			t.Error("read something")
		}
	}
}
