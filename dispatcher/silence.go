package dispatcher

import (
	"context"
	"errors"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/store"
)

const (
	silentAfter   = 3                // heartbeats
	returningTime = 60 * time.Second // for hosts to come back after the dispatcher was opened
)

// now is the wall clock.
func (d *Dispatcher) now() time.Time { return d.clock.now() }

// awaits counts a host as one that is about to return, if it was connected when the
// dispatcher stopped: its absence holds nothing against its jobs until then. No
// host's attempts are given up before, for it may have been the dispatcher that was away.
func (d *Dispatcher) awaits(row store.Host) {
	now := d.now()
	g := store.Gate{Reason: harp.ReasonOffline, LastHeard: row.LastHeard, Awaited: now.Add(returningTime)}
	if row.LastHeard.After(now) { // by a clock that was ahead
		g.LastHeard = now
	}
	if row.Connected {
		g.LastHeard = g.Awaited
		d.hosts.expectReturn(d.hosts.get(row.Name), time.Now().Add(returningTime))
	}
	d.setGate(row.Name, g)
}

// expectActive gives every host that has attempts, or what is left of one, three
// heartbeats of a fleet that has come back, as if it had just been heard.
func (d *Dispatcher) expectActive(ctx context.Context) error {
	jobs, err := d.store.Active(ctx, "")
	if err != nil {
		return err
	}
	returning, err := d.store.Returning(ctx, "")
	if err != nil {
		return err
	}
	beat := d.beat()
	expected := map[string]bool{}
	for _, j := range append(jobs, returning...) {
		if (j.Survivor || store.HoldsSlot(j.State) && j.State != harp.StateUnknown) && !expected[j.Host] {
			expected[j.Host] = true
			d.expectAgent(d.hosts.get(j.Host), silentAfter*beat)
		}
	}
	return nil
}

// expectAgent makes the jobs of a host that is away unknown if it does not come back in
// the time left.
func (d *Dispatcher) expectAgent(h *host, left time.Duration) {
	h.setExpectation(time.AfterFunc(max(left, 0), func() {
		if !d.beginWork() {
			return
		}
		defer d.work.Done()
		if err := d.silence(h); err != nil && d.ctx.Err() == nil {
			d.repeated.Warn("", "that a host is silent cannot be stored yet", "host", h.name, "err", err)
			d.expectAgent(h, time.Second)
		}
	}))
}

// awayRetry is when that a host is away is stored again, after that could not be, as on a full disk.
const awayRetry = time.Minute

// noteAwayLater stores after a time that hosts are away, but for those that have come back, and again until that is done: else nobody
// would be told.
func (d *Dispatcher) noteAwayLater(after time.Duration, hosts ...*host) {
	time.AfterFunc(after, func() {
		if !d.beginWork() {
			return
		}
		defer d.work.Done()
		for _, h := range hosts {
			if err := d.noteAwayNow(h); err != nil && d.ctx.Err() == nil {
				d.noteAwayLater(awayRetry, h)
			}
		}
	})
}

// noteAwayNow stores that a host is away, unless it has come back.
func (d *Dispatcher) noteAwayNow(h *host) error {
	leave, err := h.lockGreeting(d.ctx)
	if err != nil {
		return err
	}
	defer leave()
	if h.currentSession() != nil {
		return nil
	}
	row := h.updateRow(func(row *store.Host) { row.Connected = false })
	row.At = d.now()
	if err := d.store.PutHost(d.ctx, row); !errors.Is(err, harp.ErrNotFound) { // it was removed
		return err
	}
	return nil
}

// silence makes the jobs of a host unknown, unless it has come back. An agent that
// is being greeted is let finish first: it is not silent.
func (d *Dispatcher) silence(h *host) error {
	leave, err := h.lockGreeting(d.ctx)
	if err != nil {
		return err
	}
	defer leave()
	if h.currentSession() != nil {
		return nil
	}
	now := d.now()
	jobs, err := d.store.Silence(d.ctx, h.name, now, now.Add(d.cfg.LostAfter))
	if err != nil {
		return err
	}
	if len(jobs) > 0 {
		d.log.Warn("host is silent: what became of its jobs is unknown", "host", h.name, "jobs", len(jobs))
	}
	d.wakeClock() // also for those that need not wait for its last attempt any more
	return nil
}
