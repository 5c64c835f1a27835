package dispatcher_test

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/dispatcher"
	"github.com/harpcaller/harp/store"
	"github.com/harpcaller/harp/store/memory"
)

// requestReads counts how often the request of a job or batch is read.
type requestReads struct {
	store.Store
	n atomic.Int64
}

func (s *requestReads) Request(ctx context.Context, id string) (harp.Submission, error) {
	s.n.Add(1)
	return s.Store.Request(ctx, id)
}

// The request of a batch is not read again for each member that is sent or shown.
func TestBatchRequestIsReadOnce(t *testing.T) {
	st := &requestReads{Store: memory.Open(nil)}
	sys := newSystem(t, embedded, st, dispatcher.Config{})
	sys.webs(5)
	b := must[*harp.Batch](t)(hostName.Run(t.Context(), sys.caller.Target("web*"), struct{}{}))
	ended(t, b, harp.BatchSucceeded, "")
	jobs := allOf(t, sys.caller.Jobs(t.Context(), harp.JobFilter{Batch: b.ID()}))
	if n := st.n.Load(); len(jobs) != 5 || n != 0 {
		t.Errorf("the request of %d members was read %d times", len(jobs), n)
	}
	jobs[0].Args[0] = 0 // is its own memory
	if again := must[harp.JobStatus](t)(b.Job("web02").Status(t.Context())); again.Args.String() != jobs[1].Args.String() {
		t.Errorf("the arguments are %s, were %s", again.Args, jobs[1].Args)
	}
}
