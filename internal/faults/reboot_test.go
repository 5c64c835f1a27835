//go:build linux && !race

package faults

import (
	"context"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/faults/actor"
	"github.com/harpcaller/harp/internal/faults/witness"
)

// rebooting are the steps of a rollout. One asks for a reboot by a file, as its machine is one of the test's.
const rebooting = `
install:
  params: {witness: {type: path, required: true}, bad: {type: string, required: true}}
  command: [/bin/sh, -c, 'echo "begin $HARP_JOB $HARP_ATTEMPT $$ sh 0" >> "$1"; test "$HARP_HOST" != "$2"', sh, "{{.witness}}", "{{.bad}}"]
reboot:
  params: {witness: {type: path, required: true}, asked: {type: path, required: true}}
  command: [/bin/sh, -c, 'echo "begin $HARP_JOB $HARP_ATTEMPT $$ sh 0" >> "$1"; touch "$2/$HARP_HOST"', sh, "{{.witness}}", "{{.asked}}"]
  ends: reboot
check:
  params: {witness: {type: path, required: true}}
  command: [/bin/sh, -c, 'echo "begin $HARP_JOB $HARP_ATTEMPT $$ sh 0" >> "$1"', sh, "{{.witness}}"]
`

// T23: a chain installs, reboots and checks. One host fails to install, and the dispatcher is killed while the others are down. Each of
// these is checked once, when it is back; of the one that failed the other two steps did not run.
func TestKillDispatcherDuringReboots(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.Program = mutant{{
		"agent/internal/proc/procfs_linux.go", `os.ReadFile("/proc/sys/kernel/random/boot_id")`,
		`os.ReadFile(map[bool]string{true: "/proc/sys/kernel/random/boot_id", false: os.Getenv("` + actor.BootEnv + `")}[os.Getenv("` + actor.BootEnv + `") == ""])`,
	}}.build(t)
	f.Agent.Procedures, f.Agent.Boot = t.TempDir(), t.TempDir()
	must(t, os.WriteFile(filepath.Join(f.Agent.Procedures, "rollout.yaml"), []byte(rebooting), 0o600))
	hosts := names(pick(6, 20))
	for _, host := range hosts {
		bootAnew(t, f, host)
	}
	all, _ := started(t, f, 1, len(hosts))
	caller, bad, asked := all[0], hosts[len(hosts)/2], t.TempDir()
	batch, err := caller.Target("host*").Chain(t.Context(), []harp.Step{
		{Procedure: "install", Args: harp.Args{"witness": f.WitnessFile(), "bad": bad}},
		{Procedure: "reboot", Args: harp.Args{"witness": f.WitnessFile(), "asked": asked}},
		{Procedure: "check", Args: harp.Args{"witness": f.WitnessFile()}},
	}, harp.Parallel(len(hosts)/2))
	must(t, err)
	kills := rebootAll(t, f, batch, asked)
	checkRollout(t, f, batch, hosts, bad)
	must(t, f.Stop())
	if kills < 3 {
		t.Errorf("the run is void: the dispatcher was killed %d times", kills)
	}
	report.Note(t.Name(), "hosts", len(hosts))
	report.Note(t.Name(), "kills of the dispatcher during reboots", kills)
}

// bootAnew gives the machine of a host another boot.
func bootAnew(t *testing.T, f *Fleet, host string) {
	t.Helper()
	must(t, os.WriteFile(filepath.Join(f.Agent.Boot, host), []byte(harp.NewID()), 0o600))
}

// rebootAll has machines go down that were asked to, and come back, until the batch has ended. The dispatcher is killed while they are down:
// every second time it is back before them. It returns how often that was.
func rebootAll(t *testing.T, f *Fleet, batch *harp.Batch, asked string) (kills int) {
	t.Helper()
	r := rand.New(rand.NewPCG(report.Seed, 83))
	ctx, cancel := context.WithTimeout(t.Context(), batchWithin)
	defer cancel()
	for {
		s, err := batch.Status(ctx)
		must(t, err)
		if s.State.Ended() {
			return kills
		}
		between(r, 50*time.Millisecond, 300*time.Millisecond)
		marks, err := os.ReadDir(asked)
		must(t, err)
		marks = marks[:min(len(marks), 2)] // the dispatcher is killed for each two, however many were seen at once
		for _, m := range marks {
			must(t, f.KillAgent(m.Name()))
			must(t, os.Remove(filepath.Join(asked, m.Name())))
			bootAnew(t, f, m.Name())
		}
		isKilled := len(marks) > 0 && kills < 10
		if isKilled {
			kills++
			f.KillDispatcher()
		}
		isFirst := r.IntN(2) == 0
		if isKilled && isFirst {
			must(t, f.StartDispatcher())
		}
		for _, m := range marks {
			must(t, f.StartAgent(m.Name()))
		}
		if isKilled && !isFirst {
			must(t, f.StartDispatcher())
		}
	}
}

// checkRollout holds the chain against what the commands have witnessed.
func checkRollout(t *testing.T, f *Fleet, batch *harp.Batch, hosts []string, bad string) {
	t.Helper()
	lines, err := witness.Read(f.WitnessFile())
	must(t, err)
	ran := map[string]int{}
	for _, l := range lines {
		ran[l.Job]++
	}
	told := map[string]int{}
	for r, err := range batch.Results(t.Context()) {
		must(t, err)
		told[r.Host] = r.Step
		if want := map[bool]harp.State{true: harp.StateFailed, false: harp.StateSucceeded}[r.Host == bad]; r.State != want {
			t.Errorf("%s is %s in step %d: %v", r.Host, r.State, r.Step, r.Err)
		}
	}
	for _, host := range hosts {
		want, last := []int{1, 1, 1}, 3
		if host == bad {
			want, last = []int{1, 0, 0}, 1
		}
		var got []int
		for step := range 3 {
			job := batch.Job(host, step+1)
			got = append(got, ran[job.ID()])
			s, err := job.Status(t.Context())
			must(t, err)
			isOff := want[step] == 0
			if isOff != (s.State == harp.StateCancelled && s.Reason == "chain" && s.Attempt == 0) {
				t.Errorf("step %d of %s is %s(%s), attempt %d", step+1, host, s.State, s.Reason, s.Attempt)
			}
		}
		if !slices.Equal(got, want) || told[host] != last {
			t.Errorf("the steps of %s ran %v times, want %v; its result is of step %d", host, got, want, told[host])
		}
	}
}
