package harp_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/harpcaller/harp"
)

// What would start on the hosts of a window waits, and says for what.
func ExampleMaintenance() {
	caller, stop := fleet()
	defer stop()
	ctx := context.Background()
	maintenance := caller.Maintenance()
	must(maintenance.Put(ctx, harp.Window{Name: "rack", Target: "web*", Reason: "moving the rack", From: time.Now()}))

	job, err := greet.Call(ctx, caller.Host("web01"), greetArgs{"Ada"})
	must(err)
	obstacles, err := job.Why(ctx)
	must(err)
	for _, o := range obstacles {
		fmt.Println(o.Reason, o.Window, o.Why)
	}

	must(maintenance.End(ctx, "rack"))
	got, err := greet.Get(ctx, job)
	must(err)
	fmt.Println(got.Text)
	// Output:
	// window rack moving the rack
	// hello Ada
}

// A window that refuses keeps nothing waiting: calls fail.
func ExampleMaintenance_Why() {
	caller, stop := fleet()
	defer stop()
	ctx := context.Background()
	maintenance := caller.Maintenance()
	must(maintenance.Put(ctx, harp.Window{Name: "freeze", Target: "*", Mode: harp.WindowRefuse, Exempt: []string{"disk.*"}, From: time.Now()}))
	for _, procedure := range []string{"greet", "disk.check"} {
		verdict, err := maintenance.Why(ctx, "web01", procedure, time.Time{})
		must(err)
		fmt.Printf("%s %v %q\n", procedure, verdict.May, verdict.Mode)
	}
	_, err := greet.Call(ctx, caller.Host("web01"), greetArgs{"Ada"})
	fmt.Println(errors.Is(err, harp.ErrRefused), harp.FailureOf(err).Type)
	// Output:
	// greet false "refuse"
	// disk.check true ""
	// true window
}

// A window may come again and again. Where clocks are set forward at its beginning, it begins at the end of the gap.
func ExampleMaintenance_Spans() {
	caller, stop := fleet()
	defer stop()
	ctx := context.Background()
	maintenance := caller.Maintenance()
	must(maintenance.Put(ctx, harp.Window{Name: "patching", Target: "role=db", Cron: "30 2 * * SUN", For: 2 * time.Hour, TZ: "Europe/Madrid"}))

	from := time.Date(2027, 3, 27, 0, 0, 0, 0, time.UTC)
	spans, err := maintenance.Spans(ctx, "patching", from, from.AddDate(0, 0, 9))
	must(err)
	for _, s := range spans {
		fmt.Println(s.From.Format(time.RFC3339), s.To.Sub(s.From), s.Note)
	}
	// Output:
	// 2027-03-28T01:00:00Z 2h0m0s moved: 02:30 does not exist, runs at the end of the gap
	// 2027-04-04T00:30:00Z 2h0m0s
}

// The events of a calendar are a window: here schedules keep its holidays.
func ExampleMaintenance_Put() {
	caller, stop := fleet()
	defer stop()
	ctx := context.Background()
	const calendar = `BEGIN:VCALENDAR
BEGIN:VEVENT
DTSTART;VALUE=DATE:20270501
RRULE:FREQ=YEARLY
SUMMARY:Holiday: May Day
END:VEVENT
END:VCALENDAR
`
	maintenance := caller.Maintenance()
	holidays := harp.Window{
		Name: "holidays", Target: "*", Mode: harp.WindowRefuse, SchedulesOnly: true, TZ: "Europe/Madrid",
		Calendar: &harp.WindowCalendar{Content: []byte(calendar), Event: "Holiday:*"},
	}
	must(maintenance.Put(ctx, holidays))

	from := time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC)
	spans, err := maintenance.Spans(ctx, "holidays", from, from.AddDate(2, 0, 0))
	must(err)
	for _, s := range spans {
		fmt.Println(s.From.Format(time.RFC3339), s.To.Sub(s.From), s.Note)
	}

	holidays.Calendar.Content = []byte(calendar[:strings.Index(calendar, "RRULE")]) // half a download
	fmt.Println(maintenance.Put(ctx, holidays))
	// Output:
	// 2027-04-30T22:00:00Z 24h0m0s Holiday: May Day
	// 2028-04-30T22:00:00Z 24h0m0s Holiday: May Day
	// invalid calendar: line 3: is cut off: END:VCALENDAR is missing
}

// Nothing starts on a host that is paused. A batch can leave it out.
func ExampleHosts_Pause() {
	caller, stop := fleet()
	defer stop()
	ctx := context.Background()
	_, err := caller.Hosts().Pause(ctx, "web*", "new disk", time.Now().Add(time.Hour))
	must(err)
	host, err := caller.Hosts().Get(ctx, "web01")
	must(err)
	fmt.Println("paused:", host.Pause.Reason)

	target := caller.Target("web*", harp.WhenHeld(harp.SkipHost))
	seen, err := target.Preview(ctx, "greet", greetArgs{"Ada"})
	must(err)
	fmt.Println("held:", seen.Held)
	batch, err := target.Call(ctx, "greet", greetArgs{"Ada"})
	must(err)
	for r, err := range batch.Results(ctx) {
		must(err)
		fmt.Println(r.Host, "skipped:", r.Skipped)
	}

	n, err := caller.Hosts().Unpause(ctx, "web*")
	must(err)
	fmt.Println(n)
	// Output:
	// paused: new disk
	// held: 1
	// web01 skipped: true
	// 1
}
