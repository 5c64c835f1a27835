package schedule_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/adhocore/gronx"

	"github.com/harpcaller/harp/schedule"
)

// TestLongLists: what a list costs does not grow with how long it is. Lists of 1 KiB took seconds each time that they were asked for a day.
func TestLongLists(t *testing.T) {
	after := time.Date(2026, 11, 28, 0, 0, 0, 0, time.UTC)
	list := func(item string) string { return strings.Repeat(item+",", 900/(len(item)+1)) + item }
	for _, text := range []string{
		"0 0 " + list("30") + " 2 *", "0 0 " + list("30W") + " 2 *", "0 0 */31 " + list("2") + " *", "0 0 */29 2 " + list("0#5"), "0 0 */31 2 " + list("1L"),
		"0 0 0 */29 2 * " + list("2096"), "0 0 0 29 2 * " + list("9996/4"), "0 0 */31 2 *",
	} {
		s := mustParse(t, text, "America/New_York", schedule.Rules{})
		for ask, do := range map[string]func(){
			"Next": func() { s.Next(after) }, "Prev": func() { s.Prev(after) }, "Check": func() { _ = s.Check(after) },
		} {
			const most = 5000 // the notes and texts of some segments of the zone
			if n := testing.AllocsPerRun(1, do); n > most {
				t.Errorf("%.30s: %s allocates %v times, at most %d", text, ask, n, most)
			}
		}
	}
}

// TestYearsWithSteps: a step behind a year goes on until the last there is.
func TestYearsWithSteps(t *testing.T) {
	after := time.Date(2030, 6, 1, 0, 0, 0, 0, time.UTC)
	for text, want := range map[string]string{
		"0 0 1 1 * 2028/2":      "2032-01-01",
		"0 0 1 1 * 2028/1000":   "3028-01-01",
		"0 0 1 1 * 2028-2040/3": "2031-01-01",
		"0 0 0 1 1 * */3":       "2031-01-01", // as of the year 0
		"0 0 29 2 * 2028/2":     "2032-02-29",
		"0 0 0 L 2 * 2029,2031": "2031-02-28",
	} {
		if m, found := mustParse(t, text, "", schedule.Rules{}).Next(after); !found || m.Nominal.Format(time.DateOnly) != want {
			t.Errorf("%s: got %v, %t, want %s", text, m.Nominal, found, want)
		}
	}
}

// TestGronx compares days with those of gronx, which knows L, W and #. It gives up early on some years.
func TestGronx(t *testing.T) {
	r := rand.New(rand.NewPCG(9, 10))
	special := func(field string, more ...string) string {
		if r.IntN(2) == 0 {
			return field
		}
		item := more[r.IntN(len(more))]
		if field == "*" || r.IntN(2) == 0 {
			return item
		}
		return field + "," + item
	}
	found := 0
	for range 300 {
		text := fmt.Sprintf("0 0 0 %s %s %s *",
			special(randomField(r, 1, 31), "L", fmt.Sprintf("%dW", 1+r.IntN(31))), randomField(r, 1, 12),
			special(randomField(r, 0, 7), fmt.Sprintf("%dL", r.IntN(7)), fmt.Sprintf("%d#%d", r.IntN(7), 1+r.IntN(5))))
		s := mustParse(t, text, "", schedule.Rules{})
		at := time.Date(2000+r.IntN(80), time.Month(1+r.IntN(12)), 1+r.IntN(28), 0, 0, 0, 0, time.UTC)
		for range 10 {
			want, err := gronx.NextTickAfter(text, at, false)
			got, ok := s.Next(at)
			if ok != (err == nil) || ok && !got.Nominal.Equal(want) {
				t.Fatalf("%s after %v: got %v, %t, gronx says %v, %v", text, at, got.Nominal, ok, want, err)
			}
			if !ok {
				break
			}
			at = want
			found++
		}
	}
	if found < 1000 {
		t.Errorf("compared %d days", found)
	}
}

// TestNearestWorkdays: at either end of a month the nearest working day lies on the other side.
func TestNearestWorkdays(t *testing.T) {
	for _, c := range []struct{ text, after, want string }{
		{"0 0 1W 5 *", "2027-04-30", "2027-05-03"},   // a Saturday
		{"0 0 1W 8 *", "2027-07-31", "2027-08-02"},   // a Sunday
		{"0 0 31W 1 *", "2027-01-02", "2027-01-29"},  // a Sunday
		{"0 0 31W 7 *", "2027-07-02", "2027-07-30"},  // a Saturday
		{"0 0 15W 5 *", "2027-05-01", "2027-05-14"},  // a Saturday
		{"0 0 16W 5 *", "2027-05-01", "2027-05-17"},  // a Sunday
		{"0 0 29W 2 *", "2027-01-01", "2028-02-29"},  // no such day in 2027
		{"0 0 1W,L 5 *", "2027-05-03", "2027-05-31"}, // beside another
	} {
		m, found := mustParse(t, c.text, "", schedule.Rules{}).Next(at(t, c.after+"T12:00:00Z"))
		if !found || m.Nominal.Format(time.DateOnly) != c.want {
			t.Errorf("%s after %s: got %v, %t, want %s", c.text, c.after, m.Nominal, found, c.want)
		}
	}
}
