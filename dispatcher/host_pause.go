package dispatcher

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/wire"
	"github.com/harpcaller/harp/store"
)

// The pause of a host is a document, as its operators' labels are.
const pauseKind = "pause"

// pauseDocument is what is stored of a pause.
type pauseDocument struct {
	harp.HostPause
	Told bool `msgpack:"told,omitempty"` // that it has ended by itself
}

const pausedAtOnce = 500 // hosts, in one commit

// loadPauses reads the pauses of hosts.
func (d *Dispatcher) loadPauses(ctx context.Context) error {
	for cursor := ""; ; {
		page, next, err := d.store.ListDocuments(ctx, pauseKind, cursor, 1000)
		if err != nil {
			return fmt.Errorf("stored pauses of hosts: %w", err)
		}
		for _, doc := range page {
			var p pauseDocument
			if err := decodeDocument(doc, &p); err != nil {
				d.log.Error("pause of a host cannot be read: it is paused until that is ended", "host", doc.Name, "err", err)
				p = pauseDocument{HostPause: harp.HostPause{Reason: "what is stored of the pause cannot be read"}}
			}
			h := d.hosts.get(doc.Name)
			if h.setPause(&p.HostPause); p.Told {
				h.setPauseTold()
			}
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
	h.pause, h.pauseTold = p, false
}

func (h *host) setPauseTold() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.pauseTold = true
}

// untoldPause is the pause, and whether it was told that it has ended by itself.
func (h *host) untoldPause() (p *harp.HostPause, isTold bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.pause, h.pauseTold
}

func (h *host) currentPause() *harp.HostPause {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.pause
}

// shownPauseLocked is the pause unless that has ended by itself, whatever the clock shows since. The caller holds mu.
func (h *host) shownPauseLocked() *harp.HostPause {
	if h.pauseTold {
		return nil
	}
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
	if n, done, err := d.changedBefore(ctx, op, "target", expr); done || err != nil {
		return n, err
	}
	if pause != nil && !pause.Until.IsZero() && !pause.Until.After(op.Time) {
		return 0, &harp.FieldError{Field: "until", Message: "has passed"}
	}
	all, err := d.fleet.selectHosts(ctx, expr)
	if err != nil {
		return 0, d.rememberRefusal(ctx, op, err)
	}
	count := len(all)
	if pause == nil {
		all = slices.DeleteFunc(all, func(h *host) bool { return h.currentPause() == nil })
	}
	if pause != nil { // it pays for its end, too, which is not refused for want of room for the hosts
		if err := d.principals.admitOperation(op.By, len(all)*2*(operationBytes+len(pause.Reason))); err != nil {
			return 0, err
		}
	}
	change, done, of := "paused", 0, len(all)
	if pause == nil {
		change = "unpaused"
	}
	for {
		some := all[:min(pausedAtOnce, len(all))]
		c := store.DocumentChanges{}
		if all = all[len(some):]; len(all) == 0 {
			c.Op, c.Count = op, count
		}
		if err := d.storePauses(ctx, c, some, op, pause); err != nil {
			return 0, inPart(change, done, of, err)
		}
		if done += len(some); len(all) == 0 {
			return count, nil
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
		if _, isTold := h.untoldPause(); pause != nil || !isTold { // else its end was told when it came
			told.Host = h.name
			c.Events = append(c.Events, told)
		}
	}
	if _, err := d.store.ChangeDocuments(ctx, c); err != nil {
		return err
	}
	for _, h := range some {
		h.setPause(pause)
	}
	d.reviewHolds(some...)
	signal(d.windows.changed) // when a pause ends by itself is another
	return nil
}

// writePauseEvents writes events of pauses that have ended by themselves, and returns for how long none will. What is stored of them stays:
// jobs wait for absent hosts anew behind it, also over a restart. Errors: the store's.
func (d *Dispatcher) writePauseEvents(ctx context.Context) (wait time.Duration, err error) {
	d.labelling.Lock()
	defer d.labelling.Unlock()
	now, wait := d.now(), gatesRenewed
	var over []*host
	for from, first := "", true; first || from != ""; first = false {
		var some []*host
		some, from = d.hosts.page(from, matchedAtOnce)
		for _, h := range some {
			switch p, isTold := h.untoldPause(); {
			case isTold || p == nil || p.Until.IsZero():
			case isPaused(p, now):
				wait = min(wait, p.Until.Sub(now))
			default:
				over = append(over, h)
			}
		}
	}
	for some := range slices.Chunk(over, pausedAtOnce) {
		if err := d.noteEndedPauses(ctx, some, now); err != nil {
			return 0, err
		}
	}
	return wait, nil
}

// noteEndedPauses notes in what is stored of some pauses that their ends were told, in the commit of the events. Whoever changes
// pauses calls it.
func (d *Dispatcher) noteEndedPauses(ctx context.Context, some []*host, now time.Time) error {
	var c store.DocumentChanges
	for _, h := range some {
		old, err := d.storedDocument(ctx, pauseKind, h.name)
		if err != nil {
			return err
		}
		p := h.currentPause()
		c.Changes = append(c.Changes, store.DocumentChange{Kind: pauseKind, Name: h.name, Old: old, New: wire.Encode(pauseDocument{*p, true})})
		c.Events = append(c.Events, harp.Event{Type: harp.EventHostUnpaused, Time: now, Host: h.name, Reason: p.Reason})
	}
	if _, err := d.store.ChangeDocuments(ctx, c); err != nil {
		return err
	}
	for _, h := range some {
		h.setPauseTold()
	}
	d.reviewHolds(some...) // the clock may be set back behind that end
	return nil
}

// PauseHosts implements harp.MaintenanceService.
func (s *service) PauseHosts(ctx context.Context, id, expr string, c harp.HostPauseChange) (int, error) {
	return requestChange(s, ctx, func(ctx context.Context) (int, error) {
		if err := c.Check(); err != nil {
			return 0, err
		}
		op, err := s.documentsOperation(id, wire.TypePauseHosts, wire.PauseHosts{Target: expr, HostPauseChange: c})
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
