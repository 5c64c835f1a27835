package client

import (
	"errors"
	"testing"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/wire"
)

// TestDirectEndForNoReason: an END that says that the call was stopped and not why is no
// answer: what became of it is not known.
func TestDirectEndForNoReason(t *testing.T) {
	scripts := map[string]script{"p": func(r *run) {
		r.send(wire.TypeEnd, true, wire.End{Stopped: &wire.Stopping{Since: 1}})
	}}
	directInMemory(t, scripts, func(t *testing.T, _ *agentFront, a *DirectHost) {
		if _, err := mustCall(t)(a.Call(t.Context(), "p", nil)).Get(); !errors.Is(err, harp.ErrLost) {
			t.Errorf("Get returns %v", err)
		}
	})
}
