package dispatcher_test

import (
	"context"
	"errors"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/client"
	"github.com/harpcaller/harp/dispatcher"
	"github.com/harpcaller/harp/store"
	"github.com/harpcaller/harp/store/memory"
	"github.com/harpcaller/harp/transport"
)

// A dispatcher whose store has failed can do nothing any more: it must not go on
// listening, so that what supervises it starts it anew.
func TestServeGoesOnAfterAFailedCommit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk, broken := memory.NewDisk(), errors.New("input/output error")
		d := must[*dispatcher.Dispatcher](t)(dispatcher.Open(t.Context(), memory.OpenDisk(disk, nil), dispatcher.Config{}))
		defer d.Shutdown(context.WithoutCancel(t.Context())) //nolint:errcheck // what closing a broken store says is not looked at here
		n := newNetwork(t, inMemory)
		l, tc := n.listen("dispatcher", transport.RoleDispatcher)
		served := make(chan error, 1)
		go func() { served <- d.Serve(context.WithoutCancel(t.Context()), l, tc) }()

		addr, ctls, dial := n.dial("dispatcher", "tester", transport.RoleCaller)
		far := must[*harp.Caller](t)(client.Dial(t.Context(), addr, client.Config{TLS: ctls, Dial: dial}))
		defer far.Close()
		near := d.Caller()
		defer near.Close()
		waited := make(chan error, 1)
		go func() {
			for _, err := range near.Events(t.Context(), harp.EventFilter{}) {
				waited <- err
			}
		}()
		synctest.Wait()

		disk.FailCommits(broken)
		if err := near.Queues().Pause(t.Context(), harp.Args{"q": 1}, "", time.Time{}); !errors.Is(err, store.ErrPoisoned) || !errors.Is(err, broken) {
			t.Errorf("the operation whose commit failed returns %v", err)
		}
		synctest.Wait()
		select {
		case err := <-served:
			if !errors.Is(err, store.ErrPoisoned) || !errors.Is(err, broken) {
				t.Errorf("Serve returns %v", err)
			}
		default:
			t.Fatal("Serve goes on")
		}
		h := d.Health(t.Context())
		if err := h.Checks["store"]; h.Ready || !errors.Is(err, broken) {
			t.Errorf("ready is %t, the store's check says %v", h.Ready, err)
		}
		select {
		case err := <-waited:
			if !errors.Is(err, harp.ErrClosed) || !errors.Is(err, broken) {
				t.Errorf("a caller in the process that waits for events gets %v", err)
			}
		default:
			t.Error("a caller in the process waits on")
		}
		if _, err := near.Ping(t.Context()); !errors.Is(err, harp.ErrClosed) || !errors.Is(err, broken) {
			t.Errorf("a caller in the process is answered %v", err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		if _, err := far.Ping(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a caller elsewhere, which waits for the next dispatcher, is answered %v", err)
		}
		if nc, err := dial(t.Context(), addr); err == nil {
			t.Error("it still listens")
			_ = nc.Close()
		}
		l, tc = newNetwork(t, inMemory).listen("dispatcher", transport.RoleDispatcher)
		if err := d.Serve(t.Context(), l, tc); !errors.Is(err, broken) {
			t.Errorf("asked to serve again it returns %v", err)
		}
		if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
			t.Errorf("that listener was not closed: %v", err)
		}
	})
}
