package schedule_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
	_ "time/tzdata"

	"github.com/harpcaller/harp/schedule"
)

func mustParse(t testing.TB, text, zone string, rules schedule.Rules) *schedule.Spec {
	t.Helper()
	s, err := schedule.Parse(text, zone, rules)
	if err != nil {
		t.Fatalf("%s in %s: %v", text, zone, err)
	}
	return s
}

func at(t testing.TB, text string) time.Time {
	t.Helper()
	parsed, err := time.Parse(time.RFC3339, text)
	if err != nil {
		t.Fatal(err)
	}
	return parsed
}

// fires returns what a schedule does in a day of its zone: times as its clock shows them.
func fires(t *testing.T, s *schedule.Spec, day string) (walls []string) {
	t.Helper()
	loc, err := time.LoadLocation(s.Zone())
	if err != nil {
		t.Fatal(err)
	}
	middle := at(t, day+"T12:00:00Z")
	for m := range s.Between(middle.AddDate(0, 0, -2), middle.AddDate(0, 0, 2)) {
		if m.Nominal.In(loc).Format(time.DateOnly) != day {
			continue
		}
		if !m.Time.Equal(m.Nominal) {
			t.Errorf("%s: nominal %v and no jitter, but at %v", s, m.Nominal, m.Time)
		}
		walls = append(walls, m.Nominal.In(loc).Format("15:04:05 MST"))
	}
	return walls
}

// series returns times of a clock from one to another, both included, one each step.
func series(from, to string, step time.Duration, name string) (walls []string) {
	begin, _ := time.Parse(time.TimeOnly, from)
	end, _ := time.Parse(time.TimeOnly, to)
	for t := begin; !t.After(end); t = t.Add(step) {
		walls = append(walls, t.Format(time.TimeOnly)+" "+name)
	}
	return walls
}

func join(lists ...[]string) []string { return slices.Concat(lists...) }

// TestClockChanges goes through the days on which clocks change, as the package's comment says.
func TestClockChanges(t *testing.T) {
	const madrid, gap, repeat = "Europe/Madrid", "2027-03-28", "2027-10-31"
	quarter := 15 * time.Minute
	for _, c := range []struct {
		text, zone, day string
		rules           schedule.Rules
		want            []string
	}{
		{"30 2 * * *", madrid, gap, schedule.Rules{}, []string{"03:00:00 CEST"}},
		{"30 2 * * *", madrid, repeat, schedule.Rules{}, []string{"02:30:00 CEST"}},
		{"0,30 2 * * *", madrid, gap, schedule.Rules{}, []string{"03:00:00 CEST"}},
		{"0,30 2 * * *", madrid, repeat, schedule.Rules{}, []string{"02:00:00 CEST", "02:30:00 CEST"}},
		{"0 3 * * *", madrid, gap, schedule.Rules{}, []string{"03:00:00 CEST"}},
		{"0 3 * * *", madrid, repeat, schedule.Rules{}, []string{"03:00:00 CET"}},
		{"15 2,3 * * *", madrid, gap, schedule.Rules{}, []string{"03:00:00 CEST", "03:15:00 CEST"}},
		{"15 2,3 * * *", madrid, repeat, schedule.Rules{}, []string{"02:15:00 CEST", "03:15:00 CET"}},
		{
			"*/15 * * * *", madrid, gap,
			schedule.Rules{},
			join(series("00:00:00", "01:45:00", quarter, "CET"), series("03:00:00", "23:45:00", quarter, "CEST")),
		},
		{
			"*/15 * * * *", madrid, repeat,
			schedule.Rules{},
			join(series("00:00:00", "02:45:00", quarter, "CEST"), series("02:00:00", "23:45:00", quarter, "CET")),
		},
		{
			"30 * * * *", madrid, gap,
			schedule.Rules{},
			join(series("00:30:00", "01:30:00", time.Hour, "CET"), series("03:30:00", "23:30:00", time.Hour, "CEST")),
		},
		{
			"30 * * * *", madrid, repeat,
			schedule.Rules{},
			join(series("00:30:00", "02:30:00", time.Hour, "CEST"), series("02:30:00", "23:30:00", time.Hour, "CET")),
		},
		{
			"30 */2 * * *", madrid, gap,
			schedule.Rules{},
			join(series("00:30:00", "00:30:00", time.Hour, "CET"), series("04:30:00", "22:30:00", 2*time.Hour, "CEST")),
		},
		{
			"30 */2 * * *", madrid, repeat,
			schedule.Rules{},
			join(series("00:30:00", "02:30:00", 2*time.Hour, "CEST"), series("02:30:00", "22:30:00", 2*time.Hour, "CET")),
		},
		{"*/15 2 * * *", madrid, gap, schedule.Rules{}, []string{"03:00:00 CEST"}},
		{
			"*/15 2 * * *", madrid, repeat,
			schedule.Rules{},
			join(series("02:00:00", "02:45:00", quarter, "CEST"), series("02:00:00", "02:45:00", quarter, "CET")),
		},
		{"@daily", "Africa/Cairo", "2027-04-30", schedule.Rules{}, []string{"01:00:00 EEST"}},
		{"@daily", "Africa/Cairo", "2027-10-29", schedule.Rules{}, []string{"00:00:00 EET"}},
		{
			"30 23 * * *", "Africa/Cairo", "2027-10-28",
			schedule.Rules{Repeat: schedule.RepeatBoth},
			[]string{"23:30:00 EEST", "23:30:00 EET"},
		},
		{"15 2 * * *", "Australia/Lord_Howe", "2027-10-03", schedule.Rules{}, []string{"02:30:00 +11"}},
		{"45 1 * * *", "Australia/Lord_Howe", "2027-04-04", schedule.Rules{}, []string{"01:45:00 +11"}},
		{"0 12 30 12 *", "Pacific/Apia", "2011-12-31", schedule.Rules{}, []string{"00:00:00 +14"}},
		// A rule that is set holds whatever the expression.
		{"30 2 * * *", madrid, gap, schedule.Rules{Gap: schedule.GapSkip}, nil},
		{"30 2 * * *", madrid, repeat, schedule.Rules{Repeat: schedule.RepeatLast}, []string{"02:30:00 CET"}},
		{"30 2 * * *", madrid, repeat, schedule.Rules{Repeat: schedule.RepeatBoth}, []string{"02:30:00 CEST", "02:30:00 CET"}},
		{
			"30 * * * *", madrid, gap,
			schedule.Rules{Gap: schedule.GapAfter},
			join(series("00:30:00", "01:30:00", time.Hour, "CET"), []string{"03:00:00 CEST"}, series("03:30:00", "23:30:00", time.Hour, "CEST")),
		},
		{
			"30 * * * *", madrid, repeat,
			schedule.Rules{Repeat: schedule.RepeatFirst},
			join(series("00:30:00", "02:30:00", time.Hour, "CEST"), series("03:30:00", "23:30:00", time.Hour, "CET")),
		},
		{
			"30 * * * *", madrid, repeat,
			schedule.Rules{Repeat: schedule.RepeatLast},
			join(series("00:30:00", "01:30:00", time.Hour, "CEST"), series("02:30:00", "23:30:00", time.Hour, "CET")),
		},
		{"*/15 2 * * *", madrid, gap, schedule.Rules{Gap: schedule.GapSkip}, nil},
		{
			"*/15 2 * * *", madrid, repeat,
			schedule.Rules{Repeat: schedule.RepeatLast},
			series("02:00:00", "02:45:00", quarter, "CET"),
		},
		// Seconds that begin with * are minutes and seconds alike.
		{"*/30 0 2 * * *", madrid, gap, schedule.Rules{}, []string{"03:00:00 CEST"}},
		{
			"*/30 0 2 * * *", madrid, repeat,
			schedule.Rules{},
			join(series("02:00:00", "02:00:30", 30*time.Second, "CEST"), series("02:00:00", "02:00:30", 30*time.Second, "CET")),
		},
		{"at 2027-03-28 02:30", madrid, gap, schedule.Rules{}, []string{"03:00:00 CEST"}},
		{"at 2027-10-31 02:30:15", madrid, repeat, schedule.Rules{}, []string{"02:30:15 CEST"}},
		{"at 2027-10-31T02:30", madrid, repeat, schedule.Rules{Repeat: schedule.RepeatLast}, []string{"02:30:00 CET"}},
		// Other zones: a missing midnight, half an hour, a name that changes and an offset that does not.
		{"0 0 * * *", "America/Asuncion", "2023-10-01", schedule.Rules{}, []string{"01:00:00 -03"}},
		{"30 0 * * *", "Asia/Beirut", "2027-03-28", schedule.Rules{}, []string{"01:00:00 EEST"}},
		{"30 2 * * *", "America/New_York", "2027-03-14", schedule.Rules{}, []string{"03:00:00 EDT"}},
		{"30 1 * * *", "America/New_York", "2027-11-07", schedule.Rules{}, []string{"01:30:00 EDT"}},
		{"30 0 * * *", "America/Havana", "2027-11-07", schedule.Rules{}, []string{"00:30:00 CDT"}},
		{"0 0 * * *", "Asia/Kolkata", "2027-03-28", schedule.Rules{}, []string{"00:00:00 IST"}},
		{"30 2 * * *", "Africa/Casablanca", "2027-02-07", schedule.Rules{}, []string{"02:30:00 +01"}},
		{"0 12 * * *", "UTC", "2028-12-31", schedule.Rules{}, []string{"12:00:00 UTC"}},
		{"0 12 * * *", madrid, "2060-12-31", schedule.Rules{}, []string{"12:00:00 CET"}},
	} {
		t.Run(fmt.Sprintf("%s %s %s %s%s", c.text, c.zone, c.day, c.rules.Gap, c.rules.Repeat), func(t *testing.T) {
			if got := fires(t, mustParse(t, c.text, c.zone, c.rules), c.day); !slices.Equal(got, c.want) {
				t.Errorf("got  %q\nwant %q", got, c.want)
			}
		})
	}
}

// TestNotes: a moment says what a change of the clock did to it.
func TestNotes(t *testing.T) {
	for _, c := range []struct{ text, zone, after, wall, note string }{
		{"30 2 * * *", "Europe/Madrid", "2027-03-27T12:00:00Z", "Sun 2027-03-28 03:00 CEST", "moved: 02:30 does not exist, runs at the end of the gap"},
		{"0,30 2 * * *", "Europe/Madrid", "2027-03-27T12:00:00Z", "Sun 2027-03-28 03:00 CEST", "moved: 02:00 and 02:30 do not exist, runs at the end of the gap"},
		{"*/5 2 * * *", "Europe/Madrid", "2027-03-27T12:00:00Z", "Sun 2027-03-28 03:00 CEST", "moved: 02:00, 02:05, 02:10 and more do not exist, runs at the end of the gap"},
		{"0 0 2,3 * * *", "Europe/Madrid", "2027-03-27T12:00:00Z", "Sun 2027-03-28 03:00 CEST", "moved: 02:00 does not exist, runs at the end of the gap"},
		{"0 12 30 12 *", "Pacific/Apia", "2011-12-01T00:00:00Z", "Sat 2011-12-31 00:00 +14", "moved: 2011-12-30 12:00 does not exist, runs at the end of the gap"},
		{"30 2 * * *", "Europe/Madrid", "2027-10-30T12:00:00Z", "Sun 2027-10-31 02:30 CEST", "02:30 comes twice, runs the first time"},
		{"30 * * * *", "Europe/Madrid", "2027-10-31T00:00:00Z", "Sun 2027-10-31 02:30 CEST", "the first 02:30 of two"},
		{"30 * * * *", "Europe/Madrid", "2027-10-31T00:30:00Z", "Sun 2027-10-31 02:30 CET", "the second 02:30 of two"},
		{"30 * * * *", "Europe/Madrid", "2027-10-31T01:30:00Z", "Sun 2027-10-31 03:30 CET", ""},
		{"15 30 2 * * *", "Europe/Madrid", "2027-05-01T00:00:00Z", "Sat 2027-05-01 02:30:15 CEST", ""},
	} {
		m, ok := mustParse(t, c.text, c.zone, schedule.Rules{}).Next(at(t, c.after))
		if !ok || m.Wall != c.wall || m.Note != c.note {
			t.Errorf("%s after %s: got %q, %q, want %q, %q", c.text, c.after, m.Wall, m.Note, c.wall, c.note)
		}
	}
}

// TestExpressions: each form of an expression, with the first times after a moment.
func TestExpressions(t *testing.T) {
	const after = "2026-11-25T13:47:44Z" // a Wednesday
	for _, c := range []struct {
		text string
		want []string
	}{
		{"* * * * *", []string{"2026-11-25T13:48:00Z", "2026-11-25T13:49:00Z"}},
		{"  30   2 *	* * ", []string{"2026-11-26T02:30:00Z", "2026-11-27T02:30:00Z"}},
		{"*/10 30 2 * * *", []string{"2026-11-26T02:30:00Z", "2026-11-26T02:30:10Z"}},
		{"* * * * * *", []string{"2026-11-25T13:47:45Z", "2026-11-25T13:47:46Z"}},
		{"0 0 1 1 * 2028", []string{"2028-01-01T00:00:00Z"}},
		{"0 0 1 1 * 2027-2028", []string{"2027-01-01T00:00:00Z", "2028-01-01T00:00:00Z"}},
		{"0 0 1 1 * 2030,2028", []string{"2028-01-01T00:00:00Z", "2030-01-01T00:00:00Z"}},
		{"30 0 0 1 1 * 2028", []string{"2028-01-01T00:00:30Z"}},
		{"30 0 0 1 1 * *", []string{"2027-01-01T00:00:30Z", "2028-01-01T00:00:30Z"}},
		{"0 9 1 * mon", []string{"2026-11-30T09:00:00Z", "2026-12-01T09:00:00Z", "2026-12-07T09:00:00Z"}},
		{"0 9 */2 * MON", []string{"2026-12-07T09:00:00Z", "2026-12-21T09:00:00Z", "2027-01-11T09:00:00Z"}},
		{"0 9 1 * */2", []string{"2026-12-01T09:00:00Z", "2027-04-01T09:00:00Z"}},
		{"0 9 1-7 * *", []string{"2026-12-01T09:00:00Z"}},
		{"0 9 ? * FRI", []string{"2026-11-27T09:00:00Z"}},
		{"0 9 * * FRI-SUN", []string{"2026-11-27T09:00:00Z", "2026-11-28T09:00:00Z", "2026-11-29T09:00:00Z", "2026-12-04T09:00:00Z"}},
		{"0 9 * * 5-7", []string{"2026-11-27T09:00:00Z", "2026-11-28T09:00:00Z", "2026-11-29T09:00:00Z", "2026-12-04T09:00:00Z"}},
		{"0 9 * * 7", []string{"2026-11-29T09:00:00Z"}},
		{"0 9 * Jan,Mar-Apr *", []string{"2027-01-01T09:00:00Z"}},
		{"0 9 L * *", []string{"2026-11-30T09:00:00Z", "2026-12-31T09:00:00Z", "2027-01-31T09:00:00Z", "2027-02-28T09:00:00Z"}},
		{"0 9 15W * *", []string{"2026-12-15T09:00:00Z", "2027-01-15T09:00:00Z", "2027-02-15T09:00:00Z"}},
		{"0 9 1W * *", []string{"2026-12-01T09:00:00Z", "2027-01-01T09:00:00Z", "2027-02-01T09:00:00Z", "2027-03-01T09:00:00Z", "2027-04-01T09:00:00Z", "2027-05-03T09:00:00Z"}},
		{"0 9 * * FRI#2", []string{"2026-12-11T09:00:00Z", "2027-01-08T09:00:00Z"}},
		{"0 9 * * 7#1", []string{"2026-12-06T09:00:00Z"}},
		{"0 9 * * FRIL", []string{"2026-11-27T09:00:00Z", "2026-12-25T09:00:00Z"}},
		{"0 9 * * 7L", []string{"2026-11-29T09:00:00Z"}},
		{"5/20 9 * * *", []string{"2026-11-26T09:05:00Z", "2026-11-26T09:25:00Z", "2026-11-26T09:45:00Z"}},
		{"10-30/10 9 * * *", []string{"2026-11-26T09:10:00Z", "2026-11-26T09:20:00Z", "2026-11-26T09:30:00Z", "2026-11-27T09:10:00Z"}},
		{"007 09 * * *", []string{"2026-11-26T09:07:00Z"}},
		{"@yearly", []string{"2027-01-01T00:00:00Z"}},
		{"@annually", []string{"2027-01-01T00:00:00Z"}},
		{"@monthly", []string{"2026-12-01T00:00:00Z"}},
		{"@weekly", []string{"2026-11-29T00:00:00Z"}},
		{"@daily", []string{"2026-11-26T00:00:00Z"}},
		{"@midnight", []string{"2026-11-26T00:00:00Z"}},
		{"@hourly", []string{"2026-11-25T14:00:00Z"}},
		{"every 90m", []string{"2026-11-25T15:00:00Z", "2026-11-25T16:30:00Z"}},
		{"every 1s", []string{"2026-11-25T13:47:45Z"}},
		{"every 1d", []string{"2026-11-26T00:00:00Z"}},
		{"at 2027-03-01 02:00", []string{"2027-03-01T02:00:00Z"}},
		{"0 0 29 2 *", []string{"2028-02-29T00:00:00Z", "2032-02-29T00:00:00Z"}},
		{"0 0 29 2 */7", []string{"2032-02-29T00:00:00Z", "2060-02-29T00:00:00Z"}},
	} {
		s := mustParse(t, c.text, "", schedule.Rules{})
		from := at(t, after)
		for _, want := range c.want {
			m, ok := s.Next(from)
			if !ok || !m.Nominal.Equal(at(t, want)) {
				t.Errorf("%s after %v: got %v, %t, want %s", c.text, from, m.Nominal, ok, want)
				break
			}
			if back, ok := s.Prev(m.Nominal.Add(1)); !ok || !back.Nominal.Equal(m.Nominal) {
				t.Errorf("%s: the last one before %v is %v, %t", c.text, m.Nominal.Add(1), back.Nominal, ok)
			}
			from = m.Nominal
		}
	}
}

// TestBadInput: what is wrong is refused with its field, and for an expression with its part.
func TestBadInput(t *testing.T) {
	day := time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		text, zone string
		rules      schedule.Rules
		field      string
		part       string
	}{
		{"", "", schedule.Rules{}, "cron", ""},
		{"   ", "", schedule.Rules{}, "cron", ""},
		{"* * * *", "", schedule.Rules{}, "cron", ""},
		{"* * * * * * * *", "", schedule.Rules{}, "cron", ""},
		{strings.Repeat("1,", 600) + "1 * * * *", "", schedule.Rules{}, "cron", ""},
		{"TZ=Europe/Madrid 30 2 * * *", "", schedule.Rules{}, "cron", ""},
		{"CRON_TZ=Europe/Madrid 30 2 * * *", "", schedule.Rules{}, "cron", ""},
		{"TZ=", "", schedule.Rules{}, "cron", ""},
		{"@reboot", "", schedule.Rules{}, "cron", ""},
		{"@5minutes", "", schedule.Rules{}, "cron", ""},
		{"@every 5m", "", schedule.Rules{}, "cron", ""},
		{"60 * * * *", "", schedule.Rules{}, "cron", "minute"},
		{"*/0 * * * *", "", schedule.Rules{}, "cron", "minute"},
		{"1,,2 * * * *", "", schedule.Rules{}, "cron", "minute"},
		{"*,5 * * * *", "", schedule.Rules{}, "cron", "minute"},
		{"70/5 * * * *", "", schedule.Rules{}, "cron", "minute"},
		{"0-59,99 * * * *", "", schedule.Rules{}, "cron", "minute"},
		{"+5 * * * *", "", schedule.Rules{}, "cron", "minute"},
		{"5~10 * * * *", "", schedule.Rules{}, "cron", "minute"},
		{"60 * * * * *", "", schedule.Rules{}, "cron", "second"},
		{"0 24 * * *", "", schedule.Rules{}, "cron", "hour"},
		{"0 22-4 * * *", "", schedule.Rules{}, "cron", "hour"},
		{"0 1-2-3 * * *", "", schedule.Rules{}, "cron", "hour"},
		{"0 1/2/3 * * *", "", schedule.Rules{}, "cron", "hour"},
		{"0 0 0 * *", "", schedule.Rules{}, "cron", "day of month"},
		{"0 0 32W * *", "", schedule.Rules{}, "cron", "day of month"},
		{"0 0 15WX * *", "", schedule.Rules{}, "cron", "day of month"},
		{"0 0 LW * *", "", schedule.Rules{}, "cron", "day of month"},
		{"0 0 * 13 *", "", schedule.Rules{}, "cron", "month"},
		{"0 0 * MON *", "", schedule.Rules{}, "cron", "month"},
		{"0 0 * * JAN", "", schedule.Rules{}, "cron", "day of week"},
		{"0 0 * * 8", "", schedule.Rules{}, "cron", "day of week"},
		{"0 0 * * 8L", "", schedule.Rules{}, "cron", "day of week"},
		{"0 0 * * L", "", schedule.Rules{}, "cron", "day of week"},
		{"0 0 * * 1#6", "", schedule.Rules{}, "cron", "day of week"},
		{"0 0 * * 1L2", "", schedule.Rules{}, "cron", "day of week"},
		{"0 0 * * SUNDAY", "", schedule.Rules{}, "cron", "day of week"},
		{"0 0 1 1 * 1969", "", schedule.Rules{}, "cron", "year"},
		{"0 0 0 1 1 * 27", "", schedule.Rules{}, "cron", "year"},
		{"every", "", schedule.Rules{}, "cron", ""},
		{"every 999ms", "", schedule.Rules{}, "cron", ""},
		{"every -5m", "", schedule.Rules{}, "cron", ""},
		{"every now and then", "", schedule.Rules{}, "cron", ""},
		{"every 5m", "", schedule.Rules{Gap: schedule.GapSkip}, "gap", ""},
		{"every 5m", "", schedule.Rules{Repeat: schedule.RepeatLast}, "repeat", ""},
		{"at", "", schedule.Rules{}, "cron", ""},
		{"at 2027-02-30 02:00", "", schedule.Rules{}, "cron", ""},
		{"at 2027-03-01 02:00 CET", "", schedule.Rules{}, "cron", ""},
		{"at noon", "", schedule.Rules{}, "cron", ""},
		{"@daily", "Europe/Nowhere", schedule.Rules{}, "tz", ""},
		{"@daily", "Local", schedule.Rules{}, "tz", ""},
		{"@daily", "../../etc/passwd", schedule.Rules{}, "tz", ""},
		{"@daily", "CEST+1", schedule.Rules{}, "tz", ""},
		{"@daily", strings.Repeat("Z", 1<<20), schedule.Rules{}, "tz", ""},
		{"@daily", "", schedule.Rules{Jitter: -1}, "jitter", ""},
		{"@daily", "", schedule.Rules{From: day, Until: day}, "until", ""},
		{"@daily", "", schedule.Rules{From: day, Until: day.Add(-time.Hour)}, "until", ""},
		{"@daily", "", schedule.Rules{Gap: "before"}, "gap", ""},
		{"@daily", "", schedule.Rules{Repeat: "never"}, "repeat", ""},
	} {
		_, err := schedule.Parse(c.text, c.zone, c.rules)
		var wrong *schedule.FieldError
		switch {
		case !errors.As(err, &wrong):
			t.Errorf("%.40q in %.40q: got %v, want an error of %s", c.text, c.zone, err, c.field)
		case wrong.Field != c.field || wrong.Part != c.part:
			t.Errorf("%.40q in %.40q: got an error of %s (%s), want %s (%s): %v", c.text, c.zone, wrong.Field, wrong.Part, c.field, c.part, err)
		case len(err.Error()) > 300:
			t.Errorf("%.40q in %.40q: an error of %d bytes", c.text, c.zone, len(err.Error()))
		}
	}
}

// TestCheck: what is well written and has no future is refused before it is stored.
func TestCheck(t *testing.T) {
	now := at(t, "2026-11-25T13:47:44Z")
	in := func(d time.Duration) time.Time { return now.Add(d) }
	for _, c := range []struct {
		text  string
		rules schedule.Rules
		field string // that is wrong, empty: none
	}{
		{"30 2 * * *", schedule.Rules{}, ""},
		{"0 0 29 2 *", schedule.Rules{}, ""},
		{"0 0 31 2 *", schedule.Rules{}, "cron"},
		{"0 0 31 4,6,9,11 *", schedule.Rules{}, "cron"},
		{"0 0 1 1 * 2025", schedule.Rules{}, "cron"},
		{"0 0 1 1 * 2034", schedule.Rules{}, ""},
		{"0 0 1 1 * 2035", schedule.Rules{}, "cron"},
		{"at 2026-11-25 14:47", schedule.Rules{}, "cron"},
		{"at 2026-11-25 14:47:44", schedule.Rules{}, ""},
		{"at 2027-03-28 02:30", schedule.Rules{}, ""},
		{"at 2027-03-28 02:30", schedule.Rules{Gap: schedule.GapSkip}, "cron"},
		{"@daily", schedule.Rules{Until: in(-time.Hour)}, "until"},
		{"@daily", schedule.Rules{Until: in(time.Hour)}, "until"},
		{"@daily", schedule.Rules{From: in(50 * 365 * 24 * time.Hour)}, ""},
		{"@hourly", schedule.Rules{Jitter: time.Hour}, "jitter"},
		{"@hourly", schedule.Rules{Jitter: time.Hour - 1}, ""},
		{"0,50 * * * *", schedule.Rules{Jitter: 10 * time.Minute}, "jitter"},
		{"every 5m", schedule.Rules{Jitter: 5 * time.Minute}, "jitter"},
		{"at 2027-03-01 02:00", schedule.Rules{Jitter: 24 * time.Hour}, ""},
		// An hour is shorter on the day on which a time is moved towards the next one.
		{"30 2,3 * * *", schedule.Rules{Jitter: 59 * time.Minute, From: at(t, "2027-03-01T00:00:00Z")}, "jitter"},
	} {
		err := mustParse(t, c.text, "Europe/Madrid", c.rules).Check(now)
		var wrong *schedule.FieldError
		switch {
		case c.field == "" && err == nil:
		case !errors.As(err, &wrong) || wrong.Field != c.field:
			t.Errorf("%s, %+v: got %v, want an error of %q", c.text, c.rules, err, c.field)
		}
	}
}

// TestBounds: From and Until bound nominal times, from one on and before the other.
func TestBounds(t *testing.T) {
	from, until := at(t, "2027-01-01T02:00:00Z"), at(t, "2027-01-03T02:00:00Z")
	s := mustParse(t, "0 2 * * *", "", schedule.Rules{From: from, Until: until})
	var got []string
	for m := range s.Between(time.Time{}, at(t, "2100-01-01T00:00:00Z")) {
		got = append(got, m.Nominal.Format(time.RFC3339))
	}
	if want := []string{"2027-01-01T02:00:00Z", "2027-01-02T02:00:00Z"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if m, ok := s.Next(from); !ok || !m.Nominal.Equal(from.AddDate(0, 0, 1)) {
		t.Errorf("after the first: got %v, %t", m.Nominal, ok)
	}
	if m, ok := s.Prev(at(t, "2030-01-01T00:00:00Z")); !ok || !m.Nominal.Equal(from.AddDate(0, 0, 1)) {
		t.Errorf("the last: got %v, %t", m.Nominal, ok)
	}
	if m, ok := s.Prev(from); ok {
		t.Errorf("before the first: got %v", m.Nominal)
	}
	every := mustParse(t, "every 90m", "", schedule.Rules{From: from})
	if m, ok := every.Next(time.Time{}); !ok || !m.Nominal.Equal(from) {
		t.Errorf("every: got %v, %t, want its beginning", m.Nominal, ok)
	}
	if m, ok := every.Next(from.Add(time.Hour)); !ok || !m.Nominal.Equal(from.Add(90*time.Minute)) {
		t.Errorf("every: got %v, %t, want 90 minutes from its beginning", m.Nominal, ok)
	}
}

// TestBetween: half-open, and it may be left.
func TestBetween(t *testing.T) {
	s := mustParse(t, "0 * * * *", "", schedule.Rules{})
	from := at(t, "2027-01-01T02:00:00Z")
	var got []int
	for m := range s.Between(from, from.Add(2*time.Hour)) {
		got = append(got, m.Nominal.Hour())
	}
	if !slices.Equal(got, []int{2, 3}) {
		t.Errorf("got hours %v", got)
	}
	for m := range s.Between(from, from.Add(1000*time.Hour)) {
		if !m.Nominal.Equal(from) {
			t.Errorf("got %v first", m.Nominal)
		}
		break
	}
	for m := range s.Between(from, from) {
		t.Errorf("got %v of nothing", m.Nominal)
	}
}

// TestJitter: the same in every process and version, a part of Jitter, and not the same for all.
func TestJitter(t *testing.T) {
	s := mustParse(t, "@hourly", "", schedule.Rules{Name: "nightly", Jitter: 10 * time.Minute})
	from := at(t, "2027-01-01T00:00:00Z")
	var got []time.Duration
	for m := range s.Between(from, from.Add(4*time.Hour)) {
		got = append(got, m.Time.Sub(m.Nominal))
	}
	if want := "[5m40.205s 5m22.903s 8m2.873s 9m18.459s]"; fmt.Sprint(got) != want {
		t.Errorf("got %v, want %s", got, want)
	}
	other := mustParse(t, "@hourly", "", schedule.Rules{Name: "other", Jitter: 10 * time.Minute})
	var sum time.Duration
	same, n := 0, 0
	for m := range s.Between(from, from.Add(1000*time.Hour)) {
		delay := m.Time.Sub(m.Nominal)
		if delay < 0 || delay >= 10*time.Minute {
			t.Fatalf("%v is late by %v", m.Nominal, delay)
		}
		o, _ := other.Next(m.Nominal.Add(-1))
		if o.Time.Equal(m.Time) {
			same++
		}
		sum += delay
		n++
	}
	if mean := sum / time.Duration(n); same > 2 || mean < 4*time.Minute || mean > 6*time.Minute {
		t.Errorf("of %d moments %d are the same for two schedules, and they are late by %v in the mean", n, same, mean)
	}
}
