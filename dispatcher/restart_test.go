package dispatcher_test

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/agent"
	"github.com/harpcaller/harp/dispatcher"
	"github.com/harpcaller/harp/internal/wire"
	"github.com/harpcaller/harp/store"
	"github.com/harpcaller/harp/store/badger"
	"github.com/harpcaller/harp/store/memory"
)

func openBadger(t testing.TB, dir string) store.Store {
	t.Helper()
	st, err := badger.Open(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	return st
}

func TestWhatHadEndedIsThereAfterARestart(t *testing.T) {
	dir := t.TempDir()
	sys := newSystem(t, embedded, openBadger(t, dir), dispatcher.Config{})
	sys.agent("web01", func(a *agent.Agent) { greeter(a); failing(a) })
	counted := must[*harp.Job](t)(countProc.Call(t.Context(), sys.caller.Host("web01"), countArgs{1000}))
	must[harp.Value](t)(counted.Get(t.Context()))
	failed := must[*harp.Job](t)(sys.caller.Host("web01").Call(t.Context(), "oops", nil))
	if _, err := failed.Get(t.Context()); err == nil {
		t.Fatal("it did not fail")
	}
	before := must[harp.JobStatus](t)(counted.Status(t.Context()))
	if err := sys.d.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}

	again := newSystem(t, loopback, openBadger(t, dir), dispatcher.Config{})
	job := again.caller.Job(counted.ID())
	if n := must[int](t)(harp.Get[int](t.Context(), job)); n != 1000 {
		t.Errorf("the value is %d", n)
	}
	follow(t, job, 0)
	after := must[harp.JobStatus](t)(job.Status(t.Context()))
	if !after.SubmitTime.Equal(before.SubmitTime) || !after.EndTime.Equal(before.EndTime) || after.Records != before.Records {
		t.Errorf("status was %+v, is %+v", before, after)
	}
	var remote *harp.RemoteError
	if _, err := again.caller.Job(failed.ID()).Get(t.Context()); !errors.As(err, &remote) || remote.Type != "oops" || remote.Data.String() != `{"n":7}` {
		t.Errorf("the failure is %v", err)
	}
	if h := must[harp.HostStatus](t)(again.caller.Hosts().Get(t.Context(), "web01")); h.Online || len(h.Procedures) == 0 || h.LastHeard.IsZero() {
		t.Errorf("host is %+v", h)
	}
}

// A job that was under way when the dispatcher stopped goes on at its agent, once,
// and its records and result arrive afterwards.
func TestWhatWasUnderWayGoesOnOverARestart(t *testing.T) {
	dir, network := t.TempDir(), newNetwork(t, inMemory)
	sys := newSystemOn(t, embedded, network, openBadger(t, dir), dispatcher.Config{})
	g := newGate()
	sys.agent("web01", g.register)
	host := sys.caller.Host("web01", harp.Queue(harp.Args{}), harp.OfflineWait(harp.NoLimit))
	running := must[*harp.Job](t)(host.Call(t.Context(), "gate", harp.Args{"name": "running"}))
	queued := must[*harp.Job](t)(host.Call(t.Context(), "gate", harp.Args{"name": "queued"}))
	<-g.entered
	if err := sys.d.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}

	again := newSystemOn(t, embedded, network, openBadger(t, dir), dispatcher.Config{})
	if s := must[harp.JobStatus](t)(again.caller.Job(running.ID()).Status(t.Context())); s.State.Ended() {
		t.Errorf("it is %s (%s)", s.State, s.Reason)
	}
	g.release <- struct{}{}
	if v := must[harp.Value](t)(again.caller.Job(running.ID()).Get(t.Context())); v.String() != `"released"` {
		t.Errorf("the value is %s", v)
	}
	if name := <-g.entered; name != "queued" {
		t.Errorf("started %s", name)
	}
	g.release <- struct{}{}
	must[harp.Value](t)(again.caller.Job(queued.ID()).Get(t.Context()))
	if s := must[harp.JobStatus](t)(again.caller.Job(running.ID()).Status(t.Context())); s.Attempt != 1 {
		t.Errorf("it took %d attempts", s.Attempt)
	}
}

// A session that ends stops nothing: the agent comes back and tells of it.
func TestWhatRunsGoesOnOverALostConnection(t *testing.T) {
	everyWiring(t, func(t *testing.T, sys *system) {
		g := newGate()
		sys.agent("web01", g.register)
		host := sys.caller.Host("web01", harp.Queue(harp.Args{}), harp.OfflineWait(harp.NoLimit))
		running := must[*harp.Job](t)(host.Call(t.Context(), "gate", harp.Args{"name": "running"}))
		queued := must[*harp.Job](t)(host.Call(t.Context(), "gate", harp.Args{"name": "queued"}))
		<-g.entered
		sys.cutHost()
		sys.online.wait("web01")
		g.release <- struct{}{}
		must[harp.Value](t)(running.Get(t.Context()))
		if name := <-g.entered; name != "queued" {
			t.Errorf("started %s", name)
		}
		g.release <- struct{}{}
		must[harp.Value](t)(queued.Get(t.Context()))
	})
}

// What ran in an agent's process that was killed, and kept its journal, is lost; what
// only kept it in memory is lost because the journal is gone.
func TestWhatRanInAnAgentThatStoppedWithoutAWordIsLost(t *testing.T) {
	everyWiring(t, func(t *testing.T, sys *system) {
		first := must[*rawAgent](t)(sys.newRawAgent(t.Context(), "first"))
		asked := first.exchanges(t)
		sys.online.wait("web01")
		job := must[*harp.Job](t)(sys.caller.Host("web01").Call(t.Context(), "work", nil))
		m := <-asked
		m.sendFrame(t, wire.TypeAccepted, false, wire.Accepted{Started: &wire.Started{Time: 1}})
		first.tr.Close(nil)
		must[*rawAgent](t)(sys.greetRaw(t.Context(), wire.Hello{Version: wire.Version, Instance: "second", Journal: "another"}))
		_, err := job.Get(t.Context())
		s := must[harp.JobStatus](t)(job.Status(t.Context()))
		if !errors.Is(err, harp.ErrLost) || harp.RanOf(err) != harp.MayHaveRun || s.Reason != harp.LostJournalGone {
			t.Errorf("it gives %v (%s)", err, s.Reason)
		}
	})
}

// A host that was away when the dispatcher stopped is away when it is opened again, since
// when it was: only one that was connected counts as about to return.
func TestAHostThatWasAwayIsAwayAfterARestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk, network := memory.NewDisk(), newNetwork(t, inMemory)
		for _, isAway := range []bool{true, false} {
			sys := newSystemOn(t, embedded, network, memory.OpenDisk(disk, nil), dispatcher.Config{})
			agent := must[*rawAgent](t)(sys.newRawAgent(t.Context(), "i"))
			synctest.Wait()
			heard := time.Now()
			if isAway {
				agent.tr.Close(nil)
				synctest.Wait()
				time.Sleep(10 * time.Second)
			}
			if err := sys.d.Shutdown(t.Context()); err != nil {
				t.Fatal(err)
			}
			again := must[*dispatcher.Dispatcher](t)(dispatcher.Open(t.Context(), memory.OpenDisk(disk, nil), dispatcher.Config{}))
			caller := again.Caller()
			_, err := caller.Host("web01").Call(t.Context(), "work", nil, harp.WhenOffline(harp.FailFast))
			if errors.Is(err, harp.ErrUnreachable) != isAway {
				t.Errorf("away: %v, a call that does not wait gives %v", isAway, err)
			}
			h := must[harp.HostStatus](t)(caller.Hosts().Get(t.Context(), "web01"))
			if isAway && !h.LastHeard.Equal(heard.UTC().Truncate(time.Microsecond)) {
				t.Errorf("it was heard %v, want %v", h.LastHeard, heard)
			}
			filter := harp.EventFilter{After: harp.EventsFromStart, Types: []string{string(harp.EventHostAway)}}
			page := must[harp.EventPage](t)(caller.EventsPage(t.Context(), filter, false))
			if n := len(page.Events); n != 1 {
				t.Errorf("it is told %d times that it went, want once", n)
			}
			if err := errors.Join(caller.Close(), again.Shutdown(t.Context())); err != nil {
				t.Error(err)
			}
		}
	})
}

// TestAHostThatDoesNotReturnAfterARestartIsToldAsAway: a host that was connected when the dispatcher stopped, and does not come back, has
// gone while nobody could see it. The feed tells of that once it does not count as returning any more, whatever is opened meanwhile.
func TestAHostThatDoesNotReturnAfterARestartIsToldAsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk, network := memory.NewDisk(), newNetwork(t, inMemory)
		sys := newSystemOn(t, embedded, network, memory.OpenDisk(disk, nil), dispatcher.Config{})
		must[*rawAgent](t)(sys.newRawAgent(t.Context(), "i"))
		synctest.Wait()
		if err := sys.d.Shutdown(t.Context()); err != nil {
			t.Fatal(err)
		}
		begin := time.Now()
		for _, open := range []time.Duration{30 * time.Second, time.Hour, time.Hour} {
			again := must[*dispatcher.Dispatcher](t)(dispatcher.Open(t.Context(), memory.OpenDisk(disk, nil), dispatcher.Config{}))
			caller := again.Caller()
			time.Sleep(open)
			page := must[harp.EventPage](t)(caller.EventsPage(t.Context(), harp.EventFilter{After: harp.EventsFromStart, Host: "web01"}, false))
			var told []harp.EventType
			for _, e := range page.Events {
				told = append(told, e.Type)
			}
			want := []harp.EventType{harp.EventHostOnline}
			if open == time.Hour {
				want = append(want, harp.EventHostAway)
			}
			if !slices.Equal(told, want) {
				t.Errorf("after %v it tells %q, want %q", open, told, want)
			} else if last := page.Events[len(told)-1]; open == time.Hour && last.Time.Sub(begin) != 90*time.Second {
				t.Errorf("it went at %v", last.Time)
			}
			if err := errors.Join(caller.Close(), again.Shutdown(t.Context())); err != nil {
				t.Error(err)
			}
		}
	})
}
