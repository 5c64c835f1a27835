package harp

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"
)

// Job is a handle of one job: its id and where to ask. It remembers nothing of the
// job's state. It is safe for concurrent use.
type Job struct {
	service Service
	id      string
	existed bool
}

// ID returns the job's id.
func (j *Job) ID() string { return j.id }

// Existed reports whether the call that returned this handle found its job there already, by
// its id ([JobID]) or its key ([IdempotencyKey]), also where its own answer had been lost before.
// It is false of a handle that no call has returned.
func (j *Job) Existed() bool { return j.existed }

// Status returns the state of the job now. Errors: ErrInvalid (the id), ErrNotFound,
// ErrPruned, ErrUnavailable, ErrClosed.
func (j *Job) Status(ctx context.Context) (JobStatus, error) {
	status, err := j.service.JobStatus(ctx, j.id)
	return status, j.answerErr(err)
}

// Result returns how the job ended, without waiting: the failure of the job is in
// Result.Err. If it has not ended, Result.Done is false. Errors: as Status.
func (j *Job) Result(ctx context.Context) (Result, error) {
	res, err := j.service.JobResult(ctx, j.id, false)
	return res, j.answerErr(err)
}

// Wait is Result when the job has ended. It goes on through lost connections and
// restarts of the dispatcher until ctx ends. Errors: ErrNotFound, ErrPruned,
// ErrClosed, ctx's.
func (j *Job) Wait(ctx context.Context) (Result, error) {
	res, err := j.service.JobResult(ctx, j.id, true)
	return res, j.answerErr(err)
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
	return j.valueOf(res)
}

// valueOf is what a job that ended so returned; that it did not succeed is an error.
func (j *Job) valueOf(res Result) (Value, error) {
	if res.Err != nil {
		return nil, &jobError{id: j.id, err: res.Err}
	}
	return res.Value, nil
}

// answerErr is the error of having asked after the job in vain, nil for nil: whatever
// it is, it does not say whether the job ran.
func (j *Job) answerErr(err error) error {
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
	var remote *RemoteError
	switch {
	case e.ran == MayHaveRun:
	case errors.As(e.err, &remote) && RanOf(e) == DidRun:
		text = "failed (it ran): " + text
	default:
		text += "; " + ranWords(RanOf(e))
	}
	if strings.Contains(text, e.id) { // nothing is said twice
		return text
	}
	return text + "; job " + e.id
}

func (e *jobError) Unwrap() error { return e.err }

func ranWords(r Ran) string {
	switch r {
	case DidRun:
		return "it ran"
	case DidNotRun:
		return "did not run"
	default:
		return "may have run"
	}
}

// Get is Job.Get with the value decoded into a T. Errors: as Job.Get, and
// ErrInvalid when the value is no T.
func Get[T any](ctx context.Context, j *Job) (T, error) {
	res, err := j.Wait(ctx)
	if err != nil {
		var none T
		return none, err
	}
	return resultAs[T](j, res)
}

// resultAs is what a job that ended so returned, as a T.
func resultAs[T any](j *Job, res Result) (T, error) {
	var t T
	v, err := j.valueOf(res)
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
// disk; true if the job had not ended. Where the connection was lost before the answer
// it is asked again: false may then mean that the job has ended by this very request. A
// job that runs is cancelling until nothing of it runs any more; Wait tells how it ended.
// Errors: as Status; ErrInvalid for an option that is nil.
func (j *Job) Cancel(ctx context.Context, opts ...CancelOption) (bool, error) {
	var o cancelOptions
	for _, opt := range opts {
		if opt == nil {
			return false, j.answerErr(errNilOption)
		}
		opt(&o)
	}
	live, err := j.service.CancelJob(ctx, j.id, o.now)
	return live, j.answerErr(err)
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
		return nil, j.answerErr(err)
	}
	old, err := DecodeRequest(made.Request)
	if err != nil {
		return nil, j.answerErr(err)
	}
	if old.IsBatch() {
		if old, err = j.asOwnCall(ctx, old); err != nil {
			return nil, err
		}
	}
	req, err := NewRequest(old.Host, old.Procedure, old.Args, slices.Concat([]Option{old.again}, opts)...)
	if err != nil {
		return nil, WrapCallError(old.Procedure, old.Host, err)
	}
	for _, need := range old.Needs {
		if !slices.Contains(req.Needs, need) {
			req.Needs = append(req.Needs, need)
		}
	}
	req.RetryOf = j.id
	return submitRequest(ctx, j.service, req, nil)
}

// asOwnCall is the request of a batch as that of this member alone.
func (j *Job) asOwnCall(ctx context.Context, r Request) (Request, error) {
	s, err := j.Status(ctx)
	if err != nil {
		return Request{}, err
	}
	if r, err = r.AtStep(max(s.Step, 1)); err != nil {
		return Request{}, j.answerErr(err)
	}
	r.Host, r.Queue, r.Target, r.Batch = s.Host, s.Queue, "", BatchOptions{}
	r.Needs = slices.DeleteFunc(r.Needs, func(need string) bool { return need == NeedBatch || need == NeedChain })
	if r.WhenOffline == SkipHost {
		r.WhenOffline = WaitForHost
	}
	return r, nil
}

// ForceLost ends a job as lost that holds a slot of its queue (unknown, sent, running,
// cancelling), and gives the slot back: the operator takes the word that its agent will not
// give. It stops nothing; what its agent says later is kept with the job. why, at most 1024
// bytes, is kept, too. Asked again it is no error.
//
// Errors: ErrConflict in any other state, ErrInvalid (id, why), ErrNotFound,
// ErrPruned, ErrUnavailable, ErrClosed.
func (j *Job) ForceLost(ctx context.Context, why string) error {
	if err := CheckWhy(why); err != nil {
		return err
	}
	return j.answerErr(j.service.ForceLost(ctx, j.id, why))
}

// CheckWhy returns ErrInvalid unless why may be given to [Job.ForceLost].
func CheckWhy(why string) error { return checkName("why", why, MaxWhy) }

// Result is how a job ended. The zero Result is that of a job that has not.
type Result struct {
	State    State `json:"state" msgpack:"state"`
	Value    Value `json:"value,omitzero" msgpack:"value,omitempty"`     // what the procedure returned
	Err      error `json:"-" msgpack:"failure,omitempty"`                // nil if it succeeded and its value is there
	ExitCode *int  `json:"exit_code,omitempty" msgpack:"exit,omitempty"` // of a command

	// What job it is the end of, and when: those of its JobStatus. Late has none of them.
	Procedure  string    `json:"procedure,omitempty" msgpack:"proc,omitempty"`
	SubmitTime time.Time `json:"submit_time,omitzero" msgpack:"submit,omitempty"`
	StartTime  time.Time `json:"start_time,omitzero" msgpack:"start,omitempty"`
	EndTime    time.Time `json:"end_time,omitzero" msgpack:"end,omitempty"`
}

// Done reports whether the job has ended.
func (r Result) Done() bool { return r.State.Ended() }

// JobStatus is the state of a job at one moment. Times are UTC by the dispatcher's
// clock, zero where it has not happened.
type JobStatus struct {
	ID                string            `json:"id" msgpack:"id"`
	Host              string            `json:"host" msgpack:"host"`
	Procedure         string            `json:"procedure" msgpack:"proc"`
	Batch             string            `json:"batch,omitempty" msgpack:"batch,omitempty"`
	Step              int               `json:"step,omitempty" msgpack:"step,omitempty"` // of a chain, from 1
	Schedule          string            `json:"schedule,omitempty" msgpack:"schedule,omitempty"`
	RetryOf           string            `json:"retry_of,omitempty" msgpack:"retryof,omitempty"` // the job that this one does again
	DryRun            bool              `json:"dry_run,omitempty" msgpack:"dry,omitempty"`      // only what would be done was asked for
	Principal         Principal         `json:"principal" msgpack:"who"`                        // who called
	Args              Value             `json:"args,omitzero" msgpack:"args,omitempty"`         // as the caller gave them, as the next two; a secret is "***"
	Info              Value             `json:"info,omitzero" msgpack:"info,omitempty"`
	Queue             Value             `json:"queue,omitzero" msgpack:"queue,omitempty"` // nil: in none
	State             State             `json:"state" msgpack:"state"`
	Reason            string            `json:"reason" msgpack:"reason,omitempty"`                     // queued: what it waits for; lost, timed_out, rejected: why
	Since             time.Time         `json:"since,omitzero" msgpack:"since,omitempty"`              // when it came into its state
	UnknownOf         State             `json:"unknown_of,omitempty" msgpack:"unknownof,omitempty"`    // unknown: what it was when the host was last heard
	Started           Ran               `json:"started" msgpack:"started,omitempty"`                   // "" until ended; whether the procedure started
	CancelRequested   *CancelRequest    `json:"cancel_requested,omitempty" msgpack:"cancel,omitempty"` // nil: nobody has
	Attempts          []Attempt         `json:"attempts,omitempty" msgpack:"attempts,omitempty"`
	Attempt           int               `json:"attempt" msgpack:"attempt,omitempty"`                  // number of the last attempt; 0: none yet
	Err               error             `json:"-" msgpack:"failure,omitempty"`                        // how it failed, or where its value went; nil unless ended
	Late              *Result           `json:"late,omitempty" msgpack:"late,omitempty"`              // what the agent said after the job was lost; in a listing without its value
	DuplicatePossible bool              `json:"duplicate_possible,omitempty" msgpack:"dup,omitempty"` // an attempt was lost with its agent's journal, and another followed
	SubmitTime        time.Time         `json:"submit_time,omitzero" msgpack:"submit"`
	StartTime         time.Time         `json:"start_time,omitzero" msgpack:"start,omitempty"`
	EndTime           time.Time         `json:"end_time,omitzero" msgpack:"end,omitempty"`
	SilenceTimeout    time.Duration     `json:"-" msgpack:"timeout,omitempty"` // the limits it runs under
	MaxExecTime       time.Duration     `json:"-" msgpack:"maxexec,omitempty"`
	HeldBy            []string          `json:"held_by,omitempty" msgpack:"heldby,omitempty"`      // queued(window): the first ten windows that keep it from starting, by name; none: its host is paused
	QueuePos          int               `json:"queue_pos,omitempty" msgpack:"pos,omitempty"`       // queued in a queue: 1 is next
	Obstacles         []Obstacle        `json:"obstacles,omitempty" msgpack:"obstacles,omitempty"` // queued: all that keeps it from starting; not in a listing
	Records           uint64            `json:"records" msgpack:"records,omitempty"`               // how many it has
	Labels            map[string]string `json:"labels,omitempty" msgpack:"labels,omitempty"`
	Survivors         []int             `json:"survivors,omitempty" msgpack:"survivors,omitempty"` // processes on its host that outlive KILL: it has not ended while there is one
}

// CancelRequest tells who first asked a job to stop, and when.
type CancelRequest struct {
	By   Principal `json:"by" msgpack:"by"`
	Time time.Time `json:"time" msgpack:"time"`
	Now  bool      `json:"now,omitempty" msgpack:"now,omitempty"` // then or later: to be killed at once
}

// Attempt is one try at running a job.
type Attempt struct {
	Number  int       `json:"number" msgpack:"n"`
	Base    uint64    `json:"base" msgpack:"base,omitempty"` // number of its first record
	Sent    time.Time `json:"sent,omitzero" msgpack:"sent,omitempty"`
	Started time.Time `json:"started,omitzero" msgpack:"started,omitempty"`
	Ended   time.Time `json:"ended,omitzero" msgpack:"ended,omitempty"`
	Outcome string    `json:"outcome,omitempty" msgpack:"outcome,omitempty"` // a state, or "not_now"
	Reason  string    `json:"reason,omitempty" msgpack:"reason,omitempty"`   // of the state
}

// JobFilter selects jobs; a zero field selects all.
type JobFilter struct {
	Host      string            `msgpack:"host,omitempty"`
	Procedure string            `msgpack:"proc,omitempty"`
	Queue     any               `msgpack:"-"`               // a queue's name
	Batch     string            `msgpack:"batch,omitempty"` // its members, in the order of its hosts
	States    []State           `msgpack:"states,omitempty"`
	Labels    map[string]string `msgpack:"labels,omitempty"` // all of them
	Since     time.Time         `msgpack:"since,omitempty"`  // submitted at or after
	Until     time.Time         `msgpack:"until,omitempty"`  // submitted before
	Limit     int               `msgpack:"-"`                // of jobs in a page; 0: as many as fit

	// By is the name of who submitted them, Args what arguments they have: of each name its text
	// or its JSON. For these there is no index: every job that the other fields select is looked
	// at, and a page may have few jobs, or none, though there are more.
	By   string            `msgpack:"by,omitempty"`
	Args map[string]string `msgpack:"args,omitempty"`
}
