package harptest_test

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/harpcaller/harp"
)

// restore is that of a backup in the place of the store that it was made of.
type restore struct {
	saved, at time.Time                 // zero: there was none
	from, to  string                    // the ids of the stores
	had       map[string]harp.JobStatus // before the backup was made
}

// backup keeps a copy of the dispatcher's store.
func (p *player) backup() {
	if p.down[""] {
		return
	}
	caller := p.sys.Embedded()
	defer caller.Close()
	had := map[string]harp.JobStatus{}
	for s, err := range caller.Jobs(p.t.Context(), harp.JobFilter{}) {
		if err != nil {
			p.t.Errorf("list before the backup: %v", err)
		}
		had[s.ID] = s
	}
	p.saved = new(bytes.Buffer)
	p.history.Restore.saved, p.history.Restore.had = time.Now(), had
	if err := caller.Backup(p.t.Context(), p.saved); err != nil {
		p.t.Errorf("backup: %v", err)
	}
	info, err := caller.Ping(p.t.Context())
	if err != nil {
		p.t.Errorf("ping: %v", err)
	}
	p.history.Restore.from = info.Store
}

// restore crashes the dispatcher and starts one with what the backup has.
func (p *player) restore() {
	if p.saved == nil {
		return
	}
	p.end(faultPlan{Kind: faultCrash})
	p.history.Restore.to = p.sys.RestoreDispatcher(io.Reader(p.saved)).ID
	p.history.Restore.at = time.Now()
	p.history.Feed = nil // the feed begins anew, where the backup was
	p.start("")
}

// newRestorePlan is the plan of a seed with a backup and its restore amid the faults
// that leave what is checked then as it is.
func newRestorePlan(seed uint64) *plan {
	p := newPlan(seed)
	r := rand.New(rand.NewPCG(seed, 0x6261636b))
	p.Faults = slices.DeleteFunc(p.Faults, func(f faultPlan) bool {
		return f.Kind == faultWipe || f.Kind == faultPoison || f.Kind == faultPrune || f.Kind == faultForce || f.Kind == faultPause
	})
	for _, c := range p.Calls {
		c.Key, c.Follow = "", false
	}
	saved := seconds(r, 0, p.Span.Seconds()*0.8)
	at := saved + seconds(r, 0, min(20, (p.Span-saved).Seconds()))
	p.Faults = append(p.Faults, faultPlan{At: saved, Kind: faultBackup}, faultPlan{At: at, Kind: faultRestore})
	slices.SortStableFunc(p.Faults, func(a, b faultPlan) int { return int(a.At - b.At) })
	return p
}

// TestChaosRestored plays plans in the middle of which the dispatcher goes on with an
// older state of its store: what had not ended is lost, what its agents have done
// meanwhile is told late, and nothing is done again.
func TestChaosRestored(t *testing.T) {
	seeds := *seedsFlag
	if seeds == 0 {
		seeds = 20
	}
	lost := 0
	for seed := *seedFlag; seed < *seedFlag+seeds; seed++ {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			p := newRestorePlan(seed)
			log := slog.New(slog.DiscardHandler)
			if *logFlag {
				log = slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelDebug}))
			}
			var h *history
			synctest.Test(t, func(t *testing.T) { h = play(t, p, log) })
			if h == nil {
				t.Fatalf("the run was ended\n%v", p)
			}
			for _, what := range restored(h) {
				t.Error(what)
			}
			for _, f := range h.Finals {
				if f.status.Reason == harp.LostRestored {
					lost++
				}
			}
			if t.Failed() {
				t.Logf("%v\n%v\nsaved %s restored %s\nagain: go test ./harptest -run TestChaosRestored -seed %d -seeds 1", p, h, clock(h.Restore.saved), clock(h.Restore.at), seed)
			}
		})
	}
	t.Logf("%d jobs were lost in %d restores", lost, seeds)
}

// Each rule of a restore sees its promise broken.
func TestRestoredMutants(t *testing.T) {
	good := func() *history {
		h := goodHistory()
		at := h.Crashes[0].at
		h.Crashes = nil
		h.Restore = restore{saved: at.Add(-time.Second), at: at, from: "a", to: "b", had: map[string]harp.JobStatus{
			"lost": {State: harp.StateRunning, Attempt: 1}, "never": h.Finals["never"].status,
		}}
		h.Executions[3].End = at.Add(time.Second)
		h.change("lost", func(f *final) {
			f.status.Reason, f.status.Late = harp.LostRestored, &harp.Result{State: harp.StateSucceeded}
		})
		return h
	}
	if wrong := restored(good()); len(wrong) > 0 {
		t.Errorf("in a good restore is wrong: %q", wrong)
	}
	for name, mutate := range map[string]func(*history){
		"R1: the store has its old id": func(h *history) { h.Restore.to = "a" },
		"R2: a job is gone":            func(h *history) { h.change("lost", func(f *final) { f.err = harp.ErrNotFound }) },
		"R2: a job that had ended is another": func(h *history) {
			h.change("never", func(f *final) { f.status.State = harp.StateCancelled })
		},
		"R2: a job went on": func(h *history) {
			h.change("lost", func(f *final) { f.status.State, f.status.Reason = harp.StateSucceeded, "" })
		},
		"R3: an attempt was executed again": func(h *history) { h.Executions = append(h.Executions, h.Executions[0]) },
		"R3: a lost job was started":        func(h *history) { h.Executions[3].Start = h.Restore.at.Add(1) },
		"R4: what was said late is not kept": func(h *history) {
			h.change("lost", func(f *final) { f.status.Late = nil })
		},
		"R4: what was said late is wrong": func(h *history) {
			h.change("lost", func(f *final) { f.status.Late.State = harp.StateFailed })
		},
	} {
		h := good()
		mutate(h)
		if wrong := restored(h); !slices.ContainsFunc(wrong, func(what string) bool { return what[:3] == name[:3] }) {
			t.Errorf("%s: the rule says nothing; said is %q", name, wrong)
		}
	}
}

// restored checks what holds after a restore.
func restored(h *history) (wrong []string) {
	if h.Restore.at.IsZero() {
		return nil
	}
	if h.Restore.from == "" || h.Restore.from == h.Restore.to {
		wrong = append(wrong, fmt.Sprintf("R1: the store is %s, was %s", h.Restore.to, h.Restore.from))
	}
	for id, had := range h.Restore.had {
		if what := h.kept(had, h.Finals[id]); what != "" {
			wrong = append(wrong, fmt.Sprintf("R2: job %s: %s", id, what))
		}
	}
	wrong = append(wrong, onceRestored(h)...)
	for id, f := range h.Finals {
		if f.err == nil && f.status.Reason == harp.LostRestored {
			if what := h.toldLate(id, f); what != "" {
				wrong = append(wrong, fmt.Sprintf("R4: job %s: %s", id, what))
			}
		}
	}
	return wrong
}

// kept says what is wrong with a job that was in the backup.
func (h *history) kept(had harp.JobStatus, f final) string {
	s := f.status
	switch {
	case f.err != nil:
		return fmt.Sprintf("cannot be read: %v", f.err)
	case had.State.Ended():
		return backwards(had, s)
	case s.Reason != harp.LostRestored && s.EndTime.After(h.Restore.saved):
		return fmt.Sprintf("was %s in the backup, is %s (%s)", had.State, s.State, s.Reason)
	}
	return ""
}

// onceRestored is I2 across a restore: no attempt is executed twice, though the store
// has forgotten it, and no job that is lost in it starts again.
func onceRestored(h *history) (wrong []string) {
	for _, what := range once(h) {
		if !strings.Contains(what, "attempts") { // those that the store counts
			wrong = append(wrong, "R3: "+what)
		}
	}
	for _, x := range h.Executions {
		if f := h.Finals[x.Job]; f.err == nil && f.status.Reason == harp.LostRestored && x.Start.After(h.Restore.at.Add(h.Syncs)) {
			wrong = append(wrong, fmt.Sprintf("R3: job %s was lost, attempt %d started %s", x.Job, x.Attempt, clock(x.Start)))
		}
	}
	return wrong
}

// toldLate says what is missing of a job that its agent went on with.
func (h *history) toldLate(id string, f final) string {
	n := len(f.status.Attempts)
	if n == 0 || f.status.Attempts[n-1].Outcome != string(harp.StateLost) { // it was not sent when the backup was made
		return ""
	}
	x, ran := h.execution(id, f.status.Attempts[n-1].Number)
	if !ran || !x.End.After(h.Restore.at.Add(h.Syncs)) || h.wentAway(x.Host, x.Start) || len(h.Outages) > 0 {
		return "" // the agent may have told it to the other dispatcher, or knows no more
	}
	switch late := f.status.Late; {
	case late == nil:
		return fmt.Sprintf("attempt %d ended %s, and nothing is kept of it", x.Attempt, clock(x.End))
	case (late.State == harp.StateSucceeded) != (x.Err == nil) && late.State != harp.StateCancelled && late.State != harp.StateTimedOut:
		return fmt.Sprintf("late it is said to be %s", late.State)
	}
	return ""
}

// wentAway reports whether the agent of a host ended in any way after a time.
func (h *history) wentAway(host string, after time.Time) bool {
	gone := func(c crash) bool { return c.host == host && !c.at.Before(after) }
	return slices.ContainsFunc(h.Crashes, gone) || slices.ContainsFunc(h.Stops, gone)
}
