package client

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/dispatcher"
	"github.com/harpcaller/harp/internal/failures"
	"github.com/harpcaller/harp/internal/version"
	"github.com/harpcaller/harp/internal/wire"
	"github.com/harpcaller/harp/transport"
	"github.com/harpcaller/harp/transport/devca"
	"github.com/harpcaller/harp/transport/memnet"
)

// TestDialStages: an attempt that fails says at which stage, and whether it is the
// network or the caller that must change.
func TestDialStages(t *testing.T) {
	ca, err := devca.Open("", "test")
	if err != nil {
		t.Fatal(err)
	}
	other, err := devca.Open("", "test")
	if err != nil {
		t.Fatal(err)
	}
	mine := certificate(t, ca, callerID)
	withRoots := func(leaf, roots *tls.Config) *tls.Config {
		c := leaf.Clone()
		c.RootCAs = roots.RootCAs
		return c
	}
	server := func(id transport.Identity, protocols map[string]transport.Role) func(t *testing.T) string {
		return func(t *testing.T) string {
			return listen(t, certificate(t, ca, id), protocols, func(ctx context.Context, c *transport.Conn) {
				_ = dispatcher.ServeCaller(ctx, c, newFake(), dispatcher.CallerConfig{Logger: silent})
			})
		}
	}
	callers := map[string]transport.Role{transport.ProtocolCall: transport.RoleCaller}
	upright := server(dispatcherID, callers)
	fails := func(err error) func(context.Context, string) (net.Conn, error) {
		return func(context.Context, string) (net.Conn, error) { return nil, err }
	}
	for _, c := range []struct {
		name   string
		server func(t *testing.T) string
		cfg    Config
		stage  string
		is     error
	}{
		{"no such name", nil, Config{Dial: fails(&net.OpError{Op: "dial", Net: "tcp", Err: &net.DNSError{Err: "no such host", Name: "x", IsNotFound: true}})}, "lookup", harp.ErrUnavailable},
		{"nobody listens", func(t *testing.T) string { return "127.0.0.1:1" }, Config{TLS: mine}, "dial", harp.ErrUnavailable},
		{"no TLS", garbage, Config{TLS: mine}, "tls", harp.ErrUnavailable},
		{"no authority", upright, Config{}, "auth", harp.ErrDenied},
		{"its authority is not mine", upright, Config{TLS: withRoots(mine, certificate(t, other, callerID))}, "auth", harp.ErrDenied},
		{"no TLS", upright, Config{}, "auth", harp.ErrDenied},
		{"another protocol", server(dispatcherID, map[string]transport.Role{transport.ProtocolAgent: transport.RoleAgent}), Config{TLS: mine}, "tls", harp.ErrUnavailable},
		{"it is an agent", server(agentID, callers), Config{TLS: mine}, "auth", harp.ErrDenied},
		{"I am an agent", upright, Config{TLS: certificate(t, ca, agentID)}, "auth", harp.ErrDenied},
		{"my authority is not its", upright, Config{TLS: withRoots(certificate(t, other, callerID), mine)}, "auth", harp.ErrDenied},
		{"no certificate", upright, Config{TLS: &tls.Config{RootCAs: mine.RootCAs}}, "auth", harp.ErrDenied},
	} {
		t.Run(c.name, func(t *testing.T) {
			addr := "nowhere"
			if c.server != nil {
				addr = c.server(t)
			}
			c.cfg.Logger = silent
			caller, err := Dial(t.Context(), addr, c.cfg)
			var host *harp.HostError
			if caller != nil || !errors.As(err, &host) {
				t.Fatal(caller, err)
			}
			if host.Host != addr || host.Stage != c.stage || !errors.Is(err, c.is) || errors.Is(err, harp.ErrUnavailable) == errors.Is(err, harp.ErrDenied) {
				t.Errorf("stage %s: %v", host.Stage, err)
			}
			if harp.RanOf(err) != harp.DidNotRun {
				t.Error(harp.RanOf(err))
			}
			t.Log(err)
		})
	}
	t.Run("no address", func(t *testing.T) {
		for _, addr := range []string{"", ":7440", "localhost:99999"} {
			_, err := Dial(t.Context(), addr, Config{TLS: mine, Logger: silent})
			_, direct := DialAgent(t.Context(), addr, Config{TLS: mine, Logger: silent})
			for _, err := range []error{err, direct} {
				var field *harp.FieldError
				if !errors.As(err, &field) || field.Field != "addr" {
					t.Errorf("%q: %v", addr, err)
				}
			}
		}
	})
	t.Run("all is well", func(t *testing.T) {
		caller, err := Dial(t.Context(), upright(t), Config{TLS: mine, Logger: silent})
		if err != nil {
			t.Fatal(err)
		}
		defer caller.Close()
		if _, err := caller.Ping(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// listen serves on loopback until the test ends and returns the address.
func listen(t *testing.T, tc *tls.Config, protocols map[string]transport.Role, handle func(context.Context, *transport.Conn)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = transport.Serve(ctx, l, transport.ServeConfig{TLS: tc, Logger: silent, Protocols: protocols}, handle)
	}()
	t.Cleanup(func() { cancel(); <-done })
	return l.Addr().String()
}

// garbage answers with bytes that are not TLS.
func garbage(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = c.Write([]byte("220 ready\r\n"))
			_ = c.Close()
		}
	}()
	t.Cleanup(func() { l.Close(); <-done })
	return l.Addr().String()
}

// TestDialAnswers: what may come instead of a welcome.
func TestDialAnswers(t *testing.T) {
	unwelcome := func(err error) transport.Frame {
		return transport.Frame{Type: wire.TypeUnwelcome, Body: wire.Encode(wire.Unwelcome{Failure: wire.NewFailed(err).Failure})}
	}
	for _, c := range []struct {
		name   string
		answer *transport.Frame
		is     error
		not    error
		after  time.Duration
	}{
		{"denied", ptr(unwelcome(failures.New("denied", "not you").Err())), harp.ErrDenied, harp.ErrUnavailable, 0},
		{"refused", ptr(unwelcome(failures.New("refused", "version").Err())), harp.ErrUnavailable, harp.ErrDenied, 0},
		{"busy", ptr(unwelcome(harp.ErrUnavailable)), harp.ErrUnavailable, harp.ErrDenied, 0},
		{"no failure", ptr(unwelcome(nil)), harp.ErrUnavailable, harp.ErrDenied, 0},
		{"unreadable failure", &transport.Frame{Type: wire.TypeUnwelcome, Body: []byte{5}}, harp.ErrUnavailable, harp.ErrDenied, 0},
		{"unreadable welcome", &transport.Frame{Type: wire.TypeWelcome, Body: []byte{5}}, harp.ErrUnavailable, harp.ErrDenied, 0},
		{"other version", &transport.Frame{Type: wire.TypeWelcome, Body: wire.Encode(wire.Welcome{Version: wire.Version + 1})}, harp.ErrUnavailable, harp.ErrDenied, 0},
		{"other frame", &transport.Frame{Type: wire.TypeReady}, harp.ErrUnavailable, harp.ErrDenied, 0},
		{"silence", nil, harp.ErrUnavailable, harp.ErrDenied, dialTime},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := memnet.New()
				stop := answering(t, n, c.answer)
				defer stop()
				start := time.Now()
				_, err := Dial(t.Context(), "dispatcher", Config{Logger: silent, Dial: n.Dialer(callerID), Token: "secret"})
				var host *harp.HostError
				if !errors.As(err, &host) || host.Stage != "auth" || !errors.Is(err, c.is) || errors.Is(err, c.not) {
					t.Errorf("%v", err)
				}
				if took := time.Since(start); took != c.after {
					t.Errorf("took %v", took)
				}
				t.Log(err)
			})
		})
	}
}

// TestDialRefusedAtOnce: who is refused hears why, even if the session has ended before
// the sending of hello returned.
func TestDialRefusedAtOnce(t *testing.T) {
	ca, err := devca.Open("", "test")
	if err != nil {
		t.Fatal(err)
	}
	refusal := wire.Encode(wire.Unwelcome{Failure: failures.New("denied", "not you").Err()})
	addr := listen(t, certificate(t, ca, dispatcherID), map[string]transport.Role{transport.ProtocolCall: transport.RoleCaller},
		func(ctx context.Context, conn *transport.Conn) {
			s, err := conn.Acceptor(ctx, transport.Options{Logger: silent})
			if err != nil {
				return
			}
			go s.Serve(nil) //nolint:errcheck // it ends with the session
			defer s.Close(nil)
			c := s.Control()
			if _, err := c.Receive(ctx); err == nil {
				_ = c.Send(wire.TypeUnwelcome, false, refusal)
			}
		})
	for range 50 {
		if _, err := Dial(t.Context(), addr, Config{Logger: silent, TLS: certificate(t, ca, callerID)}); !errors.Is(err, harp.ErrDenied) {
			t.Fatal(err)
		}
	}
}

func ptr[T any](v T) *T { return &v }

// answering is a dispatcher that hears one hello and answers with a frame, or not.
func answering(t *testing.T, n *memnet.Network, answer *transport.Frame) (stop func()) {
	l, err := n.Listen("dispatcher", dispatcherID)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		nc, err := l.Accept()
		if err != nil {
			return
		}
		conn, err := transport.Server(t.Context(), nc, nil, map[string]transport.Role{transport.ProtocolCall: transport.RoleCaller})
		if err != nil {
			t.Error(err)
			return
		}
		s, err := conn.Acceptor(t.Context(), transport.Options{Logger: silent, MaxFrame: wire.MaxBody})
		if err != nil {
			t.Error(err)
			return
		}
		go s.Serve(nil) //nolint:errcheck // it ends with the session
		defer s.Close(nil)
		c := s.Control()
		f, err := c.Receive(t.Context())
		var hello wire.Hello
		if err != nil || wire.Decode(f.Body, &hello) != nil || hello.Version != wire.Version || hello.Token != "secret" || harp.CheckID(hello.Instance) != nil || hello.Software != version.Software() {
			t.Errorf("hello %+v: %v", hello, err)
		}
		if answer != nil {
			_ = c.Send(answer.Type, false, answer.Body)
		}
		<-s.Done()
	}()
	return func() { l.Close(); <-done }
}

// TestDialCtx: ctx bounds dialling.
func TestDialCtx(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := memnet.New()
		stop := answering(t, n, nil)
		defer stop()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := Dial(ctx, "dispatcher", Config{Logger: silent, Dial: n.Dialer(callerID), Token: "secret"})
		if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, harp.ErrUnavailable) {
			t.Error(err)
		}
	})
}

// TestPorts: the port is added where there is none.
func TestPorts(t *testing.T) {
	for in, want := range map[string]string{
		"harp.example":       "harp.example:7440",
		"harp.example:1":     "harp.example:1",
		"10.0.0.1":           "10.0.0.1:7440",
		"::1":                "[::1]:7440",
		"[::1]":              "[::1]:7440",
		"[::1]:1":            "[::1]:1",
		"fe80::1%eth0":       "[fe80::1%eth0]:7440",
		"harp.example:https": "harp.example:https",
		"":                   ":7440",
	} {
		if got := wire.WithPort(in, wire.DispatcherPort); got != want {
			t.Errorf("%q: got %q, want %q", in, got, want)
		}
	}
}

// TestRevoked: a caller that is not let in any more goes on asking to be, says why
// requests fail, and is back when it is let in again.
func TestRevoked(t *testing.T) {
	inMemory(t, func(t *testing.T, f *front) {
		caller := f.dial()
		defer caller.Close()
		f.desk.failing("Ping", failures.New("denied", "revoked").Err())
		f.cut()
		if _, err := caller.Job(harp.NewID()).Status(t.Context()); !errors.Is(err, harp.ErrDenied) {
			t.Error(err)
		}
		f.desk.failing("Ping", nil)
		if _, err := caller.Ping(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// TestCloseWaitsForTheReader: what is heard is taken in while somebody closes, and not after.
func TestCloseWaitsForTheReader(t *testing.T) {
	closing := func(t *testing.T, s *session, closes func() error) {
		reads := make(chan struct{})
		s.reading.Go(func() { <-reads })
		closed := make(chan struct{})
		go func() {
			defer close(closed)
			if err := closes(); err != nil {
				t.Error(err)
			}
		}()
		synctest.Wait()
		select {
		case <-closed:
			t.Error("closed, and it still reads")
		default:
		}
		close(reads)
		<-closed
	}
	t.Run("agent", func(t *testing.T) {
		directInMemory(t, nil, func(t *testing.T, _ *agentFront, a *DirectHost) { closing(t, a.session, a.Close) })
	})
	t.Run("dispatcher", func(t *testing.T) {
		inMemory(t, func(t *testing.T, f *front) {
			d := dialer{addr: "dispatcher:7440", cfg: f.config.withDefaults(wire.DispatcherPort), protocol: transport.ProtocolCall, role: transport.RoleDispatcher, noAnswer: harp.ErrUnavailable}
			r := newRemote(d, must(d.openSession(t.Context())))
			closing(t, must(r.reconnector.awaitSession(t.Context(), 0)), r.Close)
		})
	})
}
