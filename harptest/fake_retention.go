package harptest

import (
	"context"

	"github.com/harpcaller/harp"
)

// RetentionRules implements harp.RetentionService.
func (f fakeService) RetentionRules(context.Context) ([]harp.RetentionStatus, error) {
	return nil, errFake
}

// PutRetentionRule implements harp.RetentionService.
func (f fakeService) PutRetentionRule(context.Context, string, harp.RetentionRule) error {
	return errFake
}

// DeleteRetentionRule implements harp.RetentionService.
func (f fakeService) DeleteRetentionRule(context.Context, string, string) error { return errFake }

// ExplainRetention implements harp.RetentionService.
func (f fakeService) ExplainRetention(context.Context, string) (harp.Kept, error) {
	return harp.Kept{}, errFake
}
