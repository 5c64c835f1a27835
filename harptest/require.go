package harptest

import (
	"slices"
	"testing"
	"time"

	"github.com/harpcaller/harp"
)

// RequireCalled returns the newest job of a procedure whose arguments match accepts, or of any if
// match is nil. It fails the test at once if there is none. sys is a [System] or a [Fake].
// Arguments that are secret are not shown, and not matched.
func RequireCalled[A, R any](t testing.TB, sys interface{ Caller() *harp.Caller }, p harp.Proc[A, R], match func(A) bool) harp.JobStatus {
	t.Helper()
	calls := 0
	for job, err := range sys.Caller().Jobs(t.Context(), harp.JobFilter{Procedure: p.Name}) {
		if err != nil {
			t.Fatal("harptest: list the jobs: ", err)
		}
		calls++
		var args A
		if job.Args.Decode(&args) == nil && (match == nil || match(args)) {
			return job
		}
	}
	t.Fatalf("harptest: %s was called %d times, and never so", p.Name, calls)
	return harp.JobStatus{}
}

// RequireState waits until a job is in one of these states, and returns its status. It fails the
// test at once if the job ends in another, or cannot be asked after.
func RequireState(t testing.TB, job *harp.Job, states ...harp.State) harp.JobStatus {
	t.Helper()
	ended := !slices.ContainsFunc(states, func(s harp.State) bool { return !s.Ended() })
	for {
		if ended { // no state before is of interest
			if _, err := job.Wait(t.Context()); err != nil {
				t.Fatal("harptest: wait for the job: ", err)
			}
		}
		s, err := job.Status(t.Context())
		switch {
		case err != nil:
			t.Fatal("harptest: ask after the job: ", err)
		case slices.Contains(states, s.State):
			return s
		case s.State.Ended():
			t.Fatalf("harptest: the job is %s (%s), want %v: %v", s.State, s.Reason, states, s.Err)
		}
		select {
		case <-time.After(5 * time.Millisecond):
		case <-t.Context().Done():
			t.Fatalf("harptest: the job is still %s, want %v", s.State, states)
		}
	}
}
