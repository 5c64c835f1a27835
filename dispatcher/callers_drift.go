package dispatcher

import (
	"context"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/wire"
)

func handleDrift(ctx context.Context, s harp.Service, w wire.DriftQuery) (any, error) {
	rows, cursor, err := listing[harp.DriftStatus]{
		fetch: func(cursor string) (harp.Page[harp.DriftStatus], error) {
			return s.ListDrift(ctx, w.Target, w.Name, cursor)
		},
		mark:   func(d harp.DriftStatus) mark { return mark{Key: d.Host + "\x00" + d.Name} },
		before: byKey,
	}.page(w.Page)
	return wire.Drifts{Drifts: rows, Cursor: cursor}, err
}

func handleForgetDrift(ctx context.Context, s harp.Service, w wire.ForgetDrift) (any, error) {
	if err := harp.CheckID(w.Request); err != nil {
		return nil, err
	}
	if err := harp.CheckDriftName(w.Name); err != nil {
		return nil, err
	}
	n, err := s.ForgetDrift(ctx, w.Request, w.Name)
	return wire.Done{Count: n}, err
}
