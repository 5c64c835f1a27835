package window

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/teambition/rrule-go"
)

func wall(t testing.TB, text string) time.Time {
	t.Helper()
	parsed, err := time.Parse("20060102T150405", text)
	if err != nil {
		t.Fatal(err)
	}
	return parsed
}

func completeRule(text string, first time.Time) (rule, error) {
	read, err := parseRule(text)
	if err != nil {
		return rule{}, err
	}
	full, err := read.complete(first)
	if err != nil {
		return rule{}, err
	}
	return full, full.bound(first)
}

func firstWalls(r *rule, first, from, to time.Time, most int) (walls []string) {
	for w := range r.starts(first, from, to) {
		walls = append(walls, w.Format("20060102T150405"))
		if len(walls) == most {
			break
		}
	}
	return walls
}

// TestRules are the examples of RFC 5545, section 3.8.5.3, that harp takes, and the rules whose meaning was decided here.
func TestRules(t *testing.T) {
	for _, c := range []struct {
		rule, first string
		want        string // days, with the time where it is not that of first
	}{
		{"FREQ=DAILY;COUNT=3", "19970902T090000", "19970902 19970903 19970904"},
		{"FREQ=DAILY;INTERVAL=10;COUNT=5", "19970902T090000", "19970902 19970912 19970922 19971002 19971012"},
		{"FREQ=WEEKLY;COUNT=3", "19970902T090000", "19970902 19970909 19970916"},
		{"FREQ=WEEKLY;INTERVAL=2;WKST=SU;COUNT=3", "19970902T090000", "19970902 19970916 19970930"},
		{"FREQ=WEEKLY;COUNT=4;WKST=SU;BYDAY=TU,TH", "19970902T090000", "19970902 19970904 19970909 19970911"},
		{"FREQ=WEEKLY;INTERVAL=2;COUNT=4;BYDAY=TU,SU;WKST=MO", "19970805T090000", "19970805 19970810 19970819 19970824"},
		{"FREQ=WEEKLY;INTERVAL=2;COUNT=4;BYDAY=TU,SU;WKST=SU", "19970805T090000", "19970805 19970817 19970819 19970831"},
		{"FREQ=MONTHLY;COUNT=3;BYDAY=1FR", "19970905T090000", "19970905 19971003 19971107"},
		{"FREQ=MONTHLY;INTERVAL=2;COUNT=4;BYDAY=1SU,-1SU", "19970907T090000", "19970907 19970928 19971102 19971130"},
		{"FREQ=MONTHLY;COUNT=3;BYDAY=-2MO", "19970922T090000", "19970922 19971020 19971117"},
		{"FREQ=MONTHLY;BYMONTHDAY=-3;COUNT=3", "19970928T090000", "19970928 19971029 19971128"},
		{"FREQ=MONTHLY;COUNT=4;BYMONTHDAY=1,-1", "19970930T090000", "19970930 19971001 19971031 19971101"},
		{"FREQ=MONTHLY;COUNT=4", "20270131T090000", "20270131 20270331 20270531 20270731"},
		{"FREQ=YEARLY;COUNT=4;BYMONTH=6,7", "19970610T090000", "19970610 19970710 19980610 19980710"},
		{"FREQ=YEARLY;INTERVAL=3;COUNT=4;BYYEARDAY=1,100,200", "19970101T090000", "19970101 19970410 19970719 20000101"},
		{"FREQ=YEARLY;BYDAY=20MO;COUNT=3", "19970519T090000", "19970519 19980518 19990517"},
		{"FREQ=YEARLY;BYWEEKNO=20;BYDAY=MO;COUNT=3", "19970512T090000", "19970512 19980511 19990517"},
		{"FREQ=YEARLY;BYMONTH=3;BYDAY=TH;COUNT=4", "19970313T090000", "19970313 19970320 19970327 19980305"},
		{"FREQ=MONTHLY;BYDAY=FR;BYMONTHDAY=13;COUNT=4", "19980213T090000", "19980213 19980313 19981113 19990813"},
		{"FREQ=YEARLY;INTERVAL=4;BYMONTH=11;BYDAY=TU;BYMONTHDAY=2,3,4,5,6,7,8;COUNT=3", "19961105T090000", "19961105 20001107 20041102"},
		{"FREQ=MONTHLY;COUNT=3;BYDAY=TU,WE,TH;BYSETPOS=3", "19970904T090000", "19970904 19971007 19971106"},
		{"FREQ=MONTHLY;BYDAY=MO,TU,WE,TH,FR;BYSETPOS=-2;COUNT=3", "19970929T090000", "19970929 19971030 19971127"},
		{"FREQ=DAILY;BYHOUR=9,10;BYMINUTE=0,30;COUNT=5", "19970902T090000", "19970902 19970902T093000 19970902T100000 19970902T103000 19970903"},
		{"FREQ=YEARLY;COUNT=3", "20280229T090000", "20280229 20320229 20360229"},
		{"FREQ=DAILY;COUNT=3;", "20270101T000000", "20270101 20270102 20270103"},
		{"freq=weekly;byday=mo;count=2", "20270104T000000", "20270104 20270111"},
		// DTSTART is an occurrence even where the rule does not fit it, and counts.
		{"FREQ=WEEKLY;BYDAY=MO;COUNT=3", "20270106T090000", "20270106 20270111 20270118"},
		// A rule that ends before DTSTART has none.
		{"FREQ=DAILY;UNTIL=20260101", "20270106T090000", ""},
		// The weekday of a week that is named is that of DTSTART.
		{"FREQ=YEARLY;BYWEEKNO=1;COUNT=3", "20270104T090000", "20270104 20280103 20290101"},
		// Weeks of a year lie in it: the days of its first week that are in the year before belong to that.
		{"FREQ=YEARLY;BYWEEKNO=1;BYDAY=TH,WE,MO;COUNT=5", "20250101T090000", "20250101 20250102 20251229 20251231 20260101"},
	} {
		first := wall(t, c.first)
		full, err := completeRule(c.rule, first)
		if err != nil {
			t.Errorf("%s: %v", c.rule, err)
			continue
		}
		if strings.Contains(c.rule, "UNTIL") {
			full.until = wall(t, "20260101T235959")
		}
		var want []string
		for _, day := range strings.Fields(c.want) {
			if len(day) == 8 {
				day += c.first[8:]
			}
			want = append(want, day)
		}
		if got := firstWalls(&full, first, first, first.AddDate(100, 0, 0), 20); !slices.Equal(got, want) {
			t.Errorf("%s from %s:\ngot  %v\nwant %v", c.rule, c.first, got, want)
		}
	}
}

func TestBadRules(t *testing.T) {
	for _, c := range []struct{ rule, want string }{
		{"", "is no part of a rule"},
		{"FREQ", "is no part of a rule"},
		{"INTERVAL=2", "FREQ is missing"},
		{"FREQ=HOURLY", "must be DAILY, WEEKLY, MONTHLY or YEARLY"},
		{"FREQ=SECONDLY;COUNT=10", "must be DAILY"},
		{"FREQ=DAILY;FREQ=DAILY", "twice"},
		{"FREQ=DAILY;INTERVAL=0", "INTERVAL"},
		{"FREQ=DAILY;INTERVAL=99999999999999999999", "INTERVAL"},
		{"FREQ=DAILY;COUNT=0", "COUNT"},
		{"FREQ=DAILY;COUNT=+1", "COUNT"},
		{"FREQ=DAILY;COUNT=10001", "COUNT"},
		{"FREQ=DAILY;COUNT=2;UNTIL=20270101", "exclude each other"},
		{"FREQ=WEEKLY;WKST=XX", "WKST"},
		{"FREQ=WEEKLY;BYDAY=1MO", "a number in BYDAY"},
		{"FREQ=YEARLY;BYWEEKNO=1;BYDAY=1MO", "a number in BYDAY"},
		{"FREQ=MONTHLY;BYDAY=-53MO", "at most 5"},
		{"FREQ=YEARLY;BYMONTH=1;BYDAY=6MO", "at most 5"},
		{"FREQ=YEARLY;BYDAY=54MO", "BYDAY"},
		{"FREQ=YEARLY;BYDAY=M", "BYDAY"},
		{"FREQ=YEARLY;BYDAY=,MO", "BYDAY"},
		{"FREQ=YEARLY;BYDAY=--1MO", "BYDAY"},
		{"FREQ=MONTHLY;BYMONTHDAY=0", "BYMONTHDAY"},
		{"FREQ=MONTHLY;BYMONTHDAY=1,", "BYMONTHDAY"},
		{"FREQ=MONTHLY;BYMONTHDAY=-+1", "BYMONTHDAY"},
		{"FREQ=MONTHLY;BYMONTHDAY=" + strings.Repeat("1,", 400) + "1", "BYMONTHDAY"},
		{"FREQ=WEEKLY;BYMONTHDAY=1", "BYMONTHDAY"},
		{"FREQ=MONTHLY;BYWEEKNO=1", "BYWEEKNO"},
		{"FREQ=MONTHLY;BYYEARDAY=1", "BYYEARDAY"},
		{"FREQ=YEARLY;BYMONTH=-1", "BYMONTH"},
		{"FREQ=DAILY;BYHOUR=24", "BYHOUR"},
		{"FREQ=DAILY;BYHOUR=1,2,3,4,5;BYMINUTE=1,2,3,4,5", "more than 24 times a day"},
		{"FREQ=DAILY;BYEASTER=0", "no part that is known"},
		{"RSCALE=GREGORIAN;FREQ=DAILY", "no part that is known"},
		{"FREQ=YEARLY;BYMONTH=2;BYMONTHDAY=31", "never fits"},
		{"FREQ=DAILY;BYMONTH=4;BYMONTHDAY=31", "never fits"},
		{"FREQ=MONTHLY;BYDAY=MO;BYSETPOS=6", "never fits"},
		{"FREQ=YEARLY;INTERVAL=100;BYMONTH=2;BYMONTHDAY=29;COUNT=5", "does not come to its COUNT"},
	} {
		_, err := completeRule(c.rule, wall(t, "20280229T090000"))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%.60s: got %v, want %q", c.rule, err, c.want)
		}
	}
}

// randomRule writes a rule that both sides understand in the same way. What it leaves out, since the library does it otherwise:
//   - DTSTART that the rule does not fit: there it is no occurrence
//   - BYWEEKNO without a day: there it is all seven
//   - BYSETPOS with FREQ=WEEKLY: there the first week begins on DTSTART
//   - BYDAY with and without numbers: there a day must be both
//   - BYWEEKNO of a week that may lie in two years: there its days in the other one come and go; TestWeeks has them
func randomRule(r *rand.Rand) string {
	pick := func(n, low, high int, signed bool) string {
		var items []string
		for range 1 + r.IntN(n) {
			v := low + r.IntN(high-low+1)
			if signed && r.IntN(3) == 0 {
				v = -v
			}
			items = append(items, fmt.Sprint(v))
		}
		slices.Sort(items) // the library has what is named twice twice
		return strings.Join(slices.Compact(items), ",")
	}
	days := func(most int) string {
		var items []string
		numbered := most > 0 && r.IntN(2) == 0
		for range 1 + r.IntN(3) {
			n := ""
			if numbered {
				n = pick(1, 1, most, true)
			}
			items = append(items, n+[]string{"MO", "TU", "WE", "TH", "FR", "SA", "SU"}[r.IntN(7)])
		}
		return strings.Join(items, ",")
	}
	freq := []string{"DAILY", "WEEKLY", "MONTHLY", "YEARLY"}[r.IntN(4)]
	parts := []string{"FREQ=" + freq}
	add := func(chance int, name, values string) bool {
		if r.IntN(chance) > 0 {
			return false
		}
		parts = append(parts, name+"="+values)
		return true
	}
	add(2, "INTERVAL", pick(1, 1, 5, false))
	add(2, "WKST", []string{"MO", "SU", "WE"}[r.IntN(3)])
	inMonths := add(3, "BYMONTH", pick(3, 1, 12, false))
	hasDays := false
	if freq == "YEARLY" {
		hasDays = add(4, "BYYEARDAY", pick(4, 1, 366, true))
		if !hasDays && add(4, "BYWEEKNO", pick(3, 2, 51, true)) {
			return strings.Join(append(parts, "BYDAY="+days(0)), ";")
		}
	}
	if freq != "WEEKLY" {
		hasDays = add(3, "BYMONTHDAY", pick(3, 1, 31, true)) || hasDays
	}
	most := map[string]int{"MONTHLY": 5, "YEARLY": 53}[freq]
	if inMonths {
		most = min(most, 5)
	}
	hasDays = add(2, "BYDAY", days(most)) || hasDays
	add(4, "BYHOUR", pick(3, 0, 23, false))
	add(4, "BYMINUTE", pick(2, 0, 59, false))
	if hasDays && freq != "WEEKLY" {
		add(4, "BYSETPOS", pick(2, 1, 5, true))
	}
	return strings.Join(parts, ";")
}

// TestRandomRules compares with rrule-go, which looks for what never comes until the year 9999: of rules
// that have nothing it is asked about a few only.
func TestRandomRules(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	compared := 0
	for i := range 1_000 {
		text := randomRule(r)
		first := time.Date(1996+r.IntN(40), time.Month(1+r.IntN(12)), 1+r.IntN(28), r.IntN(24), r.IntN(60), r.IntN(60), 0, time.UTC)
		end := first.AddDate(6, 0, 0)
		full, invalid := completeRule(text, first)
		if i%200 != 0 && (invalid != nil || !full.isEverDue(first, end)) {
			continue
		}
		option, err := rrule.StrToROption(text)
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		option.Dtstart, option.Until = first, end
		other, err := rrule.NewRRule(*option)
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		next := other.Iterator()
		var want []string
		for at, ok := next(); ok && at.Before(end) && len(want) < 30; at, ok = next() {
			want = append(want, at.Format("20060102T150405"))
		}
		if invalid != nil {
			if len(want) > 0 {
				t.Fatalf("%s from %v: %v, rrule-go has %v", text, first, invalid, want)
			}
			continue
		}
		got := slices.DeleteFunc(firstWalls(&full, first, first, end, 31), func(w string) bool {
			return w == first.Format("20060102T150405") && (len(want) == 0 || want[0] != w)
		})
		if got = got[:min(len(got), 30)]; !slices.Equal(got, want) {
			t.Fatalf("%s from %v:\ngot  %v\nwant %v", text, first, got, want)
		}
		compared += len(want)
		// Asked from the middle on, it says the same.
		if len(want) < 2 {
			continue
		}
		middle := len(want) / 2
		if later := firstWalls(&full, first, wall(t, want[middle]), end, len(want)-middle); !slices.Equal(later, want[middle:]) {
			t.Fatalf("%s from %v:\nfrom the middle on %v\nwant %v", text, first, later, want[middle:])
		}
	}
	t.Logf("%d occurrences", compared)
}

// TestWeeks compares weeks that begin on Monday with those of ISO 8601.
func TestWeeks(t *testing.T) {
	for at := time.Date(1900, 1, 1, 0, 0, 0, 0, time.UTC); at.Year() < 2101; at = at.AddDate(0, 0, 1) {
		year, want := at.ISOWeek()
		_, weeks := time.Date(year, 12, 28, 0, 0, 0, 0, time.UTC).ISOWeek()
		got, fromEnd := dayOf(at).week(time.Monday)
		if got != want || fromEnd != want-weeks-1 {
			t.Fatalf("%v: week %d and %d from the end, want %d of %d", at, got, fromEnd, want, weeks)
		}
	}
}

// TestLongRules: a list that says something hundreds of times is the list that says it once, and costs no more. One calendar of such lists
// took a processor a quarter of a minute.
func TestLongRules(t *testing.T) {
	first := wall(t, "20270101T090000")
	for _, c := range []struct{ before, list, item string }{
		{"FREQ=YEARLY;BYMONTHDAY=", "2", "2"},
		{"FREQ=YEARLY;BYYEARDAY=", "-366,1", "-366"},
		{"FREQ=YEARLY;BYWEEKNO=", "-53,1", "-53"},
		{"FREQ=MONTHLY;BYDAY=", "-5MO,MO", "-5MO"},
		{"FREQ=MONTHLY;BYDAY=MO;BYSETPOS=", "-366,1", "-366"},
		{"FREQ=DAILY;COUNT=30;BYMONTH=", "2,3", "2"},
	} {
		want, err := completeRule(c.before+c.list, first)
		if err != nil {
			t.Fatal(c.before, err)
		}
		got, err := completeRule(c.before+strings.Repeat(c.item+",", 390)+c.list, first)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s… 391 times: %v, got %+v\nwant %+v", c.before, err, got, want)
		}
	}
}

// TestPeriods: a period is the same whether it is found by its number or from the one before it.
func TestPeriods(t *testing.T) {
	first := wall(t, "20240227T090000")
	for _, freq := range []frequency{daily, weekly, monthly, yearly} {
		for _, interval := range []int{1, 2, 3, 5, 31, 100} {
			r := rule{freq: freq, interval: interval, weekStart: time.Monday}
			k := 3
			for p := range r.periods(first, k) {
				if want, _ := r.period(first, k); p != want {
					t.Fatalf("frequency %d, each %d: period %d is %+v, want %+v", freq, interval, k, p, want)
				}
				if k++; k == 500 {
					break
				}
			}
			if _, ok := r.period(first, k); ok && k < 500 {
				t.Errorf("frequency %d, each %d: the last period is %d", freq, interval, k)
			}
		}
	}
}
