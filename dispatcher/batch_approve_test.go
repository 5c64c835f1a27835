package dispatcher_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/harpcaller/harp"
)

// A batch whose beginning is to be approved reaches no host before somebody resumes it. One that is cancelled instead ends as not
// approved, and none of its members has run.
func TestBeginningIsApproved(t *testing.T) {
	everyWiring(t, func(t *testing.T, sys *system) {
		ctx := t.Context()
		sys.webs(3)
		hosts := sys.caller.Target("web*", harp.ApproveFirst())
		submit := func() *harp.Batch {
			t.Helper()
			b := must[*harp.Batch](t)(hosts.Call(ctx, "host.name", nil))
			s := must[harp.BatchStatus](t)(b.Status(ctx))
			if s.State != harp.BatchPaused || s.Reason != harp.BatchReasonApproval || s.Reached != 0 || s.Counts[harp.StateQueued] != 3 ||
				s.Pause == nil || !s.Pause.Until.After(s.Pause.Time) {
				t.Fatalf("it begins as %+v", s)
			}
			return b
		}
		refused := submit()
		if n := must[int](t)(refused.Cancel(ctx)); n != 3 {
			t.Errorf("%d members were cancelled", n)
		}
		ended(t, refused, harp.BatchCancelled, harp.BatchReasonNotApproved)
		for _, r := range allOf(t, refused.Results(ctx)) {
			if r.State != harp.StateCancelled || harp.RanOf(r.Err) != harp.DidNotRun {
				t.Errorf("%s ended as %+v", r.Host, r.Result)
			}
		}
		if err := refused.Resume(ctx); !errors.Is(err, harp.ErrConflict) {
			t.Errorf("resumed when it has ended: %v", err)
		}

		approved := submit()
		if err := approved.Pause(ctx, "lunch"); err != nil {
			t.Error(err)
		}
		if s := must[harp.BatchStatus](t)(approved.Status(ctx)); s.Reason != harp.BatchReasonApproval || s.Pause.Reason != "lunch" || s.Pause.By.Kind == "" {
			t.Errorf("paused it is %+v", s)
		}
		if err := approved.Approve(ctx, 1); !errors.Is(err, harp.ErrConflict) || !strings.Contains(err.Error(), "it is paused (approval) by ") {
			t.Errorf("approved while it is paused: %v", err)
		}
		if err := approved.Resume(ctx); err != nil {
			t.Error(err)
		}
		ended(t, approved, harp.BatchSucceeded, "")

		again := must[*harp.Batch](t)(refused.Retry(ctx, nil))
		if s := must[harp.BatchStatus](t)(again.Status(ctx)); s.Reason != harp.BatchReasonApproval || s.RetryOf != refused.ID() {
			t.Errorf("what is made again is %+v", s)
		}
		if err := again.Resume(ctx); err != nil {
			t.Error(err)
		}
		ended(t, again, harp.BatchSucceeded, "")
	})
}
