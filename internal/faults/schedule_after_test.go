//go:build linux && !race

package faults

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/faults/witness"
)

// T21: the dispatcher is killed again and again while schedules come after others that have a time each second: one after each
// that succeeds, one after each that fails, one that takes longer, one after both, and one after one of these. Each end of a run is in one
// entry of the ledger of each that comes after it, and what fired for it has run once, as the witness says.
func TestKillDispatcherOfDependencies(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	connected, _ := started(t, f, 1, 1)
	caller := connected[0]
	ss := caller.Schedules()
	all := []harp.Schedule{
		{Name: "good", Cron: "* * * * * *", Overlap: harp.OverlapAllow},
		{Name: "bad", Cron: "* * * * * *", Overlap: harp.OverlapAllow},
		{Name: "after", Overlap: harp.OverlapAllow, After: []harp.Dependency{{Schedule: "good"}}},
		{Name: "alarm", Overlap: harp.OverlapAllow, After: []harp.Dependency{{Schedule: "bad", On: harp.OnFailed}}},
		{Name: "slow", Overlap: harp.OverlapQueue, After: []harp.Dependency{{Schedule: "good", Within: 5 * time.Second}}},
		{Name: "both", Overlap: harp.OverlapAllow, After: []harp.Dependency{{Schedule: "good"}, {Schedule: "bad", On: harp.OnEnded}}},
		{Name: "last", Overlap: harp.OverlapAllow, After: []harp.Dependency{{Schedule: "both"}, {Schedule: "alarm"}}},
	}
	putSchedules(t, caller, all)
	killDispatcher(t, f, rand.New(rand.NewPCG(report.Seed, 81)), pick(5, 150), 1500*time.Millisecond, 500*time.Millisecond)
	pauseTimes(t, caller, all)
	ends := 0
	outcomes := map[string]int{}
	ran := map[string]int{}
	for _, s := range all {
		for _, of := range s.After {
			ends += checkEnds(t, caller, s.Name, of.Schedule)
		}
	}
	begun, err := witness.Read(f.WitnessFile()) // before the ledgers: what waits in a queue fires still
	must(t, err)
	for _, s := range all {
		for e, err := range ss.Ledger(t.Context(), harp.LedgerFilter{Schedule: s.Name}) {
			must(t, err)
			if e.Outcome != harp.TimeFired {
				if e.Reason == "" || e.Outcome == harp.TimeFailed {
					t.Errorf("%s: %v is %s(%s): %v", s.Name, e.From, e.Outcome, e.Reason, e.Err)
				}
			} else if _, err := caller.Batch(e.Batch).Wait(t.Context()); err != nil {
				t.Errorf("%s: the run of %v: %v", s.Name, e.From, err)
			} else {
				ran[caller.Batch(e.Batch).Job("host00").ID()] = 0
			}
			if len(s.After) > 0 {
				outcomes[strings.TrimSpace(fmt.Sprint(e.Outcome, " ", e.Reason))] += e.Count
			}
		}
	}
	lines, err := witness.Read(f.WitnessFile())
	must(t, err)
	for _, l := range begun {
		if _, isOf := ran[l.Job]; !isOf {
			t.Errorf("job %s ran, of which no ledger tells", l.Job)
		}
	}
	for _, l := range lines {
		if n, isOf := ran[l.Job]; isOf && l.What == witness.Begin {
			ran[l.Job] = n + 1
		}
	}
	for job, n := range ran {
		if n != 1 {
			t.Errorf("job %s ran %d times", job, n)
		}
	}
	if outcomes["fired"] == 0 || ends == 0 {
		t.Errorf("the run is void: %d ends, %v", ends, outcomes)
	}
	t.Logf("%d ends for those that come after, %v", ends, outcomes)
	report.Note(t.Name(), "ends", ends)
	report.Note(t.Name(), "outcomes", outcomes)
}

// checkEnds waits until each run of a schedule is over and has been noted with one that comes after it, and returns how many there are: each
// is in one entry of that ledger, or waits for the ends of others.
func checkEnds(t *testing.T, caller *harp.Caller, name, of string) (n int) {
	t.Helper()
	ss := caller.Schedules()
	what := ""
	eventually(t, "all runs of "+of+" are told of by "+name, func() bool {
		told := map[string]int{}
		for e, err := range ss.Ledger(t.Context(), harp.LedgerFilter{Schedule: name}) {
			must(t, err)
			for _, word := range strings.FieldsFunc(e.Detail, func(r rune) bool { return r == ' ' || r == ',' || r == ';' }) {
				if harp.CheckID(word) == nil {
					told[word]++
				}
			}
		}
		s, err := ss.Get(t.Context(), name) // behind the ledger: an end that is settled meanwhile is in neither, and looked for again
		must(t, err)
		for _, end := range s.Ends {
			told[end.Batch]++
		}
		n = 0
		for e, err := range ss.Ledger(t.Context(), harp.LedgerFilter{Schedule: of, Outcomes: []harp.TimeOutcome{harp.TimeFired}}) {
			must(t, err)
			if _, err := caller.Batch(e.Batch).Wait(t.Context()); err != nil {
				t.Fatal(err)
			}
			n++
			switch told[e.Batch] {
			case 0:
				what = e.Batch
				return false
			case 1:
			default:
				t.Fatalf("%s tells %d times of the run %s of %s", name, told[e.Batch], e.Batch, of)
			}
		}
		return true
	})
	if t.Failed() {
		t.Logf("run %s of %s was told last", what, of)
	}
	return n
}
