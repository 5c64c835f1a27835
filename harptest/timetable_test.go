package harptest_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/agent"
	"github.com/harpcaller/harp/dispatcher"
	"github.com/harpcaller/harp/harptest"
	"github.com/harpcaller/harp/store"
)

// timetable is a system with a schedule that has a time each minute, and what its procedure saw.
type timetable struct {
	*testing.T
	sys   *harptest.System
	begun time.Time
	ahead atomic.Int64 // of the dispatcher's clock
	takes atomic.Int64 // how long a run takes
	fails atomic.Bool

	mu    sync.Mutex
	fires []int // minutes, in the order of the runs
}

// inTimetable runs a test body in virtual time.
func inTimetable(t *testing.T, change func(s *harp.Schedule), body func(w *timetable)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &timetable{T: t, begun: time.Now()}
		w.sys = harptest.New(t, harptest.Options{
			Agents:     []string{"web01"},
			Register:   w.register,
			Dispatcher: dispatcher.Config{Now: func() time.Time { return time.Now().Add(time.Duration(w.ahead.Load())) }},
		})
		s := harp.Schedule{Name: "s", Cron: "* * * * *", Request: w.request("web*", "work")}
		if change != nil {
			change(&s)
		}
		w.must(w.schedules().Put(t.Context(), s))
		time.Sleep(30 * time.Second) // half a minute beside the times
		body(w)
	})
}

func (w *timetable) register(a *agent.Agent) {
	agent.Handle(a, harp.NewProc[struct{}, string]("work"), func(ctx context.Context, _ struct{}) (string, error) {
		info, _ := agent.FromContext(ctx)
		w.mu.Lock()
		w.fires = append(w.fires, int(info.FireTime.Sub(w.begun)/time.Minute))
		w.mu.Unlock()
		select {
		case <-ctx.Done():
			return "", context.Cause(ctx)
		case <-time.After(time.Duration(w.takes.Load())):
		}
		if w.fails.Load() {
			return "", errors.New("it was asked for")
		}
		return "", nil
	})
}

func (w *timetable) request(target, procedure string) harp.Request {
	w.Helper()
	r, err := harp.NewBatchRequest(target, procedure, nil)
	w.must(err)
	r.ID = ""
	return r
}

func (w *timetable) schedules() *harp.Schedules { return w.sys.Caller().Schedules() }

func (w *timetable) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

// pass lets minutes go by.
func (w *timetable) pass(minutes int) {
	time.Sleep(time.Duration(minutes) * time.Minute)
	synctest.Wait()
}

// fired checks for which minutes the procedure ran, in order.
func (w *timetable) fired(want ...int) {
	w.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	if !slices.Equal(w.fires, want) {
		w.Fatalf("it ran for %v, want %v", w.fires, want)
	}
}

// wrote checks the ledger, oldest first, each entry as "outcome reason from-to"; fired ones of a time are only told by their minutes.
func (w *timetable) wrote(want ...string) {
	w.Helper()
	var got []string
	for e, err := range w.schedules().Ledger(w.Context(), harp.LedgerFilter{Schedule: "s"}) {
		w.must(err)
		from, to := int(e.From.Sub(w.begun)/time.Minute), int(e.To.Sub(w.begun)/time.Minute)
		if e.Count != to-from+1 && !e.AtLeast {
			w.Fatalf("from %d to %d are %d times", from, to, e.Count)
		}
		if text := fmt.Sprint(e.Kind); e.Kind != harp.LedgerTime || e.Outcome != harp.TimeFired {
			got = append(got, strings.Join(strings.Fields(fmt.Sprintf("%s %s %s %d-%d", strings.TrimPrefix(text, "time"), e.Outcome, e.Reason, from, to)), " "))
		}
	}
	slices.Reverse(got)
	if !slices.Equal(got, want) {
		w.Fatalf("the ledger is\n%q, want\n%q", got, want)
	}
}

func (w *timetable) status() harp.ScheduleStatus {
	w.Helper()
	s, err := w.schedules().Get(w.Context(), "s")
	w.must(err)
	return s
}

// restart starts the dispatcher again after it was down for so many minutes.
func (w *timetable) restart(after int) {
	time.Sleep(time.Duration(after) * time.Minute)
	w.sys.StartDispatcher()
	w.sys.WaitOnline("web01")
	time.Sleep(5 * time.Second)
	synctest.Wait()
}

func TestScheduleFiresEachTime(t *testing.T) {
	inTimetable(t, nil, func(w *timetable) {
		w.pass(10)
		w.fired(1, 2, 3, 4, 5, 6, 7, 8, 9, 10)
		w.wrote()
		for e, err := range w.schedules().Ledger(w.Context(), harp.LedgerFilter{Outcomes: []harp.TimeOutcome{harp.TimeFired}}) {
			w.must(err)
			if e.Late > time.Second || e.Batch == "" || !e.At.Equal(e.From.Add(e.Late)) {
				w.Errorf("an entry is %+v", e)
			}
		}
	})
}

// However often the dispatcher is ended between times, in order or not, each fires once.
func TestScheduleFiresOverRestarts(t *testing.T) {
	inTimetable(t, nil, func(w *timetable) {
		var want []int
		for n := range 20 {
			w.sys.CrashDispatcher()
			w.restart(0)
			time.Sleep(time.Minute - 5*time.Second)
			synctest.Wait()
			want = append(want, n+1)
		}
		w.fired(want...)
		w.wrote()
	})
}

// Of an hour in which nobody was there the last time fires, if it may still: the others were missed.
func TestScheduleDownForAnHour(t *testing.T) {
	inTimetable(t, nil, func(w *timetable) {
		w.pass(2)
		w.sys.CrashDispatcher()
		w.restart(60)
		w.fired(1, 2, 62)
		w.wrote("missed down 3-52", "missed catch_up 53-61")
	})
	inTimetable(t, func(s *harp.Schedule) { s.CatchUpMost, s.CatchUp, s.Overlap = 3, 2*time.Minute, harp.OverlapAllow }, func(w *timetable) {
		w.pass(2)
		w.sys.CrashDispatcher()
		w.restart(60)
		w.mu.Lock()
		slices.Sort(w.fires) // those of one moment run at the same time
		w.mu.Unlock()
		w.fired(1, 2, 61, 62)
		w.wrote("missed down 3-60")
	})
}

// A clock that is set back fires nothing twice, one that is set forward misses what it jumped over, and says so.
func TestScheduleClockIsSet(t *testing.T) {
	inTimetable(t, nil, func(w *timetable) {
		w.pass(5)
		w.ahead.Store(-int64(time.Hour))
		w.pass(59)
		w.fired(1, 2, 3, 4, 5)
		w.pass(3)
		w.fired(1, 2, 3, 4, 5, 6, 7)
		w.wrote()
	})
	inTimetable(t, nil, func(w *timetable) {
		w.pass(5)
		w.ahead.Store(int64(24 * time.Hour))
		w.pass(1)
		const day = 24 * 60
		w.fired(1, 2, 3, 4, 5, day+5, day+6)
		w.wrote(fmt.Sprintf("missed clock 6-%d", day-5), fmt.Sprintf("missed catch_up %d-%d", day-4, day+4))
	})
}

// While a run is not over the next times are skipped, wait, cancel it, or fire all the same.
func TestScheduleOverlap(t *testing.T) {
	for policy, want := range map[harp.Overlap]struct {
		fires  []int
		ledger []string
	}{
		harp.OverlapSkip:      {[]int{1, 4, 7}, []string{"skipped overlap 2-3", "skipped overlap 5-6"}},
		harp.OverlapQueue:     {[]int{1, 2, 6}, []string{"skipped overlap 3-3", "missed catch_up 4-4", "skipped overlap 5-5"}},
		harp.OverlapCancelOld: {[]int{1, 2, 3, 4, 5, 6, 7}, nil},
		harp.OverlapAllow:     {[]int{1, 2, 3, 4, 5, 6, 7}, nil},
	} {
		t.Run(string(policy), func(t *testing.T) {
			inTimetable(t, func(s *harp.Schedule) { s.Overlap = policy }, func(w *timetable) {
				w.takes.Store(int64(2*time.Minute + 30*time.Second))
				w.pass(7)
				w.fired(want.fires...)
				w.wrote(want.ledger...)
			})
		})
	}
}

// A schedule is put anew with other times, or so that runs may overlap, while a time of it waits for the end of the last run: that time fires.
func TestAnEditLosesNoTimeThatWaitsForTheLastRun(t *testing.T) {
	for name, c := range map[string]struct {
		change       func(*harp.Schedule)
		atOnce, then []int
		ledger       []string
	}{
		"other times":   {func(s *harp.Schedule) { s.Cron = "* * * * *" }, []int{10}, []int{10, 20, 29}, []string{"skipped overlap 28-28"}},
		"runs together": {func(s *harp.Schedule) { s.Overlap = harp.OverlapAllow }, []int{10, 20}, []int{10, 20}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			var s harp.Schedule
			inTimetable(t, func(put *harp.Schedule) { put.Cron, put.Overlap = "*/10 * * * *", harp.OverlapQueue; s = *put }, func(w *timetable) {
				w.takes.Store(int64(18*time.Minute + 30*time.Second))
				w.pass(27)
				w.takes.Store(0)
				c.change(&s)
				w.must(w.schedules().Put(w.Context(), s))
				time.Sleep(time.Second)
				synctest.Wait()
				w.fired(c.atOnce...)
				w.pass(2)
				w.fired(c.then...)
				w.wrote(c.ledger...)
			})
		})
	}
}

// After runs in a row that did not succeed a schedule pauses itself, until somebody ends that.
func TestSchedulePausesOnFailure(t *testing.T) {
	inTimetable(t, func(s *harp.Schedule) { s.PauseOnFailure = 3 }, func(w *timetable) {
		w.fails.Store(true)
		w.pass(2)
		if s := w.status(); s.Failures != 2 || s.Pause != nil {
			w.Errorf("after two it is %+v", s)
		}
		w.pass(3)
		if s := w.status(); s.Pause == nil || s.Pause.By != (harp.Principal{}) || !strings.Contains(s.Pause.Reason, "3 runs") {
			w.Errorf("after three it is %+v", s)
		}
		w.fired(1, 2, 3)
		w.wrote("skipped paused 4-5")
		w.must(w.schedules().Unpause(w.Context(), "s"))
		w.pass(1)
		if s := w.status(); s.Failures != 1 || s.Pause != nil { // they are counted anew
			w.Errorf("after one more it is %+v", s)
		}
		w.fails.Store(false)
		w.pass(1)
		w.fired(1, 2, 3, 6, 7)
	})
}

// Times that pass in a pause are skipped, over a restart too, and never caught up.
func TestSchedulePause(t *testing.T) {
	inTimetable(t, nil, func(w *timetable) {
		w.pass(1)
		w.must(w.schedules().Pause(w.Context(), "s", "disks", w.begun.Add(5*time.Minute+time.Second)))
		w.pass(1)
		w.sys.CrashDispatcher()
		w.restart(6)
		w.fired(1, 8)
		w.wrote("skipped paused 2-5", "missed catch_up 6-7")
		if e := w.status(); e.Pause != nil {
			w.Errorf("it is %+v", e)
		}
	})
}

// A run with a job of which nobody knows whether it runs is not over.
func TestScheduleWaitsForTheUnknown(t *testing.T) {
	inTimetable(t, nil, func(w *timetable) {
		w.takes.Store(int64(10 * time.Second))
		time.Sleep(31 * time.Second)
		synctest.Wait()
		w.sys.Cut("web01")
		time.Sleep(29 * time.Second)
		w.pass(5)
		w.fired(1)
		w.wrote("skipped overlap 2-6")
		w.sys.Heal("web01")
		w.sys.WaitOnline("web01")
		w.pass(1)
		w.fired(1, 7)
	})
}

// Of a target that selects nobody times are skipped, of a call that is refused they fail, with why.
func TestScheduleCannotFire(t *testing.T) {
	inTimetable(t, nil, func(w *timetable) {
		w.must(w.schedules().Put(w.Context(), harp.Schedule{Name: "s", Cron: "* * * * *", Request: w.request("db*", "work")}))
		w.pass(3)
		w.wrote("skipped no_hosts 1-3")
		w.must(w.schedules().Put(w.Context(), harp.Schedule{Name: "s", Cron: "* * * * *", Request: w.request("web*", "none")}))
		w.pass(2)
		w.wrote("skipped no_hosts 1-3", "failed 4-5")
		w.fired()
		for e, err := range w.schedules().Ledger(w.Context(), harp.LedgerFilter{Outcomes: []harp.TimeOutcome{harp.TimeFailed}}) {
			if w.must(err); !errors.Is(e.Err, harp.ErrNotFound) || !strings.Contains(e.Err.Error(), "none") {
				w.Errorf("it failed with %v", e.Err)
			}
		}
	})
}

// Without space times are missed, told at once or when there is space to tell it.
func TestScheduleWithoutSpace(t *testing.T) {
	inTimetable(t, nil, func(w *timetable) {
		w.pass(1)
		w.sys.SetSpace(store.SpaceLow)
		w.pass(2)
		w.wrote("missed no_space 2-3")
		w.sys.SetSpace(store.SpacePlenty)
		w.pass(1)
		w.sys.SetSpace(store.SpaceCritical)
		w.pass(20)
		w.sys.SetSpace(store.SpacePlenty)
		w.pass(1)
		w.fired(1, 4, 24, 25)
		w.wrote("missed no_space 2-3", "missed no_space 5-14", "missed catch_up 15-23")
	})
}

// TestWhatComesAfterOthersWithoutSpace: without space what comes after others is missed as times are, at once where that can be told, and else it fires once there is
// space, if it is not too late then.
func TestWhatComesAfterOthersWithoutSpace(t *testing.T) {
	inTimetable(t, func(s *harp.Schedule) { s.Overlap = harp.OverlapAllow }, func(w *timetable) {
		w.must(w.schedules().Put(w.Context(), harp.Schedule{Name: "next", Overlap: harp.OverlapAllow, After: []harp.Dependency{{Schedule: "s"}}, Request: w.request("web*", "work")}))
		w.takes.Store(int64(45 * time.Second))
		for _, space := range []store.Space{store.SpaceLow, store.SpaceCritical} {
			w.pass(1)
			w.sys.SetSpace(space) // as a run of s goes on
			w.pass(1)
			w.sys.SetSpace(store.SpacePlenty)
			w.pass(2)
		}
		w.wrote("missed no_space 2-2")
		var got []string
		for e, err := range w.schedules().Ledger(w.Context(), harp.LedgerFilter{Schedule: "next"}) {
			w.must(err)
			got = append(got, strings.TrimSpace(fmt.Sprint(e.Outcome, " ", e.Reason, " ", e.From.Sub(w.begun).Truncate(time.Second))))
		}
		if slices.Reverse(got); !slices.Equal(got, []string{"missed no_space 1m45s", "fired  3m45s", "fired  4m45s", "fired  6m30s", "fired  7m16s", "fired  7m45s"}) {
			w.Errorf("its ledger is %q", got)
		}
	})
}

// TestAScheduleThatIsPutWhileTheClockIsAhead: once the clock is set right its times come, as nothing has fired of it. One of a name that had another before, whose times may have fired
// while the clock was ahead, is silent until then.
func TestAScheduleThatIsPutWhileTheClockIsAhead(t *testing.T) {
	for _, again := range []bool{false, true} {
		inTimetable(t, func(s *harp.Schedule) { s.Name = "other" }, func(w *timetable) {
			w.must(w.schedules().Delete(w.Context(), "other"))
			w.ahead.Store(int64(time.Hour))
			put := func() {
				w.must(w.schedules().Put(w.Context(), harp.Schedule{Name: "s", Cron: "* * * * *", Request: w.request("web*", "work")}))
			}
			put()
			want := []int{1, 2}
			if again {
				w.pass(1)
				w.must(w.schedules().Delete(w.Context(), "s"))
				put()
				want = []int{61}
			}
			w.ahead.Store(0)
			w.status() // it reads its clock
			w.pass(2)
			w.fired(want...)
			w.wrote()
			if !again { // and they are as late as others
				w.sys.StopDispatcher()
				w.restart(20)
				w.wrote("missed down 3-12", "missed catch_up 13-21")
			}
		})
	}
}

// What a schedule has started goes on when it is deleted, and its ledger stays.
func TestScheduleDeletedWhileItRuns(t *testing.T) {
	inTimetable(t, nil, func(w *timetable) {
		w.takes.Store(int64(90 * time.Second))
		w.pass(1)
		batch := w.status().LastBatch
		w.must(w.schedules().Delete(w.Context(), "s"))
		w.pass(3)
		s, err := w.sys.Caller().Batch(batch).Status(w.Context())
		if err != nil || s.State != harp.BatchSucceeded {
			w.Errorf("its run is %s, %v", s.State, err)
		}
		w.fired(1)
		w.wrote()
		w.must(w.schedules().Put(w.Context(), harp.Schedule{Name: "s", Cron: "* * * * *", Request: w.request("web*", "work")}))
		w.pass(1)
		w.fired(1, 5)
	})
}

// A time that is skipped by hand does not fire, and times that were skipped can be made up for, one after another, also over a crash.
func TestScheduleSkipAndBackfill(t *testing.T) {
	inTimetable(t, nil, func(w *timetable) {
		w.must(w.schedules().Skip(w.Context(), "s", w.begun.Add(2*time.Minute)))
		w.pass(3)
		w.must(w.schedules().Pause(w.Context(), "s", "", time.Time{}))
		w.pass(3)
		w.fired(1, 3)
		w.wrote("skipped by_hand 2-2", "skipped paused 4-6")
		n, err := w.schedules().Backfill(w.Context(), "s", w.begun.Add(time.Second), w.begun.Add(6*time.Minute))
		if w.must(err); n != 3 { // 2, 4, 5
			w.Fatalf("it makes up for %d", n)
		}
		w.pass(1)
		w.fired(1, 3) // paused
		w.takes.Store(int64(20 * time.Second))
		w.must(w.schedules().Unpause(w.Context(), "s"))
		time.Sleep(25 * time.Second) // within the second run
		w.sys.CrashDispatcher()
		w.restart(0)
		w.takes.Store(int64(time.Second))
		w.pass(2)
		w.mu.Lock()
		got := slices.DeleteFunc(slices.Clone(w.fires), func(n int) bool { return n > 6 })
		w.mu.Unlock()
		if !slices.Equal(got, []int{1, 3, 2, 4, 5}) {
			w.Errorf("it ran for %v", got)
		}
	})
}

// A backfill has time: where there is no space it waits, and the times that come do not wait for it.
func TestScheduleBackfillWithoutSpace(t *testing.T) {
	inTimetable(t, nil, func(w *timetable) {
		w.must(w.schedules().Pause(w.Context(), "s", "", time.Time{}))
		w.pass(3)
		w.must(w.schedules().Unpause(w.Context(), "s"))
		w.sys.SetSpace(store.SpaceLow)
		n, err := w.schedules().Backfill(w.Context(), "s", w.begun.Add(time.Second), w.begun.Add(3*time.Minute))
		if w.must(err); n != 2 { // 1, 2
			w.Fatalf("it makes up for %d", n)
		}
		w.pass(2)
		w.fired()
		w.wrote("skipped paused 1-3", "missed no_space 4-5")
		w.sys.SetSpace(store.SpacePlenty)
		w.pass(1)
		w.fired(1, 2, 6)
		w.wrote("backfill fired 1-1", "skipped paused 1-3", "backfill fired 2-2", "missed no_space 4-5")
	})
}

// A run that takes longer than was expected is told of once, and goes on.
func TestScheduleLate(t *testing.T) {
	inTimetable(t, func(s *harp.Schedule) { s.Cron, s.Expect = "1 * * * *", 90*time.Second }, func(w *timetable) {
		w.takes.Store(int64(5 * time.Minute))
		w.pass(7)
		page, err := w.sys.Caller().EventsPage(w.Context(), harp.EventFilter{After: harp.EventsFromStart, Types: []string{"schedule.late"}}, false)
		w.must(err)
		if len(page.Events) != 1 || page.Events[0].Schedule != "s" || page.Events[0].Time.Sub(w.begun).Round(time.Second) != 150*time.Second {
			w.Errorf("the events are %+v", page.Events)
		}
		if s := w.status(); s.Failures != 0 {
			w.Errorf("it is %+v", s)
		}
	})
}

// The clock is set while a run goes on: that it takes longer than was expected is told by how long it takes all the same.
func TestScheduleLateThoughTheClockIsSet(t *testing.T) {
	for name, by := range map[string]time.Duration{"forward": time.Hour, "back": -time.Hour} {
		t.Run(name, func(t *testing.T) {
			inTimetable(t, func(s *harp.Schedule) { s.Cron, s.Expect = "1 * * * *", 90*time.Second }, func(w *timetable) {
				w.takes.Store(int64(5 * time.Minute))
				w.pass(1)
				w.ahead.Store(int64(by))
				w.pass(6)
				page, err := w.sys.Caller().EventsPage(w.Context(), harp.EventFilter{After: harp.EventsFromStart, Types: []string{"schedule.late"}}, false)
				w.must(err)
				if len(page.Events) != 1 || (page.Events[0].Time.Sub(w.begun)-by).Round(time.Second) != 150*time.Second {
					w.Errorf("the events are %+v", page.Events)
				}
			})
		})
	}
}

// A store that was restored fires no time that may have fired since the backup was made, and says that these may have.
func TestScheduleRestored(t *testing.T) {
	inTimetable(t, nil, func(w *timetable) {
		w.pass(2)
		var backup bytes.Buffer
		w.must(w.sys.Caller().Backup(w.Context(), &backup))
		w.pass(3)
		w.sys.StopDispatcher()
		w.sys.RestoreDispatcher(&backup)
		w.restart(0)
		w.pass(2)
		w.fired(1, 2, 3, 4, 5, 6, 7)
		w.wrote("missed restored 3-5")
	})
}

// TestScheduleRestoredByAClockThatIsBehind: a store is restored by a clock that is behind, which is set right before a dispatcher is started, or
// once it runs. What the old store fired since the backup does not fire again, though it is late by less than CatchUp.
func TestScheduleRestoredByAClockThatIsBehind(t *testing.T) {
	const behind = 4 * time.Minute
	for _, running := range []bool{false, true} {
		inTimetable(t, nil, func(w *timetable) {
			w.ahead.Store(int64(behind))
			w.pass(1)
			var backup bytes.Buffer
			w.must(w.sys.Caller().Backup(w.Context(), &backup))
			w.pass(2)
			w.fired(4, 5, 6, 7)
			w.sys.StopDispatcher()
			w.sys.RestoreDispatcher(&backup) // by the clock of the test
			if running {
				w.ahead.Store(0)
				w.restart(0)
				w.ahead.Store(int64(behind))
				w.status() // it reads its clock
			} else {
				w.restart(0)
			}
			w.pass(1)
			w.fired(4, 5, 6, 7, 8)
			w.wrote("missed catch_up 1-3", "missed restored 6-7")
		})
	}
}

// TestATimeOfLessJitterFiresOnceThoughItIsRestored: since a backup was made a schedule was given less jitter, and fired a time that would wait for it still where
// the backup is restored. It does not fire again.
func TestATimeOfLessJitterFiresOnceThoughItIsRestored(t *testing.T) {
	var s harp.Schedule
	inTimetable(t, func(put *harp.Schedule) { put.Jitter = 50 * time.Second; s = *put }, func(w *timetable) {
		var backup bytes.Buffer
		w.must(w.sys.Caller().Backup(w.Context(), &backup))
		next, err := w.schedules().Next(w.Context(), "s", 20)
		w.must(err)
		late := next[slices.IndexFunc(next, func(up harp.Upcoming) bool { return up.Time.Sub(up.Nominal) > 20*time.Second })]
		time.Sleep(time.Until(late.Nominal.Add(-time.Second)))
		s.Jitter = 0
		w.must(w.schedules().Put(w.Context(), s))
		time.Sleep(3 * time.Second)
		w.sys.StopDispatcher()
		w.sys.RestoreDispatcher(&backup)
		w.restart(0)
		w.pass(1)
		w.mu.Lock()
		defer w.mu.Unlock()
		minute := int(late.Nominal.Sub(w.begun) / time.Minute)
		if n := len(slices.DeleteFunc(slices.Clone(w.fires), func(m int) bool { return m != minute })); n != 1 {
			w.Errorf("for %d it ran %d times: %v", minute, n, w.fires)
		}
	})
}

// TestTheNextTimeOfAStoreThatWasRestoredByAClockThatIsAhead: until the clock is there again nothing fires, and no time until then is the next one, be it listed or skipped.
func TestTheNextTimeOfAStoreThatWasRestoredByAClockThatIsAhead(t *testing.T) {
	inTimetable(t, nil, func(w *timetable) {
		w.pass(2)
		var backup bytes.Buffer
		w.must(w.sys.Caller().Backup(w.Context(), &backup))
		w.pass(3)
		w.sys.StopDispatcher()
		w.sys.RestoreDispatcher(&backup)
		w.ahead.Store(-int64(30 * time.Minute))
		w.restart(0)
		minute := func(at time.Time) int { return int(at.Sub(w.begun) / time.Minute) }
		next, err := w.schedules().Next(w.Context(), "s", 1)
		w.must(err)
		if listed := w.status().Next.Nominal; minute(next[0].Nominal) != 6 || minute(listed) != 6 {
			w.Errorf("the next time is %d, and listed %d", minute(next[0].Nominal), minute(listed))
		}
		w.must(w.schedules().Skip(w.Context(), "s", time.Time{}))
		w.wrote("skipped by_hand 6-6")
	})
}

// So it is with what is left of a backfill, and with times of a pause that may have been ended since the backup was made.
func TestScheduleRestoredInAPause(t *testing.T) {
	inTimetable(t, nil, func(w *timetable) {
		w.pass(1)
		w.must(w.schedules().Pause(w.Context(), "s", "", time.Time{}))
		w.pass(3)
		if _, err := w.schedules().Backfill(w.Context(), "s", w.begun.Add(time.Second), w.begun.Add(4*time.Minute+time.Second)); err != nil {
			w.Fatal(err)
		}
		var backup bytes.Buffer
		w.must(w.sys.Caller().Backup(w.Context(), &backup))
		w.must(w.schedules().Unpause(w.Context(), "s"))
		w.pass(2)
		w.sys.StopDispatcher()
		w.sys.RestoreDispatcher(&backup)
		w.restart(0)
		w.pass(1)
		w.fired(1, 2, 3, 4, 5, 6)
		w.wrote("backfill missed restored 2-4", "skipped paused 2-4", "missed restored 5-6", "skipped paused 7-7")
		page, err := w.sys.Caller().EventsPage(w.Context(), harp.EventFilter{After: harp.EventsFromStart, Types: []string{"schedule.missed"}}, false)
		if w.must(err); len(page.Events) != 2 || page.Events[0].Schedule != "s" || page.Events[0].Reason != harp.TimeRestored || page.Events[0].Procedure != "work" {
			w.Errorf("the events are %+v", page.Events)
		}
	})
}

// TestARunThatARestoreEndedDidNotFail: how a run ended that was under way as a backup was made nobody knows in the store that is restored from it. It is none that
// did not succeed, for its schedule as for those that come after it.
func TestARunThatARestoreEndedDidNotFail(t *testing.T) {
	inTimetable(t, func(s *harp.Schedule) { s.PauseOnFailure = 1 }, func(w *timetable) {
		after := harp.Schedule{Name: "alarm", After: []harp.Dependency{{Schedule: "s", On: harp.OnFailed}}, Request: w.request("web*", "work")}
		w.must(w.schedules().Put(w.Context(), after))
		w.takes.Store(int64(20 * time.Second))
		time.Sleep(40 * time.Second)
		synctest.Wait()
		var backup bytes.Buffer
		w.must(w.sys.Caller().Backup(w.Context(), &backup))
		time.Sleep(20 * time.Second)
		w.sys.StopDispatcher()
		w.sys.RestoreDispatcher(&backup)
		w.restart(0)
		if s := w.status(); s.Failures != 0 || s.Pause != nil {
			w.Errorf("it is %+v", s)
		}
		w.pass(1)
		w.fired(1, 2)
		for e, err := range w.schedules().Ledger(w.Context(), harp.LedgerFilter{Schedule: "alarm"}) {
			if w.must(err); e.Outcome == harp.TimeFired || !e.From.After(w.begun.Add(2*time.Minute)) && !strings.Contains(e.Detail, "nobody knows how it ended") {
				w.Errorf("what comes after failed runs has %+v", e)
			}
		}
	})
}

// TestAScheduleThatIsPutAnewWaitsForRunsOfBefore: a schedule is deleted and put anew while a run of it goes on, beside which nothing fires.
func TestAScheduleThatIsPutAnewWaitsForRunsOfBefore(t *testing.T) {
	for _, isKilled := range []bool{false, true} {
		inTimetable(t, nil, func(w *timetable) {
			w.takes.Store(int64(150 * time.Second))
			w.pass(1)
			w.must(w.schedules().Delete(w.Context(), "s"))
			if isKilled {
				w.sys.CrashDispatcher()
				w.restart(0)
			}
			w.must(w.schedules().Put(w.Context(), harp.Schedule{Name: "s", Cron: "* * * * *", Request: w.request("web*", "work")}))
			if w.status().LastBatch == "" {
				w.Error("it has no last batch")
			}
			w.pass(1)
			w.takes.Store(0)
			w.pass(2)
			w.fired(1, 4)
			w.wrote("skipped overlap 2-3")
		})
	}
}

// TestResultsAreKeptThoughADispatcherIsStartedWhoseClockWasSet: the clock is set far forward, and nothing is deleted for its age for a day, be
// the dispatcher started anew meanwhile, or killed. Once it is right again, or a day is over, what is old goes.
func TestResultsAreKeptThoughADispatcherIsStartedWhoseClockWasSet(t *testing.T) {
	for _, isKilled := range []bool{false, true} {
		inTimetable(t, func(s *harp.Schedule) { s.Cron = "0 3 1 6 *" }, func(w *timetable) {
			b, err := w.schedules().Trigger(w.Context(), "s")
			w.must(err)
			w.pass(1)
			again := func() {
				if isKilled {
					w.sys.CrashDispatcher()
				} else {
					w.sys.StopDispatcher()
				}
				w.restart(0)
			}
			w.ahead.Store(int64(60 * 24 * time.Hour))
			w.pass(1)
			again()
			w.pass(23 * 60)
			if _, err := b.Status(w.Context()); err != nil {
				w.Fatal(err)
			}
			again()
			w.ahead.Store(0)
			w.pass(2 * 60)
			if _, err := b.Status(w.Context()); err != nil {
				w.Fatalf("the clock is right, and %v", err)
			}
			w.ahead.Store(int64(60 * 24 * time.Hour))
			w.pass(1)
			again()
			w.pass(24*60 + 20)
			if _, err := b.Status(w.Context()); !errors.Is(err, harp.ErrPruned) {
				w.Errorf("after a day it is %v", err)
			}
		})
	}
}

// TestThatTheClockWasSetIsStoredOnceThereIsRoom: the disk was full when the clock was set far forward, and had room again before the dispatcher
// was started anew: nothing is deleted for its age.
func TestThatTheClockWasSetIsStoredOnceThereIsRoom(t *testing.T) {
	inTimetable(t, func(s *harp.Schedule) { s.Cron = "0 3 1 6 *" }, func(w *timetable) {
		b, err := w.schedules().Trigger(w.Context(), "s")
		w.must(err)
		w.pass(1)
		w.sys.SetSpace(store.SpaceCritical)
		w.ahead.Store(int64(60 * 24 * time.Hour))
		w.pass(1)
		w.sys.SetSpace(store.SpacePlenty)
		w.pass(30)
		w.sys.StopDispatcher()
		w.restart(0)
		w.pass(60)
		if _, err := b.Status(w.Context()); err != nil {
			w.Fatal(err)
		}
	})
}

// TestWhatIsLeftOfABackfillIsListedSince: what was left of a backfill as its schedule was deleted is in the ledger since a time behind one that fired
// between them.
func TestWhatIsLeftOfABackfillIsListedSince(t *testing.T) {
	inTimetable(t, nil, func(w *timetable) {
		skip := func(minutes int) {
			w.must(w.schedules().Pause(w.Context(), "s", "disks", time.Time{}))
			w.pass(minutes)
			w.must(w.schedules().Unpause(w.Context(), "s"))
		}
		skip(2)
		w.pass(1)
		skip(2)
		w.takes.Store(int64(time.Minute))
		n, err := w.schedules().Backfill(w.Context(), "s", w.begun.Add(time.Minute), time.Now())
		if w.must(err); n != 4 {
			w.Fatalf("%d times are backfilled", n)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		w.fired(3, 1)
		w.must(w.schedules().Delete(w.Context(), "s"))
		last := time.Time{}
		for e, err := range w.schedules().Ledger(w.Context(), harp.LedgerFilter{Schedule: "s", From: w.begun.Add(4 * time.Minute)}) {
			if w.must(err); e.Kind == harp.LedgerBackfill {
				last = e.To
			}
		}
		if want := w.begun.Add(5 * time.Minute); !last.Equal(want) {
			w.Errorf("what was left is listed until %v, want %v", last, want)
		}
	})
}

// TestWhatComesAfterOthersIsRestoredByAWrongClock: a store is restored by a clock that is ahead, or behind, and is then set right. What comes after others
// fires for each run that ends since, once, and for none that is in the backup, as it may have: the ledger says so.
func TestWhatComesAfterOthersIsRestoredByAWrongClock(t *testing.T) {
	for _, wrong := range []time.Duration{-50 * time.Minute, 50 * time.Minute} {
		inTimetable(t, func(s *harp.Schedule) { s.Cron, s.Overlap = "0 3 1 6 *", harp.OverlapAllow }, func(w *timetable) {
			w.ahead.Store(int64(max(-wrong, 0)))
			w.pass(1)
			put := func(name, cron string, after ...harp.Dependency) {
				w.Helper()
				w.must(w.schedules().Put(w.Context(), harp.Schedule{Name: name, Cron: cron, After: after, Overlap: harp.OverlapQueue, Request: w.request("web*", "work")}))
			}
			put("t", "0 3 1 6 *")
			put("next", "", harp.Dependency{Schedule: "s"})
			put("both", "", harp.Dependency{Schedule: "s"}, harp.Dependency{Schedule: "t"})
			run := func(name string) {
				w.Helper()
				_, err := w.schedules().Trigger(w.Context(), name)
				w.must(err)
				w.pass(1)
			}
			run("s")
			var backup bytes.Buffer
			w.must(w.sys.Caller().Backup(w.Context(), &backup))
			run("t") // both fires for it and the run of s, and that is lost
			w.sys.StopDispatcher()
			w.sys.RestoreDispatcher(&backup)
			w.ahead.Store(int64(max(-wrong, 0) - max(wrong, 0)))
			w.restart(0)
			run("t")
			run("s")
			run("s")
			for name, want := range map[string][]string{"next": {"fired", "fired", "fired"}, "both": {"fired", "missed restored"}} {
				var got []string
				for e, err := range w.schedules().Ledger(w.Context(), harp.LedgerFilter{Schedule: name}) {
					w.must(err)
					got = append(got, strings.TrimSpace(fmt.Sprint(e.Outcome, " ", e.Reason)))
				}
				if slices.Sort(got); !slices.Equal(got, want) {
					w.Errorf("restored by a clock that is wrong by %v, %s has %q, want %q", wrong, name, got, want)
				}
			}
		})
	}
}
