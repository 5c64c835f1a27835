package dispatcher_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/agent"
	"github.com/harpcaller/harp/client"
	"github.com/harpcaller/harp/dispatcher"
	"github.com/harpcaller/harp/store"
	"github.com/harpcaller/harp/store/memory"
	"github.com/harpcaller/harp/transport"
)

// dialAs connects a caller of this name.
func (s *system) dialAs(name string) (*harp.Caller, error) {
	addr, tc, dial := s.net.dial("dispatcher", name, transport.RoleCaller)
	return client.Dial(s.t.Context(), addr, client.Config{TLS: tc, Dial: dial})
}

// callerAs is dialAs for a caller that is closed when the test is over.
func (s *system) callerAs(name string) *harp.Caller {
	s.t.Helper()
	c, err := s.dialAs(name)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = c.Close() })
	return c
}

// wantRefused looks whether a call was refused, by the limit of that name.
func wantRefused(t *testing.T, err error, limit string) {
	t.Helper()
	wantRefusedBy(t, err, "limits.per_principal."+limit)
}

func wantRefusedBy(t *testing.T, err error, limit string) {
	t.Helper()
	if !errors.Is(err, harp.ErrRefused) || !strings.Contains(err.Error(), limit+":") || harp.RanOf(err) != harp.DidNotRun {
		t.Errorf("it is not refused by %s: %v", limit, err)
	}
}

// limitedSystem is one in which each principal may have so much, with the host web01, which is away, on st.
func limitedSystem(t *testing.T, st store.Store, most dispatcher.PrincipalLimits) *system {
	t.Helper()
	if _, err := st.OpenSession(t.Context(), store.Session{Host: "web01", At: time.Now()}); err != nil {
		t.Fatal(err)
	}
	return newSystem(t, inMemory, st, dispatcher.Config{Limits: dispatcher.Limits{PerPrincipal: most}})
}

func waitingCall(ctx context.Context, c *harp.Caller, opts ...harp.Option) (*harp.Job, error) {
	return c.Host("web01", harp.OfflineWait(harp.NoLimit)).Call(ctx, "p", nil, opts...)
}

// TestWaitingJobsOfAPrincipalAreBounded: and are after a restart, which does not forget whose they are.
func TestWaitingJobsOfAPrincipalAreBounded(t *testing.T) {
	dir := t.TempDir()
	var first *harp.Job
	for n := range 2 {
		sys := limitedSystem(t, openBadger(t, dir), dispatcher.PrincipalLimits{Waiting: 2})
		ada, bob := sys.callerAs("ada"), sys.callerAs("bob")
		if n == 0 {
			first = must[*harp.Job](t)(waitingCall(t.Context(), ada))
			must[*harp.Job](t)(waitingCall(t.Context(), ada, harp.Queue(harp.Args{"q": 1})))
		}
		_, err := waitingCall(t.Context(), ada)
		wantRefused(t, err, "waiting")
		if waiting, queues := usedBy(t, ada, "limits.per_principal.waiting"), usedBy(t, ada, "limits.per_principal.queues"); waiting != 2 || queues != 1 {
			t.Errorf("%d jobs are shown to wait, in %d queues", waiting, queues)
		}
		must[*harp.Job](t)(waitingCall(t.Context(), bob))
		inProcess := sys.d.Caller()
		for range 3 {
			must[*harp.Job](t)(waitingCall(t.Context(), inProcess))
		}
		if n == 1 {
			must[bool](t)(ada.Job(first.ID()).Cancel(t.Context()))
			must[*harp.Job](t)(waitingCall(t.Context(), ada))
			_, err = waitingCall(t.Context(), ada)
			wantRefused(t, err, "waiting")
		}
		if err := sys.d.Shutdown(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

func TestQueuesOfAPrincipalAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sys := limitedSystem(t, memory.Open(nil), dispatcher.PrincipalLimits{Queues: 2})
		ada, bob := sys.callerAs("ada"), sys.callerAs("bob")
		must[*harp.Job](t)(waitingCall(t.Context(), ada, harp.Queue(harp.Args{"q": 1})))
		if err := ada.Queues().Pause(t.Context(), harp.Args{"q": 2}, "", time.Time{}); err != nil {
			t.Fatal(err)
		}
		_, err := waitingCall(t.Context(), ada, harp.Queue(harp.Args{"q": 3}))
		wantRefused(t, err, "queues")
		wantRefused(t, ada.Queues().Pause(t.Context(), harp.Args{"q": 3}, "", time.Time{}), "queues")
		must[*harp.Job](t)(waitingCall(t.Context(), ada, harp.Queue(harp.Args{"q": 2})))
		must[*harp.Job](t)(waitingCall(t.Context(), ada))
		must[*harp.Job](t)(waitingCall(t.Context(), bob, harp.Queue(harp.Args{"q": 3})))
		must[int](t)(ada.Queues().Cancel(t.Context(), harp.Args{"q": 1}))
		synctest.Wait()
		must[*harp.Job](t)(waitingCall(t.Context(), ada, harp.Queue(harp.Args{"q": 3})))
	})
}

// TestBytesOfAPrincipalAreBounded: what it sends and what its calls return count, and are
// forgotten in time; a call that is stored already is answered.
func TestBytesOfAPrincipalAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sys := limitedSystem(t, memory.Open(nil), dispatcher.PrincipalLimits{BytesPerHour: 1 << 20})
		sys.agent("web01", func(a *agent.Agent) {
			agent.HandleStream(a, harp.NewStreamProc[flood, []byte, bool]("flood"), flow)
			agent.Handle(a, harp.NewProc[harp.Value, int]("len"), func(_ context.Context, v harp.Value) (int, error) { return len(v), nil })
		})
		ada, bob := sys.callerAs("ada").Host("web01"), sys.callerAs("bob").Host("web01")
		big := harp.Args{"text": strings.Repeat("x", 600<<10)}
		key := harp.IdempotencyKey("once", time.Hour)
		job := must[*harp.Job](t)(ada.Call(t.Context(), "len", big, key))
		_, err := ada.Call(t.Context(), "len", big)
		wantRefused(t, err, "bytes_per_hour")
		if again := must[*harp.Job](t)(ada.Call(t.Context(), "len", big, key)); again.ID() != job.ID() {
			t.Error("the call that is stored is another job")
		}
		must[*harp.Job](t)(bob.Call(t.Context(), "len", big))
		time.Sleep(12 * time.Minute)
		must[*harp.Job](t)(ada.Call(t.Context(), "len", big))
		time.Sleep(time.Hour)

		records := must[*harp.Job](t)(ada.Call(t.Context(), "flood", flood{20_000})) // 100 bytes each: a limit is no reason not to take them
		must[harp.Value](t)(records.Get(t.Context()))
		_, err = ada.Call(t.Context(), "len", nil)
		wantRefused(t, err, "bytes_per_hour")
		time.Sleep(2 * time.Hour)
		must[*harp.Job](t)(ada.Call(t.Context(), "len", nil))
	})
}

func TestSessionsOfAPrincipalAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sys := limitedSystem(t, memory.Open(nil), dispatcher.PrincipalLimits{Sessions: 2})
		ada := sys.callerAs("ada")
		second := must[*harp.Caller](t)(sys.dialAs("ada"))
		_, err := sys.dialAs("ada")
		wantRefused(t, err, "sessions")
		must[harp.ServerInfo](t)(ada.Ping(t.Context()))
		must[harp.ServerInfo](t)(sys.callerAs("bob").Ping(t.Context()))
		if err := second.Close(); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		sys.callerAs("ada")
	})
}

// TestSessionsOfAllCallersAreBounded: while more than half of them are in use one caller has few, and all
// together never have more.
func TestSessionsOfAllCallersAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const most = 256 // of which one caller has 16 while more than half are in use
		sys := newSystem(t, inMemory, nil, dispatcher.Config{Limits: dispatcher.Limits{CallerSessions: most}})
		for range most/2 - 1 { // the system has one
			sys.callerAs("ada")
		}
		_, err := sys.dialAs("ada")
		wantRefusedBy(t, err, "limits.caller_sessions")
		synctest.Wait() // until that session has ended
		for i := range most/2 - 1 {
			sys.callerAs(fmt.Sprint("user", i))
		}
		last := must[*harp.Caller](t)(sys.dialAs("user0"))
		_, err = sys.dialAs("bob")
		wantRefusedBy(t, err, "limits.caller_sessions")
		if err := last.Close(); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		must[harp.ServerInfo](t)(sys.callerAs("bob").Ping(t.Context()))
	})
}

// TestChangesOfAPrincipalAreBounded: one caller paused, cancelled and deleted without end, each of which leaves rows for a month. It has an allowance
// of its own, which fills up; calls do not use it up, and what ends a job by itself is never refused.
func TestChangesOfAPrincipalAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sys := limitedSystem(t, memory.Open(nil), dispatcher.PrincipalLimits{BytesPerHour: 1 << 20}) // 64 KiB of changes
		ada, bob := sys.callerAs("ada"), sys.callerAs("bob")
		job := must[*harp.Job](t)(waitingCall(t.Context(), ada, harp.Queue(harp.Args{"q": 1})))
		batch := must[*harp.Batch](t)(ada.Target("web01", harp.ApproveFirst()).Call(t.Context(), "p", nil))
		if err := ada.Groups().Put(t.Context(), "g", "web01"); err != nil {
			t.Fatal(err)
		}
		const name = "operations of a principal"
		n := 0
		for ; n < 1000; n++ {
			if err := ada.Queues().Pause(t.Context(), harp.Args{"q": 1}, "", time.Time{}); err != nil {
				wantRefused(t, err, "bytes_per_hour")
				break
			}
		}
		if n < 100 || n > 128 || usedBy(t, ada, name) > 64<<10 {
			t.Errorf("%d pauses were taken, %d bytes", n, usedBy(t, ada, name))
		}
		for what, err := range map[string]error{
			"unpause of a queue":   ada.Queues().Unpause(t.Context(), harp.Args{"q": 1}),
			"cancel of a queue":    second(ada.Queues().Cancel(t.Context(), harp.Args{"q": 1})),
			"pause of hosts":       second(ada.Hosts().Pause(t.Context(), "web01", "", time.Time{})),
			"delete of a group":    ada.Groups().Delete(t.Context(), "g"),
			"delete of a schedule": ada.Schedules().Delete(t.Context(), "there is none"),
			"removal of a host":    second(ada.Hosts().Remove(t.Context(), "web01")),
			"drift":                second(ada.Hosts().ForgetDrift(t.Context(), "there is none")),
			"pause of a batch":     batch.Pause(t.Context(), ""),
			"cancel of a batch":    second(batch.Cancel(t.Context())),
		} {
			if err == nil {
				t.Errorf("%s is taken", what)
				continue
			}
			wantRefused(t, err, "bytes_per_hour")
		}
		must[bool](t)(job.Cancel(t.Context()))
		must[*harp.Job](t)(waitingCall(t.Context(), ada))
		if err := ada.Groups().Put(t.Context(), "h", "web01"); err != nil {
			t.Errorf("what is put has the bytes of calls: %v", err)
		}
		for _, c := range []*harp.Caller{bob, sys.d.Caller()} {
			if err := c.Queues().Pause(t.Context(), harp.Args{"q": 2}, "", time.Time{}); err != nil {
				t.Errorf("of another: %v", err)
			}
		}
		time.Sleep(time.Minute) // a sixtieth of 64 KiB
		must[int](t)(batch.Cancel(t.Context()))
	})
}

// TestAPauseOfHostsPaysForItsEnd: of many hosts that were paused with all that one may change, none stays paused.
func TestAPauseOfHostsPaysForItsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := memory.Open(nil)
		for n := range 50 {
			if _, err := st.OpenSession(t.Context(), store.Session{Host: fmt.Sprintf("db%02d", n), At: time.Now()}); err != nil {
				t.Fatal(err)
			}
		}
		sys := limitedSystem(t, st, dispatcher.PrincipalLimits{BytesPerHour: 1 << 20})
		ada := sys.callerAs("ada")
		if n, err := ada.Hosts().Pause(t.Context(), "db*", "", time.Time{}); err != nil || n != 50 {
			t.Fatal(n, err)
		}
		_, err := ada.Hosts().Pause(t.Context(), "db*", "", time.Time{})
		wantRefused(t, err, "bytes_per_hour")
		if n, err := ada.Hosts().Unpause(t.Context(), "db*"); err != nil || n != 50 {
			t.Error(n, err)
		}
	})
}
