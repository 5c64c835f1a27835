package dispatcher_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/wire"
	"github.com/harpcaller/harp/store"
)

// CALL says within which time the job has to start: before it expires, and a second before the next window or pause begins.
func TestWhenACallHasToStart(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, sys *system) {
		a := must[*rawAgent](t)(sys.newRawAgent(t.Context(), "i"))
		alive(a)
		asked := a.exchanges(t)
		synctest.Wait()
		ctx, m, now := t.Context(), sys.caller.Maintenance(), time.Now()
		var by time.Duration
		left := func(opts ...harp.Option) time.Duration {
			t.Helper()
			must[*harp.Job](t)(sys.caller.Host("web01").Call(ctx, "work", nil, opts...))
			c := expectCall(t, asked).call
			by = time.Duration(c.By)
			return time.Duration(c.Left)
		}
		if got := left(); got != 0 {
			t.Errorf("without a window it is %v", got)
		}
		if err := m.Put(ctx, harp.Window{Name: "elsewhere", Target: "web02", From: now}); err != nil {
			t.Fatal(err)
		}
		if got := left(harp.StartBefore(now.Add(time.Minute))); got != time.Minute || by != 0 {
			t.Errorf("before a time it is %v, by %v", got, by)
		}
		if err := m.Put(ctx, harp.Window{Name: "w", Target: "web01", From: now.Add(4 * time.Minute), Exempt: []string{"play"}}); err != nil {
			t.Fatal(err)
		}
		if got := left(); got != 4*time.Minute-time.Second {
			t.Errorf("before a window it is %v", got)
		}
		for before, want := range map[time.Duration]time.Duration{time.Minute: time.Minute, 5 * time.Minute: 4*time.Minute - time.Second} {
			if got := left(harp.StartBefore(now.Add(before))); got != want {
				t.Errorf("before both it is %v, want %v", got, want)
			}
			if want := 4*time.Minute - time.Second; by != want { // else a slow line makes it late for the window
				t.Errorf("before both, on a slow line too, it is %v, want %v", by, want)
			}
		}
		time.Sleep(4*time.Minute - time.Second - time.Millisecond)
		if got := left(); got != time.Millisecond {
			t.Errorf("a moment before it is %v", got)
		}
		time.Sleep(time.Millisecond)
		job := must[*harp.Job](t)(sys.caller.Host("web01").Call(ctx, "work", nil))
		expectNothing(t, asked)
		if got := reasonOf(t, job); got != "queued(window)" {
			t.Errorf("a second before it is %s", got)
		}
	})
}

// What an agent has not started before a window waits for its end and is sent then; what has expired by then does not run.
func TestWhatIsTooLateForItsWindowWaits(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, sys *system) {
		a := must[*rawAgent](t)(sys.newRawAgent(t.Context(), "i"))
		alive(a)
		asked := a.exchanges(t)
		synctest.Wait()
		ctx, m, begin := t.Context(), sys.caller.Maintenance(), time.Now().Add(time.Minute)
		w := harp.Window{Name: "w", Target: "web01", From: begin, To: begin.Add(time.Hour)}
		if err := m.Put(ctx, w); err != nil {
			t.Fatal(err)
		}
		late := func(m agentExchange) {
			m.sendFrame(t, wire.TypeNotNow, true, wire.NotNow{Reason: wire.NotNowStartBefore})
			close(m.over)
			synctest.Wait()
		}
		host := sys.caller.Host("web01", harp.OfflineWait(harp.NoLimit))
		job := must[*harp.Job](t)(host.Call(ctx, "work", nil))
		first := expectCall(t, asked)
		expires := must[*harp.Job](t)(host.Call(ctx, "work", nil, harp.StartBefore(begin.Add(-30*time.Second))))
		second := expectCall(t, asked)
		time.Sleep(30 * time.Second)
		late(second)
		if s := must[harp.JobStatus](t)(expires.Status(ctx)); s.State != harp.StateExpired || s.Started != harp.DidNotRun {
			t.Errorf("what is too late for its StartBefore is %s, started %s", s.State, s.Started)
		}
		time.Sleep(29 * time.Second)
		late(first)
		for range 60 {
			expectNothing(t, asked)
			if got := reasonOf(t, job); got != "queued(window)" {
				t.Fatalf("%v after its beginning it is %s", time.Since(begin), got)
			}
			time.Sleep(time.Minute)
		}
		expectNothing(t, asked)
		if s := must[harp.JobStatus](t)(job.Status(ctx)); len(s.Obstacles) != 1 || s.Obstacles[0].Window != "w" || !s.Obstacles[0].Until.Equal(w.To) {
			t.Errorf("what keeps it is %+v", s.Obstacles)
		}
		time.Sleep(time.Second + time.Millisecond)
		expectCall(t, asked)
	})
}

// An agent that says that it is too late for a window long before that begins is asked again soon, as a busy one is; and one that always
// says so does not keep the dispatcher busy.
func TestAnAgentThatIsTooLateTooEarly(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, sys *system) {
		a := must[*rawAgent](t)(sys.newRawAgent(t.Context(), "i"))
		alive(a)
		asked := a.exchanges(t)
		synctest.Wait()
		if err := sys.caller.Maintenance().Put(t.Context(), harp.Window{Name: "w", Target: "web01", From: time.Now().Add(10 * time.Hour)}); err != nil {
			t.Fatal(err)
		}
		job := must[*harp.Job](t)(sys.caller.Host("web01", harp.OfflineWait(harp.NoLimit)).Call(t.Context(), "work", nil))
		calls := 0
		for deadline := time.Now().Add(10 * time.Minute); time.Now().Before(deadline); time.Sleep(time.Second / 2) {
			synctest.Wait()
			select {
			case m := <-asked:
				calls++
				m.sendFrame(t, wire.TypeNotNow, true, wire.NotNow{Reason: wire.NotNowStartBefore})
				close(m.over)
				if got := reasonOf(t, job); got != "queued(agent_busy)" {
					t.Fatalf("it is %s", got)
				}
			default:
			}
		}
		if calls < 15 || calls > 30 {
			t.Errorf("it was asked %d times in 10 minutes", calls)
		}
	})
}

// Nor does such an agent end a job before its StartBefore: what it is late for may be a window, which it counts from an earlier moment.
func TestAnAgentThatIsTooLateBeforeTheJobExpires(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, sys *system) {
		a := must[*rawAgent](t)(sys.newRawAgent(t.Context(), "i"))
		alive(a)
		asked := a.exchanges(t)
		synctest.Wait()
		if err := sys.caller.Maintenance().Put(t.Context(), harp.Window{Name: "w", Target: "web01", From: time.Now().Add(3 * time.Minute)}); err != nil {
			t.Fatal(err)
		}
		job := must[*harp.Job](t)(sys.caller.Host("web01").Call(t.Context(), "work", nil, harp.StartBefore(time.Now().Add(2*time.Minute))))
		m := expectCall(t, asked)
		time.Sleep(time.Minute)
		m.sendFrame(t, wire.TypeNotNow, true, wire.NotNow{Reason: wire.NotNowStartBefore})
		close(m.over)
		expectState(t, job, harp.StateQueued)
		time.Sleep(2 * time.Second)
		m = expectCall(t, asked)
		if got := time.Duration(m.call.Left); got < 58*time.Second || got > time.Minute {
			t.Errorf("asked again, it has %v left", got)
		}
		time.Sleep(time.Minute)
		m.sendFrame(t, wire.TypeNotNow, true, wire.NotNow{Reason: wire.NotNowStartBefore})
		close(m.over)
		expectState(t, job, harp.StateExpired)
	})
}

// A job that was claimed, and whose window or pause is put before CALL is written, is not sent before that ends.
func TestAWindowThatIsPutAsACallIsOnItsWay(t *testing.T) {
	for name, c := range map[string]struct {
		begin, end func(ctx context.Context, c *harp.Caller) error
	}{
		"window": {
			func(ctx context.Context, c *harp.Caller) error {
				return c.Maintenance().Put(ctx, harp.Window{Name: "w", Target: "web01", From: time.Now()})
			},
			func(ctx context.Context, c *harp.Caller) error { return c.Maintenance().Delete(ctx, "w") },
		},
		"window that begins at once": {
			func(ctx context.Context, c *harp.Caller) error {
				return c.Maintenance().Put(ctx, harp.Window{Name: "w", Target: "web01", From: time.Now().Add(999 * time.Millisecond), Mode: harp.WindowRefuse})
			},
			func(ctx context.Context, c *harp.Caller) error { return c.Maintenance().Delete(ctx, "w") },
		},
		"pause": {
			func(ctx context.Context, c *harp.Caller) error {
				return second(c.Hosts().Pause(ctx, "*", "", time.Time{}))
			},
			func(ctx context.Context, c *harp.Caller) error { return second(c.Hosts().Unpause(ctx, "*")) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			late := new(lateStore)
			wrap := func(st store.Store) store.Store {
				*late = lateStore{Store: st, committed: make(chan struct{}), proceed: make(chan struct{})}
				return late
			}
			onStore(t, wrap, func(t *testing.T, sys *system) {
				a := must[*rawAgent](t)(sys.newRawAgent(t.Context(), "i"))
				alive(a)
				asked := a.exchanges(t)
				synctest.Wait()
				id, called := harp.NewID(), make(chan error, 1)
				go func() {
					_, err := sys.caller.Host("web01", harp.OfflineWait(harp.NoLimit)).Call(t.Context(), "work", nil, harp.JobID(id))
					called <- err
				}()
				<-late.committed
				job := sys.caller.Job(id)
				if got := reasonOf(t, job); got != "sent()" {
					t.Fatalf("it is %s", got)
				}
				if err := c.begin(t.Context(), sys.caller); err != nil {
					t.Fatal(err)
				}
				late.proceed <- struct{}{}
				if err := <-called; err != nil {
					t.Error(err)
				}
				for range 10 {
					expectNothing(t, asked)
					if got := reasonOf(t, job); got != "queued(window)" {
						t.Fatalf("it is %s", got)
					}
					time.Sleep(time.Second)
				}
				if err := c.end(t.Context(), sys.caller); err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Second)
				expectCall(t, asked)
			})
		})
	}
}
