package dispatcher

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/store"
	"github.com/harpcaller/harp/store/memory"
)

// endingStore is a store of which batches have ended in some state, and commits of several steps are refused or lost.
type endingStore struct {
	store.Store
	ended   atomic.Pointer[harp.BatchState] // of all batches; nil: they are as they are
	only    atomic.Pointer[string]          // of this batch alone
	gone    atomic.Bool                     // of no batch anything is known
	refuses atomic.Int64                    // so many commits of several steps
	loses   atomic.Int64                    // that so many are made
	reads   atomic.Int64                    // of batches
}

func (s *endingStore) Batch(ctx context.Context, id string) (*store.Batch, error) {
	s.reads.Add(1)
	if s.gone.Load() {
		return nil, harp.ErrPruned
	}
	b, err := s.Store.Batch(ctx, id)
	only := s.only.Load()
	if state := s.ended.Load(); err == nil && state != nil && (only == nil || *only == id) {
		b.State, b.EndTime = *state, time.Now().UTC()
	}
	return b, err
}

var errTest = errors.New("it was asked for")

func (s *endingStore) ChangeDocuments(ctx context.Context, c store.DocumentChanges) (int, error) {
	if len(c.Steps) > 1 && s.refuses.Add(-1) >= 0 {
		return 0, errTest
	}
	n, err := s.Store.ChangeDocuments(ctx, c)
	if len(c.Steps) > 1 && s.loses.Add(-1) >= 0 {
		return 0, errTest
	}
	return n, err
}

// afterWorld is a dispatcher with a schedule "first", which runs each minute on a host that is away, and one that comes after it.
func afterWorld(t *testing.T) (st *endingStore, d *Dispatcher, s *service) {
	t.Helper()
	st = &endingStore{Store: memory.Open(nil)}
	d = opened(t, st, Config{Hosts: StaticHosts{{Name: "web01"}}})
	s = d.service(harp.Principal{Kind: "caller", Name: "ada"})
	first := batchSchedule(t, "first", "hello", nil)
	first.Cron = "* * * * *"
	put(t, s, first)
	put(t, s, after(t, "next", "first"))
	return st, d, s
}

func put(t *testing.T, s *service, sch harp.Schedule) {
	t.Helper()
	if err := s.PutSchedule(t.Context(), harp.NewID(), sch); err != nil {
		t.Fatal(err)
	}
}

func after(t *testing.T, name, of string) harp.Schedule {
	t.Helper()
	s := batchSchedule(t, name, "hello", nil)
	s.Cron, s.Overlap, s.After = "", harp.OverlapAllow, []harp.Dependency{{Schedule: of}}
	return s
}

// ledgerOf is a ledger, newest first, as "outcome reason after".
func ledgerOf(t *testing.T, s *service, name string) (all []harp.LedgerEntry) {
	t.Helper()
	page, err := s.ScheduleLedger(t.Context(), harp.LedgerFilter{Schedule: name}, "")
	if err != nil {
		t.Fatal(err)
	}
	return page.Items
}

// checkAfter checks that of each run of first but the last open ones there is one entry of next.
func checkAfter(t *testing.T, s *service, open int) {
	t.Helper()
	got := map[string]int{}
	for _, e := range ledgerOf(t, s, "next") {
		got[e.After]++
	}
	for i, e := range ledgerOf(t, s, "first") {
		want := 1
		if i < open {
			want = 0
		}
		if e.Outcome != harp.TimeFired || got[e.Batch] != want {
			t.Errorf("run %d of first, %s, has %d entries", i, e.Outcome, got[e.Batch])
		}
	}
}

// Where a commit that notes an end is refused, or was made all the same, the end comes once.
func TestAnEndComesOnceHoweverItsCommitGoes(t *testing.T) {
	succeeded := harp.BatchSucceeded
	for _, c := range []struct{ refuses, loses int64 }{{3, 0}, {0, 1}, {2, 2}} {
		t.Run(fmt.Sprint(c), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				st, d, s := afterWorld(t)
				time.Sleep(61 * time.Second)
				synctest.Wait()
				st.refuses.Store(c.refuses)
				st.loses.Store(c.loses)
				st.ended.Store(&succeeded)
				d.schedules.note("first")
				time.Sleep(50 * time.Second)
				synctest.Wait()
				if n := len(ledgerOf(t, s, "next")); n != 1 {
					t.Fatalf("there are %d entries", n)
				}
				time.Sleep(3 * time.Minute)
				synctest.Wait()
				if len(ledgerOf(t, s, "first")) != 4 {
					t.Errorf("first has %+v", ledgerOf(t, s, "first"))
				}
				d.schedules.note("first")
				time.Sleep(time.Second)
				checkAfter(t, s, 0)
			})
		})
	}
}

// An end comes to a schedule that is of another revision than it was taken for: it is read anew.
func TestAnEndComesToAScheduleOfAnotherRevision(t *testing.T) {
	succeeded := harp.BatchSucceeded
	synctest.Test(t, func(t *testing.T) {
		st, d, s := afterWorld(t)
		time.Sleep(61 * time.Second)
		synctest.Wait()
		is, err := st.Schedule(t.Context(), "next")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := st.StepSchedule(t.Context(), store.ScheduleStep{Name: "next", Revision: is.Revision, State: is.ScheduleState}, time.Now()); err != nil {
			t.Fatal(err)
		}
		st.ended.Store(&succeeded)
		d.schedules.note("first")
		time.Sleep(30 * time.Second)
		synctest.Wait()
		checkAfter(t, s, 0)
	})
}

// While a schedule is being changed those that it comes after go on, and are not looked at without a pause; how their runs ended comes to it afterwards.
func TestAnEndWaitsForAChange(t *testing.T) {
	succeeded := harp.BatchSucceeded
	synctest.Test(t, func(t *testing.T) {
		st, d, s := afterWorld(t)
		time.Sleep(61 * time.Second)
		synctest.Wait()
		if err := d.schedules.awaitTurn(t.Context(), "next"); err != nil {
			t.Fatal(err)
		}
		st.ended.Store(&succeeded)
		st.reads.Store(0)
		d.schedules.note("first")
		time.Sleep(3 * time.Minute)
		synctest.Wait()
		if n := st.reads.Load(); n > 100 {
			t.Errorf("in 3 minutes its runs were read %d times", n)
		}
		if n := len(ledgerOf(t, s, "first")); n != 4 {
			t.Errorf("first has %d entries while the other is changed", n)
		}
		if n := len(ledgerOf(t, s, "next")); n != 0 {
			t.Errorf("next has %d entries while it is changed", n)
		}
		d.schedules.endTurn("next")
		time.Sleep(time.Second)
		synctest.Wait()
		checkAfter(t, s, 0)
	})
}

// The last of two runs was over, which could not be noted while a schedule that comes after was changed, and the next time fired beside the other run.
func TestATimeFiredBesideARunThatWasNotTheLast(t *testing.T) {
	succeeded := harp.BatchSucceeded
	synctest.Test(t, func(t *testing.T) {
		st, d, s := afterWorld(t)
		waits := batchSchedule(t, "first", "hello", nil)
		waits.Cron, waits.Request.OfflineWait = "* * * * *", time.Hour
		put(t, s, waits)
		time.Sleep(61 * time.Second)
		if _, err := s.TriggerSchedule(t.Context(), harp.NewID(), "first", harp.Trigger{EvenIfRunning: true}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		first, err := d.schedules.find("first")
		if err != nil {
			t.Fatal(err)
		}
		if len(first.state.Runs) != 2 {
			t.Fatalf("its runs are %+v", first.state.Runs)
		}
		if err := d.schedules.awaitTurn(t.Context(), "next"); err != nil {
			t.Fatal(err)
		}
		st.ended.Store(&succeeded)
		st.only.Store(&first.state.Runs[1].Batch)
		time.Sleep(time.Minute)
		synctest.Wait()
		d.schedules.endTurn("next")
		for _, e := range ledgerOf(t, s, "first")[:1] {
			if e.Outcome != harp.TimeSkipped || e.Reason != harp.TimeOverlap || !strings.HasPrefix(e.Detail, first.state.Runs[0].Batch) {
				t.Errorf("the ledger is %+v", e)
			}
		}
	})
}

// A run of which nobody knows how it ended fires nothing, and the ledger says so.
func TestAnUnknownEndFiresNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st, d, s := afterWorld(t)
		time.Sleep(61 * time.Second)
		synctest.Wait()
		st.gone.Store(true)
		d.schedules.note("first")
		time.Sleep(time.Second)
		synctest.Wait()
		got := ledgerOf(t, s, "next")
		if len(got) != 1 || got[0].Outcome != harp.TimeSkipped || got[0].Reason != harp.TimeDependency || got[0].Detail != "first "+got[0].After+", nobody knows how it ended" {
			t.Errorf("the ledger is %+v", got)
		}
	})
}

// Those that come after each other are put at the same time, and no circle comes of it.
func TestDependenciesPutTogether(t *testing.T) {
	d := opened(t, nil, Config{})
	s := d.service(harp.Principal{Kind: "caller", Name: "ada"})
	const n = 6
	name := func(i int) string { return fmt.Sprint("s", i%n) }
	for round := range 20 {
		for i := range n {
			put(t, s, batchSchedule(t, name(i), "hello", nil))
		}
		done := make(chan error)
		for i := range n {
			next := after(t, name(i), name(i+1))
			go func() { done <- s.PutSchedule(t.Context(), harp.NewID(), next) }()
		}
		refused := 0
		for range n {
			if err := <-done; errors.Is(err, harp.ErrInvalid) {
				refused++
			} else if err != nil {
				t.Fatal(err)
			}
		}
		if refused != 1 {
			t.Fatalf("round %d: %d of %d were refused", round, refused, n)
		}
	}
}
