//go:build linux && !race

package faults

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/faults/actor"
	"github.com/harpcaller/harp/internal/faults/witness"
)

// T14: the dispatcher is killed again and again while schedules have a time each second: of one all fire, however late,
// of one those that may, and of one runs last for longer than a second. Each time fires once, or the ledger says why not, and
// what was fired has run, as the witness says.
func TestKillDispatcherOfSchedules(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	connected, _ := started(t, f, 1, 1)
	caller := connected[0]
	const each = "* * * * * *"
	all := []harp.Schedule{
		{Name: "all", Cron: each, Overlap: harp.OverlapAllow, CatchUpMost: 1000},
		{Name: "last", Cron: each, Overlap: harp.OverlapAllow},
		{Name: "slow", Cron: each, Overlap: harp.OverlapQueue},
	}
	putSchedules(t, caller, all)
	kills := pick(6, 200)
	killDispatcher(t, f, rand.New(rand.NewPCG(report.Seed, 79)), kills, 2*time.Second, 1500*time.Millisecond)
	pauseTimes(t, caller, all)
	times, fires := 0, 0
	for _, s := range all {
		n, fired := checkLedger(t, f, caller, s.Name)
		times, fires = times+n, fires+fired
	}
	if times < kills || fires < kills {
		t.Errorf("%d times in all, of which %d fired", times, fires)
	}
	t.Logf("%d times, of which %d fired", times, fires)
	report.Note(t.Name(), "times", times)
	report.Note(t.Name(), "fired", fires)
}

// putSchedules puts schedules that have the procedure work run: of "bad" it fails, and of "slow" it takes longer than a second.
func putSchedules(t *testing.T, caller *harp.Caller, all []harp.Schedule) {
	t.Helper()
	for _, s := range all {
		var args actor.Args
		switch s.Name {
		case "bad":
			args.Fail = []string{"host00"}
		case "slow":
			args.Sleep = 1500 * time.Millisecond
		}
		var err error
		s.Request, err = harp.NewBatchRequest("host*", actor.Work, args, harp.OfflineWait(harp.NoLimit))
		must(t, err)
		must(t, caller.Schedules().Put(t.Context(), s))
	}
}

// pauseTimes pauses the schedules that have times.
func pauseTimes(t *testing.T, caller *harp.Caller, all []harp.Schedule) {
	t.Helper()
	for _, s := range all {
		if s.Cron != "" {
			must(t, caller.Schedules().Pause(t.Context(), s.Name, "", time.Time{}))
		}
	}
}

// checkLedger compares the ledger of a schedule that has a time each second with the witness, and returns how many times there were, and
// how many of them fired.
func checkLedger(t *testing.T, f *Fleet, caller *harp.Caller, name string) (times, fired int) {
	t.Helper()
	s, err := caller.Schedules().Get(t.Context(), name)
	must(t, err)
	told := map[int64][]string{} // what is told of each second
	jobs := map[string]bool{}
	count := 0
	for e, err := range caller.Schedules().Ledger(t.Context(), harp.LedgerFilter{Schedule: name}) {
		must(t, err)
		if e.Outcome == harp.TimeFired {
			b := caller.Batch(e.Batch)
			status, err := b.Wait(t.Context())
			must(t, err)
			if status.State != harp.BatchSucceeded || status.Schedule != name {
				t.Errorf("%s: the run of %v is %s(%s)", name, e.From, status.State, status.Reason)
			}
			jobs[b.Job("host00").ID()] = true
			fired++
		} else if e.Reason == "" || e.Outcome == harp.TimeFailed {
			t.Errorf("%s: %v is %s(%s): %v", name, e.From, e.Outcome, e.Reason, e.Err)
		}
		for at := e.From; !at.After(e.To); at = at.Add(time.Second) {
			told[at.Unix()] = append(told[at.Unix()], string(e.Outcome))
		}
		count += e.Count
	}
	for at := s.Changed.Truncate(time.Second).Add(time.Second); !at.After(s.Through); at = at.Add(time.Second) {
		if at.Equal(s.Waiting) {
			continue
		}
		times++
		is := told[at.Unix()]
		fires := slices.Index(is, string(harp.TimeFired))
		switch {
		case len(is) == 0:
			t.Errorf("%s: of %v nothing is told", name, at)
		case len(is) > 1 && (name != "slow" || fires >= 0 && slices.Contains(is[fires+1:], is[fires])): // where times wait, runs of others go on around them
			t.Errorf("%s: %v is %v", name, at, is)
		case name == "all" && fires < 0 && (s.Pause == nil || at.Before(s.Pause.Since)): // the next second may come before it is asked for
			t.Errorf("%s: %v did not fire: it is %v", name, at, is)
		}
	}
	if count != times {
		t.Errorf("%s: of %d times %d are told", name, times, count)
	}
	lines, err := witness.Read(f.WitnessFile())
	must(t, err)
	ran := map[string]int{}
	for _, l := range lines {
		if l.What == witness.Begin && jobs[l.Job] {
			ran[l.Job]++
		}
	}
	for job := range jobs {
		if ran[job] != 1 {
			t.Errorf("%s: job %s ran %d times", name, job, ran[job])
		}
	}
	return times, fired
}
