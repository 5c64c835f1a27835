package dispatcher_test

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/dispatcher"
	"github.com/harpcaller/harp/store/memory"
)

// TestThePauseOfAScheduleEndedWithoutAWord: that a pause has ended by itself is an event, told once by whichever dispatcher is there, without
// the name of anybody who ended it, and before what fires then.
func TestThePauseOfAScheduleEndedWithoutAWord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk, begin := memory.NewDisk(), time.Now()
		sys := newSystem(t, embedded, memory.OpenDisk(disk, nil), dispatcher.Config{})
		ctx := t.Context()
		told := func() (lines []string) {
			page := must[harp.EventPage](t)(sys.caller.EventsPage(ctx, harp.EventFilter{After: harp.EventsFromStart, Types: []string{"schedule.*"}}, false))
			for _, e := range page.Events[1:] {
				lines = append(lines, fmt.Sprint(e.Type[len("schedule."):], " ", e.Time.Sub(begin).Round(time.Second), " ", e.Reason, " ", e.By.Kind))
			}
			return lines
		}
		want := func(want ...string) {
			t.Helper()
			synctest.Wait()
			if got := told(); !slices.Equal(got, want) {
				t.Fatalf("after %v the events are\n%q, want\n%q", time.Since(begin), got, want)
			}
		}
		s := yearly("s", "hello", nil)
		s.Cron = "@hourly"
		ok(t, sys.caller.Schedules().Put(ctx, s))
		kind := must[harp.ScheduleStatus](t)(sys.caller.Schedules().Get(ctx, "s")).By.Kind
		ok(t, sys.caller.Schedules().Pause(ctx, "s", "long", begin.Add(5*time.Hour)))
		ok(t, sys.caller.Schedules().Pause(ctx, "s", "short", begin.Add(2*time.Hour))) // in the place of the first, which does not end
		seen := []string{"paused 0s long " + kind, "paused 0s short " + kind}
		want(seen...)
		time.Sleep(2*time.Hour - time.Second)
		seen = append(seen, "skipped 1h0m0s paused: short ")
		want(seen...)
		time.Sleep(time.Second)
		seen = append(seen, "unpaused 2h0m0s short ", "skipped 2h0m0s no_hosts: web* ")
		want(seen...)
		ok(t, sys.caller.Schedules().Unpause(ctx, "s")) // it is not paused
		ok(t, sys.caller.Schedules().Pause(ctx, "s", "away", begin.Add(3*time.Hour-time.Minute)))
		seen = append(seen, "paused 2h0m0s away "+kind)
		want(seen...)
		ok(t, sys.d.Shutdown(ctx))
		disk.Crash()
		time.Sleep(90 * time.Minute)
		sys = newSystem(t, embedded, memory.OpenDisk(disk, nil), dispatcher.Config{})
		time.Sleep(time.Second)
		seen = append(seen, "unpaused 3h30m0s away ", "missed 3h30m0s down ")
		want(seen...)
		ok(t, sys.d.Shutdown(ctx))
		disk.Crash()
		sys = newSystem(t, embedded, memory.OpenDisk(disk, nil), dispatcher.Config{})
		time.Sleep(time.Second)
		want(seen...)
	})
}
