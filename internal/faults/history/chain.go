package history

import (
	"fmt"

	"github.com/harpcaller/harp"
)

// Chain is what became of the steps of a chain on one host, when its batch has ended.
type Chain struct {
	Steps []ChainStep
	Over  bool // its batch was cancelled, or ended by a stop: it may have begun no step any more
}

// ChainStep is one step.
type ChainStep struct {
	On  harp.Ending
	Job harp.JobStatus
	Ran []Span // as the witness says
}

// Span is when an execution began and ended, by one clock for all.
type Span struct{ Begin, End int64 }

// Check holds the chain against what is promised of chains, and returns which step says how the host ended, and what was
// broken: C1, no step begins before the one before it has ended; C2, none begins behind an end that it is not to follow; C3, what
// has not begun is cancelled(chain), and did not run; C4, what is to follow has begun.
func (c *Chain) Check() (result int, broken []string) {
	violated := func(rule, format string, args ...any) {
		broken = append(broken, rule+": "+fmt.Sprintf(format, args...))
	}
	last := 0
	for n := 1; n < len(c.Steps); n++ {
		s, before := &c.Steps[n], &c.Steps[last]
		fits := s.On.FitsJob(before.Job.State)
		if s.Job.Reason == harp.ReasonChain {
			if s.Job.State != harp.StateCancelled || s.Job.Started != harp.DidNotRun || len(s.Ran) > 0 {
				violated("C3", "step %d has not begun, is %s, started %s, and ran %d times", n+1, s.Job.State, s.Job.Started, len(s.Ran))
			}
			isOut := last == 0 && before.Job.State == harp.StateCancelled && before.Job.Attempt == 0 // it may have been cancelled before the turn of its host
			if fits && !c.Over && !isOut {
				violated("C4", "step %d has not begun behind step %d, which is %s(%s)", n+1, last+1, before.Job.State, before.Job.Reason)
			}
			continue
		}
		if !fits {
			violated("C2", "step %d, on %q, began behind step %d, which is %s(%s)", n+1, s.On, last+1, before.Job.State, before.Job.Reason)
		}
		for _, ran := range s.Ran {
			for _, was := range before.Ran {
				if ran.Begin < was.End && before.Job.State != harp.StateLost { // of what is lost nobody knows when it ended
					violated("C1", "step %d began at %d, and step %d ended at %d", n+1, ran.Begin, last+1, was.End)
				}
			}
		}
		last = n
		if c.Steps[result].Job.State == harp.StateSucceeded {
			result = n
		}
	}
	return result + 1, broken
}
