package harp_test

import (
	"context"
	"fmt"
	"time"

	"github.com/harpcaller/harp"
)

// A schedule calls a procedure on the hosts of a target at its times. Where clocks are set forward at
// one of them, Next says what becomes of it.
func ExampleSchedules_Put() {
	caller, stop := fleet()
	defer stop()
	ctx := context.Background()
	req, err := harp.NewBatchRequest("web*", "greet", harp.Args{"name": "Ada"}, harp.Parallel(2))
	must(err)
	must(caller.Schedules().Put(ctx, harp.Schedule{Name: "nightly", Cron: "30 2 * * *", TZ: "Europe/Madrid", Request: req}))

	times, err := caller.Schedules().NextFrom(ctx, "nightly", time.Date(2027, 3, 27, 0, 0, 0, 0, time.UTC), 3)
	must(err)
	for _, t := range times {
		fmt.Printf("%s %q\n", t.Wall, t.Note)
	}
	// Output:
	// Sat 2027-03-27 02:30 CET ""
	// Sun 2027-03-28 03:00 CEST "moved: 02:30 does not exist, runs at the end of the gap"
	// Mon 2027-03-29 02:30 CEST ""
}

// A schedule that can never fire is refused, and says why.
func ExampleSchedules_Put_refused() {
	caller, stop := fleet()
	defer stop()
	req, err := harp.NewBatchRequest("web*", "greet", harp.Args{"name": "Ada"})
	must(err)
	for _, s := range []harp.Schedule{
		{Name: "never", Cron: "0 0 31 2 *", Request: req},
		{Name: "nowhere", Cron: "@daily", TZ: "Europe/Nowhere", Request: req},
		{Name: "blurred", Cron: "every 1h", Jitter: time.Hour, From: time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC), Request: req},
	} {
		fmt.Println(caller.Schedules().Put(context.Background(), s))
	}
	// Output:
	// invalid cron: "0 0 31 2 *" never fires
	// invalid tz: "Europe/Nowhere" is not a time zone such as Europe/Madrid
	// invalid jitter: 1h0m0s reaches from Fri 2100-01-01 00:00 UTC to the next time, 1h0m0s later
}

// A schedule can be run beside its times. Each run is a batch.
func ExampleSchedules_Trigger() {
	caller, stop := fleet()
	defer stop()
	ctx := context.Background()
	req, err := harp.NewBatchRequest("web*", "greet", harp.Args{"name": "Ada"})
	must(err)
	schedules := caller.Schedules()
	must(schedules.Put(ctx, harp.Schedule{Name: "yearly", Cron: "@yearly", Request: req}))
	must(schedules.Pause(ctx, "yearly", "we move", time.Time{}))
	_, err = schedules.Trigger(ctx, "yearly")
	fmt.Println(err)

	batch, err := schedules.Trigger(ctx, "yearly", harp.EvenIfPaused())
	must(err)
	for r, err := range batch.Results(ctx) {
		must(err)
		fmt.Println(r.Host, r.State, r.Value)
	}
	status, err := batch.Status(ctx)
	must(err)
	fmt.Println("a run of", status.Schedule)
	// Output:
	// conflict: the schedule is paused: we move
	// web01 succeeded {"text":"hello Ada"}
	// a run of yearly
}

// The ledger says what became of each time.
func ExampleSchedules_Ledger() {
	caller, stop := fleet()
	defer stop()
	ctx := context.Background()
	req, err := harp.NewBatchRequest("web*", "greet", harp.Args{"name": "Ada"})
	must(err)
	schedules := caller.Schedules()
	must(schedules.Put(ctx, harp.Schedule{Name: "yearly", Cron: "0 0 1 1 *", TZ: "Europe/Madrid", Request: req}))
	must(schedules.Skip(ctx, "yearly", time.Time{}))
	_, err = schedules.Trigger(ctx, "yearly")
	must(err)
	for e, err := range schedules.Ledger(ctx, harp.LedgerFilter{Schedule: "yearly"}) {
		must(err)
		fmt.Println(e.Kind, e.Outcome, e.Reason, e.Batch != "")
	}
	// Output:
	// time skipped by_hand false
	// manual fired  true
}
