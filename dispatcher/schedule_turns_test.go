package dispatcher

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/store"
	"github.com/harpcaller/harp/store/memory"
)

// stuckStore is a store of which the steps of one schedule take until they are let go on.
type stuckStore struct {
	store.Store
	stuck atomic.Pointer[string] // its name; nil: none
	goOn  chan struct{}
	entry error // of steps that write an entry of a ledger
}

func (s *stuckStore) StepSchedule(ctx context.Context, step store.ScheduleStep, now time.Time) (store.ScheduleStepped, error) {
	if stuck := s.stuck.Load(); stuck != nil && step.Name == *stuck {
		<-s.goOn
	}
	if s.entry != nil && step.Entry != nil {
		return store.ScheduleStepped{}, s.entry
	}
	return s.Store.StepSchedule(ctx, step, now)
}

// putEverySecond puts a schedule with a time each second, whose target selects no host.
func putEverySecond(t *testing.T, s *service, name string) {
	t.Helper()
	req, err := harp.NewBatchRequest("web*", "hello", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.ID = ""
	sch := harp.Schedule{Name: name, Cron: "* * * * * *", CatchUpMost: 1000, Request: req}
	if err := s.PutSchedule(t.Context(), harp.NewID(), sch); err != nil {
		t.Fatal(err)
	}
}

// A schedule whose step takes long keeps no other one from its times, and nobody from changing another one.
func TestASlowScheduleKeepsNoOtherFromItsTimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := &stuckStore{Store: memory.Open(nil), goOn: make(chan struct{})}
		d := opened(t, st, Config{})
		s, ctx := d.service(harp.Principal{Kind: "caller", Name: "ada"}), t.Context()
		const others = stepsTogether + 10
		putEverySecond(t, s, "slow")
		for n := range others {
			putEverySecond(t, s, fmt.Sprint("other", n))
		}
		synctest.Wait()
		slow := "slow"
		st.stuck.Store(&slow)
		time.Sleep(3500 * time.Millisecond)
		pausing, over := context.WithCancel(ctx)
		paused := make(chan error)
		go func() {
			paused <- s.ChangeSchedule(pausing, harp.NewID(), "slow", harp.ScheduleChange{Kind: harp.PauseOfSchedule})
		}()
		synctest.Wait()
		for n := range others {
			name := fmt.Sprint("other", n)
			page, err := s.ScheduleLedger(ctx, harp.LedgerFilter{Schedule: name}, "")
			if err != nil || len(page.Items) != 1 || page.Items[0].Count != 3 {
				t.Errorf("after 3 seconds the ledger of %s is %+v, %v", name, page.Items, err)
				break
			}
		}
		asked, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		if err := s.ChangeSchedule(asked, harp.NewID(), "other0", harp.ScheduleChange{Kind: harp.PauseOfSchedule}); err != nil {
			t.Errorf("a change of another one: %v", err)
		}
		over()
		if err := <-paused; err == nil {
			t.Error("the slow one was paused within a step of it")
		}
		close(st.goOn)
	})
}

// All that was due of a schedule is settled before it is put anew or deleted, however much that is.
func TestAllThatIsDueIsSettledBeforeAScheduleGoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := opened(t, nil, Config{})
		s := d.service(harp.Principal{Kind: "caller", Name: "ada"})
		putEverySecond(t, s, "often")
		synctest.Wait()
		const due = stepsAtOnce + stepsAtOnce/2
		if d.schedules.takeTurn("often") != nil {
			t.Fatal("somebody has its turn")
		}
		time.Sleep(due*time.Second + time.Second/2)
		if _, _, err := d.settleForChange(t.Context(), "often", true); err != nil {
			t.Fatal(err)
		}
		page, err := s.ScheduleLedger(t.Context(), harp.LedgerFilter{Schedule: "often"}, "")
		if err != nil || len(page.Items) != 1 || page.Items[0].Count != due {
			t.Errorf("of %d times the ledger tells %+v, %v", due, page.Items, err)
		}
		d.schedules.endTurn("often")
	})
}

// A schedule of which nothing can be settled, for whatever reason, can be paused and deleted all the same, and a put says why it is refused.
func TestAScheduleThatCannotGoOnCanBePausedAndDeleted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken := errors.New("broken")
		st := &stuckStore{Store: memory.Open(nil), entry: broken}
		d := opened(t, st, Config{})
		s, ctx := d.service(harp.Principal{Kind: "caller", Name: "ada"}), t.Context()
		putEverySecond(t, s, "s")
		is, err := d.schedules.find("s")
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(1500 * time.Millisecond)
		if err := s.PutSchedule(ctx, harp.NewID(), is.Schedule); !errors.Is(err, broken) {
			t.Errorf("a put: %v", err)
		}
		if err := s.ChangeSchedule(ctx, harp.NewID(), "s", harp.ScheduleChange{Kind: harp.PauseOfSchedule}); err != nil {
			t.Errorf("a pause: %v", err)
		}
		if err := s.DeleteSchedule(ctx, harp.NewID(), "s"); err != nil {
			t.Errorf("a delete: %v", err)
		}
	})
}

// When the clock is set back, what waits for a time by the clock as it was is looked at.
func TestSchedulesAreLookedAtWhenTheClockIsSet(t *testing.T) {
	ss, now := newSchedules(), time.Now()
	ss.set(&scheduled{name: "s", wake: now.Add(scheduleRetry)})
	set := now.Add(-time.Hour)
	ss.noteClock(set, -time.Hour)
	if due := ss.takeDue(set); len(due) != 1 {
		t.Errorf("looked at are %q", due)
	}
}
