package dispatcher

import (
	"testing"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/wire"
	"github.com/harpcaller/harp/store"
	"github.com/harpcaller/harp/store/memory"
)

// TestTimesOfAScheduleWhoseZoneWasGoneAreInTheLedger: once it is put anew, those until then are told as failed, with the reason.
func TestTimesOfAScheduleWhoseZoneWasGoneAreInTheLedger(t *testing.T) {
	st := memory.Open(nil)
	past := time.Now().Add(-time.Hour)
	request, err := harp.NewBatchRequest("web*", "hello", nil)
	if err != nil {
		t.Fatal(err)
	}
	request.ID = ""
	sch := harp.Schedule{Name: "zone", Cron: "* * * * *", TZ: "Mars/Phobos", Request: request}
	step := store.ScheduleStep{Name: "zone", Document: wire.Encode(putSchedule{Schedule: sch}), State: store.ScheduleState{Version: 7, ScheduleLife: store.ScheduleLife{Through: past}}}
	if _, err := st.StepSchedule(t.Context(), step, past); err != nil {
		t.Fatal(err)
	}
	d := opened(t, st, Config{})
	s := d.service(harp.Principal{Kind: "caller", Name: "ada"})
	sch.TZ = "UTC"
	if err := s.PutSchedule(t.Context(), harp.NewID(), sch); err != nil {
		t.Fatal(err)
	}
	page, err := s.ScheduleLedger(t.Context(), harp.LedgerFilter{Schedule: "zone"}, "")
	if err != nil || len(page.Items) != 1 {
		t.Fatalf("of the hour the ledger has %+v, %v", page.Items, err)
	}
	e := page.Items[0]
	if e.Outcome != harp.TimeFailed || e.Reason != harp.TimeZone || e.From.Sub(past) > time.Second || e.To.Sub(past) < time.Hour || e.Count != 0 || !e.AtLeast || e.Err == nil {
		t.Errorf("of the hour the ledger has %+v", e)
	}
}
