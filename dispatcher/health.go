package dispatcher

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"slices"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/store"
)

// Health says whether the dispatcher can do its work, check by check.
func (d *Dispatcher) Health(ctx context.Context) Health {
	h := Health{Ready: true, Checks: map[string]error{
		"dispatcher":    nil,
		"store":         d.checkStore(ctx),
		"disk":          d.checkDisk(),
		"registry":      d.registry.lastError(),
		"clock":         d.clock.suspicion(),
		"schedules":     d.schedules.problem(d.now()),
		"documents":     d.documents.refusal(),
		"windows":       errors.Join(d.windows.problem(), d.windows.staleProblem(), d.hosts.labelProblem()),
		"notifications": d.notifications.problem(),
		"retention":     d.retentionProblem(ctx),
	}}
	if d.ctx.Err() != nil {
		h.Checks["dispatcher"] = d.closedBy()
	}
	h.Ready = h.Checks["dispatcher"] == nil && h.Checks["store"] == nil && h.Checks["disk"] == nil
	return h
}

func (d *Dispatcher) checkStore(ctx context.Context) error {
	_, _, err := d.store.ListHosts(ctx, "", 1)
	return err
}

func (d *Dispatcher) checkDisk() error {
	if d.store.Space() < store.SpacePlenty {
		return harp.ErrNoSpace
	}
	return nil
}

// HealthHandler returns what answers probes over HTTP with the dispatcher's [Health] as
// JSON: healthz with 200 until the dispatcher can do nothing any more and its program is to
// be started anew, readyz with 200 while it accepts calls; else with 503.
func HealthHandler(d *Dispatcher) (healthz, readyz http.Handler) {
	answer := func(good func(Health) bool) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			h := d.Health(r.Context())
			text, err := json.Marshal(h)
			if err != nil {
				http.Error(w, err.Error(), http.StatusInternalServerError)
				return
			}
			w.Header().Set("Content-Type", "application/json")
			w.Header().Set("Cache-Control", "no-store")
			if !good(h) {
				w.WriteHeader(http.StatusServiceUnavailable)
			}
			_, _ = w.Write(text) // whoever asked may have gone
		})
	}
	return answer(func(h Health) bool { return h.Checks["dispatcher"] == nil }), answer(func(h Health) bool { return h.Ready })
}

// problems are the checks that are not well, by name.
func (h Health) problems() (troubles []string) {
	for _, name := range slices.Sorted(maps.Keys(h.Checks)) {
		if err := h.Checks[name]; err != nil {
			troubles = append(troubles, name+": "+err.Error())
		}
	}
	return troubles
}

// Health is a set of named checks.
type Health struct {
	Ready  bool             // calls are accepted
	Checks map[string]error // dispatcher, store, disk, registry, clock, schedules, windows, notifications, retention, documents; nil: well
}

type healthJSON struct {
	Ready  bool                     `json:"ready"`
	Checks map[string]*harp.Failure `json:"checks"`
}

// MarshalJSON writes what fails as a [harp.Failure], and null for what is well.
func (h Health) MarshalJSON() ([]byte, error) {
	written := healthJSON{Ready: h.Ready, Checks: map[string]*harp.Failure{}}
	for name, err := range h.Checks {
		written.Checks[name] = nil
		if err != nil {
			failure := harp.FailureOf(err)
			written.Checks[name] = &failure
		}
	}
	return json.Marshal(written)
}

// UnmarshalJSON reads what MarshalJSON writes. Errors: those of package json.
func (h *Health) UnmarshalJSON(text []byte) error {
	var read healthJSON
	if err := json.Unmarshal(text, &read); err != nil {
		return err
	}
	*h = Health{Ready: read.Ready, Checks: map[string]error{}}
	for name, failure := range read.Checks {
		h.Checks[name] = nil
		if failure != nil {
			h.Checks[name] = failure.Err()
		}
	}
	return nil
}
