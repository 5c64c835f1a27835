package transport_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"testing"
	"time"

	"github.com/harpcaller/harp/internal/msgpack"
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
			send(t, x, 126, true, last)
			want(t, x, transport.Frame{Type: 2})
			want(t, x, transport.Frame{Type: 126, End: true, Body: last})
			wantEnd(t, x, io.EOF)
			x.Release()
		}
		if all, idle := transport.Lanes(e.opener); all != 1 || idle != 1 {
			t.Errorf("exchanges one after the other used %d lanes, %d of them idle", all, idle)
		}
	})
}

func TestLargestFrame(t *testing.T) {
	eachWiring(t, func(t *testing.T, w wiring) {
		all := func(transport.Type) int { return 1 << 30 }
		e := w.connect(t, transport.Options{MaxFrame: all}, transport.Options{MaxFrame: all, Window: 1 << 20})
		e.serve(t, echo)
		x := e.exchange(t)
		body := bin(transport.MaxFrame - 5)
		send(t, x, 1, true, body)
		want(t, x, transport.Frame{Type: 1, End: true, Body: body})
		x = e.exchange(t)
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
					x, err := e.opener.Exchange(t.Context())
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

// Frames of one exchange are sent whole, whoever sends them.
func TestConcurrentSend(t *testing.T) {
	eachWiring(t, func(t *testing.T, w wiring) {
		e := w.connect(t, transport.Options{}, transport.Options{})
		const senders, frames = 8, 50
		e.serve(t, func(_ context.Context, x *transport.Exchange, _ transport.Frame) {
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

func TestControl(t *testing.T) {
	eachWiring(t, func(t *testing.T, w wiring) {
		e := w.connect(t, transport.Options{}, transport.Options{})
		for i := range 20 {
			f := transport.Frame{Type: transport.Type(i), End: i%2 == 0, Exchange: 7, Body: bin(i * 2000)}
			if err := e.openerControl.Send(f); err != nil {
				t.Fatal(err)
			}
			f.Exchange = 0
			got, err := e.acceptorControl.Receive(t.Context())
			if err != nil || !equal(got, f) {
				t.Fatalf("got %v, %v", got.Type, err)
			}
			if err := e.acceptorControl.Send(got); err != nil {
				t.Fatal(err)
			}
			if got, err = e.openerControl.Receive(t.Context()); err != nil || !equal(got, f) {
				t.Fatalf("back came %v, %v", got.Type, err)
			}
		}
	})
}

// What was sent before Close arrives.
func TestCloseFlushes(t *testing.T) {
	eachWiring(t, func(t *testing.T, w wiring) {
		e := w.connect(t, transport.Options{}, transport.Options{})
		for range 10 {
			if err := e.openerControl.Send(transport.Frame{Type: 3, Body: bin(20000)}); err != nil {
				t.Fatal(err)
			}
		}
		e.opener.Close(nil)
		for i := range 10 {
			if _, err := e.acceptorControl.Receive(t.Context()); err != nil {
				t.Fatalf("frame %d: %v", i, err)
			}
		}
		if _, err := e.acceptorControl.Receive(t.Context()); !errors.Is(err, transport.ErrSessionClosed) {
			t.Errorf("at the end: %v", err)
		}
		<-e.acceptor.Done()
		if err := e.acceptor.Err(); !errors.Is(err, transport.ErrSessionClosed) {
			t.Errorf("the peer's reason: %v", err)
		}
	})
}

func TestCloseReason(t *testing.T) {
	eachWiring(t, func(t *testing.T, w wiring) {
		e := w.connect(t, transport.Options{}, transport.Options{})
		if err := e.opener.Err(); err != nil {
			t.Errorf("before Close: %v", err)
		}
		reason := errors.New("enough")
		e.opener.Close(reason)
		e.opener.Close(errors.New("second"))
		<-e.opener.Done()
		if err := e.opener.Err(); err != reason { //nolint:errorlint // the very same
			t.Errorf("the reason is %v", err)
		}
		for what, err := range map[string]error{
			"Exchange": second(e.opener.Exchange(t.Context())),
			"Send":     e.openerControl.Send(transport.Frame{}),
			"Receive":  second(e.openerControl.Receive(t.Context())),
		} {
			if !errors.Is(err, transport.ErrSessionClosed) || !errors.Is(err, reason) {
				t.Errorf("%s after Close: %v", what, err)
			}
		}
	})
}

func TestCloseUnblocks(t *testing.T) {
	eachWiring(t, func(t *testing.T, w wiring) {
		e := w.connect(t, transport.Options{}, transport.Options{})
		began := make(chan struct{})
		handled := make(chan error, 1)
		e.serve(t, func(ctx context.Context, x *transport.Exchange, _ transport.Frame) {
			close(began)
			<-ctx.Done()
			_, err := x.Receive(context.Background())
			handled <- err
		})
		x := e.exchange(t)
		send(t, x, 1, false, nil)
		<-began
		received := make(chan error, 2)
		for _, receive := range []func(context.Context) (transport.Frame, error){x.Receive, e.openerControl.Receive} {
			go func() { received <- second(receive(context.Background())) }()
		}
		e.opener.Close(nil)
		for range 2 {
			if err := <-received; !errors.Is(err, transport.ErrSessionClosed) {
				t.Errorf("Receive: %v", err)
			}
		}
		if err := <-handled; !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("the handler's Receive: %v", err)
		}
		if err := x.Send(1, false, nil); !errors.Is(err, transport.ErrSessionClosed) {
			t.Errorf("Send: %v", err)
		}
	})
}

func TestCloseInHandler(t *testing.T) {
	eachWiring(t, func(t *testing.T, w wiring) {
		e := w.connect(t, transport.Options{}, transport.Options{})
		reason := errors.New("fed up")
		closed := make(chan struct{})
		e.serve(t, func(_ context.Context, x *transport.Exchange, _ transport.Frame) {
			x.Session().Close(reason)
			close(closed)
		})
		_ = e.exchange(t).Send(1, true, nil) // may hear of the end before it returns
		<-closed
		if err := e.acceptor.Err(); !errors.Is(err, reason) {
			t.Errorf("the reason is %v", err)
		}
	})
}

// A blocked Send returns when the session is closed.
func TestCloseUnblocksSend(t *testing.T) {
	eachWiring(t, func(t *testing.T, w wiring) {
		e := w.connect(t, transport.Options{}, transport.Options{})
		e.serve(t, func(ctx context.Context, _ *transport.Exchange, _ transport.Frame) { <-ctx.Done() })
		x := e.exchange(t)
		sent := make(chan error, 1)
		progress := make(chan struct{}, 1)
		go func() {
			for {
				if err := x.Send(1, false, bin(60000)); err != nil {
					sent <- err
					return
				}
				select {
				case progress <- struct{}{}:
				default:
				}
			}
		}()
		<-progress
		e.opener.Close(nil)
		if err := <-sent; !errors.Is(err, transport.ErrSessionClosed) {
			t.Errorf("Send: %v", err)
		}
	})
}

func TestRelease(t *testing.T) {
	eachWiring(t, func(t *testing.T, w wiring) {
		e := w.connect(t, transport.Options{}, transport.Options{})
		stopped := make(chan error, 1)
		e.serve(t, func(ctx context.Context, x *transport.Exchange, f transport.Frame) {
			if f.Type == 2 {
				answer(ctx, x, f)
				return
			}
			<-ctx.Done() // without receiving
			stopped <- second(x.Receive(context.Background()))
		})
		x := e.exchange(t)
		send(t, x, 1, false, nil)
		x.Release()
		x.Release()
		if err := <-stopped; !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("the handler received %v", err)
		}
		wantEnd(t, x, io.ErrClosedPipe)
		if err := x.Send(1, true, nil); !errors.Is(err, io.ErrClosedPipe) {
			t.Errorf("Send after Release: %v", err)
		}
		if all, _ := transport.Lanes(e.opener); all != 0 {
			t.Errorf("%d lanes after an early Release", all)
		}
		x = e.exchange(t)
		send(t, x, 2, true, nil)
		want(t, x, transport.Frame{Type: 2, End: true})
		x.Release()
	})
}

// A handler that returns without End is no end.
func TestHandlerWithoutEnd(t *testing.T) {
	eachWiring(t, func(t *testing.T, w wiring) {
		e := w.connect(t, transport.Options{}, transport.Options{})
		e.serve(t, func(_ context.Context, x *transport.Exchange, f transport.Frame) { _ = x.Send(f.Type, false, f.Body) })
		x := e.exchange(t)
		send(t, x, 1, true, nil)
		want(t, x, transport.Frame{Type: 1})
		wantEnd(t, x, io.ErrUnexpectedEOF)
		x.Release()
		if e.opener.Err() != nil || e.acceptor.Err() != nil {
			t.Errorf("the session ended: %v, %v", e.opener.Err(), e.acceptor.Err())
		}
		if all, _ := transport.Lanes(e.opener); all != 0 {
			t.Errorf("%d lanes are left", all)
		}
	})
}

// The next exchange of a lane starts when the handler of the last has returned,
// though its End has long been received. What was not sent of it never comes.
func TestLaneIsSequential(t *testing.T) {
	eachWiring(t, func(t *testing.T, w wiring) {
		e := w.connect(t, transport.Options{}, transport.Options{})
		var log []string
		e.serve(t, func(_ context.Context, x *transport.Exchange, f transport.Frame) {
			log = append(log, fmt.Sprint("begin ", f.Type))
			_ = x.Send(f.Type, true, nil)
			_, err := x.Receive(context.Background())
			log = append(log, fmt.Sprint("end ", f.Type, " ", err))
		})
		for i := range 3 {
			x := e.exchange(t)
			send(t, x, transport.Type(i), i == 2, nil)
			want(t, x, transport.Frame{Type: transport.Type(i), End: true})
			x.Release()
		}
		e.acceptor.Close(nil)
	})
}

func TestReceiveContext(t *testing.T) {
	eachWiring(t, func(t *testing.T, w wiring) {
		e := w.connect(t, transport.Options{}, transport.Options{})
		e.serve(t, echo)
		x := e.exchange(t)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := x.Receive(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("Receive: %v", err)
		}
		if _, err := e.openerControl.Receive(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("control: %v", err)
		}
		send(t, x, 1, true, nil)
		want(t, x, transport.Frame{Type: 1, End: true})
	})
}

func TestServeContext(t *testing.T) {
	eachWiring(t, func(t *testing.T, w wiring) {
		e := w.connect(t, transport.Options{}, transport.Options{})
		ctx, cancel := context.WithCancel(t.Context())
		began, served := make(chan struct{}), make(chan error, 1)
		go func() {
			served <- e.acceptor.Serve(ctx, func(ctx context.Context, _ *transport.Exchange, _ transport.Frame) {
				close(began)
				<-ctx.Done()
			})
		}()
		x := e.exchange(t)
		send(t, x, 1, true, nil)
		<-began
		cancel()
		if err := <-served; !errors.Is(err, context.Canceled) {
			t.Errorf("Serve: %v", err)
		}
		wantEnd(t, x, io.ErrUnexpectedEOF)
		if e.opener.Err() != nil {
			t.Errorf("the session ended: %v", e.opener.Err())
		}
		if err := e.acceptor.Serve(t.Context(), echo); !errors.Is(err, transport.ErrProtocol) {
			t.Errorf("Serve again: %v", err)
		}
	})
}

func TestTooManyLanes(t *testing.T) {
	eachWiring(t, func(t *testing.T, w wiring) {
		e := w.connect(t, transport.Options{MaxLanes: 3}, transport.Options{MaxLanes: 3})
		e.serve(t, echo)
		var held []*transport.Exchange
		for range 3 {
			held = append(held, e.exchange(t))
		}
		if _, err := e.opener.Exchange(t.Context()); !errors.Is(err, transport.ErrTooManyLanes) {
			t.Errorf("the fourth: %v", err)
		}
		held[0].Release()
		send(t, e.exchange(t), 1, true, nil)
	})
}

// An opener with a context that is over gets no lane, and the session goes on.
func TestExchangeContext(t *testing.T) {
	eachWiring(t, func(t *testing.T, w wiring) {
		e := w.connect(t, transport.Options{}, transport.Options{})
		e.serve(t, echo)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		for range 10 {
			if x, err := e.opener.Exchange(ctx); err == nil {
				x.Release() // there was an idle lane
			} else if !errors.Is(err, context.Canceled) {
				t.Errorf("Exchange: %v", err)
			}
		}
		x := e.exchange(t)
		send(t, x, 1, true, nil)
		want(t, x, transport.Frame{Type: 1, End: true})
	})
}

func TestMisuse(t *testing.T) {
	eachWiring(t, func(t *testing.T, w wiring) {
		oc, ac := w.conns(t)
		opener, err := oc.Opener(quiet(transport.Options{}))
		if err != nil {
			t.Fatal(err)
		}
		acceptor, err := ac.Acceptor(quiet(transport.Options{}))
		if err != nil {
			t.Fatal(err)
		}
		misuse := func(what string, err error) {
			t.Helper()
			if !errors.Is(err, transport.ErrProtocol) {
				t.Errorf("%s: %v", what, err)
			}
		}
		misuse("a second session", second(oc.Acceptor(transport.Options{})))
		misuse("Exchange before Control", second(opener.Exchange(t.Context())))
		misuse("Serve before Control", acceptor.Serve(t.Context(), echo))
		for _, s := range []*transport.Session{opener, acceptor} {
			c, err := s.Control(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			misuse("Control twice", second(s.Control(t.Context())))
			misuse("a heartbeat of one's own", c.Send(transport.Frame{Type: 127}))
			misuse("a type that does not exist", c.Send(transport.Frame{Type: 128}))
		}
		misuse("Exchange of the acceptor", second(acceptor.Exchange(t.Context())))
		misuse("Serve of the opener", opener.Serve(t.Context(), echo))
		e := ends{opener: opener, acceptor: acceptor}
		e.serve(t, echo)
		x := e.exchange(t)
		send(t, x, 1, true, nil)
		misuse("Send after End", x.Send(1, false, nil))
		misuse("End twice", x.Send(1, true, nil))
		misuse("a heartbeat on a lane", e.exchange(t).Send(127, false, nil))
		want(t, x, transport.Frame{Type: 1, End: true})
		if err := opener.Err(); err != nil {
			t.Errorf("the session ended: %v", err)
		}
		_ = oc.Close()
		if _, err := oc.Opener(transport.Options{}); !errors.Is(err, transport.ErrSessionClosed) {
			t.Errorf("a session of a closed connection: %v", err)
		}
	})
}

func TestHeard(t *testing.T) {
	eachWiring(t, func(t *testing.T, w wiring) {
		e := w.connect(t, transport.Options{}, transport.Options{})
		e.serve(t, echo)
		x := e.exchange(t)
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
		e.serve(t, func(ctx context.Context, x *transport.Exchange, f transport.Frame) {
			kept := bytes.Clone(f.Body)
			_ = x.Send(1, false, f.Body)
			clear(f.Body)
			_, _ = x.Receive(ctx)
			_ = x.Send(1, true, kept)
		})
		x := e.exchange(t)
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
	x, err := e.opener.Exchange(t.Context())
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

// bin returns n bytes as msgpack.
func bin(n int) []byte { return msgpack.AppendBytes(nil, bytes.Repeat([]byte{'x'}, n)) }
