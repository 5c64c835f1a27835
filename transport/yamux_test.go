package transport

import (
	"log/slog"
	"net"
	"runtime"
	"strings"
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
		opener.Close()
		acceptor.Close()
	})
	return opener, acceptor
}

// yamuxStreams are the two ends of a new stream.
func yamuxStreams(t *testing.T, opener, acceptor *yamuxMux) (out, in Stream) {
	t.Helper()
	out, err := opener.Open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if in, err = acceptor.Accept(t.Context()); err != nil {
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
		if err := s.WriteWithin([]byte{1}, writeTimeout); err != nil {
			t.Fatal(err)
		}
		if s.until.Before(before.Add(writeTimeout)) || s.until.After(time.Now().Add(writeTimeout+deadlineStep)) {
			t.Errorf("%v after one write the next may take %v", since, s.until.Sub(before))
		}
	}
	opener.Close()
	if err := s.WriteWithin([]byte{1}, writeTimeout); err == nil {
		t.Error("wrote after the end")
	}
}

// TestAStreamWaitsToBeAccepted: yamux has no clock for it that would end the session. The peer
// accepts a stream when a frame names it and is read.
func TestAStreamWaitsToBeAccepted(t *testing.T) {
	opener, _ := yamuxPair(t)
	if _, err := opener.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	stacks := make([]byte, 1<<20)
	stacks = stacks[:runtime.Stack(stacks, true)]
	if clock := "setOpenTimeout"; strings.Contains(string(stacks), clock) {
		t.Errorf("%s runs", clock)
	}
}
