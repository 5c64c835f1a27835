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

// submit decides whether a call is good, stores it, and sends it off if it may
// start at once. When it returns an id, the job is on disk. A call that would be
// refused now may be stored already: then it is the same job, whatever has changed
// since.
func (d *Dispatcher) submit(ctx context.Context, sub harp.Submission, who harp.Principal) (string, error) {
	weight := weightOf(sub)
	if err := d.turns.awaitTurn(ctx, who, weight); err != nil {
		return "", notStored(err)
	}
	defer d.turns.leaveTurn(who, weight)
	req, err := harp.DecodeRequest(sub.Request)
	if err != nil {
		return "", err
	}
	now := d.now()
	job, refused := d.admit(ctx, req, now)
	if refused == nil {
		refused = checkSize(sub)
	}
	if refused == nil && now.Sub(harp.IDTime(req.ID)) >= maxAge {
		refused = failures.New("pruned", "job "+req.ID+" is older than what is remembered").Err()
	}
	counted := 0
	if refused == nil {
		counted, refused = d.principals.admitCall(who, sub)
	}
	job.ID, job.Principal = req.ID, who
	got, err := d.store.Submit(ctx, []store.Submission{{
		Job: job, Request: sub, Digest: req.Digest(), Refused: refused != nil,
		Key: idempotencyKey(req, who), KeyUntil: now.Add(req.IdempotencyTTL), Most: d.principals.quota(who),
	}}, now)
	if err != nil || !got[0].New {
		d.principals.countBytes(who, -counted)
	}
	if cause := context.Cause(ctx); cause != nil && errors.Is(err, cause) {
		return "", notStored(err) // the store heeds ctx only before it takes a call
	}
	if err != nil {
		return "", err
	}
	switch first := &got[0]; {
	case refused != nil && errors.Is(first.Err, harp.ErrNotFound):
		return "", refused
	case first.Err != nil:
		return "", first.Err
	case first.New && first.Job.State == harp.StateSent:
		d.sendJob(first.Job, sub)
	case first.New:
		d.wakeClock()
	}
	return got[0].Job.ID, nil
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
	if harp.IDTime(req.ID).After(now.Add(maxAhead)) {
		return store.Job{}, &harp.FieldError{Field: "id", Message: "its time is more than an hour ahead of the dispatcher's clock"}
	}
	for _, need := range req.Needs {
		if need == harp.NeedDryRun {
			continue // its agent must know the word: the dispatcher only hands it on
		}
		return store.Job{}, failures.New("refused", "needs "+need+", which this dispatcher does not know").Err()
	}
	h := d.hosts.findKnown(req.Host)
	if h == nil {
		return store.Job{}, d.unknownHost(req.Host)
	}
	proc, err := h.checkRequest(req)
	if err != nil {
		return store.Job{}, err
	}
	job := store.Job{
		ID: req.ID, Host: req.Host, Procedure: req.Procedure,
		Queue: req.Queue, Concurrency: max(req.Concurrency, 1), Priority: req.Priority,
		NotBefore: req.StartAfter, Expires: req.StartBefore, OfflineWait: req.OfflineWait,
		Labels: req.Labels, TraceParent: req.TraceParent, SubmitTime: now, RetryOf: req.RetryOf, DryRun: req.DryRun,
		SecretArgs: h.secretArgs(req.Procedure, req.Args),
		Life:       store.Life{Retry: store.GrantRetry(req.Retry, proc.Idempotent)},
	}
	if job.OfflineWait == 0 {
		job.OfflineWait = d.cfg.OfflineWait
	}
	l := d.cfg.Limits
	silence := l.SilenceTimeout
	if !proc.Streams { // it has nothing to say until it ends
		silence = harp.NoLimit
	}
	if job.SilenceTimeout, err = grant("silence_timeout", req.SilenceTimeout, proc.SilenceTimeout, silence, l.MaxSilenceTimeout); err != nil {
		return store.Job{}, err
	}
	if job.MaxExecTime, err = grant("max_exec_time", req.MaxExecTime, proc.MaxExecTime, l.MaxExecTime, l.MaxMaxExecTime); err != nil {
		return store.Job{}, err
	}
	if req.WhenOffline == harp.FailFast && h.away() {
		return store.Job{}, fmt.Errorf("%w", &harp.HostError{Host: req.Host, Stage: "lookup", Err: harp.ErrUnreachable})
	}
	return job, d.checkRetry(ctx, req)
}

// checkRetry makes sure that what is to be done again is over.
func (d *Dispatcher) checkRetry(ctx context.Context, req harp.Request) error {
	if req.RetryOf == "" {
		return nil
	}
	old, err := d.readJob(ctx, req.RetryOf)
	if err == nil && !old.State.Ended() {
		err = failures.New("conflict", "job "+old.ID+" has not ended").Err()
	}
	return err
}

// idempotencyKey is a call's key with all that it is within.
func idempotencyKey(req harp.Request, who harp.Principal) string {
	if req.IdempotencyKey == "" {
		return ""
	}
	return string(wire.Encode([]string{who.Kind, who.Name, req.Host, req.Procedure, req.IdempotencyKey}))
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
