package dispatcher

import (
	"context"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/store"
)

// notifyEnded wakes all that wait for a job that has ended, and for steps of its chain to which that does not come
// any more.
func (d *Dispatcher) notifyEnded(job *store.Job, value harp.Value) {
	d.watchers.notifyEnded(job, value)
	if job.Chain == nil || !d.watchers.hasMembersOf(job.Batch) {
		return
	}
	for step := 2; step <= job.Chain.Of; step++ {
		id := harp.MemberID(job.Batch, job.Host, step)
		if id == job.ID || d.watchers.findWatcher(id) == nil {
			continue
		}
		j, err := d.store.Job(context.WithoutCancel(d.ctx), id)
		switch {
		case err != nil && d.ctx.Err() == nil:
			d.log.Error("a step of a chain cannot be read", "job", id, "err", err)
		case err == nil && j.State.Ended():
			d.watchers.notifyEnded(j, nil)
		}
	}
}
