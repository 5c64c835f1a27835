package harptest_test

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/harptest"
)

// rules are the promises.
var rules = []struct {
	name  string
	check func(*history) []string
}{
	{"I0: a job that is said not to have started has no execution", notStarted},
	{"I1: an acknowledged call is found and ends", acknowledged},
	{"I2: an attempt executes once, a job again only if it may", once},
	{"I3: what ended and could be told is told", outcomes},
	{"I4: records are those that were emitted, in their order, once", records},
	{"I5: what is shown never goes backwards", forwards},
	{"I6: no more of a queue runs than may", concurrency},
	{"I7: nothing starts before its time", notBefore},
	{"I8: nothing is sent after its cancel was acknowledged", notAfterCancel},
	{"I9: nothing of a paused queue is sent", notWhilePaused},
	{"I10: nothing is accepted or sent without space for it", notWithoutSpace},
	{"I11: who reads the feed gets all of it, once", feed},
	{"I12: the feed tells all that was shown", told},
	{"I13: what is over stays over", over},
}

// check returns what of a history breaks which promise; nothing if all were kept.
func check(h *history) []string {
	var wrong []string
	for _, rule := range rules {
		for _, what := range rule.check(h) {
			wrong = append(wrong, rule.name+": "+what)
		}
	}
	return wrong
}

// notStarted is I0, for jobs and for calls that were refused.
func notStarted(h *history) (wrong []string) {
	for id, f := range h.Finals {
		n := len(h.executions(id))
		switch {
		case f.err == nil && f.status.Started == harp.DidNotRun && n > 0:
			wrong = append(wrong, fmt.Sprintf("job %s, %s: %d executions", id, f.status.State, n))
		case f.err == nil && f.status.Started == harp.DidRun && n == 0:
			wrong = append(wrong, fmt.Sprintf("job %s, %s, is said to have run", id, f.status.State))
		case f.err != nil && n > 0 && h.neverRan(id):
			wrong = append(wrong, fmt.Sprintf("call %s was refused: %d executions", id, n))
		}
		if f.err == nil && f.status.Started == harp.MayHaveRun && !mayBeMaybe(f.status) {
			wrong = append(wrong, fmt.Sprintf("job %s, %s, may have run", id, f.status.State))
		}
	}
	return wrong
}

// neverRan reports whether everybody who asked for this id was told that it did not
// run.
func (h *history) neverRan(id string) bool {
	for _, c := range h.callsOf(id) {
		if c.job != "" || slices.ContainsFunc(c.errs, func(err error) bool { return harp.RanOf(err) != harp.DidNotRun }) {
			return false
		}
	}
	return true
}

// mayBeMaybe reports whether a job may be one of which it is not known whether it ran.
func mayBeMaybe(s harp.JobStatus) bool {
	if s.State == harp.StateLost {
		return true
	}
	lost := func(a harp.Attempt) bool { return a.Outcome == string(harp.StateLost) }
	return s.State == harp.StateCancelled && slices.ContainsFunc(s.Attempts, lost)
}

// acknowledged is I1.
func acknowledged(h *history) (wrong []string) {
	byKey := map[string]string{}
	for _, c := range h.Calls {
		if other := byKey[c.plan.Key]; c.plan.Key != "" && c.job != "" {
			if byKey[c.plan.Key] = c.job; other != "" && other != c.job {
				wrong = append(wrong, fmt.Sprintf("key %s stands for job %s and %s", c.plan.Key, other, c.job))
			}
		}
		f := h.Finals[c.job]
		switch {
		case c.job == "":
		case h.isPruned(c.job, f.err):
		case f.err != nil:
			wrong = append(wrong, fmt.Sprintf("job %s is not found: %v", c.job, f.err))
		case !f.status.State.Ended():
			wrong = append(wrong, fmt.Sprintf("job %s is %s (%s)", c.job, f.status.State, f.status.Reason))
		case c.job != c.id && c.plan.Key == "":
			wrong = append(wrong, fmt.Sprintf("call %s became job %s", c.id, c.job))
		}
		for _, err := range c.after {
			if harp.RanOf(err) == harp.DidNotRun && !errors.Is(err, harp.ErrUnavailable) {
				wrong = append(wrong, fmt.Sprintf("job %s was refused when it was called for again: %v", c.job, err))
			}
		}
	}
	for id, f := range h.Finals {
		if f.err != nil && !errors.Is(f.err, harp.ErrNotFound) && !h.isPruned(id, f.err) {
			wrong = append(wrong, fmt.Sprintf("job %s cannot be read: %v", id, f.err))
		}
	}
	return wrong
}

// once is I2.
func once(h *history) (wrong []string) {
	times := map[attempt]int{}
	perJob := map[string]int{}
	for _, x := range h.Executions {
		perJob[x.Job]++
		if times[attempt{x.Job, x.Attempt}]++; times[attempt{x.Job, x.Attempt}] == 2 {
			wrong = append(wrong, fmt.Sprintf("attempt %d of job %s executed again", x.Attempt, x.Job))
		}
	}
	for id, n := range perJob {
		if what := h.together(id); what != "" {
			wrong = append(wrong, what)
		}
		f, known := h.Finals[id]
		calls := h.callsOf(id)
		switch {
		case !known || len(calls) == 0:
			wrong = append(wrong, fmt.Sprintf("nobody called for job %s", id))
		case n > 1 && !mayRepeat(calls[0].plan):
			wrong = append(wrong, fmt.Sprintf("job %s executed %d times", id, n))
		case f.err == nil && n > len(f.status.Attempts):
			wrong = append(wrong, fmt.Sprintf("job %s executed %d times in %d attempts", id, n, len(f.status.Attempts)))
		case f.err == nil && len(f.status.Attempts) > most(calls[0].plan):
			wrong = append(wrong, fmt.Sprintf("job %s had %d attempts, %d were allowed", id, len(f.status.Attempts), most(calls[0].plan)))
		}
	}
	return wrong
}

// together says which executions of a job ran at the same time.
func (h *history) together(id string) string {
	list := h.executions(id)
	for i := 1; i < len(list); i++ {
		if over := h.over(list[i-1]); over.IsZero() || over.After(list[i].Start) {
			return fmt.Sprintf("attempts %d and %d of job %s ran at the same time", list[i-1].Attempt, list[i].Attempt, id)
		}
	}
	return ""
}

func mayRepeat(p *callPlan) bool { return p.Idempotent || len(p.Retry.On) > 0 }

// most is how many attempts the call may have.
func most(p *callPlan) int {
	switch {
	case p.Retry.Attempts > 0:
		return p.Retry.Attempts
	case mayRepeat(p):
		return 3
	default:
		return 1
	}
}

// outcomes is I3: how a job ended is how its last execution did. Lost is only what
// its agent could not tell.
func outcomes(h *history) (wrong []string) {
	for id, f := range h.Finals {
		if f.err != nil || !f.status.State.Ended() {
			continue
		}
		if what := h.outcome(id, f); what != "" {
			wrong = append(wrong, fmt.Sprintf("job %s: %s", id, what))
		}
	}
	return wrong
}

// decisive is the attempt whose outcome is the job's: the last that did not prove not
// to have started.
func decisive(s harp.JobStatus) harp.Attempt {
	for _, a := range slices.Backward(s.Attempts) {
		if a.Outcome != outcomeNotNow {
			return a
		}
	}
	return harp.Attempt{}
}

// outcomeNotNow is that of an attempt that did not start and may be sent again.
const outcomeNotNow = "not_now"

// outcome says what is wrong with how a job is said to have ended.
func (h *history) outcome(id string, f final) string {
	s := f.status
	last := decisive(s)
	x, ran := h.execution(id, last.Number)
	switch s.State {
	case harp.StateSucceeded:
		if !ran || x.End.IsZero() || x.Err != nil {
			return fmt.Sprintf("succeeded, but attempt %d did not", last.Number)
		}
		var got string
		if err := f.result.Value.Decode(&got); err != nil || got != valueOf(id, last.Number) {
			return fmt.Sprintf("returned %v instead of %q", f.result.Value, valueOf(id, last.Number))
		}
	case harp.StateFailed:
		if !ran || x.End.IsZero() || x.Err == nil {
			return fmt.Sprintf("failed, but attempt %d did not", last.Number)
		}
	case harp.StateTimedOut:
		if !ran || x.End.IsZero() {
			return fmt.Sprintf("timed out, but attempt %d did not end", last.Number)
		}
	case harp.StateLost:
		return h.mustNotBeLost(id, f)
	default:
	}
	if !f.result.Done() || f.result.State != s.State {
		return fmt.Sprintf("its result is %s, its state %s", f.result.State, s.State)
	}
	return ""
}

// mustNotBeLost says why a lost job must not be: its agent had a disk on which it was
// written what became of the attempt.
func (h *history) mustNotBeLost(id string, f final) string {
	s := f.status
	last := decisive(s)
	x, ran := h.execution(id, last.Number)
	switch s.Reason {
	case harp.LostForced, harp.LostTooLong:
		return h.givenUp(f, last, x, ran)
	}
	for _, c := range h.Crashes {
		switch {
		case c.host != s.Host:
		case s.Reason == harp.LostJournalGone:
			// What was being written as sent while the agent went was never sent.
			if c.wiped && !c.at.Before(last.Sent.Add(-h.Syncs)) {
				return ""
			}
		case s.Reason == harp.LostAgentRestarted && h.interrupted(c, last, x, ran):
			return ""
		}
	}
	if s.Reason == harp.LostAgentRestarted && (h.stoppedUnwritten(s.Host, x, ran) || !ran && h.inDoubt(s.Host, last.Sent)) {
		return ""
	}
	if s.Reason == harp.LostAgentStopped && h.endedByStop(x, ran) {
		return ""
	}
	return fmt.Sprintf("lost (%s), attempt %d sent %s executed %v from %s to %s, and no crash or stop of %s explains it",
		s.Reason, last.Number, clock(last.Sent), ran, clock(x.Start), clock(x.End), s.Host)
}

// endedByStop reports whether an execution was given up while its agent stopped.
func (h *history) endedByStop(x harptest.Execution, ran bool) bool {
	return ran && x.Err != nil && slices.ContainsFunc(h.Stops, func(c crash) bool {
		return c.host == x.Host && !x.End.Before(c.begun) && !x.End.After(c.at)
	})
}

// givenUp says what is wrong with a job that was given up: its host was not silent for
// so long, or what its agent had to say was not kept.
func (h *history) givenUp(f final, last harp.Attempt, x harptest.Execution, ran bool) string {
	s := f.status
	if s.Reason == harp.LostTooLong && last.Ended.Sub(last.Sent) < h.LostAfter {
		return fmt.Sprintf("lost (%s) after %v", s.Reason, last.Ended.Sub(last.Sent))
	}
	crashed := slices.ContainsFunc(h.Crashes, func(c crash) bool { return c.host == s.Host && !c.at.Before(last.Sent) })
	switch {
	case s.Late == nil && ran && !crashed && !h.endedByStop(x, ran):
		return "nothing is kept of what its agent said late"
	case s.Late != nil && (!ran || x.End.IsZero() || (s.Late.State == harp.StateSucceeded) != (x.Err == nil) && s.Late.State != harp.StateCancelled && s.Late.State != harp.StateTimedOut):
		return fmt.Sprintf("late it is said to be %s", s.Late.State)
	}
	return ""
}

// interrupted reports whether a crash can have come between the start of an attempt
// and the moment at which its end was on disk.
func (h *history) interrupted(c crash, a harp.Attempt, x harptest.Execution, ran bool) bool {
	if !ran {
		return !c.at.Before(a.Sent)
	}
	return !c.at.Before(x.Start) && (x.End.IsZero() || !c.at.After(h.written(x.Host, x.End)))
}

func (h *history) execution(id string, number int) (harptest.Execution, bool) {
	for _, x := range h.executions(id) {
		if x.Attempt == number {
			return x, true
		}
	}
	return harptest.Execution{}, false
}

// notBefore is I7.
func notBefore(h *history) (wrong []string) {
	for _, x := range h.Executions {
		for _, c := range h.callsOf(x.Job) {
			if from := c.begin.Add(c.plan.StartAfter); c.plan.StartAfter > 0 && x.Start.Before(from) {
				wrong = append(wrong, fmt.Sprintf("job %s started %s, not to before %s", x.Job, clock(x.Start), clock(from)))
			}
		}
	}
	return wrong
}

// notAfterCancel is I8.
func notAfterCancel(h *history) (wrong []string) {
	for _, c := range h.Calls {
		f := h.Finals[c.job]
		if c.job == "" || f.err != nil {
			continue
		}
		for _, a := range f.status.Attempts {
			for _, cancelled := range h.cancels(c) {
				if a.Sent.After(cancelled) {
					wrong = append(wrong, fmt.Sprintf("attempt %d of job %s was sent %s, cancelled %s", a.Number, c.job, clock(a.Sent), clock(cancelled)))
				}
			}
		}
	}
	return wrong
}

// cancels returns when cancels were acknowledged that concern a job.
func (h *history) cancels(c *callRecord) (times []time.Time) {
	if !c.cancelled.IsZero() {
		times = append(times, c.cancelled)
	}
	for _, q := range h.Cancels {
		if q.queue == c.plan.Queue && c.acked.Before(q.begin) {
			times = append(times, q.end)
		}
	}
	return times
}

// notWhilePaused is I9.
func notWhilePaused(h *history) (wrong []string) {
	for _, c := range h.Calls {
		for _, a := range h.Finals[c.job].status.Attempts {
			for _, p := range h.Pauses {
				// The time of a submission is that at which its commit began.
				if p.queue == c.plan.Queue && a.Sent.After(p.begin) && a.Sent.Before(p.end.Add(-h.Syncs)) {
					wrong = append(wrong, fmt.Sprintf("attempt %d of job %s was sent %s, paused from %s to %s", a.Number, c.job, clock(a.Sent), clock(p.begin), clock(p.end)))
				}
			}
		}
	}
	return wrong
}
