package harp

import (
	"bufio"
	"cmp"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/harpcaller/harp/internal/msgpack"
)

// NewID returns a new job id: a UUIDv7, sortable by the time it was made.
func NewID() string {
	id := uuid.Must(uuid.NewV7FromReader(&randomness))
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

// randomness is what ids are made of, read many at a time.
var randomness = lockedReader{r: bufio.NewReaderSize(rand.Reader, 32*16)}

type lockedReader struct {
	mu sync.Mutex // guards r
	r  *bufio.Reader
}

// Read implements io.Reader.
func (l *lockedReader) Read(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.r.Read(p)
}

func timeOf(id uuid.UUID) time.Time { return time.Unix(id.Time().UnixTime()).UTC() }

// Request is a call as its caller wrote it, after its options were resolved: for those who
// intercept or implement a [Service], [Host.Call] makes it. It may get more fields. Its
// encoded bytes travel to the agent and lie in the store as they are, so that
// they can be signed.
type Request struct {
	ID             string            `json:"id,omitempty" msgpack:"id"`
	Host           string            `json:"host,omitempty" msgpack:"host,omitempty"`     // empty of a batch
	Target         string            `json:"target,omitempty" msgpack:"target,omitempty"` // of a batch, in place of Host: canonical
	Procedure      string            `json:"procedure,omitempty" msgpack:"proc"`
	Args           Value             `json:"args,omitzero" msgpack:"args,omitempty"`   // a map (named), an array (positional) or nil
	Queue          Value             `json:"queue,omitzero" msgpack:"queue,omitempty"` // canonical; nil: no queue
	Info           Value             `json:"info,omitzero" msgpack:"info,omitempty"`
	Labels         map[string]string `json:"labels,omitempty" msgpack:"labels,omitempty"`
	Concurrency    int               `json:"concurrency,omitempty" msgpack:"conc,omitempty"` // 0: the default
	Priority       int               `json:"priority,omitempty" msgpack:"prio,omitempty"`
	SilenceTimeout time.Duration     `json:"silence_timeout,omitempty" msgpack:"timeout,omitempty"` // 0: the default
	MaxExecTime    time.Duration     `json:"max_exec_time,omitempty" msgpack:"maxexec,omitempty"`   // 0: the default
	StartAfter     time.Time         `json:"start_after,omitzero" msgpack:"notbefore,omitempty"`
	StartBefore    time.Time         `json:"start_before,omitzero" msgpack:"expires,omitempty"`
	OfflineWait    time.Duration     `json:"offline_wait,omitempty" msgpack:"offwait,omitempty"` // 0: the default
	WhenOffline    OfflinePolicy     `json:"when_offline,omitempty" msgpack:"whenoff,omitempty"`
	TraceParent    string            `json:"trace_parent,omitempty" msgpack:"trace,omitempty"` // W3C trace context
	Needs          []string          `json:"needs,omitempty" msgpack:"needs,omitempty"`        // features without which the call must not run
	Retry          RetryPolicy       `json:"retry,omitzero" msgpack:"retry,omitempty"`
	RetryOf        string            `json:"retry_of,omitempty" msgpack:"retryof,omitempty"` // the job, or batch, that this one does again; "": none
	DryRun         bool              `json:"dry_run,omitempty" msgpack:"dry,omitempty"`

	IdempotencyKey string        `json:"idempotency_key,omitempty" msgpack:"idem,omitempty"`
	IdempotencyTTL time.Duration `json:"idempotency_ttl,omitempty" msgpack:"idemttl,omitempty"` // with a key: from 1 second to 30 days

	Batch BatchOptions `json:"batch,omitzero" msgpack:"batch,omitempty"` // of a batch
	List  *HostList    `json:"list,omitempty" msgpack:"list,omitempty"`  // of a batch, in place of Target: nil: it has one
}

// IsBatch reports whether the request is that of a batch: a call of all hosts that its Target
// selects, or that its List names.
func (r *Request) IsBatch() bool { return r.Target != "" || r.List != nil }

// NeedDryRun is what a request for a dry run needs: an agent that knows it does not run the
// procedure itself.
const NeedDryRun = "dry_run"

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
	if len(v) > MaxQueueName {
		return nil, tooLong("queue", len(v), MaxQueueName)
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
	if err := r.checkHosts(); err != nil {
		return err
	}
	if err := checkName("procedure", r.Procedure, MaxProcedureName); err != nil {
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
	if err := r.checkTimes(); err != nil {
		return err
	}
	if err := r.checkWords(); err != nil {
		return err
	}
	if err := r.checkAgain(); err != nil {
		return err
	}
	return CheckLabels(r.Labels)
}

// checkHosts checks what says on which hosts the call is to run.
func (r Request) checkHosts() error {
	if !r.IsBatch() {
		if option := (&CallOptions{Batch: r.Batch}).batchOption(); option != "" {
			return &FieldError{Field: option, Message: "is of batches"}
		}
		if r.WhenOffline != WaitForHost && r.WhenOffline != FailFast {
			return &FieldError{Field: "when_offline", Message: fmt.Sprintf("must be %q or nothing", FailFast)}
		}
		return checkName("host", r.Host, MaxHostName)
	}
	switch {
	case r.Host != "":
		return &FieldError{Field: "host", Message: "must be empty where there is a target"}
	case r.List != nil && (r.Target != "" || r.List.Count < 1 || len(r.List.Digest) != 2*sha256.Size):
		return &FieldError{Field: "list", Message: "must have a count and a digest, and there must be no target"}
	case len(r.Target) > MaxTarget:
		return &FieldError{Field: "target", Message: fmt.Sprintf("at byte %d: at most %d bytes; what is longer, but for a list of names, can be put into a group", MaxTarget, MaxTarget)}
	case !utf8.ValidString(r.Target):
		return &FieldError{Field: "target", Message: "must be UTF-8"}
	case !slices.Contains(r.Needs, NeedBatch):
		return &FieldError{Field: "needs", Message: fmt.Sprintf("must have %q where there is a target", NeedBatch)}
	case r.WhenOffline != WaitForHost && r.WhenOffline != FailFast && r.WhenOffline != SkipHost:
		return &FieldError{Field: "when_offline", Message: fmt.Sprintf("must be %q, %q or nothing", FailFast, SkipHost)}
	case r.Batch.QueuePerHost && r.Queue.IsNil():
		return &FieldError{Field: "queue_per_host", Message: "needs a queue"}
	case r.Batch.Drift != "" && !r.DryRun:
		return &FieldError{Field: "drift", Message: "needs a dry run"}
	case (r.RetryOf == "") != (len(r.Batch.Retry) == 0):
		return &FieldError{Field: "retry", Message: "must say which members of a batch are made again"}
	}
	if err := r.checkSteps(); err != nil {
		return err
	}
	return r.Batch.check()
}

// checkAgain checks what says when the call is made again, and when not.
func (r Request) checkAgain() error {
	if r.RetryOf != "" && CheckJobID(r.RetryOf) != nil {
		return &FieldError{Field: "retry_of", Message: "must be the id of a job"}
	}
	if err := r.Retry.check(); err != nil {
		return err
	}
	if r.IdempotencyKey == "" && r.IdempotencyTTL == 0 {
		return nil
	}
	if err := checkName("idempotency_key", r.IdempotencyKey, MaxIdempotencyKey); err != nil {
		return err
	}
	if r.IdempotencyTTL < minKeyTTL || r.IdempotencyTTL > maxKeyTTL {
		return &FieldError{Field: "idempotency_ttl", Message: "must be from 1 second to 30 days"}
	}
	return nil
}

// An idempotency key is kept for its ttl.
const (
	minKeyTTL = time.Second
	maxKeyTTL = 30 * 24 * time.Hour
)

func (r Request) checkTimes() error {
	for _, d := range []struct {
		field string
		value time.Duration
	}{{"silence_timeout", r.SilenceTimeout}, {"max_exec_time", r.MaxExecTime}, {"offline_wait", r.OfflineWait}} {
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
	if len(r.TraceParent) > MaxTraceParent {
		return tooLong("traceparent", len(r.TraceParent), MaxTraceParent)
	}
	if !utf8.ValidString(r.TraceParent) {
		return &FieldError{Field: "traceparent", Message: "must be UTF-8"}
	}
	if len(r.Needs) > MaxNeeds {
		return &FieldError{Field: "needs", Message: fmt.Sprintf("at most %d", MaxNeeds)}
	}
	for _, need := range r.Needs {
		if err := checkName("needs", need, MaxNeed); err != nil {
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
		{"args", r.Args, MaxArgs},
		{"info", r.Info, MaxInfo},
		{"queue", r.Queue, MaxQueueName},
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

// CheckLabels returns ErrInvalid, naming the label, unless labels are at most MaxLabels, each key
// 1 to MaxLabelKey bytes long, each value at most MaxLabelValue, all of them UTF-8.
func CheckLabels(labels map[string]string) error {
	if len(labels) > MaxLabels {
		return &FieldError{Field: "labels", Message: fmt.Sprintf("at most %d", MaxLabels)}
	}
	for k, v := range labels {
		field := "label"
		if k != "" {
			field += " " + k
		}
		if err := checkName(field, k, MaxLabelKey); err != nil {
			return err
		}
		if len(v) > MaxLabelValue {
			return tooLong("label "+k, len(v), MaxLabelValue)
		}
		if !utf8.ValidString(v) {
			return &FieldError{Field: "label " + k, Message: "must be UTF-8"}
		}
	}
	return nil
}

// CheckLabelChange returns ErrInvalid, naming the label, unless labels that are to be set are as
// [CheckLabels] wants them, there is one that is to be set or unset, and none that is both.
func CheckLabelChange(set map[string]string, unset []string) error {
	switch {
	case len(set)+len(unset) == 0:
		return &FieldError{Field: "labels", Message: "none to set or unset"}
	case len(unset) > MaxUnset:
		return &FieldError{Field: "labels", Message: fmt.Sprintf("at most %d are unset", MaxUnset)}
	}
	for _, key := range unset {
		if err := checkName("label", key, MaxLabelKey); err != nil {
			return err
		}
		if _, both := set[key]; both {
			return &FieldError{Field: "label " + key, Message: "is set and unset"}
		}
	}
	return CheckLabels(set)
}

// CheckID returns ErrInvalid unless id is a UUIDv7 in its canonical form.
func CheckID(id string) error {
	if !isID(id) {
		return &FieldError{Field: "id", Message: "must be a UUIDv7"}
	}
	return nil
}

// CheckJobID returns ErrInvalid unless a job may have this id: one that [CheckID] accepts, or
// that of a member of a batch, a UUIDv8.
func CheckJobID(id string) error {
	if !isID(id) && !isUUID(id, '8') {
		return &FieldError{Field: "id", Message: "must be the id of a job, a UUIDv7 or UUIDv8"}
	}
	return nil
}

func isID(id string) bool { return isUUID(id, '7') }

// isUUID reports whether id is as [RFC 9562] has UUIDs of a version written.
//
// [RFC 9562]: https://www.rfc-editor.org/rfc/rfc9562#name-uuid-format
func isUUID(id string, version byte) bool {
	const length, at = 36, 14
	if len(id) != length || id[at] != version {
		return false
	}
	for i := range length {
		switch c := id[i]; {
		case i == 8 || i == 13 || i == 18 || i == 23:
			if c != '-' {
				return false
			}
		case (c < '0' || c > '9') && (c < 'a' || c > 'f'):
			return false
		}
	}
	return true
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

// checkShown is checkName for what people call things by: every character of it must be seen, or one name could be taken
// for another, or for more than a name. Names that were stored before may be asked after all the same.
func checkShown(field, name string, most int) error {
	if err := checkName(field, name, most); err != nil {
		return err
	}
	if strings.ContainsFunc(name, isUnseen) {
		return &FieldError{Field: field, Message: "must have no control characters, nor any that are not seen"}
	}
	return nil
}

// isUnseen reports whether a character is one of control or of format, such as U+200B or U+202E, or ends lines or paragraphs.
func isUnseen(r rune) bool {
	return unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp)
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

// versioned is a request as it is encoded.
type versioned struct {
	Version int `msgpack:"v"`
	Request
}

// requestVersion is the version of a request's bytes.
const requestVersion = 1

// requests is the codec of requests.
var requests = msgpack.Codec{Message: true}

// Encode returns the bytes of the request.
func (r Request) Encode() []byte { return r.Append(make([]byte, 0, 256+len(r.Args)+len(r.Info))) }

// Append appends what Encode returns to b.
func (r Request) Append(b []byte) []byte { return appendMessage(b, &versioned{requestVersion, r}) }

func appendMessage(b []byte, v any) []byte {
	b, err := requests.Append(b, v)
	if err != nil {
		panic(fmt.Sprintf("harp: encode %T: %v", v, err)) // requests hold nothing that cannot be encoded
	}
	return b
}

// DecodeRequest is the inverse of [Request.Encode], for bytes from outside. Errors:
// ErrInvalid, for bytes that are no request as for a field out of its limits.
func DecodeRequest(raw []byte) (Request, error) {
	var r versioned
	err := msgpack.Validate(raw, msgpack.ProtocolLimits)
	if err == nil {
		err = requests.Decode(raw, &r)
	}
	if err != nil {
		return Request{}, &FieldError{Field: "request", Message: err.Error()}
	}
	if r.Version != requestVersion {
		return Request{}, &FieldError{Field: "request", Message: fmt.Sprintf("version %d is unknown here", r.Version)}
	}
	if err := r.Check(); err != nil {
		return Request{}, err
	}
	r.Queue, err = QueueName(r.Queue)
	return r.Request, err
}

// digested is how many bytes of a usual request its digest is of.
const digested = 256

// Digest is what makes two requests the same: SHA-256 over host, procedure,
// canonical arguments and queue, and that it is a dry run; of a batch over its canonical target, or the digest of its list, in
// place of the host, and also over subset, shuffle, which members of which batch it makes again, and the procedures,
// arguments and On of further steps.
// Timing options do not count.
func (r Request) Digest() [sha256.Size]byte {
	args, err := r.Args.Canonical()
	if err != nil {
		args = r.Args // a map in it holds a key twice
	}
	if r.IsBatch() {
		return r.batchDigest(args)
	}
	fields := 4
	if r.DryRun {
		fields++
	}
	b := msgpack.AppendArray(make([]byte, 0, digested), fields)
	b = msgpack.AppendString(msgpack.AppendString(b, r.Host), r.Procedure)
	b = msgpack.AppendBytes(msgpack.AppendBytes(b, args), r.Queue)
	if r.DryRun {
		b = msgpack.AppendBool(b, true)
	}
	return sha256.Sum256(b)
}

// batchDigest is the Digest of a batch with these arguments.
func (r Request) batchDigest(args Value) [sha256.Size]byte {
	expr, err := canonicalTarget(r.Target)
	if err != nil {
		expr = r.Target
	}
	fields := 9
	if r.List != nil {
		fields++
	}
	if r.Batch.Drift != "" {
		fields++
	}
	if len(r.Batch.Then) > 0 {
		fields++
	}
	b := msgpack.AppendArray(make([]byte, 0, digested), fields)
	b = msgpack.AppendString(msgpack.AppendString(b, expr), r.Procedure)
	b = msgpack.AppendBytes(msgpack.AppendBytes(b, args), r.Queue)
	b = msgpack.AppendBool(b, r.DryRun)
	b = msgpack.AppendBool(msgpack.AppendString(b, r.Batch.Subset), r.Batch.Shuffle)
	b = msgpack.AppendString(msgpack.AppendString(b, r.RetryOf), strings.Join(r.Batch.Retry, " "))
	if r.List != nil {
		b = msgpack.AppendString(b, r.List.Digest)
	}
	if r.Batch.Drift != "" { // in a list, so that it is not taken for the digest of one
		b = msgpack.AppendString(msgpack.AppendArray(b, 1), r.Batch.Drift)
	}
	if len(r.Batch.Then) > 0 {
		b = r.appendSteps(b)
	}
	return sha256.Sum256(b)
}

// appendSteps appends what makes the steps of two chains the same.
func (r Request) appendSteps(b []byte) []byte {
	const fields = 3
	b = msgpack.AppendArray(b, fields*len(r.Batch.Then))
	for _, s := range r.Batch.Then {
		args, err := s.Args.Canonical()
		if err != nil {
			args = s.Args
		}
		b = msgpack.AppendString(msgpack.AppendString(b, s.Procedure), string(cmp.Or(s.On, OnSucceeded)))
		b = msgpack.AppendBytes(b, args)
	}
	return b
}

func checkTime(field string, t time.Time) error {
	if !t.IsZero() && (t.Before(firstTime) || t.After(lastTime)) {
		return &FieldError{Field: field, Message: fmt.Sprintf("must be from %d to %d", firstTime.Year()+1, lastTime.Year()-1)}
	}
	return nil
}

// What a time can be that is stored in 64 bits.
var firstTime, lastTime = msgpack.FromNanos(math.MinInt64), msgpack.FromNanos(math.MaxInt64)
