package transport_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/harpcaller/harp/transport"
	"github.com/harpcaller/harp/transport/memnet"
)

// served is a running Serve.
type served struct {
	addr   string
	log    logged
	cancel context.CancelFunc
	done   chan error
}

// startServe serves l until the end of the test.
func startServe(t *testing.T, l net.Listener, cfg transport.ServeConfig, handle func(context.Context, *transport.Conn)) *served {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	s := &served{addr: l.Addr().String(), cancel: cancel, done: make(chan error, 1)}
	cfg.Logger = s.log.logger()
	if cfg.Protocols == nil {
		cfg.Protocols = allowAgents
	}
	go func() { s.done <- transport.Serve(ctx, l, cfg, handle) }()
	t.Cleanup(s.stop)
	return s
}

// stop ends Serve, which must return nil.
func (s *served) stop() {
	s.cancel()
	if err, ok := <-s.done; ok {
		close(s.done)
		if err != nil {
			panic(err)
		}
	}
}

func listen(t *testing.T) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// echoSessions serves every connection with echo.
func echoSessions(ctx context.Context, c *transport.Conn) {
	s, err := c.Acceptor(ctx, transport.Options{})
	if err != nil {
		return
	}
	stop := context.AfterFunc(ctx, func() { s.Close(ctx.Err()) })
	defer stop()
	_ = s.Serve(echo)
}

// call dials, makes a session and one exchange on it.
func call(ctx context.Context, nc net.Conn, config *tls.Config) error {
	c, err := transport.Client(ctx, nc, config, transport.ProtocolAgent, transport.RoleDispatcher)
	if err != nil {
		return err
	}
	defer c.Close()
	s, err := c.Opener(ctx, transport.Options{})
	if err != nil {
		return err
	}
	var reading sync.WaitGroup
	reading.Go(func() { _ = s.Serve(nil) })
	defer reading.Wait()
	defer s.Close(nil)
	return roundTrip(ctx, s)
}

func dial(t *testing.T, addr string) net.Conn {
	t.Helper()
	nc, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { nc.Close() })
	return nc
}

func TestServe(t *testing.T) {
	t.Run("tls", func(t *testing.T) {
		s := startServe(t, listen(t), transport.ServeConfig{TLS: tlsOf(t, dispatcherID)}, echoSessions)
		testServe(t, s, func() net.Conn { return dial(t, s.addr) }, tlsOf(t, agentID))
	})
	t.Run("memory", func(t *testing.T) {
		n := memnet.New()
		l, err := n.Listen("here", dispatcherID)
		if err != nil {
			t.Fatal(err)
		}
		s := startServe(t, l, transport.ServeConfig{}, echoSessions)
		testServe(t, s, func() net.Conn {
			nc, err := n.Dialer(agentID)(t.Context(), "here")
			if err != nil {
				t.Fatal(err)
			}
			return nc
		}, nil)
	})
}

func testServe(t *testing.T, s *served, dial func() net.Conn, config *tls.Config) {
	t.Helper()
	var wg sync.WaitGroup
	for range 20 {
		nc := dial()
		wg.Go(func() {
			if err := call(t.Context(), nc, config); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	s.stop()
	if lines := s.log.all(); len(lines) != 0 {
		t.Errorf("logged %q", lines)
	}
}

// Serve waits for its handlers, whose ctx it ends, and closes their connections.
func TestServeWaits(t *testing.T) {
	began := make(chan *transport.Conn)
	var returned atomic.Bool
	s := startServe(t, listen(t), transport.ServeConfig{TLS: tlsOf(t, dispatcherID)}, func(ctx context.Context, c *transport.Conn) {
		began <- c
		<-ctx.Done()
		returned.Store(true)
	})
	c, err := transport.Client(t.Context(), dial(t, s.addr), tlsOf(t, agentID), transport.ProtocolAgent, transport.RoleDispatcher)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	sc := <-began
	s.stop()
	if !returned.Load() {
		t.Error("Serve did not wait")
	}
	if _, err := sc.Acceptor(t.Context(), transport.Options{}); !errors.Is(err, transport.ErrSessionClosed) {
		t.Errorf("the connection is open: %v", err)
	}
}

// Each refused connection is one line, and no matter to the others.
func TestServeRefuses(t *testing.T) {
	s := startServe(t, listen(t), transport.ServeConfig{TLS: tlsOf(t, dispatcherID)}, echoSessions)
	strangers := newCerts(t)
	refused := []func(nc net.Conn){
		func(nc net.Conn) { write(nc, []byte("GET / HTTP/1.1\r\n\r\n")) },
		func(nc net.Conn) {
			_, err := transport.Client(t.Context(), nc, tlsOf(t, callerID), transport.ProtocolAgent, transport.RoleDispatcher)
			if !errors.Is(err, transport.ErrHandshake) {
				t.Errorf("a caller as an agent: %v", err)
			}
		},
		func(nc net.Conn) {
			config := strangers.leaf(t, agentID, nil)
			config.RootCAs = tlsOf(t, agentID).RootCAs
			_, err := transport.Client(t.Context(), nc, config, transport.ProtocolAgent, transport.RoleDispatcher)
			if !errors.Is(err, transport.ErrHandshake) {
				t.Errorf("a stranger: %v", err)
			}
		},
		func(nc net.Conn) { nc.(*net.TCPConn).CloseWrite() }, //nolint:errcheck // a test
	}
	for i, refuse := range refused {
		nc := dial(t, s.addr)
		refuse(nc)
		_, _ = io.Copy(io.Discard, nc) // until it is closed
		if err := call(t.Context(), dial(t, s.addr), tlsOf(t, agentID)); err != nil {
			t.Errorf("after refusal %d: %v", i, err)
		}
	}
	s.stop()
	lines := s.log.all()
	if n := refusals(lines); n != len(refused) || len(lines) != 2 {
		t.Errorf("logged %d refusals in %d lines: %q", n, len(lines), lines)
	}
	for _, line := range lines {
		if !strings.Contains(line, "connection refused") || !strings.Contains(line, "addr=127.0.0.1:") {
			t.Errorf("logged %q", line)
		}
	}
}

// refusals is how many connections were refused, by what was logged.
func refusals(lines []string) int {
	n := 0
	for _, line := range lines {
		times := 1
		if _, text, ok := strings.Cut(line, "times="); ok {
			times, _ = strconv.Atoi(strings.TrimSpace(text))
		}
		n += times
	}
	return n
}

// Connections that send nothing take no turn, and the oldest make room for others.
func TestServeSilentConnections(t *testing.T) {
	const limit, kept = 4, 34
	s := startServe(t, listen(t), transport.ServeConfig{TLS: tlsOf(t, dispatcherID), HandshakeLimit: limit, HandshakeRate: 1.5}, echoSessions)
	var silent []net.Conn
	for i := range kept + 8 {
		silent = append(silent, dial(t, s.addr))
		if i%10 == 9 {
			if err := call(t.Context(), dial(t, s.addr), tlsOf(t, agentID)); err != nil {
				t.Fatalf("beside %d silent connections: %v", i, err)
			}
		}
	}
	for _, nc := range silent[:8] {
		_, _ = io.Copy(io.Discard, nc) // until it is closed
	}
	s.stop()
	if lines := s.log.all(); refusals(lines) < 8 || !strings.Contains(lines[0], "too many connections that say nothing") {
		t.Errorf("logged %q", lines)
	}
}

// memoryServer returns a listener in memory and what dials it as an agent of that name.
func memoryServer(t *testing.T) (net.Listener, func(name string) net.Conn) {
	t.Helper()
	n := memnet.New()
	l, err := n.Listen("here", dispatcherID)
	if err != nil {
		t.Fatal(err)
	}
	return l, func(name string) net.Conn {
		t.Helper()
		id := agentID
		id.Name = name
		nc, err := n.Dialer(id)(t.Context(), "here")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = nc.Close() })
		return nc
	}
}

// A handshake that is not gone on with ends after 2 s. Those of one network have
// half of the turns.
func TestServeStalledHandshakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, dial := memoryServer(t)
		s := startServe(t, l, transport.ServeConfig{HandshakeLimit: 8}, echoSessions)
		start := time.Now()
		dial("mallory")
		dial("mallory")
		time.Sleep(time.Second)
		if err := call(t.Context(), dial("alice"), nil); err != nil {
			t.Error(err)
		}
		if took := time.Since(start); took != time.Second {
			t.Errorf("another address had to wait until %v", took)
		}
		if err := call(t.Context(), dial("mallory"), nil); err != nil {
			t.Error(err)
		}
		if took := time.Since(start); took != 2*time.Second {
			t.Errorf("the same address had to wait until %v", took)
		}
		time.Sleep(time.Second) // the other's time is up at the same instant
		s.stop()
		if lines := s.log.all(); len(lines) != 2 {
			t.Errorf("logged %q", lines)
		}
	})
}

// A connection that has waited for 8 s is refused: its handshake would not be over in
// time either.
func TestServeLongWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, dial := memoryServer(t)
		s := startServe(t, l, transport.ServeConfig{HandshakeLimit: 1, HandshakeRate: 0.1}, echoSessions)
		dial("mallory") // has its turn, the only one for 10 s
		synctest.Wait()
		start := time.Now()
		if err := call(t.Context(), dial("alice"), nil); err == nil {
			t.Error("served without a turn")
		}
		if took := time.Since(start); took != 8*time.Second {
			t.Errorf("refused after %v", took)
		}
		synctest.Wait()
		if lines := s.log.all(); len(lines) != 2 || !strings.Contains(lines[1], "too many handshakes") {
			t.Errorf("logged %q", lines)
		}
		time.Sleep(2 * time.Second)
		if err := call(t.Context(), dial("alice"), nil); err != nil {
			t.Errorf("after the first one's turn: %v", err)
		}
		s.stop()
	})
}

// Connections that would have to wait for long are refused at once; one address
// takes at most half of the room.
func TestServeCrowd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, dial := memoryServer(t)
		s := startServe(t, l, transport.ServeConfig{HandshakeLimit: 1, HandshakeRate: 0.5}, echoSessions) // and 16 that wait
		for range 10 {
			dial("mallory") // two too many
		}
		for i := range 10 {
			dial(fmt.Sprint("host", i)) // one too many
		}
		synctest.Wait()
		s.stop()
		lines := s.log.all()
		for _, line := range lines {
			if !strings.Contains(line, "too many handshakes") {
				t.Errorf("logged %q", line)
			}
		}
		if n := refusals(lines); n != 3 || len(lines) != 3 {
			t.Errorf("%d connections were refused: %q", n, lines)
		}
	})
}

// TestServeStrangersCrowd checks that strangers, however many and from however many
// networks, do not keep those waiting that were greeted before.
func TestServeStrangersCrowd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, dial := memoryServer(t)
		s := startServe(t, l, transport.ServeConfig{HandshakeLimit: 4, HandshakeRate: 10}, echoSessions)
		if err := call(t.Context(), dial("alice"), nil); err != nil {
			t.Fatal(err)
		}
		for i := range 200 {
			dial(fmt.Sprint("mallory", i)) // and says nothing more
		}
		synctest.Wait()
		start := time.Now()
		if err := call(t.Context(), dial("alice"), nil); err != nil {
			t.Error(err)
		}
		if took := time.Since(start); took > 100*time.Millisecond {
			t.Errorf("waited %v", took)
		}
		s.stop()
	})
}

// As many may wait as the rate lets have their turn in 20 s.
func TestServeCrowdAtFullRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := memnet.New()
		l, err := n.Listen("here", dispatcherID)
		if err != nil {
			t.Fatal(err)
		}
		s := startServe(t, l, transport.ServeConfig{HandshakeLimit: 1, HandshakeRate: 3}, echoSessions) // and 60 that wait
		for i := range 63 {
			id := agentID
			id.Name = fmt.Sprint("host", i)
			nc, err := n.Dialer(id)(t.Context(), "here")
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = nc.Close() })
		}
		synctest.Wait()
		if lines := s.log.all(); len(lines) != 2 {
			t.Errorf("%d connections were refused: %q", len(lines), lines)
		}
	})
}

func TestServeRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := memnet.New()
		l, err := n.Listen("here", dispatcherID)
		if err != nil {
			t.Fatal(err)
		}
		s := startServe(t, l, transport.ServeConfig{HandshakeRate: 10, HandshakeLimit: 10}, echoSessions)
		start := time.Now()
		var wg sync.WaitGroup
		for i := range 55 {
			wg.Go(func() {
				id := agentID
				id.Name = fmt.Sprint("host", i)
				nc, err := n.Dialer(id)(t.Context(), "here")
				if err == nil {
					err = call(t.Context(), nc, nil)
				}
				if err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if took := time.Since(start).Round(10 * time.Millisecond); took != 5*time.Second {
			t.Errorf("50 handshakes above the burst took %v", took)
		}
		s.stop()
	})
}

// flakyListener fails to accept as often as errs says.
type flakyListener struct {
	net.Listener
	errs chan error
}

func (l *flakyListener) Accept() (net.Conn, error) {
	select {
	case err := <-l.errs:
		return nil, err
	default:
		return l.Listener.Accept()
	}
}

func TestServeGoesOnTrying(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := memnet.New()
		inner, err := n.Listen("here", dispatcherID)
		if err != nil {
			t.Fatal(err)
		}
		l := &flakyListener{Listener: inner, errs: make(chan error, 10)}
		for range 10 {
			l.errs <- &net.OpError{Op: "accept", Err: fmt.Errorf("no luck: %w", syscall.EMFILE)}
		}
		start := time.Now()
		s := startServe(t, l, transport.ServeConfig{}, echoSessions)
		nc, err := n.Dialer(agentID)(t.Context(), "here")
		if err != nil {
			t.Fatal(err)
		}
		if err := call(t.Context(), nc, nil); err != nil {
			t.Error(err)
		}
		if took := time.Since(start); took < 3*time.Second || took > 4*time.Second {
			t.Errorf("10 failures took %v", took)
		}
		s.stop()
	})
}

func TestServeListenerFails(t *testing.T) {
	l := listen(t)
	done := make(chan error, 1)
	go func() {
		done <- transport.Serve(t.Context(), l, transport.ServeConfig{TLS: tlsOf(t, dispatcherID)}, echoSessions)
	}()
	_ = l.Close()
	if err := <-done; !errors.Is(err, net.ErrClosed) {
		t.Errorf("Serve: %v", err)
	}
}
