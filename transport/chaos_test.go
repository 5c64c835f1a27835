package transport_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/harpcaller/harp/internal/msgpack"
	"github.com/harpcaller/harp/transport"
	"github.com/harpcaller/harp/transport/memnet"
)

// chaos is a session on which exchanges are made while something happens to it.
type chaos struct {
	*badPaths
	stop       context.CancelFunc // of every handler
	stopped    atomic.Bool        // they were
	handlers   context.Context    // that of all handlers
	whole, cut atomic.Int64
}

// TestSessionChaos: whatever befalls a session in the middle of its exchanges, what is received
// of each is what was sent, in order and without gap; an exchange is over only after its
// End, and else it is told that its session has ended; and nothing waits for ever: all
// goroutines end.
func TestSessionChaos(t *testing.T) {
	var whole, cut int64
	for seed := range uint64(100) {
		c := &chaos{}
		onBadPathsWith(t, c.grant, func(t *testing.T, roads *badPaths) {
			c.badPaths = roads
			c.run(t, rand.New(rand.NewPCG(seed, 0)))
			whole += c.whole.Load()
			cut += c.cut.Load()
		})
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
	t.Logf("%d exchanges came to their end, %d did not", whole, cut)
	if whole < 500 || cut < 200 {
		t.Errorf("%d exchanges came to their end, %d did not: too few to show anything", whole, cut)
	}
}

func (c *chaos) run(t *testing.T, r *rand.Rand) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	c.handlers, c.stop = ctx, cancel
	var all sync.WaitGroup
	c.a.Beat(time.Second)
	c.d.Beat(time.Second)
	for _, control := range []*transport.Exchange{c.ca, c.cd} {
		all.Go(func() {
			for {
				if _, err := control.Receive(context.Background()); err != nil {
					return
				}
			}
		})
	}
	for range 1 + r.IntN(8) {
		own := rand.New(rand.NewPCG(r.Uint64(), 1))
		all.Go(func() {
			for range 20 {
				if err := c.exchange(own); err != nil {
					if !errors.Is(err, transport.ErrSessionClosed) {
						t.Error(err)
					}
					return
				}
			}
		})
	}
	for range 1 + r.IntN(3) {
		time.Sleep(time.Duration(r.IntN(3000)) * time.Millisecond)
		c.fault(r)
	}
	time.Sleep(time.Minute)
	c.there.Open()
	c.back.Open()
	c.a.Close(nil)
	c.d.Close(nil)
	all.Wait()
}

// fault is something that happens.
func (c *chaos) fault(r *rand.Rand) {
	road := []*memnet.Path{c.there, c.back}[r.IntN(2)]
	switch r.IntN(8) {
	case 0:
		c.a.Close(nil)
	case 1:
		c.d.Close(nil)
	case 2:
		c.reset()
	case 3:
		c.stopped.Store(true)
		c.stop()
	case 4:
		road.Block()
	case 5:
		road.Block()
		time.Sleep(time.Duration(r.IntN(2000)) * time.Millisecond)
		road.Open()
	default:
		road.Delay(time.Duration(r.IntN(500)) * time.Millisecond)
	}
}

// wish is what an exchange asks for: so many frames, of so many bytes each, with a pause
// before each, in nanoseconds.
type wish struct{ Frames, Size, Pause int64 }

var wishes msgpack.Codec

// grant answers a wish with frames that are numbered.
func (c *chaos) grant(x *transport.Exchange, first transport.Frame) {
	var w wish
	if err := wishes.Decode(first.Body, &w); err != nil {
		panic(err)
	}
	for i := range w.Frames {
		select {
		case <-time.After(time.Duration(w.Pause)):
		case <-x.Context().Done():
			return
		case <-c.handlers.Done():
			return
		}
		if x.Send(1, i == w.Frames-1, numbered(i, w.Size)) != nil {
			return
		}
	}
}

func numbered(i, size int64) []byte {
	b := make([]byte, 8+size)
	binary.BigEndian.PutUint64(b, uint64(i)) //nolint:gosec // i is from 0
	return msgpack.AppendBytes(nil, b)
}

// exchange makes one in any of the ways there are. The error is why there can be no other,
// or what should not have come.
func (c *chaos) exchange(r *rand.Rand) error {
	x, err := c.a.Exchange()
	if err != nil {
		return err
	}
	defer x.Release()
	w := wish{Frames: 1 + r.Int64N(60), Size: r.Int64N(2000), Pause: r.Int64N(int64(20 * time.Millisecond))}
	if r.IntN(10) == 0 {
		w.Size *= 40 // still no frame that is too large
	}
	body, err := wishes.Append(nil, w)
	if err != nil {
		return err
	}
	mode, end := r.IntN(4), r.IntN(2) == 0
	leave := int64(-1) // after how many frames
	if r.IntN(3) == 0 {
		leave = r.Int64N(60)
	}
	if mode == 0 {
		return c.listen(x, body, end, w, leave)
	}
	if err := x.Send(1, end, body); err != nil {
		return c.over(0, w, err)
	}
	for n := int64(0); n != leave; n++ {
		if r.IntN(20) == 0 {
			time.Sleep(time.Duration(r.IntN(1000)) * time.Millisecond)
		}
		receive := x.Receive
		if mode == 1 {
			receive = awaiting(x)
		}
		f, err := receive(context.Background())
		if err != nil {
			return c.over(n, w, err)
		}
		if err := w.check(n, f); err != nil {
			return err
		}
	}
	return nil
}

// awaiting is Receive by Await and TryReceive.
func awaiting(x *transport.Exchange) func(context.Context) (transport.Frame, error) {
	return func(context.Context) (transport.Frame, error) {
		woken := make(chan struct{})
		if x.Await(func() { close(woken) }) {
			<-woken
		}
		f, ok, err := x.TryReceive()
		if !ok && err == nil {
			err = errors.New("woken for nothing")
		}
		return f, err
	}
}

// check says whether a frame is the one that must come next.
func (w wish) check(n int64, f transport.Frame) error {
	if want := numbered(n, w.Size); string(f.Body) != string(want) || f.End != (n == w.Frames-1) {
		return fmt.Errorf("frame %d of %d has %d bytes of %d, end %v", n, w.Frames, len(f.Body), len(want), f.End)
	}
	return nil
}

// over judges how an exchange ended after n frames.
func (c *chaos) over(n int64, w wish, err error) error {
	switch {
	case errors.Is(err, io.EOF) && n == w.Frames:
		c.whole.Add(1)
		return nil
	case errors.Is(err, transport.ErrSessionClosed):
		c.cut.Add(1)
		return err
	case c.stopped.Load() && (errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.ErrClosedPipe)):
		c.cut.Add(1)
		return nil
	}
	return fmt.Errorf("after %d frames of %d: %w", n, w.Frames, err)
}

// listen makes an exchange that is listened to.
func (c *chaos) listen(x *transport.Exchange, body []byte, end bool, w wish, leave int64) error {
	n, left, done := int64(0), false, make(chan error, 1)
	x.Listen(func(f transport.Frame, err error) {
		if left {
			return
		}
		if err == nil {
			err = w.check(n, f)
			n++
		}
		switch {
		case err == nil && n == w.Frames:
			err = c.over(n, w, io.EOF)
		case err != nil:
			err = c.over(n, w, err)
		case n != leave:
			return
		}
		left = true
		done <- err
	})
	if err := x.Send(1, end, body); err != nil {
		return c.over(0, w, err)
	}
	return <-done
}
