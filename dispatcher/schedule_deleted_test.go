package dispatcher

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/wire"
	"github.com/harpcaller/harp/store"
	"github.com/harpcaller/harp/store/memory"
)

// A schedule was deleted while a time waited for the end of the last run, or for its jitter, or ends of runs for others: what became of
// them was in no ledger.
func TestWhatADeletedScheduleHadToDecideIsTold(t *testing.T) {
	deletes := map[string]func(t *testing.T, s *service, name string){
		"by hand": func(t *testing.T, s *service, name string) {
			if err := s.DeleteSchedule(t.Context(), harp.NewID(), name); err != nil {
				t.Fatal(err)
			}
		},
		"by documents": func(t *testing.T, s *service, name string) {
			is, err := s.d.schedules.find(name)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := applyTo(t, s, harp.ApplyOptions{}, scheduleDocument(is.Schedule)); err != nil {
				t.Fatal(err)
			}
			if _, err := applyTo(t, s, harp.ApplyOptions{Prune: true}); err != nil {
				t.Fatal(err)
			}
		},
	}
	for how, remove := range deletes {
		for name, c := range map[string]struct {
			begin func(t *testing.T, s *service)
			want  []string
		}{
			"waits for the last run": {func(t *testing.T, s *service) {
				sch := batchSchedule(t, "s", "hello", nil)
				req, err := harp.NewBatchRequest("web*", "hello", nil, harp.OfflineWait(harp.NoLimit))
				if err != nil {
					t.Fatal(err)
				}
				req.ID = ""
				sch.Request, sch.Cron, sch.Overlap = req, "* * * * *", harp.OverlapQueue
				put(t, s, sch)
				time.Sleep(2*time.Minute + time.Second)
			}, []string{"time skipped 2m0s by ada: the schedule was deleted", "time fired 1m0s by : "}},
			"waits for its jitter": {func(t *testing.T, s *service) {
				sch := batchSchedule(t, "s", "hello", nil)
				sch.Cron, sch.Jitter = "@hourly", 59*time.Minute
				put(t, s, sch)
				time.Sleep(time.Hour + time.Second)
			}, []string{"time skipped 1h0m0s by ada: the schedule was deleted"}},
			"was skipped before": {func(t *testing.T, s *service) {
				sch := batchSchedule(t, "s", "hello", nil)
				sch.Cron, sch.Jitter = "@hourly", 59*time.Minute
				put(t, s, sch)
				if err := s.ChangeSchedule(t.Context(), harp.NewID(), "s", harp.ScheduleChange{Kind: harp.SkipOfSchedule}); err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Hour + time.Second)
			}, []string{"time skipped 1h0m0s by ada: "}},
			"backfills": {func(t *testing.T, s *service) {
				sch := batchSchedule(t, "s", "hello", nil)
				req, err := harp.NewBatchRequest("web*", "hello", nil, harp.OfflineWait(harp.NoLimit))
				if err != nil {
					t.Fatal(err)
				}
				begun := time.Now()
				req.ID = ""
				sch.Request, sch.Cron = req, "* * * * *"
				put(t, s, sch)
				if err := s.ChangeSchedule(t.Context(), harp.NewID(), "s", harp.ScheduleChange{Kind: harp.PauseOfSchedule}); err != nil {
					t.Fatal(err)
				}
				time.Sleep(4*time.Minute + time.Second)
				if err := s.ChangeSchedule(t.Context(), harp.NewID(), "s", harp.ScheduleChange{Kind: harp.UnpauseOfSchedule}); err != nil {
					t.Fatal(err)
				}
				if n, err := s.BackfillSchedule(t.Context(), harp.NewID(), "s", begun.Add(1), time.Now()); err != nil || n != 4 {
					t.Fatal(n, err)
				}
				time.Sleep(time.Second)
			}, []string{
				"backfill skipped 2m0s by ada: the schedule was deleted", "time skipped 1m0s by : ada", "backfill fired 1m0s by ada: ",
			}},
			"waits for another one": {func(t *testing.T, s *service) {
				first := batchSchedule(t, "first", "hello", nil)
				first.Cron = "* * * * *"
				put(t, s, first)
				put(t, s, batchSchedule(t, "second", "hello", nil))
				sch := after(t, "s", "first")
				sch.After = append(sch.After, harp.Dependency{Schedule: "second"})
				put(t, s, sch)
				time.Sleep(time.Minute + time.Second)
			}, []string{"after skipped 1m0s by ada: the schedule was deleted; first "}},
		} {
			t.Run(how+"/"+name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					st := &endingStore{Store: memory.Open(nil)}
					d := opened(t, st, Config{Hosts: StaticHosts{{Name: "web01"}}})
					s := d.service(harp.Principal{Kind: "caller", Name: "ada"})
					begun := time.Now()
					if name == "waits for another one" {
						st.ended.Store(new(harp.BatchSucceeded))
					}
					c.begin(t, s)
					synctest.Wait()
					remove(t, s, "s")
					var got []string
					for _, e := range ledgerOf(t, s, "s") {
						detail := e.Detail
						if e.After != "" {
							detail = detail[:len(detail)-len(e.After+" succeeded")]
						}
						got = append(got, fmt.Sprintf("%s %s %v by %s: %s", e.Kind, e.Outcome, e.From.Sub(begun), e.By.Name, detail))
					}
					if !slices.Equal(got, c.want) {
						t.Errorf("told are %q, want %q", got, c.want)
					}
					if _, err := d.store.Schedule(t.Context(), "s"); !errors.Is(err, harp.ErrNotFound) {
						t.Errorf("the schedule: %v", err)
					}
				})
			})
		}
	}
}

// A schedule was deleted of which times could not be settled: they were in no ledger.
func TestTimesThatCannotBeSettledAreToldWithTheDelete(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := &stuckStore{Store: memory.Open(nil), entry: errTest}
		d := opened(t, st, Config{})
		s := d.service(harp.Principal{Kind: "caller", Name: "ada"})
		putEverySecond(t, s, "s")
		if err := s.ChangeSchedule(t.Context(), harp.NewID(), "s", harp.ScheduleChange{Kind: harp.PauseOfSchedule}); err != nil {
			t.Fatal(err)
		}
		begun := time.Now()
		time.Sleep(3500 * time.Millisecond)
		if err := s.DeleteSchedule(t.Context(), harp.NewID(), "s"); err != nil {
			t.Fatal(err)
		}
		all := ledgerOf(t, s, "s")
		if len(all) != 1 || all[0].Reason != harp.TimeByHand || all[0].Count != 3 || all[0].AtLeast || all[0].From.Sub(begun) != time.Second || all[0].To.Sub(begun) != 3*time.Second {
			t.Errorf("told are %+v", all)
		}
	})
}

// A schedule of which the zone was gone was deleted: its times until then were in no ledger.
func TestTimesOfADeletedScheduleWithoutZoneAreTold(t *testing.T) {
	st := memory.Open(nil)
	past := time.Now().Add(-time.Hour)
	sch := everyMinute(t, "zone")
	sch.TZ = "Mars/Phobos"
	step := store.ScheduleStep{Name: "zone", Document: wire.Encode(putSchedule{Schedule: sch}), State: store.ScheduleState{ScheduleLife: store.ScheduleLife{Through: past}}}
	if _, err := st.StepSchedule(t.Context(), step, past); err != nil {
		t.Fatal(err)
	}
	d := opened(t, st, Config{})
	s := d.service(harp.Principal{Kind: "caller", Name: "ada"})
	if err := s.DeleteSchedule(t.Context(), harp.NewID(), "zone"); err != nil {
		t.Fatal(err)
	}
	all := ledgerOf(t, s, "zone")
	if len(all) != 1 || all[0].Outcome != harp.TimeFailed || all[0].Reason != harp.TimeZone || all[0].By.Name != "ada" || all[0].Err == nil || all[0].To.Sub(past) < time.Hour {
		t.Errorf("told are %+v", all)
	}
}
