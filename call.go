package harp

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"maps"
	"math"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/harpcaller/harp/internal/wire"
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
	JobID       string            `json:"job_id,omitempty"`
	Queue       any               `json:"queue,omitempty"`         // any value that encodes to a map with string keys; nil: no queue
	Concurrency int               `json:"concurrency,omitempty"`   // of the queue this call creates; default 1
	Priority    int               `json:"priority,omitempty"`      // -100..100, higher first
	Timeout     time.Duration     `json:"timeout,omitempty"`       // longest silence between records
	MaxExecTime time.Duration     `json:"max_exec_time,omitempty"` // longest run in all
	StartAfter  time.Time         `json:"start_after,omitzero"`    // not before
	StartBefore time.Time         `json:"start_before,omitzero"`   // not later: ErrExpired
	OfflineWait time.Duration     `json:"offline_wait,omitempty"`  // how long absence alone may hold it
	WhenOffline OfflinePolicy     `json:"when_offline,omitempty"`
	Info        any               `json:"info,omitempty"`   // the caller's own data, returned as it is
	Labels      map[string]string `json:"labels,omitempty"` // indexed
	set         settings
}

// settings remembers which durations were given, so that a given zero is refused
// and not taken for the default.
type settings struct{ timeout, maxExec, offlineWait, concurrency bool }

// An Option changes one thing about a call. Options stack from Caller to Host to
// call; the last wins.
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

// Timeout is the longest silence between two records, counted from the start.
// Default 10 minutes, or the procedure's own.
func Timeout(d time.Duration) Option {
	return func(o *CallOptions) { o.Timeout, o.set.timeout = d, true }
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

// WhenOffline says what to do when the host is away: wait, or FailFast.
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

// Options sets every field of given that is not zero.
func Options(given CallOptions) Option {
	return func(o *CallOptions) { o.merge(given) }
}

func (o *CallOptions) merge(given CallOptions) {
	given.set.timeout = given.set.timeout || given.Timeout != 0
	given.set.maxExec = given.set.maxExec || given.MaxExecTime != 0
	given.set.offlineWait = given.set.offlineWait || given.OfflineWait != 0
	given.set.concurrency = given.set.concurrency || given.Concurrency != 0
	setIf(&o.JobID, given.JobID, given.JobID != "")
	setIf(&o.Queue, given.Queue, given.Queue != nil)
	setIf(&o.Concurrency, given.Concurrency, given.set.concurrency)
	setIf(&o.Priority, given.Priority, given.Priority != 0)
	setIf(&o.Timeout, given.Timeout, given.set.timeout)
	setIf(&o.MaxExecTime, given.MaxExecTime, given.set.maxExec)
	setIf(&o.StartAfter, given.StartAfter, !given.StartAfter.IsZero())
	setIf(&o.StartBefore, given.StartBefore, !given.StartBefore.IsZero())
	setIf(&o.OfflineWait, given.OfflineWait, given.set.offlineWait)
	setIf(&o.WhenOffline, given.WhenOffline, given.WhenOffline != "")
	setIf(&o.Info, given.Info, given.Info != nil)
	for k, v := range given.Labels {
		Label(k, v)(o)
	}
	o.set.timeout = o.set.timeout || given.set.timeout
	o.set.maxExec = o.set.maxExec || given.set.maxExec
	o.set.offlineWait = o.set.offlineWait || given.set.offlineWait
	o.set.concurrency = o.set.concurrency || given.set.concurrency
}

func setIf[T any](field *T, v T, given bool) {
	if given {
		*field = v
	}
}

// NewID returns a new job id: a UUIDv7, sortable by the time it was made.
func NewID() string {
	id := uuid.Must(uuid.NewV7())
	// The package never goes back behind the latest time it has seen in the
	// process. Where the clock does, after it was set or in a test in virtual time,
	// the id must still tell when it was made.
	if now := time.Now(); timeOf(id).After(now.Add(time.Second)) {
		var ms [8]byte
		binary.BigEndian.PutUint64(ms[:], uint64(now.UnixMilli())<<16)
		copy(id[:6], ms[:6])
	}
	return id.String()
}

func timeOf(id uuid.UUID) time.Time { return time.Unix(id.Time().UnixTime()).UTC() }

// Request is a call as its caller wrote it, after its options were resolved. Its
// encoded bytes travel to the agent and lie in the store as they are, so that
// they can be signed.
type Request struct {
	ID          string
	Host        string
	Procedure   string
	Args        Value // a map (named), an array (positional) or nil
	Queue       Value // canonical; nil: no queue
	Concurrency int   // 0: the default
	Priority    int
	Timeout     time.Duration // 0: the default
	MaxExecTime time.Duration // 0: the default
	StartAfter  time.Time
	StartBefore time.Time
	OfflineWait time.Duration // 0: the default
	WhenOffline OfflinePolicy
	Info        Value
	Labels      map[string]string
	TraceParent string   // W3C trace context
	Needs       []string // features without which the call must not run
}

// newRequest resolves the options of a call. Errors: ErrInvalid naming the field.
func newRequest(host, procedure string, args any, opts []Option) (Request, error) {
	var o CallOptions
	for _, opt := range opts {
		opt(&o)
	}
	if err := o.check(); err != nil {
		return Request{}, err
	}
	r := Request{
		ID: o.JobID, Host: host, Procedure: procedure,
		Concurrency: o.Concurrency, Priority: o.Priority,
		Timeout: o.Timeout, MaxExecTime: o.MaxExecTime,
		StartAfter: o.StartAfter, StartBefore: o.StartBefore,
		OfflineWait: o.OfflineWait, WhenOffline: o.WhenOffline, Labels: o.Labels,
	}
	if r.ID == "" {
		r.ID = NewID()
	}
	var err error
	if r.Args, err = NewValue(args); err != nil {
		return Request{}, inField("args", err)
	}
	if r.Info, err = NewValue(o.Info); err != nil {
		return Request{}, inField("info", err)
	}
	if r.Queue, err = QueueName(o.Queue); err != nil {
		return Request{}, err
	}
	return r, r.Check()
}

// check refuses a zero that was given where zero is the default's mark.
func (o CallOptions) check() error {
	for _, d := range []struct {
		field string
		given bool
		value int64
	}{
		{"timeout", o.set.timeout, int64(o.Timeout)},
		{"max_exec_time", o.set.maxExec, int64(o.MaxExecTime)},
		{"offline_wait", o.set.offlineWait, int64(o.OfflineWait)},
		{"concurrency", o.set.concurrency, int64(o.Concurrency)},
	} {
		if d.given && d.value <= 0 {
			return &FieldError{Field: d.field, Message: "must be more than zero"}
		}
	}
	return nil
}

// QueueName returns the canonical form of a queue's name; nil for nil. Errors:
// ErrInvalid when it does not encode to a map with string keys or is too long.
func QueueName(name any) (Value, error) {
	v, err := NewValue(name)
	if err != nil {
		return nil, inField("queue", err)
	}
	if v.IsNil() {
		return nil, nil
	}
	if !v.isNamed() {
		return nil, errQueueName()
	}
	if v, err = v.Canonical(); err != nil {
		return nil, inField("queue", err)
	}
	if len(v) > wire.MaxQueueName {
		return nil, tooLong("queue", len(v), wire.MaxQueueName)
	}
	return v, nil
}

// errQueueName is the error of a queue's name that is of the wrong kind.
func errQueueName() error {
	return &FieldError{Field: "queue", Message: "a name is a map with string keys"}
}

// Check returns ErrInvalid, naming the field, unless every field is within its
// limits. Caller, dispatcher and agent all ask it.
func (r Request) Check() error {
	if err := CheckID(r.ID); err != nil {
		return err
	}
	if err := checkName("host", r.Host, wire.MaxHostName); err != nil {
		return err
	}
	if err := checkName("procedure", r.Procedure, wire.MaxProcedureName); err != nil {
		return err
	}
	if err := r.checkValues(); err != nil {
		return err
	}
	if r.Priority < -100 || r.Priority > 100 {
		return &FieldError{Field: "priority", Message: "must be from -100 to 100"}
	}
	if r.Concurrency < 0 {
		return &FieldError{Field: "concurrency", Message: "must be more than zero"}
	}
	if r.WhenOffline != WaitForHost && r.WhenOffline != FailFast {
		return &FieldError{Field: "when_offline", Message: fmt.Sprintf("must be %q or nothing", FailFast)}
	}
	if err := r.checkTimes(); err != nil {
		return err
	}
	if err := r.checkWords(); err != nil {
		return err
	}
	return checkLabels(r.Labels)
}

func (r Request) checkTimes() error {
	for _, d := range []struct {
		field string
		value time.Duration
	}{{"timeout", r.Timeout}, {"max_exec_time", r.MaxExecTime}, {"offline_wait", r.OfflineWait}} {
		if d.value < 0 {
			return &FieldError{Field: d.field, Message: "must be more than zero"}
		}
	}
	if err := checkTime("start_after", r.StartAfter); err != nil {
		return err
	}
	if err := checkTime("start_before", r.StartBefore); err != nil {
		return err
	}
	if !r.StartBefore.IsZero() && r.StartBefore.Before(r.StartAfter) {
		return &FieldError{Field: "start_before", Message: "is before start_after"}
	}
	return nil
}

func (r Request) checkWords() error {
	if len(r.TraceParent) > wire.MaxTraceParent {
		return tooLong("traceparent", len(r.TraceParent), wire.MaxTraceParent)
	}
	if !utf8.ValidString(r.TraceParent) {
		return &FieldError{Field: "traceparent", Message: "must be UTF-8"}
	}
	if len(r.Needs) > wire.MaxNeeds {
		return &FieldError{Field: "needs", Message: fmt.Sprintf("at most %d", wire.MaxNeeds)}
	}
	for _, need := range r.Needs {
		if err := checkName("needs", need, wire.MaxNeed); err != nil {
			return err
		}
	}
	return nil
}

func (r Request) checkValues() error {
	for _, v := range []struct {
		field string
		value Value
		most  int
	}{
		{"args", r.Args, wire.MaxArgs},
		{"info", r.Info, wire.MaxInfo},
		{"queue", r.Queue, wire.MaxQueueName},
	} {
		if len(v.value) > v.most {
			return tooLong(v.field, len(v.value), v.most)
		}
		if err := v.value.Validate(); err != nil {
			return inField(v.field, err)
		}
	}
	if !r.Args.IsNil() && !r.Args.isNamed() && !r.Args.isArray() {
		return &FieldError{Field: "args", Message: "must be named (a struct, or a map with string keys) or positional (harp.Pos)"}
	}
	if !r.Queue.IsNil() && !r.Queue.isNamed() {
		return errQueueName()
	}
	return nil
}

func checkLabels(labels map[string]string) error {
	if len(labels) > wire.MaxLabels {
		return &FieldError{Field: "labels", Message: fmt.Sprintf("at most %d", wire.MaxLabels)}
	}
	for k, v := range labels {
		if err := checkName("label", k, wire.MaxLabelKey); err != nil {
			return err
		}
		if len(v) > wire.MaxLabelValue {
			return tooLong("label "+k, len(v), wire.MaxLabelValue)
		}
		if !utf8.ValidString(v) {
			return &FieldError{Field: "label " + k, Message: "must be UTF-8"}
		}
	}
	return nil
}

// CheckID returns ErrInvalid unless id is a UUIDv7 in its canonical form.
func CheckID(id string) error {
	u, err := uuid.Parse(id)
	if err != nil || u.Version() != 7 || u.String() != id {
		return &FieldError{Field: "id", Message: "must be a UUIDv7 as harp.NewID makes it"}
	}
	return nil
}

// IDTime returns the time at which id was made; the zero time if it is no UUIDv7.
func IDTime(id string) time.Time {
	u, err := uuid.Parse(id)
	if err != nil || u.Version() != 7 {
		return time.Time{}
	}
	return timeOf(u)
}

func checkName(field, name string, most int) error {
	switch {
	case name == "":
		return &FieldError{Field: field, Message: "must not be empty"}
	case len(name) > most:
		return tooLong(field, len(name), most)
	case !utf8.ValidString(name):
		return &FieldError{Field: field, Message: "must be UTF-8"}
	}
	return nil
}

func tooLong(field string, is, most int) error {
	return &FieldError{Field: field, Message: fmt.Sprintf("is %d bytes, at most %d", is, most)}
}

// inField renames the field of an error about a value.
func inField(field string, err error) error {
	if e, ok := err.(*FieldError); ok { //nolint:errorlint // Value's own error, never wrapped
		return &FieldError{Field: field, Message: e.Message}
	}
	return err
}

// Encode returns the bytes of the request.
func (r Request) Encode() []byte {
	return wire.Encode(wire.Request{
		Version: wire.RequestVersion,
		ID:      r.ID, Host: r.Host, Procedure: r.Procedure,
		Args: r.Args, Queue: r.Queue, Info: r.Info, Labels: r.Labels,
		Concurrency: int64(r.Concurrency), Priority: int64(r.Priority),
		Timeout: int64(r.Timeout), MaxExecTime: int64(r.MaxExecTime), OfflineWait: int64(r.OfflineWait),
		NotBefore: nanos(r.StartAfter), Expires: nanos(r.StartBefore),
		WhenOffline: string(r.WhenOffline), TraceParent: r.TraceParent, Needs: r.Needs,
	})
}

// DecodeRequest is the inverse of [Request.Encode], for bytes from outside. Errors:
// ErrInvalid, for bytes that are no request as for a field out of its limits.
func DecodeRequest(raw []byte) (Request, error) {
	var w wire.Request
	if err := wire.Decode(raw, &w); err != nil {
		return Request{}, &FieldError{Field: "request", Message: err.Error()}
	}
	if w.Version != wire.RequestVersion {
		return Request{}, &FieldError{Field: "request", Message: fmt.Sprintf("version %d is not known here", w.Version)}
	}
	r := Request{
		ID: w.ID, Host: w.Host, Procedure: w.Procedure,
		Args: w.Args, Queue: w.Queue, Info: w.Info, Labels: w.Labels,
		Priority: int(w.Priority), Concurrency: int(w.Concurrency),
		Timeout: time.Duration(w.Timeout), MaxExecTime: time.Duration(w.MaxExecTime), OfflineWait: time.Duration(w.OfflineWait),
		StartAfter: fromNanos(w.NotBefore), StartBefore: fromNanos(w.Expires),
		WhenOffline: OfflinePolicy(w.WhenOffline), TraceParent: w.TraceParent, Needs: w.Needs,
	}
	if err := r.Check(); err != nil {
		return Request{}, err
	}
	var err error
	r.Queue, err = QueueName(r.Queue)
	return r, err
}

// Digest is what makes two requests the same: SHA-256 over host, procedure,
// canonical arguments and queue. Timing options do not count.
func (r Request) Digest() [sha256.Size]byte {
	args, err := r.Args.Canonical()
	if err != nil {
		args = r.Args // checked requests always have a canonical form
	}
	return sha256.Sum256(wire.Encode([]any{r.Host, r.Procedure, []byte(args), []byte(r.Queue)}))
}

// nanos is a time as the wire has it, where 0 means none: the one moment that is 0
// becomes the next, and a time beyond what can be said the last that can.
func nanos(t time.Time) int64 {
	switch n := t.UnixNano(); {
	case t.IsZero():
		return 0
	case t.Before(firstTime):
		return math.MinInt64
	case t.After(lastTime):
		return math.MaxInt64
	case n == 0:
		return 1
	default:
		return n
	}
}

var (
	firstTime = time.Unix(0, math.MinInt64).UTC()
	lastTime  = time.Unix(0, math.MaxInt64).UTC()
)

func checkTime(field string, t time.Time) error {
	if !t.IsZero() && (t.Before(firstTime) || t.After(lastTime)) {
		return &FieldError{Field: field, Message: fmt.Sprintf("must be from %d to %d", firstTime.Year()+1, lastTime.Year()-1)}
	}
	return nil
}

func fromNanos(n int64) time.Time {
	if n == 0 {
		return time.Time{}
	}
	return time.Unix(0, n).UTC()
}
