package harp

import (
	"context"
	"time"
)

// HostPause says why nothing starts on a host. Times are UTC.
type HostPause struct {
	By     Principal `json:"by" msgpack:"by"` // who asked for it
	Reason string    `json:"reason,omitempty" msgpack:"reason,omitempty"`
	Since  time.Time `json:"since" msgpack:"since"`
	Until  time.Time `json:"until,omitzero" msgpack:"until,omitempty"` // zero: until somebody ends it
}

// HostPauseChange pauses hosts, or ends their pauses.
type HostPauseChange struct {
	Unpause bool      `msgpack:"unpause,omitempty"`
	Reason  string    `msgpack:"reason,omitempty"` // of a pause, for people
	Until   time.Time `msgpack:"until,omitempty"`  // of a pause: when it ends by itself; zero: never
}

// Check returns ErrInvalid, naming the field, for a change that cannot be.
func (c HostPauseChange) Check() error {
	if err := checkText("reason", c.Reason, MaxWhy); err != nil {
		return err
	}
	return checkTime("until", c.Until)
}

// Pause keeps everything from starting on the hosts that a target selects, until a time or, if that is zero, until
// Unpause: their jobs wait, queued(window). What runs goes on. reason is for people. It takes the place of a pause before
// it. It returns how many hosts the target selects. More than 500 are paused some at a time: meanwhile, after an error that says
// how many were, and after ErrUnavailable and ErrClosed, some may be and others not. The same again finishes it.
// Errors, when nothing is changed: ErrInvalid (target; reason, longer than
// MaxWhy; until, which has passed), ErrNotFound (as List), ErrDenied, ErrRefused unless it says how many were.
func (h *Hosts) Pause(ctx context.Context, expr, reason string, until time.Time) (int, error) {
	return h.changePause(ctx, expr, HostPauseChange{Reason: reason, Until: until})
}

// Unpause ends the pauses of the hosts that a target selects, and returns how many hosts that are; of one that is not
// paused it changes nothing. Errors: as Pause.
func (h *Hosts) Unpause(ctx context.Context, expr string) (int, error) {
	return h.changePause(ctx, expr, HostPauseChange{Unpause: true})
}

func (h *Hosts) changePause(ctx context.Context, expr string, c HostPauseChange) (int, error) {
	if expr == "" {
		return 0, errNoTarget
	}
	if err := c.Check(); err != nil {
		return 0, err
	}
	return h.service.PauseHosts(ctx, NewID(), expr, c)
}
