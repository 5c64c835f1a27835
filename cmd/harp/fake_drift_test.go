package main

import (
	"context"
	"slices"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/failures"
)

// ListDrift lists the marks of the hosts that are selected.
func (f *fake) ListDrift(ctx context.Context, text, name, cursor string) (harp.Page[harp.DriftStatus], error) {
	hosts, err := f.ListHosts(ctx, text, cursor)
	page := harp.Page[harp.DriftStatus]{Cursor: hosts.Cursor}
	for _, h := range hosts.Items {
		for _, s := range h.Drift {
			if name == "" || s.Name == name {
				page.Items = append(page.Items, s)
			}
		}
	}
	return page, err
}

// ForgetDrift forgets the marks of all hosts.
func (f *fake) ForgetDrift(_ context.Context, _, name string) (n int, err error) {
	for i := range f.hosts {
		h := &f.hosts[i]
		before := len(h.Drift)
		h.Drift = slices.DeleteFunc(h.Drift, func(s harp.DriftStatus) bool { return s.Name == name })
		n += before - len(h.Drift)
	}
	if n == 0 {
		err = failures.NotFound("drift", name)
	}
	return n, err
}
