package window_test

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
	_ "time/tzdata"

	"github.com/harpcaller/harp/schedule"
	"github.com/harpcaller/harp/window"
)

func zone(t testing.TB, name string) *time.Location {
	t.Helper()
	loc, err := schedule.LoadZone(name)
	if err != nil {
		t.Fatal(err)
	}
	return loc
}

func day(t testing.TB, text string) time.Time {
	t.Helper()
	parsed, err := time.Parse(time.DateOnly, text)
	if err != nil {
		t.Fatal(err)
	}
	return parsed
}

// tell writes spans: 2027-03-03T21:00Z +8h0m0s DB patching.
func tell(spans func(yield func(window.Span) bool)) (all []string) {
	for s := range spans {
		length := "open"
		if !s.To.IsZero() {
			length = "+" + s.To.Sub(s.From).String()
		}
		all = append(all, strings.TrimSpace(s.From.Format("2006-01-02T15:04Z07:00")+" "+length+" "+s.Note))
	}
	return all
}

// TestPrograms reads what calendar programs write, and has the spans that they show.
func TestPrograms(t *testing.T) {
	for _, c := range []struct {
		file, zone, event string
		from, to          string
		want              []string
	}{
		{"google.ics", "Europe/Madrid", "", "2027-03-01", "2027-04-10", []string{
			"2027-03-03T21:00Z +8h0m0s DB patching",
			"2027-03-07T09:00Z +2h0m0s DB patching (by hand)",
			"2027-03-17T21:00Z +8h0m0s DB patching",
			"2027-03-18T23:00Z +24h0m0s San José",
			"2027-03-20T21:00Z +8h0m0s DB patching",
			"2027-03-22T15:00Z +1h0m0s Release",
			"2027-03-24T21:00Z +8h0m0s DB patching",
			"2027-03-27T21:00Z +7h0m0s DB patching", // clocks go forward
			"2027-03-31T20:00Z +8h0m0s DB patching", // UNTIL is in UTC
		}},
		{"google.ics", "America/New_York", "San*", "2027-03-01", "2027-04-10", []string{"2027-03-19T04:00Z +24h0m0s San José"}},
		{"google.ics", "", "DB patching", "2027-03-01", "2027-03-15", []string{"2027-03-03T21:00Z +8h0m0s DB patching"}},
		{"google.ics", "", "*(by hand)", "2027-03-01", "2027-04-10", []string{"2027-03-07T09:00Z +2h0m0s DB patching (by hand)"}},
		{"outlook.ics", "Europe/Madrid", "", "2027-01-01", "2028-01-01", []string{
			"2027-01-05T21:00Z +1h30m0s Patch Tuesday", // DTSTART is one, though the first Tuesday of its month
			"2027-01-12T21:00Z +1h30m0s Patch Tuesday",
			"2027-02-09T21:00Z +1h30m0s Patch Tuesday",
			"2027-03-15T22:00Z +2h0m0s Failover New York",
			"2027-03-28T22:00Z +96h0m0s Quarter end",
			"2027-04-13T20:00Z +1h30m0s Patch Tuesday",
			"2027-05-11T20:00Z +1h30m0s Patch Tuesday",
		}},
		{"thunderbird.ics", "Asia/Kolkata", "", "2027-03-01", "2027-04-10", []string{
			"2027-03-11T07:00Z +2h0m0s Nightly backup",
			"2027-03-12T07:00Z +2h0m0s Nightly backup",
			"2027-03-14T07:00Z +1h0m0s Nightly backup", // 02:00 does not exist: from 03:00 to 04:00
			"2027-03-15T09:00Z +1h0m0s Nightly backup",
			"2027-03-16T06:30Z +1h0m0s Floating",
		}},
		{"korganizer.ics", "Europe/Berlin", "", "2027-10-01", "2027-11-01", []string{
			"2027-10-01T15:15Z +1h0m0s Cable",
			"2027-10-02T15:15Z +30m0s Cable", // half an hour is left out
			"2027-10-04T22:00Z +24h0m0s Inventory",
			"2027-10-08T14:45Z +1h0m0s Cable",
			"2027-10-09T14:00Z +30m0s Cable",
			"2027-10-10T14:00Z +2h0m0s Cable",
			"2027-10-13T22:00Z +24h0m0s Inventory",
		}},
		{"nextcloud.ics", "UTC", "", "2027-04-01", "2027-06-01", []string{
			"2027-04-29T21:30Z +30m0s Across midnight that is not",
			"2027-04-30T20:30Z +1h0m0s Across midnight that is not",
			"2027-05-01T01:00Z +1h0m0s Visit",
			"2027-05-01T20:30Z +1h0m0s Across midnight that is not",
		}},
	} {
		text, err := os.ReadFile(filepath.Join("testdata", c.file))
		if err != nil {
			t.Fatal(err)
		}
		calendar, err := read(string(text), window.CalendarOptions{Zone: zone(t, c.zone), Event: c.event})
		if err != nil {
			t.Errorf("%s: %v", c.file, err)
			continue
		}
		if got := tell(calendar.Between(day(t, c.from), day(t, c.to))); !slices.Equal(got, c.want) {
			t.Errorf("%s %s:\ngot  %s\nwant %s", c.file, c.event, strings.Join(got, "\n     "), strings.Join(c.want, "\n     "))
		}
	}
}

// calendarOf writes a calendar of events that have a UID and the lines that are given.
func calendarOf(events ...string) string {
	var b strings.Builder
	b.WriteString("BEGIN:VCALENDAR\nVERSION:2.0\n")
	for _, lines := range events {
		b.WriteString("BEGIN:VEVENT\n" + lines + "\nEND:VEVENT\n")
	}
	b.WriteString("END:VCALENDAR\n")
	return b.String()
}

func read(text string, o window.CalendarOptions) (*window.Calendar, error) {
	return window.ReadCalendar(strings.NewReader(text), o)
}

// TestEvents: what events may have beside what programs write most.
func TestEvents(t *testing.T) {
	madrid := zone(t, "Europe/Madrid")
	for _, c := range []struct {
		name, text string
		options    window.CalendarOptions
		want       []string // in January 2027
	}{
		{"byte order mark, no line end at the end", "\uFEFF" + strings.TrimSpace(calendarOf("DTSTART:20270105T100000Z\nDTEND:20270105T110000Z")), window.CalendarOptions{}, []string{"2027-01-05T10:00Z +1h0m0s"}},
		{"small letters", "begin:vcalendar\nbegin:vevent\ndtstart;tzid=UTC:20270105T100000\nduration:pt1h\nend:vevent\nend:vcalendar\n", window.CalendarOptions{}, []string{"2027-01-05T10:00Z +1h0m0s"}},
		{"two calendars in a file", calendarOf("DTSTART:20270105T100000Z\nDURATION:P1D") + "\n" + calendarOf("DTSTART:20270106T100000Z\nDURATION:P1W"), window.CalendarOptions{}, []string{"2027-01-05T10:00Z +24h0m0s", "2027-01-06T10:00Z +168h0m0s"}},
		{"no end, no length", calendarOf("DTSTART:20270105T100000Z"), window.CalendarOptions{}, nil},
		{"a day that says nothing more", calendarOf("DTSTART;VALUE=DATE:20270105"), window.CalendarOptions{Zone: madrid}, []string{"2027-01-04T23:00Z +24h0m0s"}},
		{"a day that ends when it begins", calendarOf("DTSTART;VALUE=DATE:20270105\nDTEND;VALUE=DATE:20270105\nRRULE:FREQ=DAILY;COUNT=2"), window.CalendarOptions{Zone: madrid}, []string{"2027-01-04T23:00Z +24h0m0s", "2027-01-05T23:00Z +24h0m0s"}},
		{"a date without VALUE", calendarOf("DTSTART:20270105\nDTEND:20270107"), window.CalendarOptions{}, []string{"2027-01-05T00:00Z +48h0m0s"}},
		{"cancelled", calendarOf("DTSTART:20270105T100000Z\nDURATION:PT1H\nSTATUS:CANCELLED"), window.CalendarOptions{}, nil},
		{"the end in another zone", calendarOf("DTSTART;TZID=Europe/Madrid:20270105T100000\nDTEND;TZID=America/New_York:20270105T060000"), window.CalendarOptions{}, []string{"2027-01-05T09:00Z +2h0m0s"}},
		{"a zone of Evolution", calendarOf("DTSTART;TZID=/freeassociation.sourceforge.net/Tzfile/America/Argentina/Ushuaia:20270105T100000\nDURATION:PT1H"), window.CalendarOptions{}, []string{"2027-01-05T13:00Z +1h0m0s"}},
		{"a zone that the reader knows", calendarOf("DTSTART;TZID=Head office:20270105T100000\nDURATION:PT1H"), window.CalendarOptions{Zones: map[string]string{"Head office": "Asia/Tokyo"}}, []string{"2027-01-05T01:00Z +1h0m0s"}},
		{"a zone that the reader corrects", calendarOf("DTSTART;TZID=Europe/Madrid:20270105T100000\nDURATION:PT1H"), window.CalendarOptions{Zones: map[string]string{"Europe/Madrid": "Atlantic/Canary"}}, []string{"2027-01-05T10:00Z +1h0m0s"}},
		{"an unknown zone of an event that is not meant", calendarOf("SUMMARY:a\nDTSTART;TZID=Nowhere:20270105T100000\nDURATION:PT1H", "SUMMARY:b\nDTSTART:20270106T100000Z\nDURATION:PT1H"), window.CalendarOptions{Event: "b"}, []string{"2027-01-06T10:00Z +1h0m0s b"}},
		{"UNTIL as a date", calendarOf("DTSTART;TZID=America/New_York:20270105T200000\nDURATION:PT1H\nRRULE:FREQ=DAILY;UNTIL=20270106"), window.CalendarOptions{}, []string{"2027-01-06T01:00Z +1h0m0s", "2027-01-07T01:00Z +1h0m0s"}},
		{"UNTIL on the clock of DTSTART", calendarOf("DTSTART;TZID=America/New_York:20270105T200000\nDURATION:PT1H\nRRULE:FREQ=DAILY;UNTIL=20270106T200000"), window.CalendarOptions{Zone: madrid}, []string{"2027-01-06T01:00Z +1h0m0s", "2027-01-07T01:00Z +1h0m0s"}},
		{"UNTIL on the clock of DTSTART, in UTC", calendarOf("DTSTART:20270105T230000Z\nDURATION:PT1H\nRRULE:FREQ=DAILY;UNTIL=20270106T230000"), window.CalendarOptions{Zone: madrid}, []string{"2027-01-05T23:00Z +1h0m0s", "2027-01-06T23:00Z +1h0m0s"}},
		{"UNTIL in UTC of days", calendarOf("DTSTART;VALUE=DATE:20270105\nRRULE:FREQ=DAILY;UNTIL=20270105T230000Z"), window.CalendarOptions{Zone: madrid}, []string{"2027-01-04T23:00Z +24h0m0s", "2027-01-05T23:00Z +24h0m0s"}},
		{"EXDATE of a day", calendarOf("DTSTART:20270105T100000Z\nDURATION:PT1H\nRRULE:FREQ=DAILY;COUNT=3\nEXDATE;VALUE=DATE:20270106"), window.CalendarOptions{}, []string{"2027-01-05T10:00Z +1h0m0s", "2027-01-07T10:00Z +1h0m0s"}},
		{"EXDATE of DTSTART, in another zone", calendarOf("DTSTART:20270105T100000Z\nDURATION:PT1H\nRRULE:FREQ=DAILY;COUNT=3\nEXDATE;TZID=Asia/Tokyo:20270105T190000,20270107T190000"), window.CalendarOptions{}, []string{"2027-01-06T10:00Z +1h0m0s"}},
		{"EXDATE on the clock of DTSTART", calendarOf("DTSTART;TZID=America/New_York:20270105T200000\nDURATION:PT1H\nRRULE:FREQ=DAILY;COUNT=3\nEXDATE:20270106T200000,20270107T020000"), window.CalendarOptions{Zone: madrid}, []string{"2027-01-06T01:00Z +1h0m0s", "2027-01-08T01:00Z +1h0m0s"}},
		{"EXDATE on the clock of DTSTART, in UTC", calendarOf("DTSTART:20270105T230000Z\nDURATION:PT1H\nRRULE:FREQ=DAILY;COUNT=2\nEXDATE:20270106T230000"), window.CalendarOptions{Zone: madrid}, []string{"2027-01-05T23:00Z +1h0m0s"}},
		{"EXDATE at a time of days", calendarOf("DTSTART;VALUE=DATE:20270105\nRRULE:FREQ=DAILY;COUNT=2\nEXDATE:20270106T000000"), window.CalendarOptions{Zone: madrid}, []string{"2027-01-04T23:00Z +24h0m0s"}},
		{"RECURRENCE-ID on the clock of the event", calendarOf(
			"UID:1\nRECURRENCE-ID:20270106T200000\nDTSTART;TZID=Asia/Tokyo:20270109T100000\nDURATION:PT1H",
			"UID:1\nDTSTART;TZID=America/New_York:20270105T200000\nDURATION:PT1H\nRRULE:FREQ=DAILY;COUNT=2",
		), window.CalendarOptions{Zone: madrid}, []string{"2027-01-06T01:00Z +1h0m0s", "2027-01-09T01:00Z +1h0m0s"}},
		{"DTEND on the clock of DTSTART", calendarOf("DTSTART;TZID=America/New_York:20270105T200000\nDTEND:20270105T210000"), window.CalendarOptions{Zone: madrid}, []string{"2027-01-06T01:00Z +1h0m0s"}},
		{"RDATE on the clock of DTSTART", calendarOf("DTSTART;TZID=America/New_York:20270105T200000\nDURATION:PT1H\nRDATE:20270106T200000\nRDATE;VALUE=PERIOD:20270107T200000/20270107T220000,20270108T200000/PT3H"), window.CalendarOptions{Zone: madrid}, []string{"2027-01-06T01:00Z +1h0m0s", "2027-01-07T01:00Z +1h0m0s", "2027-01-08T01:00Z +2h0m0s", "2027-01-09T01:00Z +3h0m0s"}},
		{"EXDATE in UTC of days", calendarOf("DTSTART;VALUE=DATE:20270105\nRRULE:FREQ=DAILY;COUNT=2\nEXDATE:20270104T230000Z"), window.CalendarOptions{Zone: madrid}, []string{"2027-01-05T23:00Z +24h0m0s"}},
		{"RDATE that the rule has too, and one that is left out", calendarOf("DTSTART:20270105T100000Z\nDURATION:PT1H\nRRULE:FREQ=DAILY;COUNT=2\nRDATE:20270106T100000Z,20270109T100000Z,20270108T100000Z\nEXDATE:20270108T100000Z"), window.CalendarOptions{}, []string{"2027-01-05T10:00Z +1h0m0s", "2027-01-06T10:00Z +1h0m0s", "2027-01-09T10:00Z +1h0m0s"}},
		{"RDATE of days", calendarOf("DTSTART;VALUE=DATE:20270105\nRDATE;VALUE=DATE:20270109"), window.CalendarOptions{}, []string{"2027-01-05T00:00Z +24h0m0s", "2027-01-09T00:00Z +24h0m0s"}},
		{"two versions of one occurrence", calendarOf(
			"UID:1\nDTSTART:20270105T100000Z\nDURATION:PT1H\nRRULE:FREQ=DAILY;COUNT=2",
			"UID:1\nRECURRENCE-ID:20270106T100000Z\nSEQUENCE:2\nDTSTART:20270107T100000Z\nDURATION:PT1H",
			"UID:1\nRECURRENCE-ID:20270106T100000Z\nSEQUENCE:1\nDTSTART:20270108T100000Z\nDURATION:PT1H"), window.CalendarOptions{}, []string{"2027-01-05T10:00Z +1h0m0s", "2027-01-07T10:00Z +1h0m0s"}},
		{"an occurrence before its event, of a day", calendarOf(
			"UID:1\nRECURRENCE-ID;VALUE=DATE:20270106\nDTSTART;VALUE=DATE:20270110\nDURATION:P2D",
			"UID:1\nDTSTART;VALUE=DATE:20270105\nRRULE:FREQ=DAILY;COUNT=2"), window.CalendarOptions{}, []string{"2027-01-05T00:00Z +24h0m0s", "2027-01-10T00:00Z +48h0m0s"}},
		{"an occurrence of no event", calendarOf("UID:1\nRECURRENCE-ID:20270106T100000Z\nDTSTART:20270107T100000Z\nDURATION:PT1H"), window.CalendarOptions{}, []string{"2027-01-07T10:00Z +1h0m0s"}},
		{"escaped", calendarOf(`SUMMARY:a\, b\; c\\n` + "\nDTSTART:20270105T100000Z\nDURATION:PT1H"), window.CalendarOptions{Event: `a, b; c\n`}, []string{`2027-01-05T10:00Z +1h0m0s a, b; c\n`}},
		{"parameters in quotes", calendarOf(`DTSTART;X-A="a;b:c,d",e,"f";TZID="Europe/Madrid":20270105T100000` + "\nDURATION:PT1H"), window.CalendarOptions{}, []string{"2027-01-05T09:00Z +1h0m0s"}},
		{"a line that is broken where nobody looks", calendarOf("ATTENDEE;CN=\"Bob:mailto:bob@example.com\nDTSTART:20270105T100000Z\nDURATION:PT1H"), window.CalendarOptions{}, []string{"2027-01-05T10:00Z +1h0m0s"}},
		{"began long ago", calendarOf("DTSTART:16040105T100000Z\nDURATION:PT1H\nRRULE:FREQ=YEARLY"), window.CalendarOptions{}, []string{"2027-01-05T10:00Z +1h0m0s"}},
		{"begun before", calendarOf("DTSTART:20261120T100000Z\nDURATION:P50D"), window.CalendarOptions{}, []string{"2026-11-20T10:00Z +1200h0m0s"}},
		{"no events", calendarOf(), window.CalendarOptions{}, nil},
	} {
		calendar, err := read(c.text, c.options)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		if got := tell(calendar.Between(day(t, "2027-01-01"), day(t, "2027-02-01"))); !slices.Equal(got, c.want) {
			t.Errorf("%s:\ngot  %q\nwant %q", c.name, got, c.want)
		}
	}
}

// TestBadCalendars: what is no calendar, or would be misread, is refused with its line.
func TestBadCalendars(t *testing.T) {
	whole, err := os.ReadFile("testdata/google.ics")
	if err != nil {
		t.Fatal(err)
	}
	const start = "DTSTART:20270105T100000Z\n"
	for _, c := range []struct {
		name, text string
		line       int
		property   string
		message    string
	}{
		{"empty", "", 0, "", "is empty"},
		{"blank", "\r\n \n", 0, "", "is empty"},
		{"HTML", "<!DOCTYPE html>\n<html><body>Sign in</body></html>\n", 1, "", "BEGIN:VCALENDAR was expected"},
		{"JSON", `{"error": "not found"}`, 1, "", "BEGIN:VCALENDAR was expected"},
		{"a card", "BEGIN:VCARD\nEND:VCARD\n", 1, "", "BEGIN:VCALENDAR was expected"},
		{"other properties first", "VERSION:2.0\n", 1, "", "BEGIN:VCALENDAR was expected"},
		{"behind the end", calendarOf() + "VERSION:2.0\n", 4, "", "BEGIN:VCALENDAR was expected"},
		{"cut off behind an event", string(whole[:len(whole)-len("END:VCALENDAR\r\n")]), 89, "", "END:VCALENDAR is missing"},
		{"cut off in a line", string(whole[:len(whole)/2]), 44, "", "END:VCALENDAR is missing"},
		{"cut off before the line end", strings.TrimSuffix(string(whole), "AR\r\n"), 90, "END", "VCALENDAR has not ended"},
		{"ends crosswise", "BEGIN:VCALENDAR\nBEGIN:VEVENT\nEND:VCALENDAR\n", 3, "END", "VEVENT has not ended"},
		{"deep", strings.Repeat("BEGIN:VCALENDAR\n", 50_000), 9, "BEGIN", "more than 8"},
		{"no property", "BEGIN:VCALENDAR\nhello\nEND:VCALENDAR\n", 2, "", "is no line"},
		{"zeros", "BEGIN:VCALENDAR\n\x00\x00\nEND:VCALENDAR\n", 2, "", "is no line"},
		{"long", "BEGIN:VCALENDAR\n" + strings.Repeat("X-A:b\n", 200_000), 0, "", "longer than 1 MiB"},
		{"many events", calendarOf(slices.Repeat([]string{start + "DURATION:PT1H"}, 1001)...), 2 + 4*1001, "END", "more than 1000 events"},
		{"broken parameter", calendarOf(`DTSTART;TZID="Europe/Madrid:20270105T100000`), 4, "DTSTART", "parameter TZID has no end"},
		{"parameter without a value", calendarOf("DTSTART;TZID:20270105T100000"), 4, "DTSTART", "a parameter must be written"},
		{"parameter without a name", calendarOf("DTSTART;=x:20270105T100000"), 4, "DTSTART", "a parameter must be written"},
		{"no value", calendarOf("DTSTART;TZID=UTC"), 4, "DTSTART", "parameter TZID has no end"},
		{"text behind quotes", calendarOf(`DTSTART;TZID="UTC"x:20270105T100000`), 4, "DTSTART", "parameter TZID has no end"},
		{"many parameters", calendarOf("DTSTART" + strings.Repeat(";A=", 300_000) + ":x"), 4, "DTSTART", "is no date"},
		{"no beginning", calendarOf("SUMMARY:x"), 3, "VEVENT", "has no DTSTART"},
		{"two beginnings", calendarOf(start + start), 5, "DTSTART", "twice"},
		{"no time", calendarOf("DTSTART:tomorrow"), 4, "DTSTART", "is no date"},
		{"no day", calendarOf("DTSTART:20270230T100000Z"), 4, "DTSTART", "is no date"},
		{"parts of a second", calendarOf("DTSTART:20270105T100000.5Z"), 4, "DTSTART", "is no date"},
		{"a time that says it is a date", calendarOf("DTSTART;VALUE=DATE:20270105T100000Z"), 4, "DTSTART", "VALUE=DATE"},
		{"unknown zone", calendarOf("DTSTART;TZID=Customized Time Zone:20270105T100000"), 4, "DTSTART", `zone "Customized Time Zone" is unknown`},
		{"a path for a zone", calendarOf("DTSTART;TZID=../../etc/passwd:20270105T100000"), 4, "DTSTART", "is unknown"},
		{"local zone", calendarOf("DTSTART;TZID=Local:20270105T100000"), 4, "DTSTART", "is unknown"},
		{"end before the beginning", calendarOf(start + "DTEND:20270105T090000Z"), 5, "DTEND", "is before DTSTART"},
		{"end of another kind", calendarOf(start + "DTEND:20270106"), 5, "DTEND", "must be a date if"},
		{"end in a hundred years", calendarOf(start + "DTEND:21270106T100000Z"), 5, "DTEND", "100 years"},
		{"end and duration", calendarOf(start + "DURATION:PT1H\nDTEND:20270106T100000Z"), 5, "DURATION", "exclude each other"},
		{"bad duration", calendarOf(start + "DURATION:1h"), 5, "DURATION", "is no duration"},
		{"negative duration", calendarOf(start + "DURATION:-PT1H"), 5, "DURATION", "is no duration"},
		{"duration in the wrong order", calendarOf(start + "DURATION:PT1M1H"), 5, "DURATION", "is no duration"},
		{"endless duration", calendarOf(start + "DURATION:P4294967295W"), 5, "DURATION", "is no duration"},
		{"hourly", calendarOf(start + "DURATION:PT1H\nRRULE:FREQ=HOURLY"), 6, "RRULE", "must be DAILY"},
		{"never true", calendarOf(start + "DURATION:PT1H\nRRULE:FREQ=YEARLY;BYMONTH=2;BYMONTHDAY=31"), 6, "RRULE", "never fits"},
		{"never true, day by day", calendarOf(start + "DURATION:PT1H\nRRULE:FREQ=DAILY;BYMONTH=2;BYMONTHDAY=31"), 6, "RRULE", "never fits"},
		{"two rules", calendarOf(start + "RRULE:FREQ=DAILY\nRRULE:FREQ=DAILY"), 6, "RRULE", "twice"},
		{"bad UNTIL", calendarOf(start + "RRULE:FREQ=DAILY;UNTIL=never"), 5, "RRULE", "is no date"},
		{"longer than its period", calendarOf(start + "DURATION:P101D\nRRULE:FREQ=DAILY"), 6, "RRULE", "more than 100 occurrences"},
		{"EXRULE", calendarOf(start + "EXRULE:FREQ=DAILY"), 5, "EXRULE", "is not supported"},
		{"bad EXDATE", calendarOf(start + "RRULE:FREQ=DAILY\nEXDATE:20270106T100000Z,"), 6, "EXDATE", "is no date"},
		{"bad RDATE", calendarOf(start + "DURATION:PT1H\nRDATE:20270106"), 6, "RDATE", "must have dates if"},
		{"bad period", calendarOf(start + "RDATE;VALUE=PERIOD:20270106T100000Z/20270105T100000Z"), 5, "RDATE", "is no period"},
		{"all later occurrences", calendarOf("UID:1\n" + start + "RECURRENCE-ID;RANGE=THISANDFUTURE:20270105T100000Z"), 6, "RECURRENCE-ID", "all later occurrences"},
		{"an occurrence that repeats", calendarOf("UID:1\n" + start + "RECURRENCE-ID:20270105T100000Z\nRRULE:FREQ=DAILY"), 7, "RRULE", "cannot repeat"},
		{"broken SUMMARY", calendarOf(start + "SUMMARY;LANGUAGE=\"en:x"), 5, "SUMMARY", "has no end"},
	} {
		calendar, err := read(c.text, window.CalendarOptions{})
		var wrong *window.CalendarError
		switch {
		case !errors.As(err, &wrong):
			t.Errorf("%s: got %v, %v", c.name, calendar, err)
		case wrong.Line != c.line || wrong.Property != c.property || !strings.Contains(wrong.Message, c.message):
			t.Errorf("%s: got line %d, %q: %v, want line %d, %q: %s", c.name, wrong.Line, wrong.Property, err, c.line, c.property, c.message)
		case len(err.Error()) > 400:
			t.Errorf("%s: an error of %d bytes", c.name, len(err.Error()))
		}
	}
}

// TestSelectedIsRefused: an event that is meant is not left out because its SUMMARY cannot be read.
func TestSelectedIsRefused(t *testing.T) {
	_, err := read(calendarOf("DTSTART:20270105T100000Z\nDURATION:PT1H\nSUMMARY;LANGUAGE=\"en:freeze"), window.CalendarOptions{Event: "freeze"})
	var wrong *window.CalendarError
	if !errors.As(err, &wrong) || wrong.Line != 6 {
		t.Errorf("got %v, want an error of line 6", err)
	}
}

func TestBadZones(t *testing.T) {
	for id, name := range map[string]string{"a": "Europe/Nowhere", "b": "", "c": "Local"} {
		_, err := read(calendarOf(), window.CalendarOptions{Zones: map[string]string{id: name}})
		var wrong *window.FieldError
		if !errors.As(err, &wrong) || wrong.Field != "zones" {
			t.Errorf("%q: got %v, want an error of zones", name, err)
		}
	}
}

// endless is a calendar that never comes to an end.
type endless struct{ read int }

func (e *endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = "X-A:b\n"[(e.read+i)%6]
	}
	e.read += len(p)
	return len(p), nil
}

// TestLongCalendar: of a calendar of any length little more than what it may have is read.
func TestLongCalendar(t *testing.T) {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	source := &endless{}
	_, err := window.ReadCalendar(io.LimitReader(source, 100<<20), window.CalendarOptions{})
	runtime.ReadMemStats(&after)
	if err == nil || !strings.Contains(err.Error(), "longer than 1 MiB") {
		t.Errorf("got %v", err)
	}
	if source.read > 2<<20 {
		t.Errorf("%d bytes were read", source.read)
	}
	if allocated := after.TotalAlloc - before.TotalAlloc; allocated > 8<<20 {
		t.Errorf("%d bytes were allocated", allocated)
	}
}

// TestHostileCalendars: no file of 1 MiB takes more than a few times its size of memory, whatever it is made of.
func TestHostileCalendars(t *testing.T) {
	const start = "SUMMARY:a\nDTSTART:20270105T100000Z\nDURATION:PT1H\n"
	fill := func(pattern string) string { return strings.Repeat(pattern, (1<<20-4096)/len(pattern)) }
	sameUID := "BEGIN:VEVENT\nUID:1\n" + start + "RRULE:FREQ=DAILY\nEND:VEVENT\n"
	moved := func() string {
		var b strings.Builder
		b.WriteString("BEGIN:VCALENDAR\n" + strings.Repeat(sameUID, 900))
		for i := 0; b.Len() < 1<<20-200; i++ {
			fmt.Fprintf(&b, "BEGIN:VEVENT\nUID:1\nRECURRENCE-ID:%s\nEND:VEVENT\n", at(t, "2027-01-05T10:00:00Z").Add(time.Duration(i)*time.Hour).Format("20060102T150405Z"))
		}
		return b.String() + "END:VCALENDAR\n"
	}
	name := strings.Repeat("N", 100_000)
	for _, c := range []struct{ name, text string }{
		{"one long line", "BEGIN:VCALENDAR\nX-A:" + fill("x") + "\nEND:VCALENDAR\n"},
		{"folded everywhere", "BEGIN:VCALENDAR\nX-A:" + fill("\n x") + "\nEND:VCALENDAR\n"},
		{"parameters", calendarOf("DTSTART" + fill(";A=b") + ":20270105T100000Z")},
		{"list of a parameter", calendarOf("DTSTART;A=" + fill("b,") + "b:20270105T100000Z")},
		{"quotes", calendarOf("DTSTART;A=" + fill(`"",`) + "b:20270105T100000Z")},
		{"long names of components", "BEGIN:VCALENDAR\nBEGIN:" + name + "\nBEGIN:" + name + "\n" + strings.Repeat("X:\n", 150_000) + "END:" + name + "\nEND:" + name + "\nEND:VCALENDAR\n"},
		{"EXDATE", calendarOf(start + "RRULE:FREQ=DAILY\n" + fill("EXDATE:20270105T100000Z\n"))},
		{"RDATE", calendarOf(start + "RDATE:" + fill("20270105T100000Z,") + "20270105T100000Z")},
		{"zones", "BEGIN:VCALENDAR\n" + fill("BEGIN:VTIMEZONE\nTZID:x\nEND:VTIMEZONE\n") + "END:VCALENDAR\n"},
		{"a path as a zone", calendarOf("DTSTART;TZID=" + fill("/a") + ":20270105T100000")},
		{"a rule of many parts", calendarOf(start + "RRULE:FREQ=DAILY;" + fill("A=1;"))},
		{"a rule of many numbers", calendarOf(start + "RRULE:FREQ=DAILY;BYMONTHDAY=" + fill("1,"))},
		{"occurrences of one event", moved()},
		{"COUNT", calendarOf(slices.Repeat([]string{start + "RRULE:FREQ=DAILY;COUNT=10000;BYHOUR=1,2,3,4,5,6,7,8,9,10"}, 1000)...)},
		{"UIDs", "BEGIN:VCALENDAR\n" + fill("BEGIN:VEVENT\nUID:1\nRECURRENCE-ID:20270105\nEND:VEVENT\n") + "END:VCALENDAR\n"},
	} {
		if len(c.text) > 1<<20 {
			t.Fatalf("%s: %d bytes", c.name, len(c.text))
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		options := window.CalendarOptions{}
		if c.name == "occurrences of one event" {
			options.Event = "a*" // those events of their own are none that are meant, so that there may be more of them
		}
		calendar, err := read(c.text, options)
		if err == nil && calendar.Events() > 0 {
			for range calendar.Between(day(t, "2027-01-01"), day(t, "2027-01-08")) {
				continue
			}
		}
		runtime.ReadMemStats(&after)
		if allocated := after.TotalAlloc - before.TotalAlloc; allocated > 64<<20 {
			t.Errorf("%s: %d MiB were allocated", c.name, allocated>>20)
		}
	}
}

// broken fails in the middle.
type broken struct{ err error }

func (b broken) Read([]byte) (int, error) { return 0, b.err }

func TestBrokenReader(t *testing.T) {
	cause := errors.New("connection reset")
	whole := strings.NewReader(calendarOf())
	if _, err := window.ReadCalendar(io.MultiReader(whole, broken{cause}), window.CalendarOptions{}); !errors.Is(err, cause) {
		t.Errorf("got %v, want what the reader returned", err)
	}
}

// TestChunks: a long time is the sum of its parts, and each span comes once and in order.
func TestChunks(t *testing.T) {
	text := calendarOf("SUMMARY:a\nDTSTART;TZID=Europe/Madrid:20260101T220000\nDURATION:PT8H\nRRULE:FREQ=DAILY",
		"SUMMARY:b\nDTSTART;TZID=America/New_York:20260101T013000\nDURATION:P40D\nRRULE:FREQ=MONTHLY;BYDAY=-1SA")
	calendar, err := read(text, window.CalendarOptions{})
	if err != nil {
		t.Fatal(err)
	}
	from, to := day(t, "2027-01-01"), day(t, "2028-02-01")
	var long []window.Span
	for s := range calendar.Between(from, to) {
		if n := len(long); n > 0 && s.From.Before(long[n-1].From) {
			t.Fatalf("%v comes after %v", s, long[n-1])
		}
		long = append(long, s)
	}
	var short []window.Span
	for at := from; at.Before(to); at = at.AddDate(0, 0, 1) {
		for s := range calendar.Between(at, at.AddDate(0, 0, 1)) {
			if !slices.Contains(short, s) {
				short = append(short, s)
			}
		}
	}
	slices.SortStableFunc(short, func(a, b window.Span) int { return a.From.Compare(b.From) })
	if !slices.Equal(long, short) {
		t.Errorf("%d spans at once, %d day by day", len(long), len(short))
	}
	if n := len(tell(calendar.Between(from, from.AddDate(50, 0, 0)))); n < 730 || n > 770 {
		t.Errorf("%d spans in fifty years, want those of two", n)
	}
	for range calendar.Between(from, to) {
		break
	}
}

// busy is a calendar of as many events as there may be.
func busy() string {
	var events []string
	for i := range 1000 {
		events = append(events, fmt.Sprintf("UID:%d\nSUMMARY:event %d\nDTSTART;TZID=Europe/Madrid:2005%02d%02dT%02d%02d00\nDURATION:PT2H\nRRULE:FREQ=DAILY", i, i, 1+i%12, 1+i%28, i%24, i%60))
	}
	return calendarOf(events...)
}

func BenchmarkReadCalendar(b *testing.B) {
	text := busy()
	for b.Loop() {
		if _, err := read(text, window.CalendarOptions{}); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkDayAhead asks 1,000 events that repeat daily since 2005 for one day.
func BenchmarkDayAhead(b *testing.B) {
	calendar, err := read(busy(), window.CalendarOptions{})
	if err != nil {
		b.Fatal(err)
	}
	from := day(b, "2027-03-27")
	for b.Loop() {
		n := 0
		for range calendar.Between(from, from.AddDate(0, 0, 1)) {
			n++
		}
		if n < 1000 {
			b.Fatal(n)
		}
	}
}
