package harptest_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/agent"
	"github.com/harpcaller/harp/harptest"
)

// fireTimes collects the times that a procedure is told it is the run of.
type fireTimes struct {
	mu    sync.Mutex // guards what follows
	times []time.Time
}

func (r *fireTimes) run(ctx context.Context, _ struct{}) (string, error) {
	info, _ := agent.FromContext(ctx)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.times = append(r.times, info.FireTime)
	return info.Schedule, nil
}

// TestScheduleThroughCrashes: a day of hours passes at once, in which the dispatcher and the agent crash. Each hour that
// somebody saw fires once, and the ledger tells of the others.
func TestScheduleThroughCrashes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var seen fireTimes
		sys := harptest.New(t, harptest.Options{
			Agents:   []string{"web01"},
			Register: func(a *agent.Agent) { agent.Handle(a, harp.NewProc[struct{}, string]("tell"), seen.run) },
		})
		schedules := sys.Caller().Schedules()
		req, err := harp.NewBatchRequest("web*", "tell", nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := schedules.Put(t.Context(), harp.Schedule{Name: "hourly", Cron: "@hourly", Request: req}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(3 * time.Hour)
		sys.CrashDispatcher()
		time.Sleep(5*time.Hour + 5*time.Minute)
		sys.StartDispatcher()
		sys.WaitOnline("web01")
		sys.CrashAgent("web01")
		sys.StartAgent("web01")
		sys.WaitOnline("web01")
		time.Sleep(3 * time.Hour)

		counts := map[harp.TimeOutcome]int{}
		var fired []time.Time
		for e, err := range sys.Caller().Schedules().Ledger(t.Context(), harp.LedgerFilter{Schedule: "hourly"}) {
			if err != nil {
				t.Fatal(err)
			}
			counts[e.Outcome] += e.Count
			if e.Outcome == harp.TimeFired {
				fired = append(fired, e.From)
			}
		}
		slices.Reverse(fired)
		seen.mu.Lock()
		defer seen.mu.Unlock()
		if !slices.EqualFunc(fired, seen.times, time.Time.Equal) {
			t.Errorf("the ledger has %v, the procedure was told %v", fired, seen.times)
		}
		// That of the crash may have fired and not be over when the dispatcher is back: then the last one is skipped.
		if total := counts[harp.TimeFired] + counts[harp.TimeMissed] + counts[harp.TimeSkipped]; total != 11 || counts[harp.TimeSkipped] > 1 || counts[harp.TimeMissed] < 4 {
			t.Errorf("of 11 hours there are %v", counts)
		}
	})
}
