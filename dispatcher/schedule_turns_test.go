package dispatcher

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/schedule"
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

// The clock was set forward twice before a schedule looked, and what it left out at first was told as too late, or as if nobody had been there.
func TestTwoJumpsOfTheClock(t *testing.T) {
	begun := time.Date(2027, 3, 1, 0, 0, 0, 0, time.UTC)
	minute := func(n int) time.Time { return begun.Add(time.Duration(n) * time.Minute) }
	for name, c := range map[string]struct {
		set  func(ss *schedules)
		now  time.Time
		want []string
	}{
		"forward twice": {func(ss *schedules) {
			ss.noteClock(minute(60), 50*time.Minute)
			ss.noteClock(minute(120), 50*time.Minute)
		}, minute(120), []string{"catch_up 1 9", "clock 10 59", "catch_up 60 69", "clock 70 119"}},
		"forward and back": {func(ss *schedules) {
			ss.noteClock(minute(120), 110*time.Minute)
			ss.noteClock(minute(60), -time.Hour)
		}, minute(120), []string{"catch_up 1 9", "clock 10 59", "catch_up 60 119"}},
		"back to before": {func(ss *schedules) {
			ss.noteClock(minute(60), 50*time.Minute)
			ss.noteClock(minute(5), -55*time.Minute)
		}, minute(60), []string{"catch_up 1 59"}},
		"often": {func(ss *schedules) {
			for n := range 2 * maxJumps {
				ss.noteClock(minute(4*n+4), 2*time.Minute)
			}
		}, minute(8*maxJumps - 1), []string{"catch_up 1 65", "clock 66 67", "catch_up 68 69"}},
	} {
		t.Run(name, func(t *testing.T) {
			ss := newSchedules()
			ss.sight.Awake = begun
			c.set(ss)
			spec, err := schedule.Parse("* * * * *", "UTC", schedule.Rules{})
			if err != nil {
				t.Fatal(err)
			}
			s := &scheduled{spec: spec, state: store.ScheduleState{ScheduleLife: store.ScheduleLife{Through: begun}}}
			rules := store.ScheduleRules{CatchUp: time.Second}
			var got []string
			for life := s.state.ScheduleLife; ; {
				dec := life.Next(rules, s, ss.see(c.now, ""))
				if dec.Kind != store.DecideSettle {
					break
				}
				from, to := dec.Entry.From.Sub(begun), dec.Entry.To.Sub(begun)
				got = append(got, fmt.Sprintf("%s %.0f %.0f", dec.Entry.Reason, from.Minutes(), to.Minutes()))
				life = dec.Life
			}
			if got = got[:min(len(got), len(c.want))]; !slices.Equal(got, c.want) {
				t.Errorf("told are %q, want %q", got, c.want)
			}
		})
	}
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
