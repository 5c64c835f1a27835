package schedule_test

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/harpcaller/harp/schedule"
)

func Example() {
	s, err := schedule.Parse("30 2 * * *", "Europe/Madrid", schedule.Rules{})
	if err != nil {
		fmt.Println(err)
		return
	}
	from := time.Date(2027, 3, 27, 0, 0, 0, 0, time.UTC)
	for m := range s.Between(from, from.AddDate(0, 0, 3)) {
		fmt.Println(strings.TrimSpace(m.Wall + " " + m.Note))
	}
	// Output:
	// Sat 2027-03-27 02:30 CET
	// Sun 2027-03-28 03:00 CEST moved: 02:30 does not exist, runs at the end of the gap
	// Mon 2027-03-29 02:30 CEST
}

func ExampleParse() {
	for _, text := range []string{"0 22-4 * * *", "@reboot", "TZ=UTC 0 3 * * *", "every 10ms"} {
		_, err := schedule.Parse(text, "", schedule.Rules{})
		var wrong *schedule.FieldError
		fmt.Println(errors.As(err, &wrong), err)
	}
	// Output:
	// true schedule: invalid cron: hour: 22-4: a range cannot end before it begins
	// true schedule: invalid cron: @reboot: a schedule knows times, and nothing of when a host starts
	// true schedule: invalid cron: TZ=UTC: the zone does not belong in the expression; give it as tz
	// true schedule: invalid cron: every 10ms: must be one second or more
}

func ExampleSpec_Next() {
	rules := schedule.Rules{Repeat: schedule.RepeatLast}
	s, err := schedule.Parse("30 2 * * SUN", "Europe/Madrid", rules)
	if err != nil {
		fmt.Println(err)
		return
	}
	m, _ := s.Next(time.Date(2027, 10, 31, 0, 0, 0, 0, time.UTC))
	fmt.Println(m.Nominal)
	fmt.Println(m.Wall, m.Note)
	// Output:
	// 2027-10-31 01:30:00 +0000 UTC
	// Sun 2027-10-31 02:30 CET the second 02:30 of two
}

func ExampleSpec_Check() {
	now := time.Date(2026, 11, 25, 0, 0, 0, 0, time.UTC)
	for _, text := range []string{"0 0 31 2 *", "at 2026-11-24 18:00", "*/5 * * * *"} {
		s, err := schedule.Parse(text, "Europe/Madrid", schedule.Rules{Name: "nightly", Jitter: 5 * time.Minute})
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(s.Check(now))
	}
	// Output:
	// schedule: invalid cron: "0 0 31 2 *" never fires
	// schedule: invalid cron: "at 2026-11-24 18:00" fires no more: Tue 2026-11-24 18:00 CET was the last time
	// schedule: invalid jitter: 5m0s reaches from Wed 2026-11-25 01:00 CET to the next time, 5m0s later
}

func ExampleFromWall() {
	madrid, err := schedule.LoadZone("Europe/Madrid")
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, wall := range []time.Time{
		time.Date(2027, 3, 28, 2, 30, 0, 0, time.UTC),  // does not exist
		time.Date(2027, 10, 31, 2, 30, 0, 0, time.UTC), // comes twice
	} {
		fmt.Println(schedule.FromWall(wall, madrid).In(madrid))
	}
	// Output:
	// 2027-03-28 03:00:00 +0200 CEST
	// 2027-10-31 02:30:00 +0200 CEST
}

func ExampleReadCrontab() {
	f, err := os.Open("testdata/debian/cron.d/anacron")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer f.Close()
	table, err := schedule.ReadCrontab(f, schedule.SystemCrontab)
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, job := range table.Jobs {
		fmt.Printf("line %d: %s, as %s: %.29s...\n", job.Line, job.Cron, job.User, job.Command)
	}
	// Output:
	// line 6: 30 7-23 * * *, as root: [ -x /etc/init.d/anacron ] &&...
}
