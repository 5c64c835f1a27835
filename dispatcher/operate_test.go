package dispatcher_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/agent"
	"github.com/harpcaller/harp/dispatcher"
	"github.com/harpcaller/harp/store"
	"github.com/harpcaller/harp/store/memory"
)

// flaky offers a procedure that fails as often as it is told to, and counts its runs.
type flaky struct{ fails, runs atomic.Int64 }

func (f *flaky) register(a *agent.Agent) {
	agent.Handle(a, harp.NewProc[struct{}, int64]("flaky"), func(context.Context, struct{}) (int64, error) {
		n := f.runs.Add(1)
		if n <= f.fails.Load() {
			return 0, errors.New("not yet")
		}
		return n, nil
	})
}

func TestAFailedAttemptIsFollowedByAnotherIfTheCallAsksForIt(t *testing.T) {
	everyWiring(t, func(t *testing.T, sys *system) {
		var f flaky
		f.fails.Store(2)
		sys.agent("web01", f.register)
		host := sys.caller.Host("web01", harp.Queue(harp.Args{}))
		policy := harp.RetryPolicy{On: []harp.State{harp.StateFailed}, Attempts: 4, Backoff: time.Millisecond}
		job := must[*harp.Job](t)(host.Call(t.Context(), "flaky", nil, harp.Retry(policy)))
		if n := must[int](t)(harp.Get[int](t.Context(), job)); n != 3 {
			t.Errorf("it returned %d", n)
		}
		s := must[harp.JobStatus](t)(job.Status(t.Context()))
		outcomes := []string{}
		for _, a := range s.Attempts {
			outcomes = append(outcomes, a.Outcome)
		}
		if s.Attempt != 3 || !slices.Equal(outcomes, []string{"failed", "failed", "succeeded"}) {
			t.Errorf("attempt %d, %v", s.Attempt, outcomes)
		}

		f.fails.Store(1000)
		job = must[*harp.Job](t)(host.Call(t.Context(), "flaky", nil, harp.Retry(policy)))
		before := f.runs.Load()
		var remote *harp.RemoteError
		if _, err := job.Get(t.Context()); !errors.As(err, &remote) {
			t.Errorf("it ended with %v", err)
		}
		if n := f.runs.Load() - before; n > 4 {
			t.Errorf("it ran %d times", n)
		}
		once := must[*harp.Job](t)(host.Call(t.Context(), "flaky", nil))
		if _, err := once.Get(t.Context()); err == nil {
			t.Error("it succeeded")
		}
		if s := must[harp.JobStatus](t)(once.Status(t.Context())); s.Attempt != 1 {
			t.Errorf("without being told it may, it ran %d times", s.Attempt)
		}
	})
}

func TestAJobIsDoneAgainAsAnotherOnce(t *testing.T) {
	everyWiring(t, func(t *testing.T, sys *system) {
		g := newGate()
		sys.agent("web01", g.register)
		job := must[*harp.Job](t)(sys.caller.Host("web01").Call(t.Context(), "gate", harp.Args{"name": "x"}, harp.Label("team", "db"), harp.Priority(7)))
		<-g.entered
		if _, err := job.Retry(t.Context()); !errors.Is(err, harp.ErrConflict) {
			t.Errorf("a job that runs is done again: %v", err)
		}
		g.release <- struct{}{}
		must[harp.Value](t)(job.Get(t.Context()))
		again := must[*harp.Job](t)(job.Retry(t.Context()))
		if name := <-g.entered; name != "x" {
			t.Errorf("its argument is %s", name)
		}
		g.release <- struct{}{}
		must[harp.Value](t)(again.Get(t.Context()))
		if s := must[harp.JobStatus](t)(again.Status(t.Context())); s.RetryOf != job.ID() || s.Labels["team"] != "db" || s.ID == job.ID() {
			t.Errorf("it is %+v", s)
		}
	})
}

func TestAnIdempotencyKeyMakesManyCallsOneJob(t *testing.T) {
	everyWiring(t, func(t *testing.T, sys *system) {
		var f flaky
		sys.agent("web01", func(a *agent.Agent) { f.register(a); greeter(a) })
		host := sys.caller.Host("web01")
		key := harp.IdempotencyKey("nightly", time.Hour)
		ids := make([]string, 20)
		var calls sync.WaitGroup
		for i := range ids {
			calls.Go(func() {
				job, err := host.Call(t.Context(), "flaky", nil, key)
				if err != nil {
					t.Error(err)
					return
				}
				ids[i] = job.ID()
			})
		}
		calls.Wait()
		must[harp.Value](t)(sys.caller.Job(ids[0]).Get(t.Context()))
		if slices.Sort(ids); ids[0] != ids[len(ids)-1] || f.runs.Load() != 1 {
			t.Errorf("they are jobs %v, and it ran %d times", slices.Compact(ids), f.runs.Load())
		}
		greet := harp.IdempotencyKey("greet", time.Hour)
		must[*harp.Job](t)(host.Call(t.Context(), "hello", harp.Args{"name": "Ada"}, greet))
		if _, err := host.Call(t.Context(), "hello", harp.Args{"name": "Bob"}, greet); !errors.Is(err, harp.ErrConflict) {
			t.Errorf("other arguments under the same key: %v", err)
		}
	})
}

func TestAQueueIsPausedAndWidened(t *testing.T) {
	everyWiring(t, func(t *testing.T, sys *system) {
		g := newGate()
		sys.agent("web01", g.register)
		name := harp.Args{"db": 1}
		queues := sys.caller.Queues()
		until := time.Now().Add(time.Hour)
		if err := queues.Pause(t.Context(), name, "disk", until); err != nil {
			t.Fatal(err)
		}
		if err := queues.Pause(t.Context(), name, "", time.Now().Add(-time.Hour)); !errors.Is(err, harp.ErrInvalid) || harp.FailureOf(err).Field != "until" {
			t.Errorf("a pause until the past gives %v", err)
		}
		q := must[harp.QueueStatus](t)(queues.Get(t.Context(), name))
		if p := q.Pause; !q.Paused || p == nil || p.By.Kind == "" || p.Reason != "disk" || p.Since.IsZero() || !p.Until.Equal(until) {
			t.Errorf("it is paused by %+v", p)
		}
		host := sys.caller.Host("web01", harp.Queue(name))
		var jobs []*harp.Job
		for _, n := range []string{"a", "b", "c"} {
			jobs = append(jobs, must[*harp.Job](t)(host.Call(t.Context(), "gate", harp.Args{"name": n})))
		}
		if s := must[harp.JobStatus](t)(jobs[0].Status(t.Context())); s.State != harp.StateQueued || s.Reason != harp.ReasonPaused {
			t.Errorf("in a paused queue it is %s (%s)", s.State, s.Reason)
		}
		if err := queues.Unpause(t.Context(), name); err != nil {
			t.Fatal(err)
		}
		if n := <-g.entered; n != "a" {
			t.Errorf("first %s", n)
		}
		if err := queues.SetConcurrency(t.Context(), name, 3); err != nil {
			t.Fatal(err)
		}
		<-g.entered
		<-g.entered
		if q := must[harp.QueueStatus](t)(queues.Get(t.Context(), name)); q.Running != 3 || q.Concurrency != 3 || q.Paused || q.Pause != nil {
			t.Errorf("it is %+v", q)
		}
		for range jobs {
			g.release <- struct{}{}
		}
		for _, j := range jobs {
			must[harp.Value](t)(j.Get(t.Context()))
		}
		if err := queues.SetConcurrency(t.Context(), harp.Args{"no": "such"}, 3); !errors.Is(err, harp.ErrNotFound) || !strings.Contains(err.Error(), `{"no":"such"}`) {
			t.Errorf("a queue that is not there is widened: %v", err)
		}
	})
}

// The feed tells every change once and in order, and is read again from any cursor.
func TestTheFeedTellsWhatHappened(t *testing.T) {
	everyWiring(t, func(t *testing.T, sys *system) {
		sys.agent("web01", greeter)
		job := must[*harp.Job](t)(sys.caller.Host("web01").Call(t.Context(), "hello", harp.Args{"name": "Ada"}))
		read := func(after string) (types []harp.EventType, first string) {
			for e, err := range sys.caller.Events(t.Context(), harp.EventFilter{After: after, Job: job.ID()}) {
				if err != nil {
					t.Fatal(err)
				}
				if first == "" {
					first = e.Cursor
				}
				types = append(types, e.Type)
				if e.State.Ended() {
					break
				}
			}
			return types, first
		}
		types, first := read(harp.EventsFromStart)
		// running may be written with the end.
		types = slices.DeleteFunc(types, func(e harp.EventType) bool { return e == harp.EventJobRunning })
		if want := []harp.EventType{harp.EventJobSubmitted, harp.EventJobSent, harp.EventJobSucceeded}; !slices.Equal(types, want) {
			t.Errorf("it tells %v, want %v", types, want)
		}
		if types, _ := read(first); types[0] != harp.EventJobSent {
			t.Errorf("from the first cursor on it tells %v", types)
		}
	})
}

func TestPrunedJobsAreSaidToBePruned(t *testing.T) {
	everyWiring(t, func(t *testing.T, sys *system) {
		g := newGate()
		sys.agent("web01", func(a *agent.Agent) { greeter(a); g.register(a) })
		host := sys.caller.Host("web01")
		old := must[*harp.Job](t)(host.Call(t.Context(), "hello", harp.Args{"name": "Ada"}))
		must[harp.Value](t)(old.Get(t.Context()))
		running := must[*harp.Job](t)(host.Call(t.Context(), "gate", harp.Args{"name": "x"}))
		<-g.entered
		if _, err := sys.caller.Prune(t.Context(), time.Now().Add(time.Hour)); !errors.Is(err, harp.ErrRefused) {
			t.Errorf("the future is pruned: %v", err)
		}
		if n := must[int](t)(sys.caller.Prune(t.Context(), time.Now())); n != 1 {
			t.Errorf("%d jobs were pruned", n)
		}
		if _, err := old.Get(t.Context()); !errors.Is(err, harp.ErrPruned) {
			t.Errorf("it gives %v", err)
		}
		g.release <- struct{}{}
		must[harp.Value](t)(running.Get(t.Context()))
	})
}

// With no room left calls are refused and nothing of agents is acknowledged, while
// cancels go on; when there is room again, all of it arrives.
func TestADiskThatIsFullIsAMode(t *testing.T) {
	for _, w := range []wiring{embedded, inMemory} {
		t.Run(string(w), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				disk := memory.NewDisk()
				sys := newSystem(t, w, memory.OpenDisk(disk, nil), dispatcher.Config{})
				g := newGate()
				sys.agent("web01", g.register)
				host := sys.caller.Host("web01")
				ends := must[*harp.Job](t)(host.Call(t.Context(), "gate", harp.Args{"name": "ends"}))
				<-g.entered
				synctest.Wait() // it is the one that is let go first
				stops := must[*harp.Job](t)(host.Call(t.Context(), "gate", harp.Args{"name": "stops"}))
				<-g.entered
				synctest.Wait()

				disk.SetSpace(store.SpaceLow)
				if _, err := host.Call(t.Context(), "gate", harp.Args{"name": "x"}); !errors.Is(err, harp.ErrNoSpace) || harp.RanOf(err) != harp.DidNotRun {
					t.Errorf("below the low line a call gives %v", err)
				}
				disk.SetSpace(store.SpaceCritical)
				g.release <- struct{}{}
				synctest.Wait()
				must[bool](t)(stops.Cancel(t.Context()))
				time.Sleep(20 * time.Second)
				for _, j := range []*harp.Job{ends, stops} {
					if s := must[harp.JobStatus](t)(j.Status(t.Context())); s.State.Ended() {
						t.Errorf("below the critical line a job ends: %s", s.State)
					}
				}
				if h := must[harp.HostStatus](t)(sys.caller.Hosts().Get(t.Context(), "web01")); !h.Online {
					t.Error("the session was given up")
				}
				if h := sys.d.Health(t.Context()); h.Ready || !errors.Is(h.Checks["disk"], harp.ErrNoSpace) {
					t.Errorf("health is %+v", h)
				}
				disk.SetSpace(store.SpacePlenty)
				begun := time.Now()
				one := must[harp.Result](t)(ends.Wait(t.Context()))
				two := must[harp.Result](t)(stops.Wait(t.Context()))
				states := []harp.State{one.State, two.State}
				slices.Sort(states)
				if !slices.Equal(states, []harp.State{harp.StateCancelled, harp.StateSucceeded}) {
					t.Errorf("they ended %v", states)
				}
				if took := time.Since(begun); took > 10*time.Second {
					t.Errorf("it took %v to recover", took)
				}
			})
		})
	}
}
