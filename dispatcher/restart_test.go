package dispatcher_test

import (
	"errors"
	"testing"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/agent"
	"github.com/harpcaller/harp/dispatcher"
	"github.com/harpcaller/harp/store"
	"github.com/harpcaller/harp/store/badger"
)

func openBadger(t *testing.T, dir string) store.Store {
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
	sys.agent("web01", func(a *agent.Agent) { greeter(a); failures(a) })
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

// A job that was under way when the dispatcher stopped is lost, and is not started
// again: nobody knows what became of it.
func TestWhatWasUnderWayIsLostAfterARestart(t *testing.T) {
	dir := t.TempDir()
	sys := newSystem(t, embedded, openBadger(t, dir), dispatcher.Config{})
	g := newGate()
	sys.agent("web01", g.register)
	host := sys.caller.Host("web01", harp.Queue(harp.Args{}), harp.OfflineWait(harp.NoLimit))
	running := must[*harp.Job](t)(host.Call(t.Context(), "gate", harp.Args{"name": "running"}))
	queued := must[*harp.Job](t)(host.Call(t.Context(), "gate", harp.Args{"name": "queued"}))
	<-g.entered
	if err := sys.d.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}

	again := newSystem(t, embedded, openBadger(t, dir), dispatcher.Config{})
	_, err := again.caller.Job(running.ID()).Get(t.Context())
	if !errors.Is(err, harp.ErrLost) || harp.RanOf(err) != harp.MayHaveRun {
		t.Errorf("the running job gives %v", err)
	}
	if s := must[harp.JobStatus](t)(again.caller.Job(running.ID()).Status(t.Context())); s.Reason != harp.LostDispatcherRestarted {
		t.Errorf("its reason is %s", s.Reason)
	}
	again.agent("web01", g.register)
	if name := <-g.entered; name != "queued" {
		t.Errorf("started %s", name)
	}
	g.release <- struct{}{}
	must[harp.Value](t)(again.caller.Job(queued.ID()).Get(t.Context()))
}

// When an agent's session ends, what ran in it is lost and the agent stops it.
func TestWhatRanInASessionThatEndedIsLost(t *testing.T) {
	everyWiring(t, func(t *testing.T, sys *system) {
		g := newGate()
		stop := sys.agent("web01", g.register)
		host := sys.caller.Host("web01", harp.Queue(harp.Args{}), harp.OfflineWait(harp.NoLimit))
		running := must[*harp.Job](t)(host.Call(t.Context(), "gate", harp.Args{"name": "running"}))
		queued := must[*harp.Job](t)(host.Call(t.Context(), "gate", harp.Args{"name": "queued"}))
		<-g.entered
		sys.cut("web01")
		_, err := running.Get(t.Context())
		if !errors.Is(err, harp.ErrLost) || harp.RanOf(err) != harp.MayHaveRun {
			t.Errorf("the running job gives %v", err)
		}
		if s := must[harp.JobStatus](t)(running.Status(t.Context())); s.Reason != harp.LostAgentRestarted {
			t.Errorf("its reason is %s", s.Reason)
		}
		if name := <-g.entered; name != "queued" {
			t.Errorf("started %s", name)
		}
		g.release <- struct{}{}
		must[harp.Value](t)(queued.Get(t.Context()))
		stop()
	})
}
