package dispatcher_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/agent"
	"github.com/harpcaller/harp/dispatcher"
	"github.com/harpcaller/harp/store/memory"
)

// configured is what hosts are configured as: the procedure base sets it, and its dry run tells whether it would.
type configured struct {
	gate
	mu    sync.Mutex
	hosts map[string]string
}

func newConfigured() *configured { return &configured{gate: newGate(), hosts: map[string]string{}} }

// set makes a host one that is clean, dirty, broken (its check fails), silent (its check does not say), or slow (its check is
// dirty, and waits for its gate).
func (c *configured) set(host, is string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.hosts[host] = is
}

func (c *configured) of(host string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.hosts[host]
}

func (c *configured) register(a *agent.Agent) {
	agent.Handle(a, harp.NewProc[struct{}, any]("base"), func(ctx context.Context, _ struct{}) (any, error) {
		info, _ := agent.FromContext(ctx)
		if !info.DryRun {
			c.set(info.Host, "clean")
			return nil, nil
		}
		switch is := c.of(info.Host); is {
		case "broken":
			return nil, errors.New(is)
		case "silent":
			return nil, nil
		case "slow":
			c.entered <- info.Host
			<-c.release
		case "clean":
			return map[string]any{"changed": false}, nil
		}
		return map[string]any{"changes": []string{"a line"}}, nil
	}, agent.DryRun())
	agent.Handle(a, harp.NewProc[struct{}, bool]("plain"), func(context.Context, struct{}) (bool, error) { return true, nil })
}

// agents connects agents of hosts that are configured so.
func (c *configured) agents(sys *system, as map[string]string) {
	for host, is := range as {
		c.set(host, is)
		sys.agent(host, c.register)
	}
}

// check checks hosts, and waits for that.
func check(t testing.TB, c *harp.Caller, target, name string) {
	t.Helper()
	b := must[*harp.Batch](t)(c.Target(target).Call(t.Context(), "base", nil, harp.DryRun(), harp.Drift(name)))
	must[harp.BatchStatus](t)(b.Wait(t.Context()))
}

// marksOf are marks as words.
func marksOf(t testing.TB, c *harp.Caller, target, name string) string {
	t.Helper()
	var all []string
	for _, s := range allOf(t, c.Hosts().Drift(t.Context(), target, name)) {
		if s.Since.IsZero() || s.Checked.Before(s.Since) || s.Job == "" {
			t.Errorf("a mark is %+v", s)
		}
		all = append(all, fmt.Sprintf("%s %s %s", s.Host, s.Name, s.Mark))
	}
	return strings.Join(all, ", ")
}

func wantMarks(t testing.TB, c *harp.Caller, want string) {
	t.Helper()
	if got := marksOf(t, c, "", ""); got != want {
		t.Errorf("the marks are %q, want %q", got, want)
	}
}

// wantHosts checks which hosts a target selects.
func wantHosts(t testing.TB, c *harp.Caller, target string, want ...string) {
	t.Helper()
	got, err := c.Target(target).Hosts(t.Context())
	if len(want) == 0 && errors.Is(err, harp.ErrNotFound) {
		return
	}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%s selects %q, %v, want %q", target, got, err, want)
	}
}

// A check marks its hosts, targets select by the marks as soon as it has ended, and what mends the hosts that are dirty makes the
// next check find them clean.
func TestDrift(t *testing.T) {
	everyWiring(t, func(t *testing.T, sys *system) {
		c := newConfigured()
		c.agents(sys, map[string]string{"web01": "clean", "web02": "dirty", "web03": "broken", "web04": "silent", "web05": "dirty"})
		sys.agent("db01", c.register)
		wantHosts(t, sys.caller, "web* and host.drift.base=unknown", "web01", "web02", "web03", "web04", "web05")
		wantMarks(t, sys.caller, "")
		check(t, sys.caller, "web*", "base")
		check(t, sys.caller, "web01,web02", "a b")
		wantMarks(t, sys.caller, "web01 a b clean, web01 base clean, web02 a b dirty, web02 base dirty, web03 base unknown, web04 base unknown, web05 base dirty")
		wantHosts(t, sys.caller, "host.drift.base=dirty", "web02", "web05")
		wantHosts(t, sys.caller, `host.drift."a b"=dirty`, "web02")
		wantHosts(t, sys.caller, "host.drift.base=unknown", "db01", "web03", "web04")
		wantHosts(t, sys.caller, "host.drift.base!=clean and not host.drift.base=unknown", "web02", "web05")
		wantHosts(t, sys.caller, "host.drift.other=dirty")
		if got := marksOf(t, sys.caller, "web*", "a b"); got != "web01 a b clean, web02 a b dirty" {
			t.Errorf("of one name they are %q", got)
		}
		if got := marksOf(t, sys.caller, "db01", ""); got != "" {
			t.Errorf("of a host that was never checked they are %q", got)
		}
		h := must[harp.HostStatus](t)(sys.caller.Hosts().Get(t.Context(), "web02"))
		if len(h.Drift) != 2 || h.Drift[0].Name != "a b" || h.Drift[1].Mark != harp.DriftDirty || h.Drift[1].Host != "web02" {
			t.Errorf("a host has %+v", h.Drift)
		}
		if explained, err := sys.caller.Target("host.drift.base=dirty").Explain(t.Context(), "db01"); err != nil || explained.Value != "unknown" || explained.Hosts != 0 {
			t.Errorf("it explains %+v, %v", explained, err)
		}

		b := must[*harp.Batch](t)(sys.caller.Target("host.drift.base=dirty").Call(t.Context(), "base", nil))
		ended(t, b, harp.BatchSucceeded, "")
		check(t, sys.caller, "web*", "base")
		wantHosts(t, sys.caller, "host.drift.base=dirty")
		wantHosts(t, sys.caller, "host.drift.base=clean", "web01", "web02", "web05")
		wantHosts(t, sys.caller, `host.drift."a b"=dirty`, "web02")
		var told []string
		page := must[harp.EventPage](t)(sys.caller.EventsPage(t.Context(), harp.EventFilter{After: harp.EventsFromStart, Types: []string{"host.drift"}}, false))
		for _, e := range page.Events {
			told = append(told, e.Host+" "+e.Reason)
		}
		slices.Sort(told)
		if want := []string{"web01 a b: clean", "web01 base: clean", "web02 a b: dirty", "web02 base: clean", "web02 base: dirty", "web05 base: clean", "web05 base: dirty"}; !slices.Equal(told, want) {
			t.Errorf("told is %q, want %q", told, want)
		}
	})
}

// A batch that retries one marks the same name, and so does each run of a schedule.
func TestDriftOfRetriesAndSchedules(t *testing.T) {
	everyWiring(t, func(t *testing.T, sys *system) {
		c := newConfigured()
		c.agents(sys, map[string]string{"web01": "broken", "web02": "dirty"})
		ctx, ss := t.Context(), sys.caller.Schedules()
		b := must[*harp.Batch](t)(sys.caller.Target("web*").Call(ctx, "base", nil, harp.DryRun(), harp.Drift("base")))
		ended(t, b, harp.BatchFailed, "")
		c.set("web01", "dirty")
		ended(t, must[*harp.Batch](t)(b.Retry(ctx, nil)), harp.BatchSucceeded, "")
		wantMarks(t, sys.caller, "web01 base dirty, web02 base dirty")

		ok(t, ss.Put(ctx, yearly("nightly", "base", nil, harp.DryRun(), harp.Drift("base"))))
		if got := must[harp.ScheduleStatus](t)(ss.Get(ctx, "nightly")); got.Request.Batch.Drift != "base" || !got.Request.DryRun {
			t.Errorf("the schedule is %+v", got.Request)
		}
		c.set("web01", "clean")
		ended(t, must[*harp.Batch](t)(ss.Trigger(ctx, "nightly")), harp.BatchSucceeded, "")
		wantMarks(t, sys.caller, "web01 base clean, web02 base dirty")
		wrong := yearly("wrong", "base", nil)
		wrong.Request.Batch.Drift = "base"
		if err := ss.Put(ctx, wrong); harp.FailureOf(err).Field != "request.drift" && harp.FailureOf(err).Field != "drift" {
			t.Errorf("a schedule whose runs are no dry runs: %v", err)
		}
	})
}

// A check cannot be what says nothing without changing something.
func TestDriftRefused(t *testing.T) {
	everyWiring(t, func(t *testing.T, sys *system) {
		c := newConfigured()
		c.agents(sys, map[string]string{"web01": "clean", "web02": "clean"})
		sys.agent("db01", greeter)
		ctx := t.Context()
		_, err := sys.caller.Target("web*").Call(ctx, "plain", nil, harp.DryRun(), harp.Drift("base"))
		if f := harp.FailureOf(err); !errors.Is(err, harp.ErrInvalid) || f.Field != "drift" || !strings.Contains(err.Error(), "2 hosts, web01, web02") {
			t.Errorf("a procedure without a dry run: %v", err)
		}
		skips := must[*harp.Batch](t)(sys.caller.Target("web*").Call(ctx, "plain", nil, harp.DryRun(), harp.Drift("base"), harp.WhenUnfit(harp.SkipHost)))
		ended(t, skips, harp.BatchFailed, "no_host")
		_, err = sys.caller.Target("web*").Call(ctx, "base", nil, harp.Drift("base"))
		if f := harp.FailureOf(err); !errors.Is(err, harp.ErrInvalid) || f.Field != "drift" {
			t.Errorf("no dry run: %v", err)
		}
		if _, err = sys.caller.Host("web01").Call(ctx, "base", nil, harp.DryRun(), harp.Drift("base")); harp.FailureOf(err).Field != "drift" {
			t.Errorf("a call of one host: %v", err)
		}
		wantMarks(t, sys.caller, "")
		for _, bad := range []struct {
			target, name string
			is           error
			field        string
		}{
			{"web* web", "", harp.ErrInvalid, "target"},
			{"web09", "", harp.ErrNotFound, ""},
			{"nobody*", "", harp.ErrNotFound, ""},
			{"", strings.Repeat("n", 65), harp.ErrInvalid, "name"},
		} {
			for _, err := range sys.caller.Hosts().Drift(ctx, bad.target, bad.name) {
				if f := harp.FailureOf(err); !errors.Is(err, bad.is) || f.Field != bad.field {
					t.Errorf("marks of %q under %q: %v", bad.target, bad.name, err)
				}
			}
		}
	})
}

// Marks that are forgotten are so for targets, too, and what is under way leaves none.
func TestDriftIsForgotten(t *testing.T) {
	everyWiring(t, func(t *testing.T, sys *system) {
		c := newConfigured()
		c.agents(sys, map[string]string{"web01": "dirty", "web02": "dirty"})
		ctx, hosts := t.Context(), sys.caller.Hosts()
		check(t, sys.caller, "web*", "base")
		check(t, sys.caller, "web01", "other")
		c.set("web02", "slow")
		slow := must[*harp.Batch](t)(sys.caller.Target("web02").Call(ctx, "base", nil, harp.DryRun(), harp.Drift("base")))
		<-c.entered
		if n := must[int](t)(hosts.ForgetDrift(ctx, "base")); n != 2 {
			t.Errorf("%d are forgotten", n)
		}
		wantMarks(t, sys.caller, "web01 other dirty")
		wantHosts(t, sys.caller, "host.drift.base=dirty")
		close(c.release)
		ended(t, slow, harp.BatchSucceeded, "")
		wantMarks(t, sys.caller, "web01 other dirty")
		if _, err := hosts.ForgetDrift(ctx, "base"); !errors.Is(err, harp.ErrNotFound) {
			t.Errorf("again: %v", err)
		}
		if _, err := hosts.ForgetDrift(ctx, ""); !errors.Is(err, harp.ErrInvalid) {
			t.Errorf("no name: %v", err)
		}
		check(t, sys.caller, "web*", "base")
		wantMarks(t, sys.caller, "web01 base dirty, web01 other dirty, web02 base dirty")
	})
}

// The mark of a check that is given up is unknown, until its agent tells how it has ended.
func TestDriftOfALateCheck(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, sys *system) {
		c := newConfigured()
		c.agents(sys, map[string]string{"web01": "clean"})
		synctest.Wait()
		check(t, sys.caller, "web01", "base")
		c.set("web01", "slow")
		b := must[*harp.Batch](t)(sys.caller.Target("web01").Call(t.Context(), "base", nil, harp.DryRun(), harp.Drift("base")))
		<-c.entered
		ok(t, b.Job("web01").ForceLost(t.Context(), "the disk burned"))
		ended(t, b, harp.BatchFailed, "")
		wantMarks(t, sys.caller, "web01 base unknown")
		wantHosts(t, sys.caller, "host.drift.base=unknown", "web01")
		close(c.release)
		synctest.Wait()
		wantMarks(t, sys.caller, "web01 base dirty")
		wantHosts(t, sys.caller, "host.drift.base=dirty", "web01")
	})
}

// Marks outlive the dispatcher, and go with their hosts.
func TestDriftIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := memory.NewDisk()
		sys := newSystem(t, embedded, memory.OpenDisk(disk, nil), dispatcher.Config{})
		c := newConfigured()
		c.agents(sys, map[string]string{"web01": "dirty", "web02": "clean"})
		synctest.Wait()
		check(t, sys.caller, "web*", "base")
		ok(t, sys.d.Shutdown(t.Context()))

		again := newSystem(t, embedded, memory.OpenDisk(disk, nil), dispatcher.Config{})
		wantMarks(t, again.caller, "web01 base dirty, web02 base clean")
		wantHosts(t, again.caller, "host.drift.base=dirty", "web01")
		must[int](t)(again.caller.Hosts().Remove(t.Context(), "web01"))
		wantMarks(t, again.caller, "web02 base clean")
		stop := again.agent("web01", c.register)
		synctest.Wait()
		wantHosts(t, again.caller, "host.drift.base=unknown", "web01")
		check(t, again.caller, "web01", "base")
		wantMarks(t, again.caller, "web01 base dirty, web02 base clean")
		stop()
		synctest.Wait()
		must[int](t)(again.caller.Hosts().Remove(t.Context(), "web01"))
		wantMarks(t, again.caller, "web02 base clean")
	})
}
