package dispatcher

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/harpcaller/harp"
)

// TestAPreviewOfAWindowDidNotFetchItsCalendar: it is fetched and read as it would be put, and nothing is stored.
func TestAPreviewOfAWindowDidNotFetchItsCalendar(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now := time.Now().UTC()
		server := &calendarServer{content: eventCalendar(now, time.Hour)}
		d := opened(t, nil, Config{Calendars: server, Hosts: StaticHosts{{Name: "a"}}, TimeZone: "Europe/Madrid"})
		m, ctx := d.Caller().Maintenance(), t.Context()
		want := []harp.Span{{From: now, To: now.Add(time.Hour), Note: "x"}}
		got, err := m.Preview(ctx, calendarWindow(), now, now.Add(48*time.Hour))
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("its spans are %v, %v; want %v", got, err, want)
		}
		daily := harp.Window{Name: "daily", Target: "a", Cron: "0 6 * * *", For: time.Hour}
		got, err = m.Preview(ctx, daily, now, now.Add(48*time.Hour))
		if err != nil || len(got) != 2 || got[0].From.Hour() != 5 { // in the zone of the dispatcher
			t.Errorf("one without a zone is %v, %v", got, err)
		}
		if all, err := allWindows(d); len(all) != 0 || err != nil {
			t.Errorf("there are %v, %v", all, err)
		}
		if told := eventsOf(t, d, "window.*"); len(told) != 0 || isHeldNow(t, d) {
			t.Errorf("it was told %q", told)
		}
		if asked, _ := server.counts(); asked != 1 {
			t.Errorf("the calendar was fetched %d times", asked)
		}

		server.set(nil, errors.New("down"))
		momentary, always := daily, daily
		momentary.Target = "host.online=true"
		always.Cron, always.For = "* * * * * *", time.Hour
		for field, w := range map[string]harp.Window{"calendar.url": calendarWindow(), "target": momentary, "for": always} {
			var wrong *harp.FieldError
			_, err := m.Preview(ctx, w, now, now.Add(time.Hour))
			if !errors.As(err, &wrong) || wrong.Field != field {
				t.Errorf("%s: %v", field, err)
			}
			if put := m.Put(ctx, w); put == nil || put.Error() != err.Error() {
				t.Errorf("%s: put says %v", field, put)
			}
		}
		apply := []harp.Document{{Window: &daily}}
		if _, err := d.Caller().Schedules().Apply(ctx, "ops", apply, harp.ApplyOptions{}); err != nil {
			t.Fatal(err)
		}
		if _, err := m.Preview(ctx, daily, now, now.Add(time.Hour)); !errors.Is(err, harp.ErrConflict) {
			t.Errorf("of one that is managed: %v", err)
		}
	})
}

// allWindows are the names of the windows there are.
func allWindows(d *Dispatcher) (names []string, err error) {
	for w, err := range d.Caller().Maintenance().List(d.ctx) {
		if err != nil {
			return nil, err
		}
		names = append(names, w.Name)
	}
	return names, nil
}
