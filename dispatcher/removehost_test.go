package dispatcher_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/dispatcher"
	"github.com/harpcaller/harp/store"
	"github.com/harpcaller/harp/store/memory"
)

// A host that is removed is forgotten with what has not ended on it; its agent, when it comes
// back, is taken for a new host's.
func TestRemovingAHost(t *testing.T) {
	everyWiring(t, func(t *testing.T, sys *system) {
		g := newGate()
		stop := sys.agent("web01", g.register)
		sys.agent("web02", greeter)
		ctx := t.Context()
		host, hosts := sys.caller.Host("web01", harp.OfflineWait(harp.NoLimit), harp.Queue(harp.Args{"q": 1})), sys.caller.Hosts()
		running := must[*harp.Job](t)(host.Call(ctx, "gate", harp.Args{"name": "running"}))
		<-g.entered
		waits := must[*harp.Job](t)(host.Call(ctx, "gate", harp.Args{"name": "waits"}))
		elsewhere := must[*harp.Job](t)(sys.caller.Host("web02").Call(ctx, "hello", harp.Args{"name": "Ada"}, harp.Queue(harp.Args{"q": 1})))

		if _, err := hosts.Remove(ctx, "web01"); !errors.Is(err, harp.ErrConflict) {
			t.Errorf("a host that is online is removed: %v", err)
		}
		must[int](t)(hosts.Label(ctx, "web01", map[string]string{"role": "web"}))
		sys.part()
		awaitAway(t, sys.caller, "web01")
		if n := must[int](t)(hosts.Remove(ctx, "web01")); n != 2 {
			t.Errorf("it ended %d jobs", n)
		}
		if _, err := running.Get(ctx); !errors.Is(err, harp.ErrLost) || harp.RanOf(err) != harp.MayHaveRun {
			t.Errorf("what ran gives %v", err)
		}
		if _, err := waits.Get(ctx); !errors.Is(err, harp.ErrCancelled) || harp.RanOf(err) != harp.DidNotRun {
			t.Errorf("what waited gives %v", err)
		}
		for _, job := range []*harp.Job{running, waits} {
			if s := must[harp.JobStatus](t)(job.Status(ctx)); s.Reason != harp.LostHostRemoved {
				t.Errorf("the reason is %q", s.Reason)
			}
		}
		if _, err := elsewhere.Get(ctx); err != nil {
			t.Errorf("what waited in the queue for another host gives %v", err)
		}
		if _, err := hosts.Get(ctx, "web01"); !errors.Is(err, harp.ErrNotFound) {
			t.Errorf("it is still known: %v", err)
		}
		if _, err := host.Call(ctx, "gate", harp.Args{"name": "more"}); !errors.Is(err, harp.ErrNotFound) {
			t.Errorf("a call gives %v", err)
		}
		for _, name := range []string{"web01", "web09"} {
			if _, err := hosts.Remove(ctx, name); !errors.Is(err, harp.ErrNotFound) {
				t.Errorf("removing %s gives %v", name, err)
			}
		}
		if _, err := hosts.Remove(ctx, ""); !errors.Is(err, harp.ErrInvalid) {
			t.Error(err)
		}

		close(g.release)
		sys.heal()
		if got := must[harp.HostStatus](t)(hosts.Get(ctx, "web01")); !got.Online || got.Labels["role"] != "" {
			t.Errorf("it came back as %+v", got)
		}
		must[harp.Value](t)(must[*harp.Job](t)(host.Call(ctx, "gate", harp.Args{"name": "again"})).Get(ctx))
		stop()
	})
}

// awaitAway waits until the dispatcher has noticed that a host's agent is gone.
func awaitAway(t *testing.T, caller *harp.Caller, host string) {
	t.Helper()
	away := harp.EventFilter{After: harp.EventsFromStart, Host: host, Types: []string{string(harp.EventHostAway)}}
	for _, err := range caller.Events(t.Context(), away) {
		if err != nil {
			t.Fatal(err)
		}
		return
	}
}

// A host of the registry would be back with its next reading.
func TestAHostOfTheRegistryIsNotRemoved(t *testing.T) {
	sys := newSystem(t, embedded, nil, dispatcher.Config{Hosts: dispatcher.StaticHosts{{Name: "web01"}}})
	if _, err := sys.caller.Hosts().Remove(t.Context(), "web01"); !errors.Is(err, harp.ErrConflict) {
		t.Error(err)
	}
}

// keptLabels is a store in which the labels of hosts cannot be read while the test says so.
type keptLabels struct {
	store.Store
	ill atomic.Bool
}

func (s *keptLabels) Document(ctx context.Context, kind, name string) ([]byte, error) {
	if kind == "label" && s.ill.Load() {
		return nil, errTrouble
	}
	return s.Store.Document(ctx, kind, name)
}

// A host that was removed, but for its labels, is not there any more when that is asked again, under another id or after a restart: neither
// are its labels.
func TestAHostThatWasRemovedInPart(t *testing.T) {
	for name, restarts := range map[string]bool{"asked again": false, "after a restart": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				disk := memory.NewDisk()
				st := &keptLabels{Store: memory.OpenDisk(disk, nil)}
				sys := newSystem(t, embedded, st, dispatcher.Config{})
				agent := must[*rawAgent](t)(sys.newRawAgent(t.Context(), "i"))
				synctest.Wait()
				hosts := sys.caller.Hosts()
				must[int](t)(hosts.Label(t.Context(), "web01", map[string]string{"role": "web"}))
				agent.tr.Close(nil)
				synctest.Wait()
				st.ill.Store(true)
				if _, err := hosts.Remove(t.Context(), "web01"); err == nil {
					t.Error("it is removed")
				}
				st.ill.Store(false)
				if restarts {
					ok(t, sys.d.Shutdown(t.Context()))
					sys = newSystem(t, embedded, memory.OpenDisk(disk, nil), dispatcher.Config{})
					hosts = sys.caller.Hosts()
				}
				must[int](t)(hosts.Remove(t.Context(), "web01"))
				if h, err := hosts.Get(t.Context(), "web01"); !errors.Is(err, harp.ErrNotFound) {
					t.Errorf("it is %+v, %v", h, err)
				}
				must[*rawAgent](t)(sys.newRawAgent(t.Context(), "i"))
				synctest.Wait()
				if h := must[harp.HostStatus](t)(hosts.Get(t.Context(), "web01")); len(h.Labels) > 0 {
					t.Errorf("it comes back with %v", h.Labels)
				}
				if _, err := hosts.Remove(t.Context(), "web09"); !errors.Is(err, harp.ErrNotFound) {
					t.Errorf("one that never was: %v", err)
				}
			})
		})
	}
}

// A host that was removed and is in the registry again is one like any other: batches wait for it, or leave it out, until it connects.
func TestBatchesOfAHostThatIsListedAgain(t *testing.T) {
	listed := dispatcher.StaticHosts{{Name: "web01"}}
	sys := newSystem(t, inMemory, nil, dispatcher.Config{Hosts: listed})
	ctx := t.Context()
	sys.agent("web01", ofBatches)()
	awaitAway(t, sys.caller, "web01")
	must[int](t)(sys.d.ReplaceHosts(ctx, nil))
	must[int](t)(sys.caller.Hosts().Remove(ctx, "web01"))
	must[int](t)(sys.d.ReplaceHosts(ctx, listed))
	web01 := sys.caller.Target("web01")
	skips := must[*harp.Batch](t)(web01.Call(ctx, "host.name", nil, harp.WhenOffline(harp.SkipHost)))
	ended(t, skips, harp.BatchFailed, harp.BatchReasonNoHost)
	waits := must[*harp.Batch](t)(web01.Call(ctx, "host.name", nil, harp.OfflineWait(time.Hour)))
	sys.agent("web01", ofBatches)
	ended(t, waits, harp.BatchSucceeded, "")
}
