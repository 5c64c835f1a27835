package dispatcher

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/failures"
	"github.com/harpcaller/harp/internal/wire"
	"github.com/harpcaller/harp/store"
)

const (
	maxAhead = time.Hour           // how far an id's time may be ahead of this clock
	maxAge   = 30 * 24 * time.Hour // how old an id that is not stored may be; tombstones live a day longer
)

// submit decides which calls are good, stores these in one commit, and sends off what may start
// at once. When it returns an id, the job is on disk. A call that would be refused now may be
// stored already: then it is the same job, whatever has changed since.
func (d *Dispatcher) submit(ctx context.Context, calls []harp.Submission, who harp.Principal) ([]harp.Submitted, error) {
	requests, out := make([]harp.Request, len(calls)), make([]harp.Submitted, len(calls))
	weight := 0
	for i := range calls {
		requests[i], out[i].Err = readCall(calls, i)
		weight += weightOf(calls[i])
	}
	var silent map[string]bool
	if len(calls) == 1 && out[0].Err == nil && requests[0].Batch.Probe {
		var err error
		if silent, err = d.findSilent(ctx, requests[0], calls[0].Hosts, who, weight); err != nil {
			return nil, notStored(err)
		}
	}
	if err := d.turns.awaitTurn(ctx, who, weight); err != nil {
		return nil, notStored(err)
	}
	defer d.turns.leaveTurn(who, weight)
	now := d.now()
	if len(calls) == 1 && out[0].Err == nil && requests[0].IsBatch() {
		done, err := d.submitBatch(ctx, calls[0], requests[0], who, silent, now)
		return []harp.Submitted{done}, err
	}
	stored := make([]judged, 0, len(calls))
	subs := make([]store.Submission, 0, len(calls))
	for i := range calls {
		if out[i].Err != nil {
			continue
		}
		j, sub := d.judge(ctx, calls[i], requests[i], who, now)
		j.at = i
		stored, subs = append(stored, j), append(subs, sub)
	}
	if len(subs) == 0 {
		return out, nil
	}
	got, err := d.store.Submit(ctx, subs, now)
	for n, j := range stored {
		if err != nil || !got[n].New {
			d.principals.countBytes(who, -j.counted)
		}
	}
	if cause := context.Cause(ctx); cause != nil && errors.Is(err, cause) {
		return nil, notStored(err) // the store heeds ctx only before it takes a call
	}
	if err != nil {
		return nil, err
	}
	for n, j := range stored {
		out[j.at] = d.submitted(&got[n], j.refused, calls[j.at])
	}
	return out, nil
}

// readCall reads one of several calls. Errors: harp.ErrInvalid.
func readCall(calls []harp.Submission, i int) (harp.Request, error) {
	req, err := harp.DecodeRequest(calls[i].Request)
	if err == nil && req.IsBatch() && len(calls) > 1 {
		err = &harp.FieldError{Field: "calls", Message: "a batch is submitted alone"}
	}
	return req, err
}

// judged is a call that can be read.
type judged struct {
	at      int   // its index
	refused error // why it is not good, if it is not stored already; nil: it is
	counted int   // bytes that it counts as
}

// judge makes what is stored of a call.
func (d *Dispatcher) judge(ctx context.Context, call harp.Submission, req harp.Request, who harp.Principal, now time.Time) (judged, store.Submission) {
	var j judged
	job, refused := d.admit(ctx, req, now)
	if refused == nil {
		refused = checkCall(call, req, now)
	}
	if refused == nil {
		j.counted, refused = d.principals.admitCalls(who, call, 1)
	}
	j.refused = refused
	job.ID, job.Principal = req.ID, who
	return j, store.Submission{
		Job: job, Request: call, Digest: req.Digest(), Refused: refused != nil,
		Key: idempotencyKey(req, who), KeyUntil: now.Add(req.IdempotencyTTL), Most: d.principals.quota(who),
	}
}

// checkCall refuses a new call that is too large, or too old.
func checkCall(call harp.Submission, req harp.Request, now time.Time) error {
	if err := checkSize(call); err != nil {
		return err
	}
	if len(call.Hosts) > 0 && (req.List == nil || req.RetryOf != "") {
		return &harp.FieldError{Field: "hosts", Message: "are only beside a request that lists them"}
	}
	if now.Sub(harp.IDTime(req.ID)) >= maxAge {
		return failures.New("pruned", "job "+req.ID+" is too old to be remembered").Err()
	}
	return nil
}

// submitted is what became of a call that the store was given, and sends it off if it may start.
func (d *Dispatcher) submitted(got *store.Submitted, refused error, call harp.Submission) harp.Submitted {
	switch {
	case refused != nil && errors.Is(got.Err, harp.ErrNotFound):
		return harp.Submitted{Err: refused}
	case got.Err != nil:
		return harp.Submitted{Err: got.Err}
	case got.New && got.Job.State == harp.StateSent:
		d.sendJob(got.Job, call)
	case got.New:
		d.wakeClock()
	}
	return harp.Submitted{ID: got.Job.ID, Existed: !got.New}
}

// notStored is the error of a call whose ctx ended before it was taken: it did not run.
func notStored(cause error) error {
	f := failures.New("unavailable", "the call was not stored")
	f.Fault = harp.FaultCaller
	return &notStoredError{failure: f.Err(), cause: cause}
}

type notStoredError struct{ failure, cause error }

func (e *notStoredError) Error() string { return e.failure.Error() + ": " + e.cause.Error() }

// Unwrap returns that it is unavailable, and why.
func (e *notStoredError) Unwrap() []error { return []error{e.failure, e.cause} }

// checkSize refuses what would not fit into CALL.
func checkSize(sub harp.Submission) error {
	if size := len(sub.Request) + len(sub.Signature) + len(sub.KeyID); size > wire.MaxSubmission {
		return &harp.FieldError{Field: "request", Message: fmt.Sprintf("is %d bytes with its signature and the key's id, at most %d", size, wire.MaxSubmission)}
	}
	return nil
}

// admit makes the row of a call that is good. Nothing is stored before it agrees.
func (d *Dispatcher) admit(ctx context.Context, req harp.Request, now time.Time) (store.Job, error) {
	if err := checkNeeds(req, now); err != nil {
		return store.Job{}, err
	}
	h := d.hosts.findKnown(req.Host)
	if h == nil {
		return store.Job{}, d.hosts.unknownError(req.Host)
	}
	proc, err := h.checkRequest(ctx, req)
	if err != nil {
		return store.Job{}, err
	}
	job := d.newJob(req, now)
	job.Host, job.NotBefore = req.Host, req.StartAfter
	job.ReadOnly = isReadOnly(proc)
	job.SecretArgs, job.Retry = h.secretArgs(req.Procedure, req.Args), store.GrantRetry(req.Retry, proc.Idempotent)
	if job.SilenceTimeout, job.MaxExecTime, err = d.grantLimits(req, proc); err != nil {
		return store.Job{}, err
	}
	if req.WhenOffline == harp.FailFast && h.away() {
		return store.Job{}, fmt.Errorf("%w", &harp.HostError{Host: req.Host, Stage: "lookup", Err: harp.ErrUnreachable})
	}
	if err := d.checkRefused(h, &job, now); err != nil {
		return store.Job{}, err
	}
	return job, d.checkRetry(ctx, req)
}

// checkNeeds refuses what this dispatcher does not know, or that comes from the future.
func checkNeeds(req harp.Request, now time.Time) error {
	if harp.IDTime(req.ID).After(now.Add(maxAhead)) {
		return &harp.FieldError{Field: "id", Message: "has a time more than an hour ahead of the dispatcher's clock"}
	}
	for _, need := range req.Needs {
		if need != harp.NeedDryRun && need != harp.NeedBatch && need != harp.NeedChain { // of which the agent must know the word, too
			return failures.New("refused", "needs "+need+", which this dispatcher does not support").Err()
		}
	}
	return nil
}

// newJob is the row of a job, as far as its request alone says what is in it.
func (d *Dispatcher) newJob(req harp.Request, now time.Time) store.Job {
	job := store.Job{
		ID: req.ID, Procedure: req.Procedure,
		Queue: req.Queue, Concurrency: max(req.Concurrency, 1), Priority: req.Priority,
		Expires: req.StartBefore, OfflineWait: req.OfflineWait,
		Labels: req.Labels, TraceParent: req.TraceParent, SubmitTime: now, RetryOf: req.RetryOf, DryRun: req.DryRun,
	}
	if job.OfflineWait == 0 {
		job.OfflineWait = d.cfg.OfflineWait
	}
	return job
}

// grantLimits returns the limits of a call of a procedure. Errors: harp.ErrRefused.
func (d *Dispatcher) grantLimits(req harp.Request, proc harp.ProcedureDoc) (silence, run time.Duration, err error) {
	l := d.cfg.Limits
	byDefault := l.SilenceTimeout
	if !proc.Streams { // it has nothing to say until it ends
		byDefault = harp.NoLimit
	}
	if silence, err = grant("silence_timeout", req.SilenceTimeout, proc.SilenceTimeout, byDefault, l.MaxSilenceTimeout); err != nil {
		return 0, 0, err
	}
	run, err = grant("max_exec_time", req.MaxExecTime, proc.MaxExecTime, l.MaxExecTime, l.MaxMaxExecTime)
	return silence, run, err
}

// checkRetry makes sure that what is to be done again is over.
func (d *Dispatcher) checkRetry(ctx context.Context, req harp.Request) error {
	if req.RetryOf == "" {
		return nil
	}
	old, err := d.readJob(ctx, req.RetryOf)
	if err == nil && !old.State.Ended() {
		err = conflictOf(conflictRetry, "job "+old.ID+" has not ended")
	}
	return err
}

// The types of conflicts that are not about the id of a request: they say nothing of what became of it
// when it was sent before.
const (
	conflictRetry     = "retry_of"
	conflictConfirmed = "confirmed"
)

// conflictOf returns a harp.ErrConflict of a type.
func conflictOf(kind, message string) error {
	f := failures.New("conflict", message)
	f.Type = kind
	return f.Err()
}

// idempotencyKey is a call's key with all that it is within.
func idempotencyKey(req harp.Request, who harp.Principal) string {
	if req.IdempotencyKey == "" {
		return ""
	}
	within := []string{who.Kind, who.Name, req.Host, req.Procedure, req.IdempotencyKey}
	if req.IsBatch() { // whose keys are apart from those of calls of a host
		within = append(within, req.Target)
		if req.List != nil {
			within = append(within, req.List.Digest)
		}
	}
	return string(wire.Encode(within))
}

// grant is the limit a call gets: what it asks for, else the procedure's own, else
// the dispatcher's default. The procedure's own and the dispatcher's cap are caps:
// asking for more is refused, for a limit silently lowered is a broken promise.
func grant(field string, asked, own, byDefault, most time.Duration) (time.Duration, error) {
	if own > 0 {
		byDefault, most = min(own, most), min(own, most)
	}
	switch {
	case asked == 0:
		return byDefault, nil
	case asked > most:
		return 0, failures.New("refused", fmt.Sprintf("%s of %s is more than the cap of %v", field, limitText(asked), most)).Err()
	}
	return asked, nil
}

func limitText(d time.Duration) string {
	if d == harp.NoLimit {
		return "none"
	}
	return d.String()
}
