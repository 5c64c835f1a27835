package harp

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/harpcaller/harp/internal/wire"
)

// Job is a handle of one job: its id and where to ask. It remembers nothing of the
// job's state. It is safe for concurrent use.
type Job struct {
	service Service
	id      string
}

// ID returns the job's id.
func (j *Job) ID() string { return j.id }

// Status returns the state of the job now. Errors: ErrInvalid (the id), ErrNotFound,
// ErrPruned, ErrUnavailable, ErrClosed.
func (j *Job) Status(ctx context.Context) (JobStatus, error) {
	status, err := j.service.JobStatus(ctx, j.id)
	return status, j.asked(err)
}

// Result returns how the job ended, without waiting: the failure of the job is in
// Result.Err. If it has not ended, Result.Done is false. Errors: as Status.
func (j *Job) Result(ctx context.Context) (Result, error) {
	res, err := j.service.JobResult(ctx, j.id, false)
	return res, j.asked(err)
}

// Wait is Result when the job has ended. It goes on through lost connections and
// restarts of the dispatcher until ctx ends. Errors: ErrNotFound, ErrPruned,
// ErrClosed, ctx's.
func (j *Job) Wait(ctx context.Context) (Result, error) {
	res, err := j.service.JobResult(ctx, j.id, true)
	return res, j.asked(err)
}

// Get waits until the job has ended and returns its value; a job that did not
// succeed is an error. It goes on through lost connections and restarts of the
// dispatcher until ctx ends; ctx bounds the wait, not the job.
//
// Errors: a *RemoteError when the procedure failed, ErrTimeout, ErrCancelled,
// ErrExpired (and ErrUnreachable when the host was away), ErrRejected (and
// ErrNotFound, ErrInvalid or ErrDenied by its reason), ErrLost; ErrNotFound,
// ErrPruned, ErrClosed; ctx's. [RanOf] says whether the procedure ran.
func (j *Job) Get(ctx context.Context) (Value, error) {
	res, err := j.Wait(ctx)
	if err != nil {
		return nil, err
	}
	if res.Err != nil {
		return nil, &jobError{id: j.id, err: res.Err}
	}
	return res.Value, nil
}

// asked is the error of having asked after the job in vain, nil for nil: whatever
// it is, it does not say whether the job ran.
func (j *Job) asked(err error) error {
	if err == nil {
		return nil
	}
	return &jobError{id: j.id, ran: MayHaveRun, err: err}
}

// jobError adds to an error about a job what its reader wants next: whether the
// job ran, if that is known, and which one it was.
type jobError struct {
	id  string
	ran Ran // nothing: err knows
	err error
}

func (e *jobError) Error() string {
	text := withoutPrefix(e.err.Error())
	if e.ran != MayHaveRun {
		text += "; " + ranWords(RanOf(e))
	}
	return text + "; job " + e.id
}

func (e *jobError) Unwrap() error { return e.err }

func ranWords(r Ran) string {
	switch r {
	case DidRun:
		return "ran"
	case DidNotRun:
		return "did not run"
	default:
		return "may have run"
	}
}

// Get is Job.Get with the value decoded into a T. Errors: as Job.Get, and
// ErrInvalid when the value is no T.
func Get[T any](ctx context.Context, j *Job) (T, error) {
	var t T
	v, err := j.Get(ctx)
	if err != nil {
		return t, err
	}
	if err := v.Decode(&t); err != nil {
		return t, &jobError{id: j.id, ran: DidRun, err: err}
	}
	return t, nil
}

// A CancelOption changes how [Job.Cancel] asks.
type CancelOption func(*cancelOptions)

type cancelOptions struct{ now bool }

// KillNow gives a command no grace: what runs of it is killed at once, also if it was
// asked to stop before and is in its grace. A Go procedure cannot be killed: its context
// ends, as without.
func KillNow() CancelOption { return func(o *cancelOptions) { o.now = true } }

// Cancel asks the job to stop and returns when the request is on the dispatcher's
// disk; true if the job had not ended. A job that runs is cancelling until nothing
// of it runs any more; Wait tells how it ended. Errors: as Status.
func (j *Job) Cancel(ctx context.Context, opts ...CancelOption) (bool, error) {
	var o cancelOptions
	for _, opt := range opts {
		opt(&o)
	}
	live, err := j.service.CancelJob(ctx, j.id, o.now)
	return live, j.asked(err)
}

// Retry makes the call of this job again: a new job with the same host, procedure,
// arguments and options, whose JobStatus.RetryOf names this one. StartAfter,
// StartBefore and the idempotency key are not taken over; opts go over the others.
// The new job is this caller's, and not signed.
//
// Errors: ErrConflict until this job has ended, ErrNotFound, ErrPruned, and as
// [Host.Call].
func (j *Job) Retry(ctx context.Context, opts ...Option) (*Job, error) {
	made, err := j.service.JobRequest(ctx, j.id)
	if err != nil {
		return nil, j.asked(err)
	}
	old, err := DecodeRequest(made.Request)
	if err != nil {
		return nil, j.asked(err)
	}
	ctx, done := inTurn(ctx, j.service)
	defer done()
	req, err := newRequest(old.Host, old.Procedure, old.Args, slices.Concat([]Option{old.again}, opts))
	if err != nil {
		return nil, &callFailedError{procedure: old.Procedure, host: old.Host, err: err}
	}
	for _, need := range old.Needs {
		if !slices.Contains(req.Needs, need) {
			req.Needs = append(req.Needs, need)
		}
	}
	req.RetryOf = j.id
	return submit(ctx, j.service, req)
}

// ForceLost ends a job of which nothing is known, in state unknown, as lost, and
// frees its place in the queue: the operator takes the word that its agent will not
// give. why, at most 1024 bytes, is kept with the job. Asked again it is no error.
//
// Errors: ErrConflict in any other state, ErrInvalid (id, why), ErrNotFound,
// ErrPruned, ErrUnavailable, ErrClosed.
func (j *Job) ForceLost(ctx context.Context, why string) error {
	if err := checkName("why", why, wire.MaxWhy); err != nil {
		return err
	}
	return j.asked(j.service.ForceLost(ctx, j.id, why))
}

// Result is how a job ended. The zero Result is that of a job that has not.
type Result struct {
	State    State
	Value    Value // what the procedure returned
	Err      error // nil if it succeeded and its value is there
	ExitCode *int  // of a command
}

// MarshalJSON writes state, value, error and exit_code.
func (r Result) MarshalJSON() ([]byte, error) {
	var failure *Failure
	if r.Err != nil {
		f := FailureOf(r.Err)
		failure = &f
	}
	return json.Marshal(struct {
		State    State    `json:"state"`
		Value    Value    `json:"value"`
		Error    *Failure `json:"error"`
		ExitCode *int     `json:"exit_code,omitempty"`
	}{r.State, r.Value, failure, r.ExitCode})
}

// Done reports whether the job has ended.
func (r Result) Done() bool { return r.State.Ended() }

// JobStatus is the state of a job at one moment. Times are UTC by the dispatcher's
// clock, zero where it has not happened.
type JobStatus struct {
	ID, Host, Procedure      string
	Batch, Schedule, RetryOf string
	Principal                Principal // who called
	Args, Info, Queue        Value     // as the caller gave them; Queue nil: in none
	State                    State
	Reason                   string         // queued: what it waits for; lost, timed_out, rejected: why
	Started                  Ran            // "" until ended; whether the procedure started
	Since                    time.Time      // when it came into its state
	DryRun                   bool           // only what would be done was asked for
	UnknownOf                State          // unknown: what it was when the host was last heard
	CancelRequested          *CancelRequest // nil: nobody has
	Attempts                 []Attempt
	Attempt                  int     // number of the last attempt; 0: none yet
	Late                     *Result // what the agent said after the job was lost; in a listing without its value
	DuplicatePossible        bool    // an attempt was lost with its agent's journal, and another followed
	Err                      error   // how it failed, or where its value went; nil unless ended
	SubmitTime               time.Time
	StartTime                time.Time
	EndTime                  time.Time
	Timeout, MaxExecTime     time.Duration // the limits it runs under
	QueuePos                 int           // queued in a queue: 1 is next
	Records                  uint64        // how many it has
	Labels                   map[string]string
	Survivors                []int // processes on its host that outlive KILL: it has not ended while there is one
}

// CancelRequest tells who first asked a job to stop, and when.
type CancelRequest struct {
	By   Principal `json:"by"`
	Time time.Time `json:"time"`
	Now  bool      `json:"now,omitempty"` // then or later: to be killed at once
}

// Attempt is one try at running a job.
type Attempt struct {
	Number  int       `json:"number"`
	Base    uint64    `json:"base"` // number of its first record
	Sent    time.Time `json:"sent,omitzero"`
	Started time.Time `json:"started,omitzero"`
	Ended   time.Time `json:"ended,omitzero"`
	Outcome string    `json:"outcome,omitempty"` // a state, or "not_now"
	Reason  string    `json:"reason,omitempty"`  // of the state
}

// MarshalJSON writes the fields that the command line promises, in snake_case;
// times are RFC 3339 UTC or null.
func (s JobStatus) MarshalJSON() ([]byte, error) {
	var failure *Failure
	if s.Err != nil {
		f := FailureOf(s.Err)
		failure = &f
	}
	return json.Marshal(struct {
		ID              string            `json:"id"`
		Host            string            `json:"host"`
		Procedure       string            `json:"procedure"`
		Args            Value             `json:"args"`
		Info            Value             `json:"info"`
		Queue           Value             `json:"queue"`
		State           State             `json:"state"`
		Reason          string            `json:"reason"`
		Started         Ran               `json:"started"`
		SubmitTime      *time.Time        `json:"submit_time"`
		StartTime       *time.Time        `json:"start_time"`
		EndTime         *time.Time        `json:"end_time"`
		Attempt         int               `json:"attempt"`
		Attempts        []Attempt         `json:"attempts"`
		Records         uint64            `json:"records"`
		Labels          map[string]string `json:"labels"`
		Error           *Failure          `json:"error"`
		Principal       Principal         `json:"principal"`
		Since           *time.Time        `json:"since"`
		UnknownOf       State             `json:"unknown_of,omitempty"`
		RetryOf         string            `json:"retry_of,omitempty"`
		DryRun          bool              `json:"dry_run,omitempty"`
		Late            *Result           `json:"late,omitempty"`
		Duplicate       bool              `json:"duplicate_possible,omitempty"`
		CancelRequested *CancelRequest    `json:"cancel_requested,omitempty"`
		QueuePos        int               `json:"queue_pos,omitempty"`
		Timeout         string            `json:"timeout,omitempty"`
		MaxExecTime     string            `json:"max_exec_time,omitempty"`
		Survivors       []int             `json:"survivors,omitempty"`
	}{
		s.ID, s.Host, s.Procedure, s.Args, s.Info, s.Queue, s.State, s.Reason, s.Started,
		timeOrNull(s.SubmitTime), timeOrNull(s.StartTime), timeOrNull(s.EndTime),
		s.Attempt, orNone(s.Attempts), s.Records, orEmpty(s.Labels), failure,
		s.Principal, timeOrNull(s.Since), s.UnknownOf, s.RetryOf, s.DryRun, s.Late, s.DuplicatePossible, s.CancelRequested, s.QueuePos,
		limitText(s.Timeout), limitText(s.MaxExecTime), s.Survivors,
	})
}

func limitText(d time.Duration) string {
	switch d {
	case 0:
		return ""
	case NoLimit:
		return "none"
	default:
		return d.String()
	}
}

// JobFilter selects jobs; a zero field selects all.
type JobFilter struct {
	Host      string
	Procedure string
	Queue     any // a queue's name
	States    []State
	Labels    map[string]string // all of them
	Since     time.Time         // submitted at or after
	Until     time.Time         // submitted before
}
