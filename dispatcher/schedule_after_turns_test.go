package dispatcher

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/store"
	"github.com/harpcaller/harp/store/memory"
)

// slowBatches is a store that takes a while to read a batch, and of which one has succeeded.
type slowBatches struct {
	store.Store
	succeeded atomic.Pointer[string]
}

func (s *slowBatches) Batch(ctx context.Context, id string) (*store.Batch, error) {
	time.Sleep(time.Millisecond)
	b, err := s.Store.Batch(ctx, id)
	if is := s.succeeded.Load(); err == nil && is != nil && *is == id {
		b.State, b.EndTime = harp.BatchSucceeded, time.Now().UTC()
	}
	return b, err
}

func trigger(t *testing.T, s *service, name string) (batch string) {
	t.Helper()
	batch = harp.NewID()
	if _, err := s.TriggerSchedule(t.Context(), batch, name, harp.Trigger{EvenIfRunning: true}); err != nil {
		t.Fatal(err)
	}
	return batch
}

// An end comes to schedules that take longer to look at their own runs than it takes to see the end, however often they are looked at: they do
// not get in each other's way again and again.
func TestAnEndComesToSchedulesOfManyRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := &slowBatches{Store: memory.Open(nil)}
		d := opened(t, st, Config{Hosts: StaticHosts{{Name: "web01"}}})
		s := d.service(harp.Principal{Kind: "caller", Name: "ada"})
		put(t, s, batchSchedule(t, "first", "hello", nil))
		ended := trigger(t, s, "first")
		names := []string{"next", "next2", "next3"}
		for _, name := range names {
			put(t, s, after(t, name, "first"))
			for range 30 {
				trigger(t, s, name)
			}
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if err := d.schedules.awaitTurn(t.Context(), "next"); err != nil {
			t.Fatal(err)
		}
		st.succeeded.Store(&ended)
		d.schedules.note("first")
		time.Sleep(time.Second)
		d.schedules.endTurn("next")
		for range 50 {
			for _, name := range names {
				d.schedules.note(name)
			}
			time.Sleep(10 * time.Millisecond)
		}
		checkAfterOf(t, s, ended, harp.TimeFired, "first "+ended+" succeeded")
	})
}

// checkAfterOf checks that next has one entry about ends, of that one.
func checkAfterOf(t *testing.T, s *service, batch string, outcome harp.TimeOutcome, detail string) {
	t.Helper()
	var got []harp.LedgerEntry
	for _, e := range ledgerOf(t, s, "next") {
		if e.Kind == harp.LedgerAfter {
			got = append(got, e)
		}
	}
	if len(got) != 1 || got[0].After != batch || got[0].Outcome != outcome || got[0].Detail != detail {
		t.Errorf("the ledger is %+v, want one entry, %s, of batch %s", got, outcome, batch)
	}
}

// A run that is not waited for any more, since there are too many, is told to those that come after it.
func TestARunThatIsNotWaitedForIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, d, s := afterWorld(t)
		first := batchSchedule(t, "first", "hello", nil)
		first.Overlap = harp.OverlapAllow
		put(t, s, first)
		var runs []string
		for range maxRuns + 1 {
			runs = append(runs, trigger(t, s, "first"))
		}
		time.Sleep(time.Second)
		synctest.Wait()
		checkAfterOf(t, s, runs[0], harp.TimeSkipped, "first "+runs[0]+", nobody knows how it ended")
		is, err := d.schedules.find("first")
		if err != nil || len(is.state.Runs) != maxRuns {
			t.Errorf("it waits for %d runs, %v", len(is.state.Runs), err)
		}
	})
}
