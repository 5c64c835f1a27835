package harp

import (
	"cmp"
	"encoding/json"
	"math"
	"time"

	"github.com/harpcaller/harp/internal/wire"
)

// The nouns of this package and the messages that carry them, both directions next
// to each other. What comes from outside goes through a reader, which refuses what
// the nouns cannot hold.

// reader notes the first thing that is wrong with a message. Its error is
// ErrInvalid, naming the field.
type reader struct{ err error }

func (r *reader) wrong(err error) {
	r.err = cmp.Or(r.err, err)
}

// count reads a number that is never negative.
func (r *reader) count(field string, n int64) uint64 {
	if n < 0 {
		r.wrong(&FieldError{Field: field, Message: "must not be negative"})
		return 0
	}
	return uint64(n)
}

// number reads an int, which may be smaller than what the wire has.
func (r *reader) number(field string, n int64) int {
	if int64(int(n)) != n {
		r.wrong(&FieldError{Field: field, Message: "is too large"})
		return 0
	}
	return int(n)
}

// value reads a user's value.
func (r *reader) value(field string, b []byte) Value {
	v := Value(b)
	if err := v.Validate(); err != nil {
		r.wrong(inField(field, err))
		return nil
	}
	if len(v) == 0 {
		return nil
	}
	return v
}

// schema reads a JSON text.
func (r *reader) schema(field string, b []byte) json.RawMessage {
	if len(b) == 0 {
		return nil
	}
	if !json.Valid(b) {
		r.wrong(&FieldError{Field: field, Message: "must be JSON"})
		return nil
	}
	return b
}

// failure reads an error, nil for nothing.
func (r *reader) failure(b []byte) error {
	if len(b) == 0 {
		return nil
	}
	f, err := decodeFailure(b)
	if err != nil {
		r.wrong(err)
		return nil
	}
	return f.Err()
}

// signed is a number as the wire has it. No job has records beyond it.
func signed(n uint64) int64 { return int64(min(n, math.MaxInt64)) } //nolint:gosec // bounded

// encodeFailure returns err as it travels, nothing for nil.
func encodeFailure(err error) []byte {
	if err == nil {
		return nil
	}
	return wire.Encode(FailureOf(err))
}

func decodeFailure(b []byte) (Failure, error) {
	var f Failure
	if err := wire.Decode(b, &f); err != nil {
		return Failure{}, &FieldError{Field: "failure", Message: err.Error()}
	}
	var r reader
	f.Data = r.value("failure.data", f.Data)
	f.Code = cmp.Or(f.Code, codeInternal)
	return f, r.err
}

// Failures of requests travel in a frame that is smaller than what a user may
// attach: it is the text that is cut.
const (
	maxFailureText = 4 << 10
	maxFailureWord = 1 << 10
)

// failedRequest is the failure of a request as it is sent.
func failedRequest(err error) wire.Failed {
	f := FailureOf(err)
	f.Message = cut(f.Message, maxFailureText)
	for _, s := range []*string{&f.Type, &f.Host, &f.Stage, &f.Field, &f.LimitOf, &f.JobID} {
		*s = cut(*s, maxFailureWord)
	}
	if len(f.Data) > wire.MaxControl/2 {
		f.Data = nil
	}
	return wire.Failed{Failure: wire.Encode(f)}
}

// cut returns at most n bytes of s, whole characters.
func cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	const dots = "…"
	n -= len(dots)
	for n > 0 && s[n]&0xc0 == 0x80 {
		n--
	}
	return s[:n] + dots
}

func principalToWire(p Principal) wire.Principal { return wire.Principal(p) }

func principalFromWire(w wire.Principal) Principal { return Principal(w) }

func serverToWire(s ServerInfo) wire.Server {
	return wire.Server{
		Software: s.Software, Version: int64(s.Protocol), Features: s.Features,
		Store: s.Store, Time: nanos(s.Time), Troubles: s.Troubles,
	}
}

func serverFromWire(w wire.Server) (ServerInfo, error) {
	var r reader
	return ServerInfo{
		Software: w.Software, Protocol: r.number("v", w.Version), Features: w.Features,
		Store: w.Store, Time: fromNanos(w.Time), Troubles: w.Troubles,
	}, r.err
}

func exitToWire(code *int) *int64 {
	if code == nil {
		return nil
	}
	n := int64(*code)
	return &n
}

func (r *reader) exit(code *int64) *int {
	if code == nil {
		return nil
	}
	n := r.number("exit", *code)
	return &n
}

func resultToWire(res Result) wire.Result {
	return wire.Result{
		State: string(res.State), Ended: res.Done(), Value: res.Value,
		Failure: encodeFailure(res.Err), ExitCode: exitToWire(res.ExitCode),
	}
}

func resultFromWire(w wire.Result) (Result, error) {
	var r reader
	res := Result{
		State: State(w.State), Value: r.value("value", w.Value),
		Err: r.failure(w.Failure), ExitCode: r.exit(w.ExitCode),
	}
	return res, r.err
}

func queryToWire(id string, q RecordQuery) wire.Pull {
	return wire.Pull{ID: id, From: signed(q.From), Tail: q.Tail, Recent: signed(q.Recent), Wait: q.Wait}
}

func queryFromWire(w wire.Pull) (RecordQuery, error) {
	var r reader
	return RecordQuery{
		From: r.count("from", w.From), Tail: w.Tail, Recent: r.count("recent", w.Recent), Wait: w.Wait,
	}, r.err
}

func jobToWire(s JobStatus) wire.Job {
	w := wire.Job{
		ID: s.ID, Host: s.Host, Procedure: s.Procedure,
		Batch: s.Batch, Schedule: s.Schedule, RetryOf: s.RetryOf, DryRun: s.DryRun,
		Principal: principalToWire(s.Principal), Args: s.Args, Info: s.Info, Queue: s.Queue,
		State: string(s.State), Reason: s.Reason, Started: string(s.Started),
		Since: nanos(s.Since), UnknownOf: string(s.UnknownOf),
		Attempt: int64(s.Attempt), Failure: encodeFailure(s.Err),
		SubmitTime: nanos(s.SubmitTime), StartTime: nanos(s.StartTime), EndTime: nanos(s.EndTime),
		Timeout: int64(s.Timeout), MaxExecTime: int64(s.MaxExecTime),
		QueuePos: int64(s.QueuePos), Records: signed(s.Records), Labels: s.Labels,
	}
	if c := s.CancelRequested; c != nil {
		w.Cancel = &wire.CancelRequest{By: principalToWire(c.By), Time: nanos(c.Time), Now: c.Now}
	}
	if s.Late != nil {
		late := resultToWire(*s.Late)
		w.Late = &late
	}
	w.Duplicate = s.DuplicatePossible
	for _, pid := range s.Survivors {
		w.Survivors = append(w.Survivors, int64(pid))
	}
	for _, a := range s.Attempts {
		w.Attempts = append(w.Attempts, wire.Attempt{
			Number: int64(a.Number), Base: signed(a.Base),
			Sent: nanos(a.Sent), Started: nanos(a.Started), Ended: nanos(a.Ended), Outcome: a.Outcome, Reason: a.Reason,
		})
	}
	return w
}

func jobFromWire(w wire.Job) (JobStatus, error) {
	var r reader
	s := JobStatus{
		ID: w.ID, Host: w.Host, Procedure: w.Procedure,
		Batch: w.Batch, Schedule: w.Schedule, RetryOf: w.RetryOf, DryRun: w.DryRun,
		Principal: principalFromWire(w.Principal),
		Args:      r.value("args", w.Args), Info: r.value("info", w.Info), Queue: r.value("queue", w.Queue),
		State: State(w.State), Reason: w.Reason, Started: Ran(w.Started),
		Since: fromNanos(w.Since), UnknownOf: State(w.UnknownOf),
		Attempt: r.number("attempt", w.Attempt), Err: r.failure(w.Failure),
		SubmitTime: fromNanos(w.SubmitTime), StartTime: fromNanos(w.StartTime), EndTime: fromNanos(w.EndTime),
		Timeout: time.Duration(w.Timeout), MaxExecTime: time.Duration(w.MaxExecTime),
		QueuePos: r.number("pos", w.QueuePos), Records: r.count("records", w.Records), Labels: w.Labels,
	}
	if c := w.Cancel; c != nil {
		s.CancelRequested = &CancelRequest{By: principalFromWire(c.By), Time: fromNanos(c.Time), Now: c.Now}
	}
	if w.Late != nil {
		late, err := resultFromWire(*w.Late)
		r.wrong(err)
		s.Late = &late
	}
	s.DuplicatePossible = w.Duplicate
	for _, pid := range w.Survivors {
		s.Survivors = append(s.Survivors, r.number("survivors", pid))
	}
	for _, a := range w.Attempts {
		s.Attempts = append(s.Attempts, Attempt{
			Number: r.number("attempts.n", a.Number), Base: r.count("attempts.base", a.Base),
			Sent: fromNanos(a.Sent), Started: fromNanos(a.Started), Ended: fromNanos(a.Ended), Outcome: a.Outcome, Reason: a.Reason,
		})
	}
	return s, r.err
}

// filterToWire asks for a page of jobs. Errors: ErrInvalid (queue).
func filterToWire(f JobFilter, cursor string) (wire.JobsQuery, error) {
	queue, err := QueueName(f.Queue)
	if err != nil {
		return wire.JobsQuery{}, err
	}
	w := wire.JobsQuery{
		Page: wire.Page{Cursor: cursor},
		Host: f.Host, Procedure: f.Procedure, Queue: queue, Labels: f.Labels,
		Since: nanos(f.Since), Until: nanos(f.Until),
	}
	for _, s := range f.States {
		w.States = append(w.States, string(s))
	}
	return w, nil
}

func filterFromWire(w wire.JobsQuery) (JobFilter, error) {
	f := JobFilter{
		Host: w.Host, Procedure: w.Procedure, Labels: w.Labels,
		Since: fromNanos(w.Since), Until: fromNanos(w.Until),
	}
	if len(w.Queue) > 0 {
		queue, err := queueNamed(Value(w.Queue))
		if err != nil {
			return JobFilter{}, err
		}
		f.Queue = queue
	}
	for _, s := range w.States {
		f.States = append(f.States, State(s))
	}
	return f, nil
}

func hostToWire(h HostStatus) wire.Host {
	return wire.Host{
		Name: h.Name, Online: h.Online, Address: h.Address, Labels: h.Labels, Facts: h.Facts,
		Procedures: h.Procedures, LastHeard: nanos(h.LastHeard), Software: h.Software, Error: h.Error,
	}
}

func hostFromWire(w wire.Host) (HostStatus, error) {
	var r reader
	return HostStatus{
		Name: w.Name, Online: w.Online, Address: w.Address, Labels: w.Labels, Facts: r.value("facts", w.Facts),
		Procedures: w.Procedures, LastHeard: fromNanos(w.LastHeard), Software: w.Software, Error: w.Error,
	}, r.err
}

func procedureToWire(p ProcedureDoc) wire.Procedure {
	return wire.Procedure{
		Name: p.Name, Summary: p.Summary, Doc: p.Doc, Params: p.Params,
		Args: p.Args, Record: p.Record, Result: p.Result,
		Timeout: int64(p.Timeout), MaxExecTime: int64(p.MaxExecTime),
		Streams: p.Streams, Idempotent: p.Idempotent, Traits: p.Traits,
	}
}

func procedureFromWire(w wire.Procedure) (ProcedureDoc, error) {
	var r reader
	return ProcedureDoc{
		Name: w.Name, Summary: w.Summary, Doc: w.Doc, Params: w.Params,
		Args: r.schema("args", w.Args), Record: r.schema("record", w.Record), Result: r.schema("result", w.Result),
		Timeout: time.Duration(w.Timeout), MaxExecTime: time.Duration(w.MaxExecTime),
		Streams: w.Streams, Idempotent: w.Idempotent, Traits: w.Traits,
	}, r.err
}

func queueToWire(q QueueStatus) wire.Queue {
	return wire.Queue{
		Name: q.Name, Concurrency: int64(q.Concurrency),
		Running: int64(q.Running), Waiting: int64(q.Waiting), Paused: q.Paused,
	}
}

func queueFromWire(w wire.Queue) (QueueStatus, error) {
	var r reader
	return QueueStatus{
		Name: r.value("name", w.Name), Concurrency: r.number("conc", w.Concurrency),
		Running: r.number("running", w.Running), Waiting: r.number("waiting", w.Waiting), Paused: w.Paused,
	}, r.err
}
