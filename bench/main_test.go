package main

import (
	"context"
	"io"
	"maps"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/harpcaller/harp/bench/internal/lab"
	"github.com/harpcaller/harp/bench/internal/measure"
)

func TestMain(m *testing.M) {
	if lab.IsChild() {
		exit(lab.RunChild(roles))
	}
	if os.Getenv(asBench) != "" {
		exit(run(context.Background()))
	}
	os.Exit(m.Run())
}

// asBench is a variable of the environment that lets the test's program be bench.
const asBench = "HARP_BENCH_AS_BENCH"

// needs are subjects that need servers which may not be there, or a go command that
// has built the peers before, or minutes.
var needs = regexp.MustCompile(`asynq|River|Redis|^import|^idle|^restart|^fan|^stored`)

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
	if got := names("records", "durable"); !maps.Equal(got, map[string]int{"live-records": 3}) {
		t.Error(got)
	}
	if got := names("", "^(durable|live|import|replay|idle|restart|fan|stored)"); len(got) != 1 || got["direct-call"] == 0 {
		t.Error(got)
	}
}

// TestChooseWhatThePageSays: the pattern that docs/performance.md gives for a workload selects
// it with all its subjects, and leaves it out.
func TestChooseWhatThePageSays(t *testing.T) {
	all := workloads()
	for _, w := range all {
		pattern := "^" + w.Name + "$"
		got, err := choose(all, pattern, "")
		if err != nil || len(got) != 1 || got[0].Name != w.Name || len(got[0].Subjects) != len(w.Subjects) {
			t.Errorf("-run %s: %d workloads, %v", pattern, len(got), err)
		}
		got, err = choose(all, "", pattern)
		if err != nil || len(got) != len(all)-1 {
			t.Errorf("-skip %s: %d workloads, %v", pattern, len(got), err)
		}
	}
}

// TestChooseNothing: a selection of nothing ends bench with 2 and says what there is, before
// anything is measured.
func TestChooseNothing(t *testing.T) {
	const names = "\n  durable-job\n"
	for _, c := range []struct {
		args []string
		says string
	}{
		{[]string{"-run", "^durable-jobs$"}, names},
		{[]string{"-skip", "."}, names},
		{[]string{"-list", "-run", "nobody"}, names},
		{[]string{"-run", "("}, "-run: error parsing regexp"},
		{[]string{"-at", "none"}, "sizes are whole numbers"},
		{[]string{"durable-job"}, "is no flag"},
	} {
		t.Run(strings.Join(c.args, " "), func(t *testing.T) {
			self, err := os.Executable()
			if err != nil {
				t.Fatal(err)
			}
			cmd := exec.CommandContext(t.Context(), self, c.args...)
			cmd.Env = append(os.Environ(), asBench+"=1")
			cmd.Dir = t.TempDir()
			out, err := cmd.CombinedOutput()
			if cmd.ProcessState.ExitCode() != 2 || !strings.Contains(string(out), c.says) {
				t.Errorf("%v, want exit status 2 and %q:\n%s", err, c.says, out)
			}
		})
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
		for _, n := range w.Named {
			if !slices.Contains(w.Points, n.At) || !seen[w.Name+"/"+n.Subject] {
				t.Error(w.Name, "names", n.Subject, "at", n.At, "which is not measured")
			}
		}
	}
}
