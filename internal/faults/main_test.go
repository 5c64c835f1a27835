//go:build linux && !race

package faults

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/harpcaller/harp"
)

var (
	long    = os.Getenv("HARP_FAULTS") == "long"
	report  = &Report{Form: "short"}
	program string // what processes run
)

func TestMain(m *testing.M) {
	os.Exit(run(m))
}

// programEnv names a program that is built already.
const programEnv = "HARP_FAULTS_PROGRAM"

// run builds the program and writes the figures.
func run(m *testing.M) int {
	if long {
		report.Form = "long"
	}
	report.Seed = rand.Uint64N(1 << 32)
	if given, err := strconv.ParseUint(os.Getenv("HARP_FAULTS_SEED"), 10, 64); err == nil {
		report.Seed = given
	}
	if out, err := exec.Command("git", "rev-parse", "--short", "HEAD").Output(); err == nil {
		report.Commit = strings.TrimSpace(string(out))
	}
	dir, err := os.MkdirTemp("", "harp-faults-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir) //nolint:errcheck // what is left is in the directory of temporary files
	if program = os.Getenv(programEnv); program == "" {
		program = filepath.Join(dir, "actor")
		if err := build(context.Background(), program, ""); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	code := m.Run()
	if path := os.Getenv("HARP_FAULTS_REPORT"); path != "" {
		if err := report.Write(path); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	return code
}

// build builds the program, with files of the source replaced as the overlay says.
func build(ctx context.Context, to, overlay string) error {
	args := []string{"build", "-ldflags=-s -w", "-o", to} // which take a third of the time that linking takes
	if overlay != "" {
		args = append(args, "-overlay", overlay)
	}
	cmd := exec.CommandContext(ctx, "go", append(args, "./cmd")...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build: %w\n%s", err, out)
	}
	return nil
}

// pick is how much of something there is in the short and in the long form.
func pick[T any](inShort, inLong T) T {
	if long {
		return inLong
	}
	return inShort
}

// newFleet prepares a fleet that is killed at the end of the test. Its logs are
// shown when the test fails.
func newFleet(t *testing.T) *Fleet {
	t.Helper()
	f, err := NewFleet(t.TempDir(), program)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		f.Kill()
		if t.Failed() {
			t.Logf("repeat with HARP_FAULTS_SEED=%d at commit %s", report.Seed, report.Commit)
			showLogs(t, f)
		}
	})
	return f
}

// showLogs shows the end of each process's log.
func showLogs(t *testing.T, f *Fleet) {
	logs, err := filepath.Glob(filepath.Join(f.Dir, "*.log"))
	if err != nil {
		t.Error(err)
	}
	for _, path := range logs {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Error(err)
		}
		const most = 4000
		t.Logf("%s ends with:\n%s", filepath.Base(path), data[max(0, len(data)-most):])
	}
}

// must ends the test with an error.
func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// callers connects so many callers.
func callers(t *testing.T, f *Fleet, n int) []*harp.Caller {
	t.Helper()
	var all []*harp.Caller
	for i := range n {
		c, err := f.Dial(t.Context(), fmt.Sprintf("caller%d", i))
		must(t, err)
		t.Cleanup(func() { _ = c.Close() })
		all = append(all, c)
	}
	return all
}

// started starts the dispatcher of a fleet and agents of so many hosts, and connects so many callers.
func started(t *testing.T, f *Fleet, ofCallers, ofHosts int) (all []*harp.Caller, hosts []string) {
	t.Helper()
	must(t, f.StartDispatcher())
	all, hosts = callers(t, f, ofCallers), names(ofHosts)
	startAgents(t, f, all[0], hosts...)
	return all, hosts
}

// startAgents starts agents and waits until the dispatcher has each of them.
func startAgents(t *testing.T, f *Fleet, caller *harp.Caller, names ...string) {
	t.Helper()
	for _, name := range names {
		must(t, f.StartAgent(name))
	}
	for _, name := range names {
		waitOnline(t, caller, name)
	}
}

// waitOnline waits until a host is online: there is no signal for that outside of
// the dispatcher.
func waitOnline(t *testing.T, caller *harp.Caller, name string) {
	t.Helper()
	eventually(t, "host "+name+" is online", func() bool {
		h, err := caller.Hosts().Get(t.Context(), name)
		return err == nil && h.Online
	})
}

// eventually waits for something that another process does and says to nobody.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	deadline := time.Now().Add(readyWithin)
	for !is() {
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %s", readyWithin, what)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// settleWithin is how long everything has to come to rest, on a machine that is busy.
var settleWithin = pick(2*time.Minute, 20*time.Minute)

// settled waits until all is at rest, stops the fleet and returns what was broken.
func settled(t *testing.T, f *Fleet, caller *harp.Caller) []string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), settleWithin)
	defer cancel()
	Settle(ctx, f, caller)
	var broken []string
	if err := f.Stop(); err != nil {
		broken = append(broken, err.Error())
	}
	must(t, f.ReadWitness())
	for _, v := range f.History.Check() {
		broken = append(broken, v.String())
	}
	return broken
}

// holds is settled, and fails the test for what was broken.
func holds(t *testing.T, f *Fleet, caller *harp.Caller) {
	t.Helper()
	complain(t, settled(t, f, caller))
}

// complain shows some of what was broken.
func complain(t *testing.T, broken []string) {
	t.Helper()
	for i, text := range broken {
		if i == 20 {
			t.Errorf("and %d more", len(broken)-i)
			break
		}
		t.Error(text)
	}
}

// loaded fails a test whose faults met too little load to mean anything: in the short
// form too few calls, as the machine may have much else to do, in the long form too few
// in a second.
func loaded(t *testing.T, l *Load, took time.Duration) {
	t.Helper()
	const floor = 100
	rate := float64(l.Calls()) / took.Seconds()
	report.Note(t.Name(), "calls", l.Calls())
	report.Note(t.Name(), "calls/s", int(rate))
	outcomes(t, l.Fleet)
	if n := pick(float64(l.Calls()), rate); n < floor && !t.Failed() {
		t.Errorf("the run is void: %.0f calls, %.0f a second, under faults; %d are wanted", float64(l.Calls()), rate, floor)
	}
}

// outcomes notes how the jobs ended.
func outcomes(t *testing.T, f *Fleet) {
	t.Helper()
	n := map[string]int{}
	for _, c := range f.History.Calls() {
		if c.Final != nil && c.Final.Err == nil {
			n[string(c.Final.Status.State)]++
		}
	}
	report.Note(t.Name(), "outcomes", n)
	report.Note(t.Name(), "executions", len(f.History.Witness))
	t.Logf("%d calls acknowledged, jobs ended as %v", f.History.Acked(), n)
}
