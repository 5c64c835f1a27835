package dispatcher_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/dispatcher"
)

// A schedule that is put anew with other times fires none of those that were before, however much it may catch up.
func TestAnEditFiresNothingOfThePast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sys := newSystem(t, embedded, nil, dispatcher.Config{})
		sys.agent("web01", greeter)
		ctx, ss := t.Context(), sys.caller.Schedules()
		s := yearly("s", "hello", harp.Args{"name": "Ada"})
		ok(t, ss.Put(ctx, s))
		time.Sleep(10*time.Minute + 30*time.Second)
		s.Cron, s.CatchUp, s.CatchUpMost, s.Overlap = "* * * * *", time.Hour, 100, harp.OverlapAllow
		edited := time.Now()
		ok(t, ss.Put(ctx, s))
		if got := must[harp.ScheduleStatus](t)(ss.Get(ctx, "s")); got.Through.Before(edited) {
			t.Errorf("edited at %v it is settled through %v", edited, got.Through)
		}
		time.Sleep(time.Minute)
		entries := allOf(t, ss.Ledger(ctx, harp.LedgerFilter{Schedule: "s"}))
		if len(entries) != 1 || entries[0].Outcome != harp.TimeFired || entries[0].From.Before(edited) {
			t.Errorf("its ledger has %+v", entries)
		}
	})
}
