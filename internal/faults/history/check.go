//go:build linux

package history

import (
	"encoding/json"
	"fmt"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/faults/actor"
	"github.com/harpcaller/harp/internal/faults/witness"
)

// Violation is a promise that was broken.
type Violation struct {
	Rule string // I0 to I6
	Job  string
	Text string
}

func (v Violation) String() string { return v.Rule + ": job " + v.Job + ": " + v.Text }

// execution is what the witness says of one attempt.
type execution struct {
	begins, ends int
	interval     interval
}

// Check holds the history against the rules, when everything has come to rest and
// each call's Final is set.
func (h *History) Check() []Violation {
	c := checker{h: h, executions: map[string]map[int]*execution{}}
	c.readWitness()
	for _, call := range h.Calls() {
		c.checkCall(call)
	}
	c.checkStrangers()
	c.checkQueues()
	return c.found
}

type checker struct {
	h          *History
	executions map[string]map[int]*execution
	found      []Violation
}

func (c *checker) violated(rule, job, format string, args ...any) {
	c.found = append(c.found, Violation{rule, job, fmt.Sprintf(format, args...)})
}

func (c *checker) readWitness() {
	for _, l := range c.h.Witness {
		of := c.executions[l.Job]
		if of == nil {
			of = map[int]*execution{}
			c.executions[l.Job] = of
		}
		e := of[l.Attempt]
		if e == nil {
			e = &execution{}
			of[l.Attempt] = e
		}
		switch l.What {
		case witness.Begin:
			e.begins++
			e.interval = interval{job: l.Job, begin: l.At, end: c.deathOf(l.PID)}
		case witness.End:
			e.ends++
			fallthrough
		default:
			e.interval.end = l.At
		}
	}
}

// deathOf is when a process was dead at the latest; for one that is not, for ever.
func (c *checker) deathOf(pid int) int64 {
	if at, dead := c.h.Deaths[pid]; dead {
		return at
	}
	return never
}

// checkCall holds one call against the rules that are about one.
func (c *checker) checkCall(call *Call) {
	c.checkExecutions(call)
	c.checkSights(call)
	if call.Gaps > 0 {
		c.violated("I4", call.ID, "a follower met %d records out of order", call.Gaps)
	}
	switch f := call.Final; {
	case f == nil:
		if call.Acked {
			c.violated("I1", call.ID, "was acknowledged and was not looked for")
		}
	case f.Missing:
		if call.Acked {
			c.violated("I1", call.ID, "was acknowledged and is not there")
		}
		if n := len(c.executions[call.ID]); n > 0 {
			c.violated("I1", call.ID, "is not there and has run %d times", n)
		}
	case f.Err != nil:
		c.violated("I1", call.ID, "cannot be read: %v", f.Err)
	case !f.Status.State.Ended():
		c.violated("I1", call.ID, "is %s (%s) and has not ended", f.Status.State, f.Status.Reason)
	default:
		c.checkOutcome(call)
		c.checkRecords(call)
	}
}

// checkExecutions is I2, and of I0 what the caller was told when it called.
func (c *checker) checkExecutions(call *Call) {
	of := c.executions[call.ID]
	for n, e := range of {
		if e.begins > 1 {
			c.violated("I2", call.ID, "attempt %d ran %d times", n, e.begins)
		}
	}
	if len(of) > 1 && !call.Repeatable {
		c.violated("I2", call.ID, "ran in %d attempts", len(of))
	}
	if call.Denied && !call.Acked && len(of) > 0 {
		c.violated("I0", call.ID, "was refused as not run and ran")
	}
}

// checkOutcome is I0 and I3.
func (c *checker) checkOutcome(call *Call) {
	s, of := call.Final.Status, c.executions[call.ID]
	if s.Started == harp.DidNotRun && len(of) > 0 {
		c.violated("I0", call.ID, "is %s, not started, and ran in %d attempts", s.State, len(of))
	}
	if s.Started == harp.DidRun && len(of) == 0 {
		c.violated("I0", call.ID, "is %s, started, and never ran", s.State)
	}
	last := of[s.Attempt]
	if s.State == harp.StateSucceeded {
		c.checkValue(call, last)
		return
	}
	if s.State != harp.StateLost && last != nil && last.ends > 0 && !c.wasStopped(call) {
		c.violated("I3", call.ID, "came to its end and is %s (%s)", s.State, s.Reason)
	}
	if c.h.Journalled[Attempt{call.ID, s.Attempt}] && s.State == harp.StateLost && s.Reason != harp.LostAgentStopped && s.Late == nil {
		c.violated("I3", call.ID, "its end was in the agent's journal and it is lost (%s)", s.Reason)
	}
}

// wasStopped reports whether a job that came to its end may be shown as stopped:
// whichever was journalled first decides.
func (c *checker) wasStopped(call *Call) bool {
	switch call.Final.Status.State {
	case harp.StateCancelled:
		return call.Cancelled || call.Final.Status.CancelRequested != nil
	case harp.StateTimedOut:
		return true
	default:
		return false
	}
}

// checkValue compares what a job returned with what its procedure must return.
func (c *checker) checkValue(call *Call, last *execution) {
	s := call.Final.Status
	if last == nil || last.ends == 0 {
		c.violated("I3", call.ID, "succeeded in attempt %d, which never came to its end", s.Attempt)
	}
	var got actor.Result
	if err := json.Unmarshal([]byte(call.Final.Value), &got); err != nil || got.Job != call.ID || got.Attempt != s.Attempt || len(got.Fill) != call.Returns {
		c.violated("I3", call.ID, "returned %s in attempt %d", call.Final.Value, s.Attempt)
	}
}

// checkRecords is I4.
func (c *checker) checkRecords(call *Call) {
	var cut bool
	next := map[int]int{} // of an attempt, what its procedure counts next
	for i, r := range call.Final.Records {
		if r.Seq != uint64(i) {
			c.violated("I4", call.ID, "record %d has number %d", i, r.Seq)
			return
		}
		cut = cut || r.Truncated > 0
		if r.Kind != harp.KindData || len(r.Value) == 0 { // the mark of what was cut
			continue
		}
		var got actor.Record
		if err := r.Value.Decode(&got); err != nil || got.Job != call.ID || got.Attempt != r.Attempt {
			c.violated("I4", call.ID, "record %d of attempt %d is %s", i, r.Attempt, r.Value)
			return
		}
		if got.N < next[r.Attempt] || got.N > next[r.Attempt] && r.Truncated == 0 {
			c.violated("I4", call.ID, "record %d is the procedure's %d, not %d", i, got.N, next[r.Attempt])
			return
		}
		next[r.Attempt] = got.N + 1
	}
	s := call.Final.Status
	if s.State == harp.StateSucceeded && !cut && next[s.Attempt] != call.Records {
		c.violated("I4", call.ID, "succeeded with %d of %d records", next[s.Attempt], call.Records)
	}
}

// checkStrangers looks for executions of what nobody called.
func (c *checker) checkStrangers() {
	for id := range c.executions {
		if _, called := c.h.calls[id]; !called {
			c.violated("I2", id, "ran, and nobody called it")
		}
	}
}
