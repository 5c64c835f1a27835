package transport_test

import (
	"context"
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"

	"github.com/harpcaller/harp/transport"
)

// What a handler leaves aside may end its goroutine or bind it to its thread: the rest of
// the handler comes behind it in another one, and the exchange is over only then.
func TestAside(t *testing.T) {
	eachWiring(t, func(t *testing.T, w wiring) {
		e := w.connect(t, transport.Options{}, transport.Options{})
		asides := []func(){
			func() {},
			runtime.Goexit,
			runtime.LockOSThread, // and not unlocked: the thread ends with the goroutine
		}
		var log []string
		e.serve(t, func(_ context.Context, x *transport.Exchange, f transport.Frame) {
			var aside string
			log = append(log, fmt.Sprint("handler ", f.Type))
			x.Aside(func() {
				aside = goroutine()
				log = append(log, fmt.Sprint("aside ", f.Type))
				asides[f.Type]()
			}, func() {
				if goroutine() == aside {
					t.Errorf("%s goes on after what it ran aside", aside)
				}
				log = append(log, fmt.Sprint("then ", f.Type))
				_ = x.Send(f.Type, true, nil)
			})
			log = append(log, fmt.Sprint("returned ", f.Type))
		})
		var expected []string
		for i := range asides {
			for _, step := range []string{"handler", "returned", "aside", "then"} {
				expected = append(expected, fmt.Sprint(step, " ", i))
			}
			x := e.exchange(t)
			send(t, x, transport.Type(i), true, nil)
			want(t, x, transport.Frame{Type: transport.Type(i), End: true})
			x.Release()
		}
		e.acceptor.Close(nil)
		if fmt.Sprint(log) != fmt.Sprint(expected) {
			t.Errorf("%q", log)
		}
	})
}

// goroutine is which one this is.
func goroutine() string {
	var b [32]byte
	return string(b[:runtime.Stack(b[:], false)])
}

// The rest of a handler may go aside again, and one that is over without End closes the
// lane.
func TestAsideAgain(t *testing.T) {
	eachWiring(t, func(t *testing.T, w wiring) {
		e := w.connect(t, transport.Options{}, transport.Options{})
		e.serve(t, func(_ context.Context, x *transport.Exchange, f transport.Frame) {
			var part func()
			n := 0
			part = func() {
				n++
				_ = x.Send(f.Type, n == 3 && f.Type == 3, nil)
				if n < 3 {
					x.Aside(func() {}, part)
				}
			}
			part()
		})
		for _, typ := range []transport.Type{3, 2} {
			x := e.exchange(t)
			send(t, x, typ, false, nil)
			for i := range 3 {
				want(t, x, transport.Frame{Type: typ, End: typ == 3 && i == 2})
			}
			x.Release()
		}
	})
}

// Serve waits for what was left aside, whose ctx ends with the session, and for the rest
// of the handler.
func TestServeWaitsForAside(t *testing.T) {
	eachWiring(t, func(t *testing.T, w wiring) {
		e := w.connect(t, transport.Options{}, transport.Options{})
		began, served := make(chan struct{}), make(chan struct{})
		var over atomic.Bool
		go func() {
			defer close(served)
			_ = e.acceptor.Serve(context.Background(), func(ctx context.Context, x *transport.Exchange, _ transport.Frame) {
				x.Aside(func() {
					close(began)
					<-ctx.Done()
				}, func() { over.Store(true) })
			})
		}()
		send(t, e.exchange(t), 1, true, nil)
		<-began
		e.acceptor.Close(nil)
		<-served
		if !over.Load() {
			t.Error("Serve did not wait for the rest of the handler")
		}
	})
}
