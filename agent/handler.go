package agent

import (
	"context"

	"github.com/harpcaller/harp"
)

// Handler runs a procedure: it gets its arguments, which fit, and returns its result.
// [FromContext] tells it of which call.
type Handler func(ctx context.Context, args harp.Value) (any, error)

// handle is what a call of a procedure runs: next, behind Config.Use.
func (a *Agent) handle(next Handler) Handler {
	for i := len(a.cfg.Use) - 1; i >= 0; i-- {
		next = a.cfg.Use[i](next)
	}
	return next
}
