package dispatcher

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/store"
)

// The marks of hosts are the store's, which writes them in the commits in which checks end. Here they are in memory for targets.

// loadDrift reads the marks of all hosts, before anybody looks at them.
func (d *Dispatcher) loadDrift(ctx context.Context) error {
	for cursor := ""; ; {
		page, next, err := d.store.ListDrift(ctx, cursor, 1000)
		if err != nil {
			return fmt.Errorf("stored marks of hosts: %w", err)
		}
		for _, s := range page {
			d.hosts.get(s.Host).loadMark(s)
		}
		if cursor = next; cursor == "" {
			return nil
		}
	}
}

// loadMark is setDrift while nobody looks at the marks: a copy of them for each would take long where there are many.
func (h *host) loadMark(s harp.DriftStatus) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.drift == nil {
		h.drift = map[string]harp.DriftStatus{}
	}
	h.drift[s.Name] = s
}

// setDrift sets the host's mark under a name; the zero mark: it has none.
func (h *host) setDrift(name string, s harp.DriftStatus) {
	h.mu.Lock()
	defer h.mu.Unlock()
	marks := maps.Clone(h.drift) // targets look at the old ones
	if marks == nil {
		marks = map[string]harp.DriftStatus{}
	}
	if marks[name] = s; s.Mark == "" {
		delete(marks, name)
	}
	h.drift = marks
}

// marks are the host's, by name; with a name the one under it.
func (h *host) marks(name string) (marks []harp.DriftStatus) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return marksOf(h.drift, name)
}

func marksOf(drift map[string]harp.DriftStatus, name string) (marks []harp.DriftStatus) {
	for of, s := range drift {
		if name == "" || of == name {
			marks = append(marks, s)
		}
	}
	slices.SortFunc(marks, func(a, b harp.DriftStatus) int { return strings.Compare(a.Name, b.Name) })
	return marks
}

// awaitMarks returns when the marks of all checks that have ended are in memory.
func (d *Dispatcher) awaitMarks() {
	d.marking.Lock() // who ends checks holds it until then
	defer d.marking.Unlock()
}

// noteDrift reads what a check that is over has marked its host with. Those who wait for the check are told afterwards, so that
// the targets of what they call next see it.
func (d *Dispatcher) noteDrift(ctx context.Context, j *store.Job) {
	if j.Drift == "" || j.Started == harp.DidNotRun && j.Late == nil {
		return
	}
	ctx = context.WithoutCancel(ctx)
	d.untilRead("the mark of a host cannot be read yet", j.ID, func() error {
		err := d.readDrift(ctx, d.hosts.get(j.Host), j.Drift)
		if errors.Is(err, store.ErrDamaged) {
			d.log.Error("mark of a host cannot be read", "host", j.Host, "drift", j.Drift, "err", err)
			return nil
		}
		return err
	})
}

// readDrift reads the host's mark under a name.
func (d *Dispatcher) readDrift(ctx context.Context, h *host, name string) error {
	h.marking.Lock()
	defer h.marking.Unlock()
	s, err := d.store.Drift(ctx, h.name, name)
	if err != nil && !errors.Is(err, harp.ErrNotFound) {
		return err
	}
	h.setDrift(name, s)
	return nil
}

// checkDrift finds hosts unfit for a check whose procedure has no dry run of its own there.
func (c *candidates) checkDrift() {
	for i := range c.classes {
		one := &c.classes[i]
		if one.said && one.unfit == nil && !slices.Contains(one.proc.Traits, harp.TraitDryRun) {
			one.unfit = &harp.FieldError{Field: "drift", Message: "the procedure " + one.proc.Name + " has no dry run"}
		}
	}
}

// ListDrift implements harp.DriftService.
func (s *service) ListDrift(ctx context.Context, expr, name, cursor string) (harp.Page[harp.DriftStatus], error) {
	type page = harp.Page[harp.DriftStatus]
	return request(s, ctx, func(ctx context.Context) (page, error) {
		if err := harp.CheckDriftName(name); name != "" && err != nil {
			return page{}, err
		}
		var hosts []*host
		var out page
		var err error
		if expr == "" {
			hosts, out.Cursor = s.d.hosts.page(cursor, pageSize)
		} else if hosts, out.Cursor, err = s.selectPage(ctx, expr, cursor, pageSize); err != nil {
			return page{}, err
		}
		for i, h := range hosts {
			if out.Items = append(out.Items, h.marks(name)...); len(out.Items) >= pageSize && i+1 < len(hosts) {
				out.Cursor = h.name
				break
			}
		}
		return out, nil
	})
}

// ForgetDrift implements harp.DriftService.
func (s *service) ForgetDrift(ctx context.Context, id, name string) (int, error) {
	return request(s, ctx, func(ctx context.Context) (int, error) {
		if err := harp.CheckDriftName(name); err != nil {
			return 0, err
		}
		op, err := s.operation(id)
		if err != nil {
			return 0, err
		}
		n, err := s.d.store.ForgetDrift(ctx, name, op)
		ctx = context.WithoutCancel(ctx)
		s.d.untilRead("marks that may be forgotten cannot be read yet", name, func() error { return s.d.rereadDrift(ctx, name) }) // also with an error: some may be
		return n, err
	})
}

// isMarked reports whether the host has a mark under a name in memory, when what is being read of the store is there.
func (h *host) isMarked(name string) bool {
	h.marking.Lock()
	defer h.marking.Unlock()
	return len(h.marks(name)) > 0
}

// rereadDrift reads the marks under a name that hosts have in memory.
func (d *Dispatcher) rereadDrift(ctx context.Context, name string) error {
	for from, first := "", true; first || from != ""; first = false {
		var some []*host
		some, from = d.hosts.page(from, pageSize)
		for _, h := range some {
			if !h.isMarked(name) {
				continue
			}
			if err := d.readDrift(ctx, h, name); err != nil {
				return err
			}
		}
	}
	return nil
}
