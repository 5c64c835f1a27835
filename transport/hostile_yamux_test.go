package transport_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/harpcaller/harp/transport"
)

// yamuxHeader is a header of yamux.
func yamuxHeader(kind byte, flags uint16, stream, length uint32) []byte {
	b := []byte{0, kind}
	b = binary.BigEndian.AppendUint16(b, flags)
	b = binary.BigEndian.AppendUint32(b, stream)
	return binary.BigEndian.AppendUint32(b, length)
}

func TestHostileYamux(t *testing.T) {
	const (
		data, update, ping, away = 0, 1, 2, 3
		syn                      = 1
	)
	opened := yamuxHeader(update, syn, 1, 0) // the stream of the session
	cases := []struct {
		name   string
		bytes  []byte
		reason error
	}{
		{"garbage", bytes.Repeat([]byte("garbage!"), 100), transport.ErrProtocol},
		{"unknown type", yamuxHeader(9, 0, 0, 0), transport.ErrProtocol},
		{"ping", yamuxHeader(ping, syn, 0, 1), transport.ErrProtocol},
		{"flood of pings", bytes.Repeat(yamuxHeader(ping, syn, 0, 1), 1000), transport.ErrProtocol},
		{"flood of streams", floodOfStreams(65), transport.ErrProtocol},
		{"stream opened twice", opened, transport.ErrProtocol},
		{"stream of the wrong side", yamuxHeader(update, syn, 2, 0), transport.ErrProtocol},
		{"more at once than may be", yamuxHeader(data, 0, 1, 16<<10+1), transport.ErrProtocol},
		{"more of a body at once than may be", append(yamuxHeader(update, syn, 3, 0), yamuxHeader(data, 0, 3, 16<<10+1)...), transport.ErrProtocol},
		{"more than the window", append(yamuxHeader(data, 0, 1, 5<<20), make([]byte, 5<<20)...), transport.ErrProtocol},
		{"going away badly", yamuxHeader(away, 0, 0, 1), transport.ErrSessionClosed},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			oc, ac := wiring{openerDials: true}.conns(t)
			var log logged
			nc := transport.NetConn(oc)
			drained := make(chan struct{})
			go func() {
				defer close(drained)
				_, _ = io.Copy(io.Discard, nc)
			}()
			write(nc, opened)
			s, err := ac.Acceptor(t.Context(), transport.Options{Logger: log.logger()})
			if err != nil {
				t.Fatal(err)
			}
			served := make(chan struct{})
			go func() {
				defer close(served)
				_ = s.Serve(echo)
			}()
			write(nc, c.bytes)
			<-s.Done()
			<-served
			<-drained
			if err := s.Err(); !errors.Is(err, c.reason) {
				t.Errorf("the session ended with %v", err)
			}
			lines := 0
			if c.reason == transport.ErrProtocol { //nolint:errorlint // the very same
				lines = 1
			}
			if got := log.all(); len(got) != lines {
				t.Errorf("logged %q", got)
			}
		})
	}
}

func floodOfStreams(n int) []byte {
	var b []byte
	for i := range n {
		b = append(b, yamuxHeader(1, 1, uint32(2*i+3), 0)...)
	}
	return b
}

// A peer that is no yamux gets no session, and the error says what is wrong with it.
func TestNotYamux(t *testing.T) {
	for name, c := range map[string]struct {
		bytes  []byte
		reason error
	}{
		"garbage": {bytes.Repeat([]byte("garbage!"), 100), transport.ErrProtocol},
		"silence": {nil, transport.ErrSessionClosed},
		"pings":   {bytes.Repeat(yamuxHeader(2, 1, 0, 1), 1000), transport.ErrProtocol},
		"streams": {yamuxHeader(1, 1, 2, 0), transport.ErrProtocol},
	} {
		t.Run(name, func(t *testing.T) {
			oc, ac := wiring{openerDials: true}.conns(t)
			nc := transport.NetConn(oc)
			done := make(chan struct{})
			go func() {
				defer close(done)
				write(nc, c.bytes)
				_ = nc.(interface{ CloseWrite() error }).CloseWrite() // fails if the peer was faster
				_, _ = io.Copy(io.Discard, nc)
			}()
			_, err := ac.Acceptor(t.Context(), quiet(transport.Options{}))
			if !errors.Is(err, c.reason) || !errors.Is(err, transport.ErrSessionClosed) {
				t.Errorf("the session: %v", err)
			}
			<-done
		})
	}
}

// A stream that only the opener itself may open ends its session.
func TestStreamOpenedByTheWrongSide(t *testing.T) {
	oc, ac := wiring{openerDials: true}.conns(t)
	var log logged
	s, err := oc.Opener(t.Context(), transport.Options{Logger: log.logger()})
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- s.Serve(nil) }()
	nc := transport.NetConn(ac)
	write(nc, yamuxHeader(1, 1, 3, 0))
	_, _ = io.Copy(io.Discard, nc)
	if err := <-served; !errors.Is(err, transport.ErrProtocol) || len(log.all()) != 1 {
		t.Errorf("the session ended with %v, logged %q", err, log.all())
	}
}

// TestAMessageThatNeverEnds: a peer that shows with single bytes that it is alive, in the midst of a message, costs no more the
// longer it does so. Each heartbeat gives buffers back, and yamux has the lock of the one that the message goes to.
func TestAMessageThatNeverEnds(t *testing.T) {
	oc, ac := wiring{openerDials: true}.conns(t)
	nc := transport.NetConn(oc)
	write(nc, yamuxHeader(1, 1, 1, 0))
	s, err := ac.Acceptor(t.Context(), quiet(transport.Options{}))
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = s.Serve(echo)
	}()
	write(nc, append(yamuxHeader(0, 0, 1, 16<<10), frame(transport.Frame{Type: 127})...))
	s.Beat(time.Hour)
	s.ChangeBeat(10*time.Millisecond, time.Hour)
	var head [12]byte
	for beats := 0; beats < 20; {
		if _, err := io.ReadFull(nc, head[:]); err != nil {
			t.Fatalf("the session ended: %v, %v", err, s.Err())
		}
		if head[1] == 0 { // data: heartbeats
			_, _ = io.CopyN(io.Discard, nc, int64(binary.BigEndian.Uint32(head[8:])))
			beats++
			write(nc, []byte{0})
		}
	}
	stacks := make([]byte, 4<<20)
	stacks = stacks[:runtime.Stack(stacks, true)]
	if n := bytes.Count(stacks, []byte("yamux.(*Stream).Shrink(")); n > 1 {
		t.Errorf("%d goroutines give back the buffer of one stream", n)
	}
	_ = nc.Close()
	<-served
}

// yamuxFrame is data of a stream, in as many frames of yamux as it takes.
func yamuxFrame(stream uint32, body []byte) (b []byte) {
	for piece := range slices.Chunk(body, 16<<10) {
		b = append(append(b, yamuxHeader(0, 0, stream, uint32(len(piece)))...), piece...)
	}
	return b
}
