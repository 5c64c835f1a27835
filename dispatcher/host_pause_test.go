package dispatcher_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/dispatcher"
	"github.com/harpcaller/harp/store/memory"
)

// A host that was paused is paused until its end, though the clock is set behind the beginning.
func TestAHostStaysPausedThoughTheClockIsSetBack(t *testing.T) {
	withBrokenClock(t, func(t *testing.T, sys *system, clock *brokenClock) {
		a := must[*rawAgent](t)(sys.newRawAgent(t.Context(), "i"))
		alive(a)
		asked := a.exchanges(t)
		synctest.Wait()
		must[int](t)(sys.caller.Hosts().Pause(t.Context(), "web01", "disk", time.Now().Add(time.Hour)))
		job := must[*harp.Job](t)(sys.caller.Host("web01", harp.OfflineWait(harp.NoLimit)).Call(t.Context(), "work", nil))
		clock.set(-30 * time.Minute)
		for range 89 {
			time.Sleep(time.Minute)
			expectNothing(t, asked)
		}
		if got := reasonOf(t, job); got != "queued(window)" {
			t.Errorf("it is %s", got)
		}
		if v := must[harp.Verdict](t)(sys.caller.Maintenance().Why(t.Context(), "web01", "work", time.Time{})); v.May || len(v.Obstacles) != 1 || v.Obstacles[0].Why != "disk" {
			t.Errorf("it is judged %+v", v)
		}
		time.Sleep(time.Minute + time.Second)
		expectCall(t, asked)
	})
}

// TestAPauseThatHasEndedDoesNotBeginAnew: the clock is set back behind the end of a host's pause, which was told, and the dispatcher is started
// anew: the host is not paused.
func TestAPauseThatHasEndedDoesNotBeginAnew(t *testing.T) {
	for _, back := range []time.Duration{10 * time.Minute, 50 * time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			disk, clock := memory.NewDisk(), new(brokenClock)
			sys := newSystem(t, embedded, memory.OpenDisk(disk, nil), dispatcher.Config{Now: clock.now})
			leave := sys.agent("web01", greeter)
			must[int](t)(sys.caller.Hosts().Pause(t.Context(), "web01", "disk", time.Now().Add(time.Hour)))
			time.Sleep(time.Hour + time.Minute)
			clock.set(-back)
			time.Sleep(time.Minute)
			check := func(sys *system, when string) {
				job := must[*harp.Job](t)(sys.caller.Host("web01").Call(t.Context(), "hello", helloArgs{Name: "x"}))
				time.Sleep(time.Second)
				expectState(t, job, harp.StateSucceeded)
				if h := must[harp.HostStatus](t)(sys.caller.Hosts().Get(t.Context(), "web01")); h.Pause != nil {
					t.Errorf("set back by %v, %s: it is paused: %+v", back, when, h.Pause)
				}
				for h, err := range sys.caller.Hosts().List(t.Context(), "host.paused=true") {
					if !errors.Is(err, harp.ErrNotFound) {
						t.Errorf("set back by %v, %s: targets see it as paused: %v, %v", back, when, h.Name, err)
					}
				}
			}
			check(sys, "at once")
			leave()
			synctest.Wait()
			if err := sys.d.Shutdown(t.Context()); err != nil {
				t.Fatal(err)
			}
			again := newSystem(t, embedded, memory.OpenDisk(disk, nil), dispatcher.Config{Now: clock.now})
			defer again.agent("web01", greeter)()
			synctest.Wait()
			check(again, "started anew")
		})
	}
}

// So it is for a dispatcher that is started by a clock which is behind.
func TestAHostStaysPausedThoughTheDispatcherStartsBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk, clock := memory.NewDisk(), new(brokenClock)
		sys := newSystem(t, embedded, memory.OpenDisk(disk, nil), dispatcher.Config{Now: clock.now})
		leave := sys.agent("web01", greeter)
		must[int](t)(sys.caller.Hosts().Pause(t.Context(), "web01", "disk", time.Time{}))
		leave()
		synctest.Wait()
		if err := sys.d.Shutdown(t.Context()); err != nil {
			t.Fatal(err)
		}
		clock.set(-30 * time.Minute)
		again := newSystem(t, embedded, memory.OpenDisk(disk, nil), dispatcher.Config{Now: clock.now})
		defer again.agent("web01", greeter)()
		synctest.Wait()
		job := must[*harp.Job](t)(again.caller.Host("web01").Call(t.Context(), "hello", helloArgs{Name: "x"}))
		time.Sleep(time.Minute)
		expectState(t, job, harp.StateQueued)
		must[int](t)(again.caller.Hosts().Unpause(t.Context(), "web01"))
		time.Sleep(time.Second)
		expectState(t, job, harp.StateSucceeded)
	})
}

// A host whose pause has ended by itself is told as one that is not paused.
func TestAHostIsToldAsPausedUntilThatEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sys := newSystem(t, embedded, nil, dispatcher.Config{Hosts: dispatcher.StaticHosts{{Name: "web01"}}})
		ctx, begin := t.Context(), time.Now()
		must[int](t)(sys.caller.Hosts().Pause(ctx, "web01", "disk", begin.Add(time.Hour)))
		for _, after := range []time.Duration{0, time.Hour - 1, time.Hour} {
			time.Sleep(time.Until(begin.Add(after)))
			s := must[harp.HostStatus](t)(sys.caller.Hosts().Get(ctx, "web01"))
			v := must[harp.Verdict](t)(sys.caller.Maintenance().Why(ctx, "web01", "work", time.Time{}))
			if paused := after < time.Hour; (s.Pause != nil) != paused || v.May == paused {
				t.Errorf("after %v the pause is %+v, and it may start: %t", after, s.Pause, v.May)
			}
		}
	})
}

// That the pause of a host has ended by itself is an event, told once by whichever dispatcher is there, without who has ended it.
func TestAPauseThatEndsByItselfIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk, begin, hosts := memory.NewDisk(), time.Now(), dispatcher.Config{Hosts: dispatcher.StaticHosts{{Name: "web01"}, {Name: "web02"}}}
		sys := newSystem(t, embedded, memory.OpenDisk(disk, nil), hosts)
		ctx := t.Context()
		must[int](t)(sys.caller.Hosts().Pause(ctx, "web01", "disk", begin.Add(time.Hour)))
		must[int](t)(sys.caller.Hosts().Pause(ctx, "web02", "fan", begin.Add(2*time.Hour)))
		told := func() (lines []string) {
			page := must[harp.EventPage](t)(sys.caller.EventsPage(ctx, harp.EventFilter{After: harp.EventsFromStart, Types: []string{"host.unpaused"}}, false))
			for _, e := range page.Events {
				lines = append(lines, fmt.Sprint(e.Host, " ", e.Time.Sub(begin), " ", e.Reason, e.By.Kind))
			}
			return lines
		}
		time.Sleep(time.Hour - time.Second)
		if got := told(); got != nil {
			t.Errorf("before it has ended: %q", got)
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if got := told(); !slices.Equal(got, []string{"web01 1h0m0s disk"}) {
			t.Errorf("after the first: %q", got)
		}
		if err := sys.d.Shutdown(ctx); err != nil {
			t.Fatal(err)
		}
		disk.Crash()
		time.Sleep(2 * time.Hour)
		sys = newSystem(t, embedded, memory.OpenDisk(disk, nil), hosts)
		synctest.Wait()
		if got := told(); !slices.Equal(got, []string{"web01 1h0m0s disk", "web02 3h0m1s fan"}) {
			t.Errorf("after a restart: %q", got)
		}
		if n := must[int](t)(sys.caller.Hosts().Unpause(ctx, "web*")); n != 2 {
			t.Errorf("unpaused are %d", n)
		}
		if got := told(); len(got) != 2 {
			t.Errorf("told again when it is unpaused by hand: %q", got)
		}
	})
}

// Behind a pause a job waits for its absent host as long as ever, though the dispatcher was not there when that ended.
func TestAJobWaitsAnewBehindAPauseThatEndsWithoutADispatcher(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk, begin := memory.NewDisk(), time.Now()
		sys := newSystem(t, embedded, memory.OpenDisk(disk, nil), dispatcher.Config{})
		leave := sys.agent("web01", greeter)
		must[int](t)(sys.caller.Hosts().Pause(t.Context(), "web01", "disk", begin.Add(time.Hour)))
		leave()
		synctest.Wait()
		host := sys.caller.Host("web01", harp.OfflineWait(10*time.Minute))
		id := must[*harp.Job](t)(host.Call(t.Context(), "hello", helloArgs{Name: "x"})).ID()
		time.Sleep(50 * time.Minute)
		if err := sys.d.Shutdown(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(11 * time.Minute)
		again := newSystem(t, embedded, memory.OpenDisk(disk, nil), dispatcher.Config{})
		time.Sleep(9*time.Minute - time.Second)
		expectState(t, again.caller.Job(id), harp.StateQueued)
		time.Sleep(time.Second)
		expectState(t, again.caller.Job(id), harp.StateExpired)
	})
}
