package dispatcher_test

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/dispatcher"
)

// A time that had come and waited for its jitter was none of those to come: who skipped the next one had that fire, and the one after it left out.
func TestATimeThatWaitsForItsJitterIsToCome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sys := newSystem(t, embedded, nil, dispatcher.Config{})
		sys.agent("web01", greeter)
		ctx, ss := t.Context(), sys.caller.Schedules()
		_, nominal, fires := jittered(t, ss)
		time.Sleep(time.Until(nominal.Add(90 * time.Second)))
		next := must[[]harp.Upcoming](t)(ss.Next(ctx, "s", 2))
		if !next[0].Nominal.Equal(nominal) || !next[0].Time.Equal(fires) || !next[1].Nominal.Equal(nominal.Add(time.Hour)) {
			t.Fatalf("while %v waits for its jitter those to come are %+v", nominal, next)
		}
		if status := must[harp.ScheduleStatus](t)(ss.Get(ctx, "s")); !status.Next.Nominal.Equal(nominal) {
			t.Errorf("a listing says %+v", status.Next)
		}
		ok(t, ss.Skip(ctx, "s", next[0].Nominal))
		time.Sleep(time.Until(fires.Add(time.Second)))
		entries := allOf(t, ss.Ledger(ctx, harp.LedgerFilter{Schedule: "s", From: nominal, To: nominal.Add(time.Hour)}))
		if len(entries) != 1 || entries[0].Outcome != harp.TimeSkipped || entries[0].Reason != harp.TimeByHand {
			t.Errorf("of the time that was skipped the ledger has %+v", entries)
		}
		if next := must[[]harp.Upcoming](t)(ss.Next(ctx, "s", 1)); !next[0].Nominal.Equal(nominal.Add(time.Hour)) {
			t.Errorf("when it has passed the next is %+v", next)
		}
	})
}

// The clock was set back, and of times that were settled already it was said that they come.
func TestTimesThatAreSettledAreNotToCome(t *testing.T) {
	withBrokenClock(t, func(t *testing.T, sys *system, clock *brokenClock) {
		ctx, ss := t.Context(), sys.caller.Schedules()
		s := yearly("s", "hello", nil)
		s.Cron = "every 1h"
		ok(t, ss.Put(ctx, s))
		time.Sleep(3*time.Hour + time.Minute)
		through := must[harp.ScheduleStatus](t)(ss.Get(ctx, "s")).Through
		clock.set(-2*time.Hour - 30*time.Minute)
		next := must[[]harp.Upcoming](t)(ss.Next(ctx, "s", 1))
		if want := through.Add(time.Hour); !next[0].Nominal.Equal(want) {
			t.Errorf("settled through %v the next is %+v", through, next)
		}
	})
}

// Of times in a pause of the schedule nothing said that they are skipped.
func TestTimesToComeInAPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sys := newSystem(t, embedded, nil, dispatcher.Config{})
		ctx, ss := t.Context(), sys.caller.Schedules()
		s := yearly("s", "hello", nil)
		s.Cron = "every 1h"
		ok(t, ss.Put(ctx, s))
		first := must[[]harp.Upcoming](t)(ss.Next(ctx, "s", 1))[0].Time
		notes := func() (notes []string) {
			for _, up := range must[[]harp.Upcoming](t)(ss.Next(ctx, "s", 3)) {
				notes = append(notes, up.Note)
			}
			return notes
		}
		const skipped = "skipped: paused"
		for _, c := range []struct {
			until time.Time
			want  []string
		}{
			{first, []string{"", "", ""}},
			{first.Add(1), []string{skipped, "", ""}},
			{first.Add(2 * time.Hour), []string{skipped, skipped, ""}},
			{time.Time{}, []string{skipped, skipped, skipped}},
		} {
			ok(t, ss.Pause(ctx, "s", "", c.until))
			if got := notes(); !slices.Equal(got, c.want) {
				t.Errorf("paused until %v the notes are %q, want %q", c.until, got, c.want)
			}
		}
		ok(t, ss.Unpause(ctx, "s"))
		if got := notes(); !slices.Equal(got, []string{"", "", ""}) {
			t.Errorf("no more paused the notes are %q", got)
		}
	})
}
