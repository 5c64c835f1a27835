package schedule_test

import (
	"errors"
	"testing"
	"time"

	"github.com/harpcaller/harp/schedule"
)

// FuzzParse: whatever is written, it is refused with its field, or has moments in their order that Prev finds again.
func FuzzParse(f *testing.F) {
	for _, text := range []string{
		"30 2 * * *", "*/10 30 2 * * *", "0 0 1 1 * 2028", "30 0 0 1 1 * 2028-2030/2", "0 9 L,15W JAN MON#1,FRIL",
		"@daily", "every 90m", "at 2027-03-28 02:30", "0 0 31 2 *", "5/20 10-30/5 ? * 7", "TZ=UTC * * * * *",
	} {
		f.Add(text, "Europe/Madrid", int64(1_800_000_000), uint8(0))
	}
	f.Add("*/15 2 * * *", "Australia/Lord_Howe", int64(1_806_000_000), uint8(7))
	f.Fuzz(func(t *testing.T, text, zone string, unix int64, rule uint8) {
		rules := schedule.Rules{Gap: gapRules[rule%3], Repeat: repeatRules[rule/3%4]}
		s, err := schedule.Parse(text, zone, rules)
		if err != nil {
			var wrong *schedule.FieldError
			if !errors.As(err, &wrong) || wrong.Field == "" {
				t.Fatalf("%q: %v", text, err)
			}
			return
		}
		after := time.Unix(unix%(1<<33), 0)
		for range 5 {
			m, ok := s.Next(after)
			if !ok {
				return
			}
			if !m.Nominal.After(after) || !m.Time.Equal(m.Nominal) || m.Wall == "" {
				t.Fatalf("%q in %q after %v: %+v", text, zone, after, m)
			}
			if last, ok := s.Prev(m.Nominal.Add(1)); !ok || !last.Nominal.Equal(m.Nominal) {
				t.Fatalf("%q in %q: %v is before %v, %t", text, zone, last.Nominal, m.Nominal.Add(1), ok)
			}
			after = m.Nominal
		}
	})
}

// BenchmarkNext is of the expressions of the package's comment and of docs; the last of them are the worst.
func BenchmarkNext(b *testing.B) {
	after := time.Date(2027, 3, 27, 12, 0, 0, 0, time.UTC)
	for _, text := range []string{
		"30 2 * * *", "0,30 2 * * *", "0 3 * * *", "15 2,3 * * *", "*/15 * * * *", "30 * * * *", "30 */2 * * *", "*/15 2 * * *",
		"@daily", "@hourly", "@weekly", "@monthly", "@yearly", "*/10 30 2 * * *", "0 9 L * MON#1", "0 9 1 * MON", "every 90m",
		"at 2027-03-28 02:30", "0 0 29 2 *", "59 59 23 31 12 * 2099", "0 0 29 2 */7", "0 0 31 2 *",
	} {
		b.Run(text, func(b *testing.B) {
			s := mustParse(b, text, "Europe/Madrid", schedule.Rules{})
			b.ReportAllocs()
			for b.Loop() {
				s.Next(after)
			}
		})
	}
}
