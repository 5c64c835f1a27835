package transport_test

import (
	"context"
	"errors"
	"io"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/harpcaller/harp/transport"
)

// wantNoneHeld is for a budget of sessions of which nothing waits.
func wantNoneHeld(t *testing.T, b *transport.Budget) {
	t.Helper()
	if bodies, frames, answers, open := transport.Held(b); bodies+frames+answers+open != 0 {
		t.Errorf("%d bytes of bodies, %d of frames, %d of answers and %d of exchanges are held", bodies, frames, answers, open)
	}
}

// wantNothingHeld is for a budget whose sessions are over.
func wantNothingHeld(t *testing.T, b *transport.Budget) {
	t.Helper()
	wantNoneHeld(t, b)
	if n := transport.KeptBuffers(b); n != 0 {
		t.Errorf("%d bytes are kept between bodies", n)
	}
	if n := transport.HeldAhead(b); n != 0 {
		t.Errorf("%d bytes are held for bodies ahead", n)
	}
	if n := transport.Known(b); n != 0 {
		t.Errorf("%d identities without a session are remembered", n)
	}
}

// TestBodiesThatNeverCome: exchanges that are begun with long bodies of which nothing comes cost
// what an identity may, over all its sessions; those beyond are refused with the reason, and the
// session goes on.
func TestBodiesThatNeverCome(t *testing.T) {
	eachWiring(t, func(t *testing.T, w wiring) {
		b := transport.NewBudget()
		o := transport.Options{Budget: b, MaxFrame: func(transport.Type) int { return transport.MaxFrame }}
		refused, fit := 0, 64<<20/(4<<20+transport.ExchangePrice)
		for range 2 {
			h := w.hostileOpener(t, o, echo)
			stream, _ := h.opened(t)
			for range fit {
				write(h.main, longHeader(4<<20, 1, h.next(), stream))
			}
			write(h.main, frame(transport.Frame{Type: 1, Exchange: h.next(), End: true})) // there is room for this one
			for f := h.read(t); f.Type != 1; f = h.read(t) {
				if f.Type != 126 || len(f.Body) != 1 || f.Body[0] != 1 {
					t.Fatalf("read %+v", f)
				}
				refused++
			}
			defer h.victim.acceptor.Close(nil)
		}
		if refused != fit {
			t.Errorf("%d of %d were refused", refused, 2*fit)
		}
		if _, _, _, open := transport.Held(b); open > 64<<20 {
			t.Errorf("%d bytes are held", open)
		}
	})
}

// TestBodiesThatWereNotLetIn: a peer that sends more of them than it may before they are let in
// ends its session, whether it has announced them or not.
func TestBodiesThatWereNotLetIn(t *testing.T) {
	for name, announce := range map[string]bool{"announced": true, "not announced": false} {
		t.Run(name, func(t *testing.T) {
			w := wiring{openerDials: true}
			h := w.hostileOpener(t, transport.Options{MaxFrame: func(transport.Type) int { return transport.MaxFrame }}, await)
			write(h.main, frame(transport.Frame{Type: 1, Exchange: h.next()}))
			for range 20 { // two of them are let in
				st, err := h.raw.Open()
				if err != nil {
					break // it has ended already
				}
				if announce {
					write(h.main, longHeader(700_000, 1, h.last, st.(transport.RawStream).ID()))
				}
				write(st, make([]byte, 200_000))
			}
			h.wantDead(t, h.victim.acceptor, transport.ErrProtocol)
		})
	}
}

// TestBodiesAhead: once a body was let in, others may come before they are, 256 KiB in a session, if the budget has room for that.
func TestBodiesAhead(t *testing.T) {
	const ahead = 256 << 10
	w, b := wiring{openerDials: true}, transport.NewBudget()
	transport.LimitAhead(b, 3) // of which an identity leaves as much to others
	letIn := func() (h *hostile, grant byte, send func(n int)) {
		h = w.hostileOpener(t, transport.Options{Budget: b}, func(x *transport.Exchange, f transport.Frame) { _ = x.Send(f.Type, true, nil) })
		stream, st := h.opened(t)
		h.announce(h.next(), stream, 0)
		var is [1]byte
		_, _ = io.ReadFull(st, is[:])
		write(st, body20k)
		if f := h.read(t); f.Exchange != h.last {
			t.Fatalf("read %+v", f)
		}
		return h, is[0], func(n int) { write(st, make([]byte, n)) }
	}
	first, grant, send := letIn()
	if grant != 2 {
		t.Fatalf("the first session's body is let in by %d", grant)
	}
	second, grant, sendUnasked := letIn()
	if grant != 1 {
		t.Fatalf("the second session's body is let in by %d", grant)
	}
	send(ahead)
	write(first.main, frame(transport.Frame{Type: 3, Exchange: first.next(), End: true}))
	if f := first.read(t); f.Exchange != first.last {
		t.Fatalf("read %+v", f)
	}
	send(1)
	first.wantDead(t, first.victim.acceptor, transport.ErrProtocol)
	sendUnasked(1)
	second.wantDead(t, second.victim.acceptor, transport.ErrProtocol)
	<-first.victim.acceptor.Done()
	<-second.victim.acceptor.Done()
	wantNothingHeld(t, b)
}

// TestAnExchangeOverBudget: the opener is told why, and that nobody has looked at it; control,
// heartbeats and the exchanges there are go on, and when one of these is over there is room for
// another.
func TestAnExchangeOverBudget(t *testing.T) {
	eachWiring(t, func(t *testing.T, w wiring) {
		b := transport.NewBudget()
		transport.LimitOpen(b, 3*transport.ExchangePrice)
		e := w.connect(t, transport.Options{}, transport.Options{Budget: b})
		e.serve(t, echo)
		var held []*transport.Exchange
		for range 3 {
			x := e.exchange(t)
			send(t, x, 1, false, bin(100))
			held = append(held, x)
		}
		if f, err := held[2].Receive(t.Context()); err != nil || f.Type != 1 {
			t.Fatal(f, err)
		}
		for _, size := range []int{100, 20_000} {
			x := e.exchange(t)
			if err := x.Send(2, true, bin(size)); err != nil && !errors.Is(err, transport.ErrNoRoom) {
				t.Errorf("Send: %v", err)
			}
			if _, err := x.Receive(t.Context()); !errors.Is(err, transport.ErrNoRoom) || !errors.Is(err, io.ErrUnexpectedEOF) {
				t.Errorf("one of %d bytes too many ends with %v", size, err)
			}
			x.Release()
		}
		send(t, e.opener.Control(), 7, false, nil)
		if f, err := e.acceptor.Control().Receive(t.Context()); err != nil || f.Type != 7 {
			t.Errorf("control: %+v, %v", f, err)
		}
		for _, x := range held {
			send(t, x, 3, true, nil)
			for f := (transport.Frame{}); !f.End; {
				var err error
				if f, err = x.Receive(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			x.Release()
		}
		for tries := 0; ; tries++ { // the handler returns behind its last frame
			x := e.exchange(t)
			_ = x.Send(2, true, bin(20_000)) // Receive says what became of it
			f, err := x.Receive(t.Context())
			x.Release()
			if err == nil && f.Type == 2 {
				break
			}
			if !errors.Is(err, transport.ErrNoRoom) {
				t.Fatalf("when there is room again: %v", err)
			}
		}
		e.opener.Close(nil)
		<-e.acceptor.Done()
	})
}

// TestFramesThatNobodyTakes: many sessions of one identity whose frames nobody takes hold what an
// identity may; those that would hold more are ended, with one line, and others go on.
func TestFramesThatNobodyTakes(t *testing.T) {
	b := transport.NewBudget()
	w := wiring{openerDials: true}
	const sessions = 24
	died := make(chan error, sessions)
	var floods sync.WaitGroup
	var all []*transport.Session
	for range sessions {
		h := w.hostileOpener(t, transport.Options{Budget: b}, await)
		all = append(all, h.victim.acceptor)
		floods.Go(func() {
			for range 3 << 20 / 60_000 { // more than its windows
				write(h.main, frame(transport.Frame{Type: 1, Body: bin(60_000 - 20)}))
			}
		})
		floods.Go(func() {
			<-h.victim.acceptor.Done()
			died <- h.victim.acceptor.Err()
		})
	}
	if err := <-died; !errors.Is(err, transport.ErrOverBudget) {
		t.Errorf("a session ended with %v", err)
	}
	alive := 0
	for _, s := range all {
		if s.Err() == nil {
			alive++
		}
	}
	if alive == 0 {
		t.Error("all sessions were ended")
	}
	for _, s := range all {
		s.Close(nil)
	}
	floods.Wait()
}

// TestFramesAreGivenBack: a session that has taken what waited has nothing of the budget, while it goes on.
func TestFramesAreGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := transport.NewBudget()
		e := virtual.connect(t, transport.Options{}, transport.Options{Budget: b})
		e.serve(t, await)
		control := e.acceptor.Control()
		for range 50 {
			send(t, e.opener.Control(), 7, false, bin(10_000))
		}
		synctest.Wait()
		if _, frames, _, _ := transport.Held(b); frames < 400_000 {
			t.Errorf("%d bytes of frames are held", frames)
		}
		for range 50 {
			if _, err := control.Receive(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		send(t, e.opener.Control(), 7, false, nil)
		synctest.Wait()
		wantNoneHeld(t, b)
	})
}

// TestReserve: what is reserved for answers is waited for in turn, given back when an exchange is
// over, whatever way, and one that gives up does not hold up the next.
func TestReserve(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := transport.NewBudget()
		transport.LimitAnswers(b, 1000)
		type request struct {
			ctx  context.Context
			size int
		}
		reserved, next := make(chan int, 10), make(chan request)
		e := virtual.connect(t, transport.Options{}, transport.Options{Budget: b})
		e.serve(t, func(x *transport.Exchange, _ transport.Frame) {
			r := <-next
			if err := x.Reserve(r.ctx, r.size); err == nil {
				reserved <- r.size
			}
			<-x.Context().Done()
		})
		ask := func(ctx context.Context, size int) *transport.Exchange {
			x := e.exchange(t)
			send(t, x, 1, false, nil)
			next <- request{ctx, size}
			synctest.Wait()
			return x
		}
		want := func(sizes ...int) {
			t.Helper()
			synctest.Wait()
			for _, size := range sizes {
				select {
				case got := <-reserved:
					if got != size {
						t.Errorf("%d were reserved, not %d", got, size)
					}
				default:
					t.Errorf("%d were not reserved", size)
				}
			}
			if len(reserved) > 0 {
				t.Errorf("%d more were reserved", len(reserved))
			}
		}
		first := ask(t.Context(), 700)
		want(700)
		giving, giveUp := context.WithCancel(t.Context())
		ask(giving, 900)
		third := ask(t.Context(), 200)
		want() // it waits for its turn, though there is room for it
		giveUp()
		want(200)
		huge := ask(t.Context(), 5000)
		want()
		first.Release()
		want()
		third.Release()
		want(5000) // which is more than there is, alone
		huge.Release()
		want()
		e.opener.Close(nil)
		<-e.acceptor.Done()
		synctest.Wait()
		wantNothingHeld(t, b)
	})
}

// TestReserveLessWhenThePeerHasGone: what an answer does not need of what was reserved is given back also when the peer
// has given the exchange up meanwhile, as whoever is tired of waiting does.
func TestReserveLessWhenThePeerHasGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := transport.NewBudget()
		e := virtual.connect(t, transport.Options{}, transport.Options{Budget: b})
		e.serve(t, func(x *transport.Exchange, _ transport.Frame) {
			if err := x.Reserve(t.Context(), 1000); err != nil {
				t.Error(err)
			}
			<-x.Context().Done()
			if err := x.Reserve(t.Context(), 10); !errors.Is(err, io.ErrClosedPipe) {
				t.Errorf("it is over, and Reserve says %v", err)
			}
		})
		x := e.exchange(t)
		send(t, x, 1, false, nil)
		synctest.Wait()
		x.Release()
		synctest.Wait()
		e.opener.Close(nil)
		<-e.acceptor.Done()
		synctest.Wait()
		wantNothingHeld(t, b)
	})
}

// TestNothingStaysHeld: whatever sessions do and however they end, a budget is as full at the end as
// it was before.
func TestNothingStaysHeld(t *testing.T) {
	eachWiring(t, func(t *testing.T, w wiring) {
		opener, acceptor := transport.NewBudget(), transport.NewBudget()
		large := func(transport.Type) int { return transport.MaxFrame }
		e := w.connect(t, transport.Options{MaxFrame: large, Budget: opener}, transport.Options{MaxFrame: large, Budget: acceptor})
		var served sync.WaitGroup
		served.Go(func() { _ = e.acceptor.Serve(echo) })
		served.Go(func() { _ = e.opener.Serve(nil) })
		var all sync.WaitGroup
		for i := range 40 {
			all.Go(func() {
				if err := talk(t.Context(), e.opener, i); err != nil {
					t.Error(err)
				}
			})
			all.Go(func() { // leaves in the middle
				x := e.exchange(t)
				_ = x.Send(1, false, bin(i*10_000))
				_ = x.Send(1, i%2 == 0, bin(i*5_000))
				if i%3 == 0 {
					_, _ = x.Receive(t.Context())
				}
				x.Release()
			})
		}
		all.Wait()
		x := e.exchange(t)
		send(t, x, 1, false, bin(500_000)) // it may still be on its way
		e.opener.Close(nil)
		e.acceptor.Close(nil)
		served.Wait()
		x.Release() // of which something may have come back
		wantNothingHeld(t, opener)
		wantNothingHeld(t, acceptor)
	})
}

// TestHandlersThatOutliveTheirSession: what they have is given back when they return.
func TestHandlersThatOutliveTheirSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := transport.NewBudget()
		e := virtual.connect(t, transport.Options{}, transport.Options{Budget: b})
		var served sync.WaitGroup
		served.Go(func() {
			_ = e.acceptor.Serve(func(x *transport.Exchange, _ transport.Frame) { <-x.Session().Done() })
		})
		served.Go(func() { _ = e.opener.Serve(nil) })
		for range 5 {
			send(t, e.exchange(t), 1, false, nil)
		}
		synctest.Wait()
		e.opener.Close(nil)
		served.Wait()
		wantNothingHeld(t, b)
	})
}

// TestASessionOverBudgetSaysNothingOfItsExchanges: those that end with such a session may have been looked at.
func TestASessionOverBudgetSaysNothingOfItsExchanges(t *testing.T) {
	eachWiring(t, func(t *testing.T, w wiring) {
		e := w.connect(t, transport.Options{}, transport.Options{})
		begun := make(chan struct{})
		e.serve(t, func(x *transport.Exchange, _ transport.Frame) {
			close(begun)
			<-x.Context().Done()
		})
		x := e.exchange(t)
		send(t, x, 1, false, nil)
		<-begun
		e.opener.Close(transport.ErrOverBudget)
		_, err := x.Receive(t.Context())
		for name, err := range map[string]error{"Receive": err, "Send": x.Send(1, true, nil)} {
			if errors.Is(err, transport.ErrNoRoom) || !errors.Is(err, transport.ErrSessionClosed) {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
}

// TestRefusedWithoutEnd: a peer that begins exchanges for which there is no room, without end, ends
// its session; it costs nothing but the answers until then.
func TestRefusedWithoutEnd(t *testing.T) {
	eachWiring(t, func(t *testing.T, w wiring) {
		b := transport.NewBudget()
		transport.LimitOpen(b, transport.ExchangePrice)
		h := w.hostileOpener(t, transport.Options{Budget: b, MaxExchanges: 100}, await)
		write(h.main, frame(transport.Frame{Type: 1, Exchange: h.next()}))
		var reading sync.WaitGroup
		reading.Go(func() { _, _ = io.Copy(io.Discard, h.main) })
		for range 5000 {
			write(h.main, frame(transport.Frame{Type: 1, Exchange: h.next()}))
		}
		h.wantDead(t, h.victim.acceptor, transport.ErrTooManyExchanges)
		h.raw.Close()
		reading.Wait()
	})
}

// TestBounds: each has a name of its own, a value and a reason.
func TestBounds(t *testing.T) {
	names := map[string]bool{}
	for _, b := range transport.Bounds() {
		if b.Name == "" || names[b.Name] || b.Value <= 0 || b.Unit == "" || b.Reason == "" {
			t.Errorf("%+v", b)
		}
		names[b.Name] = true
	}
	if len(names) < 10 {
		t.Errorf("there are %d", len(names))
	}
}

// openAs connects somebody with an acceptor that has a budget.
func openAs(t *testing.T, name string, b *transport.Budget, handle func(*transport.Exchange, transport.Frame)) ends {
	t.Helper()
	client := transport.Identity{Fleet: fleet, Role: transport.RoleCaller, Name: name}
	oc, ac, err := virtual.shake(t, client, dispatcherID, transport.ProtocolCall, transport.RoleDispatcher, map[string]transport.Role{
		transport.ProtocolCall: transport.RoleCaller,
	})
	if err != nil {
		t.Fatal(err)
	}
	var e ends
	if e.opener, err = oc.Opener(t.Context(), quiet(transport.Options{})); err != nil {
		t.Fatal(err)
	}
	if e.acceptor, err = ac.Acceptor(t.Context(), quiet(transport.Options{Budget: b})); err != nil {
		t.Fatal(err)
	}
	e.serve(t, handle)
	return e
}

// TestManyIdentitiesLeaveRoom: however many there are that begin all exchanges they can, and have
// all answers reserved that they can, there is room for one who has none.
func TestManyIdentitiesLeaveRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const liars, most, answer = 3, 64, 1000
		b := transport.NewBudget()
		transport.LimitOpen(b, most*transport.ExchangePrice)
		transport.LimitAnswers(b, most*answer)
		var reserved [liars + 1]int
		var mu sync.Mutex
		open := func(i, n int) ends {
			e := openAs(t, "liar"+string(rune('a'+i)), b, func(x *transport.Exchange, _ transport.Frame) {
				if x.Reserve(x.Context(), answer) == nil {
					mu.Lock()
					reserved[i]++
					mu.Unlock()
				}
				<-x.Context().Done()
			})
			for range n {
				send(t, e.exchange(t), 1, false, nil)
			}
			synctest.Wait()
			return e
		}
		var all []ends
		for i := range liars {
			all = append(all, open(i, 2*most))
		}
		honest := open(liars, most>>liars)
		if reserved[liars] != most>>liars {
			t.Errorf("of %d answers %d are made, and of the others' %v", most>>liars, reserved[liars], reserved[:liars])
		}
		if reserved[0] != most {
			t.Errorf("the first had room for %d answers, not %d", reserved[0], most)
		}
		for _, e := range append(all, honest) {
			e.opener.Close(nil)
			<-e.acceptor.Done()
		}
		synctest.Wait()
		wantNothingHeld(t, b)
	})
}

// TestReservedAndGivenUp: what is reserved for an answer is given back also if its exchange ends while its long body
// is being sent, or while it waits for room.
func TestReservedAndGivenUp(t *testing.T) {
	overMemory(t, func(t *testing.T, w wiring) {
		b := transport.NewBudget()
		transport.LimitAnswers(b, 600_000)
		sent, released, leave := make(chan error, 1), make(chan error, 1), make(chan struct{})
		h := w.hostileOpener(t, transport.Options{Budget: b}, func(x *transport.Exchange, f transport.Frame) {
			if f.Type == 1 {
				if err := x.Reserve(context.Background(), 500_000); err != nil {
					t.Error(err)
				}
				sent <- x.Send(1, true, bin(500_000))
				return
			}
			go func() { released <- x.Reserve(context.Background(), 500_000) }()
			<-leave
		})
		write(h.main, frame(transport.Frame{Type: 1, Exchange: h.next(), End: true}))
		synctest.Wait()
		write(h.main, frame(transport.Frame{Type: 126, Exchange: h.last}))
		if err := <-sent; !errors.Is(err, io.ErrClosedPipe) {
			t.Errorf("Send: %v", err)
		}
		synctest.Wait()
		if _, _, answers, _ := transport.Held(b); answers != 500_000 {
			t.Errorf("%d bytes are held while the body is on its way", answers)
		}
		write(h.main, frame(transport.Frame{Type: 2, Exchange: h.next(), End: true})) // waits for room until its handler has returned
		synctest.Wait()
		close(leave)
		synctest.Wait()
		select {
		case err := <-released:
			t.Errorf("it does not wait for room: %v", err)
		default:
		}
		st, err := h.raw.Accept(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		write(st, []byte{1})
		if _, err := io.ReadFull(st, make([]byte, 500_000)); err != nil {
			t.Fatal(err)
		}
		if err := <-released; !errors.Is(err, io.ErrClosedPipe) {
			t.Errorf("room for an exchange that is over: %v", err)
		}
		synctest.Wait()
		if _, _, answers, _ := transport.Held(b); answers != 0 {
			t.Errorf("%d bytes are held when all is over", answers)
		}
	})
}

// TestABodyThatWasTakenCostsNothing: what was paid for a long body that came with its frame is given back when the frame is with its
// exchange, and not only when the next such body comes.
func TestABodyThatWasTakenCostsNothing(t *testing.T) {
	eachWiring(t, func(t *testing.T, w wiring) {
		b := transport.NewBudget()
		o := transport.Options{Budget: b, MaxFrame: func(transport.Type) int { return 32 << 10 }}
		h := w.hostileOpener(t, o, func(x *transport.Exchange, _ transport.Frame) {
			if err := x.Send(1, true, nil); err != nil {
				t.Error(err)
			}
		})
		long := append([]byte{0xc5, 20 << 2, 0}, make([]byte, 20<<10)...) // msgpack
		for _, body := range [][]byte{long, nil} {                        // behind the second the first has been dealt with
			write(h.main, frame(transport.Frame{Type: 1, Exchange: h.next(), End: true, Body: body}))
			h.read(t)
		}
		if n := transport.OfIdentities(b); n != 0 {
			t.Errorf("%d bytes count for identities", n)
		}
	})
}

// TestALongBodyWithItsFrameIsPaidFor until it is taken: behind others that nobody takes it would be in memory for nothing, once for each
// session.
func TestALongBodyWithItsFrameIsPaidFor(t *testing.T) {
	const long = 2 << 20
	for name, leaves := range map[string]func(x *transport.Exchange){
		"until it is taken":            func(x *transport.Exchange) { _, _ = x.Receive(context.Background()) },
		"until the exchange is over":   func(x *transport.Exchange) { x.Release() },
		"until the exchange is let go": func(*transport.Exchange) {},
	} {
		t.Run(name, func(t *testing.T) {
			overMemory(t, func(t *testing.T, w wiring) {
				b := transport.NewBudget()
				take := make(chan struct{})
				h := w.hostileOpener(t, transport.Options{Budget: b, MaxFrame: anySize}, func(x *transport.Exchange, _ transport.Frame) {
					<-take
					leaves(x)
				})
				write(h.main, frame(transport.Frame{Type: 1, Exchange: h.next()}))
				go write(h.main, frame(transport.Frame{Type: 1, Exchange: h.last, Body: bin(long - 5)}))
				synctest.Wait()
				if bodies, _, _, _ := transport.Held(b); bodies != long {
					t.Errorf("%d bytes are paid for, and %d are in memory", bodies, transport.Waiting(h.victim.acceptor))
				}
				close(take)
				synctest.Wait()
				if bodies, _, _, _ := transport.Held(b); bodies != 0 {
					t.Errorf("%d bytes are paid for when nothing is held", bodies)
				}
				h.raw.Close()
				<-h.victim.acceptor.Done()
				wantNothingHeld(t, b)
			})
		})
	}
}
