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
	"time"

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
	raw    *transport.Raw
	main   io.ReadWriter // the stream of the session
	victim ends          // only the side that is not hostile
	log    logged
	last   uint32 // exchange
}

// hostileOpener connects a hostile opener with an acceptor that is served by
// handle.
func (w wiring) hostileOpener(t *testing.T, o transport.Options, handle func(*transport.Exchange, transport.Frame)) *hostile {
	t.Helper()
	oc, ac := w.conns(t)
	h := &hostile{}
	var err error
	if h.raw, err = transport.NewRaw(oc, true); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.raw.Close)
	h.main = h.open(t)
	o.Logger = h.log.logger()
	if h.victim.acceptor, err = ac.Acceptor(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	h.serve(t, h.victim.acceptor, handle)
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
	if h.victim.opener, err = oc.Opener(t.Context(), transport.Options{Logger: h.log.logger()}); err != nil {
		t.Fatal(err)
	}
	if h.main, err = h.raw.Accept(t.Context()); err != nil {
		t.Fatal(err)
	}
	h.serve(t, h.victim.opener, nil)
	return h
}

// serve reads the session of the victim until the end of the test.
func (h *hostile) serve(t *testing.T, s *transport.Session, handle func(*transport.Exchange, transport.Frame)) {
	var served sync.WaitGroup
	served.Go(func() { _ = s.Serve(handle) })
	t.Cleanup(func() {
		s.Close(nil)
		served.Wait()
	})
}

// begun begins an exchange of the victim and waits for its frame.
func (h *hostile) begun(t *testing.T) *transport.Exchange {
	t.Helper()
	x := h.victim.exchange(t)
	send(t, x, 1, true, nil)
	if f := h.read(t); f.Type != 1 {
		t.Fatalf("read %+v", f)
	}
	return x
}

// read reads what the victim has sent.
func (h *hostile) read(t *testing.T) transport.Frame {
	t.Helper()
	f, err := transport.ReadFrame(h.main, anySize)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func (h *hostile) open(t *testing.T) io.ReadWriter {
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
			t.Run(name+"/in an exchange", func(t *testing.T) {
				h := w.hostileOpener(t, transport.Options{}, echo)
				write(h.main, frame(f))
				h.wantDead(t, h.victim.acceptor, transport.ErrMalformed)
			})
			t.Run(name+"/on the control exchange", func(t *testing.T) {
				h := w.hostileOpener(t, transport.Options{}, echo)
				f.Exchange = 0
				write(h.main, frame(f))
				h.wantDead(t, h.victim.acceptor, transport.ErrMalformed)
			})
			t.Run(name+"/as an answer", func(t *testing.T) {
				h := w.hostileAcceptor(t)
				x := h.begun(t)
				f.Exchange = 1
				write(h.main, frame(f))
				wantEnd(t, x, transport.ErrMalformed)
				h.wantDead(t, h.victim.opener, transport.ErrMalformed)
			})
		}
	})
}

func TestFrameTooLarge(t *testing.T) {
	eachWiring(t, func(t *testing.T, w wiring) {
		perType := func(t transport.Type) int { return int(t) * 1000 }
		for name, c := range map[string]struct {
			header []byte
			limit  func(transport.Type) int
		}{
			"above its type's":     {header(2001, 2, 1), perType},
			"huge":                 {header(1<<31, 5, 1), perType},
			"as huge as can":       {header(1<<32-1, 125, 1), perType},
			"above the cap of all": {header(transport.MaxFrame+1, 2, 1), func(transport.Type) int { return 1 << 30 }},
			"above the default":    {header(128<<10+1, 2, 1), nil},
			"heartbeat":            {header(1, 127, 0), perType},
			"reset":                {header(2, 126, 1), perType},
		} {
			t.Run(name, func(t *testing.T) {
				p := w.hostileOpener(t, transport.Options{MaxFrame: c.limit}, echo)
				write(p.main, c.header)
				p.wantDead(t, p.victim.acceptor, transport.ErrFrameTooLarge)
			})
		}
	})
}

func TestProtocolViolations(t *testing.T) {
	cases := map[string][]transport.Frame{
		"heartbeat in an exchange": {{Type: 127, Exchange: 1}},
		"End twice":                {{Type: 1, Exchange: 1, End: true}, {Type: 1, Exchange: 1, End: true}},
		"frame after End":          {{Type: 1, Exchange: 1}, {Type: 1, Exchange: 1, End: true}, {Type: 1, Exchange: 1}},
		"reset of the control":     {{Type: 126}},
		"end of the control":       {{Type: 1, End: true}},
		"type that does not exist": {{Type: 128, Exchange: 1}},
	}
	eachWiring(t, func(t *testing.T, w wiring) {
		for name, frames := range cases {
			t.Run(name, func(t *testing.T) {
				h := w.hostileOpener(t, transport.Options{}, await)
				for _, f := range frames {
					write(h.main, frame(f))
				}
				h.wantDead(t, h.victim.acceptor, transport.ErrProtocol)
			})
		}
	})
}

func TestHostileAnswers(t *testing.T) {
	cases := map[string]transport.Frame{
		"exchange that was not begun": {Type: 1, Exchange: 2},
		"heartbeat":                   {Type: 127, Exchange: 1},
		"reset of the control":        {Type: 126},
		"end of the control":          {Type: 1, End: true},
	}
	eachWiring(t, func(t *testing.T, w wiring) {
		for name, f := range cases {
			t.Run(name, func(t *testing.T) {
				h := w.hostileAcceptor(t)
				x := h.begun(t)
				write(h.main, frame(f))
				wantEnd(t, x, transport.ErrProtocol)
				h.wantDead(t, h.victim.opener, transport.ErrProtocol)
			})
		}
	})
}

// A frame after End is a violation while the exchange goes on, and ignored after it.
func TestHostileAnswerAfterEnd(t *testing.T) {
	eachWiring(t, func(t *testing.T, w wiring) {
		h := w.hostileAcceptor(t)
		x := h.begun(t)
		for range 2 {
			write(h.main, frame(transport.Frame{Type: 1, Exchange: 1, End: true}))
		}
		want(t, x, transport.Frame{Type: 1, End: true})
		h.wantDead(t, h.victim.opener, transport.ErrProtocol)
	})
}

// Frames of older exchanges, and resets of any, are dropped, on either side.
func TestOlderFrames(t *testing.T) {
	eachWiring(t, func(t *testing.T, w wiring) {
		t.Run("acceptor", func(t *testing.T) {
			h := w.hostileOpener(t, transport.Options{}, echo)
			read := func(want uint32) {
				t.Helper()
				if f := h.read(t); f.Exchange != want {
					t.Fatalf("got exchange %d, want %d", f.Exchange, want)
				}
			}
			write(h.main, frame(transport.Frame{Type: 126, Exchange: 5}))
			write(h.main, frame(transport.Frame{Type: 1, Exchange: 5, End: true}))
			read(5)
			write(h.main, frame(transport.Frame{Type: 1, Exchange: 4}))
			write(h.main, frame(transport.Frame{Type: 126, Exchange: 4}))
			write(h.main, frame(transport.Frame{Type: 1, Exchange: 6}))
			read(6)
			write(h.main, frame(transport.Frame{Type: 126, Exchange: 70}))
			write(h.main, frame(transport.Frame{Type: 1, Exchange: 6, End: true}))
			read(6)
			write(h.main, frame(transport.Frame{Type: 1, Exchange: 7}))
			read(7)
		})
		t.Run("opener", func(t *testing.T) {
			h := w.hostileAcceptor(t)
			x := h.begun(t)
			write(h.main, frame(transport.Frame{Type: 1, Exchange: 1, End: true}))
			want(t, x, transport.Frame{Type: 1, End: true})
			x.Release()
			x = h.begun(t)
			write(h.main, frame(transport.Frame{Type: 2, Exchange: 1, End: true}))
			write(h.main, frame(transport.Frame{Type: 2, Exchange: 1, End: true}))
			write(h.main, frame(transport.Frame{Type: 126, Exchange: 9}))
			write(h.main, frame(transport.Frame{Type: 3, Exchange: 2, End: true}))
			want(t, x, transport.Frame{Type: 3, End: true})
		})
	})
}

// A peer that vanishes within a frame has not ended anything.
func TestTruncation(t *testing.T) {
	whole := frame(transport.Frame{Type: 1, Exchange: 1, End: true, Body: bin(50000)})
	eachWiring(t, func(t *testing.T, w wiring) {
		for _, cut := range []int{0, 1, transport.HeaderSize, transport.HeaderSize + 1, 20000, len(whole) - 1} {
			h := w.hostileAcceptor(t)
			x := h.begun(t)
			write(h.main, whole[:cut])
			h.raw.Close()
			for range 2 {
				wantEnd(t, x, io.ErrUnexpectedEOF)
				wantEnd(t, x, transport.ErrSessionClosed)
			}
			x.Release()
			<-h.victim.opener.Done()
			if lines := h.log.all(); len(lines) > 0 {
				t.Errorf("cut at %d: logged %q", cut, lines)
			}
		}
	})
}

// A handler hears of a request that was cut within a frame.
func TestTruncatedRequest(t *testing.T) {
	eachWiring(t, func(t *testing.T, w wiring) {
		begun, got := make(chan struct{}), make(chan error, 1)
		h := w.hostileOpener(t, transport.Options{}, func(x *transport.Exchange, _ transport.Frame) {
			close(begun)
			got <- second(x.Receive(context.Background()))
			<-x.Context().Done()
		})
		write(h.main, frame(transport.Frame{Type: 1, Exchange: 1}))
		<-begun
		write(h.main, header(1000, 1, 1))
		h.raw.Close()
		if err := <-got; !errors.Is(err, io.ErrUnexpectedEOF) || !errors.Is(err, transport.ErrSessionClosed) {
			t.Errorf("Receive: %v", err)
		}
	})
}

// Headers and bombs cost the reader no more than they cost the writer.
func TestHostileMemory(t *testing.T) {
	eachWiring(t, func(t *testing.T, w wiring) {
		const peers = 20
		var all []*hostile
		for range peers {
			all = append(all, w.hostileOpener(t, transport.Options{MaxFrame: func(transport.Type) int { return transport.MaxFrame }}, echo))
		}
		grown := allocated(func() {
			for _, h := range all {
				write(h.main, header(transport.MaxFrame, 1, 1))
				write(h.main, make([]byte, 100))
				h.raw.Close()
				<-h.victim.acceptor.Done()
			}
		})
		if grown > 8<<20 {
			t.Errorf("%d headers allocated %d KiB", peers, grown>>10)
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
		write(h.main, frame(transport.Frame{Type: 1, Exchange: 1, Body: bombs["map32"]}))
		h.wantDead(t, h.victim.acceptor, transport.ErrMalformed)
		if err := roundTrip(t.Context(), good.opener); err != nil {
			t.Error(err)
		}
	})
}

// More exchanges than twice MaxExchanges end the session, also when they were given up
// and only their handlers go on.
func TestExchangeFlood(t *testing.T) {
	eachWiring(t, func(t *testing.T, w wiring) {
		for _, reset := range []bool{false, true} {
			release := make(chan struct{})
			began := make(chan struct{})
			h := w.hostileOpener(t, transport.Options{MaxExchanges: 4}, func(_ *transport.Exchange, f transport.Frame) {
				if f.Type == 2 {
					return
				}
				began <- struct{}{}
				<-release
			})
			for range 10 { // those that are over do not count
				write(h.main, frame(transport.Frame{Type: 2, Exchange: h.next()}))
				if f := h.read(t); f.Type != 126 {
					t.Fatalf("read %+v", f)
				}
			}
			for range 8 {
				n := h.next()
				write(h.main, frame(transport.Frame{Type: 1, Exchange: n}))
				<-began
				if reset {
					write(h.main, frame(transport.Frame{Type: 126, Exchange: n}))
				}
			}
			if err := h.victim.acceptor.Err(); err != nil {
				t.Fatalf("the session ended with %v", err)
			}
			write(h.main, frame(transport.Frame{Type: 1, Exchange: h.next()}))
			h.wantDead(t, h.victim.acceptor, transport.ErrTooManyExchanges)
			if err := h.victim.acceptor.Err(); !errors.Is(err, transport.ErrProtocol) {
				t.Errorf("the session ended with %v", err)
			}
			close(release)
		}
	})
}

// next is the number of the next exchange.
func (h *hostile) next() uint32 {
	h.last++
	return h.last
}

// What follows is below the streams, where only TLS has something.

// TestSilenceWithinABody: a peer that falls silent within a frame of yamux is silent.
func TestSilenceWithinABody(t *testing.T) {
	oc, ac := wiring{openerDials: true}.conns(t)
	nc := transport.NetConn(oc)
	var others sync.WaitGroup
	others.Go(func() {
		_, _ = io.Copy(io.Discard, nc)
		_ = nc.Close()
	})
	write(nc, yamuxHeader(1, 1, 1, 0))
	s, err := ac.Acceptor(t.Context(), quiet(transport.Options{}))
	if err != nil {
		t.Fatal(err)
	}
	begun := make(chan struct{})
	others.Go(func() {
		_ = s.Serve(func(x *transport.Exchange, _ transport.Frame) {
			close(begun)
			<-x.Context().Done()
		})
	})
	body := bin(20_000)
	transport.ExpectBodies(s, 2*len(body)) // nobody reads what lets them in
	announced := longHeader(uint32(len(body)), 1, 1, 3)
	write(nc, yamuxHeader(1, 1, 3, 0))
	write(nc, append(yamuxFrame(1, announced), yamuxFrame(3, body)...))
	<-begun
	write(nc, append(yamuxFrame(1, announced), yamuxFrame(3, body)[:10_000]...))
	s.Beat(100 * time.Millisecond)
	select {
	case <-s.Done():
	case <-time.After(20 * time.Second):
		t.Error("the session has not ended")
		_ = nc.Close()
	}
	if err := s.Err(); !errors.Is(err, transport.ErrSilent) {
		t.Errorf("it ended with %v", err)
	}
	others.Wait()
}
