package rows

import (
	"slices"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/store"
)

// A job has two rows: what never changes since it was submitted, and its life,
// which every event rewrites. Field names are part of the format.

type callRow struct {
	No          uint64            `msgpack:"no"`
	Host        string            `msgpack:"host"`
	Procedure   string            `msgpack:"proc"`
	Queue       []byte            `msgpack:"queue,omitempty"`
	Concurrency int               `msgpack:"conc,omitempty"`
	Priority    int               `msgpack:"prio,omitempty"`
	NotBefore   int64             `msgpack:"not_before,omitempty"`
	Expires     int64             `msgpack:"expires,omitempty"`
	OfflineWait int64             `msgpack:"offline_wait,omitempty"`
	Timeout     int64             `msgpack:"timeout,omitempty"`
	MaxExecTime int64             `msgpack:"max_exec,omitempty"`
	Labels      map[string]string `msgpack:"labels,omitempty"`
	Principal   harp.Principal    `msgpack:"by"`
	Batch       string            `msgpack:"batch,omitempty"`
	Schedule    string            `msgpack:"schedule,omitempty"`
	FireTime    int64             `msgpack:"fire,omitempty"`
	RetryOf     string            `msgpack:"retry_of,omitempty"`
	DryRun      bool              `msgpack:"dry_run,omitempty"`
	TraceParent string            `msgpack:"trace,omitempty"`
	SubmitTime  int64             `msgpack:"submit"`
	Digest      []byte            `msgpack:"digest"`
	Retry       *retryRow         `msgpack:"retry,omitempty"`
}

// retryRow is the policy that was granted.
type retryRow struct {
	On         []harp.State `msgpack:"on"`
	Attempts   int          `msgpack:"attempts"`
	Backoff    int64        `msgpack:"backoff"`
	MaxBackoff int64        `msgpack:"max_backoff"`
}

func newRetryRow(p harp.RetryPolicy) *retryRow {
	if p.IsZero() {
		return nil
	}
	return &retryRow{On: p.On, Attempts: p.Attempts, Backoff: int64(p.Backoff), MaxBackoff: int64(p.MaxBackoff)}
}

func (r *retryRow) policy() harp.RetryPolicy {
	if r == nil {
		return harp.RetryPolicy{}
	}
	return harp.RetryPolicy{On: r.On, Attempts: r.Attempts, Backoff: time.Duration(r.Backoff), MaxBackoff: time.Duration(r.MaxBackoff)}
}

func newCallRow(j *store.Job, digest [32]byte) callRow {
	return callRow{
		No: j.No, Host: j.Host, Procedure: j.Procedure,
		Queue: j.Queue, Concurrency: j.Concurrency, Priority: j.Priority,
		NotBefore: nanos(j.NotBefore), Expires: nanos(j.Expires), OfflineWait: int64(j.OfflineWait),
		Timeout: int64(j.Timeout), MaxExecTime: int64(j.MaxExecTime),
		Labels: j.Labels, Principal: j.Principal,
		Batch: j.Batch, Schedule: j.Schedule, FireTime: nanos(j.FireTime), RetryOf: j.RetryOf, DryRun: j.DryRun,
		TraceParent: j.TraceParent, SubmitTime: nanos(j.SubmitTime), Digest: digest[:],
		Retry: newRetryRow(j.Retry),
	}
}

func (r *callRow) job(i id, life store.Life) store.Job {
	life.Retry = r.Retry.policy()
	return store.Job{
		ID: i.String(), No: r.No, Host: r.Host, Procedure: r.Procedure,
		Queue: r.Queue, Concurrency: r.Concurrency, Priority: r.Priority,
		NotBefore: fromNanos(r.NotBefore), Expires: fromNanos(r.Expires), OfflineWait: time.Duration(r.OfflineWait),
		Timeout: time.Duration(r.Timeout), MaxExecTime: time.Duration(r.MaxExecTime),
		Labels: r.Labels, Principal: r.Principal,
		Batch: r.Batch, Schedule: r.Schedule, FireTime: fromNanos(r.FireTime), RetryOf: r.RetryOf, DryRun: r.DryRun,
		TraceParent: r.TraceParent, SubmitTime: fromNanos(r.SubmitTime), Life: life,
	}
}

type lifeRow struct {
	State     harp.State   `msgpack:"state"`
	Reason    string       `msgpack:"reason,omitempty"`
	Since     int64        `msgpack:"since,omitempty"`
	UnknownOf harp.State   `msgpack:"unknown_of,omitempty"`
	Held      string       `msgpack:"held,omitempty"`
	Started   harp.Ran     `msgpack:"started,omitempty"`
	Attempt   int          `msgpack:"attempt,omitempty"`
	Fence     uint64       `msgpack:"fence,omitempty"`
	Attempts  []attemptRow `msgpack:"attempts,omitempty"`
	WakeAt    int64        `msgpack:"wake,omitempty"`
	Busy      int          `msgpack:"busy,omitempty"`
	Cancel    *requestRow  `msgpack:"cancel,omitempty"`
	Stopping  *stoppingRow `msgpack:"stopping,omitempty"`
	StartTime int64        `msgpack:"start,omitempty"`
	EndTime   int64        `msgpack:"end,omitempty"`
	Failure   *failureRow  `msgpack:"failure,omitempty"`
	HasValue  bool         `msgpack:"value,omitempty"`
	Records   uint64       `msgpack:"records,omitempty"`
	Stored    uint64       `msgpack:"stored,omitempty"`
	Full      bool         `msgpack:"full,omitempty"`
	Late      *lateRow     `msgpack:"late,omitempty"`
	Waits     bool         `msgpack:"outcome,omitempty"` // the outcome of an attempt lies beside the row
	Survivor  bool         `msgpack:"survivor,omitempty"`
	Left      []int        `msgpack:"left,omitempty"`
}

type failureRow = harp.Failure

type attemptRow struct {
	Number  int    `msgpack:"n"`
	Base    uint64 `msgpack:"base,omitempty"`
	Next    uint64 `msgpack:"next,omitempty"`
	Fence   uint64 `msgpack:"fence,omitempty"`
	Sent    int64  `msgpack:"sent,omitempty"`
	Started int64  `msgpack:"started,omitempty"`
	Ended   int64  `msgpack:"ended,omitempty"`
	Outcome string `msgpack:"outcome,omitempty"`
	Reason  string `msgpack:"reason,omitempty"`
}

// outcomeRow is how an attempt ended whose job has not. It lies beside the life,
// which is rewritten more often.
type outcomeRow struct {
	State    harp.State   `msgpack:"state"`
	Reason   string       `msgpack:"reason,omitempty"`
	Started  harp.Ran     `msgpack:"started"`
	Failure  harp.Failure `msgpack:"failure"`
	HasValue bool         `msgpack:"value,omitempty"`
}

type requestRow struct {
	By  harp.Principal `msgpack:"by"`
	At  int64          `msgpack:"at"`
	Now bool           `msgpack:"now,omitempty"`
}

type stoppingRow struct {
	Cause string `msgpack:"cause"`
	Since int64  `msgpack:"since,omitempty"`
	Limit int64  `msgpack:"limit,omitempty"`
}

type lateRow struct {
	State    harp.State   `msgpack:"state"`
	Failure  harp.Failure `msgpack:"failure"`
	HasValue bool         `msgpack:"value,omitempty"`
	At       int64        `msgpack:"at"`
}

func newLifeRow(l *store.Life) lifeRow {
	r := lifeRow{
		State: l.State, Reason: l.Reason, Since: nanos(l.Since), UnknownOf: l.UnknownOf, Held: l.Held,
		Started: l.Started, Attempt: l.Attempt, Fence: l.Fence, WakeAt: nanos(l.WakeAt), Busy: l.Busy,
		StartTime: nanos(l.StartTime), EndTime: nanos(l.EndTime), HasValue: l.HasValue,
		Records: l.Records, Stored: l.Stored, Full: l.Full,
		Waits: l.Outcome != nil, Survivor: l.Survivor, Left: l.Left,
	}
	for _, a := range l.Attempts {
		r.Attempts = append(r.Attempts, attemptRow{
			Number: a.Number, Base: a.Base, Next: a.Next, Fence: a.Fence,
			Sent: nanos(a.Sent), Started: nanos(a.Started), Ended: nanos(a.Ended), Outcome: a.Outcome, Reason: a.Reason,
		})
	}
	if c := l.Cancel; c != nil {
		r.Cancel = &requestRow{By: c.By, At: nanos(c.Time), Now: c.Now}
	}
	if s := l.Stopping; s != nil {
		r.Stopping = &stoppingRow{Cause: s.Cause, Since: nanos(s.Since), Limit: int64(s.Limit)}
	}
	if l.Failure.Code != "" {
		f := l.Failure // so that nothing points into the job
		r.Failure = &f
	}
	if late := l.Late; late != nil {
		r.Late = &lateRow{State: late.State, Failure: late.Failure, HasValue: late.HasValue, At: nanos(late.At)}
	}
	return r
}

func (r *lifeRow) life() store.Life {
	l := store.Life{
		State: r.State, Reason: r.Reason, Since: fromNanos(r.Since), UnknownOf: r.UnknownOf, Held: r.Held,
		Started: r.Started, Attempt: r.Attempt, Fence: r.Fence, WakeAt: fromNanos(r.WakeAt), Busy: r.Busy,
		StartTime: fromNanos(r.StartTime), EndTime: fromNanos(r.EndTime), HasValue: r.HasValue,
		Records: r.Records, Stored: r.Stored, Full: r.Full, Survivor: r.Survivor, Left: r.Left,
	}
	for _, a := range r.Attempts {
		l.Attempts = append(l.Attempts, store.Attempt{
			Number: a.Number, Base: a.Base, Next: a.Next, Fence: a.Fence,
			Sent: fromNanos(a.Sent), Started: fromNanos(a.Started), Ended: fromNanos(a.Ended), Outcome: a.Outcome, Reason: a.Reason,
		})
	}
	if c := r.Cancel; c != nil {
		l.Cancel = &harp.CancelRequest{By: c.By, Time: fromNanos(c.At), Now: c.Now}
	}
	if s := r.Stopping; s != nil {
		l.Stopping = &store.Stopping{Cause: s.Cause, Since: fromNanos(s.Since), Limit: time.Duration(s.Limit)}
	}
	if r.Failure != nil {
		l.Failure = *r.Failure
	}
	if late := r.Late; late != nil {
		l.Late = &store.Late{State: late.State, Failure: late.Failure, HasValue: late.HasValue, At: fromNanos(late.At)}
	}
	return l
}

// submissionRow is a job's request with its signature.
type submissionRow struct {
	Request   []byte `msgpack:"request"`
	Signature []byte `msgpack:"sig,omitempty"`
	KeyID     string `msgpack:"key,omitempty"`
}

// queueRow is what a queue is beyond its jobs. It exists while there is one that
// has not ended, or an operator has paused the queue or said its concurrency.
type queueRow struct {
	Concurrency int       `msgpack:"conc"`
	Fixed       bool      `msgpack:"fixed,omitempty"` // the concurrency is an operator's, not the first job's
	Paused      bool      `msgpack:"paused,omitempty"`
	Marks       []markRow `msgpack:"cancelled_through,omitempty"` // ascending
}

// markRow is one cancel of a queue: of its jobs up to a submit number.
type markRow struct {
	Through uint64         `msgpack:"no"`
	By      harp.Principal `msgpack:"by"`
	At      int64          `msgpack:"at"`
}

// through is the highest number that a cancel covers; 0: none.
func (r *queueRow) through() uint64 {
	if n := len(r.Marks); n > 0 {
		return r.Marks[n-1].Through
	}
	return 0
}

// cover returns a job as the first mark makes it that it is not above: if it has
// not ended, as after a cancel. Tell says that its agent has not been told.
func (r *queueRow) cover(j store.Job) (covered store.Job, tell bool) {
	if r == nil || j.State.Ended() {
		return j, false
	}
	i := slices.IndexFunc(r.Marks, func(m markRow) bool { return j.No <= m.Through })
	if i < 0 {
		return j, false
	}
	next, effect, err := j.Next(store.Event{Kind: store.CancelReq, At: fromNanos(r.Marks[i].At), By: r.Marks[i].By})
	if err != nil {
		return j, false // every job that has not ended admits a cancel
	}
	j.Life = next
	return j, effect.Tell
}

type hostRow struct {
	Fingerprint string              `msgpack:"fingerprint,omitempty"`
	Owner       string              `msgpack:"owner,omitempty"`
	Epoch       uint64              `msgpack:"epoch"`
	Instance    string              `msgpack:"instance,omitempty"`
	Boot        string              `msgpack:"boot,omitempty"`
	Journal     string              `msgpack:"journal,omitempty"`
	Position    uint64              `msgpack:"position,omitempty"`
	Software    string              `msgpack:"software,omitempty"`
	Labels      map[string]string   `msgpack:"labels,omitempty"`
	Facts       []byte              `msgpack:"facts,omitempty"`
	Procedures  []harp.ProcedureDoc `msgpack:"procedures,omitempty"` // by their json names
	LastHeard   int64               `msgpack:"heard,omitempty"`
	Connected   bool                `msgpack:"connected,omitempty"`
}

func newHostRow(h *store.Host) hostRow {
	return hostRow{
		Fingerprint: h.Fingerprint, Owner: h.Owner, Epoch: h.Epoch,
		Instance: h.Instance, Boot: h.Boot, Journal: h.Journal, Position: h.Position,
		Software: h.Software, Labels: h.Labels, Facts: h.Facts, Procedures: h.Procedures,
		LastHeard: nanos(h.LastHeard), Connected: h.Connected,
	}
}

func (r *hostRow) host(name string) store.Host {
	return store.Host{
		Name: name, Fingerprint: r.Fingerprint, Owner: r.Owner, Epoch: r.Epoch,
		Instance: r.Instance, Boot: r.Boot, Journal: r.Journal, Position: r.Position,
		Software: r.Software, Labels: r.Labels, Facts: r.Facts, Procedures: r.Procedures,
		LastHeard: fromNanos(r.LastHeard), Connected: r.Connected,
	}
}
