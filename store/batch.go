package store

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/failures"
)

// Batch is the row of a batch: one call on many hosts, whose members are jobs as all others. Which
// hosts these are never changes.
type Batch struct {
	ID           string       `msgpack:"-"`
	No           uint64       `msgpack:"no"`             // submit number
	Target       string       `msgpack:"target"`         // canonical
	Hosts        int          `msgpack:"hosts"`          // how many it has
	Gone         int          `msgpack:"gone,omitempty"` // how many it lacks of those that it was to have, as they are not known any more
	Plan         BatchPlan    `msgpack:"plan"`
	SkipAway     bool         `msgpack:"skip_away,omitempty"`      // hosts that are away at their turn are left out
	SkipHeld     bool         `msgpack:"skip_held,omitempty"`      // so are those that a window or a pause keeps back then
	QueuePerHost bool         `msgpack:"queue_per_host,omitempty"` // the name of the queue gets the host's
	EachStep     bool         `msgpack:"each_step,omitempty"`      // windows concern each step of a chain, not the first alone
	Classes      []BatchClass `msgpack:"classes"`                  // of its hosts
	Member       Job          `msgpack:"member"`                   // what all members have in common; of a chain those of its first step
	Steps        []BatchStep  `msgpack:"steps,omitempty"`          // of a chain: those behind the first

	BatchLife `msgpack:"-"` // in a row of its own
}

// BatchClass is what a procedure's own words give those members on whose hosts they are the same.
type BatchClass struct {
	SilenceTimeout time.Duration    `msgpack:"timeout,omitempty"`
	MaxExecTime    time.Duration    `msgpack:"max_exec,omitempty"`
	Retry          harp.RetryPolicy `msgpack:"retry,omitempty"`
	SecretArgs     []string         `msgpack:"secret,omitempty"`
	ReadOnly       bool             `msgpack:"read_only,omitempty"`
	OfflineWait    time.Duration    `msgpack:"offline_wait,omitempty"` // of a step of a chain behind the first; 0: as the first
}

// BatchHost is one host of a batch.
type BatchHost struct {
	Name  string
	Class int    // its place in Batch.Classes
	Unfit string // why it is left out at its turn, in a word; "": it is not
}

// What a batch is at most.
const (
	MaxBatchHosts = 100_000   // hosts of one
	MaxMembers    = 1_000_000 // members of all batches of a store that have not ended
)

// Clone returns a copy of the batch that shares no memory with it.
func (b *Batch) Clone() *Batch {
	c := *b
	c.Member = *b.Member.Clone()
	c.Plan.Waves, c.Skipped = slices.Clone(b.Plan.Waves), maps.Clone(b.Skipped)
	c.Pause, c.Cancel = cloned(b.Pause), cloned(b.Cancel)
	c.Classes, c.Steps = cloneClasses(b.Classes), slices.Clone(b.Steps)
	for n := range c.Steps {
		c.Steps[n].Classes = cloneClasses(c.Steps[n].Classes)
	}
	return &c
}

func cloneClasses(classes []BatchClass) []BatchClass {
	c := slices.Clone(classes)
	for n := range c {
		c[n].SecretArgs, c[n].Retry.On = slices.Clone(c[n].SecretArgs), slices.Clone(c[n].Retry.On)
	}
	return c
}

// QueueOn is the queue that a batch with a queue for each host has on one: its name with that of the host in it. Errors:
// harp.ErrInvalid (queue) where there is no room for it.
func QueueOn(name harp.Value, host string) (harp.Value, error) {
	var keys map[string]any
	if err := name.Decode(&keys); err != nil {
		return nil, err
	}
	keys["host"] = host
	return harp.QueueName(keys)
}

// Unended is how many members of the batch have not ended, those on hosts that are not reached included.
func (b *Batch) Unended() int {
	if b.IsOver() {
		return b.Counts.Unended()
	}
	return b.Counts.Unended() + b.Unreached()
}

// Unreached is how many members the batch has whose hosts are not reached, and that were not cancelled by
// themselves. All are as UnreachedLife says.
func (b *Batch) Unreached() int { return b.Hosts - b.Reached - b.Early }

// ByState is how many members are in each state in which there are some, those of hosts that are not reached included.
func (b *Batch) ByState() map[harp.State]int {
	counts := b.Counts.ByState()
	if left := b.Unreached(); left > 0 {
		counts[b.UnreachedLife().State] += left
	}
	return counts
}

// UnreachedLife is the life of a member whose host was not reached.
func (b *Batch) UnreachedLife() Life {
	begin := Begin(b.Member.SubmitTime, harp.ReasonBatch)
	var e Event
	switch {
	case !b.IsOver():
		return begin
	case b.Stopped == harp.BatchReasonRestored:
		e = Event{Kind: Lose, At: b.EndTime, Reason: harp.LostRestored}
	default:
		e = b.CancelOfMembers()
	}
	after, _, err := begin.Next(e)
	if err != nil {
		panic("store: a waiting job can be cancelled and lost: " + err.Error())
	}
	return after
}

// Batches keeps batches. Their members are read, and moved through their lives, as all jobs are: a
// member of a host that is not reached yet is shown as queued(batch). [Jobs.Advance] reaches the
// first hosts of a batch, and those whose time has come; the next ones are reached in the commit in which
// a member gives its slot back.
type Batches interface {
	// SubmitBatch stores a new batch in one commit, the names of its hosts in the order in which
	// they are reached. One whose id is stored, or whose idempotency key stands for another, is
	// answered as it is with New false. Errors: harp.ErrConflict (the id or the key is another
	// request's), harp.ErrPruned, harp.ErrInvalid for more than MaxBatchHosts or about 2.5 MiB, more than
	// eight reasons for hosts to be left out or a host that is there twice, harp.ErrRefused for more than
	// MaxMembers or Most, or with Refused harp.ErrNotFound, harp.ErrNoSpace; ctx's, when nothing is stored.
	SubmitBatch(ctx context.Context, b BatchSubmission, now time.Time) (BatchSubmitted, error)

	// Batch returns a batch. Errors: harp.ErrNotFound, harp.ErrPruned.
	Batch(ctx context.Context, id string) (*Batch, error)

	// BatchMembers returns up to n members of a batch in the order in which its hosts are reached,
	// from one on; of a chain those of all steps of a host one after the other. One whose rows are damaged is
	// unknown, and lost when the batch has ended. Errors: as Batch.
	BatchMembers(ctx context.Context, id string, from, n int) ([]*Job, error)

	// BatchLog returns entries of a batch's log from a number on, at most n; with 0 it only says where the log ends. Errors: as
	// Batch; ErrDamaged where the next one is missing.
	BatchLog(ctx context.Context, id string, from uint64, n int) (BatchLog, error)

	// ChangeBatch pauses, resumes or cancels a batch, by one of the events of that kind, which from
	// then on holds for all its members. Those that hold an attempt are asked to stop by Advance,
	// which says so in Asked. Asked again under the same id it changes nothing, and is answered with the
	// same Count. Errors: as Batch; ErrIllegal when the batch is ended or, but for a cancel, cancelling,
	// and for a resume of another wave than waits;
	// harp.ErrConflict, harp.ErrInvalid (id) and harp.ErrPruned as CancelQueue; harp.ErrInvalid for a
	// Reason of more than 4 KiB.
	ChangeBatch(ctx context.Context, id string, e BatchEvent, op Operation) (BatchChanged, error)

	// ListBatches returns a page of batches, newest first. It examines at most MaxExamined, and
	// may come back short with a Cursor. Errors: harp.ErrInvalid (cursor).
	ListBatches(ctx context.Context, f BatchFilter, cursor string) (BatchPage, error)
}

// BatchSubmission is a new batch with its request.
type BatchSubmission struct {
	Batch   Batch       // No and BatchLife are the store's to set
	Hosts   []BatchHost // in the order in which they are reached
	Request harp.Submission
	Digest  [32]byte

	// Key, KeyUntil and Refused are as those of a [Submission]. Most is how much the principal of the
	// members may have with them; hosts that are not reached count as jobs that wait.
	Key      string
	KeyUntil time.Time
	Most     Quota
	Refused  bool
}

// BatchSubmitted is the outcome of a submission.
type BatchSubmitted struct {
	Batch *Batch
	New   bool
}

// BatchChanged is the outcome of a change of a batch.
type BatchChanged struct {
	Batch *Batch
	Count int // members that had not ended, those on hosts that were not reached included
}

// BatchFilter selects batches; a zero field selects all.
type BatchFilter struct {
	States    []harp.BatchState
	Procedure string
	Limit     int // of batches in the page
}

// Matches reports whether the filter selects a batch.
func (f *BatchFilter) Matches(b *Batch) bool {
	return (len(f.States) == 0 || slices.Contains(f.States, b.State)) && (f.Procedure == "" || f.Procedure == b.Member.Procedure)
}

// BatchPage is a part of a listing.
type BatchPage struct {
	Batches []*Batch
	Cursor  string // "": there are no more
}

// BatchEntryKind names what an entry of a batch's log tells.
type BatchEntryKind int

// The kinds of entries.
const (
	BatchMemberEnded   BatchEntryKind = iota + 1 // the member on the host at Index has ended; of a chain all of it has there, and Step says how
	BatchMemberRecords                           // the member on the host at Index has Count more records, from First on
	BatchNotReached                              // Count hosts from Index on will not be reached any more
	BatchMemberSkipped                           // the host at Index was left out when its turn came
	BatchGap                                     // Count numbers that nothing has: of what came behind the backup that the store was restored from
)

// BatchEntry is an entry of a batch's log. Entries are numbered from 0 without gaps; BatchNotReached has as
// many numbers as hosts, and BatchGap as it says.
type BatchEntry struct {
	No    uint64
	Kind  BatchEntryKind
	Index int
	Host  string // at Index
	Step  int    // whose member it is about; 1 if the batch is no chain
	First uint64 // the job's number of a record
	Count int
}

// Numbers is how many numbers the entry has.
func (e *BatchEntry) Numbers() uint64 {
	if e.Kind == BatchNotReached || e.Kind == BatchGap {
		return uint64(e.Count) //nolint:gosec // never negative
	}
	return 1
}

// BatchLog is a part of a batch's log.
type BatchLog struct {
	Entries []BatchEntry
	Next    uint64 // where to go on
	End     uint64 // the number of the entry that will come next, of all there are
	Ended   bool   // the batch has, and there are no more
}

// SkippedLife is the life of a member that was left out when its host's turn came.
func SkippedLife(at time.Time, reason string) Life {
	l := Begin(at, "")
	switch reason {
	case harp.ReasonOffline, harp.ReasonWindow, harp.ReasonPaused:
		return l.expired(Event{At: at, Reason: reason})
	}
	f := failures.New("rejected", "the host was left out of its batch")
	f.Type, f.Ran = reason, harp.DidNotRun
	return l.ended(Event{At: at}, Outcome{State: harp.StateRejected, Reason: reason, Started: harp.DidNotRun, Failure: f})
}
