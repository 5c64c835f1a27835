package client

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/msgpack"
	"github.com/harpcaller/harp/internal/wire"
	"github.com/harpcaller/harp/transport"
	"github.com/harpcaller/harp/transport/memnet"
)

// TestClosedExchanges: a dispatcher that closes exchanges without an answer, in a session that
// stays open, is asked again with pauses, and not for longer than RetryFor.
func TestClosedExchanges(t *testing.T) {
	inMemory(t, func(t *testing.T, f *front) {
		caller := f.dial()
		defer caller.Close()
		f.desk.failing("RefreshHosts", harp.ErrClosed) // what a closing dispatcher does
		start := time.Now()
		_, err := caller.Hosts().Refresh(t.Context())
		if took := time.Since(start); !errors.Is(err, harp.ErrUnavailable) || errors.Is(err, harp.ErrClosed) || took < retryFor || took > retryFor+lastPause {
			t.Error(err, took)
		}
		if n := f.desk.count("RefreshHosts"); n < 5 || n > 100 {
			t.Errorf("asked %d times", n)
		}
		if f.connections() != 1 {
			t.Errorf("%d connections", f.connections())
		}
		f.desk.failing("JobResult", harp.ErrClosed)
		id := f.desk.add()
		f.desk.end(id, succeeded)
		go func() {
			time.Sleep(time.Hour)
			f.desk.failing("JobResult", nil)
		}()
		if _, err := caller.Job(id).Get(t.Context()); err != nil {
			t.Error("a Get was given up:", err)
		}
		f.desk.failing("JobResult", harp.ErrClosed)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, err := caller.Job(id).Get(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		ended := make(chan error, 1)
		go func() { _, err := caller.Job(id).Get(t.Context()); ended <- err }()
		time.Sleep(time.Minute)
		_ = caller.Close()
		if err := <-ended; !errors.Is(err, harp.ErrClosed) {
			t.Error(err)
		}
	})
}

// TestTooMany: a Caller whose connection has no exchange left says so, and only then.
func TestTooMany(t *testing.T) {
	inMemory(t, func(t *testing.T, f *front) {
		const exchanges = 4096
		caller := f.dial()
		id := f.desk.add()
		ended := make(chan error, exchanges)
		for range exchanges {
			go func() { _, err := caller.Job(id).Wait(t.Context()); ended <- err }()
		}
		time.Sleep(time.Minute)
		if n := f.desk.waits(); n != exchanges {
			t.Fatalf("%d wait", n)
		}
		_, err := caller.Host("web01").Call(t.Context(), "p", nil)
		if !errors.Is(err, harp.ErrRefused) || harp.RanOf(err) != harp.DidNotRun || harp.FaultOf(err) != harp.FaultCaller {
			t.Error(err, harp.RanOf(err), harp.FaultOf(err))
		}
		f.desk.end(id, succeeded)
		for range exchanges {
			if err := <-ended; err != nil {
				t.Fatal(err)
			}
		}
		if _, err := caller.Host("web01").Call(t.Context(), "p", nil); err != nil {
			t.Error(err)
		}
		_ = caller.Close()
	})
}

// TestLongRequest: a request that no frame can carry is refused here; sent, it would
// cost the session.
func TestLongRequest(t *testing.T) {
	inMemory(t, func(t *testing.T, f *front) {
		caller := f.dial()
		defer caller.Close()
		labels := map[string]string{"k": strings.Repeat("x", wire.MaxControl)}
		_, err := caller.JobsPage(t.Context(), harp.JobFilter{Labels: labels}, "")
		wantField(t, err, "request")
		if _, err := caller.Ping(t.Context()); err != nil || f.connections() != 1 {
			t.Error(err, f.connections())
		}
	})
}

// TestLargeAnswers: whatever a Service returns, answers fit their frames: what has
// megabytes in every row comes in more pages.
func TestLargeAnswers(t *testing.T) {
	everywhere(t, func(t *testing.T, d *desk, caller *harp.Caller) {
		big := must(harp.NewValue(harp.Args{"x": strings.Repeat("x", harp.MaxArgs-100)}))
		var want []string
		for range 5 {
			job, err := caller.Host("web01").Call(t.Context(), "p", big)
			if err != nil {
				t.Fatal(err)
			}
			want = append([]string{job.ID()}, want...)
		}
		var got []string
		for s, err := range caller.Jobs(t.Context(), harp.JobFilter{}) {
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, s.ID)
		}
		if !slices.Equal(got, want) {
			t.Errorf("got %d jobs", len(got))
		}
		for i := range 60 {
			d.hosts = append(d.hosts, harp.HostStatus{Name: fmt.Sprintf("web%02d", i), Facts: must(harp.NewValue(make([]byte, 60<<10)))})
		}
		d.hosts[3].Procedures = slices.Repeat([]string{"p"}, 2*msgpack.ProtocolLimits.Elements)
		n := 0
		for h, err := range caller.Hosts().List(t.Context(), "") {
			if err != nil {
				t.Fatal(err)
			}
			if h.Name != d.hosts[n].Name || len(h.Procedures) != len(d.hosts[n].Procedures) {
				t.Fatalf("host %d is %s", n, h.Name)
			}
			n++
		}
		if n != 60 {
			t.Errorf("%d hosts", n)
		}
		id := d.add()
		for range 40 {
			d.emit(id, strings.Repeat("r", harp.MaxRecord-10))
		}
		d.emit(id, ints(6000)...)
		d.end(id, succeeded)
		for _, records := range [][]uint64{seqs(t, caller.Job(id).Stream(t.Context())), seqs(t, caller.Job(id).Follow(t.Context(), harp.Since(0)))} {
			if !slices.Equal(records, numbers(0, 6040)) {
				t.Errorf("%d records", len(records))
			}
		}
	})
}

// TestUnreadable: an answer that makes no sense is not the caller's fault, and after a
// submission nobody knows what became of it.
func TestUnreadable(t *testing.T) {
	for name, answer := range map[string]transport.Frame{
		"other frame":      {Type: wire.TypeReady},
		"no failure":       {Type: wire.TypeFailed, Body: wire.Encode(5)},
		"empty failure":    {Type: wire.TypeFailed, Body: wire.Encode(wire.Failed{})},
		"not a message":    {Type: wire.TypeReply, Body: wire.Encode(5)},
		"negative numbers": {Type: wire.TypeReply, Body: wire.Encode(map[string]any{"next": -1, "records": wire.Rows{{5}}, "hosts": wire.Rows{{5}}, "args": []byte{0xc1}, "value": []byte{0xc1}, "id": 5})},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := memnet.New()
				stop := answeringAll(t, n, answer)
				defer stop()
				caller, err := Dial(t.Context(), "dispatcher", Config{Logger: silent, Dial: n.Dialer(callerID)})
				if err != nil {
					t.Fatal(err)
				}
				defer caller.Close()
				job := caller.Job(harp.NewID())
				for what, ask := range map[string]func() error{
					"status": func() error { _, err := job.Status(t.Context()); return err },
					"result": func() error { _, err := job.Result(t.Context()); return err },
					"stream": func() error {
						for _, err := range job.Stream(t.Context()) {
							return err
						}
						return nil
					},
					"hosts": func() error {
						for _, err := range caller.Hosts().List(t.Context(), "") {
							return err
						}
						return nil
					},
				} {
					if err := ask(); err == nil || errors.Is(err, harp.ErrInvalid) || harp.FaultOf(err) != harp.FaultDispatcher || !strings.Contains(err.Error(), "cannot be read") {
						t.Errorf("%s: %v", what, err)
					}
				}
				_, err = caller.Host("web01").Call(t.Context(), "p", nil)
				if harp.RanOf(err) != harp.MayHaveRun || errors.Is(err, harp.ErrInvalid) {
					t.Error(err, harp.RanOf(err))
				}
			})
		})
	}
}

// TestUnreadableRecord: a stream shows nothing of an answer that cannot be read, but what is
// wrong with it.
func TestUnreadableRecord(t *testing.T) {
	good := wire.Encode(wire.PulledRecord{Attempt: 1, Record: wire.Record{Value: []byte{0xc3}}})
	bad := wire.Encode(wire.PulledRecord{Seq: 1, Record: wire.Record{Value: []byte{0xc1}}})
	answer := transport.Frame{Type: wire.TypeReply, Body: wire.Encode(wire.Pulled{Records: wire.Rows{good, bad, good}, Next: 3, End: 3, Ended: true})}
	synctest.Test(t, func(t *testing.T) {
		n := memnet.New()
		stop := answeringAll(t, n, answer)
		defer stop()
		caller, err := Dial(t.Context(), "dispatcher", Config{Logger: silent, Dial: n.Dialer(callerID)})
		if err != nil {
			t.Fatal(err)
		}
		defer caller.Close()
		shown := 0
		for r, err := range caller.Job(harp.NewID()).Stream(t.Context()) {
			shown++
			if err == nil || !strings.Contains(err.Error(), "cannot be read") || !strings.Contains(err.Error(), "value") || errors.Is(err, harp.ErrInvalid) {
				t.Error(r, err)
			}
		}
		if shown != 1 {
			t.Errorf("%d things were yielded", shown)
		}
	})
}

// TestPagesThatDoNotGoOn: a page after which the same would be asked for again, at once and for
// ever, is no answer.
func TestPagesThatDoNotGoOn(t *testing.T) {
	id := harp.NewID()
	records := func(q harp.RecordQuery) func(context.Context, *remote) error {
		return func(ctx context.Context, r *remote) error { _, err := r.Records(ctx, id, q); return err }
	}
	hosts := func(ctx context.Context, r *remote) error { _, err := r.ListHosts(ctx, "", "c"); return err }
	events := func(wait bool) func(context.Context, *remote) error {
		return func(ctx context.Context, r *remote) error {
			_, err := r.Events(ctx, harp.EventFilter{After: "c"}, wait)
			return err
		}
	}
	for name, c := range map[string]struct {
		answer any
		ask    func(context.Context, *remote) error
		sound  bool
	}{
		"records stay":                {wire.Pulled{Next: 3, End: 9}, records(harp.RecordQuery{From: 3}), false},
		"records go back":             {wire.Pulled{Next: 2, End: 9}, records(harp.RecordQuery{From: 3, Wait: true}), false},
		"a follower does not wait":    {wire.Pulled{Next: 3, End: 3}, records(harp.RecordQuery{From: 3, Wait: true}), false},
		"records go on":               {wire.Pulled{Next: 9, End: 9}, records(harp.RecordQuery{From: 3, Wait: true}), true},
		"there are no more":           {wire.Pulled{Next: 3, End: 3}, records(harp.RecordQuery{From: 3}), true},
		"the job has ended":           {wire.Pulled{Next: 3, End: 3, Ended: true}, records(harp.RecordQuery{From: 3, Wait: true}), true},
		"the first that is to come":   {wire.Pulled{Next: 0, End: 0}, records(harp.RecordQuery{Tail: true, Wait: true}), true},
		"a listing stays":             {wire.Hosts{Cursor: "c"}, hosts, false},
		"a listing goes on":           {wire.Hosts{Cursor: "d"}, hosts, true},
		"a listing ends":              {wire.Hosts{}, hosts, true},
		"the feed does not wait":      {wire.Events{Cursor: "c"}, events(true), false},
		"the feed goes on":            {wire.Events{Cursor: "d"}, events(true), true},
		"nothing has happened so far": {wire.Events{Cursor: "c"}, events(false), true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := memnet.New()
				stop := answeringAll(t, n, transport.Frame{Type: wire.TypeReply, Body: wire.Encode(c.answer)})
				defer stop()
				d := dialer{
					addr: "dispatcher", cfg: Config{Logger: silent, Dial: n.Dialer(callerID)}.withDefaults(wire.DispatcherPort),
					protocol: transport.ProtocolCall, role: transport.RoleDispatcher, noAnswer: harp.ErrUnavailable,
				}
				first, err := d.openSession(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				r := newRemote(d, first)
				defer r.Close()
				if err := c.ask(t.Context(), r); c.sound != (err == nil) || err != nil && !strings.Contains(err.Error(), "cannot be read") {
					t.Errorf("%v", err)
				}
			})
		})
	}
}

// answeringAll is a dispatcher that gives every request the same answer.
func answeringAll(t *testing.T, n *memnet.Network, answer transport.Frame) (stop func()) {
	l, err := n.Listen("dispatcher", dispatcherID)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	cfg := transport.ServeConfig{Logger: silent, Protocols: map[string]transport.Role{transport.ProtocolCall: transport.RoleCaller}}
	go func() {
		defer close(done)
		_ = transport.Serve(ctx, l, cfg, func(ctx context.Context, conn *transport.Conn) {
			s, err := conn.Acceptor(ctx, transport.Options{Logger: silent, MaxFrame: wire.MaxBody})
			if err != nil {
				t.Error(err)
				return
			}
			defer context.AfterFunc(ctx, func() { s.Close(nil) })()
			c := s.Control()
			_ = c.Send(wire.TypeWelcome, false, wire.Encode(wire.Welcome{Version: wire.Version, Heartbeat: 1}))
			_ = s.Serve(func(x *transport.Exchange, _ transport.Frame) {
				_ = x.Send(answer.Type, true, answer.Body)
			})
		})
	}()
	return func() { cancel(); <-done }
}
