package client

import (
	"context"

	"github.com/harpcaller/harp"
)

var _ harp.RetentionService = (*fake)(nil)

// fakeRetention are the rules of a fake, and what it says of how long something is kept.
type fakeRetention struct {
	rules   []harp.RetentionStatus
	deleted []string
	kept    harp.Kept
}

func (f *fake) RetentionRules(ctx context.Context) ([]harp.RetentionStatus, error) {
	return f.retention.rules, f.enter(ctx, "RetentionRules")
}

func (f *fake) PutRetentionRule(ctx context.Context, _ string, r harp.RetentionRule) error {
	if err := f.enter(ctx, "PutRetentionRule"); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.retention.rules = append(f.retention.rules, harp.RetentionStatus{RetentionRule: r, ManagedBy: "ops", By: harp.Principal{Kind: "caller", Name: "ada"}, Changed: at(1), Bytes: 7})
	return nil
}

func (f *fake) DeleteRetentionRule(ctx context.Context, _, name string) error {
	if err := f.enter(ctx, "DeleteRetentionRule"); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.retention.deleted = append(f.retention.deleted, name)
	return nil
}

func (f *fake) ExplainRetention(ctx context.Context, id string) (harp.Kept, error) {
	k := f.retention.kept
	k.ID = id
	return k, f.enter(ctx, "ExplainRetention")
}
