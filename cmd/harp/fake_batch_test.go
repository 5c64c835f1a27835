package main

import (
	"context"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/failures"
)

// A fake has no batches.

func (f *fake) BatchStatus(_ context.Context, id string, _ bool) (harp.BatchStatus, error) {
	return harp.BatchStatus{}, failures.NotFound("batch", id)
}

func (f *fake) ListBatches(context.Context, harp.BatchFilter, string) (harp.Page[harp.BatchStatus], error) {
	return harp.Page[harp.BatchStatus]{}, nil
}

func (f *fake) BatchLog(_ context.Context, id string, _ harp.BatchQuery) (harp.BatchPage, error) {
	return harp.BatchPage{}, failures.NotFound("batch", id)
}

func (f *fake) ChangeBatch(_ context.Context, _, id string, _ harp.BatchChange) (int, error) {
	return 0, failures.NotFound("batch", id)
}
