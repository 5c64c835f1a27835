package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/failures"
	"github.com/harpcaller/harp/internal/wire"
	"github.com/harpcaller/harp/transport/memnet"
)

// TestDirect: a direct call gives its records and its value, in whatever order they
// are asked for.
func TestDirect(t *testing.T) {
	const n = 20
	directly(t, map[string]script{"count": counting(n)}, func(t *testing.T, _ *agentFront, a *DirectHost) {
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
				if err := r.Value.Decode(&i); err != nil || i != r.Seq || r.Attempt != 1 || r.Kind != harp.KindData || !r.Time.Equal(time.Unix(0, 5)) {
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
	var req harp.Request
	scripts := map[string]script{"p": func(r *run) {
		got, req = r.call, r.req
		r.value(nil)
	}}
	directly(t, scripts, func(t *testing.T, _ *agentFront, a *DirectHost) {
		id := harp.NewID()
		c := mustCall(t)(a.Call(t.Context(), "p", harp.Args{"a": 1}, harp.JobID(id), harp.SilenceTimeout(time.Second), harp.MaxExecTime(time.Minute), harp.Info("i"), harp.Label("k", "v")))
		if v, err := c.Get(); err != nil || !v.IsNil() {
			t.Error(v, err)
		}
		if req.ID != id || req.Host != "web01" || req.Procedure != "p" || req.Args.String() != `{"a":1}` || req.Info.String() != `"i"` || req.Labels["k"] != "v" {
			t.Errorf("%+v", req)
		}
		if got.Attempt != 1 || got.Fence != 0 || got.Epoch != 0 || got.SilenceTimeout != int64(time.Second) || got.MaxExecTime != int64(time.Minute) || got.Window != wire.Window {
			t.Errorf("%+v", got)
		}
		if _, err := mustCall(t)(a.Call(t.Context(), "p", nil)).Get(); err != nil || got.SilenceTimeout != 0 || got.MaxExecTime != 0 {
			t.Errorf("%+v, %v", got, err)
		}
	})
}

// TestDirectInvalid: what only a dispatcher can heed is refused, as is what is wrong
// anyway; nothing is sent.
func TestDirectInvalid(t *testing.T) {
	scripts := map[string]script{"p": func(r *run) { r.t.Error("a call was sent") }}
	directInMemory(t, scripts, func(t *testing.T, _ *agentFront, a *DirectHost) {
		for field, opt := range map[string]harp.Option{
			"queue":           harp.Queue(harp.Args{}),
			"concurrency":     harp.Concurrency(1),
			"priority":        harp.Priority(1),
			"start_after":     harp.StartAfter(time.Now()),
			"start_before":    harp.StartBefore(time.Now().Add(time.Hour)),
			"offline_wait":    harp.OfflineWait(time.Second),
			"when_offline":    harp.WhenOffline(harp.FailFast),
			"retry":           harp.Retry(harp.RetryPolicy{On: []harp.State{harp.StateLost}}),
			"idempotency_key": harp.IdempotencyKey("k", time.Minute),
			"parallel":        harp.Parallel(2),
			"silence_timeout": harp.SilenceTimeout(-1),
			"max_exec_time":   harp.MaxExecTime(0),
		} {
			_, err := a.Call(t.Context(), "p", nil, opt)
			wantField(t, err, field)
			if harp.RanOf(err) != harp.DidNotRun {
				t.Error(field, harp.RanOf(err))
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
		ran     harp.Ran
		records int
		text    string
	}{
		"remote":     {ended(wire.End{Failure: harp.Failure{Code: "remote", Type: "t", Message: "m", Ran: harp.DidRun, Fault: harp.FaultProcedure}.Err()}), nil, harp.DidRun, 1, "call p on web01: t: m; it ran"},
		"value too":  {ended(wire.End{Value: harp.Value{0xc3}, Failure: failures.New("remote", "m").Err()}), nil, harp.DidRun, 1, "call p on web01: m; it ran"},
		"timeout":    {ended(wire.End{Value: harp.Value{0xc3}, Stopped: stopped(wire.CauseTimeout)}), harp.ErrTimeout, harp.DidRun, 1, "call p on web01: no record for 1m0s (silence_timeout); it ran"},
		"max":        {ended(wire.End{Stopped: stopped(wire.CauseMaxExecTime)}), harp.ErrTimeout, harp.DidRun, 1, "call p on web01: ran longer than 1m0s (max_exec_time); it ran"},
		"cancelled":  {ended(wire.End{Stopped: stopped(wire.CauseCancel)}), harp.ErrCancelled, harp.DidRun, 1, "call p on web01: cancelled; it ran"},
		"dropped":    {ended(wire.End{Dropped: true}), harp.ErrNoSpace, harp.DidRun, 1, "call p on web01: refused by the dispatcher: no space left: the agent dropped the value; it ran"},
		"gone":       {ended(wire.End{Gone: true}), harp.ErrLost, harp.DidRun, 1, ""},
		"last frame": {func(r *run) { r.send(wire.TypeStarted, true, wire.Started{Time: 1}) }, harp.ErrLost, harp.DidRun, -1, ""},
		"refused":    {nil, harp.ErrNotFound, harp.DidNotRun, 0, "call p on web01: rejected by the agent: no such procedure: p; did not run"},
		"not now":    {func(r *run) { r.send(wire.TypeNotNow, true, wire.NotNow{Reason: wire.NotNowDraining}) }, harp.ErrRejected, harp.DidNotRun, 0, "call p on web01: rejected by the agent: the agent takes no calls now (draining); did not run"},
		"refused, begun": {func(r *run) {
			r.started()
			r.send(wire.TypeRefused, true, wire.Refused{Failure: failures.New("rejected", "m").Err()})
		}, harp.ErrLost, harp.DidRun, -1, ""},
		"not now, begun": {func(r *run) {
			r.record(1)
			r.send(wire.TypeNotNow, true, wire.NotNow{Reason: wire.NotNowBusy})
		}, harp.ErrLost, harp.DidRun, -1, ""},
		"bad refused": {func(r *run) { r.send(wire.TypeRefused, true, map[string]any{"failure": 5}) }, harp.ErrLost, harp.MayHaveRun, -1, ""},
		"bad value":   {ended(wire.End{Value: []byte{0xc1}}), harp.ErrLost, harp.DidRun, -1, ""},
		"bad end":     {func(r *run) { _ = r.x.Send(wire.TypeEnd, true, []byte{5}) }, harp.ErrLost, harp.MayHaveRun, -1, ""},
		"bad records": {func(r *run) { _ = r.x.Send(wire.TypeRecords, false, []byte{5}); <-r.ctx.Done() }, harp.ErrLost, harp.MayHaveRun, -1, ""},
		"bad record": {func(r *run) {
			r.send(wire.TypeRecords, false, wire.Records{Records: []wire.Record{{Value: []byte{0xc1}}}})
			<-r.ctx.Done()
		}, harp.ErrLost, harp.DidRun, -1, ""},
		"gap": {func(r *run) {
			r.send(wire.TypeRecords, false, wire.Records{First: 1, Records: []wire.Record{{}}})
			<-r.ctx.Done()
		}, harp.ErrLost, harp.DidRun, -1, ""},
		"other frame": {func(r *run) { r.send(wire.TypeReady, false, wire.Ready{}); <-r.ctx.Done() }, harp.ErrLost, harp.MayHaveRun, -1, ""},
		"no end":      {func(r *run) { r.started() }, harp.ErrLost, harp.DidRun, -1, "call p on web01: outcome unknown at read (unexpected EOF); it ran"},
		"flood": {func(r *run) {
			for i := range int64(100) {
				if r.x.Send(wire.TypeRecords, false, wire.Encode(wire.Records{First: i, Records: []wire.Record{{Value: make([]byte, harp.MaxRecord)}}})) != nil {
					break
				}
			}
			<-r.ctx.Done()
		}, harp.ErrLost, harp.DidRun, -1, ""},
	} {
		t.Run(name, func(t *testing.T) {
			directly(t, map[string]script{"p": c.do}, func(t *testing.T, _ *agentFront, a *DirectHost) {
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
				if c.records >= 0 && (n != c.records || last != nil) || c.records < 0 && !errors.Is(last, harp.ErrLost) {
					t.Errorf("%d records, %v", n, last)
				}
				v, err := call.Get()
				if v != nil || err == nil {
					t.Fatal(v, err)
				}
				if c.is != nil && !errors.Is(err, c.is) || harp.RanOf(err) != c.ran {
					t.Errorf("%v, %s", err, harp.RanOf(err))
				}
				if c.text != "" && err.Error() != c.text {
					t.Errorf("got %q, want %q", err, c.text)
				}
				if errors.Is(err, harp.ErrInvalid) {
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
	directly(t, scripts, func(t *testing.T, _ *agentFront, a *DirectHost) {
		ctx, cancel := context.WithCancel(t.Context())
		hang := mustCall(t)(a.Call(ctx, "hang", nil))
		finish := mustCall(t)(a.Call(ctx, "finish", nil))
		cancel()
		if _, err := hang.Get(); !errors.Is(err, harp.ErrCancelled) || !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		for _, err := range hang.Records() {
			t.Error(err)
		}
		if v, err := finish.Get(); err != nil || v.String() != `"done all the same"` {
			t.Error(v, err)
		}
		if _, err := a.Call(ctx, "hang", nil); !errors.Is(err, context.Canceled) || !errors.Is(err, harp.ErrCancelled) || harp.RanOf(err) != harp.DidNotRun {
			t.Error(err, harp.RanOf(err))
		}
	})
	directInMemory(t, scripts, func(t *testing.T, f *agentFront, a *DirectHost) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		start := time.Now()
		deaf := mustCall(t)(a.Call(ctx, "deaf", nil))
		_, err := deaf.Get()
		if !errors.Is(err, harp.ErrLost) || !errors.Is(err, context.DeadlineExceeded) || harp.RanOf(err) != harp.DidRun || time.Since(start) != time.Minute+stopGrace {
			t.Error(err, harp.RanOf(err), time.Since(start))
		}
		synctest.Wait()
		if f.over != 1 {
			t.Error("the exchange was not closed")
		}
		var last error
		for _, err := range deaf.Records() {
			last = err
		}
		if !errors.Is(last, harp.ErrLost) {
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
	directly(t, scripts, func(t *testing.T, f *agentFront, a *DirectHost) {
		before := mustCall(t)(a.Call(t.Context(), "before", nil))
		after := mustCall(t)(a.Call(t.Context(), "after", nil))
		n := 0
		for r, err := range after.Records() {
			if n++; n == 1 {
				if err != nil || r.Value.String() != `"one"` {
					t.Error(r, err)
				}
				f.cut()
			} else if !errors.Is(err, harp.ErrLost) {
				t.Error(err)
			}
		}
		if n != 2 {
			t.Errorf("%d things were yielded", n)
		}
		if _, err := after.Get(); !errors.Is(err, harp.ErrLost) || !errors.Is(err, io.ErrUnexpectedEOF) || harp.RanOf(err) != harp.DidRun || harp.FaultOf(err) != harp.FaultNetwork {
			t.Error(err, harp.RanOf(err))
		}
		if _, err := before.Get(); !errors.Is(err, harp.ErrLost) || harp.RanOf(err) != harp.MayHaveRun {
			t.Error(err, harp.RanOf(err))
		}
		if _, err := a.Call(t.Context(), "before", nil); !errors.Is(err, harp.ErrUnreachable) || harp.RanOf(err) != harp.DidNotRun {
			t.Error(err, harp.RanOf(err))
		}
	})
}

// TestDirectClose: closing an Agent ends what waits in it.
func TestDirectClose(t *testing.T) {
	scripts := map[string]script{"hang": func(r *run) { r.started(); <-r.ctx.Done() }}
	directly(t, scripts, func(t *testing.T, _ *agentFront, a *DirectHost) {
		c := mustCall(t)(a.Call(t.Context(), "hang", nil))
		for range 2 {
			if err := a.Close(); err != nil {
				t.Error(err)
			}
		}
		if _, err := c.Get(); !errors.Is(err, harp.ErrClosed) || !errors.Is(err, harp.ErrLost) {
			t.Error(err)
		}
		if _, err := a.Call(t.Context(), "hang", nil); !errors.Is(err, harp.ErrClosed) || harp.RanOf(err) != harp.DidNotRun {
			t.Error(err)
		}
	})
}

// TestRecordsBeyondTheWindow: an agent that sends more than it may, while nobody reads, ends
// its call as lost: the memory of the caller is not the agent's to take.
func TestRecordsBeyondTheWindow(t *testing.T) {
	const size = 10_000
	text, most := strings.Repeat("x", size), wire.Window+wire.MaxMessage
	scripts := map[string]script{"greedy": func(r *run) {
		r.started()
		r.call.Window = 1 << 40
		for range 2 * most / size {
			if r.ctx.Err() != nil || !r.record(text) {
				return
			}
		}
		<-r.ctx.Done()
	}}
	directInMemory(t, scripts, func(t *testing.T, _ *agentFront, a *DirectHost) {
		c := mustCall(t)(a.Call(t.Context(), "greedy", nil))
		synctest.Wait()
		if !c.isOver() {
			t.Fatal("the call goes on")
		}
		got := 0
		for r, err := range c.Records() {
			if err == nil {
				got += weight(r)
			} else if !errors.Is(err, harp.ErrLost) {
				t.Error(err)
			}
		}
		if got > most || got < most-2*size {
			t.Errorf("it took %d bytes, of at most %d", got, most)
		}
		if _, err := c.Get(); !errors.Is(err, harp.ErrLost) || !strings.Contains(err.Error(), "beyond the window") {
			t.Errorf("Get returns %v", err)
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
	directInMemory(t, scripts, func(t *testing.T, _ *agentFront, a *DirectHost) {
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
	directly(t, scripts, func(t *testing.T, _ *agentFront, a *DirectHost) {
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

// TestManyDirectCalls: calls on one connection do not disturb each other.
func TestManyDirectCalls(t *testing.T) {
	directly(t, map[string]script{"count": counting(50)}, func(t *testing.T, _ *agentFront, a *DirectHost) {
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
	var host *harp.HostError
	if !errors.Is(err, harp.ErrUnreachable) || errors.Is(err, harp.ErrUnavailable) || !errors.As(err, &host) || host.Stage != "dial" || harp.RanOf(err) != harp.DidNotRun {
		t.Error(err)
	}
	synctest.Test(t, func(t *testing.T) {
		n := memnet.New()
		l, err := n.Listen("web01", dispatcherID)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		if _, err := DialAgent(t.Context(), "web01", Config{Logger: silent, Dial: n.Dialer(callerID)}); !errors.Is(err, harp.ErrDenied) || errors.Is(err, harp.ErrUnreachable) {
			t.Error(err)
		}
	})
	for in, want := range map[string]string{"web01": "web01:7442", "web01:1": "web01:1"} {
		if got := wire.WithPort(in, wire.AgentPort); got != want {
			t.Errorf("%q: got %q", in, got)
		}
	}
}

// TestDirectAnsweredAtOnce: an end counts that comes before the sending of the call has
// returned, and the end of the session with it.
func TestDirectAnsweredAtOnce(t *testing.T) {
	f := tlsAgent(t, map[string]script{"short": func(r *run) {
		r.value(1)
		go r.x.Session().Close(nil)
	}})
	defer f.stop()
	for range 50 {
		a, err := DialAgent(t.Context(), "web01", f.config)
		if err != nil {
			t.Fatal(err)
		}
		c, err := a.Call(t.Context(), "short", nil)
		if err != nil {
			t.Fatal(err)
		}
		if v, err := c.Get(); err != nil || v.String() != "1" {
			t.Error(v, err)
		}
		_ = a.Close()
	}
}

// TestDirectGivenUpAsItIsLost: a call ends that was given up before it was sent, though
// the session is lost then and nobody hears of that any more.
func TestDirectGivenUpAsItIsLost(t *testing.T) {
	directInMemory(t, nil, func(t *testing.T, _ *agentFront, a *DirectHost) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		c := &DirectCall{agent: a, ctx: ctx, ended: make(chan struct{})}
		var err error
		if c.exchange, err = a.session.Exchange(); err != nil || !a.addCall() {
			t.Fatal(err)
		}
		c.watchContext()
		c.exchange.Listen(c.handleReceived)
		cancel()
		synctest.Wait()
		a.session.Close(nil)
		err = c.sendFailed(c.sendOver(harp.Request{}))
		if !errors.Is(err, harp.ErrLost) || !errors.Is(err, context.Canceled) || harp.RanOf(err) != harp.MayHaveRun {
			t.Error(err, harp.RanOf(err))
		}
	})
}
