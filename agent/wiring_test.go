package agent_test

import (
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/harpcaller/harp/agent"
	"github.com/harpcaller/harp/transport"
	"github.com/harpcaller/harp/transport/devca"
	"github.com/harpcaller/harp/transport/memnet"
)

const fleet = "test.example"

var (
	agentID      = transport.Identity{Fleet: fleet, Role: transport.RoleAgent, Name: "web01"}
	dispatcherID = transport.Identity{Fleet: fleet, Role: transport.RoleDispatcher, Name: "main"}
	callerID     = transport.Identity{Fleet: fleet, Role: transport.RoleCaller, Name: "ops"}
)

// place is where the agent and who speaks with it meet.
type place interface {
	listen(t testing.TB, id transport.Identity) net.Listener
	dialer(id transport.Identity) func(ctx context.Context, addr string) (net.Conn, error)
	config(t testing.TB, id transport.Identity) *tls.Config
}

// everywhere runs a test body in memory, where time is virtual, and over TLS.
func everywhere(t *testing.T, body func(t *testing.T, p place)) {
	t.Run("memory", func(t *testing.T) { inMemory(t, body) })
	t.Run("tls", func(t *testing.T) { body(t, loopback{}) })
}

// inMemory runs a test body in a bubble of virtual time.
func inMemory(t *testing.T, body func(t *testing.T, p place)) {
	synctest.Test(t, func(t *testing.T) { body(t, memory{memnet.New()}) })
}

// memory is a place without wires.
type memory struct{ network *memnet.Network }

func (m memory) listen(t testing.TB, id transport.Identity) net.Listener {
	l, err := m.network.Listen(id.Name+":1", id)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func (m memory) dialer(id transport.Identity) func(context.Context, string) (net.Conn, error) {
	return m.network.Dialer(id)
}

func (m memory) config(testing.TB, transport.Identity) *tls.Config { return nil }

// loopback is TLS over TCP.
type loopback struct{}

var authority = sync.OnceValues(func() (*devca.CA, error) { return devca.Open("", fleet) })

func (loopback) listen(t testing.TB, _ transport.Identity) net.Listener {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func (loopback) dialer(transport.Identity) func(context.Context, string) (net.Conn, error) {
	return func(ctx context.Context, addr string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "tcp", addr)
	}
}

func (loopback) config(t testing.TB, id transport.Identity) *tls.Config {
	ca, err := authority()
	if err != nil {
		t.Fatal(err)
	}
	tc, err := ca.TLS(id)
	if err != nil {
		t.Fatal(err)
	}
	return tc
}

var silent = slog.New(slog.DiscardHandler)

// newAgent returns the agent web01.
func newAgent(t testing.TB, p place, change ...func(*agent.Config)) *agent.Agent {
	cfg := agent.Config{
		Name:   agentID.Name,
		TLS:    p.config(t, agentID),
		Dial:   p.dialer(agentID),
		Logger: silent,
		Facts:  func(context.Context) (map[string]any, error) { return map[string]any{"os": "test"}, nil },
	}
	cfg.Limits.Grace = time.Second
	for _, c := range change {
		c(&cfg)
	}
	return agent.New(cfg)
}

// running is a Connect or Serve of an agent.
type running struct {
	stop   context.CancelFunc
	joined chan error // what it returned
}

// run runs f until the test ends; then it must return nil.
func run(t testing.TB, f func(ctx context.Context) error) *running {
	ctx, cancel := context.WithCancel(context.Background())
	r := &running{stop: cancel, joined: make(chan error, 1)}
	go func() { r.joined <- f(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-r.joined; err != nil {
			t.Errorf("Connect or Serve returned %v", err)
		}
		r.joined <- nil
	})
	return r
}

// wait waits until it has returned.
func (r *running) wait() {
	err := <-r.joined
	r.joined <- err
}
