package transport_test

import (
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"sync"
	"testing"

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

// wiring is one way to connect a dispatcher, which opens, with an agent.
type wiring struct {
	name        string
	memory      bool
	openerDials bool
}

var wirings = []wiring{
	{name: "memory/opener dials", memory: true, openerDials: true},
	{name: "memory/acceptor dials", memory: true},
	{name: "tls/opener dials", openerDials: true},
	{name: "tls/acceptor dials"},
}

// eachWiring runs one test body over every wiring.
func eachWiring(t *testing.T, body func(t *testing.T, w wiring)) {
	for _, w := range wirings {
		t.Run(w.name, func(t *testing.T) { body(t, w) })
	}
}

// ends are the two ends of a session.
type ends struct {
	opener, acceptor *transport.Session
}

// connect makes a session. It is closed at the end of the test.
func (w wiring) connect(t testing.TB, opener, acceptor transport.Options) ends {
	t.Helper()
	oc, ac := w.conns(t)
	var e ends
	var err error
	if e.opener, err = oc.Opener(t.Context(), quiet(opener)); err != nil {
		t.Fatal(err)
	}
	if e.acceptor, err = ac.Acceptor(t.Context(), quiet(acceptor)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		e.opener.Close(nil)
		e.acceptor.Close(nil)
	})
	return e
}

func quiet(o transport.Options) transport.Options {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o
}

// conns returns both ends of a connection, the opener's first.
func (w wiring) conns(t testing.TB) (opener, acceptor *transport.Conn) {
	t.Helper()
	client, server := agentID, dispatcherID
	if w.openerDials {
		client, server = dispatcherID, agentID
	}
	cc, sc, err := w.shake(t, client, server, transport.ProtocolAgent, server.Role, map[string]transport.Role{
		transport.ProtocolAgent: client.Role,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cc.Close()
		_ = sc.Close()
	})
	if w.openerDials {
		return cc, sc
	}
	return sc, cc
}

// shake makes a handshake and returns the client's error, else the server's.
func (w wiring) shake(
	t testing.TB, client, server transport.Identity, protocol string, want transport.Role, allow map[string]transport.Role,
) (cc, sc *transport.Conn, err error) {
	t.Helper()
	nc, ns := w.pipe(t, client, server)
	type result struct {
		conn *transport.Conn
		err  error
	}
	served := make(chan result, 1)
	go func() {
		c, err := transport.Server(t.Context(), ns, w.tls(t, server), allow)
		served <- result{c, err}
	}()
	cc, err = transport.Client(t.Context(), nc, w.tls(t, client), protocol, want)
	r := <-served
	if err == nil {
		err = r.err
	}
	return cc, r.conn, err
}

func (w wiring) tls(t testing.TB, id transport.Identity) *tls.Config {
	t.Helper()
	if w.memory {
		return nil
	}
	return tlsOf(t, id)
}

var testCA = func() *devca.CA {
	ca, err := devca.Open("", fleet)
	if err != nil {
		panic(err)
	}
	return ca
}()

func tlsOf(t testing.TB, id transport.Identity) *tls.Config {
	t.Helper()
	config, err := testCA.TLS(id)
	if err != nil {
		t.Fatal(err)
	}
	return config
}

// pipe returns both ends of a connection without a handshake.
func (w wiring) pipe(t testing.TB, client, server transport.Identity) (nc, ns net.Conn) {
	t.Helper()
	if !w.memory {
		return loopback(t)
	}
	network := memnet.New()
	l, err := network.Listen("there:1", server)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if nc, err = network.Dialer(client)(t.Context(), "there:1"); err != nil {
		t.Fatal(err)
	}
	if ns, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	return nc, ns
}

// loopback returns both ends of a TCP connection.
func loopback(t testing.TB) (nc, ns net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if nc, err = net.Dial("tcp", l.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if ns, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = nc.Close()
		_ = ns.Close()
	})
	return nc, ns
}

// serve runs Serve at both ends until the session ends.
func (e ends) serve(t testing.TB, handle func(x *transport.Exchange, first transport.Frame)) {
	t.Helper()
	var served sync.WaitGroup
	served.Go(func() { e.acceptor.Serve(handle) }) //nolint:errcheck // the session's end
	served.Go(func() { e.opener.Serve(nil) })      //nolint:errcheck // the session's end
	t.Cleanup(func() {
		e.opener.Close(nil)
		e.acceptor.Close(nil)
		served.Wait()
	})
}

// echo answers every frame with itself.
func echo(x *transport.Exchange, f transport.Frame) {
	for {
		if x.Send(f.Type, f.End, f.Body) != nil {
			return
		}
		var err error
		if f, err = x.Receive(context.Background()); err != nil {
			return
		}
	}
}
