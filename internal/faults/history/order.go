//go:build linux

package history

import (
	"cmp"
	"math"
	"slices"

	"github.com/harpcaller/harp"
)

// rank is how far a state is within an attempt; 0: it stands apart.
func rank(s harp.State) int {
	switch s {
	case harp.StateQueued:
		return 1
	case harp.StateSent:
		return 2
	case harp.StateRunning:
		return 3
	case harp.StateCancelling:
		return 4
	case harp.StateUnknown:
		return 0
	default:
		return 5
	}
}

// checkSights is I5: what was seen never moves backwards, and an end is the end.
func (c *checker) checkSights(call *Call) {
	sights := call.Seen
	if f := call.Final; f != nil && f.Err == nil && !f.Missing {
		sights = append(slices.Clone(sights), Sight{f.Status.State, f.Status.Attempt, f.Status.Records})
	}
	var last Sight // that does not stand apart
	for i, s := range sights {
		if i > 0 {
			c.checkStep(call.ID, sights[i-1], s)
		}
		if rank(s.State) == 0 {
			continue
		}
		if last.State != "" {
			c.checkOrder(call.ID, last, s)
		}
		last = s
	}
}

// checkStep compares what must hold between any two sights.
func (c *checker) checkStep(id string, before, after Sight) {
	if before.State.Ended() && (after.State != before.State || after.Attempt != before.Attempt) {
		c.violated("I5", id, "had ended as %s in attempt %d and is %s in %d", before.State, before.Attempt, after.State, after.Attempt)
	}
	if after.Attempt < before.Attempt {
		c.violated("I5", id, "was in attempt %d and is in %d", before.Attempt, after.Attempt)
	}
	if after.Records < before.Records {
		c.violated("I4", id, "had %d records and has %d", before.Records, after.Records)
	}
}

// checkOrder compares two sights of which none stands apart. A job that was sent
// may wait again: it was proven not to have started. One that waits after an
// attempt carries that attempt's number.
func (c *checker) checkOrder(id string, before, after Sight) {
	if before.Attempt != after.Attempt || after.State == harp.StateQueued {
		return
	}
	if before.State == harp.StateQueued || before.State.Ended() {
		return
	}
	if rank(after.State) < rank(before.State) {
		c.violated("I5", id, "was %s and is %s in attempt %d", before.State, after.State, after.Attempt)
	}
}

// interval is the time in which a job ran.
type interval struct {
	job        string
	begin, end int64
}

const never = math.MaxInt64

// checkQueues is I6: in a queue never more run at a time than it allows.
func (c *checker) checkQueues() {
	queues := map[string][]interval{}
	most := map[string]int{}
	for _, call := range c.h.Calls() {
		if call.Queue == "" {
			continue
		}
		most[call.Queue] = max(most[call.Queue], call.Concurrency)
		for _, e := range c.executions[call.ID] {
			queues[call.Queue] = append(queues[call.Queue], e.interval)
		}
	}
	for name, ran := range queues {
		c.checkQueue(name, ran, most[name])
	}
}

func (c *checker) checkQueue(name string, ran []interval, most int) {
	type edge struct {
		at   int64
		step int
		job  string
	}
	var edges []edge
	for _, r := range ran {
		edges = append(edges, edge{r.begin, 1, r.job}, edge{r.end, -1, r.job})
	}
	slices.SortFunc(edges, func(a, b edge) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.step, b.step)) })
	running := 0
	for _, e := range edges {
		if running += e.step; running > most {
			c.violated("I6", e.job, "is one of %d that run at a time in queue %s, which allows %d", running, name, most)
			return
		}
	}
}
