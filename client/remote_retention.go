package client

import (
	"context"
	"errors"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/wire"
)

// RetentionRules implements harp.RetentionService.
func (r *remote) RetentionRules(ctx context.Context) ([]harp.RetentionStatus, error) {
	m, err := requestReply[wire.RetentionRules](ctx, r, wire.TypeRetentionRules, wire.RetentionQuery{}, false)
	p, err := page[harp.RetentionStatus](m.Rules, "", err)
	return p.Items, err
}

// PutRetentionRule implements harp.RetentionService.
func (r *remote) PutRetentionRule(ctx context.Context, id string, rule harp.RetentionRule) error {
	_, err := requestReply[wire.Done](ctx, r, wire.TypeSetRetention, wire.SetRetention{Request: id, Rule: rule}, false)
	return err
}

// DeleteRetentionRule implements harp.RetentionService.
func (r *remote) DeleteRetentionRule(ctx context.Context, id, name string) error {
	_, err := requestReply[wire.Done](ctx, r, wire.TypeDeleteRetention, wire.DeleteRetention{Request: id, Name: name}, false)
	return err
}

// ExplainRetention implements harp.RetentionService.
func (r *remote) ExplainRetention(ctx context.Context, id string) (harp.Kept, error) {
	m, err := requestReply[wire.RetentionRules](ctx, r, wire.TypeRetentionRules, wire.RetentionQuery{Explain: id}, false)
	switch {
	case err != nil:
		return harp.Kept{}, err
	case m.Kept == nil:
		return harp.Kept{}, unreadable(errNotKept)
	}
	return *m.Kept, nil
}

var errNotKept = errors.New("the answer does not say how long it is kept")
