// Package report says what was measured: as JSON, as a table and as a page with
// plots.
package report

import (
	"encoding/json"
	"math"
	"os"
	"slices"
	"time"

	"github.com/harpcaller/harp/bench/internal/lab"
	"github.com/harpcaller/harp/bench/internal/measure"
)

// Report is what was measured in one run.
type Report struct {
	Machine lab.Machine      `json:"machine"`
	Args    []string         `json:"args"`
	Began   time.Time        `json:"began"`
	Took    time.Duration    `json:"took"`
	Results []measure.Result `json:"results"`
}

// New returns a report in which nothing is yet.
func New(m lab.Machine, args []string) *Report {
	return &Report{Machine: m, Args: args, Began: time.Now()}
}

// Read reads what Write has written.
func Read(path string) (*Report, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	r := &Report{}
	return r, json.Unmarshal(b, r)
}

// Write writes the report as JSON.
func (r *Report) Write(path string) error {
	b, err := json.MarshalIndent(r, "", "\t")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(b, '\n'), 0o644) //nolint:gosec // for everybody to read
}

// Spread is the median of some values, with the least and the most.
type Spread struct {
	Median, Min, Max float64
	N                int
}

func spread(values []float64) Spread {
	if len(values) == 0 {
		return Spread{}
	}
	slices.Sort(values)
	return Spread{measure.Quantile(values, 0.5), values[0], values[len(values)-1], len(values)}
}

// value is what was measured of a metric at a point.
func value(t measure.Taken, point int, metric string) Spread {
	var values []float64
	for _, r := range t.Rounds[point] {
		if v, ok := r.Sample[metric]; ok {
			values = append(values, v)
		}
	}
	return spread(values)
}

// ratio is how much better a is than b: above 1 it is better, whether more or less
// of the metric is. It is made round by round.
func ratio(a, b measure.Taken, point int, m measure.Metric) Spread {
	var values []float64
	for _, x := range a.Rounds[point] {
		i := slices.IndexFunc(b.Rounds[point], func(y measure.Round) bool { return y.Round == x.Round })
		if i < 0 {
			continue
		}
		mine, ok1 := x.Sample[m.Name]
		theirs, ok2 := b.Rounds[point][i].Sample[m.Name]
		if m.Lower {
			mine, theirs = theirs, mine
		}
		if q := mine / theirs; ok1 && ok2 && !math.IsNaN(q) && !math.IsInf(q, 0) {
			values = append(values, q)
		}
	}
	return spread(values)
}

// points are the sizes of work of a result, in order.
func points(r measure.Result) []int {
	seen := map[int]bool{}
	for _, t := range r.Subjects {
		for p := range t.Rounds {
			seen[p] = true
		}
	}
	var all []int
	for p := range seen {
		all = append(all, p)
	}
	slices.Sort(all)
	return all
}
