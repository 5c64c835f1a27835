//go:build linux

package faults

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"sort"
	"strings"
	"sync"
	"time"
)

// Report is the figures of a run.
type Report struct {
	Commit string
	Seed   uint64
	Form   string

	mu    sync.Mutex // guards what follows
	tests map[string]map[string]any
}

// Note adds a figure of a test.
func (r *Report) Note(test, figure string, value any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.tests == nil {
		r.tests = map[string]map[string]any{}
	}
	if r.tests[test] == nil {
		r.tests[test] = map[string]any{}
	}
	r.tests[test][figure] = value
}

// Write writes the figures as JSON, and as a table in Markdown beside it.
func (r *Report) Write(path string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	data, err := json.MarshalIndent(map[string]any{
		"commit": r.Commit, "seed": r.Seed, "form": r.Form, "tests": r.tests,
	}, "", "  ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(path, append(data, '\n'), 0o644); err != nil {
		return err
	}
	return os.WriteFile(strings.TrimSuffix(path, ".json")+".md", []byte(r.table()), 0o644)
}

func (r *Report) table() string {
	var b strings.Builder
	fmt.Fprintf(&b, "Commit %s, seed %d, %s form.\n\n| test | figures |\n|---|---|\n", r.Commit, r.Seed, r.Form)
	for _, test := range slices.Sorted(maps.Keys(r.tests)) {
		var words []string
		for _, figure := range slices.Sorted(maps.Keys(r.tests[test])) {
			words = append(words, fmt.Sprintf("%s: %v", figure, r.tests[test][figure]))
		}
		fmt.Fprintf(&b, "| %s | %s |\n", test, strings.Join(words, "; "))
	}
	return b.String()
}

// Times are how long something took, again and again.
type Times []time.Duration

// Quantile is the time that this part of them did not exceed.
func (t Times) Quantile(q float64) time.Duration {
	if len(t) == 0 {
		return 0
	}
	sorted := slices.Clone(t)
	sort.Slice(sorted, func(i, j int) bool { return sorted[i] < sorted[j] })
	return sorted[min(int(q*float64(len(sorted))), len(sorted)-1)]
}

func (t Times) String() string {
	return fmt.Sprintf("p50 %v, p99 %v, most %v", t.Quantile(0.5).Round(time.Millisecond),
		t.Quantile(0.99).Round(time.Millisecond), t.Quantile(1).Round(time.Millisecond))
}
