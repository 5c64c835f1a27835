package schedule_test

import (
	"archive/zip"
	"cmp"
	"fmt"
	"io"
	"math/rand/v2"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/robfig/cron/v3"

	"github.com/harpcaller/harp/schedule"
)

// naive is a cron expression as a table of the values of each field: second, minute, hour, day of month,
// month, day of week. It knows no L, W and #.
type naive struct {
	fields  [6][61]bool
	starred [6]bool
}

func parseNaive(text string) (n naive) {
	words := strings.Fields(text)
	if len(words) == 5 {
		words = append([]string{"0"}, words...)
	}
	limits := [6][2]int{{0, 59}, {0, 59}, {0, 23}, {1, 31}, {1, 12}, {0, 6}}
	for i, word := range words {
		n.starred[i] = word[0] == '*'
		for item := range strings.SplitSeq(word, ",") {
			values, stepText, stepped := strings.Cut(item, "/")
			step, low, high := 1, limits[i][0], limits[i][1]
			if stepped {
				step, _ = strconv.Atoi(stepText)
			}
			if values != "*" {
				first, last, ranged := strings.Cut(values, "-")
				low, _ = strconv.Atoi(first)
				switch {
				case ranged:
					high, _ = strconv.Atoi(last)
				case !stepped:
					high = low
				case i == 5 && low == 7:
					low = 0
				}
			}
			for v := low; v <= high; v += step {
				n.fields[i][v] = true
			}
		}
	}
	n.fields[5][0] = n.fields[5][0] || n.fields[5][7]
	return n
}

func (n *naive) due(wall time.Time) bool {
	day, weekday := n.fields[3][wall.Day()], n.fields[5][int(wall.Weekday())]
	days := day && weekday
	if !n.starred[3] && !n.starred[5] {
		days = day || weekday
	}
	return days && n.fields[0][wall.Second()] && n.fields[1][wall.Minute()] && n.fields[2][wall.Hour()] && n.fields[4][int(wall.Month())]
}

// walk goes through all moments from one to another, asks a clock at each what it shows, and then decides about
// each wall time in between: how often it was shown, and what the rule for that says.
func (n *naive) walk(loc *time.Location, from, to time.Time, step time.Duration, rules schedule.Rules) (fires []time.Time) {
	gap, repeat := n.rules(rules)
	shown := map[time.Time][]time.Time{}
	var first, last time.Time
	for at := from; at.Before(to); at = at.Add(step) {
		_, offset := at.In(loc).Zone()
		wall := at.UTC().Add(time.Duration(offset) * time.Second)
		if n.due(wall) {
			shown[wall] = append(shown[wall], at)
		}
		if first.IsZero() || wall.Before(first) {
			first = wall
		}
		if wall.After(last) {
			last = wall
		}
	}
	for wall := first; !wall.After(last); wall = wall.Add(step) {
		if !n.due(wall) {
			continue
		}
		at := shown[wall]
		switch {
		case len(at) == 0 && gap == schedule.GapAfter:
			fires = append(fires, endOfGap(loc, wall, from, to))
		case len(at) == 0:
		case repeat == schedule.RepeatFirst:
			fires = append(fires, at[0])
		case repeat == schedule.RepeatLast:
			fires = append(fires, at[len(at)-1])
		default:
			fires = append(fires, at...)
		}
	}
	slices.SortFunc(fires, time.Time.Compare)
	return slices.CompactFunc(fires, time.Time.Equal)
}

func (n *naive) rules(r schedule.Rules) (schedule.Gap, schedule.Repeat) {
	gap, repeat := schedule.GapAfter, schedule.RepeatFirst
	switch {
	case n.starred[2]:
		gap, repeat = schedule.GapSkip, schedule.RepeatBoth
	case n.starred[0] || n.starred[1]:
		repeat = schedule.RepeatBoth
	}
	return cmp.Or(r.Gap, gap), cmp.Or(r.Repeat, repeat)
}

// endOfGap is the first moment whose wall time is past one that no clock shows.
func endOfGap(loc *time.Location, wall, from, to time.Time) time.Time {
	for at := from; at.Before(to); at = at.Add(time.Minute) {
		_, offset := at.In(loc).Zone()
		if at.UTC().Add(time.Duration(offset) * time.Second).After(wall) {
			return at
		}
	}
	return to
}

// zones returns the zones of the time zone database that comes with Go.
func zones(t testing.TB) map[string]*time.Location {
	t.Helper()
	root, err := exec.CommandContext(t.Context(), "go", "env", "GOROOT").Output()
	if err != nil {
		t.Fatal(err)
	}
	r, err := zip.OpenReader(filepath.Join(strings.TrimSpace(string(root)), "lib", "time", "zoneinfo.zip"))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	all := map[string]*time.Location{}
	for _, f := range r.File {
		if f.FileInfo().IsDir() {
			continue
		}
		content, err := f.Open()
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(content)
		if err != nil {
			t.Fatal(err)
		}
		loc, err := time.LoadLocationFromTZData(f.Name, data)
		if err != nil {
			t.Fatal(err)
		}
		all[f.Name] = loc
	}
	return all
}

// change is one of a zone's clock.
type change struct {
	zone   string
	loc    *time.Location
	at     time.Time
	before int // offset in seconds
	after  int
}

// changes returns the changes of all zones in some years. Of those that change at the same moment in
// the same way there is one.
func changes(t testing.TB, from, to int) (all []change) {
	t.Helper()
	type key struct {
		at            int64
		before, after int
	}
	seen := map[key]bool{}
	byName := zones(t)
	names := make([]string, 0, len(byName))
	for name := range byName {
		names = append(names, name)
	}
	slices.Sort(names)
	end := time.Date(to+1, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, name := range names {
		loc := byName[name]
		at := time.Date(from, 1, 1, 0, 0, 0, 0, time.UTC)
		_, before := at.In(loc).Zone()
		// Every change is on a whole minute, as of these years.
		for at = at.Add(6 * time.Hour); at.Before(end); at = at.Add(6 * time.Hour) {
			_, after := at.In(loc).Zone()
			if after == before {
				continue
			}
			moment := at
			for back := at.Add(-time.Minute); ; back = back.Add(-time.Minute) {
				if _, offset := back.In(loc).Zone(); offset != after {
					break
				}
				moment = back
			}
			if k := (key{moment.Unix(), before, after}); !seen[k] {
				seen[k] = true
				all = append(all, change{name, loc, moment, before, after})
			}
			before = after
		}
	}
	return all
}

// randomField writes a field: mostly plain, now and then with all that a field may have.
func randomField(r *rand.Rand, low, high int) string {
	value := func() int { return low + r.IntN(high-low+1) }
	switch r.IntN(8) {
	case 0, 1:
		return "*"
	case 2:
		return fmt.Sprintf("*/%d", 1+r.IntN(high/2))
	case 3:
		a, b := value(), value()
		return fmt.Sprintf("%d-%d", min(a, b), max(a, b))
	case 4:
		a, b := value(), value()
		return fmt.Sprintf("%d-%d/%d", min(a, b), max(a, b), 1+r.IntN(high/2))
	case 5:
		return fmt.Sprintf("%d,%d,%d", value(), value(), value())
	case 6:
		return fmt.Sprintf("%d/%d", value(), 1+r.IntN(high/2))
	default:
		return strconv.Itoa(value())
	}
}

// randomCron writes five fields, two times of three with any day.
func randomCron(r *rand.Rand, lastWeekday int) string {
	days := "* * *"
	if r.IntN(3) == 0 {
		days = randomField(r, 1, 31) + " * " + randomField(r, 0, lastWeekday)
	}
	return randomField(r, 0, 59) + " " + randomField(r, 0, 23) + " " + days
}

var (
	gapRules    = []schedule.Gap{schedule.GapByExpression, schedule.GapAfter, schedule.GapSkip}
	repeatRules = []schedule.Repeat{schedule.RepeatByExpression, schedule.RepeatFirst, schedule.RepeatBoth, schedule.RepeatLast}
)

// TestWalk compares with a walk over wall clocks around each change of each zone in 2020 to 2035,
// minute by minute, for a random expression and random rules at each.
func TestWalk(t *testing.T) {
	all := changes(t, 2020, 2035)
	if len(all) < 500 {
		t.Fatalf("the database has %d changes only", len(all))
	}
	r := rand.New(rand.NewPCG(1, 2))
	for i, c := range all {
		around := 3 * time.Hour
		if i%20 == 0 {
			around = 30 * time.Hour
		}
		text := randomCron(r, 7)
		rules := schedule.Rules{Gap: gapRules[r.IntN(3)], Repeat: repeatRules[r.IntN(4)]}
		compareWithWalk(t, c, text, rules, around, time.Minute)
	}
	t.Logf("%d changes", len(all))
}

// TestWalkSeconds is TestWalk for six fields, second by second, around some changes.
func TestWalkSeconds(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	all := changes(t, 2027, 2027)
	for _, c := range all {
		if r.IntN(4) > 0 {
			continue
		}
		text := fmt.Sprintf("%s %s %s * * *", randomField(r, 0, 59), randomField(r, 0, 59), randomField(r, 0, 4))
		rules := schedule.Rules{Gap: gapRules[r.IntN(3)], Repeat: repeatRules[r.IntN(4)]}
		compareWithWalk(t, c, text, rules, 2*time.Hour, time.Second)
	}
}

// compareWithWalk compares the moments around a change. A clock is watched for some hours more, since what it shows once or
// twice is known only there.
func compareWithWalk(t *testing.T, c change, text string, rules schedule.Rules, around, step time.Duration) {
	t.Helper()
	n := parseNaive(text)
	from, to := c.at.Add(-around), c.at.Add(around)
	margin := min(around, 3*time.Hour)
	walked := n.walk(c.loc, from.Add(-margin), to.Add(margin), step, rules)
	var want []string
	for _, at := range walked {
		if !at.Before(from) && at.Before(to) {
			want = append(want, at.UTC().Format(time.RFC3339))
		}
	}
	s, err := schedule.Parse(text, c.zone, rules)
	if err != nil {
		t.Fatalf("%s in %s: %v", text, c.zone, err)
	}
	var got []string
	for m := range s.Between(from, to) {
		got = append(got, m.Nominal.Format(time.RFC3339))
		if len(got) > len(want)+3 {
			break
		}
	}
	if !slices.Equal(got, want) {
		t.Fatalf("%s in %s, %+v, around %v:\ngot  %v\nwant %v", text, c.zone, rules, c.at, got, want)
	}
	if len(want) > 0 {
		last, ok := s.Prev(to)
		if !ok || last.Nominal.Format(time.RFC3339) != want[len(want)-1] {
			t.Fatalf("%s in %s, %+v: the last before %v is %v, %t, want %s", text, c.zone, rules, to, last.Nominal, ok, want[len(want)-1])
		}
	}
}

// TestDays compares days, months and years of random expressions with the table of values.
func TestDays(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	from := time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC)
	for range 100 {
		text := fmt.Sprintf("0 12 %s %s %s", randomField(r, 1, 31), randomField(r, 1, 12), randomField(r, 0, 7))
		n, s := parseNaive(text), mustParse(t, text, "", schedule.Rules{})
		next, ok := s.Next(from)
		for day := from.Add(12 * time.Hour); day.Year() < 2030; day = day.AddDate(0, 0, 1) {
			switch isNext := ok && next.Nominal.Equal(day); {
			case n.due(day) != isNext:
				t.Fatalf("%s: %v is due: %t, next is %v, %t", text, day, n.due(day), next.Nominal, ok)
			case isNext:
				next, ok = s.Next(day)
			}
		}
	}
}

// TestRobfig compares with robfig/cron where both follow the same rule: outside of gaps and repeated hours, and not for
// a day with a step behind *, which restricts a day there.
func TestRobfig(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	for _, zone := range []string{"UTC", "Asia/Kolkata", "Africa/Lagos", "Europe/Madrid", "America/Caracas", "Pacific/Kiritimati"} {
		loc, err := time.LoadLocation(zone)
		if err != nil {
			t.Fatal(err)
		}
		for range 100 {
			text := randomCron(r, 6)
			words := strings.Fields(text)
			if strings.HasPrefix(words[2], "*/") || strings.HasPrefix(words[4], "*/") {
				continue
			}
			other, err := cron.ParseStandard(text)
			if err != nil {
				t.Fatalf("%s: %v", text, err)
			}
			s := mustParse(t, text, zone, schedule.Rules{})
			at := time.Date(2027, 4, 1, 0, 0, 0, 0, loc).Add(time.Duration(r.IntN(3000)) * time.Hour)
			for range 20 {
				want := other.Next(at)
				got, ok := s.Next(at)
				if !ok && want.IsZero() || want.After(time.Date(2027, 10, 1, 0, 0, 0, 0, loc)) {
					break
				}
				if !got.Nominal.Equal(want) {
					t.Fatalf("%s in %s after %v: got %v, robfig/cron says %v", text, zone, at, got.Nominal, want)
				}
				at = want
			}
		}
	}
}

// TestFromWall: the moment of a wall time is the first at which a clock shows that or a later one, around each change of each
// zone in 2020 to 2035.
func TestFromWall(t *testing.T) {
	for _, c := range changes(t, 2020, 2035) {
		from := c.at.Add(-3 * time.Hour)
		at := from.Add(-27 * time.Hour)
		for wall := schedule.ToWall(from, c.loc); wall.Before(schedule.ToWall(c.at.Add(3*time.Hour), c.loc)); wall = wall.Add(5 * time.Minute) {
			for schedule.ToWall(at, c.loc).Before(wall) {
				at = at.Add(time.Minute)
			}
			if got := schedule.FromWall(wall, c.loc); !got.Equal(at) {
				t.Fatalf("%s: %v is at %v, want %v", c.zone, wall, got, at)
			}
		}
	}
}

// TestLongWalk goes over 300 years of zones, across the ends of leap years, and finds each day once.
func TestLongWalk(t *testing.T) {
	for _, zone := range []string{"Europe/Madrid", "Australia/Lord_Howe", "Pacific/Apia"} {
		s := mustParse(t, "30 12 1 * *", zone, schedule.Rules{})
		loc, err := time.LoadLocation(zone)
		if err != nil {
			t.Fatal(err)
		}
		want := time.Date(1900, 1, 1, 12, 30, 0, 0, loc)
		at := want.Add(-time.Hour)
		for want.Year() < 2200 {
			m, ok := s.Next(at)
			if !ok || !m.Nominal.Equal(want) {
				t.Fatalf("%s: after %v got %v, %t, want %v", zone, at, m.Nominal, ok, want)
			}
			at, want = m.Nominal, want.AddDate(0, 1, 0)
		}
	}
}
