package main

import (
	"io"
	"maps"
	"os"
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/harpcaller/harp/bench/internal/lab"
	"github.com/harpcaller/harp/bench/internal/measure"
)

func TestMain(m *testing.M) {
	if lab.IsChild() {
		exit(lab.RunChild(roles))
	}
	os.Exit(m.Run())
}

// needs are subjects that need servers which may not be there, or a go command that
// has built the peers before, or minutes.
var needs = regexp.MustCompile(`asynq|River|Redis|^import|^idle|^fan|^stored`)

// TestSmoke lets all others work once, a little.
func TestSmoke(t *testing.T) {
	l, err := lab.New(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	l.Quick = true
	for _, w := range workloads() {
		w.Points = []int{map[string]int{"live-records": 1000, "replay": 1000}[w.Name]}
		if w.Points[0] == 0 {
			w.Points[0] = 4
		}
		w.Subjects = slices.DeleteFunc(w.Subjects, func(s measure.Subject) bool { return needs.MatchString(w.Name + "/" + s.Name) })
		if len(w.Subjects) == 0 {
			continue
		}
		t.Run(w.Name, func(t *testing.T) {
			p := measure.Plan{Lab: l, Rounds: 1, For: 200 * time.Millisecond, Log: io.Discard}
			r, err := p.Run(t.Context(), w)
			if err != nil {
				t.Fatal(err)
			}
			for _, s := range r.Subjects {
				if s.Missing != "" || s.Rounds[w.Points[0]] == nil {
					t.Errorf("%s: %s %v", s.Name, s.Missing, s.Rounds)
				}
			}
		})
	}
}

// TestChoose: -run and -skip select workloads, and subjects of them.
func TestChoose(t *testing.T) {
	names := func(only, skip string) map[string]int {
		ws, err := choose(workloads(), only, skip)
		if err != nil {
			t.Fatal(err)
		}
		n := map[string]int{}
		for _, w := range ws {
			n[w.Name] = len(w.Subjects)
		}
		return n
	}
	if got := names("^direct-call/(harp|gRPC)$", ""); !maps.Equal(got, map[string]int{"direct-call": 2}) {
		t.Error(got)
	}
	if got := names("records", "durable"); !maps.Equal(got, map[string]int{"live-records": 2}) {
		t.Error(got)
	}
}

// TestNames: what is measured has names that -run can tell apart.
func TestNames(t *testing.T) {
	seen := map[string]bool{}
	for _, w := range workloads() {
		for _, s := range w.Subjects {
			if name := w.Name + "/" + s.Name; seen[name] {
				t.Error(name, "is there twice")
			} else {
				seen[name] = true
			}
		}
		if len(w.Quick) == 0 || len(w.Points) == 0 || len(w.Metrics) == 0 {
			t.Error(w.Name, "is not complete")
		}
	}
}
