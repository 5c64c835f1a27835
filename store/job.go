package store

import (
	"maps"
	"slices"
	"time"

	"github.com/harpcaller/harp"
)

// Job is the row of a job: what was asked, as far as the dispatcher decides by it,
// and its [Life]. The request itself lies beside it, byte for byte.
type Job struct {
	ID          string
	No          uint64 // submit number: the order of acknowledgement
	Host        string
	Procedure   string
	Queue       harp.Value // canonical; nil: in none
	Concurrency int        // of the queue, if this job creates it
	Priority    int
	NotBefore   time.Time     // StartAfter
	Expires     time.Time     // StartBefore
	OfflineWait time.Duration // harp.NoLimit: until Expires
	Timeout     time.Duration // granted
	MaxExecTime time.Duration // granted
	Labels      map[string]string
	Principal   harp.Principal
	Batch       string
	Schedule    string
	FireTime    time.Time // of the schedule
	RetryOf     string
	DryRun      bool
	TraceParent string
	SubmitTime  time.Time
	QueuePos    int // only in what Store.Job returns: 1 is next

	Life
}

// Clone returns a copy of the job that shares no memory with it.
func (j Job) Clone() Job {
	j.Queue, j.Labels = slices.Clone(j.Queue), maps.Clone(j.Labels)
	j.Attempts, j.Retry.On, j.Left = slices.Clone(j.Attempts), slices.Clone(j.Retry.On), slices.Clone(j.Left)
	j.Outcome, j.Cancel, j.Stopping, j.Late = cloned(j.Outcome), cloned(j.Cancel), cloned(j.Stopping), cloned(j.Late)
	cloneFailure(&j.Failure)
	if j.Outcome != nil {
		cloneFailure(&j.Outcome.Failure)
	}
	if j.Late != nil {
		cloneFailure(&j.Late.Failure)
	}
	return j
}

func cloneFailure(f *harp.Failure) {
	f.Data, f.ExitCode = slices.Clone(f.Data), cloned(f.ExitCode)
}

func cloned[T any](p *T) *T {
	if p == nil {
		return nil
	}
	c := *p
	return &c
}
