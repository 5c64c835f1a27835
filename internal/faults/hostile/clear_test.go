//go:build linux && !race

package hostile

import (
	"context"
	"errors"
	"iter"
	"strings"
	"testing"

	"github.com/harpcaller/harp"
)

// clearDocuments deletes what liars have put, and ends their batches and the pauses of their queues.
func (s *stage) clearDocuments(t *testing.T) {
	t.Helper()
	c := s.caller
	_, err := c.Schedules().Apply(t.Context(), "liar", nil, harp.ApplyOptions{Prune: true})
	must(t, err)
	clearAll(t, c.Schedules().List, func(v harp.ScheduleStatus) string { return v.Name }, c.Schedules().Delete)
	clearAll(t, c.Notifications().List, func(v harp.NotificationStatus) string { return v.Name }, c.Notifications().Delete)
	clearAll(t, c.Maintenance().List, func(v harp.WindowStatus) string { return v.Name }, c.Maintenance().Delete)
	clearAll(t, c.Groups().List, func(v harp.Group) string { return v.Name }, c.Groups().Delete)
	rules, err := c.Retention().List(t.Context())
	must(t, err)
	for _, r := range rules {
		if strings.HasPrefix(r.Name, "lie") {
			must(t, c.Retention().Delete(t.Context(), r.Name))
		}
	}
	for q, err := range c.Queues().List(t.Context()) {
		must(t, err)
		if q.Paused { // remembered for as long as it is
			must(t, c.Queues().Unpause(t.Context(), q.Name))
		}
	}
	drifts := map[string]bool{}
	for d, err := range c.Hosts().Drift(t.Context(), "", "") {
		must(t, err)
		drifts[d.Name] = true
	}
	for name := range drifts {
		if _, err := c.Hosts().ForgetDrift(t.Context(), name); err != nil && !errors.Is(err, harp.ErrNotFound) {
			must(t, err)
		}
	}
	for b, err := range c.Batches(t.Context(), harp.BatchFilter{States: []harp.BatchState{harp.BatchRunning, harp.BatchPaused}}) {
		must(t, err)
		if _, err := c.Batch(b.ID).Cancel(t.Context()); err != nil && !errors.Is(err, harp.ErrConflict) {
			must(t, err)
		}
	}
}

// clearAll deletes those of liars, the last first, since they may use one another. What others use goes in the next turn.
func clearAll[T any](t *testing.T, list func(context.Context) iter.Seq2[T, error], name func(T) string, remove func(context.Context, string) error) {
	t.Helper()
	for {
		deleted, left := 0, 0
		var why error
		for v, err := range list(t.Context()) {
			must(t, err)
			if !strings.HasPrefix(name(v), "lie") {
				continue
			}
			switch err := remove(t.Context(), name(v)); {
			case err == nil:
				deleted++
			case errors.Is(err, harp.ErrConflict):
				left, why = left+1, err
			default:
				must(t, err)
			}
		}
		if left == 0 {
			return
		}
		if deleted == 0 {
			t.Fatalf("%d documents of liars cannot be deleted, one of them as %v", left, why)
		}
	}
}
