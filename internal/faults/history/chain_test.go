package history

import (
	"strings"
	"testing"

	"github.com/harpcaller/harp"
)

// TestChains: what is promised of chains is found to be broken, and nothing else is.
func TestChains(t *testing.T) {
	step := func(on harp.Ending, state harp.State, spans ...Span) ChainStep {
		return ChainStep{On: on, Job: harp.JobStatus{State: state, Attempt: len(spans), Started: harp.DidRun}, Ran: spans}
	}
	left := func(on harp.Ending, spans ...Span) ChainStep {
		return ChainStep{On: on, Job: harp.JobStatus{State: harp.StateCancelled, Reason: harp.ReasonChain, Started: harp.DidNotRun}, Ran: spans}
	}
	first, failed := step("", harp.StateSucceeded, Span{1, 2}), step("", harp.StateFailed, Span{1, 2})
	for name, c := range map[string]struct {
		chain  Chain
		result int
		want   string // the rules that are broken
	}{
		"succeeded":           {Chain{Steps: []ChainStep{first, step("", harp.StateSucceeded, Span{2, 3}), step("", harp.StateSucceeded, Span{4, 5})}}, 3, ""},
		"failed":              {Chain{Steps: []ChainStep{failed, left(""), left("")}}, 1, ""},
		"rolled back":         {Chain{Steps: []ChainStep{failed, step(harp.OnFailed, harp.StateSucceeded, Span{3, 4}), left(harp.OnFailed)}}, 1, ""},
		"left out":            {Chain{Steps: []ChainStep{first, left(harp.OnFailed), step("", harp.StateFailed, Span{3, 4})}}, 3, ""},
		"over":                {Chain{Steps: []ChainStep{first, left("")}, Over: true}, 1, ""},
		"out":                 {Chain{Steps: []ChainStep{step("", harp.StateCancelled), left(harp.OnEnded)}}, 1, ""},
		"behind what is lost": {Chain{Steps: []ChainStep{step("", harp.StateLost, Span{1, 5}), step(harp.OnFailed, harp.StateSucceeded, Span{3, 7})}}, 1, ""},
		"too early":           {Chain{Steps: []ChainStep{first, step("", harp.StateSucceeded, Span{1, 3})}}, 2, "C1"},
		"too early, again":    {Chain{Steps: []ChainStep{step("", harp.StateSucceeded, Span{1, 2}, Span{5, 6}), step("", harp.StateSucceeded, Span{4, 7})}}, 2, "C1"},
		"after a failed":      {Chain{Steps: []ChainStep{failed, step("", harp.StateSucceeded, Span{3, 4})}}, 1, "C2"},
		"after a left out":    {Chain{Steps: []ChainStep{failed, left(""), step("", harp.StateSucceeded, Span{3, 4})}}, 1, "C2"},
		"left out, and ran":   {Chain{Steps: []ChainStep{failed, left("", Span{3, 4})}}, 1, "C3"},
		"not begun":           {Chain{Steps: []ChainStep{first, left("")}}, 1, "C4"},
		"not begun always":    {Chain{Steps: []ChainStep{failed, left(harp.OnEnded)}}, 1, "C4"},
	} {
		result, broken := c.chain.Check()
		if result != c.result || len(broken) > 1 || !strings.HasPrefix(strings.Join(broken, ""), c.want) || len(broken) == 1 != (c.want != "") {
			t.Errorf("%s: step %d says how it ended, and %q, want %d and %s", name, result, broken, c.result, c.want)
		}
	}
}
