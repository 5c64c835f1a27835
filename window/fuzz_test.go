package window_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/harpcaller/harp/window"
)

// FuzzCalendar: whatever a file says, it is refused with a typed error, or has spans that are none the less spans, in
// their order.
func FuzzCalendar(f *testing.F) {
	files, err := filepath.Glob("testdata/*.ics")
	if err != nil || len(files) == 0 {
		f.Fatal(files, err)
	}
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(text), int64(1_800_000_000))
	}
	for _, lines := range []string{
		"DTSTART:20270105T100000Z\nDURATION:P1DT2H3M4S\nRRULE:FREQ=MONTHLY;BYDAY=-1FR,2MO;BYSETPOS=1,-1;UNTIL=20301231",
		"DTSTART:16040101\nRRULE:FREQ=YEARLY;BYWEEKNO=1,-1;WKST=SU;BYDAY=SU,MO;COUNT=500",
		"DTSTART;TZID=\"(UTC+01:00) Brussels, Copenhagen, Madrid, Paris\":20270328T023000\nDURATION:PT1H\nRRULE:FREQ=DAILY;BYHOUR=1,2;BYMINUTE=0,30\nEXDATE;VALUE=DATE:20270329",
		"UID:1\nRECURRENCE-ID:20270105T100000Z\nDTSTART:99991231T235959Z\nDTEND:99991231T235959Z",
		"DTSTART:20270105T100000\nRDATE;VALUE=PERIOD:20270105T100000/PT1H,20270106T100000/20270107T100000",
		"DTSTART:00010101T000000Z\nDURATION:P36000D\nRRULE:FREQ=YEARLY;INTERVAL=100",
	} {
		f.Add(calendarOf(lines), int64(1_800_000_000))
	}
	f.Fuzz(func(t *testing.T, text string, unix int64) {
		calendar, err := read(text, window.CalendarOptions{Zone: zone(t, "Europe/Madrid")})
		if err != nil {
			var wrong *window.CalendarError
			if !errors.As(err, &wrong) || wrong.Message == "" || len(err.Error()) > 600 {
				t.Fatalf("%v", err)
			}
			return
		}
		from := time.Unix(unix%(1<<36), 0)
		to := from.AddDate(0, 2, 0)
		var last time.Time
		for s := range calendar.Between(from, to) {
			if !s.To.After(s.From) || !s.From.Before(to) || !s.To.After(from) || s.From.Before(last) {
				t.Fatalf("%v in %v to %v, behind one from %v", s, from, to, last)
			}
			last = s.From
		}
	})
}
