package dispatcher

import (
	"context"
	"errors"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/store"
)

// apply moves jobs through their lives and does what the changes ask for: wakes
// those who wait, tells agents, sends what may start now.
func (d *Dispatcher) apply(ctx context.Context, ts ...store.Transition) ([]store.Change, error) {
	changes, err := d.store.Apply(ctx, ts...)
	if err != nil {
		return nil, err
	}
	for i := range changes {
		c := &changes[i]
		if c.Err != nil {
			continue
		}
		switch {
		case c.Effect.Ends:
			d.tails.ended(c.Job, ts[i].Event.Value)
		case c.Effect.Tell && c.Job.Cancel != nil:
			d.tellCancel(c.Job, c.Job.Cancel.By, c.Job.Cancel.Now)
		case c.Job.State == harp.StateQueued:
			d.wakeClock()
		}
		d.sendAll(c.Claimed)
	}
	return changes, nil
}

// claim starts what may start on a host.
func (d *Dispatcher) claim(ctx context.Context, host string) error {
	const chunk = 256
	for {
		jobs, err := d.store.Claim(ctx, []string{host}, chunk, d.now())
		d.sendAll(jobs)
		if err != nil || len(jobs) < chunk {
			return err
		}
	}
}

// claim starts what waits for the host, whose agent takes calls, also what it was too
// busy for before. What has no space in the store starts when there is.
func (s *session) claim(ctx context.Context) error {
	if err := s.d.store.Wake(ctx, s.host.name, s.d.now()); err != nil {
		return err
	}
	err := s.d.claim(ctx, s.host.name)
	if !errors.Is(err, harp.ErrNoSpace) {
		return err
	}
	if s.owing.CompareAndSwap(false, true) {
		s.attempts.Go(s.claimOwing)
	}
	return nil
}

func (s *session) claimOwing() {
	ctx := s.d.ctx
	err := s.stored(ctx, func() error {
		s.owing.Store(false) // who finds no space from here on is not sure to be heard by this
		err := s.d.claim(ctx, s.host.name)
		if errors.Is(err, harp.ErrNoSpace) && !s.owing.CompareAndSwap(false, true) {
			return nil // another one is at it
		}
		return err
	})
	if err != nil {
		s.tr.Close(err)
	}
}

// wakeClock makes the clock look again at what is due next.
func (d *Dispatcher) wakeClock() {
	select {
	case d.kick <- struct{}{}:
	default:
	}
}

// clockSet is told by how much the wall clock was set.
func (d *Dispatcher) clockSet(by time.Duration) {
	d.log.Warn("the clock was set: what lasts a time is not measured by it", "by", by)
	d.store.ClockSet(by)
	d.wakeClock()
}

// longestNap bounds how long the clock trusts the time that is left: the wall clock
// may be set.
const longestNap = 10 * time.Second

// clockLoop does what only time makes due: jobs whose time has come or passed, and
// the rows of cancelled queues.
func (d *Dispatcher) clockLoop() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-d.ctx.Done():
			return
		case <-d.kick:
		case <-timer.C:
		}
		if err := d.advance(); err != nil {
			if d.ctx.Err() == nil {
				d.log.Error("advance", "err", err)
			}
			timer.Reset(time.Second)
			continue
		}
		now := d.now() // first: that may move what is due
		if due := d.store.NextDue(); due.IsZero() {
			timer.Stop()
		} else {
			timer.Reset(min(max(0, due.Sub(now)), longestNap))
		}
	}
}

// advance does what is due now, if anything is.
func (d *Dispatcher) advance() error {
	for {
		now := d.now() // first: that may move what is due
		due := d.store.NextDue()
		if due.IsZero() || due.After(now) {
			return nil
		}
		did, err := d.store.Advance(d.ctx, now)
		if err != nil {
			return err
		}
		for _, j := range did.Ended {
			d.tails.ended(j, nil)
		}
		d.sendAll(did.Claimed)
		if !did.More {
			return nil
		}
	}
}
