package dispatcher

import (
	"context"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/wire"
)

func handleRetentionRules(ctx context.Context, s harp.Service, w wire.RetentionQuery) (any, error) {
	if w.Explain == "" {
		rules, err := s.RetentionRules(ctx)
		return wire.RetentionRules{Rules: wire.NewRows(rules, harp.MaxRetentionRules)}, err
	}
	if err := harp.CheckJobID(w.Explain); err != nil {
		return nil, err
	}
	kept, err := s.ExplainRetention(ctx, w.Explain)
	return wire.RetentionRules{Kept: &kept}, err
}

func handleSetRetention(ctx context.Context, s harp.Service, w wire.SetRetention) (any, error) {
	if err := harp.CheckID(w.Request); err != nil {
		return nil, err
	}
	if err := w.Rule.Check(); err != nil {
		return nil, err
	}
	return wire.Done{}, s.PutRetentionRule(ctx, w.Request, w.Rule)
}

func handleDeleteRetention(ctx context.Context, s harp.Service, w wire.DeleteRetention) (any, error) {
	if err := harp.CheckID(w.Request); err != nil {
		return nil, err
	}
	if w.Name == "" {
		return nil, &harp.FieldError{Field: "name", Message: "must not be empty"}
	}
	return wire.Done{}, s.DeleteRetentionRule(ctx, w.Request, w.Name)
}
