package dispatcher

import (
	"context"
	"fmt"
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
	stuck string
	goOn  chan struct{}
}

func (s *stuckStore) StepSchedule(ctx context.Context, step store.ScheduleStep, now time.Time) (store.ScheduleStepped, error) {
	if step.Name == s.stuck {
		<-s.goOn
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
		const others = 3 * stepsTogether
		putEverySecond(t, s, "slow")
		for n := range others {
			putEverySecond(t, s, fmt.Sprint("other", n))
		}
		synctest.Wait()
		st.stuck = "slow"
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
