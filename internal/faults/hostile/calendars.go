//go:build linux

package hostile

import (
	"bytes"
	"fmt"
	"strings"
	"time"
)

// calendar is a file with an event that has more lines.
func calendar(lines ...string) []byte {
	return []byte("BEGIN:VCALENDAR\r\nVERSION:2.0\r\nBEGIN:VEVENT\r\nUID:x\r\nDTSTART:20200101T000000Z\r\nDURATION:PT1H\r\n" +
		strings.Join(lines, "\r\n") + "\r\nEND:VEVENT\r\nEND:VCALENDAR\r\n")
}

// tellCalendars puts files that take long to read, or to say when they are.
func tellCalendars(t *teller) error {
	const size = 700 << 10
	var dates []string
	for len(dates)*17 < size {
		dates = append(dates, fmt.Sprintf("%04d%02d%02dT%02d%02d00Z", 2000+len(dates)%100, 1+len(dates)%12, 1+len(dates)%28, len(dates)%24, len(dates)%60))
	}
	files := [][]byte{
		calendar("RRULE:FREQ=SECONDLY"),
		calendar("RRULE:FREQ=SECONDLY;BYMONTH=2;BYMONTHDAY=30"),
		calendar("RRULE:FREQ=MINUTELY;BYMONTH=2;BYMONTHDAY=30;BYHOUR=3"),
		calendar("RRULE:FREQ=YEARLY;BYMONTH=2;BYMONTHDAY=30"),
		calendar("RRULE:FREQ=YEARLY;BYWEEKNO=53;BYYEARDAY=1,-1;BYDAY=MO"),
		calendar("RRULE:FREQ=DAILY;INTERVAL=9999999;COUNT=9999999"),
		calendar("RRULE:FREQ=DAILY;INTERVAL=0"),
		calendar("RRULE:FREQ=DAILY;COUNT=99999999999999999999"),
		calendar("RRULE:FREQ=YEARLY;BYDAY=" + strings.Repeat("1MO,", 10000) + "2TU"),
		calendar("RDATE:" + strings.Join(dates, ",")),
		calendar("RRULE:FREQ=DAILY\r\nEXDATE:" + strings.Join(dates, ",")),
		calendar(strings.Repeat("X-A:"+strings.Repeat("y", 60)+"\r\n", size/70)),
		calendar(strings.Repeat("BEGIN:VALARM\r\n", size/20)),
		calendar("SUMMARY:" + strings.Repeat("\\n\\,", size/5)),
		calendar("SUMMARY:x\r\n " + strings.Repeat("y\r\n ", size/5)),
		[]byte("BEGIN:VCALENDAR\r\n" + strings.Repeat("BEGIN:VEVENT\r\nDTSTART:20200101T000000Z\r\nRRULE:FREQ=DAILY\r\nEND:VEVENT\r\n", size/70) + "END:VCALENDAR\r\n"),
		[]byte("BEGIN:VCALENDAR\r\n" + strings.Repeat("BEGIN:VTIMEZONE\r\nTZID:x\r\nEND:VTIMEZONE\r\n", size/45) + "END:VCALENDAR\r\n"),
		bytes.Repeat([]byte{'\n'}, size), bytes.Repeat([]byte("BEGIN:VCALENDAR\n"), size/16), bytes.Repeat([]byte{0xff}, size), []byte(strings.Repeat("x", 768<<10)),
	}
	return t.asking(t.many(2, 8), func(p *asker) error {
		for i, content := range files {
			name := lieName()
			event := ""
			if i%2 == 0 {
				event = strings.Repeat("*a", 30)
			}
			if _, err := p.ask(typePutWindow, aWindow(name, "from", 0, "to", 0, "cal", object{"content", content, "event", event})); err != nil {
				return fmt.Errorf("calendar %d: %w", i, err)
			}
			now := time.Now()
			for range 3 {
				if _, err := p.ask(typeWindowSpans, object{"name", name, "from", now.UnixNano(), "to", now.AddDate(2, 0, 0).UnixNano()}); err != nil {
					return err
				}
			}
			if _, err := p.ask(typeWindows, object{"limit", 100}); err != nil {
				return err
			}
			if _, err := p.ask(typeWindows, object{"name", name}); err != nil {
				return err
			}
			if _, err := p.ask(typeDeleteWindow, object{"id", newID(), "name", name}); err != nil {
				return err
			}
		}
		return nil
	})
}
