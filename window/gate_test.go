package window_test

import (
	"cmp"
	"fmt"
	"iter"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/harpcaller/harp/schedule"
	"github.com/harpcaller/harp/window"
)

var epoch = time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC)

// second returns a moment of a test; -1 is none.
func second(n int) time.Time {
	if n < 0 {
		return time.Time{}
	}
	return epoch.Add(time.Duration(n) * time.Second)
}

// spans is a source of seconds from the first to the second; -1 is no end.
type spans [][2]int

func (l spans) Between(from, to time.Time) iter.Seq[window.Span] {
	return func(yield func(window.Span) bool) {
		for _, s := range l {
			span := window.Span{From: second(s[0]), To: second(s[1])}
			if span.From.Before(to) && (span.To.IsZero() || span.To.After(from)) && !yield(span) {
				return
			}
		}
	}
}

func (l spans) cover(n int) bool {
	return slices.ContainsFunc(l, func(s [2]int) bool { return s[0] <= n && (n < s[1] || s[1] < 0) })
}

// rules is what a test puts on a host.
type rules struct {
	windows []window.Window
	pauses  [][2]int
}

const lastSecond = 14 // the first one of which nothing is known

func (r rules) gate() window.Gate {
	var expanded []*window.Expanded
	for _, w := range r.windows {
		expanded = append(expanded, w.Expand(second(0), second(lastSecond)))
	}
	var pauses []window.Pause
	for _, p := range r.pauses {
		pauses = append(pauses, window.Pause{What: "host", Since: second(p[0]), Until: second(p[1])})
	}
	return window.NewGate(second(0), second(lastSecond), expanded, pauses)
}

// concerns is Concerns for the patterns of these tests: names, and * alone.
func concerns(w window.Window, s window.Start) bool {
	isLike := func(pattern string) bool { return pattern == "*" || pattern == s.Procedure }
	switch {
	case w.SchedulesOnly && !s.Scheduled, s.ReadOnly && !w.All:
		return false
	case len(w.Procedures) > 0 && !slices.ContainsFunc(w.Procedures, isLike):
		return false
	}
	return !slices.ContainsFunc(w.Exempt, isLike)
}

// keeps says by the words of the rules what keeps a start back at a second: the names of windows, and pauses.
func (r rules) keeps(s window.Start, n int) (names []string, mode window.Mode) {
	mode = window.Hold
	among, within := 0, 0
	for _, w := range r.windows {
		if w.Only && concerns(w, s) {
			among++
			if w.Source.(spans).cover(n) {
				within++
			}
		}
	}
	for _, w := range r.windows {
		if !concerns(w, s) {
			continue
		}
		if w.Only && among > 0 && within == 0 || !w.Only && w.Source.(spans).cover(n) {
			names = append(names, w.Name)
			if w.Mode == window.Refuse {
				mode = window.Refuse
			}
		}
	}
	for i, p := range r.pauses {
		if (spans{{0, p[1]}}).cover(n) { // it has begun, whatever the clock says of that
			names = append(names, fmt.Sprint("pause ", i))
		}
	}
	return names, mode
}

// compare walks second by second through a time and compares each verdict with what the rules say.
func (r rules) compare(t *testing.T, s window.Start) {
	t.Helper()
	g := r.gate()
	var answers [lastSecond][]string
	var modes [lastSecond]window.Mode
	for n := range answers {
		answers[n], modes[n] = r.keeps(s, n)
	}
	for n := range answers {
		want, until := answers[n], time.Time{}
		for later := n + 1; later < lastSecond && until.IsZero(); later++ {
			if (len(answers[later]) > 0) != (len(want) > 0) {
				until = second(later)
			}
		}
		v := g.Judge(s, second(n))
		var got []string
		pause := 0
		for _, o := range v.Obstacles {
			if o.Pause == nil {
				got = append(got, o.Window)
				continue
			}
			for !(spans{{0, r.pauses[pause][1]}}).cover(n) {
				pause++
			}
			got = append(got, fmt.Sprint("pause ", pause))
			pause++
		}
		if !slices.Equal(got, want) || v.Mode() != modes[n] || !v.Until.Equal(until) || v.Unknown || v.May() != (len(want) == 0) || !v.KnownUntil.Equal(second(lastSecond)) {
			t.Fatalf("%+v, pauses %v, %+v at second %d:\ngot  %v %s until %v, unknown %t\nwant %v %s until %v", r.windows, r.pauses, s, n, got, v.Mode(), v.Until, v.Unknown, want, modes[n], until)
		}
		r.compareEnds(t, s, n, v)
		if v.May() {
			since := n
			for since > 0 && len(answers[since-1]) == 0 {
				since--
			}
			if got := g.FreeSince(s, second(n)); since > 0 && !got.Equal(second(since)) || since == 0 && !got.IsZero() {
				t.Fatalf("%+v, pauses %v, %+v at second %d: it is free since %v, want second %d", r.windows, r.pauses, s, n, got, since)
			}
		}
	}
}

// compareEnds checks what obstacles say of themselves: before its end each is one, and at its end it is none by itself.
func (r rules) compareEnds(t *testing.T, s window.Start, n int, v window.Verdict) {
	t.Helper()
	for _, o := range v.Obstacles {
		if o.Until.IsZero() || !o.Until.Before(second(lastSecond)) {
			continue
		}
		end := int(o.Until.Sub(epoch) / time.Second)
		var own spans
		for _, w := range r.windows {
			if w.Name == o.Window {
				own = w.Source.(spans)
			}
		}
		if o.Pause != nil {
			own = spans{{0, end}}
		}
		for at := n; at <= end; at++ {
			if own.cover(at) == (o.Only == (at < end)) {
				t.Fatalf("%+v, %+v at second %d: %+v, and its spans are %v", r.windows, s, n, o, own)
			}
		}
	}
}

var starts = []window.Start{
	{Procedure: "a"},
	{Procedure: "b"},
	{Procedure: "a", ReadOnly: true},
	{Procedure: "a", Scheduled: true},
	{Procedure: "b", ReadOnly: true, Scheduled: true},
}

// TestGateSmall goes through all pairs of windows of few spans and kinds.
func TestGateSmall(t *testing.T) {
	var sources []spans
	for from := 0; from <= 4; from += 2 {
		for _, to := range []int{from + 2, from + 4, -1} {
			sources = append(sources, spans{{from, to}})
		}
	}
	sources = append(sources, nil, spans{{0, 2}, {4, 6}})
	filters := []window.Window{{}, {Procedures: []string{"a"}}, {Exempt: []string{"a"}}, {SchedulesOnly: true}, {All: true, Mode: window.Refuse}}
	var all []window.Window
	for _, source := range sources {
		for _, w := range filters {
			for _, only := range []bool{false, true} {
				w.Only, w.Source = only, source
				all = append(all, w)
			}
		}
	}
	for i, a := range all {
		a.Name = "a"
		for _, b := range all[i:] {
			b.Name = "b"
			r := rules{windows: []window.Window{a, b}}
			for _, s := range starts {
				r.compare(t, s)
			}
		}
	}
}

// TestGateRandom has more windows, overlapping spans and pauses.
func TestGateRandom(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	randomSpan := func() [2]int {
		from := r.IntN(lastSecond + 2)
		if r.IntN(10) == 0 {
			return [2]int{from, -1}
		}
		return [2]int{from, from + 1 + r.IntN(5)}
	}
	patterns := [][]string{nil, nil, {"a"}, {"b", "c"}, {"*"}}
	for range 5_000 {
		var all rules
		for i := range r.IntN(5) {
			var source spans
			for range r.IntN(4) {
				source = append(source, randomSpan())
			}
			slices.SortFunc(source, func(a, b [2]int) int { return cmp.Compare(a[0], b[0]) })
			all.windows = append(all.windows, window.Window{
				Name: fmt.Sprint(i), Mode: []window.Mode{"", window.Hold, window.Refuse}[r.IntN(3)], Only: r.IntN(2) == 0, SchedulesOnly: r.IntN(4) == 0,
				Procedures: patterns[r.IntN(len(patterns))], Exempt: patterns[r.IntN(4)], All: r.IntN(2) == 0, Source: source,
			})
		}
		for range r.IntN(3) {
			all.pauses = append(all.pauses, randomSpan())
		}
		all.compare(t, starts[r.IntN(len(starts))])
	}
}

// TestGateUnknown: of a moment that a gate knows nothing of it lets nothing through.
func TestGateUnknown(t *testing.T) {
	long := window.Window{Name: "long", Source: spans{}}.Expand(second(0), second(10))
	short := window.Window{Name: "short", Source: spans{}}.Expand(second(2), second(5))
	g := window.NewGate(second(1), second(8), []*window.Expanded{long, short}, nil)
	if !g.KnownUntil().Equal(second(5)) {
		t.Errorf("known until %v", g.KnownUntil())
	}
	for n, want := range []bool{false, false, true, true, true, false, false} {
		if v := g.Judge(window.Start{}, second(n)); v.May() != want || v.Unknown == want {
			t.Errorf("at second %d: %+v", n, v)
		}
	}
	for n, want := range []string{"short", "short", "", "", "", "short", "short"} {
		var names []string
		for _, o := range g.Judge(window.Start{}, second(n)).Obstacles {
			names = append(names, o.Window)
		}
		if got := strings.Join(names, " "); got != want {
			t.Errorf("at second %d it is not known of %q, want %q", n, got, want)
		}
	}
	for n, want := range []time.Time{second(2), second(2), {}, {}, {}, {}} {
		if v := g.Judge(window.Start{}, second(n)); !v.Until.Equal(want) {
			t.Errorf("at second %d the answer changes at %v, want %v", n, v.Until, want)
		}
	}
	if v := (window.Gate{}).Judge(window.Start{}, time.Time{}); v.May() || v.Left() != 0 {
		t.Errorf("a gate that knows nothing: %+v", v)
	}
}

// TestGateOfManySpans: what is known ends where a source has more spans than are looked at.
func TestGateOfManySpans(t *testing.T) {
	var many spans
	for n := range 20_000 {
		many = append(many, [2]int{2 * n, 2*n + 1})
	}
	w := window.Window{Name: "many", Source: many}.Expand(second(0), second(40_000))
	g := window.NewGate(second(0), second(40_000), []*window.Expanded{w}, nil)
	if !g.KnownUntil().Equal(second(2 * 9_999)) {
		t.Errorf("known until second %v", g.KnownUntil().Sub(epoch))
	}
	years := window.Window{Source: spans{}}.Expand(second(0), epoch.AddDate(10, 0, 0))
	if until := window.NewGate(second(0), epoch.AddDate(10, 0, 0), []*window.Expanded{years}, nil).KnownUntil(); !until.Equal(epoch.AddDate(2, 0, 0)) {
		t.Errorf("known until %v, want two years", until)
	}
}

// The end of what is held, or let through, is looked for through so many spans of many windows that follow one another, and again from there: nothing is told
// as over before it is.
func TestGateOfSpansThatFollowOneAnother(t *testing.T) {
	const end = 2000
	var even, odd spans
	for n := 0; n < end; n += 2 {
		even, odd = append(even, [2]int{n, n + 1}), append(odd, [2]int{n + 1, n + 2})
	}
	for _, only := range []bool{false, true} {
		var windows []*window.Expanded
		for _, source := range []spans{even, odd} {
			one := window.Window{Only: only, Source: source}.Expand(second(0), second(end+10))
			windows = append(windows, slices.Repeat([]*window.Expanded{one}, 100)...)
		}
		gate, at, looks := window.NewGate(second(0), second(end+10), windows, nil), second(0), 0
		for ; at.Before(second(end)); looks++ {
			v := gate.Judge(window.Start{}, at)
			if v.May() != only || !v.Until.After(at) || v.Until.After(second(end)) {
				t.Fatalf("only %t: at %v it is %+v", only, at, v)
			}
			at = v.Until
		}
		if v := gate.Judge(window.Start{}, at); v.May() == only || looks < 2 {
			t.Errorf("only %t: after %d looks it is %+v", only, looks, v)
		}
	}
}

// Spans followed one another without time between them beyond what is known, and the end of the last one that is known was said to be that of all.
func TestEndOfSpansThatGoOn(t *testing.T) {
	day := func(n int) string { return epoch.AddDate(0, 0, n).Format("20060102") }
	events := func(lines string) window.Source {
		c, err := read(calendarOf("DTSTART;VALUE=DATE:"+day(0)+"\n"+lines), window.CalendarOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	spec, err := schedule.Parse("0 * * * *", "UTC", schedule.Rules{})
	if err != nil {
		t.Fatal(err)
	}
	const whole = 24 * 60 * 60
	for name, c := range map[string]struct {
		source window.Source
		until  int
	}{
		"one after another":     {spans{{2, 6}, {6, 20}, {20, 30}, {31, 40}}, 30},
		"over one another":      {spans{{2, 20}, {4, 25}, {25, -1}}, -1},
		"with a time between":   {spans{{2, 20}, {21, 30}}, 20},
		"one":                   {window.Once{From: second(0), To: epoch.AddDate(10, 0, 0)}, int(epoch.AddDate(10, 0, 0).Sub(epoch) / time.Second)},
		"days of a freeze":      {events("RRULE:FREQ=DAILY;UNTIL=" + day(13)), 14 * whole},
		"each day":              {events("RRULE:FREQ=DAILY"), -1},
		"each hour":             {window.Recurring{Spec: spec, For: time.Hour}, -1},
		"the most of each hour": {window.Recurring{Spec: spec, For: 59 * time.Minute}, 59 * 60},
	} {
		v := rules{windows: []window.Window{{Source: c.source}}}.gate().Judge(window.Start{}, second(3))
		if len(v.Obstacles) != 1 || !v.Obstacles[0].Until.Equal(second(c.until)) {
			t.Errorf("%s: kept back by %+v, want until %v", name, v.Obstacles, second(c.until))
		}
		if first, found := window.First(c.source, second(3), epoch.AddDate(1, 0, 0)); !found || !first.To.Equal(second(c.until)) {
			t.Errorf("%s: the first is %+v, want until %v", name, first, second(c.until))
		}
	}
	if first, found := window.First(spans{}, second(0), second(10)); found {
		t.Errorf("of none the first is %+v", first)
	}
}

// Outside keeps back what a window with Only does by itself, and lets nothing start beside others.
func TestOutside(t *testing.T) {
	only := func(s spans) *window.Expanded {
		return window.Window{Only: true, Source: s}.Expand(second(0), second(10))
	}
	start := window.Start{Procedure: "p"}
	mayAll := func(at int, windows ...*window.Expanded) bool {
		return window.NewGate(second(0), second(10), windows, nil).Judge(start, second(at)).May()
	}
	other := only(spans{{0, 3}})
	for _, s := range []spans{{}, {{2, 4}, {6, 8}}, {{0, 2}, {5, 100}}} {
		e := only(s)
		for at := range 10 {
			if got, want := mayAll(at, e.Outside()), mayAll(at, e); got != want {
				t.Errorf("%v at %d: it may start: %t, want %t", s, at, got, want)
			}
			if got, want := mayAll(at, other, e.Outside()), mayAll(at, other) && mayAll(at, e); got != want {
				t.Errorf("%v beside another at %d: it may start: %t, want %t", s, at, got, want)
			}
		}
	}
}

// TestLeft: a start is under way for no longer than until a second before its window.
func TestLeft(t *testing.T) {
	g := rules{windows: []window.Window{{Name: "a", Source: spans{{10, 12}}}}}.gate()
	for n, want := range map[int]time.Duration{0: 9 * time.Second, 8: time.Second, 9: 0, 10: 0, 11: 0, 12: time.Second, 13: 0} {
		if got := g.Judge(window.Start{}, second(n)).Left(); got != want {
			t.Errorf("at second %d: %v, want %v", n, got, want)
		}
	}
}

// A window ended a moment before the next one, in which nothing starts: nothing that was held started then, though that was said to be its end.
func TestHeldUntilTheEndOfWindowsWithAMomentBetween(t *testing.T) {
	for _, test := range []struct {
		windows   []window.Window
		at, until int
	}{
		{[]window.Window{{Source: spans{{2, 5}, {6, 9}}}}, 3, 9},
		{[]window.Window{{Source: spans{{2, 5}, {6, 8}, {9, 11}}}}, 3, 11},
		{[]window.Window{{Source: spans{{2, 5}}}, {Source: spans{{6, 9}}}}, 1, 9}, // it is too late for a start
		{[]window.Window{{Source: spans{{2, 5}, {7, 9}}}}, 3, 5},
		{[]window.Window{{Source: spans{{2, 5}, {6, -1}}}}, 3, -1},
		{[]window.Window{{Source: spans{{2, 5}, {6, 20}}}}, 3, -1}, // nobody knows yet
		{[]window.Window{{Only: true, Source: spans{{5, 6}, {9, 12}}}}, 3, 9},
	} {
		v := rules{windows: test.windows}.gate().JudgeStart(window.Start{}, second(test.at))
		if v.May() || !v.At.Equal(second(test.at)) || !v.Until.Equal(second(test.until)) {
			t.Errorf("%+v at second %d: held until %v, want second %d", test.windows, test.at, v.Until, test.until)
		}
	}
	var many spans // so many are not looked at
	for n := range 5_000 {
		many = append(many, [2]int{2 * n, 2*n + 1})
	}
	w := window.Window{Source: many}.Expand(second(0), second(20_000))
	v := window.NewGate(second(0), second(20_000), []*window.Expanded{w}, nil).JudgeStart(window.Start{}, second(0))
	if v.May() || !v.Until.IsZero() {
		t.Errorf("of 5,000 spans it is held until %v", v.Until)
	}
}

func ExampleGate_Judge() {
	nights := spans{{100, 200}, {300, 400}}
	windows := []*window.Expanded{
		window.Window{Name: "nights", Only: true, Source: nights, Exempt: []string{"check.*"}}.Expand(second(0), second(1000)),
		window.Window{Name: "freeze", Mode: window.Refuse, Source: spans{{150, 350}}}.Expand(second(0), second(1000)),
	}
	g := window.NewGate(second(0), second(1000), windows, nil)
	for _, n := range []int{50, 120, 160, 360} {
		v := g.Judge(window.Start{Procedure: "base.apply"}, second(n))
		fmt.Print(v.May(), " until ", v.Until.Sub(epoch), ";")
		for _, o := range v.Obstacles {
			fmt.Print(" ", o.Mode, " by ", o.Window)
		}
		fmt.Println()
	}
	fmt.Println(g.Judge(window.Start{Procedure: "check.disk"}, second(50)).May())
	// Output:
	// false until 1m40s; hold by nights
	// true until 2m30s;
	// false until 5m50s; refuse by freeze
	// true until 6m40s;
	// true
}

// BenchmarkJudge is a claim against a hundred windows of a day.
func BenchmarkJudge(b *testing.B) {
	var windows []*window.Expanded
	for i := range 100 {
		w := window.Window{Name: fmt.Sprint(i), Only: i%10 == 0, Source: spans{{1000 * i, 1000*i + 500}, {3_600 * 20, 3_600 * 22}}, Exempt: []string{"check.*"}}
		windows = append(windows, w.Expand(second(0), second(86_400)))
	}
	g := window.NewGate(second(0), second(86_400), windows, nil)
	b.ReportAllocs()
	for b.Loop() {
		g.Judge(window.Start{Procedure: "base.apply"}, second(700))
	}
}
