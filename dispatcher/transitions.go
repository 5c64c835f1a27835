package dispatcher

import (
	"context"
	"errors"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/store"
)

// applyTransitions moves jobs through their lives and does what the changes ask for: it wakes
// the requests that wait, sends cancels to agents and calls of what may start now.
func (d *Dispatcher) applyTransitions(ctx context.Context, ts ...store.Transition) ([]store.Change, error) {
	changes, err := d.applyAndMark(ctx, ts...)
	for i := range changes { // also with an error: some may be stored
		c := &changes[i]
		if c.Err != nil {
			continue
		}
		switch {
		case c.Effect.Ends:
			d.notifyEnded(c.Job, ts[i].Event.Value)
		case c.Effect.Tell && c.Job.Cancel != nil:
			d.sendCancel(c.Job, c.Job.Cancel.By, c.Job.Cancel.Now)
		case c.Job.State == harp.StateQueued:
			d.wakeClock()
		}
		d.sendJobs(c.Claimed)
		for _, j := range c.Left {
			d.notifyEnded(j, nil)
		}
		if c.Job.Batch != "" { // other hosts may have been reached, and their members wait for a time, or were left out
			d.watchers.notifyChanged(c.Job.Batch)
			d.wakeClock()
		}
		d.wakeUnreached(c.Over)
	}
	return changes, err
}

// applyAndMark applies transitions, and reads what the checks that they end have marked their hosts with.
func (d *Dispatcher) applyAndMark(ctx context.Context, ts ...store.Transition) ([]store.Change, error) {
	d.marking.RLock()
	defer d.marking.RUnlock()
	changes, err := d.store.Apply(ctx, ts...)
	for _, c := range changes {
		if c.Err == nil && (c.Effect.Ends || c.Effect.Late) {
			d.noteDrift(ctx, c.Job)
		}
	}
	return changes, err
}

// claimJobs starts what may start on a host.
func (d *Dispatcher) claimJobs(ctx context.Context, host string) error {
	const chunk = 256
	for {
		jobs, err := d.store.Claim(ctx, []string{host}, chunk, d.now())
		d.sendJobs(jobs)
		if err != nil || len(jobs) < chunk {
			return err
		}
	}
}

// claimJobs starts what waits for the host, whose agent takes calls, also what it was too
// busy for before. What has no space in the store starts when there is.
func (s *session) claimJobs(ctx context.Context) error {
	if err := s.d.store.Wake(ctx, s.host.name, s.d.now()); err != nil {
		return err
	}
	err := s.d.claimJobs(ctx, s.host.name)
	if !errors.Is(err, harp.ErrNoSpace) {
		return err
	}
	if s.claimPending.CompareAndSwap(false, true) {
		s.attempts.Go(s.retryClaim)
	}
	return nil
}

func (s *session) retryClaim() {
	ctx := s.d.ctx
	err := s.retryStore(ctx, func() error {
		s.claimPending.Store(false) // who finds no space from here on is not sure to be heard by this
		err := s.d.claimJobs(ctx, s.host.name)
		if errors.Is(err, harp.ErrNoSpace) && !s.claimPending.CompareAndSwap(false, true) {
			return nil // another one is at it
		}
		return err
	})
	if err != nil {
		s.tr.Close(err)
	}
}
