package transport_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/harpcaller/harp/internal/msgpack"
	"github.com/harpcaller/harp/transport"
)

// walk is a number of exchanges over some sessions of one budget at each end, in both directions, with bodies of all lengths, of which
// some are given up, not taken, or cut off with their session.
type walk struct {
	r             *rand.Rand
	openers       *transport.Budget
	acceptors     *transport.Budget
	whole, halves atomic.Int64
}

// lineConn is an end of a connection on which a write takes its time.
type lineConn struct {
	net.Conn
	rate   int // bytes a second; 0: it takes none
	closed chan struct{}
	once   sync.Once
}

func (c *lineConn) Write(p []byte) (int, error) {
	if c.rate > 0 {
		timer := time.NewTimer(time.Duration(len(p)) * time.Second / time.Duration(c.rate))
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-c.closed:
			return 0, net.ErrClosed
		}
	}
	return c.Conn.Write(p)
}

func (c *lineConn) Close() error {
	c.once.Do(func() { close(c.closed) })
	return c.Conn.Close()
}

// walked is one of the sessions.
type walked struct {
	*walk
	ends
	cut    func()      // its connection
	faulty atomic.Bool // it is closed, or cut, while exchanges are under way
}

func newWalk(seed uint64) *walk {
	w := &walk{r: rand.New(rand.NewPCG(seed, 7)), openers: transport.NewBudget(), acceptors: transport.NewBudget()}
	for _, b := range []*transport.Budget{w.openers, w.acceptors} {
		transport.LimitAhead(b, int64(w.r.IntN(3)))
		if w.r.IntN(2) == 0 {
			transport.LimitBodies(b, int64(w.r.IntN(1<<20)))
		}
		if w.r.IntN(2) == 0 {
			transport.LimitAnswers(b, int64(w.r.IntN(1<<20)))
		}
		if w.r.IntN(4) == 0 {
			transport.LimitOpen(b, int64(w.r.IntN(20)+1)*transport.ExchangePrice)
		}
	}
	return w
}

// options of the sessions.
func (w *walk) options(b *transport.Budget) transport.Options {
	return quiet(transport.Options{Budget: b, MaxFrame: func(transport.Type) int { return transport.MaxFrame }})
}

// run makes exchanges on sessions until none is under way, and ends them.
func (w *walk) run(t *testing.T, sessions []*walked, quiet func()) {
	var all, served sync.WaitGroup
	for _, s := range sessions {
		if quiet != nil {
			s.opener.Beat(time.Second)
			s.acceptor.Beat(time.Second)
		}
		served.Go(func() { _ = s.acceptor.Serve(s.handle) })
		served.Go(func() { _ = s.opener.Serve(nil) })
		for range 1 + w.r.IntN(20) {
			r := rand.New(rand.NewPCG(w.r.Uint64(), 1))
			all.Go(func() {
				for range 1 + r.IntN(3) {
					if err := s.exchange(r); err != nil {
						t.Error(err)
					}
				}
			})
		}
		if w.r.IntN(2) == 0 {
			r := rand.New(rand.NewPCG(w.r.Uint64(), 2))
			all.Go(func() {
				time.Sleep(time.Duration(r.IntN(400)) * time.Millisecond)
				s.faulty.Store(true)
				[]func(){s.cut, func() { s.opener.Close(nil) }, func() { s.acceptor.Close(nil) }}[r.IntN(3)]()
			})
		}
	}
	all.Wait()
	for _, s := range sessions {
		if s.faulty.Load() {
			continue
		}
		if quiet != nil {
			time.Sleep(10 * time.Second)
			quiet()
			for _, end := range []*transport.Session{s.opener, s.acceptor} {
				if left := transport.BodiesUnderWay(end); left != "" || end.Err() != nil {
					t.Errorf("when no exchange is under way: %s; the session: %v", left, end.Err())
				}
			}
		}
		if err := s.polite(rand.New(rand.NewPCG(1, 1)), []int{300_000, 50, 250_000}); err != nil {
			t.Errorf("at the end: %v", err)
		}
	}
	for _, s := range sessions {
		s.opener.Close(nil)
		s.acceptor.Close(nil)
	}
	served.Wait()
	wantNothingHeld(t, w.openers)
	wantNothingHeld(t, w.acceptors)
}

// The types of first frames: how an acceptor answers.
const (
	answersEach = iota
	answersNothing
	takesNothing
	leaves
	answersOnly
)

// aSize is how long a body is.
func aSize(r *rand.Rand) int {
	switch r.IntN(10) {
	case 0, 1, 2:
		return 20 + r.IntN(1000)
	case 3:
		return 16<<10 - 8 + r.IntN(16)
	case 4:
		return 20 + r.IntN(300<<10)
	}
	return 20 + r.IntN(60<<10)
}

// piece is the body of a number, and how long the next are.
func piece(number, size int) []byte {
	b := make([]byte, size)
	binary.BigEndian.PutUint32(b, uint32(number))
	binary.BigEndian.PutUint32(b[4:], uint32(size))
	b[size-1] = byte(number)
	return msgpack.AppendBytes(nil, b)
}

// checkPiece says what is wrong with one that came.
func checkPiece(number int, body []byte) error {
	head := map[byte]int{0xc4: 2, 0xc5: 3, 0xc6: 5}[body[0]]
	b := body[head:]
	size := int(binary.BigEndian.Uint32(b[4:]))
	if int(binary.BigEndian.Uint32(b)) != number || len(b) != size || b[size-1] != byte(number) {
		return fmt.Errorf("where number %d should be, %d came, %d bytes of %d", number, binary.BigEndian.Uint32(b), len(b), size)
	}
	return nil
}

func sizesOf(r *rand.Rand) []int {
	sizes := make([]int, 1+r.IntN(6))
	for i := range sizes {
		sizes[i] = aSize(r)
	}
	return sizes
}

// handle answers as the first frame says.
func (s *walked) handle(x *transport.Exchange, f transport.Frame) {
	r := rand.New(rand.NewPCG(uint64(len(f.Body)), uint64(f.Type)))
	ctx := context.Background()
	if f.Type == takesNothing {
		<-x.Context().Done()
		return
	}
	if f.Type == leaves {
		time.Sleep(time.Duration(r.IntN(50)) * time.Millisecond)
		_ = x.Send(1, false, piece(0, aSize(r)))
		return
	}
	if f.Type == answersOnly {
		for i, size := range sizesOf(r) {
			_ = x.Send(1, false, piece(i, size))
		}
		return
	}
	for number := 0; ; number++ {
		if f.Type == answersEach || f.End {
			if r.IntN(2) == 0 && x.Reserve(ctx, 20+len(f.Body)) != nil {
				return
			}
			if x.Send(1, f.End, f.Body) != nil {
				return
			}
			_ = x.Reserve(ctx, 0) // who has some must not wait for more
		}
		if f.End {
			return
		}
		if r.IntN(4) == 0 {
			time.Sleep(time.Duration(r.IntN(100)) * time.Millisecond)
		}
		kind := f.Type
		var err error
		if f, err = x.Receive(ctx); err != nil {
			return
		}
		if kind != f.Type {
			panic("another type")
		}
	}
}

// exchange makes one.
func (s *walked) exchange(r *rand.Rand) error {
	if r.IntN(2) == 0 {
		err := s.polite(r, sizesOf(r))
		switch {
		case errors.Is(err, transport.ErrNoRoom):
			s.halves.Add(1)
			return nil
		case err != nil && s.faulty.Load():
			s.halves.Add(1)
			return nil
		}
		return err
	}
	s.halves.Add(1)
	x, err := s.opener.Exchange()
	if err != nil {
		return nil
	}
	var parts sync.WaitGroup
	defer parts.Wait()
	defer x.Release()
	kind := transport.Type(r.IntN(5))
	sizes, ends := sizesOf(r), r.IntN(2) == 0
	reserves := r.IntN(3) == 0
	parts.Go(func() {
		for i, size := range sizes {
			if reserves {
				_ = x.Reserve(context.Background(), 0)
				_ = x.Reserve(context.Background(), size)
			}
			if x.Send(kind, ends && i == len(sizes)-1, piece(i, size)) != nil {
				return
			}
		}
	})
	if r.IntN(2) == 0 {
		wait := time.Duration(r.IntN(200)) * time.Millisecond
		ctx, cancel := context.WithTimeout(context.Background(), wait)
		defer cancel()
		for i := range r.IntN(6) {
			f, err := x.Receive(ctx)
			if err != nil {
				return nil
			}
			if err := checkPiece(i, f.Body); err != nil && kind == answersEach {
				return err
			}
		}
		return nil
	}
	time.Sleep(time.Duration(r.IntN(200)) * time.Millisecond)
	return nil
}

// polite is one of which all is sent and taken.
func (s *walked) polite(r *rand.Rand, sizes []int) error {
	x, err := s.opener.Exchange()
	if err != nil {
		return err
	}
	sent := make(chan error, 1)
	go func() {
		for i, size := range sizes {
			if err := x.Send(answersEach, i == len(sizes)-1, piece(i, size)); err != nil {
				sent <- fmt.Errorf("send %d of %d: %w", i, size, err)
				return
			}
		}
		sent <- nil
	}()
	defer func() { <-sent }() //nolint:errcheck // what is received says more, and Release ends the last Send
	defer x.Release()
	for i := 0; ; i++ {
		if r.IntN(8) == 0 {
			time.Sleep(time.Duration(r.IntN(300)) * time.Millisecond)
		}
		f, err := x.Receive(context.Background())
		switch {
		case err == io.EOF && i == len(sizes): //nolint:errorlint // it comes bare
			s.whole.Add(1)
			return nil
		case err != nil:
			return fmt.Errorf("after %d of %v: %w", i, sizes, err)
		}
		if err := checkPiece(i, f.Body); err != nil {
			return err
		}
	}
}

// seeds are those to run: a few, or as many as HARP_SEEDS says, from HARP_SEED on.
func seeds(t *testing.T, few uint64) (from, to uint64) {
	text := os.Getenv("HARP_SEEDS")
	if text == "" {
		return 0, few
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	if one := os.Getenv("HARP_SEED"); one != "" {
		from, _ = strconv.ParseUint(one, 10, 64)
		return from, from + n
	}
	return 0, n
}

// TestWalk: whatever exchanges do at once, and however their sessions end, each that both sides go through with comes whole, each other
// ends, and nothing stays held.
func TestWalk(t *testing.T) {
	for _, memory := range []bool{false, true} {
		t.Run(map[bool]string{false: "yamux", true: "memory"}[memory], func(t *testing.T) {
			var whole, halves int64
			from, to := seeds(t, 10)
			for seed := from; seed < to; seed++ {
				forgetTimers()
				synctest.Test(t, func(t *testing.T) {
					w := newWalk(seed)
					var sessions []*walked
					for i := range 1 + w.r.IntN(3) {
						sessions = append(sessions, w.virtual(t, memory, i))
					}
					w.run(t, sessions, synctest.Wait)
					whole += w.whole.Load()
					halves += w.halves.Load()
				})
				if t.Failed() {
					t.Fatalf("seed %d", seed)
				}
			}
			forgetTimers()
			t.Logf("%d exchanges came whole, %d did not", whole, halves)
		})
	}
}

// forgetTimers empties the pool in which yamux keeps timers, of which those of one world of time are of no use in another.
func forgetTimers() {
	runtime.GC() // drops what was not used since the one before
	runtime.GC()
}

// virtual makes a session in virtual time.
func (w *walk) virtual(t *testing.T, memory bool, i int) *walked {
	s := &walked{walk: w}
	var oc, ac *transport.Conn
	if memory {
		oc, ac = virtual.conns(t)
	} else {
		near, far := net.Pipe()
		rate := []int{0, 1 << 20, 200 << 10}[w.r.IntN(3)]
		name := transport.Identity{Fleet: fleet, Role: transport.RoleAgent, Name: strconv.Itoa(i / 2)}
		oc = transport.Unsecured(&lineConn{Conn: near, rate: rate, closed: make(chan struct{})}, name)
		ac = transport.Unsecured(&lineConn{Conn: far, rate: rate, closed: make(chan struct{})}, name)
	}
	w.sessionOn(t, s, oc, ac)
	return s
}

func (w *walk) sessionOn(t *testing.T, s *walked, oc, ac *transport.Conn) {
	var opened sync.WaitGroup
	opened.Go(func() { s.opener, _ = oc.Opener(t.Context(), w.options(w.openers)) })
	opened.Go(func() { s.acceptor, _ = ac.Acceptor(t.Context(), w.options(w.acceptors)) })
	if opened.Wait(); s.opener == nil || s.acceptor == nil {
		t.Fatal("there is no session")
	}
	s.cut = func() { _ = transport.NetConn(oc).Close() }
}

// TestWalkSecured is TestWalk over TLS.
func TestWalkSecured(t *testing.T) {
	from, to := seeds(t, 3)
	for seed := from; seed < to; seed++ {
		w := newWalk(seed)
		transport.LimitOpen(w.acceptors, 1<<30) // what sessions keep paid for is given back with a heartbeat, of which there is none
		var sessions []*walked
		for range 1 + w.r.IntN(3) {
			s := &walked{walk: w}
			oc, ac := wirings[2].conns(t)
			w.sessionOn(t, s, oc, ac)
			sessions = append(sessions, s)
		}
		w.run(t, sessions, nil)
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}
