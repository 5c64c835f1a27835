package dispatcher_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/dispatcher"
	"github.com/harpcaller/harp/internal/wire"
)

// TestTheLedgerDidNotSayWhichJobWasNotOver: a run that is not over is told with the job and host that keep it, also where nobody knows any more whether that
// runs. Times of which the same is to be said are one entry, which says what was so last.
func TestTheLedgerDidNotSayWhichJobWasNotOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sys := newSystem(t, inMemory, nil, dispatcher.Config{})
		ctx, ss := t.Context(), sys.caller.Schedules()
		a := must[*rawAgent](t)(sys.greetRaw(ctx, wire.Hello{Version: wire.Version, Instance: "i", Journal: "j", Features: []string{harp.NeedBatch}}))
		alive(a)
		asked := a.exchanges(t)
		s := harp.Schedule{Name: "s", Cron: "* * * * *", Request: requestOf("web01", "work", nil, harp.OfflineWait(harp.NoLimit))}
		ok(t, ss.Put(ctx, s))
		m := <-asked
		m.sendFrame(t, wire.TypeAccepted, false, wire.Accepted{Started: &wire.Started{Time: 1}})
		synctest.Wait()
		fired := allOf(t, ss.Ledger(ctx, harp.LedgerFilter{Schedule: "s"}))[0].Batch
		job := sys.caller.Batch(fired).Job("web01").ID()
		want := func(count int, state harp.State) {
			t.Helper()
			synctest.Wait()
			e := allOf(t, ss.Ledger(ctx, harp.LedgerFilter{Schedule: "s", Outcomes: []harp.TimeOutcome{harp.TimeSkipped}}))
			if len(e) != 1 || e[0].Reason != harp.TimeOverlap || e[0].Count != count || e[0].Detail != fired+", job "+job+" on web01 is "+string(state) {
				t.Errorf("it says %+v", e)
			}
		}
		time.Sleep(2 * time.Minute)
		want(2, harp.StateRunning)
		a.tr.Close(nil)
		time.Sleep(4 * time.Minute)
		want(6, harp.StateUnknown)
		page := must[harp.EventPage](t)(sys.caller.EventsPage(ctx, harp.EventFilter{After: harp.EventsFromStart, Types: []string{"schedule.skipped"}}, false))
		if n := len(page.Events); n != 6 || !strings.Contains(page.Events[n-1].Reason, job+" on web01 is unknown") {
			t.Errorf("told is %+v", page.Events)
		}
	})
}
