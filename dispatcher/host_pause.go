package dispatcher

import (
	"context"
	"fmt"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/wire"
	"github.com/harpcaller/harp/store"
)

// The pause of a host is a document, as its operators' labels are.
const pauseKind = "pause"

// loadPauses reads the pauses of hosts.
func (d *Dispatcher) loadPauses(ctx context.Context) error {
	for cursor := ""; ; {
		page, next, err := d.store.ListDocuments(ctx, pauseKind, cursor, 1000)
		if err != nil {
			return fmt.Errorf("stored pauses of hosts: %w", err)
		}
		for _, doc := range page {
			var p harp.HostPause
			if err := decodeDocument(doc, &p); err != nil {
				d.log.Error("pause of a host cannot be read: it is paused until that is ended", "host", doc.Name, "err", err)
				p = harp.HostPause{Reason: "what is stored of the pause cannot be read"}
			}
			d.hosts.get(doc.Name).setPause(&p)
		}
		if cursor = next; cursor == "" {
			return nil
		}
	}
}

// setPause says why nothing starts on the host; nil: it is not paused.
func (h *host) setPause(p *harp.HostPause) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.pause = p
}

func (h *host) currentPause() *harp.HostPause {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.pause
}

// isPaused reports whether a pause, nil if there is none, is not over. What is stored of it stays until somebody ends it.
func isPaused(p *harp.HostPause, now time.Time) bool {
	return p != nil && (p.Until.IsZero() || now.Before(p.Until))
}

// pauseHosts pauses the hosts that a target selects, or ends their pauses, once, and returns how many hosts these are. They are
// stored some at a time, and have their gates before it returns.
func (d *Dispatcher) pauseHosts(ctx context.Context, op store.Operation, expr string, pause *harp.HostPause) (int, error) {
	d.labelling.Lock()
	defer d.labelling.Unlock()
	if n, done, err := d.store.DocumentsChanged(ctx, op); done || err != nil {
		return n, err
	}
	if pause != nil && !pause.Until.IsZero() && !pause.Until.After(op.Time) {
		return 0, &harp.FieldError{Field: "until", Message: "has passed"}
	}
	count := 0
	var all []*host
	err := d.fleet.selectEach(ctx, expr, func(some []*host) error {
		for _, h := range some {
			if count++; pause != nil || h.currentPause() != nil {
				all = append(all, h)
			}
		}
		return nil
	})
	if err != nil {
		return 0, err
	}
	d.principals.countBytes(op.By, len(all)*operationBytes)
	const most = 500
	for {
		some := all[:min(most, len(all))]
		c := store.DocumentChanges{}
		if all = all[len(some):]; len(all) == 0 {
			c.Op, c.Count = op, count
		}
		if err := d.storePauses(ctx, c, some, op, pause); err != nil || len(all) == 0 {
			return count, err
		}
		ctx = context.WithoutCancel(ctx) // it has begun
	}
}

// storePauses stores the pause of some hosts, which have it then.
func (d *Dispatcher) storePauses(ctx context.Context, c store.DocumentChanges, some []*host, op store.Operation, pause *harp.HostPause) error {
	told := harp.Event{Type: harp.EventHostUnpaused, Time: op.Time, By: op.By}
	var content []byte
	if pause != nil {
		told.Type, told.Reason, told.Until = harp.EventHostPaused, pause.Reason, pause.Until
		content = wire.Encode(*pause)
	}
	for _, h := range some {
		old, err := d.storedDocument(ctx, pauseKind, h.name)
		if err != nil {
			return err
		}
		c.Changes = append(c.Changes, store.DocumentChange{Kind: pauseKind, Name: h.name, Old: old, New: content})
		told.Host = h.name
		c.Events = append(c.Events, told)
	}
	if _, err := d.store.ChangeDocuments(ctx, c); err != nil {
		return err
	}
	for _, h := range some {
		h.setPause(pause)
	}
	d.reviewHolds(some...)
	return nil
}

// PauseHosts implements harp.MaintenanceService.
func (s *service) PauseHosts(ctx context.Context, id, expr string, c harp.HostPauseChange) (int, error) {
	return request(s, ctx, func(ctx context.Context) (int, error) {
		if err := c.Check(); err != nil {
			return 0, err
		}
		op, err := s.documentsOperation(id, wire.PauseHosts{Target: expr, HostPauseChange: c})
		if err != nil {
			return 0, err
		}
		if c.Unpause {
			return s.d.pauseHosts(ctx, op, expr, nil)
		}
		pause := &harp.HostPause{By: s.who, Reason: c.Reason, Since: op.Time.UTC(), Until: c.Until.UTC()}
		if c.Until.IsZero() {
			pause.Until = c.Until
		}
		return s.d.pauseHosts(ctx, op, expr, pause)
	})
}
