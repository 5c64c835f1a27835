package agent

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/harpcaller/harp/internal/wire"
	"github.com/harpcaller/harp/transport"
	"github.com/harpcaller/harp/transport/memnet"
)

// TestASessionBeginsBesideTheOneBefore checks that a session waits, before it says what the agent holds, until the one
// that it takes the place of has let go: what that took on then would not be said, and count as not started.
func TestASessionBeginsBesideTheOneBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := memnet.New()
		l, err := network.Listen("main:1", transport.Identity{Fleet: "f", Role: transport.RoleDispatcher, Name: "main"})
		if err != nil {
			t.Fatal(err)
		}
		served := make(chan error, 1)
		go func() {
			served <- transport.Serve(t.Context(), l, transport.ServeConfig{
				Protocols: map[string]transport.Role{transport.ProtocolAgent: transport.RoleAgent},
			}, func(_ context.Context, conn *transport.Conn) {
				if s, err := conn.Opener(t.Context(), transport.Options{}); err == nil {
					_ = s.Serve(nil) // until the agent has gone
				}
			})
		}()
		nc, err := network.Dialer(transport.Identity{Fleet: "f", Role: transport.RoleAgent, Name: "web"})(t.Context(), "main:1")
		if err != nil {
			t.Fatal(err)
		}
		conn, err := transport.Client(t.Context(), nc, nil, transport.ProtocolAgent, transport.RoleDispatcher)
		if err != nil {
			t.Fatal(err)
		}
		ts, err := conn.Acceptor(t.Context(), transport.Options{})
		if err != nil {
			t.Fatal(err)
		}
		a, over := New(Config{Name: "web"}), make(chan struct{})
		a.current = &session{transport: ts, store: "store", over: over}
		begun := make(chan error, 1)
		go func() { begun <- a.setSession(&session{agent: a}, wire.Welcome{Store: "store"}) }()
		synctest.Wait()
		if ts.Err() == nil {
			t.Error("the session before goes on")
		}
		select {
		case err := <-begun:
			t.Errorf("it has begun, %v, and the one before has not let go", err)
			begun <- err
		default:
		}
		close(over)
		if err := <-begun; err != nil {
			t.Error(err)
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		if err := <-served; err == nil {
			t.Error("that its listener was closed is not told")
		}
	})
}
