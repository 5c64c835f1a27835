package dispatcher

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/failures"
	"github.com/harpcaller/harp/store"
)

// JobRequest implements harp.JobService.
func (s *service) JobRequest(ctx context.Context, id string) (harp.Submission, error) {
	return request(s, ctx, func(ctx context.Context) (harp.Submission, error) {
		job, err := s.d.readJob(ctx, id)
		if errors.Is(err, harp.ErrNotFound) && harp.CheckID(id) == nil {
			if _, noBatch := s.d.readBatch(ctx, id); noBatch == nil {
				return s.d.store.Request(ctx, id)
			}
		}
		if err != nil {
			return harp.Submission{}, err
		}
		sub, err := s.d.jobRequest(ctx, job)
		return cloneSubmission(sub), err
	})
}

// ForceLost implements harp.JobService. Asked again of a job that it has ended, it
// agrees.
func (s *service) ForceLost(ctx context.Context, id, why string) error {
	_, err := request(s, ctx, func(ctx context.Context) (none struct{}, err error) {
		if _, err := s.d.readJob(ctx, id); err != nil {
			return none, err
		}
		changes, err := s.d.applyTransitions(ctx, store.Transition{ID: id, Event: store.Event{
			Kind: store.Lose, At: s.d.now(), Reason: harp.LostForced, Text: why, By: s.who,
		}})
		if err != nil {
			return none, err
		}
		if err := changes[0].Err; !errors.Is(err, store.ErrIllegal) && !errors.Is(err, harp.ErrNotFound) { // not found: its host is not reached
			return none, err
		}
		job, err := s.d.readJob(ctx, id)
		if err == nil && (job.State != harp.StateLost || job.Reason != harp.LostForced) {
			err = conflictOf("job", "job "+id+" is "+string(job.State)+"; only a job that is sent, running, cancelling or unknown can be given up")
		}
		return none, err
	})
	return err
}

// ChangeQueue implements harp.QueueService.
func (s *service) ChangeQueue(ctx context.Context, id string, name harp.Value, c harp.QueueChange) error {
	_, err := request(s, ctx, func(ctx context.Context) (none struct{}, err error) {
		canonical, err := harp.QueueName(name)
		switch {
		case err != nil:
			return none, err
		case canonical == nil:
			return none, &harp.FieldError{Field: "queue", Message: "a name is a map with string keys"}
		}
		op, err := s.operation(id)
		if err != nil {
			return none, err
		}
		if err := s.d.store.ChangeQueue(ctx, canonical, c, op); err != nil {
			return none, err
		}
		s.d.wakeClock() // which starts what may start by it
		return none, nil
	})
	return err
}

// appendEvents writes events of which nothing else is stored, whoever has left meanwhile: what they
// tell of has happened. That they could not be is no reason to stop.
func (d *Dispatcher) appendEvents(events ...harp.Event) {
	if len(events) == 0 {
		return
	}
	for i := range events {
		events[i].Time = d.now()
	}
	if err := d.store.AppendEvents(d.ctx, events...); err != nil && d.ctx.Err() == nil {
		d.log.Error("note events", "err", err)
	}
}

// Prune implements harp.UpkeepService.
func (s *service) Prune(ctx context.Context, endedBefore time.Time) (int, error) {
	return request(s, ctx, func(ctx context.Context) (int, error) {
		if endedBefore.After(s.d.now()) {
			return 0, failures.New("refused", "jobs that will end in the future cannot be pruned").Err()
		}
		return s.d.prune(ctx, store.Retention{EndedBefore: endedBefore, EventsBefore: endedBefore, RulesAt: s.d.retention().RulesAt})
	})
}

// Backup implements harp.UpkeepService.
func (s *service) Backup(ctx context.Context, w io.Writer) error {
	_, err := request(s, ctx, func(ctx context.Context) (none struct{}, err error) {
		return none, s.d.store.Backup(ctx, w)
	})
	return err
}
