package dispatcher

import (
	"bytes"
	"context"
	"errors"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/schema"
	"github.com/harpcaller/harp/store"
)

// status is a job's row as callers see it, with what they gave. It shares no memory with the row.
func (d *Dispatcher) status(ctx context.Context, j *store.Job) (harp.JobStatus, error) {
	sub, err := d.jobRequest(ctx, j)
	if err != nil {
		return harp.JobStatus{}, err
	}
	req, err := harp.DecodeRequest(bytes.Clone(sub.Request)) // of which it is a part
	if err != nil {
		return harp.JobStatus{}, err
	}
	if req, err = req.AtStep(j.Step()); err != nil {
		return harp.JobStatus{}, err
	}
	args, err := d.shownArgs(j, req.Args)
	if err != nil {
		return harp.JobStatus{}, err
	}
	j = j.Clone()
	s := harp.JobStatus{
		ID: j.ID, Host: j.Host, Procedure: j.Procedure, Batch: j.Batch, Schedule: j.Schedule, RetryOf: j.RetryOf, DryRun: j.DryRun,
		Principal: j.Principal, Args: args, Info: req.Info, Queue: j.Queue,
		State: j.State, Reason: j.Reason, Started: j.Started, Since: j.Since, UnknownOf: j.UnknownOf,
		CancelRequested: j.Cancel, Attempt: j.Attempt, Err: j.Failure.Err(),
		SubmitTime: j.SubmitTime, StartTime: j.StartTime, EndTime: j.EndTime,
		SilenceTimeout: j.SilenceTimeout, MaxExecTime: j.MaxExecTime, QueuePos: j.QueuePos, Records: j.Records, Labels: j.Labels, Survivors: j.Left,
	}
	if j.Chain != nil {
		s.Step = j.Chain.Step
	}
	if j.State == harp.StateQueued && j.Reason == harp.ReasonWindow {
		s.HeldBy = d.heldBy(j)
	}
	for _, a := range j.Attempts {
		s.Attempts = append(s.Attempts, harp.Attempt{
			Number: a.Number, Base: a.Base, Sent: a.Sent, Started: a.Started, Ended: a.Ended, Outcome: a.Outcome, Reason: a.Reason,
		})
	}
	s.DuplicatePossible = duplicatePossible(s.Attempts)
	if j.Late != nil {
		late := resultOf(j.Late.State, j.Late.Failure, nil)
		s.Late = &late
	}
	return s, nil
}

// shownArgs are a job's arguments without secrets: those that were known as such when it was
// submitted, or else that its host now declares.
func (d *Dispatcher) shownArgs(j *store.Job, args harp.Value) (harp.Value, error) {
	secret := j.SecretArgs
	if h := d.hosts.findKnown(j.Host); len(secret) == 0 && h != nil {
		secret = h.secretArgs(j.Procedure, args)
	}
	return schema.HideArgs(args, secret)
}

// fullStatus is status with what listings leave out: what keeps the job from starting, and the value that
// came after it was lost.
func (d *Dispatcher) fullStatus(ctx context.Context, j *store.Job) (harp.JobStatus, error) {
	s, err := d.status(ctx, j)
	switch {
	case err != nil:
	case j.State == harp.StateQueued:
		s.Obstacles, err = d.obstacles(ctx, j)
	case j.Late != nil && j.Late.HasValue:
		s.Late.Value, err = d.store.Value(ctx, j.ID)
	}
	return s, err
}

// obstacles are those of the store, with what is known of the batch that is among them.
func (d *Dispatcher) obstacles(ctx context.Context, j *store.Job) ([]harp.Obstacle, error) {
	all, err := d.store.Obstacles(ctx, j.ID)
	if err != nil {
		return nil, err
	}
	for n := range all {
		o := &all[n]
		if o.Since.After(d.now()) { // of a host that is about to return
			o.Since = time.Time{}
		}
		d.nameReason(o)
		if o.Batch == "" {
			continue
		}
		b, err := d.store.Batch(ctx, o.Batch)
		switch {
		case errors.Is(err, store.ErrDamaged): // the member is whole
		case err != nil:
			return nil, err
		case b.Pause != nil:
			o.By, o.Why, o.Since = b.Pause.By, b.Pause.Reason, b.Pause.Time
		}
	}
	return all, nil
}

// duplicatePossible reports whether an attempt that was lost with its agent's journal,
// which may still run, was followed by another.
func duplicatePossible(attempts []harp.Attempt) bool {
	for i, a := range attempts {
		if a.Outcome == string(harp.StateLost) && a.Reason == harp.LostJournalGone && i < len(attempts)-1 {
			return true
		}
	}
	return false
}

// result is how an ended job ended.
func (d *Dispatcher) result(ctx context.Context, j *store.Job) (harp.Result, error) {
	if !j.HasValue {
		return endOf(j, nil), nil
	}
	value, err := d.store.Value(ctx, j.ID)
	return endOf(j, value), err
}

// endOf is how a job ended, and with what.
func endOf(j *store.Job, value harp.Value) harp.Result {
	r := resultOf(j.State, j.Failure, value)
	r.Procedure, r.SubmitTime, r.StartTime, r.EndTime = j.Procedure, j.SubmitTime, j.StartTime, j.EndTime
	return r
}

// resultOf shares no memory with the failure.
func resultOf(state harp.State, failure harp.Failure, value harp.Value) harp.Result {
	r := harp.Result{State: state, Value: value, Err: failure.Err()}
	if c := failure.ExitCode; c != nil {
		n := int(*c)
		r.ExitCode = &n
	}
	return r
}
