package transport

import (
	"log/slog"
	"net"
	"testing"
	"time"
)

// yamuxPair are the two ends of a connection.
func yamuxPair(t *testing.T) (opener, acceptor *yamuxMux) {
	t.Helper()
	near, far := net.Pipe()
	options := Options{Logger: slog.New(slog.DiscardHandler)}.withDefaults()
	opener, err := newYamux(near, options, true)
	if err != nil {
		t.Fatal(err)
	}
	if acceptor, err = newYamux(far, options, false); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		opener.close()
		acceptor.close()
	})
	return opener, acceptor
}

// yamuxStreams are the two ends of a new stream.
func yamuxStreams(t *testing.T, opener, acceptor *yamuxMux) (out, in stream) {
	t.Helper()
	out, err := opener.open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if in, err = acceptor.accept(t.Context()); err != nil {
		t.Fatal(err)
	}
	return out, in
}

// Each write has 30 s, whenever the one before it was, and hardly more.
func TestYamuxWriteDeadline(t *testing.T) {
	opener, acceptor := yamuxPair(t)
	out, _ := yamuxStreams(t, opener, acceptor)
	s := out.(*yamuxStream)
	for _, since := range []time.Duration{0, deadlineStep / 2, deadlineStep, writeTimeout, time.Hour} {
		s.until = s.until.Add(-since)
		before := time.Now()
		if _, err := s.Write([]byte{1}); err != nil {
			t.Fatal(err)
		}
		if s.until.Before(before.Add(writeTimeout)) || s.until.After(time.Now().Add(writeTimeout+deadlineStep)) {
			t.Errorf("%v after one write the next may take %v", since, s.until.Sub(before))
		}
	}
	opener.abort()
	if _, err := s.Write([]byte{1}); err == nil {
		t.Error("wrote after the end")
	}
}

// Close unblocks this side's Read, though the peer never closes its side.
func TestYamuxStreamClose(t *testing.T) {
	opener, acceptor := yamuxPair(t)
	for _, from := range []*yamuxMux{opener, acceptor} {
		out, in := yamuxStreams(t, opener, acceptor)
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
