package client

import (
	"context"

	"github.com/harpcaller/harp"
)

var _ harp.DriftService = (*fake)(nil)

// ListDrift lists the marks of all hosts; a target is noted.
func (f *fake) ListDrift(ctx context.Context, text, name, cursor string) (harp.Page[harp.DriftStatus], error) {
	if err := f.enter(ctx, "ListDrift"); err != nil {
		return harp.Page[harp.DriftStatus]{}, err
	}
	var found []harp.DriftStatus
	for _, s := range f.drift {
		if (name == "" || s.Name == name) && (text == "" || s.Host == text) {
			found = append(found, s)
		}
	}
	return pageOf(found, cursor, f.pageSize, func(s harp.DriftStatus) string { return s.Host + " " + s.Name })
}

func (f *fake) ForgetDrift(ctx context.Context, _, name string) (int, error) {
	return len(name), f.enter(ctx, "ForgetDrift")
}
