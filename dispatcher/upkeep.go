package dispatcher

import (
	"bytes"
	"context"
	"errors"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/wire"
	"github.com/harpcaller/harp/store"
)

// upkeepEvery is how often what retention does not keep is deleted, and the goroutines
// go that are kept for attempts and have none.
const upkeepEvery = 10 * time.Minute

// upkeepLoop deletes what is old, jobs, events and windows that are over, from time to time.
func (d *Dispatcher) upkeepLoop() {
	tick := time.NewTicker(upkeepEvery)
	defer tick.Stop()
	isStored := true // of the clock
	for {
		select {
		case <-d.ctx.Done():
			return
		case <-d.clock.judged:
			isStored = d.storeClock(d.ctx)
			continue
		case <-tick.C:
		}
		if !isStored {
			isStored = d.storeClock(d.ctx)
		}
		d.workers.ReleaseIdle()
		keep := d.retention()
		d.pruneNotifications(d.ctx, keep.EventsBefore)
		if _, err := d.prune(d.ctx, keep); err != nil && d.ctx.Err() == nil {
			d.log.Error("prune", "err", err)
		}
		if err := d.deleteOldWindows(d.ctx, keep.EndedBefore); err != nil && d.ctx.Err() == nil {
			d.log.Error("windows that are over cannot be deleted", "err", err)
		}
	}
}

// clockKind is the kind of the document that says that the clock is not right; there is one.
const clockKind = "clock"

// storeClock stores whether the clock is right. It reports whether that is done.
func (d *Dispatcher) storeClock(ctx context.Context) bool {
	old, err := d.storedDocument(ctx, clockKind, clockKind)
	if err == nil {
		change := store.DocumentChange{Kind: clockKind, Name: clockKind, Old: old}
		if doc := d.clock.document(); !doc.Since.IsZero() {
			change.New = wire.Encode(doc)
		}
		if !bytes.Equal(change.Old, change.New) {
			_, err = d.store.ChangeDocuments(ctx, store.DocumentChanges{Changes: []store.DocumentChange{change}})
		}
	}
	if err != nil && ctx.Err() == nil {
		d.log.Error("a restart will take the clock for right: that it was set cannot be stored yet", "err", err)
	}
	return err == nil
}

// loadClock reads whether the clock was right when a dispatcher ran last. Where that cannot be read it was not: else nothing is stored.
func (d *Dispatcher) loadClock(ctx context.Context) error {
	content, err := d.store.Document(ctx, clockKind, clockKind)
	var doc clockDocument
	if err == nil {
		err = wire.Decode(content, &doc)
	} else if errors.Is(err, harp.ErrNotFound) {
		return nil
	} else if !errors.Is(err, store.ErrDamaged) {
		return err
	}
	if err != nil {
		d.log.Error("whether the clock was set cannot be read: nothing is deleted for its age for a day", "err", err)
		d.clock.doubt()
		return nil
	}
	d.clock.resumeFrom(doc)
	return nil
}

// retention is what is kept at this moment.
func (d *Dispatcher) retention() store.Retention {
	r := store.Retention{MaxBytes: d.cfg.RetainBytes}
	now := d.now() // first: it is this reading that is judged
	if err := d.clock.suspicion(); err != nil {
		d.log.Warn("what is old is kept", "why", err)
		return r
	}
	r.RulesAt = now
	if d.cfg.Retain != harp.NoLimit {
		r.EndedBefore = now.Add(-d.cfg.Retain)
		r.EventsBefore = r.EndedBefore
	}
	return r
}

// prune deletes what is not kept, until ctx ends, and gives its space back, which goes on
// when ctx ends. It returns how many jobs it deleted.
func (d *Dispatcher) prune(ctx context.Context, keep store.Retention) (jobs int, err error) {
	events := 0
	for more := true; more && err == nil; {
		var did store.Pruned
		did, err = d.store.Prune(ctx, keep, d.now())
		jobs, events, more = jobs+did.Jobs, events+did.Events, did.More
		if err == nil && ctx.Err() != nil {
			err = context.Cause(ctx)
		}
	}
	if jobs == 0 && events == 0 {
		return 0, err
	}
	d.log.Info("jobs and events were pruned", "jobs", jobs, "events", events)
	if also := d.compact(ctx); err == nil {
		err = also
	}
	return jobs, err
}

// compact gives the space of what was deleted back. ctx bounds only the wait for it.
func (d *Dispatcher) compact(ctx context.Context) error {
	done := make(chan error, 1)
	if !d.spawn(func() { done <- d.store.Compact(d.ctx) }) {
		return harp.ErrClosed
	}
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
