package client

import (
	"context"
	"errors"
	"net"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/failures"
	"github.com/harpcaller/harp/internal/wire"
	"github.com/harpcaller/harp/transport"
	"github.com/harpcaller/harp/transport/memnet"
)

// TestReconnect: when its connection is lost a Caller connects again by itself, the
// first time within a second, and requests do not notice.
func TestReconnect(t *testing.T) {
	inMemory(t, func(t *testing.T, f *front) {
		caller := f.dial()
		defer caller.Close()
		id := f.desk.add()
		for range 10 {
			f.cut()
			start := time.Now()
			if _, err := caller.Job(id).Status(t.Context()); err != nil {
				t.Fatal(err)
			}
			if took := time.Since(start); took > firstPause {
				t.Errorf("connected again after %v", took)
			}
		}
		if n := f.connections(); n != 1 {
			t.Errorf("%d connections", n)
		}
	})
}

// TestReconnectPauses: while nobody answers, a Caller tries ever less often, up to
// every 10 s.
func TestReconnectPauses(t *testing.T) {
	inMemory(t, func(t *testing.T, f *front) {
		var mu sync.Mutex
		var all []time.Time
		dial := f.config.Dial
		f.config.Dial = func(ctx context.Context, addr string) (net.Conn, error) {
			mu.Lock()
			defer mu.Unlock()
			all = append(all, time.Now())
			return dial(ctx, addr)
		}
		caller := f.dial()
		defer caller.Close()
		f.stop()
		time.Sleep(time.Hour)
		mu.Lock()
		tries := slices.Clone(all)
		mu.Unlock()
		n := len(tries)
		if first := tries[1].Sub(tries[0]); first > firstPause {
			t.Errorf("the first try came after %v", first)
		}
		for i := 2; i < n; i++ {
			if pause := tries[i].Sub(tries[i-1]); pause > lastPause {
				t.Errorf("pause of %v", pause)
			}
		}
		if n < 360 || n > 1500 { // the average pause is 5 s
			t.Errorf("%d tries in an hour", n)
		}
		f.open()
		start := time.Now()
		if _, err := caller.Ping(t.Context()); err != nil || time.Since(start) > lastPause {
			t.Error(err, time.Since(start))
		}
	})
}

// TestRetryFor: a request is tried again for RetryFor without a connection; then it
// is ErrUnavailable, says why, and that nothing ran.
func TestRetryFor(t *testing.T) {
	for _, c := range []struct{ given, want time.Duration }{{0, retryFor}, {time.Minute, time.Minute}, {-1, 0}} {
		t.Run(c.given.String(), func(t *testing.T) {
			inMemory(t, func(t *testing.T, f *front) {
				f.config.RetryFor = c.given
				caller := f.dial()
				defer caller.Close()
				f.stop()
				synctest.Wait()
				time.Sleep(time.Hour) // how long it is away already does not count
				for _, ask := range []func() error{
					func() error { _, err := caller.Host("web01").Call(t.Context(), "p", nil); return err },
					func() error { _, err := caller.Ping(t.Context()); return err },
					func() error { _, err := caller.Hosts().Refresh(t.Context()); return err },
					func() error { _, err := caller.Job(harp.NewID()).Status(t.Context()); return err },
					func() error { _, err := caller.Job(harp.NewID()).Result(t.Context()); return err },
					func() error { _, err := caller.Job(harp.NewID()).Cancel(t.Context()); return err },
					func() error {
						for _, err := range caller.Job(harp.NewID()).Stream(t.Context()) {
							return err
						}
						return nil
					},
				} {
					start := time.Now()
					err := ask()
					var host *harp.HostError
					if !errors.Is(err, harp.ErrUnavailable) || !errors.As(err, &host) || host.Host != "dispatcher:7440" || host.Stage != "dial" || !errors.Is(err, syscall.ECONNREFUSED) {
						t.Errorf("%v", err)
					}
					if took := time.Since(start); took != c.want {
						t.Errorf("given up after %v", took)
					}
				}
				_, err := caller.Host("web01").Call(t.Context(), "p", nil)
				if harp.RanOf(err) != harp.DidNotRun || harp.FaultOf(err) != harp.FaultNetwork {
					t.Error(harp.RanOf(err), harp.FaultOf(err))
				}
			})
		})
	}
}

// TestResubmit: a submission whose answer is lost is submitted again under the same
// id, so that there is one job.
func TestResubmit(t *testing.T) {
	inMemory(t, func(t *testing.T, f *front) {
		caller := f.dial()
		defer caller.Close()
		release := f.desk.holding("Submit")
		go func() {
			f.desk.until(func() bool { return f.desk.asked["Submit"] == 1 })
			f.cut()
			release()
		}()
		job, err := caller.Host("web01").Call(t.Context(), "p", nil)
		if err != nil {
			t.Fatal(err)
		}
		if f.desk.count("Submit") != 2 || !slices.Equal(f.desk.order, []string{job.ID()}) {
			t.Errorf("%d submissions, %d jobs", f.desk.count("Submit"), len(f.desk.order))
		}
	})
}

// TestResubmitAfterRestart: a submission that was stored and whose answer was lost
// with the dispatcher is submitted again when it is back, and finds its job.
func TestResubmitAfterRestart(t *testing.T) {
	inMemory(t, func(t *testing.T, f *front) {
		caller := f.dial()
		defer caller.Close()
		release := f.desk.holding("Submitted")
		go func() {
			f.desk.until(func() bool { return f.desk.asked["Submitted"] == 1 })
			f.stop()
			release()
			time.Sleep(15 * time.Second)
			f.open()
		}()
		id := harp.NewID()
		job, err := caller.Host("web01").Call(t.Context(), "p", harp.Args{"a": 1}, harp.JobID(id))
		if err != nil || job.ID() != id {
			t.Fatal(job, err)
		}
		if f.desk.count("Submit") != 2 || !slices.Equal(f.desk.order, []string{id}) {
			t.Errorf("%d submissions, jobs %v", f.desk.count("Submit"), f.desk.order)
		}
	})
}

// TestNothingIsResubmittedToAnotherStore: what may have been started by a dispatcher is not started again by one with another
// store, which cannot know of it: a backup was restored, or the address is another dispatcher's now. What starts nothing is asked again.
func TestNothingIsResubmittedToAnotherStore(t *testing.T) {
	for _, c := range []struct {
		method string
		runs   bool
		ask    func(ctx context.Context, caller *harp.Caller) error
	}{
		{"Submit", true, func(ctx context.Context, caller *harp.Caller) error {
			_, err := caller.Host("web01").Call(ctx, "p", nil)
			return err
		}},
		{"TriggerSchedule", true, func(ctx context.Context, caller *harp.Caller) error {
			_, err := caller.Schedules().Trigger(ctx, "nightly")
			return err
		}},
		{"BackfillSchedule", true, func(ctx context.Context, caller *harp.Caller) error {
			_, err := caller.Schedules().Backfill(ctx, "nightly", time.Unix(0, 0), time.Unix(3600, 0))
			return err
		}},
		{"ListSchedules", false, func(ctx context.Context, caller *harp.Caller) error {
			for _, err := range caller.Schedules().List(ctx) {
				return err
			}
			return nil
		}},
	} {
		t.Run(c.method, func(t *testing.T) {
			inMemory(t, func(t *testing.T, f *front) {
				caller := f.dial()
				defer caller.Close()
				release := f.desk.holding(c.method)
				go func() {
					f.desk.until(func() bool { return f.desk.asked[c.method] == 1 })
					f.desk.setStore("restored")
					f.cut()
					release()
				}()
				err := c.ask(t.Context(), caller)
				switch n := f.desk.count(c.method); {
				case !c.runs:
					if err != nil || n != 2 {
						t.Errorf("asked %d times: %v", n, err)
					}
				case n != 1 || !errors.Is(err, harp.ErrUnavailable):
					t.Errorf("asked %d times: %v", n, err)
				}
			})
		})
	}
}

// loseThenRefuse loses the next submission, and answers it with an error when it is sent again.
func (f *front) loseThenRefuse(err error) {
	release := f.desk.holding("Submit")
	go func() {
		f.desk.until(func() bool { return f.desk.asked["Submit"] == 1 })
		f.desk.failing("Submit", err)
		f.cut()
		release()
	}()
}

// TestCallError: when a submission may have arrived and no answer can be had, the
// error has the id under which to ask, whatever ended the waiting.
func TestCallError(t *testing.T) {
	for _, c := range []struct {
		name string
		is   error
		then func(f *front, caller *harp.Caller, cancel context.CancelFunc)
	}{
		{"no connection", harp.ErrUnavailable, func(f *front, _ *harp.Caller, _ context.CancelFunc) { f.stop() }},
		{"ctx", context.Canceled, func(_ *front, _ *harp.Caller, cancel context.CancelFunc) { cancel() }},
		{"closed", harp.ErrClosed, func(_ *front, caller *harp.Caller, _ context.CancelFunc) { _ = caller.Close() }},
		{"refused later", harp.ErrUnreachable, func(f *front, _ *harp.Caller, _ context.CancelFunc) {
			f.desk.failing("Submit", failures.New("unreachable", "away").Err())
			f.cut()
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			inMemory(t, func(t *testing.T, f *front) {
				caller := f.dial()
				defer caller.Close()
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				release := f.desk.holding("Submit")
				go func() {
					f.desk.until(func() bool { return f.desk.asked["Submit"] == 1 })
					c.then(f, caller, cancel)
					release()
				}()
				id := harp.NewID()
				_, err := caller.Host("web01").Call(ctx, "p", nil, harp.JobID(id))
				var call *harp.CallError
				if !errors.As(err, &call) || call.JobID != id {
					t.Fatalf("%v", err)
				}
				if !errors.Is(err, harp.ErrUnavailable) || !errors.Is(err, c.is) || harp.RanOf(err) != harp.MayHaveRun {
					t.Errorf("%v, %s", err, harp.RanOf(err))
				}
				if text := err.Error(); !strings.HasPrefix(text, "call p on web01: ") || !strings.HasSuffix(text, "; may have run; job "+id) || strings.Count(text, id) != 1 {
					t.Error(text)
				}
			})
		})
	}
}

// TestManyCallsAreRefusedAfterALoss: what is said of each call the second time is not known of the
// first time, as with one call.
func TestManyCallsAreRefusedAfterALoss(t *testing.T) {
	inMemory(t, func(t *testing.T, f *front) {
		caller := f.dial()
		defer caller.Close()
		f.loseThenRefuse(failures.New("unreachable", "away").Err())
		ids := []string{harp.NewID(), harp.NewID()}
		var calls []harp.Call
		for _, id := range ids {
			calls = append(calls, harp.Call{Host: "web01", Procedure: "p", Options: []harp.Option{harp.JobID(id)}})
		}
		_, err := caller.Submit(t.Context(), calls...)
		var failed *harp.SubmitError
		if !errors.As(err, &failed) || len(failed.Errs) != len(ids) {
			t.Fatal(err)
		}
		for i, err := range failed.Errs {
			var call *harp.CallError
			if !errors.As(err, &call) || call.JobID != ids[i] || !errors.Is(err, harp.ErrUnreachable) || harp.RanOf(err) != harp.MayHaveRun {
				t.Errorf("call %d: %v, %s", i, err, harp.RanOf(err))
			}
		}
	})
}

// TestNothingSent: a submission that was never sent did not run, whatever ended the
// waiting.
func TestNothingSent(t *testing.T) {
	inMemory(t, func(t *testing.T, f *front) {
		caller := f.dial()
		defer caller.Close()
		f.stop()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := caller.Host("web01").Call(ctx, "p", nil)
		var call *harp.CallError
		if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, harp.ErrUnavailable) || errors.As(err, &call) || harp.RanOf(err) != harp.DidNotRun {
			t.Errorf("%v, %s", err, harp.RanOf(err))
		}
		f.open()
		time.Sleep(time.Minute)
		before := f.desk.count("Submit")
		if _, err := caller.Host("web01").Call(ctx, "p", nil); harp.RanOf(err) != harp.DidNotRun || f.desk.count("Submit") != before {
			t.Error("something was sent after ctx had ended:", err)
		}
	})
}

// TestConflictAfterLoss: that an id or a key is another request's is certain, also after a
// submission was lost: what is stored under its id is found by that first.
func TestConflictAfterLoss(t *testing.T) {
	for _, refusal := range []error{failures.New("conflict", "another").Err(), failures.ConflictOfKey("job", "another")} {
		inMemory(t, func(t *testing.T, f *front) {
			caller := f.dial()
			defer caller.Close()
			f.loseThenRefuse(refusal)
			_, err := caller.Host("web01").Call(t.Context(), "p", nil)
			var call *harp.CallError
			if !errors.Is(err, harp.ErrConflict) || errors.As(err, &call) {
				t.Error(err)
			}
		})
	}
}

// TestOtherConflictAfterLoss: that hosts are others than were confirmed does not say what became of a
// submission that was lost before.
func TestOtherConflictAfterLoss(t *testing.T) {
	inMemory(t, func(t *testing.T, f *front) {
		caller := f.dial()
		defer caller.Close()
		release := f.desk.holding("Submit")
		go func() {
			f.desk.until(func() bool { return f.desk.asked["Submit"] == 1 })
			other := failures.New("conflict", "others")
			other.Type = "confirmed"
			f.desk.failing("Submit", other.Err())
			f.cut()
			release()
		}()
		_, err := caller.Target("web*").Call(t.Context(), "p", nil, harp.Confirmed("d"))
		var call *harp.CallError
		if !errors.As(err, &call) || harp.RanOf(err) != harp.MayHaveRun {
			t.Error(err, harp.RanOf(err))
		}
	})
}

// TestWaitsForEver: Get, Wait and Follow go on through an absence of any length, for
// only their ctx ends them.
func TestWaitsForEver(t *testing.T) {
	inMemory(t, func(t *testing.T, f *front) {
		caller := f.dial()
		defer caller.Close()
		id := f.desk.add(ints(3)...)
		got := make(chan error, 3)
		go func() { _, err := caller.Job(id).Get(t.Context()); got <- err }()
		go func() { _, err := caller.Job(id).Wait(t.Context()); got <- err }()
		go func() {
			if n := seqs(t, caller.Job(id).Follow(t.Context(), harp.Since(1))); !slices.Equal(n, numbers(1, 5)) {
				t.Error(n)
			}
			got <- nil
		}()
		synctest.Wait()
		f.stop()
		time.Sleep(24 * time.Hour)
		f.desk.emit(id, 3, 4)
		f.desk.end(id, succeeded)
		f.open()
		for range 3 {
			if err := <-got; err != nil {
				t.Error(err)
			}
		}
		f.stop()
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		start := time.Now()
		if _, err := caller.Job(id).Get(ctx); !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != time.Hour {
			t.Error(err, time.Since(start))
		}
		for _, err := range caller.Job(id).Follow(ctx) {
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Error(err)
			}
		}
	})
}

// TestFollowThroughLosses: a follower whose connection is lost again and again sees
// every record once, in order.
func TestFollowThroughLosses(t *testing.T) {
	const n = 300
	inMemory(t, func(t *testing.T, f *front) {
		f.desk.pageSize = 3
		caller := f.dial()
		defer caller.Close()
		id := f.desk.add()
		go func() {
			for i := range n {
				time.Sleep(10 * time.Millisecond)
				f.desk.emit(id, i)
				switch {
				case i%50 == 20:
					f.stop()
				case i%50 == 30:
					f.open()
				case i%7 == 0:
					f.cut()
				}
			}
			f.desk.end(id, succeeded)
		}()
		if got := seqs(t, caller.Job(id).Follow(t.Context(), harp.Since(0))); !slices.Equal(got, numbers(0, n)) {
			t.Errorf("got %v", got)
		}
	})
}

// TestFollowOverTLS is the same over a real connection.
func TestFollowOverTLS(t *testing.T) {
	const n = 2000
	d := newDesk()
	f := tlsFront(t, d)
	defer func() { f.stop() }()
	caller := f.dial()
	defer caller.Close()
	d.pageSize = 10
	id := d.add()
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := range n {
			d.emit(id, i)
			if i == n/2 {
				d.until(func() bool { return d.waiting > 0 })
				f.cut()
			}
		}
		d.end(id, succeeded)
	}()
	if got := seqs(t, caller.Job(id).Follow(t.Context(), harp.Since(0))); !slices.Equal(got, numbers(0, n)) {
		t.Errorf("got %d records", len(got))
	}
	<-done
}

// TestCancelledWait: a request whose ctx ends is given up at the dispatcher, too, and
// the connection goes on.
func TestCancelledWait(t *testing.T) {
	inMemory(t, func(t *testing.T, f *front) {
		caller := f.dial()
		defer caller.Close()
		id := f.desk.add()
		cause := errors.New("enough")
		ctx, cancel := context.WithCancelCause(t.Context())
		ended := make(chan error, 2)
		go func() { _, err := caller.Job(id).Wait(ctx); ended <- err }()
		go func() {
			for _, err := range caller.Job(id).Follow(ctx) {
				ended <- err
			}
		}()
		synctest.Wait()
		if n := f.desk.waits(); n != 2 {
			t.Fatalf("%d requests wait", n)
		}
		cancel(cause)
		for range 2 {
			if err := <-ended; !errors.Is(err, cause) {
				t.Error(err)
			}
		}
		synctest.Wait()
		if n := f.desk.waits(); n != 0 {
			t.Errorf("%d requests still wait", n)
		}
		if _, err := caller.Ping(t.Context()); err != nil || f.connections() != 1 {
			t.Error(err, f.connections())
		}
	})
}

// TestCloseWhileAway: a Caller without a connection closes at once, and its goroutines
// are gone.
func TestCloseWhileAway(t *testing.T) {
	inMemory(t, func(t *testing.T, f *front) {
		caller := f.dial()
		f.stop()
		ended := make(chan error, 2)
		go func() { _, err := caller.Job(harp.NewID()).Get(t.Context()); ended <- err }()
		go func() { _, err := caller.Host("web01").Call(t.Context(), "p", nil); ended <- err }()
		synctest.Wait()
		start := time.Now()
		_ = caller.Close()
		for range 2 {
			if err := <-ended; !errors.Is(err, harp.ErrClosed) {
				t.Error(err)
			}
		}
		if took := time.Since(start); took != 0 {
			t.Errorf("took %v", took)
		}
	})
}

// TestSilentDispatcher: a dispatcher that says nothing any more is noticed by its
// missing heartbeat, and asked again elsewhere.
func TestSilentDispatcher(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := memnet.New()
		l, err := n.Listen("dispatcher:7440", dispatcherID)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		var silentConns []*transport.Session
		go func() {
			for {
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
				silentConns = append(silentConns, s)
				c := s.Control()
				_ = c.Send(wire.TypeWelcome, false, wire.Encode(wire.Welcome{Version: wire.Version, Heartbeat: int64(time.Minute)}))
			}
		}()
		caller, err := Dial(t.Context(), "dispatcher:7440", Config{Logger: silent, Dial: n.Dialer(callerID)})
		if err != nil {
			t.Fatal(err)
		}
		defer caller.Close()
		time.Sleep(3*time.Minute + 2*time.Second)
		synctest.Wait()
		if len(silentConns) != 2 {
			t.Errorf("%d connections after three missed heartbeats", len(silentConns))
		}
		for _, s := range silentConns {
			s.Close(nil)
		}
	})
}
