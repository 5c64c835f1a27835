package window_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/harpcaller/harp/schedule"
	"github.com/harpcaller/harp/window"
)

func at(t testing.TB, text string) time.Time {
	t.Helper()
	parsed, err := time.Parse(time.RFC3339, text)
	if err != nil {
		t.Fatal(err)
	}
	return parsed
}

func recurring(t testing.TB, text, in string, length time.Duration) window.Recurring {
	t.Helper()
	spec, err := schedule.Parse(text, in, schedule.Rules{})
	if err != nil {
		t.Fatal(err)
	}
	return window.Recurring{Spec: spec, For: length}
}

// TestCovers: a span has its beginning and not its end.
func TestCovers(t *testing.T) {
	from, to := at(t, "2027-01-01T00:00:00Z"), at(t, "2027-01-02T00:00:00Z")
	for _, c := range []struct {
		to   time.Time
		at   time.Time
		want bool
	}{
		{to, from.Add(-1), false},
		{to, from, true},
		{to, to.Add(-1), true},
		{to, to, false},
		{time.Time{}, from.Add(-1), false},
		{time.Time{}, to.AddDate(100, 0, 0), true},
	} {
		if got := (window.Span{From: from, To: c.to}).Covers(c.at); got != c.want {
			t.Errorf("to %v covers %v: %t", c.to, c.at, got)
		}
	}
}

func TestOnce(t *testing.T) {
	from, to := at(t, "2027-01-01T00:00:00Z"), at(t, "2027-01-02T00:00:00Z")
	for _, c := range []struct {
		to          time.Time
		begin, end  time.Time
		isTold      bool
		description string
	}{
		{to, from.AddDate(0, 0, -1), from, false, "ends as it begins"},
		{to, from.AddDate(0, 0, -1), from.Add(1), true, "ends behind its beginning"},
		{to, to.Add(-1), to.AddDate(0, 0, 1), true, "begins before its end"},
		{to, to, to.AddDate(0, 0, 1), false, "begins at its end"},
		{to, from, from, false, "is no time at all"},
		{time.Time{}, to.AddDate(50, 0, 0), to.AddDate(51, 0, 0), true, "is long after, without an end"},
	} {
		told := slices.Collect(window.Once{From: from, To: c.to}.Between(c.begin, c.end))
		if (len(told) == 1) != c.isTold {
			t.Errorf("what is asked for %s: got %v", c.description, told)
		}
	}
}

// TestRecurring: spans begin as the schedule fires, and last for their time whatever the clock does.
func TestRecurring(t *testing.T) {
	for _, c := range []struct {
		text, zone string
		length     time.Duration
		from, to   string
		want       []string
	}{
		{"0 22 * * SAT", "Europe/Madrid", 8 * time.Hour, "2027-03-27T00:00:00Z", "2027-03-29T00:00:00Z", []string{"2027-03-27T21:00Z +8h0m0s"}},
		{"30 2 * * *", "Europe/Madrid", time.Hour, "2027-03-27T12:00:00Z", "2027-03-29T12:00:00Z", []string{
			"2027-03-28T01:00Z +1h0m0s moved: 02:30 does not exist, runs at the end of the gap", "2027-03-29T00:30Z +1h0m0s",
		}},
		{"30 2 * * *", "Europe/Madrid", time.Hour, "2027-10-31T00:00:00Z", "2027-10-31T12:00:00Z", []string{"2027-10-31T00:30Z +1h0m0s 02:30 comes twice, runs the first time"}},
		// Those that began before, and overlap.
		{"0 * * * *", "", 150 * time.Minute, "2027-01-01T10:30:00Z", "2027-01-01T10:31:00Z", []string{
			"2027-01-01T09:00Z +2h30m0s", "2027-01-01T10:00Z +2h30m0s",
		}},
		{"0 * * * *", "", 150 * time.Minute, "2027-01-01T10:29:00Z", "2027-01-01T10:30:00Z", []string{
			"2027-01-01T08:00Z +2h30m0s", "2027-01-01T09:00Z +2h30m0s", "2027-01-01T10:00Z +2h30m0s",
		}},
		{"at 2027-01-01 02:00", "", time.Hour, "2027-01-01T03:00:00Z", "2028-01-01T10:30:00Z", nil},
		{"at 2027-01-01 02:00", "", time.Hour, "2027-01-01T02:59:00Z", "2027-01-01T02:59:00Z", nil},
		{"at 2027-01-01 02:00", "", 0, "2026-01-01T02:59:00Z", "2028-01-01T02:59:00Z", nil},
	} {
		got := tell(recurring(t, c.text, c.zone, c.length).Between(at(t, c.from), at(t, c.to)))
		if !slices.Equal(got, c.want) {
			t.Errorf("%s for %v from %s: got %q, want %q", c.text, c.length, c.from, got, c.want)
		}
	}
}

func TestCheck(t *testing.T) {
	now := at(t, "2027-01-01T00:00:00Z")
	for _, c := range []struct {
		name   string
		source interface{ Check(now time.Time) error }
		field  string // that is wrong; empty: none
	}{
		{"now for an hour", window.Once{From: now, To: now.Add(time.Hour)}, ""},
		{"begun before", window.Once{From: now.Add(-time.Hour), To: now.Add(1)}, ""},
		{"open end", window.Once{From: now.Add(-time.Hour)}, ""},
		{"no beginning", window.Once{To: now.Add(time.Hour)}, "from"},
		{"past", window.Once{From: now.Add(-time.Hour), To: now}, "to"},
		{"ends before it begins", window.Once{From: now.Add(time.Hour), To: now.Add(time.Minute)}, "to"},
		{"each night", recurring(t, "0 2 * * *", "", time.Hour), ""},
		{"always", recurring(t, "0 * * * *", "", 100*time.Hour), ""},
		{"more than always", recurring(t, "0 * * * *", "", 100*time.Hour+1), "for"},
		{"no time", recurring(t, "0 2 * * *", "", 999*time.Millisecond), "for"},
		{"once", recurring(t, "at 2027-03-01 02:00", "", 9000*time.Hour), ""},
		{"never", recurring(t, "0 0 31 2 *", "", time.Hour), "cron"},
	} {
		err := c.source.Check(now)
		var wrong *window.FieldError
		var when *schedule.FieldError
		switch {
		case c.field == "" && err == nil:
		case errors.As(err, &wrong) && wrong.Field == c.field:
		case errors.As(err, &when) && when.Field == c.field:
		default:
			t.Errorf("%s: got %v, want an error of %q", c.name, err, c.field)
		}
	}
}
