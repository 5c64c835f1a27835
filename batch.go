package harp

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"iter"
	"slices"
	"time"

	"github.com/google/uuid"
)

// Batch is a handle of one batch: one call on many hosts, whose members are jobs as all others. It
// remembers nothing of its state. It is safe for concurrent use.
type Batch struct {
	service Service
	id      string
	existed bool
}

// Batch returns the handle of a batch from its id, without asking anybody.
func (c *Caller) Batch(id string) *Batch { return &Batch{service: c.service, id: id} }

// Batches lists the batches that match f, newest first. Pages are fetched as the loop goes; an
// error is the last thing it yields. Errors: ErrInvalid for a filter that cannot be,
// ErrUnavailable, ErrClosed.
func (c *Caller) Batches(ctx context.Context, f BatchFilter) iter.Seq2[BatchStatus, error] {
	return pages(func(cursor string) (Page[BatchStatus], error) { return c.service.ListBatches(ctx, f, cursor) })
}

// BatchesPage is one page of Batches, for programs that page themselves. A page may be short or
// even empty while its Cursor is set: then there is more. Errors: as Batches, and ErrInvalid for a
// cursor that is none.
func (c *Caller) BatchesPage(ctx context.Context, f BatchFilter, cursor string) (Page[BatchStatus], error) {
	return c.service.ListBatches(ctx, f, cursor)
}

// ID returns the batch's id.
func (b *Batch) ID() string { return b.id }

// Existed is as [Job.Existed].
func (b *Batch) Existed() bool { return b.existed }

// Job returns the handle of the batch's job on a host, without asking anybody: a host that is not
// in the batch shows when the job is asked for. step is that of a chain, from 1, which it is without one.
func (b *Batch) Job(host string, step ...int) *Job {
	n := 1
	if len(step) > 0 {
		n = step[0]
	}
	if CheckID(b.id) != nil {
		return &Job{service: b.service, id: b.id} // which is no id of a job either
	}
	return &Job{service: b.service, id: MemberID(b.id, host, n)}
}

// Status returns the state of the batch now. Errors: ErrInvalid (the id), ErrNotFound, ErrPruned,
// ErrUnavailable, ErrClosed.
func (b *Batch) Status(ctx context.Context) (BatchStatus, error) {
	return b.service.BatchStatus(ctx, b.id, false)
}

// Wait is Status when the batch has ended. It goes on through lost connections and restarts of
// the dispatcher until ctx ends. That a batch failed is no error. Errors: ErrInvalid (the id),
// ErrNotFound, ErrPruned, ErrClosed, ctx's.
func (b *Batch) Wait(ctx context.Context) (BatchStatus, error) {
	return b.service.BatchStatus(ctx, b.id, true)
}

// Results yields how the batch's members ended, in the order in which they did, until the batch
// has ended: from the first on, or with [Since] from that number of its log, without gap or repeat;
// in another process it goes on with one more than the Seq of the last. Members that were skipped,
// and those of hosts that are not reached as the batch was cancelled, are among them. It goes on
// through lost connections and restarts of the dispatcher until ctx ends. An error is the last
// thing it yields. Errors: as Wait.
func (b *Batch) Results(ctx context.Context, opts ...StreamOption) iter.Seq2[HostResult, error] {
	q := BatchQuery{Wait: true}
	return func(yield func(HostResult, error) bool) {
		for r, err := range b.pull(ctx, q, opts) {
			if err != nil {
				yield(HostResult{}, err)
				return
			}
			if r.End != nil && !yield(HostResult{Seq: r.Seq, Host: r.Host, Job: r.Job, Step: r.Step, Skipped: r.Skipped, Result: *r.End}, nil) {
				return
			}
		}
	}
}

// Follow yields the records and the ends of all members from the moment the loop starts until the
// batch has ended; Since(0) adds all that came before. Records that were stored together have the
// same Seq: who goes on in another process with Since of the last one gets that one's neighbours
// again, and misses none. It goes on as Results does. Errors: as Wait.
func (b *Batch) Follow(ctx context.Context, opts ...StreamOption) iter.Seq2[HostRecord, error] {
	return b.pull(ctx, BatchQuery{Records: true, Tail: true, Wait: true}, opts)
}

// pull reads the batch's log page by page.
func (b *Batch) pull(ctx context.Context, q BatchQuery, opts []StreamOption) iter.Seq2[HostRecord, error] {
	for _, opt := range opts {
		q.From, q.Recent, q.Tail = opt.from, opt.recent, opt.tail
	}
	return func(yield func(HostRecord, error) bool) {
		q := q
		for {
			page, err := b.service.BatchLog(ctx, b.id, q)
			if err != nil {
				yield(HostRecord{}, err)
				return
			}
			for _, r := range page.Entries {
				if !yield(r, nil) {
					return
				}
			}
			if page.Ended {
				return
			}
			q.From, q.At, q.Tail = page.Next, page.At, false
		}
	}
}

// Pause keeps the batch from starting anything more until it is resumed; what runs goes on. reason
// is for people. A batch that is paused for longer than the dispatcher's limits.batch_pause is
// cancelled. One that waits for an approval does so still, but Resume alone lets it go on. Of one that
// somebody has paused already it changes nothing. Errors: ErrInvalid (the id; reason, longer
// than MaxWhy), ErrConflict when the batch has ended or is cancelling, ErrNotFound, ErrPruned,
// ErrUnavailable, ErrClosed.
func (b *Batch) Pause(ctx context.Context, reason string) error {
	_, err := b.change(ctx, BatchChange{Kind: PauseOfBatch, Reason: reason})
	return err
}

// Resume lets a batch go on that is paused, whatever for; its failures count anew from here. Of one that is to be
// approved it is the approval: see [ApproveFirst]. Of one that is not paused it changes nothing. Errors:
// as Pause.
func (b *Batch) Resume(ctx context.Context) error {
	_, err := b.change(ctx, BatchChange{Kind: ResumeOfBatch})
	return err
}

// Approve is Resume of a batch that waits for the approval of one wave, counted from 1, which is the Wave of
// its BatchStatus: it approves no other, and ends no other pause, that has come since the status was looked
// at, as one by Pause. Of a batch whose wave is under way it changes nothing. Errors: as Pause; ErrConflict also when the batch
// is elsewhere, ErrInvalid for a wave below 1.
func (b *Batch) Approve(ctx context.Context, wave int) error {
	if wave < 1 {
		return &FieldError{Field: "wave", Message: "must be at least 1"}
	}
	_, err := b.change(ctx, BatchChange{Kind: ResumeOfBatch, Wave: wave})
	return err
}

// Cancel ends the batch: from when it returns on none of its members starts, and those that run are
// asked to stop. It returns how many members had not ended, those of hosts that were not reached
// included; 0 of a batch that had ended. Errors: as Pause, without ErrConflict.
func (b *Batch) Cancel(ctx context.Context) (int, error) {
	return b.change(ctx, BatchChange{Kind: CancelOfBatch})
}

func (b *Batch) change(ctx context.Context, c BatchChange) (int, error) {
	if err := c.Check(); err != nil {
		return 0, err
	}
	return b.service.ChangeBatch(ctx, NewID(), b.id, c)
}

// Which members of a batch [Batch.Retry] takes if it is not told: those that failed and of which it
// is certain that they may run again, and those that did not start.
var retriedByDefault = []string{
	string(StateFailed), string(StateTimedOut), string(StateExpired), string(StateRejected), string(StateCancelled) + "(" + ReasonBatch + ")",
}

// Retry makes a new batch of those members that ended in one of the states which, its RetryOf
// naming this one: states, or a state with its reason as in "expired(offline)". "cancelled(batch)" is
// those that did not run. Without any it takes failed, timed_out, expired, rejected and
// cancelled(batch): lost ones, and what may have run before it was cancelled, only when they are
// named. Of a batch that is paused only what has ended counts. Procedure, arguments and options are
// those of this batch, but Subset, Confirmed, StartAfter, StartBefore and the idempotency key; opts
// go over them, of a chain over those of each step. Hosts that are not known any more are left out: the new batch's Gone counts them.
//
// Errors: ErrConflict while this batch runs, ErrNotFound (it, or no member is in such a state),
// ErrInvalid (retry: which), ErrPruned, and as [Target.Call].
func (b *Batch) Retry(ctx context.Context, which []string, opts ...Option) (*Batch, error) {
	req, err := b.retryRequest(ctx, which, opts)
	if err != nil {
		return nil, err
	}
	return submitBatch(ctx, b.service, req, nil)
}

// PreviewRetry says what [Batch.Retry], given the same, would meet now, as [Target.Preview] does of a call: of its hosts, those whose
// members would be made again and that are known still; Gone counts the others. The request is the one that Retry would make, with the procedure, the arguments
// and the options that it takes over. Nothing is stored. Errors: as Retry, but that Refusal of the Preview says what a batch is
// refused for when its hosts are known.
func (b *Batch) PreviewRetry(ctx context.Context, which []string, opts ...Option) (Preview, Request, error) {
	req, err := b.retryRequest(ctx, which, opts)
	if err != nil {
		return Preview{}, Request{}, err
	}
	p, err := b.service.PreviewBatch(ctx, Submission{Request: req.Encode()})
	return p, req, err
}

// retryRequest is the request by which members of the batch are made again.
func (b *Batch) retryRequest(ctx context.Context, which []string, opts []Option) (Request, error) {
	made, err := b.service.JobRequest(ctx, b.id)
	var old Request
	if err == nil {
		old, err = DecodeRequest(made.Request)
	}
	if err != nil || !old.IsBatch() {
		if _, not := b.Status(ctx); not != nil { // it speaks of batches
			return Request{}, not
		}
	}
	if err != nil {
		return Request{}, err
	}
	if len(which) == 0 {
		which = retriedByDefault
	}
	again := func(o *CallOptions) {
		old.again(o)
		o.Batch.Retry = slices.Clone(which)
	}
	on := Request{Target: old.Target, List: old.List, RetryOf: b.id}
	ofSteps := func(o *CallOptions) { old.limitSteps(o) }
	req, err := newBatchRequest(on, old.Procedure, old.Args, slices.Concat([]Option{again}, opts, []Option{ofSteps}))
	if err != nil {
		return Request{}, WrapCallError(old.Procedure, old.Target, err)
	}
	return req, nil
}

// submitBatch submits the request of a batch, with the hosts of its list.
func submitBatch(ctx context.Context, s Service, req Request, hosts []byte) (*Batch, error) {
	job, err := submitRequest(ctx, s, req, hosts)
	if err != nil {
		return nil, err
	}
	return &Batch{service: s, id: job.id, existed: job.existed}, nil
}

// HostResult is how a batch's member on a host ended.
type HostResult struct {
	Seq     uint64 `json:"seq"` // of the batch's log: Since(Seq+1) goes on behind it
	Host    string `json:"host"`
	Job     string `json:"job"`               // its id
	Step    int    `json:"step,omitempty"`    // of a chain: the one that says how the host ended; Job is its
	Skipped bool   `json:"skipped,omitempty"` // the host was left out when its turn came: nothing ran, and it does not fail the batch
	Result
}

// hostResultJSON is how a HostResult is written as JSON.
type hostResultJSON struct {
	Seq     uint64 `json:"seq"`
	Host    string `json:"host"`
	Job     string `json:"job"`
	Step    int    `json:"step,omitempty"`
	Skipped bool   `json:"skipped,omitempty"`
	resultJSON
}

// MarshalJSON writes the fields of the Result beside the others.
func (r HostResult) MarshalJSON() ([]byte, error) {
	return plainJSON(hostResultJSON{r.Seq, r.Host, r.Job, r.Step, r.Skipped, resultJSON{resultFields(r.Result), FailureOf(r.Err)}})
}

// UnmarshalJSON reads what MarshalJSON writes. Errors: those of package json.
func (r *HostResult) UnmarshalJSON(text []byte) error {
	var read hostResultJSON
	if err := json.Unmarshal(text, &read); err != nil {
		return err
	}
	*r = HostResult{Seq: read.Seq, Host: read.Host, Job: read.Job, Step: read.Step, Skipped: read.Skipped, Result: Result(read.resultFields)}
	r.Err = read.Error.Err()
	return nil
}

// HostRecord is a record of a batch's member on a host, or its end.
type HostRecord struct {
	Seq     uint64  `json:"seq"` // of the batch's log
	Host    string  `json:"host"`
	Job     string  `json:"job"`               // its id
	Step    int     `json:"step,omitempty"`    // of a chain, from 1
	Record  Record  `json:"record,omitzero"`   // without an End
	End     *Result `json:"end,omitempty"`     // nil: it is a record
	Skipped bool    `json:"skipped,omitempty"` // the host was left out when its turn came
}

// BatchStatus is the state of a batch at one moment. Times are UTC by the dispatcher's clock, zero
// where it has not happened.
type BatchStatus struct {
	ID         string            `json:"id" msgpack:"id"`
	Target     string            `json:"target" msgpack:"target"`                        // as its request has it, in its canonical form; empty of a list of names longer than MaxTarget
	Procedure  string            `json:"procedure" msgpack:"proc"`                       // of a chain that of its first step
	Steps      []string          `json:"steps,omitempty" msgpack:"steps,omitempty"`      // the procedures of a chain, one after the other
	RetryOf    string            `json:"retry_of,omitempty" msgpack:"retryof,omitempty"` // the batch whose members this one does again
	Schedule   string            `json:"schedule,omitempty" msgpack:"schedule,omitempty"`
	DryRun     bool              `json:"dry_run,omitempty" msgpack:"dry,omitempty"`
	Labels     map[string]string `json:"labels,omitempty" msgpack:"labels,omitempty"`
	Caller     Principal         `json:"caller" msgpack:"who"` // who called
	State      BatchState        `json:"state" msgpack:"state"`
	Reason     string            `json:"reason,omitempty" msgpack:"reason,omitempty"` // of the state: one of BatchReason...
	Since      time.Time         `json:"since,omitzero" msgpack:"since,omitempty"`    // when it came into its state
	Hosts      int               `json:"hosts" msgpack:"hosts"`                       // how many it has
	Reached    int               `json:"reached" msgpack:"reached,omitempty"`         // of these, whose turn has come
	Gone       int               `json:"gone,omitempty" msgpack:"gone,omitempty"`     // of a batch made again: hosts that were left out, as they were not known any more
	Wave       int               `json:"wave" msgpack:"wave"`                         // whose hosts are being reached, from 1
	Waves      int               `json:"waves" msgpack:"waves"`
	Parallel   int               `json:"parallel" msgpack:"parallel"`                           // members that run at a time, at most
	StopAfter  int               `json:"stop_after,omitempty" msgpack:"stopafter,omitempty"`    // with so many failures it stops; 0: never
	Failures   int               `json:"failures,omitempty" msgpack:"failures,omitempty"`       // since it was resumed last
	Counts     map[State]int     `json:"counts,omitempty" msgpack:"counts,omitempty"`           // members by state, without those that were skipped
	Early      int               `json:"early,omitempty" msgpack:"early,omitempty"`             // of the cancelled, those before the turn of their hosts: Results yields them when that comes
	Skipped    map[string]int    `json:"skipped,omitempty" msgpack:"skipped,omitempty"`         // members that were left out, by reason
	Pause      *BatchPause       `json:"pause,omitempty" msgpack:"pause,omitempty"`             // nil: it is not paused
	Cancel     *CancelRequest    `json:"cancel_requested,omitempty" msgpack:"cancel,omitempty"` // nil: nobody has
	SubmitTime time.Time         `json:"submit_time,omitzero" msgpack:"submit"`
	EndTime    time.Time         `json:"end_time,omitzero" msgpack:"end,omitempty"`
}

// BatchFilter selects batches; a zero field selects all.
type BatchFilter struct {
	States    []BatchState `msgpack:"states,omitempty"`
	Procedure string       `msgpack:"proc,omitempty"`
	Limit     int          `msgpack:"-"` // of batches in a page; 0: as many as fit
}

// BatchState is where a batch is in its life. An unknown word, from a newer dispatcher, is kept
// as it is.
type BatchState string

// The states. A batch that has not ended is in one of the first three; one that has never changes
// again.
const (
	BatchRunning    BatchState = "running"    // reaches its hosts, one after the other
	BatchPaused     BatchState = "paused"     // starts nothing until it is resumed; its reason says why
	BatchCancelling BatchState = "cancelling" // starts nothing any more; what runs is asked to stop

	BatchSucceeded BatchState = "succeeded" // all its members did, but for those that were skipped
	BatchFailed    BatchState = "failed"
	BatchCancelled BatchState = "cancelled"
)

// Ended reports whether s is a final state.
func (s BatchState) Ended() bool {
	switch s {
	case BatchSucceeded, BatchFailed, BatchCancelled:
		return true
	default:
		return false
	}
}

// Why a batch is in its state: BatchStatus.Reason.
const (
	BatchReasonOperator    = "operator"     // paused: somebody asked for it
	BatchReasonApproval    = "approval"     // paused: its beginning is to be approved; cancelling, cancelled: nobody did in time
	BatchReasonNotApproved = "not_approved" // cancelling, cancelled: somebody cancelled it rather than to approve it
	BatchReasonWave        = "wave"         // paused: a wave is over and the next one is to be approved
	BatchReasonFailures    = "failures"     // paused, cancelling, failed: as many members failed as StopAfter says
	BatchReasonStopped     = "stopped"      // cancelling, failed: it was paused longer than a batch may be
	BatchReasonRequested   = "requested"    // cancelling, cancelled: somebody asked for it
	BatchReasonNoHost      = "no_host"      // failed: all its hosts were skipped
	BatchReasonRestored    = "restored"     // failed: the dispatcher's store was restored from a backup
)

// BatchPause says why a batch is paused.
type BatchPause struct {
	By     Principal `json:"by,omitzero" msgpack:"by"`                    // who asked for it; zero: nobody did
	Reason string    `json:"reason,omitempty" msgpack:"reason,omitempty"` // in the words of who asked
	Time   time.Time `json:"time" msgpack:"time"`                         // UTC
	Until  time.Time `json:"until,omitzero" msgpack:"until,omitempty"`    // then the batch is cancelled
}

// MemberID returns the id of the job that a batch has on a host, a UUID of version 8 (RFC 9562)
// that begins with the time of the batch's id. step is that of a chain, from 1; of another batch it is
// 1. It panics if batch is no id as NewID makes them.
func MemberID(batch, host string, step int) string {
	id := uuid.MustParse(batch)
	said := binary.BigEndian.AppendUint32(id[:], uint32(step)) //nolint:gosec // a step is a small number
	sum := sha256.Sum256(append(said, host...))
	member := id
	copy(member[8:], sum[:8])
	member[6] = member[6]&0x0f | 8<<4
	member[8] = member[8]&0x3f | 2<<6
	return member.String()
}
