package store

import (
	"maps"
	"slices"
	"time"

	"github.com/harpcaller/harp"
)

// Job is the row of a job: what was asked, as far as the dispatcher decides by it,
// and its [Life]. The request itself is stored with it, byte for byte. The keys are those of
// rows on disk, as all in this package.
//
// A job travels by pointer, from the store through the dispatcher, and whoever meets it may
// keep it: so nobody changes a job, or what it points to, that others may have. What changes a
// job makes a new one, and what leaves for those who know nothing of this rule is a [Job.Clone].
type Job struct {
	ID             string            `msgpack:"-"`
	No             uint64            `msgpack:"no"` // submit number: the order of acknowledgement
	Host           string            `msgpack:"host"`
	Procedure      string            `msgpack:"proc"`
	Queue          harp.Value        `msgpack:"queue,omitempty"` // canonical; nil: in none
	Concurrency    int               `msgpack:"conc,omitempty"`  // of the queue, if this job creates it
	Priority       int               `msgpack:"prio,omitempty"`
	NotBefore      time.Time         `msgpack:"not_before,omitempty"`   // StartAfter
	Expires        time.Time         `msgpack:"expires,omitempty"`      // StartBefore
	OfflineWait    time.Duration     `msgpack:"offline_wait,omitempty"` // harp.NoLimit: until Expires
	SilenceTimeout time.Duration     `msgpack:"timeout,omitempty"`      // granted
	MaxExecTime    time.Duration     `msgpack:"max_exec,omitempty"`     // granted
	Labels         map[string]string `msgpack:"labels,omitempty"`
	Principal      harp.Principal    `msgpack:"by"`
	Batch          string            `msgpack:"batch,omitempty"` // that it is a member of
	Index          int               `msgpack:"index,omitempty"` // of its host in the batch
	Chain          *ChainPlace       `msgpack:"chain,omitempty"` // where in a chain it is; nil: its batch is none
	Schedule       string            `msgpack:"schedule,omitempty"`
	FireTime       time.Time         `msgpack:"fire,omitempty"` // of the schedule
	RetryOf        string            `msgpack:"retry_of,omitempty"`
	DryRun         bool              `msgpack:"dry_run,omitempty"`
	Drift          string            `msgpack:"drift,omitempty"`     // the name under which it marks its host; only of a member of a batch
	ReadOnly       bool              `msgpack:"read_only,omitempty"` // its procedure has harp.TraitReadOnly
	TraceParent    string            `msgpack:"trace,omitempty"`
	SubmitTime     time.Time         `msgpack:"submit"`
	SecretArgs     []string          `msgpack:"secret,omitempty"` // those not to be shown, as schema.HideArgs takes them
	QueuePos       int               `msgpack:"-"`                // only in what Store.Job returns: 1 is next

	Life `msgpack:"-"` // in a row of its own
}

// Clone returns a copy of the job that shares no memory with it.
func (j *Job) Clone() *Job {
	c := *j
	j = &c
	j.Queue, j.Labels, j.SecretArgs = slices.Clone(j.Queue), maps.Clone(j.Labels), slices.Clone(j.SecretArgs)
	j.Attempts, j.Retry.On, j.Left = slices.Clone(j.Attempts), slices.Clone(j.Retry.On), slices.Clone(j.Left)
	j.Outcome, j.Cancel, j.Stopping, j.Late = cloned(j.Outcome), cloned(j.Cancel), cloned(j.Stopping), cloned(j.Late)
	j.Chain = cloned(j.Chain)
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
