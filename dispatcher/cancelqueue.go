package dispatcher

import (
	"slices"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/store"
)

// cancelActive asks jobs of a cancelled queue to stop. Their requests are stored already,
// by the queue's mark: their agents are told in any case, and where the rows cannot be
// written the mark goes on saying it.
func (d *Dispatcher) cancelActive(jobs []*store.Job, by harp.Principal) {
	for chunk := range slices.Chunk(jobs, 500) {
		ts := make([]store.Transition, len(chunk))
		for i, j := range chunk {
			ts[i] = store.Transition{ID: j.ID, Event: store.Event{Kind: store.CancelReq, At: d.now(), By: by}}
		}
		if _, err := d.applyTransitions(d.ctx, ts...); err != nil && d.ctx.Err() == nil {
			d.log.Error("note that jobs of a cancelled queue are to stop", "err", err)
		}
		for _, j := range chunk {
			d.sendCancel(j, by, false)
		}
	}
}

// cancelPause is how long is waited before what could not be read is read again.
const cancelPause = time.Second

// cancelRest asks those jobs of a cancelled queue to stop that could not be read at once.
func (d *Dispatcher) cancelRest(name harp.Value, op store.Operation) {
	for more := true; more; {
		select {
		case <-time.After(cancelPause):
		case <-d.ctx.Done():
			return // whoever opens the store tells the agents when they come
		}
		done, err := d.store.CancelQueue(d.ctx, name, op)
		if err != nil {
			if d.ctx.Err() == nil {
				d.repeated.Warn("", "what is left of a cancelled queue cannot be asked to stop yet", "queue", name.String(), "err", err)
			}
			continue
		}
		d.cancelActive(done.Active, op.By)
		more = done.More
	}
}
