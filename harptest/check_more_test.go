package harptest_test

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/harpcaller/harp"
)

// records is I4.
func records(h *history) (wrong []string) {
	for id, f := range h.Finals {
		if f.err == nil {
			for _, what := range h.recordsOf(id, f) {
				wrong = append(wrong, fmt.Sprintf("job %s: %s", id, what))
			}
		}
	}
	for _, c := range h.Calls {
		if f := h.Finals[c.job]; c.job != "" && f.err == nil && c.plan.Follow {
			if what := followed(c, f); what != "" {
				wrong = append(wrong, fmt.Sprintf("following job %s: %s", c.job, what))
			}
		}
	}
	return wrong
}

// recordsOf compares what is stored of a job with what its executions emitted.
func (h *history) recordsOf(id string, f final) (wrong []string) {
	stored := map[int][]string{}
	for i, r := range f.records {
		if r.Seq != uint64(i) {
			wrong = append(wrong, fmt.Sprintf("record %d has number %d", i, r.Seq))
		}
		if r.Truncated > 0 && !h.mayDrop(id, r.Attempt) {
			wrong = append(wrong, fmt.Sprintf("%d bytes were dropped before record %d", r.Truncated, i))
		}
		var value string
		if err := r.Value.Decode(&value); err != nil && r.Truncated == 0 {
			wrong = append(wrong, fmt.Sprintf("record %d: %v", i, err))
		}
		if r.Value != nil { // else it only says what was dropped
			stored[r.Attempt] = append(stored[r.Attempt], value)
		}
	}
	if f.status.Records != uint64(len(f.records)) {
		wrong = append(wrong, fmt.Sprintf("it has %d records and is said to have %d", len(f.records), f.status.Records))
	}
	for _, a := range f.status.Attempts {
		emitted, got := h.Emitted[attempt{id, a.Number}], stored[a.Number]
		delete(stored, a.Number)
		lost := a.Outcome == string(harp.StateLost) || a.Outcome == outcomeNotNow
		dropped := h.mayDrop(id, a.Number)
		if dropped && isWithin(got, emitted) {
			continue
		}
		if len(got) > len(emitted) || !slices.Equal(got, emitted[:len(got)]) || !lost && len(got) < len(emitted) {
			wrong = append(wrong, fmt.Sprintf("attempt %d (%s) emitted %q, stored is %q", a.Number, a.Outcome, emitted, got))
		}
	}
	if len(stored) > 0 {
		wrong = append(wrong, fmt.Sprintf("there are records of other attempts: %v", stored))
	}
	return wrong
}

// followed compares what a follower got with what is stored. Of a job whose attempt was
// lost the rest may come after its end.
func followed(c *callRecord, f final) string {
	if c.follow != nil {
		return fmt.Sprintf("ended with %v", c.follow)
	}
	if len(c.followed) > len(f.records) || len(c.followed) < len(f.records) && f.status.Started != harp.MayHaveRun {
		return fmt.Sprintf("got %d records of %d", len(c.followed), len(f.records))
	}
	for i, r := range c.followed {
		if want := f.records[i]; r.Seq != want.Seq || r.Attempt != want.Attempt || !slices.Equal(r.Value, want.Value) {
			return fmt.Sprintf("record %d was number %d of attempt %d, %v; is %d of %d, %v", i, r.Seq, r.Attempt, r.Value, want.Seq, want.Attempt, want.Value)
		}
	}
	return ""
}

// forwards is I5, for each who looked.
func forwards(h *history) (wrong []string) {
	for _, c := range h.Calls {
		looks := c.looks
		if f := h.Finals[c.job]; len(looks) > 0 && c.job != "" && f.err == nil {
			looks = append(slices.Clone(looks), f.status)
		}
		for i := 1; i < len(looks); i++ {
			if what := backwards(looks[i-1], looks[i]); what != "" {
				wrong = append(wrong, fmt.Sprintf("job %s: %s", c.job, what))
			}
		}
	}
	return wrong
}

// backwards says what has gone back from one look at a job to the next.
func backwards(a, b harp.JobStatus) string {
	switch {
	case a.State.Ended():
		if a.State != b.State || a.Reason != b.Reason || a.Started != b.Started || a.Attempt != b.Attempt || !a.EndTime.Equal(b.EndTime) {
			return fmt.Sprintf("had ended as %s (%s), is %s (%s)", a.State, a.Reason, b.State, b.Reason)
		}
		return ""
	case b.Attempt < a.Attempt, b.Records < a.Records, len(b.Attempts) < len(a.Attempts), a.CancelRequested != nil && b.CancelRequested == nil:
		return fmt.Sprintf("was in attempt %d of %d with %d records, is in %d of %d with %d, cancel %v then %v",
			a.Attempt, len(a.Attempts), a.Records, b.Attempt, len(b.Attempts), b.Records, a.CancelRequested, b.CancelRequested)
	case b.Attempt > a.Attempt, isBackoff(b):
		return ""
	}
	if x, y := rank(a), rank(b); y < x && (x != rankSent || y != rankQueued) {
		return fmt.Sprintf("went from %s to %s (%s) in attempt %d", a.State, b.State, b.Reason, a.Attempt)
	}
	return ""
}

// isBackoff reports whether the job waits for another attempt, the last one being
// over.
func isBackoff(s harp.JobStatus) bool {
	n := len(s.Attempts)
	if s.State != harp.StateQueued || n == 0 {
		return false
	}
	switch harp.State(s.Attempts[n-1].Outcome) {
	case harp.StateLost, harp.StateTimedOut, harp.StateFailed:
		return true
	default:
		return false
	}
}

// The order of states. What is unknown is where it was.
const (
	rankQueued = iota
	rankSent
	rankRunning
	rankCancelling
	rankEnded
)

func rank(s harp.JobStatus) int {
	state := s.State
	if state == harp.StateUnknown {
		state = s.UnknownOf
	}
	switch state {
	case harp.StateQueued:
		return rankQueued
	case harp.StateSent:
		return rankSent
	case harp.StateRunning:
		return rankRunning
	case harp.StateCancelling:
		return rankCancelling
	default:
		return rankEnded
	}
}

// concurrency is I6.
func concurrency(h *history) (wrong []string) {
	type step struct {
		at time.Time
		by int
	}
	steps := map[string][]step{}
	may := map[string]int{}
	for _, x := range h.Executions {
		calls := h.callsOf(x.Job)
		if len(calls) == 0 || calls[0].plan.Queue == "" {
			continue
		}
		queue, end := calls[0].plan.Queue, h.released(x)
		may[queue] = calls[0].plan.Concurrency
		steps[queue] = append(steps[queue], step{x.Start, 1})
		if !end.IsZero() {
			steps[queue] = append(steps[queue], step{end, -1})
		}
	}
	for queue, list := range steps {
		slices.SortStableFunc(list, func(a, b step) int { return cmp.Or(a.at.Compare(b.at), cmp.Compare(a.by, b.by)) })
		running := 0
		for _, s := range list {
			if running += s.by; running > may[queue] {
				wrong = append(wrong, fmt.Sprintf("at %s %d of queue %s run, %d may", clock(s.at), running, queue, may[queue]))
			}
		}
	}
	return wrong
}
