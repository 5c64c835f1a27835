package dispatcher

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/harpcaller/harp"
)

// A run of skipped times went on behind one that waited and fired, and whoever read the ledger from a time of it on was not told of it.
func TestLedgerFromATimeBehindOneThatWaited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := opened(t, nil, Config{Hosts: StaticHosts{{Name: "web01"}}})
		s := d.service(harp.Principal{Kind: "caller", Name: "ada"})
		sch := batchSchedule(t, "first", "hello", nil)
		sch.Cron, sch.Overlap, sch.Request.OfflineWait = "* * * * *", harp.OverlapQueue, harp.NoLimit
		put(t, s, sch)
		begun := time.Now()
		time.Sleep(5*time.Minute + 30*time.Second)
		first := ledgerOf(t, s, "first")
		if _, err := s.ChangeBatch(t.Context(), harp.NewID(), first[len(first)-1].Batch, harp.BatchChange{Kind: harp.CancelOfBatch}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		synctest.Wait()
		from := begun.Add(5 * time.Minute)
		page, err := s.ScheduleLedger(t.Context(), harp.LedgerFilter{Schedule: "first", From: from}, "")
		if err != nil || len(page.Items) != 1 || page.Items[0].Outcome != harp.TimeSkipped || !page.Items[0].To.Equal(from) {
			t.Errorf("from %v on there is %+v, %v; in all\n%+v", from, page.Items, err, ledgerOf(t, s, "first"))
		}
	})
}
