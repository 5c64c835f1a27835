package harp

import (
	"context"
	"encoding/json"
	"time"
)

// Outcome is how a job of a [Proc] ended, in types: what [Result] is without.
type Outcome[R any] struct {
	State    State
	Value    R     // what the procedure returned, if it succeeded
	Err      error // as of [Job.Get]; nil if it succeeded
	ExitCode *int  // of a command

	SubmitTime, StartTime, EndTime time.Time // UTC, by the dispatcher's clock; zero where it has not happened
}

// outcomeJSON is how an Outcome is written as JSON.
type outcomeJSON[R any] struct {
	State      State     `json:"state"`
	Value      *R        `json:"value,omitempty"` // nil unless it succeeded
	Error      Failure   `json:"error,omitzero"`
	ExitCode   *int      `json:"exit_code,omitempty"`
	SubmitTime time.Time `json:"submit_time,omitzero"`
	StartTime  time.Time `json:"start_time,omitzero"`
	EndTime    time.Time `json:"end_time,omitzero"`
}

// MarshalJSON writes the fields as those of a [Result]: Err as the [Failure] "error", and the
// value only if there is one.
func (o Outcome[R]) MarshalJSON() ([]byte, error) {
	written := outcomeJSON[R]{o.State, nil, FailureOf(o.Err), o.ExitCode, o.SubmitTime, o.StartTime, o.EndTime}
	if o.Err == nil {
		written.Value = &o.Value
	}
	return plainJSON(written)
}

// UnmarshalJSON reads what MarshalJSON writes. Errors: those of package json.
func (o *Outcome[R]) UnmarshalJSON(text []byte) error {
	var read outcomeJSON[R]
	if err := json.Unmarshal(text, &read); err != nil {
		return err
	}
	*o = Outcome[R]{State: read.State, Err: read.Error.Err(), ExitCode: read.ExitCode, SubmitTime: read.SubmitTime, StartTime: read.StartTime, EndTime: read.EndTime}
	if read.Value != nil {
		o.Value = *read.Value
	}
	return nil
}

// Wait waits until the job has ended and returns how, in one read: a job that did not succeed
// is no error of Wait's. Errors: as Job.Wait; ErrInvalid when the job is of another procedure or
// its value is no R.
func (p Proc[A, R]) Wait(ctx context.Context, j *Job) (Outcome[R], error) {
	res, err := j.Wait(ctx)
	if err != nil {
		return Outcome[R]{}, err
	}
	if err := p.check(j, res); err != nil {
		return Outcome[R]{}, err
	}
	o := Outcome[R]{
		State: res.State, ExitCode: res.ExitCode,
		SubmitTime: res.SubmitTime, StartTime: res.StartTime, EndTime: res.EndTime,
	}
	if res.Err != nil {
		o.Err = &jobError{id: j.id, err: res.Err}
		return o, nil
	}
	if err := res.Value.Decode(&o.Value); err != nil {
		return Outcome[R]{}, &jobError{id: j.id, ran: DidRun, err: err}
	}
	return o, nil
}

// check returns ErrInvalid if the job that ended so is of another procedure.
func (p Proc[A, R]) check(j *Job, res Result) error {
	if res.Procedure == p.Name || res.Procedure == "" { // a dispatcher of before does not say it
		return nil
	}
	return j.answerErr(&FieldError{Field: "procedure", Message: "the job is of " + res.Procedure + ", not " + p.Name})
}
