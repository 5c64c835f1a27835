package window_test

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/harpcaller/harp/schedule"
	"github.com/harpcaller/harp/window"
)

func ExampleRecurring() {
	saturdays, err := schedule.Parse("0 22 * * SAT", "Europe/Madrid", schedule.Rules{})
	if err != nil {
		fmt.Println(err)
		return
	}
	patching := window.Recurring{Spec: saturdays, For: 8 * time.Hour}
	from := time.Date(2027, 3, 27, 0, 0, 0, 0, time.UTC)
	for span := range patching.Between(from, from.AddDate(0, 0, 14)) {
		fmt.Println(span.From, "to", span.To)
	}
	// Output:
	// 2027-03-27 21:00:00 +0000 UTC to 2027-03-28 05:00:00 +0000 UTC
	// 2027-04-03 20:00:00 +0000 UTC to 2027-04-04 04:00:00 +0000 UTC
}

func ExampleReadCalendar() {
	const file = `BEGIN:VCALENDAR
BEGIN:VEVENT
SUMMARY:Change freeze
DTSTART;TZID=Romance Standard Time:20270326T180000
DTEND;TZID=Romance Standard Time:20270329T060000
RRULE:FREQ=WEEKLY;COUNT=2
EXDATE;VALUE=DATE:20270402
END:VEVENT
BEGIN:VEVENT
SUMMARY:San José
DTSTART;VALUE=DATE:20270319
END:VEVENT
END:VCALENDAR
`
	madrid, err := schedule.LoadZone("Europe/Madrid")
	if err != nil {
		fmt.Println(err)
		return
	}
	calendar, err := window.ReadCalendar(strings.NewReader(file), window.CalendarOptions{Zone: madrid})
	if err != nil {
		fmt.Println(err)
		return
	}
	from := time.Date(2027, 3, 1, 0, 0, 0, 0, madrid)
	for span := range calendar.Between(from, from.AddDate(0, 2, 0)) {
		fmt.Println(span.From.In(madrid), "to", span.To.In(madrid), span.Note)
	}
	// Output:
	// 2027-03-19 00:00:00 +0100 CET to 2027-03-20 00:00:00 +0100 CET San José
	// 2027-03-26 18:00:00 +0100 CET to 2027-03-29 06:00:00 +0200 CEST Change freeze
}

func ExampleCalendarError() {
	for _, file := range []string{
		"<html>Sign in</html>",
		"BEGIN:VCALENDAR\nBEGIN:VEVENT\nDTSTART:20270101T000000Z\nEND:VEVENT\n",
		"BEGIN:VCALENDAR\nBEGIN:VEVENT\nDTSTART:20270101T000000Z\nRRULE:FREQ=HOURLY\nEND:VEVENT\nEND:VCALENDAR\n",
	} {
		_, err := window.ReadCalendar(strings.NewReader(file), window.CalendarOptions{})
		var wrong *window.CalendarError
		fmt.Println(errors.As(err, &wrong), err)
	}
	// Output:
	// true window: calendar: line 1: is no iCalendar file: BEGIN:VCALENDAR was expected here
	// true window: calendar: line 4: is cut off: END:VCALENDAR is missing
	// true window: calendar: line 4: RRULE: FREQ is "HOURLY", and must be DAILY, WEEKLY, MONTHLY or YEARLY
}
