package rows

import (
	"fmt"
	"testing"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/store"
)

// TestRowsOfAJob counts what is written of a job that is in no queue and has no labels, from its
// submission until it has ended with a short value: deletions too, and what each commit writes.
func TestRowsOfAJob(t *testing.T) {
	for name, c := range map[string]struct {
		together int  // jobs in a commit
		waits    bool // for its host, and is claimed when that is there
		budget   float64
	}{
		"many in a commit":              {together: 100, budget: 8},
		"many in a commit, which wait":  {together: 100, waits: true, budget: 9},
		"each in a commit of its own":   {together: 1, budget: 16},
		"each in its own, and it waits": {together: 1, waits: true, budget: 18},
	} {
		t.Run(name, func(t *testing.T) {
			const jobs = 200
			e := newTrial()
			s := opened(t, e, Options{})
			e.commits = nil
			for range jobs / c.together {
				if c.waits {
					s.SetGate("web-01.example.org", store.Gate{Reason: harp.ReasonOffline})
				} else {
					openGate(s, "web-01.example.org")
				}
				var calls []store.Submission
				for range c.together {
					calls = append(calls, usualCall())
				}
				sent := submitted(t, s, calls...)
				if c.waits {
					openGate(s, "web-01.example.org")
					sent = claimed(t, s, "web-01.example.org", len(sent))
				}
				var starts, ends []store.Transition
				for _, j := range sent {
					start, end := about(j, store.Started), about(j, store.End)
					end.Event.Value = make(harp.Value, 30)
					starts, ends = append(starts, start), append(ends, end)
				}
				applied(t, s, starts...)
				applied(t, s, ends...)
			}
			rows, size := 0, 0
			for _, writes := range e.commits {
				rows += len(writes)
				for _, w := range writes {
					size += len(w.Key) + len(w.Value)
				}
			}
			each := float64(rows) / jobs
			t.Logf("%.1f rows and %d bytes a job", each, size/jobs)
			if each > c.budget {
				t.Errorf("%.1f rows are written of a job, at most %.0f are allowed", each, c.budget)
			}
		})
	}
}

// usualCall is a call as most are.
func usualCall() store.Submission {
	c := call("web-01.example.org")
	c.Job.Procedure = "service.restart"
	c.Job.Principal = harp.Principal{Kind: "caller", Name: "ops", Auth: "certificate"}
	c.Job.SilenceTimeout, c.Job.MaxExecTime = time.Minute, time.Hour
	c.Request.Request = fmt.Appendf(nil, "%0100d", 0)
	return c
}

func claimed(t testing.TB, s *Store, host string, n int) []*store.Job {
	t.Helper()
	got, err := s.Claim(t.Context(), []string{host}, n, noon)
	if err != nil || len(got) != n {
		t.Fatalf("%d of %d jobs were claimed, %v", len(got), n, err)
	}
	return got
}
