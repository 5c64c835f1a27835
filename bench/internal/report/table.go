package report

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/harpcaller/harp/bench/internal/measure"
)

// Table writes the report for people.
func (r *Report) Table(to io.Writer) error {
	w := &strings.Builder{}
	fmt.Fprintf(w, "%s\n", r.where())
	for _, result := range r.Results {
		fmt.Fprintf(w, "\n%s: %s; %s\n", result.Workload, result.What, rounds(result))
		t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
		for _, row := range rows(result) {
			if _, err := fmt.Fprintln(t, "  "+strings.Join(row, "\t")); err != nil {
				return err
			}
		}
		if err := t.Flush(); err != nil {
			return err
		}
		for _, line := range append(named(result), missing(result)...) {
			fmt.Fprintf(w, "  %s\n", line)
		}
	}
	_, err := io.WriteString(to, w.String())
	return err
}

func (r *Report) where() string {
	return fmt.Sprintf("%s/%s, %d CPUs, %s, a write of 4 KiB with fsync takes %s; %s, %s",
		r.Machine.OS, r.Machine.Arch, r.Machine.CPUs, r.Machine.Go, r.Machine.Fsync.Round(time.Microsecond),
		r.Began.UTC().Format("2006-01-02 15:04"), r.Took.Round(time.Second))
}

// rows are the lines of a result's table, the first of them its head. The last
// column of each metric is how many times better the first subject is, if there are
// others.
func rows(r measure.Result) [][]string {
	if len(r.Subjects) == 0 {
		return nil
	}
	first := r.Subjects[0]
	compared := len(r.Subjects) > 1
	head := []string{r.Axis, "subject"}
	for _, m := range r.Metrics {
		head = append(head, m.Name, "min..max")
		if compared {
			head = append(head, first.Name+" is better by")
		}
	}
	out := [][]string{head}
	for _, p := range points(r) {
		for i, t := range r.Subjects {
			if len(t.Rounds[p]) == 0 {
				continue
			}
			row := []string{number(float64(p)), t.Name}
			for _, m := range r.Metrics {
				all := cells(first, t, i > 0, p, m)
				if !compared {
					all = all[:len(all)-1]
				}
				row = append(row, all...)
			}
			out = append(out, row)
		}
	}
	return out
}

// cells are what a row says of one metric.
func cells(first, t measure.Taken, compare bool, point int, m measure.Metric) []string {
	v := value(t, point, m.Name)
	if v.N == 0 {
		return []string{"-", "", ""}
	}
	out := []string{number(v.Median) + " " + m.Unit, number(v.Min) + ".." + number(v.Max), ""}
	if q := ratio(first, t, point, m); compare && q.N > 0 {
		out[2] = fmt.Sprintf("%.2fx (%.2f..%.2f)", q.Median, q.Min, q.Max)
	}
	return out
}

// number writes three digits, and groups those of large numbers.
func number(v float64) string {
	switch {
	case v >= 1000:
		digits := strconv.FormatFloat(v, 'f', 0, 64)
		for i := len(digits) - 3; i > 0; i -= 3 {
			digits = digits[:i] + "," + digits[i:]
		}
		return digits
	case v >= 100:
		return strconv.FormatFloat(v, 'f', 0, 64)
	}
	return strconv.FormatFloat(v, 'g', 3, 64)
}

// named are sentences about subjects that are to be named.
func named(r measure.Result) []string {
	var out []string
	for _, n := range r.Named {
		i := slices.IndexFunc(r.Subjects, func(t measure.Taken) bool { return t.Name == n.Subject })
		if i < 1 {
			continue
		}
		first, m := r.Subjects[0], r.Metrics[0]
		if q := ratio(first, r.Subjects[i], n.At, m); q.N > 0 {
			out = append(out, fmt.Sprintf("At %s %s, %s : %s is %.2f (%.2f..%.2f) by %s: %s.",
				number(float64(n.At)), r.Axis, first.Name, n.Subject, q.Median, q.Min, q.Max, m.Name, n.Why))
		}
	}
	return out
}

// rounds says how often subjects took their turn, at most.
func rounds(r measure.Result) string {
	n := 0
	for _, t := range r.Subjects {
		for _, all := range t.Rounds {
			n = max(n, len(all))
		}
	}
	if n == 1 {
		return "1 round"
	}
	return strconv.Itoa(n) + " rounds"
}

func missing(r measure.Result) []string {
	var out []string
	for _, t := range r.Subjects {
		if t.Missing != "" {
			out = append(out, t.Name+": "+t.Missing)
		}
	}
	return out
}
