package harp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/harpcaller/harp/internal/wire"
	"github.com/harpcaller/harp/transport"
	"github.com/harpcaller/harp/transport/devca"
)

// script is what a fake agent does with a call.
type script func(r *run)

// run is one call at a fake agent, which speaks frames.
type run struct {
	t    testing.TB
	ctx  context.Context // ends with the lane
	x    *transport.Exchange
	call wire.Call
	req  Request

	sent  int64         // records
	acked int64         // records
	bytes map[int64]int // of records, as the window counts them
	held  int           // bytes not acknowledged
}

func (r *run) send(typ transport.Type, end bool, message any) {
	if err := r.x.Send(typ, end, wire.Encode(message)); err != nil && r.ctx.Err() == nil {
		r.t.Error(err)
	}
}

func (r *run) started() { r.send(wire.TypeStarted, false, wire.Started{Time: 1}) }

// record sends a record as an agent does: when the window has room for it.
func (r *run) record(v any) bool {
	value := mustValue(r.t, v)
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

func (r *run) value(v any) { r.end(wire.End{Value: mustValue(r.t, v)}) }

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
	s, err := conn.Acceptor(transport.Options{Logger: silent, MaxFrame: wire.MaxBody})
	if err != nil {
		f.t.Error(err)
		return
	}
	defer s.Close(nil)
	c, err := s.Control(ctx)
	if err != nil {
		f.t.Error(err)
		return
	}
	hello, err := c.Receive(ctx)
	if err != nil || hello.Type != wire.TypeHello {
		f.t.Error(hello.Type, err)
		return
	}
	_ = c.Send(transport.Frame{Type: wire.TypeWelcome, Body: wire.Encode(wire.Welcome{Version: wire.Version, Software: "fake/1", Heartbeat: 10e9})})
	c.Beat(10 * time.Second)
	_ = s.Serve(ctx, f.run)
}

func (f *agentFront) run(ctx context.Context, x *transport.Exchange, first transport.Frame) {
	defer func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.over++
	}()
	r := &run{t: f.t, ctx: ctx, x: x, bytes: map[int64]int{}}
	if err := wire.Decode(first.Body, &r.call); err != nil || first.Type != wire.TypeCall || first.End {
		f.t.Error(first.Type, err)
		return
	}
	var err error
	if r.req, err = DecodeRequest(r.call.Request); err != nil {
		f.t.Error(err)
		return
	}
	do := f.scripts[r.req.Procedure]
	if do == nil {
		failure := NewFailure("rejected_not_found", "no such procedure: "+r.req.Procedure)
		r.send(wire.TypeRefused, true, wire.Refused{Failure: wire.Encode(failure)})
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
	n := transport.NewNetwork()
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
func directly(t *testing.T, scripts map[string]script, body func(t *testing.T, f *agentFront, a *Agent)) {
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
func directInMemory(t *testing.T, scripts map[string]script, body func(t *testing.T, f *agentFront, a *Agent)) {
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

// TestDirect: a direct call gives its records and its value, in whatever order they
// are asked for.
func TestDirect(t *testing.T) {
	const n = 20
	directly(t, map[string]script{"count": counting(n)}, func(t *testing.T, _ *agentFront, a *Agent) {
		if a.Host() != "web01" {
			t.Error(a.Host())
		}
		for range 3 {
			c := mustCall(t)(a.Call(t.Context(), "count", nil))
			var got []uint64
			for r, err := range c.Records() {
				if err != nil {
					t.Fatal(err)
				}
				var i uint64
				if err := r.Value.Decode(&i); err != nil || i != r.Seq || r.Attempt != 1 || r.Kind != KindData || !r.Time.Equal(time.Unix(0, 5)) {
					t.Error(r, err)
				}
				got = append(got, r.Seq)
			}
			if !slices.Equal(got, numbers(0, n)) {
				t.Error(got)
			}
			for range 2 {
				if v, err := c.Get(); err != nil || v.String() != "20" {
					t.Error(v, err)
				}
			}
			for r, err := range c.Records() {
				t.Error("a record twice:", r, err)
			}
			if v, err := mustCall(t)(a.Call(t.Context(), "count", nil)).Get(); err != nil || v.String() != "20" {
				t.Error(v, err)
			}
		}
	})
}

// TestDirectRequest: the request an agent gets is the caller's, for its own host, with
// the limits that were asked for.
func TestDirectRequest(t *testing.T) {
	var got wire.Call
	var req Request
	scripts := map[string]script{"p": func(r *run) {
		got, req = r.call, r.req
		r.value(nil)
	}}
	directly(t, scripts, func(t *testing.T, _ *agentFront, a *Agent) {
		id := NewID()
		c := mustCall(t)(a.Call(t.Context(), "p", Args{"a": 1}, JobID(id), Timeout(time.Second), MaxExecTime(time.Minute), Info("i"), Label("k", "v")))
		if v, err := c.Get(); err != nil || !v.IsNil() {
			t.Error(v, err)
		}
		if req.ID != id || req.Host != "web01" || req.Procedure != "p" || req.Args.String() != `{"a":1}` || req.Info.String() != `"i"` || req.Labels["k"] != "v" {
			t.Errorf("%+v", req)
		}
		if got.Attempt != 1 || got.Fence != 0 || got.Epoch != 0 || got.Timeout != int64(time.Second) || got.MaxExecTime != int64(time.Minute) || got.Window != wire.Window {
			t.Errorf("%+v", got)
		}
		if _, err := mustCall(t)(a.Call(t.Context(), "p", nil)).Get(); err != nil || got.Timeout != 0 || got.MaxExecTime != 0 {
			t.Errorf("%+v, %v", got, err)
		}
	})
}

// TestDirectInvalid: what only a dispatcher can heed is refused, as is what is wrong
// anyway; nothing is sent.
func TestDirectInvalid(t *testing.T) {
	scripts := map[string]script{"p": func(r *run) { r.t.Error("a call was sent") }}
	directInMemory(t, scripts, func(t *testing.T, _ *agentFront, a *Agent) {
		for field, opt := range map[string]Option{
			"queue":         Queue(Args{}),
			"concurrency":   Concurrency(1),
			"priority":      Priority(1),
			"start_after":   StartAfter(time.Now()),
			"start_before":  StartBefore(time.Now().Add(time.Hour)),
			"offline_wait":  OfflineWait(time.Second),
			"when_offline":  WhenOffline(FailFast),
			"timeout":       Timeout(-1),
			"max_exec_time": MaxExecTime(0),
		} {
			_, err := a.Call(t.Context(), "p", nil, opt)
			wantField(t, err, field)
			if RanOf(err) != DidNotRun {
				t.Error(field, RanOf(err))
			}
		}
		_, err := a.Call(t.Context(), "p", 5)
		wantField(t, err, "args")
	})
}

// TestDirectEnds: however a call ends, Get says so, with the same identity and content
// as over a dispatcher, and Records ends without an error.
func TestDirectEnds(t *testing.T) {
	ended := func(e wire.End) script {
		return func(r *run) {
			r.started()
			r.record(1)
			r.end(e)
		}
	}
	stopped := func(cause string) *wire.Stopping {
		return &wire.Stopping{Cause: cause, Limit: int64(time.Minute)}
	}
	for name, c := range map[string]struct {
		do      script
		is      error
		ran     Ran
		records int
		text    string
	}{
		"remote":      {ended(wire.End{Failure: wire.Encode(Failure{Code: codeRemote, Type: "t", Message: "m", Ran: DidRun, Fault: FaultProcedure})}), nil, DidRun, 1, "call p on web01: t: m; ran"},
		"value too":   {ended(wire.End{Value: Value{0xc3}, Failure: wire.Encode(NewFailure(codeRemote, "m"))}), nil, DidRun, 1, "call p on web01: m; ran"},
		"timeout":     {ended(wire.End{Value: Value{0xc3}, Stopped: stopped(wire.CauseTimeout)}), ErrTimeout, DidRun, 1, "call p on web01: no record for 1m0s (timeout); ran"},
		"max":         {ended(wire.End{Stopped: stopped(wire.CauseMaxExecTime)}), ErrTimeout, DidRun, 1, "call p on web01: ran longer than 1m0s (max_exec_time); ran"},
		"cancelled":   {ended(wire.End{Stopped: stopped(wire.CauseCancel)}), ErrCancelled, DidRun, 1, "call p on web01: cancelled; ran"},
		"dropped":     {ended(wire.End{Dropped: true}), ErrNoSpace, DidRun, 1, "call p on web01: refused by the dispatcher: no space left: the agent dropped the value; ran"},
		"gone":        {ended(wire.End{Gone: true}), ErrLost, DidRun, 1, ""},
		"last frame":  {func(r *run) { r.send(wire.TypeStarted, true, wire.Started{Time: 1}) }, ErrLost, DidRun, -1, ""},
		"refused":     {nil, ErrNotFound, DidNotRun, 0, "call p on web01: rejected by the agent: no such procedure: p; did not run"},
		"not now":     {func(r *run) { r.send(wire.TypeNotNow, true, wire.NotNow{Reason: wire.NotNowDraining}) }, ErrRejected, DidNotRun, 0, "call p on web01: rejected by the agent: it takes no call now (draining); did not run"},
		"bad refused": {func(r *run) { r.send(wire.TypeRefused, true, wire.Refused{Failure: []byte{5}}) }, ErrLost, MayHaveRun, -1, ""},
		"bad value":   {ended(wire.End{Value: []byte{0xc1}}), ErrLost, DidRun, -1, ""},
		"bad end":     {func(r *run) { _ = r.x.Send(wire.TypeEnd, true, []byte{5}) }, ErrLost, MayHaveRun, -1, ""},
		"bad records": {func(r *run) { _ = r.x.Send(wire.TypeRecords, false, []byte{5}); <-r.ctx.Done() }, ErrLost, MayHaveRun, -1, ""},
		"bad record": {func(r *run) {
			r.send(wire.TypeRecords, false, wire.Records{Records: []wire.Record{{Value: []byte{0xc1}}}})
			<-r.ctx.Done()
		}, ErrLost, DidRun, -1, ""},
		"gap": {func(r *run) {
			r.send(wire.TypeRecords, false, wire.Records{First: 1, Records: []wire.Record{{}}})
			<-r.ctx.Done()
		}, ErrLost, DidRun, -1, ""},
		"other frame": {func(r *run) { r.send(wire.TypeReady, false, wire.Ready{}); <-r.ctx.Done() }, ErrLost, MayHaveRun, -1, ""},
		"no end":      {func(r *run) { r.started() }, ErrLost, DidRun, -1, "call p on web01: outcome unknown at read (unexpected EOF); ran"},
		"flood": {func(r *run) {
			for i := range int64(100) {
				if r.x.Send(wire.TypeRecords, false, wire.Encode(wire.Records{First: i, Records: []wire.Record{{Value: make([]byte, wire.MaxRecord)}}})) != nil {
					break
				}
			}
			<-r.ctx.Done()
		}, ErrLost, DidRun, -1, ""},
	} {
		t.Run(name, func(t *testing.T) {
			directly(t, map[string]script{"p": c.do}, func(t *testing.T, _ *agentFront, a *Agent) {
				call := mustCall(t)(a.Call(t.Context(), "p", nil))
				if name == "flood" {
					<-call.ended // nobody reads
				}
				n := 0
				var last error
				for _, err := range call.Records() {
					if last = err; err == nil {
						n++
					}
				}
				if c.records >= 0 && (n != c.records || last != nil) || c.records < 0 && !errors.Is(last, ErrLost) {
					t.Errorf("%d records, %v", n, last)
				}
				v, err := call.Get()
				if v != nil || err == nil {
					t.Fatal(v, err)
				}
				if c.is != nil && !errors.Is(err, c.is) || RanOf(err) != c.ran {
					t.Errorf("%v, %s", err, RanOf(err))
				}
				if c.text != "" && err.Error() != c.text {
					t.Errorf("got %q, want %q", err, c.text)
				}
				if errors.Is(err, ErrInvalid) {
					t.Error("what the agent said wrong is blamed on the caller:", err)
				}
			})
		})
	}
}

// TestDirectCancel: here the end of ctx stops the call: the agent hears CANCEL and
// what it says then counts.
func TestDirectCancel(t *testing.T) {
	scripts := map[string]script{
		"hang": func(r *run) {
			r.started()
			if r.awaitCancel() {
				r.end(wire.End{Stopped: &wire.Stopping{Cause: wire.CauseCancel}})
			}
		},
		"finish": func(r *run) {
			r.started()
			if r.awaitCancel() {
				r.value("done all the same")
			}
		},
		"deaf": func(r *run) {
			r.started()
			<-r.ctx.Done()
		},
	}
	directly(t, scripts, func(t *testing.T, _ *agentFront, a *Agent) {
		ctx, cancel := context.WithCancel(t.Context())
		hang := mustCall(t)(a.Call(ctx, "hang", nil))
		finish := mustCall(t)(a.Call(ctx, "finish", nil))
		cancel()
		if _, err := hang.Get(); !errors.Is(err, ErrCancelled) || !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		for _, err := range hang.Records() {
			t.Error(err)
		}
		if v, err := finish.Get(); err != nil || v.String() != `"done all the same"` {
			t.Error(v, err)
		}
		if _, err := a.Call(ctx, "hang", nil); !errors.Is(err, context.Canceled) || !errors.Is(err, ErrCancelled) || RanOf(err) != DidNotRun {
			t.Error(err, RanOf(err))
		}
	})
	directInMemory(t, scripts, func(t *testing.T, f *agentFront, a *Agent) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		start := time.Now()
		deaf := mustCall(t)(a.Call(ctx, "deaf", nil))
		_, err := deaf.Get()
		if !errors.Is(err, ErrLost) || !errors.Is(err, context.DeadlineExceeded) || RanOf(err) != DidRun || time.Since(start) != time.Minute+stopGrace {
			t.Error(err, RanOf(err), time.Since(start))
		}
		synctest.Wait()
		if f.over != 1 {
			t.Error("the lane was not closed")
		}
		var last error
		for _, err := range deaf.Records() {
			last = err
		}
		if !errors.Is(last, ErrLost) {
			t.Error(last)
		}
	})
}

// TestDirectLost: a call whose connection is lost has an unknown outcome; the next is
// refused without having run.
func TestDirectLost(t *testing.T) {
	scripts := map[string]script{
		"before": func(r *run) { <-r.ctx.Done() },
		"after": func(r *run) {
			r.started()
			r.record("one")
			<-r.ctx.Done()
		},
	}
	directly(t, scripts, func(t *testing.T, f *agentFront, a *Agent) {
		before := mustCall(t)(a.Call(t.Context(), "before", nil))
		after := mustCall(t)(a.Call(t.Context(), "after", nil))
		n := 0
		for r, err := range after.Records() {
			if n++; n == 1 {
				if err != nil || r.Value.String() != `"one"` {
					t.Error(r, err)
				}
				f.cut()
			} else if !errors.Is(err, ErrLost) {
				t.Error(err)
			}
		}
		if n != 2 {
			t.Errorf("%d things were yielded", n)
		}
		if _, err := after.Get(); !errors.Is(err, ErrLost) || !errors.Is(err, io.ErrUnexpectedEOF) || RanOf(err) != DidRun || FaultOf(err) != FaultNetwork {
			t.Error(err, RanOf(err))
		}
		if _, err := before.Get(); !errors.Is(err, ErrLost) || RanOf(err) != MayHaveRun {
			t.Error(err, RanOf(err))
		}
		if _, err := a.Call(t.Context(), "before", nil); !errors.Is(err, ErrUnreachable) || RanOf(err) != DidNotRun {
			t.Error(err, RanOf(err))
		}
	})
}

// TestDirectClose: closing an Agent ends what waits in it.
func TestDirectClose(t *testing.T) {
	scripts := map[string]script{"hang": func(r *run) { r.started(); <-r.ctx.Done() }}
	directly(t, scripts, func(t *testing.T, _ *agentFront, a *Agent) {
		c := mustCall(t)(a.Call(t.Context(), "hang", nil))
		for range 2 {
			if err := a.Close(); err != nil {
				t.Error(err)
			}
		}
		if _, err := c.Get(); !errors.Is(err, ErrClosed) || !errors.Is(err, ErrLost) {
			t.Error(err)
		}
		if _, err := a.Call(t.Context(), "hang", nil); !errors.Is(err, ErrClosed) || RanOf(err) != DidNotRun {
			t.Error(err)
		}
	})
}

// TestBackpressure: an agent may be a window ahead of what is read, and no more; Get
// without a reader lets it go on.
func TestBackpressure(t *testing.T) {
	const size = 10_000
	const n = 10 * wire.Window / size
	text := strings.Repeat("x", size)
	var mu sync.Mutex
	sent := 0
	scripts := map[string]script{"much": func(r *run) {
		r.started()
		for range n {
			if !r.record(text) {
				return
			}
			mu.Lock()
			sent++
			mu.Unlock()
		}
		r.value(n)
	}}
	count := func() int {
		mu.Lock()
		defer mu.Unlock()
		defer func() { sent = 0 }()
		return sent
	}
	directInMemory(t, scripts, func(t *testing.T, _ *agentFront, a *Agent) {
		c := mustCall(t)(a.Call(t.Context(), "much", nil))
		synctest.Wait()
		if got := count(); got*size > wire.Window || got*size < wire.Window*9/10 {
			t.Errorf("unread, the agent sent %d bytes", got*size)
		}
		var first []uint64
		for r, err := range c.Records() {
			if err != nil {
				t.Fatal(err)
			}
			if first = append(first, r.Seq); len(first) == n/2 {
				break
			}
		}
		synctest.Wait()
		if got := count(); got*size < 4*wire.Window || got*size > 6*wire.Window {
			t.Errorf("while half of it was read, the agent sent %d bytes", got*size)
		}
		if !slices.Equal(first, numbers(0, n/2)) {
			t.Error(first)
		}
		if v, err := c.Get(); err != nil || v.String() != fmt.Sprint(n) {
			t.Error(v, err)
		}
	})
	directly(t, scripts, func(t *testing.T, _ *agentFront, a *Agent) {
		if v, err := mustCall(t)(a.Call(t.Context(), "much", nil)).Get(); err != nil || v.String() != fmt.Sprint(n) {
			t.Error("Get without Records:", v, err)
		}
		c := mustCall(t)(a.Call(t.Context(), "much", nil))
		all := make(chan []uint64)
		go func() { all <- seqs(t, c.Records()) }()
		if v, err := c.Get(); err != nil || v.String() != fmt.Sprint(n) {
			t.Error("Get beside Records:", v, err)
		}
		<-all // those that Get did not drop before the loop began
		c = mustCall(t)(a.Call(t.Context(), "much", nil))
		if got := seqs(t, c.Records()); !slices.Equal(got, numbers(0, n)) {
			t.Errorf("got %d", len(got))
		}
	})
}

// TestGetBesideRecords: what a loop that is under way reads, Get does not take.
func TestGetBesideRecords(t *testing.T) {
	const n = 5000
	hold := make(chan struct{})
	scripts := map[string]script{"count": func(r *run) {
		r.started()
		r.record(0)
		<-hold
		for i := range n - 1 {
			if !r.record(i + 1) {
				return
			}
		}
		r.value(n)
	}}
	f := tlsAgent(t, scripts)
	defer f.stop()
	a, err := DialAgent(t.Context(), "web01", f.config)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	c := mustCall(t)(a.Call(t.Context(), "count", nil))
	var wg sync.WaitGroup
	var got []uint64
	begun := make(chan struct{})
	wg.Go(func() {
		for r, err := range c.Records() {
			if err != nil {
				t.Error(err)
			}
			if got = append(got, r.Seq); len(got) == 1 {
				close(begun)
			}
		}
	})
	<-begun
	wg.Go(func() {
		if _, err := c.Get(); err != nil {
			t.Error(err)
		}
	})
	close(hold)
	wg.Wait()
	if !slices.Equal(got, numbers(0, n)) {
		t.Errorf("got %d", len(got))
	}
}

// TestManyDirectCalls: calls on one connection do not disturb each other, and use its
// lanes again.
func TestManyDirectCalls(t *testing.T) {
	directly(t, map[string]script{"count": counting(50)}, func(t *testing.T, _ *agentFront, a *Agent) {
		var wg sync.WaitGroup
		for range 20 {
			wg.Go(func() {
				for range 5 {
					c, err := a.Call(t.Context(), "count", nil)
					if err != nil {
						t.Error(err)
						return
					}
					if got := seqs(t, c.Records()); !slices.Equal(got, numbers(0, 50)) {
						t.Error(got)
					}
				}
			})
		}
		wg.Wait()
	})
}

// TestDialAgentStages: the errors of dialling an agent are those of a host.
func TestDialAgentStages(t *testing.T) {
	_, err := DialAgent(t.Context(), "127.0.0.1:1", Config{Logger: silent})
	var host *HostError
	if !errors.Is(err, ErrUnreachable) || errors.Is(err, ErrUnavailable) || !errors.As(err, &host) || host.Stage != "dial" || RanOf(err) != DidNotRun {
		t.Error(err)
	}
	synctest.Test(t, func(t *testing.T) {
		n := transport.NewNetwork()
		l, err := n.Listen("web01", dispatcherID)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		if _, err := DialAgent(t.Context(), "web01", Config{Logger: silent, Dial: n.Dialer(callerID)}); !errors.Is(err, ErrDenied) || errors.Is(err, ErrUnreachable) {
			t.Error(err)
		}
	})
	for in, want := range map[string]string{"web01": "web01:7442", "web01:1": "web01:1"} {
		if got := wire.WithPort(in, wire.AgentPort); got != want {
			t.Errorf("%q: got %q", in, got)
		}
	}
}
