package transport_test

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/harpcaller/harp/transport"
)

// longHeader announces a body on a stream of its own.
func longHeader(length uint32, typ transport.Type, exchange, stream uint32) []byte {
	b := header(length, typ, exchange)
	b[9] = 2
	return binary.BigEndian.AppendUint32(b, stream)
}

// opened opens a stream for long bodies.
func (h *hostile) opened(t *testing.T) (id uint32, st io.ReadWriter) {
	t.Helper()
	opened := h.open(t)
	return opened.(transport.RawStream).ID(), opened
}

// announce says that a body of 20,000 bytes comes on a stream.
func (h *hostile) announce(exchange, stream uint32, flags byte) {
	b := longHeader(20_000, 1, exchange, stream)
	b[9] |= flags
	write(h.main, b)
}

// writeBody writes a body, or a part of one, when it was let in.
func writeBody(st io.ReadWriter, body []byte) {
	if _, err := io.ReadFull(st, make([]byte, 1)); err == nil {
		write(st, body)
	}
}

var body20k = bin(20_000 - 3)

// TestHostileLongBodies: a long body that breaks the protocol ends the session, with one line.
func TestHostileLongBodies(t *testing.T) {
	cases := map[string]struct {
		reason error
		send   func(h *hostile, stream uint32, st io.ReadWriter)
	}{
		"of the control": {transport.ErrProtocol, func(h *hostile, stream uint32, _ io.ReadWriter) { h.announce(0, stream, 0) }},
		"on stream 0":    {transport.ErrProtocol, func(h *hostile, _ uint32, _ io.ReadWriter) { h.announce(1, 0, 0) }},
		"that is short": {transport.ErrProtocol, func(h *hostile, stream uint32, _ io.ReadWriter) {
			write(h.main, longHeader(16<<10, 1, 1, stream))
		}},
		"that is too long": {transport.ErrFrameTooLarge, func(h *hostile, stream uint32, _ io.ReadWriter) {
			write(h.main, longHeader(129<<10, 1, 1, stream))
		}},
		"of a reset": {transport.ErrFrameTooLarge, func(h *hostile, stream uint32, _ io.ReadWriter) {
			write(h.main, longHeader(20_000, 126, 1, stream))
		}},
		"of a heartbeat": {transport.ErrFrameTooLarge, func(h *hostile, stream uint32, _ io.ReadWriter) {
			write(h.main, longHeader(20_000, 127, 0, stream))
		}},
		"malformed": {transport.ErrMalformed, func(h *hostile, stream uint32, st io.ReadWriter) {
			h.announce(1, stream, 0)
			writeBody(st, slices.Repeat([]byte{0xc1}, 20_000))
		}},
		"malformed, behind a good one": {transport.ErrMalformed, func(h *hostile, stream uint32, st io.ReadWriter) {
			h.announce(1, stream, 0)
			h.announce(1, stream, 0)
			writeBody(st, body20k)
			writeBody(st, slices.Repeat([]byte{0x91}, 20_000))
		}},
		"malformed, of an exchange given up": {transport.ErrMalformed, func(h *hostile, stream uint32, st io.ReadWriter) {
			write(h.main, frame(transport.Frame{Type: 1, Exchange: 1}))
			write(h.main, frame(transport.Frame{Type: 126, Exchange: 1}))
			h.announce(1, stream, 0)
			writeBody(st, slices.Repeat([]byte{0xc1}, 20_000))
		}},
		"behind the end": {transport.ErrProtocol, func(h *hostile, stream uint32, _ io.ReadWriter) {
			h.announce(1, stream, 1)
			h.announce(1, stream, 0)
		}},
		"and a frame behind it as the end": {transport.ErrProtocol, func(h *hostile, stream uint32, _ io.ReadWriter) {
			h.announce(1, stream, 1)
			write(h.main, frame(transport.Frame{Type: 1, Exchange: 1}))
		}},
		"more than can have been written": {transport.ErrProtocol, func(h *hostile, stream uint32, _ io.ReadWriter) {
			for range 4<<20/(16<<10) + 4 {
				h.announce(1, stream, 0)
			}
		}},
		"more than two for each stream that there may be": {transport.ErrProtocol, func(h *hostile, stream uint32, _ io.ReadWriter) {
			for range 1 + 2*64 + 1 { // of which the first is let in
				h.announce(1, stream, 0)
			}
		}},
		"of too many exchanges": {transport.ErrTooManyExchanges, func(h *hostile, stream uint32, _ io.ReadWriter) {
			for range 9 {
				h.announce(h.next(), stream, 0)
			}
		}},
		"of exchanges given up and never sent": {transport.ErrTooManyExchanges, func(h *hostile, stream uint32, _ io.ReadWriter) {
			for range 9 {
				h.announce(h.next(), stream, 0)
				write(h.main, frame(transport.Frame{Type: 126, Exchange: h.last}))
			}
		}},
	}
	eachWiring(t, func(t *testing.T, w wiring) {
		for name, c := range cases {
			t.Run(name, func(t *testing.T) {
				b := transport.NewBudget()
				t.Cleanup(func() { wantNothingHeld(t, b) }) // when all handlers have returned
				h := w.hostileOpener(t, transport.Options{MaxExchanges: 4, Budget: b}, await)
				stream, st := h.opened(t)
				c.send(h, stream, st)
				h.wantDead(t, h.victim.acceptor, c.reason)
			})
		}
	})
}

// TestALongBodyOnAStreamThatIsNone: the stream of the session, or one that was never opened.
func TestALongBodyOnAStreamThatIsNone(t *testing.T) {
	for name, stream := range map[string]uint32{"the session's": 1, "never opened": 77} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := wiring{memory: true, openerDials: true}.hostileOpener(t, transport.Options{}, await)
				begun := time.Now()
				h.announce(1, stream, 0)
				h.wantDead(t, h.victim.acceptor, transport.ErrProtocol)
				if waited := time.Since(begun); waited > 0 {
					t.Errorf("it was waited for, for %v, while what came behind it filled a window", waited)
				}
			})
		})
	}
}

// TestALongAnswerOfAnExchangeThatWasNotBegun: an opener believes none.
func TestALongAnswerOfAnExchangeThatWasNotBegun(t *testing.T) {
	eachWiring(t, func(t *testing.T, w wiring) {
		h := w.hostileAcceptor(t)
		x := h.begun(t)
		h.announce(2, 2, 0)
		wantEnd(t, x, transport.ErrProtocol)
		h.wantDead(t, h.victim.opener, transport.ErrProtocol)
	})
}

// TestALongBodyCutShort: what came before it is there, it is not, and neither is the end.
func TestALongBodyCutShort(t *testing.T) {
	eachWiring(t, func(t *testing.T, w wiring) {
		for _, cut := range []int{0, 1, 19_999} {
			got, rest := make(chan transport.Frame, 1), make(chan error, 1)
			h := w.hostileOpener(t, transport.Options{}, func(x *transport.Exchange, f transport.Frame) {
				got <- f
				_, err := x.Receive(context.Background())
				rest <- err
			})
			stream, st := h.opened(t)
			h.announce(1, stream, 0)
			h.announce(1, stream, 0)
			write(h.main, frame(transport.Frame{Type: 1, Exchange: 1, End: true}))
			writeBody(st, body20k)
			if f := <-got; len(f.Body) != 20_000 {
				t.Errorf("the first has %d bytes", len(f.Body))
			}
			writeBody(st, body20k[:cut])
			h.raw.Close()
			if err := <-rest; !errors.Is(err, io.ErrUnexpectedEOF) || !errors.Is(err, transport.ErrSessionClosed) {
				t.Errorf("cut at %d: %v", cut, err)
			}
			<-h.victim.acceptor.Done()
			if lines := h.log.all(); len(lines) > 0 {
				t.Errorf("logged %q", lines)
			}
		}
	})
}

// TestAnExchangeWhoseFirstBodyIsCutShort: nobody is handed it, and it holds nothing when its session is over.
func TestAnExchangeWhoseFirstBodyIsCutShort(t *testing.T) {
	eachWiring(t, func(t *testing.T, w wiring) {
		for _, cut := range []int{0, 1, 19_999} {
			b := transport.NewBudget()
			h := w.hostileOpener(t, transport.Options{Budget: b}, func(*transport.Exchange, transport.Frame) {
				t.Error("it is handed over")
			})
			stream, st := h.opened(t)
			h.announce(1, stream, 0)
			writeBody(st, body20k[:cut])
			h.raw.Close()
			<-h.victim.acceptor.Done()
			wantNothingHeld(t, b)
		}
	})
}

// TestALongBodyOfAnExchangeGivenUp: one that was given up before its first body came is
// answered by nobody, and is counted no more when it has come.
func TestALongBodyOfAnExchangeGivenUp(t *testing.T) {
	eachWiring(t, func(t *testing.T, w wiring) {
		h := w.hostileOpener(t, transport.Options{MaxExchanges: 4}, func(x *transport.Exchange, f transport.Frame) {
			_ = x.Send(f.Type, true, nil)
		})
		stream, st := h.opened(t)
		ask := func(b []byte) {
			write(h.main, b)
			if f := h.read(t); f.Exchange != h.last || !f.End {
				t.Fatalf("exchange %d is answered by %+v", h.last, f)
			}
		}
		for range 30 {
			h.announce(h.next(), stream, 0)
			write(h.main, frame(transport.Frame{Type: 126, Exchange: h.last}))
			ask(frame(transport.Frame{Type: 1, Exchange: h.next(), End: true})) // the reset was heard
			writeBody(st, body20k)
			h.announce(h.next(), stream, 1)
			writeBody(st, body20k)
			ask(nil)
		}
	})
}

// TestLongBodiesOfTwoExchangesOnOneStream: each gets its own.
func TestLongBodiesOfTwoExchangesOnOneStream(t *testing.T) {
	eachWiring(t, func(t *testing.T, w wiring) {
		h := w.hostileOpener(t, transport.Options{}, func(x *transport.Exchange, f transport.Frame) {
			_ = x.Send(transport.Type(f.Body[10]), true, nil)
		})
		stream, st := h.opened(t)
		for n := range 3 {
			h.announce(uint32(n+1), stream, 1)
		}
		got := map[uint32]transport.Type{}
		for n := range 3 {
			body := slices.Clone(body20k)
			body[10] = byte(n + 1)
			writeBody(st, body)
			f := h.read(t)
			got[f.Exchange] = f.Type
		}
		for n := range 3 {
			if id := uint32(n + 1); got[id] != transport.Type(id) {
				t.Errorf("exchange %d got the body of %d", id, got[id])
			}
		}
	})
}

// TestALongBodyThatNeverComes: the others, and the heartbeats, go on.
func TestALongBodyThatNeverComes(t *testing.T) {
	eachWiring(t, func(t *testing.T, w wiring) {
		h := w.hostileOpener(t, transport.Options{}, echo)
		stream, _ := h.opened(t)
		h.announce(h.next(), stream, 0)
		unannounced, _ := h.opened(t)
		if unannounced == stream {
			t.Fatal("one stream was opened twice")
		}
		for range 10 {
			write(h.main, frame(transport.Frame{Type: 3, Exchange: h.next(), End: true}))
			if f := h.read(t); f.Exchange != h.last || f.Type != 3 {
				t.Fatalf("read %+v", f)
			}
		}
		h.victim.acceptor.Close(nil)
		if err := h.victim.acceptor.Err(); !errors.Is(err, transport.ErrSessionClosed) {
			t.Errorf("it ended with %v", err)
		}
	})
}

// overMemory runs a test in virtual time, over a network in memory.
func overMemory(t *testing.T, f func(t *testing.T, w wiring)) {
	synctest.Test(t, func(t *testing.T) { f(t, wiring{memory: true, openerDials: true}) })
}

// TestALongEndOfAnExchangeGivenUp: an answer whose last body was announced and does not come ends when its peer
// gives it up.
func TestALongEndOfAnExchangeGivenUp(t *testing.T) {
	overMemory(t, func(t *testing.T, w wiring) {
		h := w.hostileAcceptor(t)
		x := h.begun(t)
		stream, _ := h.opened(t)
		write(h.main, frame(transport.Frame{Type: 2, Exchange: 1}))
		h.announce(1, stream, 1)
		write(h.main, frame(transport.Frame{Type: 126, Exchange: 1}))
		synctest.Wait()
		if f, ok, err := x.TryReceive(); !ok || f.Type != 2 || err != nil {
			t.Errorf("what has come is %+v, %v, %v", f, ok, err)
		}
		if _, ok, err := x.TryReceive(); ok || !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("behind it: %v, %v", ok, err)
		}
		x.Release()
	})
}

// TestALongBodyLetsInTheNextOfItsExchange: bodies of one exchange come at the same time, as soon as those before
// them are let in, whatever stream they are on.
func TestALongBodyLetsInTheNextOfItsExchange(t *testing.T) {
	overMemory(t, func(t *testing.T, w wiring) {
		h := w.hostileOpener(t, transport.Options{}, func(x *transport.Exchange, _ transport.Frame) { <-x.Context().Done() })
		one, first := h.opened(t)
		two, second := h.opened(t)
		for h.next() < 2 {
			write(h.main, frame(transport.Frame{Type: 1, Exchange: h.last}))
		}
		granted := make([]atomic.Int64, 2)
		for i, st := range []io.Writer{first, second} {
			go func() {
				for b := make([]byte, 1); ; granted[i].Add(1) {
					if _, err := st.(io.Reader).Read(b); err != nil {
						return
					}
				}
			}()
		}
		want := func(ofFirst, ofSecond int64) {
			t.Helper()
			synctest.Wait()
			if a, b := granted[0].Load(), granted[1].Load(); a != ofFirst || b != ofSecond {
				t.Errorf("%d and %d bodies are let in on two streams, not %d and %d", a, b, ofFirst, ofSecond)
			}
		}
		h.announce(1, one, 0)
		h.announce(2, one, 0) // behind it
		h.announce(2, two, 0)
		want(1, 0)
		write(first, body20k)
		want(2, 1)
		write(first, body20k)
		write(second, body20k)
		h.victim.acceptor.Close(nil)
	})
}

// TestALongBodyIsItsOwnersAgain: when Send returns because the peer has given the exchange up, the body is its
// caller's; what is left of it is sent as it was, for what comes behind it on the same stream.
func TestALongBodyIsItsOwnersAgain(t *testing.T) {
	overMemory(t, func(t *testing.T, w wiring) {
		h := w.hostileAcceptor(t)
		x := h.victim.exchange(t)
		body := bin(500_000)
		sent, was := make(chan error, 1), slices.Clone(body)
		go func() { sent <- x.Send(1, true, body) }()
		st, err := h.raw.Accept(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var head [transport.HeaderSize + 4]byte
		if _, err := io.ReadFull(h.main, head[:]); err != nil {
			t.Fatal(err)
		}
		synctest.Wait() // it waits to be let in
		write(h.main, frame(transport.Frame{Type: 126, Exchange: 1}))
		if err := <-sent; !errors.Is(err, io.ErrClosedPipe) {
			t.Errorf("Send: %v", err)
		}
		x.Release()
		for i := range body {
			body[i] = 0xc1
		}
		write(st, []byte{1})
		got := make([]byte, len(was))
		if _, err := io.ReadFull(st, got); err != nil || !slices.Equal(got, was) {
			t.Errorf("what was sent is another body: %v", err)
		}
	})
}

// TestLongBodiesThatAreNotLetInEndWithTheSession: also those that wait for a stream, of whose exchanges nothing was sent.
func TestLongBodiesThatAreNotLetInEndWithTheSession(t *testing.T) {
	overMemory(t, func(t *testing.T, w wiring) {
		h := w.hostileAcceptor(t)
		const atOnce = 64 + 3
		sent := make(chan error, atOnce)
		for range atOnce {
			x := h.victim.exchange(t)
			go func() { sent <- x.Send(1, true, bin(300_000)) }()
		}
		synctest.Wait()
		h.raw.Close()
		<-h.victim.opener.Done()
		synctest.Wait()
		if n := len(sent); n != atOnce {
			t.Errorf("%d of %d are still being sent", atOnce-n, atOnce)
		}
		for range len(sent) {
			if err := <-sent; !errors.Is(err, transport.ErrSessionClosed) {
				t.Errorf("Send: %v", err)
			}
		}
	})
}
