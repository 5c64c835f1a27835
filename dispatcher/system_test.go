package dispatcher_test

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/agent"
	"github.com/harpcaller/harp/client"
	"github.com/harpcaller/harp/dispatcher"
	"github.com/harpcaller/harp/store"
	"github.com/harpcaller/harp/store/memory"
	"github.com/harpcaller/harp/transport"
	"github.com/harpcaller/harp/transport/devca"
	"github.com/harpcaller/harp/transport/memnet"
)

const fleet = "test"

// A wiring is a way in which callers, dispatcher and agents are connected. Each
// behaviour is tested over every one.
type wiring string

const (
	embedded wiring = "embedded" // the caller in the dispatcher's process, agents over a network in memory
	inMemory wiring = "memory"   // callers and agents over a network in memory
	loopback wiring = "tls"      // callers and agents over TLS on loopback
)

// everyWiring runs a test body over each wiring.
func everyWiring(t *testing.T, body func(t *testing.T, sys *system)) {
	for _, w := range []wiring{embedded, inMemory, loopback} {
		t.Run(string(w), func(t *testing.T) {
			t.Parallel()
			body(t, newSystem(t, w, nil, dispatcher.Config{}))
		})
	}
}

// system is a dispatcher with agents and a caller, for one test.
type system struct {
	t      testing.TB
	wiring wiring
	d      *dispatcher.Dispatcher
	caller *harp.Caller
	net    network
	online *onlineLog
	agents *transport.Budget // of raw agents; nil: each has its own

	mu    sync.Mutex
	conns map[string]net.Conn // the last one each agent made
	apart map[string]bool     // agents that cannot connect
}

// newSystem opens a dispatcher on st, in memory if nil, and serves it.
func newSystem(t testing.TB, w wiring, st store.Store, cfg dispatcher.Config) *system {
	t.Helper()
	return newSystemOn(t, w, newNetwork(t, w), st, cfg)
}

// newSystemOn is newSystem on a network that is there already.
func newSystemOn(t testing.TB, w wiring, n network, st store.Store, cfg dispatcher.Config) *system {
	t.Helper()
	if st == nil {
		st = memory.Open(nil)
	}
	sys := &system{t: t, wiring: w, net: n, online: newOnlineLog(t), conns: map[string]net.Conn{}, apart: map[string]bool{}}
	cfg.Logger = slog.New(sys.online)
	d, err := dispatcher.Open(t.Context(), st, cfg)
	if err != nil {
		t.Fatal(err)
	}
	sys.d = d
	l, tc := sys.net.listen("dispatcher", transport.RoleDispatcher)
	var serving sync.WaitGroup
	serving.Go(func() {
		if err := d.Serve(context.WithoutCancel(t.Context()), l, tc); err != nil && !errors.Is(err, harp.ErrClosed) { // a test may be over before
			t.Errorf("serve: %v", err)
		}
	})
	t.Cleanup(func() {
		if err := d.Shutdown(context.WithoutCancel(t.Context())); err != nil {
			t.Errorf("shutdown: %v", err)
		}
		serving.Wait()
	})
	sys.caller = sys.newCaller()
	return sys
}

// newCaller connects one more caller.
func (s *system) newCaller() *harp.Caller {
	s.t.Helper()
	c := s.d.Caller()
	if s.wiring != embedded {
		addr, tc, dial := s.net.dial("dispatcher", "tester", transport.RoleCaller)
		var err error
		if c, err = client.Dial(s.t.Context(), addr, client.Config{TLS: tc, Dial: dial}); err != nil {
			s.t.Fatal(err)
		}
	}
	s.t.Cleanup(func() {
		if err := c.Close(); err != nil {
			s.t.Errorf("close caller: %v", err)
		}
	})
	return c
}

// agent connects an agent that offers what register gives it, and waits until its
// host is online. The function that it returns stops the agent.
func (s *system) agent(name string, register func(*agent.Agent)) (stop func()) {
	s.t.Helper()
	return s.agentWith(name, agent.Config{}, register)
}

// agentWith is agent with a configuration that lacks what every agent needs.
func (s *system) agentWith(name string, cfg agent.Config, register func(*agent.Agent)) (stop func()) {
	s.t.Helper()
	addr, tc, dial := s.net.dial("dispatcher", name, transport.RoleAgent)
	cfg.Name, cfg.TLS, cfg.Dial, cfg.Logger = name, tc, s.remember(name, dial), slog.New(slog.NewTextHandler(s.t.Output(), nil))
	if cfg.Limits.Grace == 0 {
		cfg.Limits.Grace = 500 * time.Millisecond
	}
	a := agent.New(cfg)
	register(a)
	ctx, cancel := context.WithCancel(context.WithoutCancel(s.t.Context()))
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := a.Connect(ctx, addr); err != nil {
			s.t.Errorf("agent %s: %v", name, err)
		}
	}()
	stop = sync.OnceFunc(func() { cancel(); <-done })
	s.t.Cleanup(stop)
	s.online.wait(name)
	return stop
}

// remember keeps the connections of an agent so that cut can close them.
func (s *system) remember(name string, dial dialFunc) dialFunc {
	return func(ctx context.Context, addr string) (net.Conn, error) {
		conn, err := dial(ctx, addr)
		if err != nil {
			return nil, err
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.apart[name] {
			return nil, errors.Join(errors.New("no way there"), conn.Close())
		}
		s.conns[name] = conn
		return conn, nil
	}
}

// part breaks the connection of the agent of web01 and lets it make no other.
func (s *system) part() {
	const name = "web01"
	s.mu.Lock()
	s.apart[name] = true
	s.mu.Unlock()
	s.cutHost()
}

// heal lets the agent of web01 connect again and waits until its host is online.
func (s *system) heal() {
	const name = "web01"
	s.mu.Lock()
	delete(s.apart, name)
	s.mu.Unlock()
	s.online.wait(name)
}

// cutHost breaks the connection of the agent of web01.
func (s *system) cutHost() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.conns["web01"].Close(); err != nil {
		s.t.Error(err)
	}
}

type dialFunc = func(ctx context.Context, addr string) (net.Conn, error)

// network is how the programs of a test reach each other.
type network struct {
	t   testing.TB
	mem *memnet.Network // or
	ca  *devca.CA
	at  *map[string]string // name of a listener to its address
}

// memoryPort is the port of every listener in memory.
const memoryPort = ":1"

func newNetwork(t testing.TB, w wiring) network {
	n := network{t: t, at: &map[string]string{}}
	if w != loopback {
		n.mem = memnet.New()
		return n
	}
	var err error
	if n.ca, err = devca.Open("", fleet); err != nil {
		t.Fatal(err)
	}
	return n
}

func (n network) listen(name string, role transport.Role) (net.Listener, *tls.Config) {
	n.t.Helper()
	id := transport.Identity{Fleet: fleet, Role: role, Name: name}
	if n.mem != nil {
		l, err := n.mem.Listen(name+memoryPort, id)
		if err != nil {
			n.t.Fatal(err)
		}
		return l, nil
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		n.t.Fatal(err)
	}
	(*n.at)[name] = l.Addr().String()
	return l, n.tls(id)
}

func (n network) dial(to, name string, role transport.Role) (string, *tls.Config, dialFunc) {
	n.t.Helper()
	id := transport.Identity{Fleet: fleet, Role: role, Name: name}
	if n.mem != nil {
		return to + memoryPort, &tls.Config{}, n.mem.Dialer(id) //nolint:gosec // not looked at: there is no TLS in memory
	}
	var d net.Dialer
	return (*n.at)[to], n.tls(id), func(ctx context.Context, addr string) (net.Conn, error) { return d.DialContext(ctx, "tcp", addr) }
}

func (n network) tls(id transport.Identity) *tls.Config {
	n.t.Helper()
	tc, err := n.ca.TLS(id)
	if err != nil {
		n.t.Fatal(err)
	}
	return tc
}

// onlineLog is a dispatcher's log that knows which hosts are online.
type onlineLog struct {
	slog.Handler
	mu    sync.Mutex
	hosts map[string]chan struct{} // has a value for each time the host came online

	once    sync.Once
	trouble chan struct{} // closed when a host could not be dialled

	warned map[string]int // how often there was trouble, by what was said
}

func newOnlineLog(t testing.TB) *onlineLog {
	text := slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelDebug})
	return &onlineLog{Handler: text, hosts: map[string]chan struct{}{}, trouble: make(chan struct{}), warned: map[string]int{}}
}

func (o *onlineLog) Handle(ctx context.Context, r slog.Record) error {
	if r.Level >= slog.LevelWarn {
		o.mu.Lock()
		o.warned[r.Message]++
		o.mu.Unlock()
	}
	isCount := false // of lines that were logged before
	r.Attrs(func(a slog.Attr) bool {
		isCount = isCount || a.Key == "times"
		return true
	})
	r.Attrs(func(a slog.Attr) bool {
		switch {
		case a.Key != "host":
			return true
		case isCount:
		case r.Message == "host is online":
			select {
			case o.host(a.Value.String()) <- struct{}{}:
			default:
			}
		case r.Message == "dial":
			o.once.Do(func() { close(o.trouble) })
		}
		return false
	})
	return o.Handler.Handle(ctx, r)
}

// takeWarned returns how often there was trouble since it was asked last.
func (o *onlineLog) takeWarned() map[string]int {
	o.mu.Lock()
	defer o.mu.Unlock()
	was := o.warned
	o.warned = map[string]int{}
	return was
}

func (o *onlineLog) host(name string) chan struct{} {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.hosts[name] == nil {
		o.hosts[name] = make(chan struct{}, 16)
	}
	return o.hosts[name]
}

// wait waits until the host came online once more.
func (o *onlineLog) wait(name string) { <-o.host(name) }
