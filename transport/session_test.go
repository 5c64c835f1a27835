package transport_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"sync"
	"testing"
	"time"

	"github.com/harpcaller/harp/transport"
)

func TestPeer(t *testing.T) {
	eachWiring(t, func(t *testing.T, w wiring) {
		e := w.connect(t, transport.Options{}, transport.Options{})
		if got := e.opener.Peer(); got.Identity != agentID || got.Protocol != transport.ProtocolAgent {
			t.Errorf("the opener's peer is %+v", got)
		}
		got := e.acceptor.Peer()
		if got.Identity != dispatcherID || len(got.Fingerprint) != len("sha256:")+64 || got.Addr == "" {
			t.Errorf("the acceptor's peer is %+v", got)
		}
	})
}

func TestExchange(t *testing.T) {
	eachWiring(t, func(t *testing.T, w wiring) {
		e := w.connect(t, transport.Options{}, transport.Options{})
		e.serve(t, echo)
		for i := range 50 {
			x := e.exchange(t)
			first, last := bin(i), bin(i*1000)
			send(t, x, 1, false, first)
			want(t, x, transport.Frame{Type: 1, Body: first})
			send(t, x, 2, false, nil)
			send(t, x, 125, true, last)
			want(t, x, transport.Frame{Type: 2})
			want(t, x, transport.Frame{Type: 125, End: true, Body: last})
			wantEnd(t, x, io.EOF)
			x.Release()
			wantEnd(t, x, io.ErrClosedPipe)
		}
	})
}

func TestLargestFrame(t *testing.T) {
	eachWiring(t, func(t *testing.T, w wiring) {
		all := func(transport.Type) int { return 1 << 30 }
		e := w.connect(t, transport.Options{MaxFrame: all}, transport.Options{MaxFrame: all})
		e.serve(t, echo)
		x := e.exchange(t)
		body := bin(transport.MaxFrame - 5)
		send(t, x, 1, true, body)
		want(t, x, transport.Frame{Type: 1, End: true, Body: body})
		x.Release()
		x = e.exchange(t)
		defer x.Release()
		if err := x.Send(1, true, bin(transport.MaxFrame-4)); !errors.Is(err, transport.ErrFrameTooLarge) {
			t.Errorf("one byte more: %v", err)
		}
		send(t, x, 1, true, nil)
		want(t, x, transport.Frame{Type: 1, End: true})
	})
}

func TestExchangesAtOnce(t *testing.T) {
	eachWiring(t, func(t *testing.T, w wiring) {
		e := w.connect(t, transport.Options{}, transport.Options{})
		e.serve(t, echo)
		var wg sync.WaitGroup
		for i := range 64 {
			wg.Go(func() {
				for j := range 20 {
					x, err := e.opener.Exchange()
					if err != nil {
						t.Error(err)
						return
					}
					body := bin(i*100 + j)
					if err := x.Send(1, true, body); err != nil {
						t.Error(err)
					}
					f, err := x.Receive(t.Context())
					if err != nil || !bytes.Equal(f.Body, body) {
						t.Errorf("exchange %d.%d: %d bytes, %v", i, j, len(f.Body), err)
					}
					x.Release()
				}
			})
		}
		wg.Wait()
	})
}

// The frames of each of many exchanges that go on at the same time arrive in the order in
// which they were sent, in both directions.
func TestFramesOfManyExchangesKeepTheirOrder(t *testing.T) {
	eachWiring(t, func(t *testing.T, w wiring) {
		e := w.connect(t, transport.Options{}, transport.Options{})
		e.serve(t, echo)
		const frames = 100
		var wg sync.WaitGroup
		for i := range int64(64) {
			x := e.exchange(t)
			wg.Go(func() {
				for n := range int64(frames) {
					if err := x.Send(transport.Type(n), n == frames-1, numbered(n, i*n%700)); err != nil {
						t.Error(err)
						return
					}
				}
			})
			wg.Go(func() {
				defer x.Release()
				for n := range int64(frames) {
					f, err := x.Receive(t.Context())
					if err != nil || f.Type != transport.Type(n) || f.End != (n == frames-1) || !bytes.Equal(f.Body, numbered(n, i*n%700)) {
						t.Errorf("exchange %d, frame %d: type %d, %d bytes, %v", i, n, f.Type, len(f.Body), err)
						return
					}
				}
			})
		}
		wg.Wait()
	})
}

// Frames of one exchange are sent whole, whoever sends them.
func TestConcurrentSend(t *testing.T) {
	eachWiring(t, func(t *testing.T, w wiring) {
		e := w.connect(t, transport.Options{}, transport.Options{})
		const senders, frames = 8, 50
		e.serve(t, func(x *transport.Exchange, _ transport.Frame) {
			var wg sync.WaitGroup
			for i := range senders {
				wg.Go(func() {
					for range frames {
						_ = x.Send(transport.Type(i), false, bin(i*5000))
					}
				})
			}
			wg.Wait()
			_ = x.Send(100, true, nil)
		})
		x := e.exchange(t)
		defer x.Release()
		send(t, x, 1, true, nil)
		var got [senders]int
		for {
			f, err := x.Receive(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if f.End {
				break
			}
			if !bytes.Equal(f.Body, bin(int(f.Type)*5000)) {
				t.Fatalf("frame of sender %d is damaged", f.Type)
			}
			got[f.Type]++
		}
		for i, n := range got {
			if n != frames {
				t.Errorf("%d frames of sender %d", n, i)
			}
		}
	})
}

// Each frame is received by one of those who wait for it, and all of them hear of the end.
func TestConcurrentReceive(t *testing.T) {
	eachWiring(t, func(t *testing.T, w wiring) {
		e := w.connect(t, transport.Options{}, transport.Options{})
		e.serve(t, echo)
		const frames = 200
		x := e.exchange(t)
		defer x.Release()
		got := make(chan transport.Type, frames)
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				for {
					f, err := x.Receive(t.Context())
					if err != nil {
						if err != io.EOF { //nolint:errorlint // it comes bare
							t.Error(err)
						}
						return
					}
					got <- f.Type
				}
			})
		}
		for i := range frames {
			send(t, x, transport.Type(i%100), i == frames-1, nil)
		}
		wg.Wait()
		close(got)
		counts := map[transport.Type]int{}
		for typ := range got {
			counts[typ]++
		}
		for typ := range transport.Type(100) {
			if counts[typ] != 2 {
				t.Errorf("type %d was received %d times of 2", typ, counts[typ])
			}
		}
	})
}

// The control exchange goes both ways.
func TestControl(t *testing.T) {
	eachWiring(t, func(t *testing.T, w wiring) {
		e := w.connect(t, transport.Options{}, transport.Options{})
		e.serve(t, echo)
		near, far := e.opener.Control(), e.acceptor.Control()
		for i := range 20 {
			f := transport.Frame{Type: transport.Type(i), Body: bin(i * 2000)}
			send(t, near, f.Type, f.End, f.Body)
			got, err := far.Receive(t.Context())
			if err != nil || !equal(got, f) {
				t.Fatalf("got %v, %v", got.Type, err)
			}
			send(t, far, got.Type, got.End, got.Body)
			if got, err = near.Receive(t.Context()); err != nil || !equal(got, f) {
				t.Fatalf("back came %v, %v", got.Type, err)
			}
			near.Release() // does nothing
		}
	})
}

// A side that takes nothing in the control exchange ends the session when something comes there, be it before
// or after it said so. Heartbeats go on.
func TestRefuseControl(t *testing.T) {
	for name, early := range map[string]bool{"before": true, "after": false} {
		t.Run(name, func(t *testing.T) {
			eachWiring(t, func(t *testing.T, w wiring) {
				e := w.connect(t, transport.Options{}, transport.Options{})
				e.serve(t, echo)
				e.opener.Beat(10 * time.Millisecond)
				if !early {
					e.acceptor.RefuseControl()
					x := e.exchange(t)
					send(t, x, 3, true, nil)
					if _, err := x.Receive(t.Context()); err != nil || e.acceptor.Err() != nil {
						t.Errorf("an exchange gives %v, and the session has ended with %v", err, e.acceptor.Err())
					}
					x.Release()
				}
				send(t, e.opener.Control(), 3, false, nil)
				if early {
					e.acceptor.RefuseControl()
				}
				<-e.acceptor.Done()
				if err := e.acceptor.Err(); !errors.Is(err, transport.ErrProtocol) {
					t.Errorf("it ends with %v", err)
				}
			})
		})
	}
}

func TestTooManyExchanges(t *testing.T) {
	eachWiring(t, func(t *testing.T, w wiring) {
		e := w.connect(t, transport.Options{MaxExchanges: 3}, transport.Options{MaxExchanges: 3})
		e.serve(t, echo)
		var held []*transport.Exchange
		for range 3 {
			held = append(held, e.exchange(t))
		}
		if _, err := e.opener.Exchange(); !errors.Is(err, transport.ErrTooManyExchanges) {
			t.Errorf("the fourth: %v", err)
		}
		held[0].Release()
		send(t, e.exchange(t), 1, true, nil)
	})
}

// After the highest number of an exchange come the lowest, but for the control's and
// those still in use.
func TestExchangeNumbersWrapAround(t *testing.T) {
	eachWiring(t, func(t *testing.T, w wiring) {
		e := w.connect(t, transport.Options{}, transport.Options{})
		for _, s := range []*transport.Session{e.opener, e.acceptor} {
			transport.SetLastNumber(s, 1<<32-6)
		}
		e.serve(t, echo)
		var kept []*transport.Exchange
		use := func(number uint32) *transport.Exchange {
			t.Helper()
			x := e.exchange(t)
			send(t, x, 1, false, nil)
			if f, err := x.Receive(t.Context()); err != nil || f.Exchange != number {
				t.Fatalf("got exchange %d, %v; want %d", f.Exchange, err, number)
			}
			return x
		}
		for _, number := range []uint32{1<<32 - 5, 1<<32 - 4, 1<<32 - 3, 1<<32 - 2, 1<<32 - 1, 1, 2, 3} {
			x := use(number)
			if number%2 == 1 {
				kept = append(kept, x)
				continue
			}
			send(t, x, 1, true, nil)
			want(t, x, transport.Frame{Type: 1, End: true})
			x.Release()
		}
		for _, s := range []*transport.Session{e.opener, e.acceptor} { // the next time round
			transport.SetLastNumber(s, 1<<31)
			transport.SetLastNumber(s, 1<<32-2)
		}
		kept = append(kept, use(2)) // 2^32-1, 0 and 1 are in use
		for _, x := range kept {
			send(t, x, 1, true, nil)
			want(t, x, transport.Frame{Type: 1, End: true})
			x.Release()
		}
		if err := errors.Join(e.opener.Err(), e.acceptor.Err()); err != nil {
			t.Errorf("the session ended: %v", err)
		}
	})
}

func TestMisuse(t *testing.T) {
	eachWiring(t, func(t *testing.T, w wiring) {
		oc, ac := w.conns(t)
		opener, err := oc.Opener(t.Context(), quiet(transport.Options{}))
		if err != nil {
			t.Fatal(err)
		}
		acceptor, err := ac.Acceptor(t.Context(), quiet(transport.Options{}))
		if err != nil {
			t.Fatal(err)
		}
		misuse := func(what string, err error) {
			t.Helper()
			if !errors.Is(err, transport.ErrProtocol) {
				t.Errorf("%s: %v", what, err)
			}
		}
		misuse("a second session", second(oc.Acceptor(t.Context(), transport.Options{})))
		misuse("Exchange of the acceptor", second(acceptor.Exchange()))
		e := ends{opener: opener, acceptor: acceptor}
		e.serve(t, echo)
		x := e.exchange(t)
		defer x.Release()
		misuse("an end of the control", opener.Control().Send(1, true, nil))
		for _, x := range []*transport.Exchange{opener.Control(), acceptor.Control(), x} {
			misuse("a reset of one's own", x.Send(126, false, nil))
			misuse("a heartbeat of one's own", x.Send(127, false, nil))
			misuse("a type that does not exist", x.Send(128, false, nil))
		}
		send(t, x, 1, true, nil)
		misuse("Send after End", x.Send(1, false, nil))
		misuse("End twice", x.Send(1, true, nil))
		want(t, x, transport.Frame{Type: 1, End: true})
		if err := opener.Err(); err != nil {
			t.Errorf("the session ended: %v", err)
		}
		_ = oc.Close()
		if _, err := oc.Opener(t.Context(), transport.Options{}); !errors.Is(err, transport.ErrSessionClosed) {
			t.Errorf("a session of a closed connection: %v", err)
		}
	})
}

// The stream of a session is waited for as long as ctx allows, and no longer than the
// connection lasts.
func TestAcceptorWaits(t *testing.T) {
	eachWiring(t, func(t *testing.T, w wiring) {
		_, ac := w.conns(t)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := ac.Acceptor(ctx, quiet(transport.Options{})); !errors.Is(err, context.Canceled) {
			t.Errorf("without a stream: %v", err)
		}
		oc, ac := w.conns(t)
		accepted := make(chan error, 1)
		go func() { accepted <- second(ac.Acceptor(t.Context(), quiet(transport.Options{}))) }()
		_ = oc.Close()
		if err := <-accepted; !errors.Is(err, transport.ErrSessionClosed) {
			t.Errorf("without a connection: %v", err)
		}
	})
}

func TestHeard(t *testing.T) {
	eachWiring(t, func(t *testing.T, w wiring) {
		e := w.connect(t, transport.Options{}, transport.Options{})
		e.serve(t, echo)
		x := e.exchange(t)
		defer x.Release()
		before := time.Now()
		send(t, x, 1, true, nil)
		want(t, x, transport.Frame{Type: 1, End: true})
		if heard := e.opener.Heard(); heard.Before(before) || heard.After(time.Now()) {
			t.Errorf("heard at %v, between %v and now", heard, before)
		}
	})
}

// Who receives a body owns it, who sends one keeps it.
func TestBodiesAreNotShared(t *testing.T) {
	eachWiring(t, func(t *testing.T, w wiring) {
		e := w.connect(t, transport.Options{}, transport.Options{})
		e.serve(t, func(x *transport.Exchange, f transport.Frame) {
			kept := bytes.Clone(f.Body)
			_ = x.Send(1, false, f.Body)
			clear(f.Body)
			_, _ = x.Receive(context.Background())
			_ = x.Send(1, true, kept)
		})
		x := e.exchange(t)
		defer x.Release()
		body := bin(100)
		kept := bytes.Clone(body)
		send(t, x, 1, false, body)
		clear(body)
		got, err := x.Receive(t.Context())
		if err != nil || !bytes.Equal(got.Body, kept) {
			t.Errorf("got %x, %v", got.Body, err)
		}
		send(t, x, 1, true, nil)
		want(t, x, transport.Frame{Type: 1, End: true, Body: kept})
	})
}

// exchange begins an exchange.
func (e ends) exchange(t testing.TB) *transport.Exchange {
	t.Helper()
	x, err := e.opener.Exchange()
	if err != nil {
		t.Fatal(err)
	}
	return x
}

func send(t testing.TB, x *transport.Exchange, typ transport.Type, end bool, body []byte) {
	t.Helper()
	if err := x.Send(typ, end, body); err != nil {
		t.Fatal(err)
	}
}

// want receives the frame that must come next.
func want(t testing.TB, x *transport.Exchange, f transport.Frame) {
	t.Helper()
	got, err := x.Receive(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	f.Exchange = got.Exchange
	if !equal(got, f) {
		t.Fatalf("got type %d, end %v, %d bytes; want type %d, end %v, %d bytes",
			got.Type, got.End, len(got.Body), f.Type, f.End, len(f.Body))
	}
}

func wantEnd(t testing.TB, x *transport.Exchange, end error) {
	t.Helper()
	if f, err := x.Receive(t.Context()); !errors.Is(err, end) {
		t.Fatalf("got type %d, %v; want %v", f.Type, err, end)
	}
}

func equal(a, b transport.Frame) bool {
	return a.Type == b.Type && a.Exchange == b.Exchange && a.End == b.End && bytes.Equal(a.Body, b.Body)
}

// second returns the error of two results.
func second[T any](_ T, err error) error { return err }
