package dispatcher

import (
	"context"
	"errors"
	"time"

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
		if id != job.ID {
			d.untilRead("a step of a chain cannot be read yet", id, func() error { return d.notifyUnbegun(id) })
		}
	}
}

// notifyUnbegun wakes all that wait for a member of a batch if it has ended without having begun, or nobody will know.
func (d *Dispatcher) notifyUnbegun(id string) error {
	if d.watchers.findWatcher(id) == nil {
		return nil
	}
	j, err := d.store.Job(context.WithoutCancel(d.ctx), id)
	switch {
	case isLost(err):
		d.watchers.notifyUnread(id)
	case err != nil:
		return err
	case j.State.Ended():
		d.watchers.notifyEnded(j, nil)
	}
	return nil
}

// isLost reports whether an error says that something is not there to be read, however often that is tried.
func isLost(err error) bool { return isGone(err) || errors.Is(err, store.ErrDamaged) }

// readAgain is the pause before what could not be read is read again.
const readAgain = time.Second

// untilRead reads what follows from a commit, again and again until that can be read: it is about id. Nobody else would wake those that wait
// for it.
func (d *Dispatcher) untilRead(trouble, id string, read func() error) {
	err := read()
	if err == nil || d.ctx.Err() != nil {
		return
	}
	d.repeated.Warn(trouble, trouble, "id", id, "err", err)
	time.AfterFunc(readAgain, func() {
		if !d.beginWork() {
			return
		}
		defer d.work.Done()
		d.untilRead(trouble, id, read)
	})
}
