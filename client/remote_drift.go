package client

import (
	"context"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/wire"
)

// ListDrift implements harp.DriftService.
func (r *remote) ListDrift(ctx context.Context, text, name, cursor string) (harp.Page[harp.DriftStatus], error) {
	if err := checkTarget(wire.TypeDrift, text, len(name)); err != nil {
		return harp.Page[harp.DriftStatus]{}, err
	}
	q := wire.DriftQuery{Target: text, Name: name, Page: wire.Page{Cursor: cursor}}
	m, err := requestReply[wire.Drifts](ctx, r, wire.TypeDrift, q, false)
	return pageAfter[harp.DriftStatus](cursor, m.Drifts, m.Cursor, err)
}

// ForgetDrift implements harp.DriftService.
func (r *remote) ForgetDrift(ctx context.Context, id, name string) (int, error) {
	m, err := requestReply[wire.Done](ctx, r, wire.TypeForgetDrift, wire.ForgetDrift{Request: id, Name: name}, false)
	return m.Count, err
}
