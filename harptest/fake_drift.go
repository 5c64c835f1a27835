package harptest

import (
	"context"

	"github.com/harpcaller/harp"
)

// ListDrift implements harp.DriftService.
func (f fakeService) ListDrift(context.Context, string, string, string) (harp.Page[harp.DriftStatus], error) {
	return harp.Page[harp.DriftStatus]{}, errFake
}

// ForgetDrift implements harp.DriftService.
func (f fakeService) ForgetDrift(context.Context, string, string) (int, error) { return 0, errFake }
