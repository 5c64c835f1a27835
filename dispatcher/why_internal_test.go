package dispatcher

import (
	"testing"
	"testing/synctest"

	"github.com/harpcaller/harp"
)

// After a restart a host that was connected is about to return, and is not told to be away since a time
// that is to come.
func TestWhyOfAHostThatReturns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := openWithWebs(t)
		s := d.service(harp.Principal{Kind: "caller", Name: "ci"})
		req := harp.Request{ID: harp.NewID(), Host: "web01", Procedure: "host.name"}
		if out, err := s.Submit(t.Context(), []harp.Submission{{Request: req.Encode()}}); err != nil || out[0].Err != nil {
			t.Fatal(out, err)
		}
		status, err := s.JobStatus(t.Context(), req.ID)
		if err != nil || len(status.Obstacles) != 1 || status.Obstacles[0].Reason != harp.ReasonOffline || !status.Obstacles[0].Since.IsZero() {
			t.Errorf("it waits for %+v, %v", status.Obstacles, err)
		}
	})
}
