package harp

import (
	"maps"
	"math"
	"slices"
	"time"
)

// Args are named arguments. A struct, whose fields are named by their json tags,
// a map with string keys, [Pos] or nil do as well.
type Args map[string]any

// Pos makes positional arguments: they are given to the procedure's parameters in
// the order in which it declares them.
func Pos(args ...any) any { return positional(args) }

type positional []any

// NoLimit as a duration means: without this limit. It is refused where a cap is
// configured.
const NoLimit time.Duration = math.MaxInt64

// errEndless is that NoLimit would have something wait for ever.
func errEndless(field string) error {
	return &FieldError{Field: field, Message: "must be a time that ends"}
}

// OfflinePolicy says what becomes of a call whose host is away.
type OfflinePolicy string

// The policies.
const (
	WaitForHost OfflinePolicy = ""     // wait for OfflineWait
	FailFast    OfflinePolicy = "fail" // refuse at once with ErrUnreachable; nothing is stored
)

// CallOptions are the options of a call as a struct, for those that come from a
// file or a form. A zero field means: the default.
type CallOptions struct {
	JobID          string            `json:"job_id,omitempty"`
	Queue          any               `json:"queue,omitempty"`           // any value that encodes to a map with string keys; nil: no queue
	Concurrency    int               `json:"concurrency,omitempty"`     // of the queue this call creates; default 1
	Priority       int               `json:"priority,omitempty"`        // -100..100, higher first
	SilenceTimeout time.Duration     `json:"silence_timeout,omitempty"` // longest silence between records
	MaxExecTime    time.Duration     `json:"max_exec_time,omitempty"`   // longest run in all
	StartAfter     time.Time         `json:"start_after,omitzero"`      // not before
	StartBefore    time.Time         `json:"start_before,omitzero"`     // not later: ErrExpired
	OfflineWait    time.Duration     `json:"offline_wait,omitempty"`    // how long absence alone may hold it
	WhenOffline    OfflinePolicy     `json:"when_offline,omitempty"`
	Info           any               `json:"info,omitempty"`   // the caller's own data, returned as it is
	Labels         map[string]string `json:"labels,omitempty"` // indexed
	Retry          RetryPolicy       `json:"retry,omitzero"`
	DryRun         bool              `json:"dry_run,omitempty"` // say what would be done, and do nothing
	TraceParent    string            `json:"trace_parent,omitempty"`

	// IdempotencyKey makes this call the same job as an earlier one with the same
	// key, for IdempotencyTTL after that one.
	IdempotencyKey string        `json:"idempotency_key,omitempty"`
	IdempotencyTTL time.Duration `json:"idempotency_ttl,omitempty"`

	Batch BatchOptions `json:"batch,omitzero"` // of a batch alone

	set settings
}

// settings remembers what was given, so that a given zero is refused and not taken
// for the default.
type settings struct {
	timeout, maxExec, retry, offlineWait, concurrency, key, none bool
	batch                                                        batchSettings
}

// An Option changes one thing about a call. Options stack from Caller to Host to
// call; the last wins. One that is nil is ErrInvalid.
type Option func(*CallOptions)

// JobID chooses the job's id, made by [NewID], before the call: save it, then
// call. Submitting the same request with the same id again is the same job;
// another request is ErrConflict.
func JobID(id string) Option { return func(o *CallOptions) { o.JobID = id } }

// Queue puts the job in the queue of this name: any value that encodes to a map
// with string keys, compared by content. A queue is created by its first job and
// gone when its last one has ended.
func Queue(name any) Option { return func(o *CallOptions) { o.Queue = name } }

// Concurrency is how many jobs of the queue may run at a time, fixed by the call
// that creates the queue; later values are ignored. Default 1.
func Concurrency(n int) Option {
	return func(o *CallOptions) { o.Concurrency, o.set.concurrency = n, true }
}

// Priority orders jobs that wait for the same: higher first, from -100 to 100.
func Priority(p int) Option { return func(o *CallOptions) { o.Priority = p } }

// SilenceTimeout is the longest silence between two records, counted from the start.
// Default: the procedure's own, else 10 minutes of one that yields records (a
// [StreamProc], a command) and none of any other, which has nothing to say until it ends.
func SilenceTimeout(d time.Duration) Option {
	return func(o *CallOptions) { o.SilenceTimeout, o.set.timeout = d, true }
}

// MaxExecTime is the longest the procedure may run; waiting does not count.
// Default 24 hours, or the procedure's own.
func MaxExecTime(d time.Duration) Option {
	return func(o *CallOptions) { o.MaxExecTime, o.set.maxExec = d, true }
}

// StartAfter holds the job until t.
func StartAfter(t time.Time) Option { return func(o *CallOptions) { o.StartAfter = t } }

// StartBefore ends the job as expired, ErrExpired, if it has not started by t,
// whatever it waited for.
func StartBefore(t time.Time) Option { return func(o *CallOptions) { o.StartBefore = t } }

// OfflineWait is how long the absence of the host alone may hold the job; then it
// is expired, ErrUnreachable. Default 30 seconds.
func OfflineWait(d time.Duration) Option {
	return func(o *CallOptions) { o.OfflineWait, o.set.offlineWait = d, true }
}

// WhenOffline says what to do when the host is away: wait, FailFast, or, of a batch, [SkipHost].
func WhenOffline(p OfflinePolicy) Option { return func(o *CallOptions) { o.WhenOffline = p } }

// Info attaches the caller's own data to the job. harp does not look into it.
func Info(v any) Option { return func(o *CallOptions) { o.Info = v } }

// Label attaches an indexed label to the job.
func Label(key, value string) Option {
	return func(o *CallOptions) {
		o.Labels = maps.Clone(o.Labels)
		if o.Labels == nil {
			o.Labels = map[string]string{}
		}
		o.Labels[key] = value
	}
}

// Retry says after which outcomes of an attempt another may follow, of the same job:
// by naming one the caller says that the procedure may run more than once.
func Retry(p RetryPolicy) Option {
	p.On = slices.Clone(p.On)
	return func(o *CallOptions) { o.Retry, o.set.retry = p, true }
}

// DryRun asks the procedure to say what it would do, and to do nothing. One that has no
// dry run of its own (the trait [TraitDryRun]) refuses: ErrRejected.
func DryRun() Option { return func(o *CallOptions) { o.DryRun = true } }

// TraceParent makes the job part of a trace: the traceparent of [W3C Trace Context], which
// its procedure finds in CallInfo. Module github.com/harpcaller/harp/otel does this for
// OpenTelemetry.
//
// [W3C Trace Context]: https://www.w3.org/TR/trace-context/
func TraceParent(s string) Option { return func(o *CallOptions) { o.TraceParent = s } }

// IdempotencyKey makes the call happen once: another one with this key by the same
// caller, of the same procedure on the same host, within ttl after the first is the
// job of the first, whatever has become of it and whatever [JobID] says; with other
// arguments it is ErrConflict, of the type [ConflictOfKey], which names that job. The
// key has 1 to 256 bytes, ttl is from 1 second to 30 days.
func IdempotencyKey(key string, ttl time.Duration) Option {
	return func(o *CallOptions) { o.IdempotencyKey, o.IdempotencyTTL, o.set.key = key, ttl, true }
}

// Options sets every field of given that is not zero.
func Options(given CallOptions) Option {
	return func(o *CallOptions) { o.merge(given) }
}

func (o *CallOptions) merge(given CallOptions) {
	given.set.timeout = given.set.timeout || given.SilenceTimeout != 0
	given.set.maxExec = given.set.maxExec || given.MaxExecTime != 0
	given.set.retry = given.set.retry || !given.Retry.IsZero()
	given.set.offlineWait = given.set.offlineWait || given.OfflineWait != 0
	given.set.concurrency = given.set.concurrency || given.Concurrency != 0
	setIf(&o.JobID, given.JobID, given.JobID != "")
	setIf(&o.Queue, given.Queue, given.Queue != nil)
	setIf(&o.Concurrency, given.Concurrency, given.set.concurrency)
	setIf(&o.Priority, given.Priority, given.Priority != 0)
	setIf(&o.SilenceTimeout, given.SilenceTimeout, given.set.timeout)
	setIf(&o.MaxExecTime, given.MaxExecTime, given.set.maxExec)
	setIf(&o.StartAfter, given.StartAfter, !given.StartAfter.IsZero())
	setIf(&o.StartBefore, given.StartBefore, !given.StartBefore.IsZero())
	setIf(&o.OfflineWait, given.OfflineWait, given.set.offlineWait)
	setIf(&o.WhenOffline, given.WhenOffline, given.WhenOffline != "")
	setIf(&o.Info, given.Info, given.Info != nil)
	setIf(&o.Retry, given.Retry, given.set.retry)
	setIf(&o.DryRun, true, given.DryRun)
	setIf(&o.TraceParent, given.TraceParent, given.TraceParent != "")
	setIf(&o.IdempotencyKey, given.IdempotencyKey, given.IdempotencyKey != "")
	setIf(&o.IdempotencyTTL, given.IdempotencyTTL, given.IdempotencyTTL != 0)
	o.Batch.merge(given.Batch)
	for k, v := range given.Labels {
		Label(k, v)(o)
	}
	o.set.timeout = o.set.timeout || given.set.timeout
	o.set.maxExec = o.set.maxExec || given.set.maxExec
	o.set.retry = o.set.retry || given.set.retry
	o.set.offlineWait = o.set.offlineWait || given.set.offlineWait
	o.set.concurrency = o.set.concurrency || given.set.concurrency
	o.set.key = o.set.key || given.set.key
}

func setIf[T any](field *T, v T, given bool) {
	if given {
		*field = v
	}
}

// checkGiven refuses what was given and cannot be: an option that is nil, and a zero where zero is
// the default's mark.
func (o *CallOptions) checkGiven() error {
	if o.set.none {
		return errNilOption
	}
	for _, d := range []struct {
		field string
		given bool
		value int64
	}{
		{"silence_timeout", o.set.timeout, int64(o.SilenceTimeout)},
		{"max_exec_time", o.set.maxExec, int64(o.MaxExecTime)},
		{"offline_wait", o.set.offlineWait, int64(o.OfflineWait)},
		{"concurrency", o.set.concurrency, int64(o.Concurrency)},
	} {
		if d.given && d.value <= 0 {
			return &FieldError{Field: d.field, Message: "must be more than zero"}
		}
	}
	if o.set.key && o.IdempotencyKey == "" {
		return &FieldError{Field: "idempotency_key", Message: "must not be empty"}
	}
	return o.Batch.checkGiven(&o.set.batch)
}

var errNilOption = &FieldError{Field: "options", Message: "an option is nil"}

// again are the options with which the call is made once more: those of the request,
// but not what it says of one job alone and of a time that may have passed.
func (r Request) again(o *CallOptions) {
	*o = CallOptions{
		Queue: r.Queue, Concurrency: r.Concurrency, Priority: r.Priority,
		SilenceTimeout: r.SilenceTimeout, MaxExecTime: r.MaxExecTime, OfflineWait: r.OfflineWait, WhenOffline: r.WhenOffline,
		Info: r.Info, Labels: r.Labels, Retry: r.Retry, DryRun: r.DryRun, Batch: r.Batch,
	}
	o.Batch.Subset, o.Batch.Confirmed, o.Batch.Retry = "", "", nil
}

// optionsOf is what options come to.
func optionsOf(opts []Option) CallOptions {
	if len(opts) == 0 {
		return CallOptions{}
	}
	o := new(CallOptions) // an option may keep it
	for _, opt := range opts {
		if opt == nil {
			o.set.none = true
			continue
		}
		opt(o)
	}
	return *o
}

// NewRequest returns the request of a call, its options resolved and all of it checked. args
// is as [Host.Call] takes it. Errors: ErrInvalid, naming the field, also for an option of
// batches.
func NewRequest(host, procedure string, args any, opts ...Option) (Request, error) {
	o := optionsOf(opts)
	r, err := o.request(procedure, args)
	if err != nil {
		return Request{}, err
	}
	if option := o.batchOption(); option != "" {
		return Request{}, &FieldError{Field: option, Message: "is of batches, which Target.Call makes; this is a call of one host"}
	}
	r.Host = host
	return r, r.Check()
}

// NewBatchRequest returns the request of a call of all hosts that a target selects, as NewRequest
// does that of one host. Errors: ErrInvalid, naming the field; of the target also for one of more than MaxTarget
// bytes, of which [Target.Call] takes those that are lists of names.
func NewBatchRequest(expr, procedure string, args any, opts ...Option) (Request, error) {
	canonical, err := canonicalTarget(expr)
	if err != nil {
		return Request{}, err
	}
	return newBatchRequest(Request{Target: canonical}, procedure, args, opts)
}

// newBatchRequest makes the request of a batch on the hosts of Target, List or RetryOf of on.
func newBatchRequest(on Request, procedure string, args any, opts []Option) (Request, error) {
	o := optionsOf(opts)
	r, err := o.request(procedure, args)
	if err != nil {
		return Request{}, err
	}
	r.Target, r.List, r.RetryOf, r.Batch = on.Target, on.List, on.RetryOf, o.Batch
	r.Needs = append(r.Needs, NeedBatch)
	if len(r.Batch.Then) > 0 {
		r.Needs = append(r.Needs, NeedChain)
	}
	return r, r.Check()
}

// request is what options say of a call, without its host.
func (o *CallOptions) request(procedure string, args any) (Request, error) {
	if err := o.checkGiven(); err != nil {
		return Request{}, err
	}
	r := Request{
		ID: o.JobID, Procedure: procedure,
		Concurrency: o.Concurrency, Priority: o.Priority,
		SilenceTimeout: o.SilenceTimeout, MaxExecTime: o.MaxExecTime,
		StartAfter: o.StartAfter, StartBefore: o.StartBefore,
		OfflineWait: o.OfflineWait, WhenOffline: o.WhenOffline, Labels: o.Labels,
		Retry: o.Retry, DryRun: o.DryRun, TraceParent: o.TraceParent, IdempotencyKey: o.IdempotencyKey, IdempotencyTTL: o.IdempotencyTTL,
	}
	if r.DryRun { // an agent that does not know the word must not run the procedure
		r.Needs = []string{NeedDryRun}
	}
	if r.ID == "" {
		r.ID = NewID()
	}
	var err error
	if r.Args, err = encodeValue(args); err != nil { // Check validates it
		return Request{}, inField("args", err)
	}
	if r.Info, err = encodeValue(o.Info); err != nil {
		return Request{}, inField("info", err)
	}
	r.Queue, err = QueueName(o.Queue)
	return r, err
}
