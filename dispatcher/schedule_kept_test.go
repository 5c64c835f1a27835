package dispatcher

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/store"
)

// A schedule was deleted and put anew, what its ledger had of times that fired was pruned meanwhile, and a backfill fires these once more.
func TestABackfillFiredWhatADeletedScheduleHad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := opened(t, nil, Config{Hosts: StaticHosts{{Name: "web01"}}})
		s := d.service(harp.Principal{Kind: "caller", Name: "ada"})
		begun := time.Now()
		sch := batchSchedule(t, "first", "hello", nil)
		sch.Cron = "* * * * *"
		put(t, s, sch)
		time.Sleep(3*time.Minute + time.Second)
		synctest.Wait()
		if n := len(ledgerOf(t, s, "first")); n != 3 {
			t.Fatalf("%d entries", n)
		}
		if err := s.DeleteSchedule(t.Context(), harp.NewID(), "first"); err != nil {
			t.Fatal(err)
		}
		if _, err := d.store.Prune(t.Context(), store.Retention{EventsBefore: time.Now()}, time.Now()); err != nil {
			t.Fatal(err)
		}
		t.Logf("left %+v", ledgerOf(t, s, "first"))
		put(t, s, sch)
		n, err := s.BackfillSchedule(t.Context(), harp.NewID(), "first", begun, time.Now())
		if !errors.Is(err, harp.ErrPruned) {
			t.Errorf("a backfill of %d times is taken: %v", n, err)
		}
	})
}
