package dispatcher

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/store"
	"github.com/harpcaller/harp/store/memory"
)

// lostSteps is a store of which answers to steps of schedules are lost, and in which schedules cannot be read for a while.
type lostSteps struct {
	store.Store
	loses  atomic.Int64 // so many
	broken atomic.Bool
	reads  atomic.Int64
}

func (s *lostSteps) StepSchedule(ctx context.Context, step store.ScheduleStep, now time.Time) (store.ScheduleStepped, error) {
	done, err := s.Store.StepSchedule(ctx, step, now)
	if err == nil && s.loses.Add(-1) >= 0 {
		return store.ScheduleStepped{}, errTest
	}
	return done, err
}

func (s *lostSteps) Schedule(ctx context.Context, name string) (*store.Schedule, error) {
	s.reads.Add(1)
	if s.broken.Load() {
		return nil, errTest
	}
	return s.Store.Schedule(ctx, name)
}

// everyMinute is a schedule that fires each minute, beside what runs.
func everyMinute(t *testing.T, name string) harp.Schedule {
	t.Helper()
	s := batchSchedule(t, name, "hello", nil)
	s.Cron, s.Overlap, s.CatchUpMost = "* * * * *", harp.OverlapAllow, 100
	return s
}

// wantFired checks that a schedule has fired so many times, each once.
func wantFired(t *testing.T, s *service, name string, want int) {
	t.Helper()
	times := map[time.Time]bool{}
	all := ledgerOf(t, s, name)
	for _, e := range all {
		if e.Outcome != harp.TimeFired || times[e.From] {
			t.Errorf("the ledger has %+v", e)
		}
		times[e.From] = true
	}
	if len(all) != want {
		t.Errorf("%d times have fired, want %d", len(all), want)
	}
}

// A schedule whose step was made though its answer was lost, and that cannot be read for a while, is not read without a pause, and
// fires each of its times once.
func TestAScheduleThatCannotBeReadAfterAConflict(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := &lostSteps{Store: memory.Open(nil)}
		d := opened(t, st, Config{Hosts: StaticHosts{{Name: "web01"}}})
		s := d.service(harp.Principal{Kind: "caller", Name: "ada"})
		put(t, s, everyMinute(t, "often"))
		time.Sleep(30 * time.Second)
		st.loses.Store(1)
		st.broken.Store(true)
		time.Sleep(3 * time.Minute)
		if n := st.reads.Load(); n < 10 || n > int64(3*time.Minute/scheduleRetry) {
			t.Errorf("in 3 minutes it was read %d times", n)
		}
		st.broken.Store(false)
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		wantFired(t, s, "often", 5)
	})
}

// A schedule fires its next time though somebody had it run under the id of a batch that there is, which is refused.
func TestAScheduleFiresAfterARefusedTrigger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := opened(t, nil, Config{Hosts: StaticHosts{{Name: "web01"}}})
		s := d.service(harp.Principal{Kind: "caller", Name: "ada"})
		put(t, s, everyMinute(t, "often"))
		time.Sleep(90 * time.Second)
		synctest.Wait()
		taken := ledgerOf(t, s, "often")[0].Batch
		if _, err := s.TriggerSchedule(t.Context(), taken, "often", harp.Trigger{EvenIfRunning: true}); !errors.Is(err, harp.ErrConflict) {
			t.Errorf("it was triggered: %v", err)
		}
		time.Sleep(3 * time.Minute)
		synctest.Wait()
		wantFired(t, s, "often", 4)
	})
}
