package dispatcher

import (
	"context"
	"errors"
	"slices"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/dispatcher/internal/inventory"
	"github.com/harpcaller/harp/store"
)

// RemoveHost implements harp.HostService.
func (s *service) RemoveHost(ctx context.Context, id, name string) (int, error) {
	return request(s, ctx, func(ctx context.Context) (int, error) {
		op, err := s.operation(id)
		if err != nil {
			return 0, err
		}
		return s.d.removeHost(ctx, name, op)
	})
}

// removeHost ends what has not ended on a host that is away, and forgets it. Its agent, if it comes
// meanwhile, waits until that is done.
func (d *Dispatcher) removeHost(ctx context.Context, name string, op store.Operation) (int, error) {
	h := d.hosts.findKnown(name)
	if h == nil { // it may be asked again
		n, err := d.removeStored(ctx, name, op)
		left := d.hosts.find(name)
		if left != nil && (err == nil || errors.Is(err, harp.ErrNotFound) && left.hasGiven()) { // then it was removed but for that
			err = d.dropGiven(ctx, left)
		}
		return n, err
	}
	unlock, err := h.lockGreeting(ctx)
	if err != nil {
		return 0, err
	}
	defer unlock()
	if s := h.currentSession(); s != nil && s.isClosing() {
		select {
		case <-s.ended:
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		}
	}
	if err := h.checkRemovable(); err != nil {
		op.Refused = err // but for what came of it before
	}
	ctx = context.WithoutCancel(ctx) // it has begun
	n, err := d.removeStored(ctx, name, op)
	if err != nil && !errors.Is(err, harp.ErrNotFound) {
		return 0, err
	}
	if _, gone := d.store.Host(ctx, name); gone == nil { // this was asked before, and it came back since: it stays as it is
		return n, err
	} else if !errors.Is(gone, harp.ErrNotFound) {
		return 0, gone
	}
	if err := d.dropGiven(ctx, h); err != nil { // only now: a host that stays keeps its pause, and the labels by which it is in windows
		return 0, err
	}
	h.forget()
	return n, nil
}

func (d *Dispatcher) removeStored(ctx context.Context, name string, op store.Operation) (int, error) {
	done, err := d.store.RemoveHost(ctx, name, op)
	for _, j := range slices.Concat(done.Ended, done.Left) {
		d.noteDrift(ctx, j)
		d.notifyEnded(j, nil)
	}
	d.sendJobs(done.Claimed)
	d.wakeUnreached(done.Over)
	d.wakeClock() // for what follows for batches
	return done.Count, err
}

// dropGiven takes back what operators have given a host.
func (d *Dispatcher) dropGiven(ctx context.Context, h *host) error {
	return errors.Join(d.dropLabels(ctx, h), d.dropPause(ctx, h))
}

// hasGiven reports whether operators have given the host anything.
func (h *host) hasGiven() bool {
	return len(h.operatorLabels()) > 0 || h.hasLostLabels() || h.currentPause() != nil
}

// dropLabels takes back the labels that operators have given a host.
func (d *Dispatcher) dropLabels(ctx context.Context, h *host) error {
	d.labelling.Lock()
	defer d.labelling.Unlock()
	had := h.operatorLabels()
	if len(had) == 0 && !h.hasLostLabels() {
		return nil
	}
	old, err := d.storedDocument(ctx, labelKind, h.name)
	if err != nil {
		return err
	}
	change := store.DocumentChange{Kind: labelKind, Name: h.name, Old: old}
	if _, err := d.store.ChangeDocuments(ctx, store.DocumentChanges{Changes: []store.DocumentChange{change}}); err != nil {
		return err
	}
	h.setOperatorLabels(nil)
	return nil
}

// dropPause ends the pause of a host.
func (d *Dispatcher) dropPause(ctx context.Context, h *host) error {
	d.labelling.Lock()
	defer d.labelling.Unlock()
	if h.currentPause() == nil {
		return nil
	}
	return d.storePauses(ctx, store.DocumentChanges{}, []*host{h}, store.Operation{Time: d.now()}, nil)
}

// isClosing reports whether the session has ended, though not all of it is settled.
func (s *session) isClosing() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closing
}

// checkRemovable refuses a host that would be back at once. Errors: harp.ErrConflict.
func (h *host) checkRemovable() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	why := ""
	switch {
	case h.session != nil:
		why = "its agent is connected; stop the agent first"
	case h.spec != nil:
		why = "the hosts registry lists it; take it out of the registry first"
	default:
		return nil
	}
	return conflictOf("host", h.name+" cannot be removed: "+why)
}

// forget leaves nothing of what was known of a host that has been removed.
func (h *host) forget() {
	h.setExpectation(nil)
	h.marking.Lock()
	defer h.marking.Unlock()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.connected, h.row, h.offers = false, store.Host{}, &catalogue{}
	h.attributes, h.elapsed, h.dialError, h.drift = inventory.Attributes{}, nil, "", nil
}
