package dispatcher_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/agent"
	"github.com/harpcaller/harp/dispatcher"
)

// yearly is a schedule that does not fire in a test by itself.
func yearly(name, procedure string, args any, opts ...harp.Option) harp.Schedule {
	return harp.Schedule{Name: name, Cron: "0 3 1 1 *", Request: requestOf("web*", procedure, args, opts...)}
}

func requestOf(target, procedure string, args any, opts ...harp.Option) harp.Request {
	r, err := harp.NewBatchRequest(target, procedure, args, opts...)
	if err != nil {
		panic(err)
	}
	r.ID = ""
	return r
}

func ok(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// told is the ledger of a schedule, newest first, each entry as "kind outcome reason count".
func told(t testing.TB, c *harp.Caller, name string) (all []string) {
	t.Helper()
	for _, e := range allOf(t, c.Schedules().Ledger(t.Context(), harp.LedgerFilter{Schedule: name})) {
		all = append(all, strings.Join(strings.Fields(fmt.Sprintf("%s %s %s %d", e.Kind, e.Outcome, e.Reason, e.Count)), " "))
	}
	return all
}

func wantTold(t testing.TB, c *harp.Caller, name string, want ...string) {
	t.Helper()
	if got := told(t, c, name); !slices.Equal(got, want) {
		t.Fatalf("the ledger is\n%q, want\n%q", got, want)
	}
}

// A schedule is put, shown, listed, replaced and deleted, and reads back as it was given.
func TestSchedulePut(t *testing.T) {
	everyWiring(t, func(t *testing.T, sys *system) {
		sys.agent("web01", greeter)
		ctx, ss := t.Context(), sys.caller.Schedules()
		in := yearly("nightly", "hello", harp.Args{"name": "Ada"}, harp.Label("team", "db"), harp.Parallel(3))
		in.Doc, in.Overlap, in.CatchUp, in.CatchUpMost, in.PauseOnFailure = "about", harp.OverlapQueue, time.Hour, 2, 3
		in.Expect, in.Labels, in.Jitter, in.Gap, in.Repeat = time.Minute, map[string]string{"k": "v"}, time.Minute, harp.GapSkip, harp.RepeatLast
		ok(t, ss.Put(ctx, in))
		got := must[harp.ScheduleStatus](t)(ss.Get(ctx, "nightly"))
		if in.TZ = "UTC"; got.Version != 1 || fmt.Sprintf("%+v", got.Schedule) != fmt.Sprintf("%+v", in) {
			t.Errorf("it is\n%+v, want\n%+v", got.Schedule, in)
		}
		if got.By.Kind == "" || got.Changed.IsZero() || got.Through.IsZero() || got.Next.Nominal.Month() != time.January || got.Next.Wall == "" || got.Pause != nil {
			t.Errorf("it is %+v", got)
		}
		in.Cron, in.TZ = "0 4 1 1 *", "Europe/Madrid"
		ok(t, ss.Put(ctx, in))
		ok(t, ss.Put(ctx, yearly("another", "hello", nil)))
		all := allOf(t, ss.List(ctx))
		if len(all) != 2 || all[0].Name != "another" || all[1].Version != 2 || all[1].TZ != "Europe/Madrid" {
			t.Errorf("listed are %+v", all)
		}
		next := must[[]harp.Upcoming](t)(ss.Next(ctx, "nightly", 3))
		if len(next) != 3 || next[0].Nominal.Hour() != 3 || !strings.Contains(next[0].Wall, "04:00 CET") || !next[2].Nominal.After(next[1].Nominal) {
			t.Errorf("it fires at %+v", next)
		}
		ok(t, ss.Delete(ctx, "nightly"))
		if _, err := ss.Get(ctx, "nightly"); !errors.Is(err, harp.ErrNotFound) {
			t.Errorf("when it is deleted: %v", err)
		}
		var types []string
		for e, err := range sys.caller.Events(ctx, harp.EventFilter{After: harp.EventsFromStart, Types: []string{"schedule.*"}}) {
			ok(t, err)
			if types = append(types, string(e.Type)+" "+e.Schedule); e.Type == harp.EventScheduleDeleted {
				break
			}
		}
		if !slices.Equal(types, []string{"schedule.changed nightly", "schedule.changed nightly", "schedule.changed another", "schedule.deleted nightly"}) {
			t.Errorf("the events are %q", types)
		}
	})
}

// What cannot be is refused when it is put, naming the field.
func TestSchedulePutRefused(t *testing.T) {
	everyWiring(t, func(t *testing.T, sys *system) {
		ctx, ss := t.Context(), sys.caller.Schedules()
		for field, change := range map[string]func(s *harp.Schedule){
			"cron":   func(s *harp.Schedule) { s.Cron = "0 0 31 2 *" },
			"tz":     func(s *harp.Schedule) { s.TZ = "Mars/Phobos" },
			"until":  func(s *harp.Schedule) { s.Until = time.Now().Add(-time.Hour) },
			"jitter": func(s *harp.Schedule) { s.Cron, s.Jitter = "* * * * *", 2*time.Minute },
			"target": func(s *harp.Schedule) { s.Request.Target = "@nobody" },
		} {
			s := yearly("s", "hello", nil)
			change(&s)
			err := ss.Put(ctx, s)
			var wrong *harp.FieldError
			if !errors.Is(err, harp.ErrInvalid) || !errors.As(err, &wrong) || wrong.Field != field {
				t.Errorf("%s: %v", field, err)
			}
		}
		for what, err := range map[string]error{
			"delete":   ss.Delete(ctx, "none"),
			"pause":    ss.Pause(ctx, "none", "", time.Time{}),
			"unpause":  ss.Unpause(ctx, "none"),
			"skip":     ss.Skip(ctx, "none", time.Time{}),
			"next":     errOf(ss.Next(ctx, "none", 1)),
			"trigger":  errOf(ss.Trigger(ctx, "none")),
			"backfill": errOf(ss.Backfill(ctx, "none", time.Unix(1, 0), time.Unix(2, 0))),
		} {
			if !errors.Is(err, harp.ErrNotFound) {
				t.Errorf("%s of one that there is not: %v", what, err)
			}
		}
	})
}

func errOf[T any](_ T, err error) error { return err }

// A schedule that is triggered runs as a batch whose members know which schedule and time they are of; while it runs, or is paused, that is refused,
// unless it is to be all the same.
func TestScheduleTrigger(t *testing.T) {
	everyWiring(t, func(t *testing.T, sys *system) {
		g := newGate()
		infos := make(chan agent.CallInfo, 10)
		sys.agent("web01", func(a *agent.Agent) {
			g.register(a)
			agent.Handle(a, harp.NewProc[struct{}, string]("tell"), func(ctx context.Context, _ struct{}) (string, error) {
				info, _ := agent.FromContext(ctx)
				infos <- info
				return "", nil
			})
		})
		ctx, ss := t.Context(), sys.caller.Schedules()
		ok(t, ss.Put(ctx, yearly("tell", "tell", nil)))
		b := must[*harp.Batch](t)(ss.Trigger(ctx, "tell"))
		if s := ended(t, b, harp.BatchSucceeded, ""); s.Schedule != "tell" {
			t.Errorf("the batch is of schedule %q", s.Schedule)
		}
		if info := <-infos; info.Schedule != "tell" || !info.FireTime.IsZero() { // it is the run of no time
			t.Errorf("the procedure is told %+v", info)
		}
		wantTold(t, sys.caller, "tell", "manual fired 1")
		ok(t, ss.Put(ctx, yearly("gate", "gate", harp.Args{"name": "x"})))
		b = must[*harp.Batch](t)(ss.Trigger(ctx, "gate"))
		<-g.entered
		if _, err := ss.Trigger(ctx, "gate"); !errors.Is(err, harp.ErrConflict) || !strings.Contains(err.Error(), b.ID()) {
			t.Errorf("while it runs: %v", err)
		}
		other := must[*harp.Batch](t)(ss.Trigger(ctx, "gate", harp.EvenIfRunning()))
		<-g.entered
		g.release <- struct{}{}
		g.release <- struct{}{}
		ended(t, b, harp.BatchSucceeded, "")
		ended(t, other, harp.BatchSucceeded, "")
		ok(t, ss.Pause(ctx, "gate", "disks", time.Time{}))
		if _, err := ss.Trigger(ctx, "gate"); !errors.Is(err, harp.ErrConflict) || !strings.Contains(err.Error(), "disks") {
			t.Errorf("while it is paused: %v", err)
		}
		g.release <- struct{}{}
		ended(t, must[*harp.Batch](t)(ss.Trigger(ctx, "gate", harp.EvenIfPaused())), harp.BatchSucceeded, "")
		if s := must[harp.ScheduleStatus](t)(ss.Get(ctx, "gate")); s.Pause == nil || s.Pause.Reason != "disks" || s.LastBatch == "" {
			t.Errorf("it is %+v", s)
		}
		ok(t, ss.Put(ctx, harp.Schedule{Name: "nobody", Cron: "0 3 1 1 *", Request: requestOf("db*", "tell", nil)}))
		if _, err := ss.Trigger(ctx, "nobody"); !errors.Is(err, harp.ErrNotFound) {
			t.Errorf("of a target that selects nobody: %v", err)
		}
		wantTold(t, sys.caller, "nobody")
	})
}

// TestScheduleOnStop: a run of which too many members fail is cancelled, or paused where the schedule asks for that.
func TestScheduleOnStop(t *testing.T) {
	everyWiring(t, func(t *testing.T, sys *system) {
		sys.webs(2)
		for policy, want := range map[harp.StopPolicy]harp.BatchState{"": harp.BatchFailed, harp.CancelBatch: harp.BatchFailed, harp.PauseBatch: harp.BatchPaused} {
			name := "on" + string(policy)
			ok(t, sys.caller.Schedules().Put(t.Context(), yearly(name, "fail.on", failArgs{Hosts: []string{"web01"}}, harp.Parallel(1), harp.StopAfter("1"), harp.OnStop(policy))))
			b := must[*harp.Batch](t)(sys.caller.Schedules().Trigger(t.Context(), name))
			status := must[harp.BatchStatus](t)(b.Status(t.Context()))
			for _, err := range b.Results(t.Context()) {
				ok(t, err)
				if status = must[harp.BatchStatus](t)(b.Status(t.Context())); status.State != harp.BatchRunning {
					break
				}
			}
			if status.State != want {
				t.Errorf("with %q the run is %s (%s), want %s", policy, status.State, status.Reason, want)
			}
		}
	})
}

// A time to come is skipped once, and only one that there is.
func TestScheduleSkip(t *testing.T) {
	everyWiring(t, func(t *testing.T, sys *system) {
		ctx, ss := t.Context(), sys.caller.Schedules()
		ok(t, ss.Put(ctx, yearly("s", "hello", nil)))
		next := must[[]harp.Upcoming](t)(ss.Next(ctx, "s", 2))
		ok(t, ss.Skip(ctx, "s", next[1].Nominal))
		if err := ss.Skip(ctx, "s", next[1].Nominal); !errors.Is(err, harp.ErrConflict) {
			t.Errorf("skipped twice: %v", err)
		}
		if err := ss.Skip(ctx, "s", next[1].Nominal.Add(time.Second)); !errors.Is(err, harp.ErrInvalid) {
			t.Errorf("of a time that is none: %v", err)
		}
		ok(t, ss.Skip(ctx, "s", time.Time{}))
		after := must[[]harp.Upcoming](t)(ss.Next(ctx, "s", 3))
		if after[0].Note == "" || after[1].Note == "" || after[2].Note != "" {
			t.Errorf("it fires at %+v", after)
		}
	})
}

// Times of the past are made up for, the oldest first, one after another, once.
func TestScheduleBackfill(t *testing.T) {
	everyWiring(t, func(t *testing.T, sys *system) {
		fires := make(chan time.Time, 10)
		sys.agent("web01", func(a *agent.Agent) {
			agent.Handle(a, harp.NewProc[struct{}, string]("tell"), func(ctx context.Context, _ struct{}) (string, error) {
				info, _ := agent.FromContext(ctx)
				fires <- info.FireTime
				return "", nil
			})
		})
		ctx, ss := t.Context(), sys.caller.Schedules()
		ok(t, ss.Put(ctx, yearly("s", "tell", nil)))
		year := time.Now().UTC().Year()
		from, to := time.Date(year-3, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(year-1, 1, 2, 0, 0, 0, 0, time.UTC)
		if n := must[int](t)(ss.Backfill(ctx, "s", from, to)); n != 3 {
			t.Fatalf("it fires %d times", n)
		}
		for n := range 3 {
			if at := <-fires; at.Year() != year-3+n {
				t.Errorf("fire %d is of %v", n, at)
			}
		}
		wantTold(t, sys.caller, "s", "backfill fired 1", "backfill fired 1", "backfill fired 1")
		if n := must[int](t)(ss.Backfill(ctx, "s", from, to)); n != 0 {
			t.Errorf("again it fires %d times", n)
		}
		if _, err := ss.Backfill(ctx, "s", from, time.Now().Add(time.Hour)); !errors.Is(err, harp.ErrInvalid) {
			t.Errorf("of times to come: %v", err)
		}
		often := yearly("often", "tell", nil)
		often.Cron = "* * * * *"
		ok(t, ss.Put(ctx, often))
		if _, err := ss.Backfill(ctx, "often", to, to.Add(1001*time.Minute)); !errors.Is(err, harp.ErrInvalid) {
			t.Errorf("of 1,001 times: %v", err)
		}
	})
}

// A schedule that is put without a zone gets the dispatcher's.
func TestScheduleZone(t *testing.T) {
	sys := newSystem(t, embedded, nil, dispatcher.Config{TimeZone: "Asia/Tokyo"})
	ss := sys.caller.Schedules()
	ok(t, ss.Put(t.Context(), yearly("s", "hello", nil)))
	if s := must[harp.ScheduleStatus](t)(ss.Get(t.Context(), "s")); s.TZ != "Asia/Tokyo" || !strings.HasSuffix(s.Next.Wall, "JST") {
		t.Errorf("it is %+v", s)
	}
	if _, err := dispatcher.Open(t.Context(), nil, dispatcher.Config{TimeZone: "Mars/Phobos"}); !errors.Is(err, harp.ErrInvalid) {
		t.Errorf("a dispatcher of no zone: %v", err)
	}
}
