package dispatcher

import (
	"time"

	"github.com/harpcaller/harp/store"
)

// wakeClock makes the clock look again at what is due next.
func (d *Dispatcher) wakeClock() {
	select {
	case d.kick <- struct{}{}:
	default:
	}
}

// setGate says whether jobs may start on a host. What is due by that, such as the next host of a
// batch, is done by the clock.
func (d *Dispatcher) setGate(host string, g store.Gate) {
	d.store.SetGate(host, g)
	d.wakeClock()
}

// clockSet is told by how much the wall clock was set.
func (d *Dispatcher) clockSet(by time.Duration) {
	d.log.Warn("the clock was set: what lasts a time is not measured by it", "by", by)
	d.store.ClockSet(by)
	d.schedules.noteClock(d.cfg.Now(), by)
	signal(d.windows.stale)
	d.wakeClock()
}

// longestNap bounds how long the clock trusts the time that is left: the wall clock
// may be set.
const longestNap = 10 * time.Second

// clockLoop does what only time makes due: jobs whose time has come or passed, and
// the rows of cancelled queues.
func (d *Dispatcher) clockLoop() {
	timer := time.NewTimer(longestNap)
	defer timer.Stop()
	for {
		switch left, err := d.advance(); {
		case err != nil:
			if d.ctx.Err() == nil {
				d.repeated.Warn("", "what is due cannot be done yet", "err", err)
			}
			timer.Reset(time.Second)
		case left == 0:
			timer.Stop()
		default:
			timer.Reset(min(left, longestNap))
		}
		select {
		case <-d.ctx.Done():
			return
		case <-d.kick:
		case <-timer.C:
		}
	}
}

// advance does what is due now, if anything is, and returns how long it is until something will be; 0 if nothing will.
func (d *Dispatcher) advance() (time.Duration, error) {
	for {
		now := d.now() // first: that may move what is due
		switch due := d.store.NextDue(); {
		case !d.toldTime: // what is due may be measured by a clock that was ahead
		case due.IsZero():
			return 0, nil
		case due.After(now):
			return due.Sub(now), nil
		}
		did, err := d.advanceAndMark(now)
		if err != nil {
			return 0, err
		}
		d.toldTime = true
		for _, j := range did.Ended {
			d.notifyEnded(j, nil)
		}
		for _, j := range did.Asked {
			d.sendCancel(j, j.Cancel.By, j.Cancel.Now)
		}
		for _, id := range did.Batches {
			d.watchers.notifyChanged(id)
		}
		d.sendJobs(did.Claimed)
		d.wakeUnreached(did.Over)
	}
}

// advanceAndMark does what is due in the store, and reads what the checks that this ends have marked their hosts with.
func (d *Dispatcher) advanceAndMark(now time.Time) (store.Advanced, error) {
	d.marking.RLock()
	defer d.marking.RUnlock()
	did, err := d.store.Advance(d.ctx, now)
	for _, j := range did.Ended {
		d.noteDrift(d.ctx, j)
	}
	return did, err
}
