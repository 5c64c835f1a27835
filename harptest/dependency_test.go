package harptest_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/agent"
	"github.com/harpcaller/harp/harptest"
)

// chained is a system with schedules that come after one another, and what their procedure saw.
type chained struct {
	*testing.T
	sys *harptest.System

	mu    sync.Mutex // guards what follows
	fails map[string]bool
	takes map[string]time.Duration
	fires map[string][]time.Time // by schedule
}

// inChain runs a test body in virtual time.
func inChain(t *testing.T, body func(w *chained)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &chained{T: t, fails: map[string]bool{}, takes: map[string]time.Duration{}, fires: map[string][]time.Time{}}
		w.sys = harptest.New(t, harptest.Options{Agents: []string{"web01"}, Register: w.register})
		body(w)
	})
}

func (w *chained) register(a *agent.Agent) {
	agent.Handle(a, harp.NewProc[struct{}, string]("work"), func(ctx context.Context, _ struct{}) (string, error) {
		info, _ := agent.FromContext(ctx)
		w.mu.Lock()
		w.fires[info.Schedule] = append(w.fires[info.Schedule], info.FireTime)
		fails, takes := w.fails[info.Schedule], w.takes[info.Schedule]
		w.mu.Unlock()
		select {
		case <-ctx.Done():
			return "", context.Cause(ctx)
		case <-time.After(takes):
		}
		if fails {
			return "", errors.New("it was asked for")
		}
		return "", nil
	})
}

func (w *chained) schedules() *harp.Schedules { return w.sys.Caller().Schedules() }

func (w *chained) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

// put puts a schedule: one without dependencies has a time in June, beyond the test.
func (w *chained) put(name string, change func(s *harp.Schedule), after ...harp.Dependency) {
	w.Helper()
	r, err := harp.NewBatchRequest("web*", "work", nil)
	w.must(err)
	s := harp.Schedule{Name: name, After: after, Request: r}
	if len(after) == 0 {
		s.Cron = "0 3 1 6 *"
	}
	if change != nil {
		change(&s)
	}
	w.must(w.schedules().Put(w.Context(), s))
}

// set has further runs of a schedule take so long, and fail.
func (w *chained) set(name string, takes time.Duration, fails bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.takes[name], w.fails[name] = takes, fails
}

// run triggers a schedule and waits until its batch has ended, and what follows has begun.
func (w *chained) run(name string) {
	w.Helper()
	_, err := w.trigger(name).Wait(w.Context())
	w.must(err)
	w.settle()
}

func (w *chained) trigger(name string) *harp.Batch {
	w.Helper()
	b, err := w.schedules().Trigger(w.Context(), name)
	w.must(err)
	return b
}

func (w *chained) settle() {
	time.Sleep(time.Second)
	synctest.Wait()
}

var batchID = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f-]{27}`)

// entries are those of a ledger, oldest first.
func (w *chained) entries(name string) (all []harp.LedgerEntry) {
	w.Helper()
	for e, err := range w.schedules().Ledger(w.Context(), harp.LedgerFilter{Schedule: name}) {
		w.must(err)
		all = append(all, e)
	}
	slices.Reverse(all)
	return all
}

// wrote checks a ledger, oldest first, each entry as "outcome reason detail" with * for each batch. What is not about ends is left out.
func (w *chained) wrote(name string, want ...string) {
	w.Helper()
	var got []string
	for _, e := range w.entries(name) {
		if e.Kind != harp.LedgerAfter {
			continue
		}
		if b, err := w.sys.Caller().Batch(e.After).Status(w.Context()); err == nil && (!b.EndTime.Equal(e.From) || !strings.Contains(e.Detail, e.After)) {
			w.Errorf("%s has an entry of %v, %q; batch %s ended at %v", name, e.From, e.Detail, e.After, b.EndTime)
		}
		got = append(got, strings.Join(strings.Fields(fmt.Sprint(e.Outcome, " ", e.Reason, " ", batchID.ReplaceAllString(e.Detail, "*"))), " "))
	}
	if !slices.Equal(got, want) {
		w.Fatalf("the ledger of %s is\n%q, want\n%q", name, got, want)
	}
}

// ran checks how often a schedule ran, and that each run after others was told when the last of these had ended.
func (w *chained) ran(name string, want int) {
	w.Helper()
	w.mu.Lock()
	fires := slices.Clone(w.fires[name])
	w.mu.Unlock()
	if len(fires) != want {
		w.Fatalf("%s ran for %v, want %d runs", name, fires, want)
	}
	var nominals []time.Time
	for _, e := range w.entries(name) {
		if e.Kind == harp.LedgerAfter && e.Outcome == harp.TimeFired {
			nominals = append(nominals, e.From)
		}
	}
	if len(nominals) > 0 && !slices.EqualFunc(fires, nominals, time.Time.Equal) {
		w.Fatalf("%s ran for %v, the ledger has %v", name, fires, nominals)
	}
}

// A run of a schedule has those run that come after how it ended, whatever it was made for; others say why they do not.
func TestScheduleAfter(t *testing.T) {
	inChain(t, func(w *chained) {
		w.put("first", func(s *harp.Schedule) { s.Cron = "0 3 1 1 *" })
		w.put("good", nil, harp.Dependency{Schedule: "first"})
		w.put("bad", nil, harp.Dependency{Schedule: "first", On: harp.OnFailed})
		w.put("any", nil, harp.Dependency{Schedule: "first", On: harp.OnEnded})
		w.put("last", nil, harp.Dependency{Schedule: "any"})
		time.Sleep(4 * time.Hour) // a time
		synctest.Wait()
		w.set("first", 0, true)
		w.run("first")
		w.set("first", time.Hour, false)
		b := w.trigger("first")
		w.settle()
		_, err := b.Cancel(w.Context())
		w.must(err)
		_, err = b.Wait(w.Context())
		w.must(err)
		w.settle()
		const not = "skipped dependency first * "
		w.wrote("good", "fired first * succeeded", not+"failed", not+"cancelled")
		w.wrote("bad", not+"succeeded", "fired first * failed", not+"cancelled")
		w.wrote("any", "fired first * succeeded", "fired first * failed", "fired first * cancelled")
		w.wrote("last", "fired any * succeeded", "fired any * succeeded", "fired any * succeeded")
		w.ran("good", 1)
		w.ran("bad", 1)
		w.ran("any", 3)
		w.ran("last", 3)
		w.set("first", 0, false)
		from := time.Date(1999, 12, 31, 0, 0, 0, 0, time.UTC)
		w.put("first", func(s *harp.Schedule) { s.Cron, s.Overlap = "@daily", harp.OverlapSkip })
		w.must(w.schedules().Pause(w.Context(), "first", "", time.Time{}))
		time.Sleep(48 * time.Hour)
		w.must(w.schedules().Unpause(w.Context(), "first"))
		n, err := w.schedules().Backfill(w.Context(), "first", from.Add(48*time.Hour), from.Add(73*time.Hour))
		if w.must(err); n != 2 {
			t.Fatalf("%d are backfilled", n)
		}
		w.settle()
		w.ran("good", 3)
		w.ran("last", 5)
	})
}

// After several schedules it runs when each has ended so since its own last run; what is replaced, too old or paused is told.
func TestScheduleAfterSeveral(t *testing.T) {
	inChain(t, func(w *chained) {
		w.put("a", nil)
		w.put("b", nil)
		w.put("both", nil, harp.Dependency{Schedule: "a"}, harp.Dependency{Schedule: "b", On: harp.OnFailed, Within: time.Hour})
		w.set("b", 0, true)
		w.run("a")
		w.wrote("both")
		w.has("both", "a succeeded")
		w.run("b")
		w.has("both")
		want := []string{"fired a * succeeded, b * failed"}
		w.wrote("both", want...)
		w.run("b")
		w.run("b")
		want = append(want, "skipped dependency it ended again before the others did; b * failed")
		w.wrote("both", want...)
		time.Sleep(2 * time.Hour)
		want = append(want, "missed catch_up b * failed")
		w.wrote("both", want...)
		w.run("a")
		w.wrote("both", want...)
		w.must(w.schedules().Pause(w.Context(), "both", "disks", time.Time{}))
		w.run("b")
		w.must(w.schedules().Unpause(w.Context(), "both"))
		w.settle()
		want = append(want, "skipped paused caller: disks; b * failed")
		w.wroteFor("both", "caller", want...)
		w.run("b")
		want = append(want, "fired a * succeeded, b * failed")
		w.wroteFor("both", "caller", want...)
		w.ran("both", 2)
		// No edit fires what was there before it.
		w.run("a")
		w.put("both", nil, harp.Dependency{Schedule: "a"})
		w.settle()
		want = append(want, "skipped dependency before the schedule was put; a * succeeded")
		w.wroteFor("both", "caller", want...)
		w.run("a")
		w.ran("both", 3)
	})
}

// has checks which ends a schedule has while it waits for others.
func (w *chained) has(name string, want ...string) {
	w.Helper()
	s, err := w.schedules().Get(w.Context(), name)
	w.must(err)
	var got []string
	for _, e := range s.Ends {
		b, err := w.sys.Caller().Batch(e.Batch).Status(w.Context())
		w.must(err)
		if b.Schedule != e.Schedule || !b.EndTime.Equal(e.At) {
			w.Errorf("%s has the end %+v of %+v", name, e, b)
		}
		got = append(got, fmt.Sprint(e.Schedule, " ", e.State))
	}
	if !slices.Equal(got, want) {
		w.Fatalf("%s has the ends %q, want %q", name, got, want)
	}
}

// wroteFor is wrote where somebody's name is in the details.
func (w *chained) wroteFor(name, who string, want ...string) {
	w.Helper()
	for _, e := range w.entries(name) {
		if by, _, found := strings.Cut(e.Detail, ": disks"); found {
			for i := range want {
				want[i] = strings.Replace(want[i], who+": disks", by+": disks", 1)
			}
		}
	}
	w.wrote(name, want...)
}

// A change that leaves what a schedule comes after as it was forgets no end.
func TestScheduleAfterChanged(t *testing.T) {
	inChain(t, func(w *chained) {
		w.put("a", nil)
		w.put("b", nil)
		both := []harp.Dependency{{Schedule: "a"}, {Schedule: "b"}}
		w.put("both", nil, both...)
		w.run("a")
		w.put("both", func(s *harp.Schedule) { s.Doc = "another" }, both...)
		w.run("b")
		w.ran("both", 1)
		w.run("a")
		w.put("both", nil) // it has times
		w.settle()
		w.wrote("both", "fired a * succeeded, b * succeeded", "skipped dependency before the schedule was put; a * succeeded")
		w.must(w.schedules().Delete(w.Context(), "a"))
	})
}

// While the last run is not over the policies of times are those of ends.
func TestScheduleAfterOverlap(t *testing.T) {
	for policy, want := range map[harp.Overlap]struct {
		runs   int
		ledger []string
	}{
		harp.OverlapSkip:      {1, []string{"fired first * succeeded", "skipped overlap *, job * on web01 is running; first * succeeded", "skipped overlap *, job * on web01 is running; first * succeeded"}},
		harp.OverlapQueue:     {2, []string{"fired first * succeeded", "fired first * succeeded", "skipped overlap *, job * on web01 is running; first * succeeded"}},
		harp.OverlapCancelOld: {3, []string{"fired first * succeeded", "fired first * succeeded", "fired first * succeeded"}},
		harp.OverlapAllow:     {3, []string{"fired first * succeeded", "fired first * succeeded", "fired first * succeeded"}},
	} {
		t.Run(string(policy), func(t *testing.T) {
			inChain(t, func(w *chained) {
				w.put("first", nil)
				w.put("next", func(s *harp.Schedule) { s.Overlap = policy }, harp.Dependency{Schedule: "first"})
				w.set("next", time.Hour, false)
				for range 3 {
					w.run("first")
				}
				time.Sleep(3 * time.Hour)
				synctest.Wait()
				w.ran("next", want.runs)
				w.wrote("next", want.ledger...)
			})
		})
	}
}

// What waits for the end of the last run is missed when it is longer ago than it may be.
func TestScheduleAfterWaitsTooLong(t *testing.T) {
	inChain(t, func(w *chained) {
		w.put("first", nil)
		w.put("next", func(s *harp.Schedule) { s.Overlap = harp.OverlapQueue }, harp.Dependency{Schedule: "first", Within: 30 * time.Minute})
		w.set("next", time.Hour, false)
		w.run("first")
		w.run("first")
		time.Sleep(31 * time.Minute)
		synctest.Wait()
		w.wrote("next", "fired first * succeeded", "missed catch_up first * succeeded")
		time.Sleep(time.Hour)
		w.run("first")
		w.ran("next", 2)
	})
}

// A schedule pauses itself, is told as late, and runs by hand as others do; it has no time to skip or to make up for.
func TestScheduleAfterByHand(t *testing.T) {
	inChain(t, func(w *chained) {
		w.put("first", nil)
		w.put("next", func(s *harp.Schedule) { s.PauseOnFailure = 1 }, harp.Dependency{Schedule: "first"})
		w.run("next")
		if times, err := w.schedules().Next(w.Context(), "next", 3); err != nil || len(times) != 0 {
			t.Errorf("its times are %v, %v", times, err)
		}
		var field *harp.FieldError
		if err := w.schedules().Skip(w.Context(), "next", time.Time{}); !errors.As(err, &field) || field.Field != "at" {
			t.Errorf("skip: %v", err)
		}
		if _, err := w.schedules().Backfill(w.Context(), "next", time.Now().Add(-time.Hour), time.Now()); !errors.As(err, &field) || field.Field != "from" {
			t.Errorf("backfill: %v", err)
		}
		w.set("next", 0, true)
		w.run("first")
		w.run("first")
		w.wrote("next", "fired first * succeeded", "skipped paused 1 runs in a row did not succeed; first * succeeded")
		if s, err := w.schedules().Get(w.Context(), "next"); err != nil || s.Pause == nil || s.TZ != "" || !s.Next.Time.IsZero() {
			t.Errorf("it is %+v, %v", s, err)
		}
	})
}

// Wherever the dispatcher is killed between the end of a run, what is noted of it and the fire, one run follows each.
func TestScheduleAfterCrashes(t *testing.T) {
	inChain(t, func(w *chained) {
		w.put("a", nil)
		w.put("b", func(s *harp.Schedule) { s.Overlap = harp.OverlapQueue }, harp.Dependency{Schedule: "a"})
		w.put("c", func(s *harp.Schedule) { s.Overlap = harp.OverlapAllow }, harp.Dependency{Schedule: "b", On: harp.OnEnded})
		const rounds = 40
		for i := range rounds {
			w.trigger("a")
			time.Sleep(time.Duration(i) * 3 * time.Millisecond)
			w.sys.CrashDispatcher()
			time.Sleep(time.Duration(i%3) * time.Hour)
			w.sys.StartDispatcher()
			w.sys.WaitOnline("web01")
			time.Sleep(5 * time.Minute)
			synctest.Wait()
		}
		for name, of := range map[string]string{"b": "a", "c": "b"} {
			want := map[string]int{}
			for _, e := range w.entries(of) {
				if e.Outcome == harp.TimeFired {
					want[e.Batch]++
				}
			}
			got := map[string]int{}
			for _, e := range w.entries(name) {
				if got[e.After]++; e.Outcome != harp.TimeFired {
					t.Errorf("%s: %+v", name, e)
				}
			}
			if len(want) != rounds || fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("%s came after %v, want %v", name, got, want)
			}
		}
	})
}

// An end that was pending as a backup was made fires nothing once that is restored.
func TestScheduleAfterRestored(t *testing.T) {
	inChain(t, func(w *chained) {
		w.put("a", nil)
		w.put("b", nil)
		w.put("both", nil, harp.Dependency{Schedule: "a"}, harp.Dependency{Schedule: "b"})
		w.run("a")
		var backup bytes.Buffer
		w.must(w.sys.Caller().Backup(w.Context(), &backup))
		w.run("b")
		w.ran("both", 1)
		w.sys.StopDispatcher()
		w.sys.RestoreDispatcher(&backup)
		w.sys.StartDispatcher()
		w.sys.WaitOnline("web01")
		w.settle()
		w.wrote("both", "missed restored a * succeeded")
		w.run("b")
		w.wrote("both", "missed restored a * succeeded")
		w.run("a")
		w.wrote("both", "missed restored a * succeeded", "fired b * succeeded, a * succeeded")
	})
}

// TestAPauseDoesNotBeginAnewForWhatComesAfter: the pause of a schedule that comes after another has ended by itself, and the clock is set back
// into it: the other's runs are followed all the same.
func TestAPauseDoesNotBeginAnewForWhatComesAfter(t *testing.T) {
	inTimetable(t, func(s *harp.Schedule) { s.Cron = "0 3 1 6 *" }, func(w *timetable) {
		w.must(w.schedules().Put(w.Context(), harp.Schedule{Name: "next", After: []harp.Dependency{{Schedule: "s"}}, Request: w.request("web*", "work")}))
		w.must(w.schedules().Pause(w.Context(), "next", "disks", time.Now().Add(5*time.Minute)))
		w.pass(6)
		w.ahead.Store(int64(-4 * time.Minute))
		_, err := w.schedules().Trigger(w.Context(), "s")
		w.must(err)
		w.pass(1)
		next, err := w.schedules().Get(w.Context(), "next")
		if w.must(err); next.Pause != nil || next.LastBatch == "" {
			w.Errorf("it is %+v", next)
		}
	})
}

// TestAPauseDoesNotBeginAnewForOtherTimes: the pause of a schedule has ended by itself, the clock is set back into it, and the schedule is given
// other times: they fire.
func TestAPauseDoesNotBeginAnewForOtherTimes(t *testing.T) {
	inTimetable(t, func(s *harp.Schedule) { s.Cron = "0 3 1 6 *" }, func(w *timetable) {
		w.must(w.schedules().Pause(w.Context(), "s", "disks", time.Now().Add(5*time.Minute)))
		w.pass(6)
		w.ahead.Store(int64(-4 * time.Minute))
		s := w.status().Schedule
		s.Cron = "* * * * *"
		w.must(w.schedules().Put(w.Context(), s))
		w.pass(2)
		w.fired(3, 4)
		w.wrote()
	})
}
