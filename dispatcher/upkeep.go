package dispatcher

import (
	"context"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/store"
)

// upkeepEvery is how often what retention does not keep is deleted, and the goroutines
// go that are kept for attempts and have none.
const upkeepEvery = 10 * time.Minute

// upkeepLoop deletes what is old, from time to time.
func (d *Dispatcher) upkeepLoop() {
	tick := time.NewTicker(upkeepEvery)
	defer tick.Stop()
	for {
		select {
		case <-d.ctx.Done():
			return
		case <-tick.C:
		}
		d.crew.Rest()
		if _, err := d.prune(d.ctx, d.retention()); err != nil && d.ctx.Err() == nil {
			d.log.Error("prune", "err", err)
		}
	}
}

// retention is what is kept at this moment.
func (d *Dispatcher) retention() store.Retention {
	r := store.Retention{MaxBytes: d.cfg.RetainBytes}
	if d.cfg.Retain != harp.NoLimit {
		r.EndedBefore = d.now().Add(-d.cfg.Retain)
		r.EventsBefore = r.EndedBefore
	}
	return r
}

// prune deletes what is not kept and gives its space back. It returns how many jobs
// it deleted.
func (d *Dispatcher) prune(ctx context.Context, keep store.Retention) (jobs int, err error) {
	for more := true; more; {
		did, err := d.store.Prune(ctx, keep, d.now())
		if err != nil {
			return jobs, err
		}
		jobs, more = jobs+did.Jobs, did.More
		if err := ctx.Err(); err != nil {
			return jobs, context.Cause(ctx)
		}
	}
	if jobs == 0 {
		return 0, nil
	}
	d.log.Info("jobs were pruned", "jobs", jobs)
	return jobs, d.store.Compact(ctx)
}
