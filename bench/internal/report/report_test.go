package report

import (
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/harpcaller/harp/bench/internal/lab"
	"github.com/harpcaller/harp/bench/internal/measure"
)

func taken(name string, rates ...float64) measure.Taken {
	t := measure.Taken{Name: name, Rounds: map[int][]measure.Round{}}
	for i, rate := range rates {
		t.Rounds[16] = append(t.Rounds[16], measure.Round{Round: i, Sample: measure.Sample{"rate": rate, "p50": 1 / rate}})
	}
	return t
}

// TestRatio: ratios are of samples of one round, above 1 where the first is better,
// also of what is better when there is less of it.
func TestRatio(t *testing.T) {
	a, b := taken("a", 10, 40, 30), taken("b", 10, 10, 15)
	for _, m := range []measure.Metric{measure.Rate, measure.P50} {
		if got := ratio(a, b, 16, m); got != (Spread{Median: 2, Min: 1, Max: 4, N: 3}) {
			t.Errorf("%s: %+v", m.Name, got)
		}
	}
	b.Rounds[16] = b.Rounds[16][1:]
	if got := ratio(a, b, 16, measure.Rate); got != (Spread{Median: 3, Min: 2, Max: 4, N: 2}) {
		t.Errorf("without the first round: %+v", got)
	}
}

func report() *Report {
	r := New(lab.Machine{OS: "linux"}, []string{"-quick"})
	a := taken("a<b>", 1234567, 2345678)
	a.Rounds[256] = a.Rounds[16]
	gone := measure.Taken{Name: "gone", Missing: "it is not installed"}
	r.Results = []measure.Result{{
		Workload: "work", What: "do it", Axis: "in flight", Metrics: []measure.Metric{measure.Rate, measure.P50},
		Subjects: []measure.Taken{a, taken("b", 1000, 2000), gone},
		Named:    []measure.Named{{Subject: "b", At: 16, Why: "so it is"}, {Subject: "gone", At: 16}},
	}}
	return r
}

func TestTable(t *testing.T) {
	var b strings.Builder
	if err := report().Table(&b); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"1,790,122 /s", "1,234,567..2,345,678", "1203.70x (1172.84..1234.57)", "gone: it is not installed", "do it; 2 rounds\n",
		"At 16 in flight, a<b> : b is 1203.70 (1172.84..1234.57) by rate: so it is.",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("%q is not in\n%s", want, b.String())
		}
	}
}

// TestPage: a page keeps what is around the results, and has them once.
func TestPage(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "page.md")
	if err := os.WriteFile(path, []byte("before\n"+from+"\nold\n"+to+"\nafter\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := report().WritePage(path); err != nil {
			t.Fatal(err)
		}
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	page := string(b)
	if !strings.HasPrefix(page, "before\n") || !strings.HasSuffix(page, "\nafter\n") ||
		strings.Contains(page, "old") || strings.Count(page, "## work") != 1 {
		t.Errorf("the page is\n%s", page)
	}
	for _, want := range []string{"Do it. 2 rounds. To repeat: `cd bench && go run . -run '^work$'`.\n", "\nAt 16 in flight, a<b> : b is 1203.70"} {
		if !strings.Contains(page, want) {
			t.Errorf("%q is not in\n%s", want, page)
		}
	}
	if strings.Contains(page, "a<b> : gone") {
		t.Error("what was not measured is compared")
	}
	checkXML(t, filepath.Join(dir, "performance-work.svg"))
	if err := os.WriteFile(path, []byte("no place"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := report().WritePage(path); err == nil {
		t.Error("a page without a place for results was written")
	}
}

// TestIntroIsThePages: a page that is made anew begins as the one in docs does.
func TestIntroIsThePages(t *testing.T) {
	b, err := os.ReadFile("../../../docs/performance.md")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(string(b), intro+from) {
		t.Error("docs/performance.md begins otherwise than a new page")
	}
}

func checkXML(t *testing.T, path string) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for d := xml.NewDecoder(f); ; {
		_, err := d.Token()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// TestPlot: each metric has a panel of its own.
func TestPlot(t *testing.T) {
	svg := string(plot(report().Results[0]))
	for _, want := range []string{">work: rate (/s)<", ">work: p50 (ms)<", `viewBox="0 0 760 640"`, ">a&lt;b&gt;<"} {
		if !strings.Contains(svg, want) {
			t.Errorf("%q is not in\n%s", want, svg)
		}
	}
}

// TestNothingToCompare: with one subject there is no column for the others.
func TestNothingToCompare(t *testing.T) {
	r := report().Results[0]
	r.Subjects = r.Subjects[1:2]
	for _, row := range rows(r) {
		if len(row) != 2+2*len(r.Metrics) || slices.Contains(row, "b is better by") {
			t.Errorf("%q", row)
		}
	}
}

func TestWriteRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "r.json")
	if err := report().Write(path); err != nil {
		t.Fatal(err)
	}
	r, err := Read(path)
	if err != nil {
		t.Fatal(err)
	}
	if got := value(r.Results[0].Subjects[1], 16, "rate"); got != (Spread{1500, 1000, 2000, 2}) {
		t.Errorf("%+v", got)
	}
	if got := points(r.Results[0]); !slices.Equal(got, []int{16, 256}) {
		t.Error(got)
	}
}
