package transport_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/harpcaller/harp/transport"
)

// logged collects what is logged.
type logged struct {
	mu    sync.Mutex
	lines []string
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, string(p))
	return len(p), nil
}

func (l *logged) logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

func (l *logged) all() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]string(nil), l.lines...)
}

// hostile is a peer that sends what it likes.
type hostile struct {
	raw     *transport.Raw
	control io.ReadWriteCloser
	victim  ends // only the side that is not hostile
	log     logged
}

// hostileOpener connects a hostile opener with an acceptor that is served by
// handle.
func (w wiring) hostileOpener(t *testing.T, o transport.Options, handle func(context.Context, *transport.Exchange, transport.Frame)) *hostile {
	t.Helper()
	oc, ac := w.conns(t)
	h := &hostile{}
	var err error
	if h.raw, err = transport.NewRaw(oc, true); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.raw.Close)
	h.control = h.open(t)
	o.Logger = h.log.logger()
	if h.victim.acceptor, err = ac.Acceptor(o); err != nil {
		t.Fatal(err)
	}
	if h.victim.acceptorControl, err = h.victim.acceptor.Control(t.Context()); err != nil {
		t.Fatal(err)
	}
	h.victim.serve(t, handle)
	return h
}

// hostileAcceptor connects an opener with a hostile acceptor.
func (w wiring) hostileAcceptor(t *testing.T) *hostile {
	t.Helper()
	oc, ac := w.conns(t)
	h := &hostile{}
	var err error
	if h.raw, err = transport.NewRaw(ac, false); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.raw.Close)
	if h.victim.opener, err = oc.Opener(transport.Options{Logger: h.log.logger()}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.victim.opener.Close(nil) })
	if h.victim.openerControl, err = h.victim.opener.Control(t.Context()); err != nil {
		t.Fatal(err)
	}
	if h.control, err = h.raw.Accept(t.Context()); err != nil {
		t.Fatal(err)
	}
	return h
}

func (h *hostile) open(t *testing.T) io.ReadWriteCloser {
	t.Helper()
	st, err := h.raw.Open()
	if err != nil {
		t.Fatal(err)
	}
	return st
}

// write writes bytes, whatever becomes of them.
func write(st io.Writer, b []byte) { _, _ = st.Write(b) }

// wantDead waits for the end of a session, which must have the reason given and
// have logged one line.
func (h *hostile) wantDead(t *testing.T, s *transport.Session, reason error) {
	t.Helper()
	<-s.Done()
	if err := s.Err(); !errors.Is(err, reason) {
		t.Errorf("the session ended with %v, not %v", err, reason)
	}
	if lines := h.log.all(); len(lines) != 1 || !strings.Contains(lines[0], "session closed") {
		t.Errorf("logged %d lines: %q", len(lines), lines)
	}
}

func frame(f transport.Frame) []byte { return transport.AppendFrame(nil, f) }

// header returns a header alone.
func header(length uint32, typ transport.Type, exchange uint32) []byte {
	b := frame(transport.Frame{Type: typ, Exchange: exchange})
	binary.BigEndian.PutUint32(b, length)
	return b
}

// bombs are short messages that claim to be long, or are deep.
var bombs = map[string][]byte{
	"array32":        {0xdd, 0x7f, 0xff, 0xff, 0xff},
	"map32":          {0xdf, 0x7f, 0xff, 0xff, 0xff},
	"str32":          {0xdb, 0x7f, 0xff, 0xff, 0xff},
	"bin32":          {0xc6, 0x7f, 0xff, 0xff, 0xff},
	"ext32":          {0xc9, 0x7f, 0xff, 0xff, 0xff, 0x01},
	"array16":        {0xdc, 0xff, 0xff},
	"depth":          bytes.Repeat([]byte{0x91}, 100000),
	"trailing bytes": {0xc0, 0xc0},
	"code 0xc1":      {0xc1},
	"not UTF-8":      {0xa1, 0xff},
	"time":           {0xd6, 0xff, 0, 0, 0, 0},
	"cut short":      {0x92, 0xc0},
}

func TestMalformedBody(t *testing.T) {
	eachWiring(t, func(t *testing.T, w wiring) {
		for name, body := range bombs {
			f := transport.Frame{Type: 1, Exchange: 1, Body: body}
			t.Run(name+"/on a lane", func(t *testing.T) {
				h := w.hostileOpener(t, transport.Options{}, echo)
				write(h.open(t), frame(f))
				h.wantDead(t, h.victim.acceptor, transport.ErrMalformed)
			})
			t.Run(name+"/on the control stream", func(t *testing.T) {
				h := w.hostileOpener(t, transport.Options{}, echo)
				f.Exchange = 0
				write(h.control, frame(f))
				h.wantDead(t, h.victim.acceptor, transport.ErrMalformed)
			})
			t.Run(name+"/as an answer", func(t *testing.T) {
				h := w.hostileAcceptor(t)
				x := h.victim.exchange(t)
				send(t, x, 1, true, nil)
				st, err := h.raw.Accept(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				f.Exchange = 1
				write(st, frame(f))
				wantEnd(t, x, transport.ErrMalformed)
				h.wantDead(t, h.victim.opener, transport.ErrMalformed)
			})
		}
	})
}

func TestFrameTooLarge(t *testing.T) {
	eachWiring(t, func(t *testing.T, w wiring) {
		perType := func(t transport.Type) int { return int(t) * 1000 }
		for name, h := range map[string][]byte{
			"above its type's": header(2001, 2, 1),
			"huge":             header(1<<31, 5, 1),
			"as huge as can":   header(1<<32-1, 126, 1),
		} {
			t.Run(name, func(t *testing.T) {
				p := w.hostileOpener(t, transport.Options{MaxFrame: perType}, echo)
				write(p.open(t), h)
				p.wantDead(t, p.victim.acceptor, transport.ErrFrameTooLarge)
			})
		}
		t.Run("above the cap of all", func(t *testing.T) {
			p := w.hostileOpener(t, transport.Options{MaxFrame: func(transport.Type) int { return 1 << 30 }}, echo)
			write(p.open(t), header(transport.MaxFrame+1, 2, 1))
			p.wantDead(t, p.victim.acceptor, transport.ErrFrameTooLarge)
		})
		t.Run("above the default", func(t *testing.T) {
			p := w.hostileOpener(t, transport.Options{}, echo)
			write(p.open(t), header(128<<10+1, 2, 1))
			p.wantDead(t, p.victim.acceptor, transport.ErrFrameTooLarge)
		})
		t.Run("heartbeat with a body", func(t *testing.T) {
			p := w.hostileOpener(t, transport.Options{}, echo)
			write(p.control, header(1, 127, 0))
			p.wantDead(t, p.victim.acceptor, transport.ErrFrameTooLarge)
		})
	})
}

func TestProtocolViolations(t *testing.T) {
	lane := func(frames ...transport.Frame) func(t *testing.T, h *hostile) {
		return func(t *testing.T, h *hostile) {
			st := h.open(t)
			for _, f := range frames {
				write(st, frame(f))
			}
		}
	}
	control := func(f transport.Frame) func(t *testing.T, h *hostile) {
		return func(_ *testing.T, h *hostile) { write(h.control, frame(f)) }
	}
	cases := map[string]func(t *testing.T, h *hostile){
		"exchange 0 on a lane":           lane(transport.Frame{Type: 1}),
		"heartbeat on a lane":            lane(transport.Frame{Type: 127, Exchange: 1}),
		"End twice":                      lane(transport.Frame{Type: 1, Exchange: 1, End: true}, transport.Frame{Type: 1, Exchange: 1, End: true}),
		"frame after End":                lane(transport.Frame{Type: 1, Exchange: 1, End: true}, transport.Frame{Type: 1, Exchange: 1}),
		"new exchange while in one":      lane(transport.Frame{Type: 1, Exchange: 1}, transport.Frame{Type: 1, Exchange: 2}),
		"exchange on the control stream": control(transport.Frame{Type: 1, Exchange: 1}),
	}
	eachWiring(t, func(t *testing.T, w wiring) {
		for name, violate := range cases {
			t.Run(name, func(t *testing.T) {
				h := w.hostileOpener(t, transport.Options{}, func(ctx context.Context, _ *transport.Exchange, _ transport.Frame) { <-ctx.Done() })
				violate(t, h)
				h.wantDead(t, h.victim.acceptor, transport.ErrProtocol)
			})
		}
	})
}

func TestHostileAnswers(t *testing.T) {
	cases := map[string]transport.Frame{
		"exchange that was not begun": {Type: 1, Exchange: 2},
		"exchange 0":                  {Type: 1},
		"heartbeat":                   {Type: 127, Exchange: 1},
	}
	eachWiring(t, func(t *testing.T, w wiring) {
		for name, f := range cases {
			t.Run(name, func(t *testing.T) {
				h := w.hostileAcceptor(t)
				x := h.victim.exchange(t)
				send(t, x, 1, true, nil)
				st, err := h.raw.Accept(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				write(st, frame(f))
				wantEnd(t, x, transport.ErrProtocol)
				h.wantDead(t, h.victim.opener, transport.ErrProtocol)
			})
		}
	})
}

func TestWrongSideOpens(t *testing.T) {
	eachWiring(t, func(t *testing.T, w wiring) {
		h := w.hostileAcceptor(t)
		_, _ = h.raw.Open()
		h.wantDead(t, h.victim.opener, transport.ErrProtocol)
	})
}

// Frames of older exchanges are dropped, on either side.
func TestOlderFrames(t *testing.T) {
	eachWiring(t, func(t *testing.T, w wiring) {
		t.Run("acceptor", func(t *testing.T) {
			h := w.hostileOpener(t, transport.Options{}, echo)
			st := h.open(t)
			read := func(want uint32) {
				t.Helper()
				f, err := transport.ReadFrame(st, func(transport.Type) int { return 100 })
				if err != nil || f.Exchange != want {
					t.Fatalf("got exchange %d, %v; want %d", f.Exchange, err, want)
				}
			}
			write(st, frame(transport.Frame{Type: 1, Exchange: 5, End: true}))
			read(5)
			write(st, frame(transport.Frame{Type: 1, Exchange: 4}))
			write(st, frame(transport.Frame{Type: 1, Exchange: 6}))
			read(6)
			write(st, frame(transport.Frame{Type: 1, Exchange: 5, End: true}))
			write(st, frame(transport.Frame{Type: 1, Exchange: 6, End: true}))
			read(6)
		})
		t.Run("opener", func(t *testing.T) {
			h := w.hostileAcceptor(t)
			x := h.victim.exchange(t)
			send(t, x, 1, true, nil)
			st, err := h.raw.Accept(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			write(st, frame(transport.Frame{Type: 1, Exchange: 1, End: true}))
			want(t, x, transport.Frame{Type: 1, End: true})
			x.Release()
			x = h.victim.exchange(t)
			write(st, frame(transport.Frame{Type: 2, Exchange: 1, End: true}))
			write(st, frame(transport.Frame{Type: 3, Exchange: 2, End: true}))
			want(t, x, transport.Frame{Type: 3, End: true})
		})
	})
}

// A peer that vanishes within a frame has not ended anything.
func TestTruncation(t *testing.T) {
	whole := frame(transport.Frame{Type: 1, Exchange: 1, End: true, Body: bin(50000)})
	eachWiring(t, func(t *testing.T, w wiring) {
		for _, cut := range []int{0, 1, transport.HeaderSize, transport.HeaderSize + 1, 20000, len(whole) - 1} {
			for _, how := range []string{"lane", "connection"} {
				h := w.hostileAcceptor(t)
				x := h.victim.exchange(t)
				send(t, x, 1, true, nil)
				st, err := h.raw.Accept(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				write(st, whole[:cut])
				if how == "lane" {
					_ = st.Close()
				} else {
					h.raw.Close()
				}
				wantEnd(t, x, io.ErrUnexpectedEOF)
				wantEnd(t, x, io.ErrUnexpectedEOF)
				x.Release()
				if how == "lane" && h.victim.opener.Err() != nil {
					t.Errorf("cut at %d: the session ended: %v", cut, h.victim.opener.Err())
				}
			}
		}
	})
}

// A handler hears of a lane that was cut within a frame.
func TestTruncatedRequest(t *testing.T) {
	eachWiring(t, func(t *testing.T, w wiring) {
		got := make(chan error, 1)
		h := w.hostileOpener(t, transport.Options{}, func(ctx context.Context, x *transport.Exchange, _ transport.Frame) {
			got <- second(x.Receive(context.Background()))
			<-ctx.Done()
		})
		st := h.open(t)
		write(st, frame(transport.Frame{Type: 1, Exchange: 1}))
		write(st, header(1000, 1, 1))
		_ = st.Close()
		if err := <-got; !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("Receive: %v", err)
		}
	})
}

// Headers and bombs cost the reader no more than they cost the writer.
func TestHostileMemory(t *testing.T) {
	eachWiring(t, func(t *testing.T, w wiring) {
		const lanes = 50
		h := w.hostileOpener(t, transport.Options{MaxFrame: func(transport.Type) int { return transport.MaxFrame }}, echo)
		streams := make([]io.ReadWriteCloser, lanes)
		for i := range streams {
			streams[i] = h.open(t)
		}
		grown := allocated(func() {
			for _, st := range streams {
				write(st, header(transport.MaxFrame, 1, 1))
				write(st, make([]byte, 100))
			}
			write(streams[0], make([]byte, 100000)) // read by then are the others
			write(h.control, frame(transport.Frame{Type: 1, Body: bombs["array32"]}))
			<-h.victim.acceptor.Done()
		})
		if grown > 8<<20 {
			t.Errorf("%d headers allocated %d KiB", lanes, grown>>10)
		}
	})
}

// allocated returns how many bytes f allocates.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// One broken session does not concern the others.
func TestOtherSessions(t *testing.T) {
	eachWiring(t, func(t *testing.T, w wiring) {
		good := w.connect(t, transport.Options{}, transport.Options{})
		good.serve(t, echo)
		h := w.hostileOpener(t, transport.Options{}, echo)
		write(h.open(t), frame(transport.Frame{Type: 1, Exchange: 1, Body: bombs["map32"]}))
		h.wantDead(t, h.victim.acceptor, transport.ErrMalformed)
		x := good.exchange(t)
		send(t, x, 1, true, nil)
		want(t, x, transport.Frame{Type: 1, End: true})
	})
}

// More lanes than twice MaxLanes end the session, also when the handlers of
// closed lanes go on.
func TestLaneFlood(t *testing.T) {
	eachWiring(t, func(t *testing.T, w wiring) {
		release := make(chan struct{})
		began := make(chan struct{})
		h := w.hostileOpener(t, transport.Options{MaxLanes: 4}, func(context.Context, *transport.Exchange, transport.Frame) {
			began <- struct{}{}
			<-release
		})
		for range 8 {
			st := h.open(t)
			write(st, frame(transport.Frame{Type: 1, Exchange: 1}))
			<-began
			_ = st.Close()
		}
		_, _ = h.raw.Open()
		h.wantDead(t, h.victim.acceptor, transport.ErrTooManyLanes)
		close(release)
	})
}

// What follows is below the streams, where only TLS has something.

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
	opened := yamuxHeader(update, syn, 1, 0) // the control stream
	cases := []struct {
		name   string
		bytes  []byte
		reason error
	}{
		{"garbage", bytes.Repeat([]byte("garbage!"), 100), transport.ErrProtocol},
		{"unknown type", yamuxHeader(9, 0, 0, 0), transport.ErrProtocol},
		{"flood of pings", bytes.Repeat(yamuxHeader(ping, syn, 0, 1), 1000), transport.ErrProtocol},
		{"flood of streams", floodOfStreams(20000), transport.ErrProtocol},
		{"stream opened twice", opened, transport.ErrProtocol},
		{"even stream", yamuxHeader(update, syn, 2, 0), transport.ErrProtocol},
		{"more than the window", append(yamuxHeader(data, 0, 1, 1<<20), make([]byte, 1<<20)...), transport.ErrProtocol},
		{"going away badly", yamuxHeader(away, 0, 0, 1), transport.ErrSessionClosed},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			oc, ac := wiring{openerDials: true}.conns(t)
			var log logged
			s, err := ac.Acceptor(transport.Options{Logger: log.logger(), MaxLanes: 4})
			if err != nil {
				t.Fatal(err)
			}
			nc := transport.NetConn(oc)
			drained := make(chan struct{})
			go func() {
				defer close(drained)
				_, _ = io.Copy(io.Discard, nc)
			}()
			write(nc, opened)
			if _, err := s.Control(t.Context()); err != nil {
				t.Fatal(err)
			}
			served := make(chan struct{})
			go func() {
				defer close(served)
				_ = s.Serve(t.Context(), echo)
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

// A peer that closes the control stream alone has ended the session: a goroutine that sends on it hears
// that, also while nobody reads it.
func TestControlStreamIsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := virtual.hostileAcceptor(t)
		for range 100 {
			write(h.control, frame(transport.Frame{Type: 1}))
		}
		synctest.Wait()
		_ = h.control.Close()
		if err := h.victim.openerControl.Send(transport.Frame{Type: 1}); !errors.Is(err, transport.ErrSessionClosed) {
			t.Errorf("sent: %v", err)
		}
		<-h.victim.opener.Done()
		if err := h.victim.opener.Err(); !errors.Is(err, transport.ErrSessionClosed) {
			t.Errorf("the session: %v", err)
		}
	})
}
