package client

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/failures"
	"github.com/harpcaller/harp/internal/wire"
	"github.com/harpcaller/harp/transport"
	"github.com/harpcaller/harp/transport/devca"
	"github.com/harpcaller/harp/transport/memnet"
)

// script is what a fake agent does with a call.
type script func(r *run)

// run is one call at a fake agent, which speaks frames.
type run struct {
	t    testing.TB
	ctx  context.Context // ends with the exchange
	x    *transport.Exchange
	call wire.Call
	req  harp.Request

	sent  int64         // records
	acked int64         // records
	bytes map[int64]int // of records, as the window counts them
	held  int           // bytes not acknowledged
}

// send sends a message. The caller may have gone, also because it has heard this one.
func (r *run) send(typ transport.Type, end bool, message any) {
	err := r.x.Send(typ, end, wire.Encode(message))
	if err != nil && !errors.Is(err, transport.ErrSessionClosed) && !errors.Is(err, io.ErrClosedPipe) {
		r.t.Error(err)
	}
}

func (r *run) started() { r.send(wire.TypeStarted, false, wire.Started{Time: 1}) }

// record sends a record as an agent does: when the window has room for it.
func (r *run) record(v any) bool {
	value := must(harp.NewValue(v))
	size := len(value) + 32
	for r.held > 0 && r.held+size > int(r.call.Window) {
		f, err := r.x.Receive(r.ctx)
		if err != nil || f.Type != wire.TypeAck {
			return false
		}
		r.heardAck(f)
	}
	r.send(wire.TypeRecords, false, wire.Records{First: r.sent, Records: []wire.Record{{Time: 5, Value: value}}})
	r.bytes[r.sent] = size
	r.held += size
	r.sent++
	return true
}

func (r *run) heardAck(f transport.Frame) {
	var ack wire.Ack
	if err := wire.Decode(f.Body, &ack); err != nil {
		r.t.Error(err)
	}
	if ack.Next < r.acked || ack.Next > r.sent || ack.End || ack.Window != r.call.Window {
		r.t.Errorf("ACK %+v after %d of %d", ack, r.acked, r.sent)
	}
	for ; r.acked < ack.Next; r.acked++ {
		r.held -= r.bytes[r.acked]
	}
}

// awaitCancel waits for CANCEL.
func (r *run) awaitCancel() bool {
	for {
		f, err := r.x.Receive(r.ctx)
		if err != nil {
			return false
		}
		if f.Type == wire.TypeCancel {
			return true
		}
	}
}

func (r *run) end(e wire.End) {
	e.Records = r.sent
	r.send(wire.TypeEnd, true, e)
}

func (r *run) value(v any) { r.end(wire.End{Value: must(harp.NewValue(v))}) }

// agentFront is a fake agent that listens.
type agentFront struct {
	t       testing.TB
	scripts map[string]script
	config  Config // of direct callers
	stop    func()

	mu    sync.Mutex
	conns []*transport.Conn
	over  int // runs that have returned
}

func (f *agentFront) serve(ctx context.Context, conn *transport.Conn) {
	f.mu.Lock()
	f.conns = append(f.conns, conn)
	f.mu.Unlock()
	s, err := conn.Acceptor(ctx, transport.Options{Logger: silent, MaxFrame: wire.MaxBody})
	if err != nil {
		f.t.Error(err)
		return
	}
	var answering sync.WaitGroup
	answering.Go(func() { _ = s.Serve(f.run) }) // it ends with the session
	defer answering.Wait()
	defer s.Close(nil)
	c := s.Control()
	hello, err := c.Receive(ctx)
	if err != nil || hello.Type != wire.TypeHello {
		f.t.Error(hello.Type, err)
		return
	}
	_ = c.Send(wire.TypeWelcome, false, wire.Encode(wire.Welcome{Version: wire.Version, Software: "fake/1", Heartbeat: 10e9}))
	s.Beat(10 * time.Second)
	select {
	case <-ctx.Done():
	case <-s.Done():
	}
}

func (f *agentFront) run(x *transport.Exchange, first transport.Frame) {
	defer func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.over++
	}()
	r := &run{t: f.t, ctx: x.Context(), x: x, bytes: map[int64]int{}}
	if err := wire.Decode(first.Body, &r.call); err != nil || first.Type != wire.TypeCall || first.End {
		f.t.Error(first.Type, err)
		return
	}
	var err error
	if r.req, err = harp.DecodeRequest(r.call.Request); err != nil {
		f.t.Error(err)
		return
	}
	do := f.scripts[r.req.Procedure]
	if do == nil {
		failure := failures.New("rejected_not_found", "no such procedure: "+r.req.Procedure)
		r.send(wire.TypeRefused, true, wire.Refused{Failure: failure.Err()})
		return
	}
	do(r)
}

// cut ends all connections.
func (f *agentFront) cut() {
	f.mu.Lock()
	conns := f.conns
	f.conns = nil
	f.mu.Unlock()
	for _, c := range conns {
		_ = c.Close()
	}
}

func (f *agentFront) open(l net.Listener, cfg transport.ServeConfig) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	cfg.Logger, cfg.Protocols = silent, map[string]transport.Role{transport.ProtocolDirect: transport.RoleCaller}
	go func() {
		defer close(done)
		if err := transport.Serve(ctx, l, cfg, f.serve); err != nil {
			f.t.Error(err)
		}
	}()
	f.stop = func() { cancel(); <-done }
}

func memoryAgent(t testing.TB, scripts map[string]script) *agentFront {
	n := memnet.New()
	l, err := n.Listen("web01", agentID)
	if err != nil {
		t.Fatal(err)
	}
	f := &agentFront{t: t, scripts: scripts, config: Config{Logger: silent, Dial: n.Dialer(callerID)}}
	f.open(l, transport.ServeConfig{})
	return f
}

func tlsAgent(t testing.TB, scripts map[string]script) *agentFront {
	ca, err := devca.Open("", "test")
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f := &agentFront{t: t, scripts: scripts, config: Config{Logger: silent, TLS: certificate(t, ca, callerID)}}
	f.config.Dial = func(ctx context.Context, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "tcp", l.Addr().String())
	}
	f.open(l, transport.ServeConfig{TLS: certificate(t, ca, agentID)})
	return f
}

// directly runs a test with a fake agent in memory and over TLS.
func directly(t *testing.T, scripts map[string]script, body func(t *testing.T, f *agentFront, a *DirectHost)) {
	over := func(t *testing.T, make func(testing.TB, map[string]script) *agentFront) {
		f := make(t, scripts)
		defer f.stop()
		a, err := DialAgent(t.Context(), "web01", f.config)
		if err != nil {
			t.Fatal(err)
		}
		defer a.Close()
		body(t, f, a)
	}
	t.Run("memory", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) { over(t, memoryAgent) })
	})
	t.Run("tls", func(t *testing.T) { over(t, tlsAgent) })
}

// directInMemory runs a test with a fake agent in virtual time.
func directInMemory(t *testing.T, scripts map[string]script, body func(t *testing.T, f *agentFront, a *DirectHost)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		f := memoryAgent(t, scripts)
		defer f.stop()
		a, err := DialAgent(t.Context(), "web01", f.config)
		if err != nil {
			t.Fatal(err)
		}
		defer a.Close()
		body(t, f, a)
	})
}

func mustCall(t testing.TB) func(c *DirectCall, err error) *DirectCall {
	return func(c *DirectCall, err error) *DirectCall {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
}

// counting sends n records and returns n.
func counting(n int) script {
	return func(r *run) {
		r.started()
		for i := range n {
			if !r.record(i) {
				return
			}
		}
		r.value(n)
	}
}
