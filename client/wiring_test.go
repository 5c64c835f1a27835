package client

import (
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/dispatcher"
	"github.com/harpcaller/harp/internal/wire"
	"github.com/harpcaller/harp/transport"
	"github.com/harpcaller/harp/transport/devca"
	"github.com/harpcaller/harp/transport/memnet"
)

var (
	dispatcherID = transport.Identity{Fleet: "test", Role: transport.RoleDispatcher, Name: "d"}
	callerID     = transport.Identity{Fleet: "test", Role: transport.RoleCaller, Name: "ci"}
	agentID      = transport.Identity{Fleet: "test", Role: transport.RoleAgent, Name: "web01"}
)

var silent = slog.New(slog.DiscardHandler)

// front lets callers reach a desk over a network. Its connections can be cut and it
// can be shut and opened again, as a dispatcher that restarts.
type front struct {
	t      testing.TB
	desk   *desk
	listen func() net.Listener
	tls    *tls.Config
	beat   time.Duration
	config Config // of callers

	stop func()

	mu    sync.Mutex
	conns []*transport.Conn
	ends  []error // of connections, in the order of their ends
}

// open starts to serve.
func (f *front) open() {
	ctx, cancel := context.WithCancel(context.Background())
	l := f.listen()
	done := make(chan struct{})
	f.stop = sync.OnceFunc(func() {
		cancel()
		<-done
	})
	go func() {
		defer close(done)
		cfg := transport.ServeConfig{TLS: f.tls, Logger: silent, Protocols: map[string]transport.Role{transport.ProtocolCall: transport.RoleCaller}}
		if err := transport.Serve(ctx, l, cfg, f.serve); err != nil {
			f.t.Error(err)
		}
	}()
}

func (f *front) serve(ctx context.Context, conn *transport.Conn) {
	f.mu.Lock()
	f.conns = append(f.conns, conn)
	f.mu.Unlock()
	err := dispatcher.ServeCaller(ctx, conn, f.desk.service(), dispatcher.CallerConfig{Heartbeat: f.beat, Logger: silent})
	f.mu.Lock()
	f.ends = append(f.ends, err)
	f.mu.Unlock()
}

// cut ends all connections.
func (f *front) cut() {
	f.mu.Lock()
	conns := f.conns
	f.conns = nil
	f.mu.Unlock()
	for _, c := range conns {
		_ = c.Close()
	}
}

// connections returns how many connections there were since the last cut.
func (f *front) connections() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.conns)
}

// dial returns a Caller of the front.
func (f *front) dial() *harp.Caller {
	f.t.Helper()
	c, err := Dial(f.t.Context(), "dispatcher:7440", f.config)
	if err != nil {
		f.t.Fatal(err)
	}
	return c
}

// memoryFront is a front on a network in memory.
func memoryFront(t testing.TB, d *desk) *front {
	n := memnet.New()
	f := &front{t: t, desk: d, config: Config{Logger: silent, Dial: n.Dialer(callerID)}}
	f.listen = func() net.Listener {
		l, err := n.Listen("dispatcher:7440", dispatcherID)
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	f.open()
	return f
}

// tlsFront is a front on loopback.
func tlsFront(t testing.TB, d *desk) *front {
	ca, err := devca.Open("", "test")
	if err != nil {
		t.Fatal(err)
	}
	f := &front{t: t, desk: d, tls: certificate(t, ca, dispatcherID)}
	addr := "127.0.0.1:0"
	f.listen = func() net.Listener {
		l, err := net.Listen("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		addr = l.Addr().String()
		return l
	}
	f.open()
	f.config = Config{
		Logger: silent, TLS: certificate(t, ca, callerID),
		Dial: func(ctx context.Context, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "tcp", addr)
		},
	}
	return f
}

func certificate(t testing.TB, ca *devca.CA, id transport.Identity) *tls.Config {
	t.Helper()
	c, err := ca.TLS(id)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// everywhere runs a test with a Caller in the same process, over memory and over TLS:
// what a user sees is the same. In memory time is virtual.
func everywhere(t *testing.T, body func(t *testing.T, d *desk, caller *harp.Caller)) {
	t.Run("embedded", func(t *testing.T) {
		f := newFake()
		defer f.Close()
		body(t, f.desk, harp.NewCaller(f))
	})
	over := func(t *testing.T, make func(testing.TB, *desk) *front) {
		d := newDesk()
		f := make(t, d)
		defer f.stop()
		caller := f.dial()
		defer caller.Close()
		body(t, d, caller)
	}
	t.Run("memory", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) { over(t, memoryFront) })
	})
	t.Run("tls", func(t *testing.T) { over(t, tlsFront) })
}

// inMemory runs a test with a front in memory, in virtual time.
func inMemory(t *testing.T, body func(t *testing.T, f *front)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		f := memoryFront(t, newDesk())
		defer func() { f.stop() }()
		body(t, f)
	})
}

// raw is a caller that speaks frames.
type raw struct {
	t       testing.TB
	session *transport.Session
	control *transport.Exchange
	welcome wire.Welcome
}

// rawCaller connects to a front and greets.
func rawCaller(t testing.TB, f *front) *raw {
	t.Helper()
	r := rawSession(t, f, transport.ProtocolCall, transport.RoleDispatcher)
	r.say(wire.TypeHello, wire.Hello{Version: wire.Version})
	got, err := r.control.Receive(t.Context())
	if err != nil || got.Type != wire.TypeWelcome {
		t.Fatal(got.Type, err)
	}
	if err := wire.Decode(got.Body, &r.welcome); err != nil {
		t.Fatal(err)
	}
	return r
}

func rawSession(t testing.TB, f *front, protocol string, role transport.Role) *raw {
	t.Helper()
	nc, err := f.config.Dial(t.Context(), "dispatcher:7440")
	if err != nil {
		t.Fatal(err)
	}
	conn, err := transport.Client(t.Context(), nc, f.config.TLS, protocol, role)
	if err != nil {
		t.Fatal(err)
	}
	s, err := conn.Opener(t.Context(), transport.Options{Logger: silent, MaxFrame: wire.MaxBody})
	if err != nil {
		t.Fatal(err)
	}
	go s.Serve(nil) //nolint:errcheck // it ends with the session
	return &raw{t: t, session: s, control: s.Control()}
}

func (r *raw) say(typ transport.Type, message any) {
	r.t.Helper()
	if err := r.control.Send(typ, false, wire.Encode(message)); err != nil {
		r.t.Fatal(err)
	}
}

// ask sends a request and returns its answer.
func (r *raw) ask(typ transport.Type, body []byte) transport.Frame {
	r.t.Helper()
	x, err := r.session.Exchange()
	if err != nil {
		r.t.Fatal(err)
	}
	defer x.Release()
	if err := x.Send(typ, true, body); err != nil {
		r.t.Fatal(err)
	}
	f, err := x.Receive(r.t.Context())
	if err != nil {
		r.t.Fatal(err)
	}
	if !f.End {
		r.t.Errorf("the answer to %d is not the end", typ)
	}
	return f
}
