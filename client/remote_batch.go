package client

import (
	"context"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/wire"
)

// BatchStatus implements harp.BatchService.
func (r *remote) BatchStatus(ctx context.Context, id string, wait bool) (harp.BatchStatus, error) {
	return requestReply[harp.BatchStatus](ctx, r, wire.TypeBatch, wire.BatchRef{ID: id, Wait: wait}, wait)
}

// ListBatches implements harp.BatchService.
func (r *remote) ListBatches(ctx context.Context, f harp.BatchFilter, cursor string) (harp.Page[harp.BatchStatus], error) {
	q := wire.BatchesQuery{Page: wire.Page{Cursor: cursor, Limit: max(f.Limit, 0)}, BatchFilter: f}
	m, err := requestReply[wire.Batches](ctx, r, wire.TypeBatches, q, false)
	return pageAfter[harp.BatchStatus](cursor, m.Batches, m.Cursor, err)
}

// BatchLog implements harp.BatchService.
func (r *remote) BatchLog(ctx context.Context, id string, q harp.BatchQuery) (harp.BatchPage, error) {
	m, err := requestReply[wire.BatchPulled](ctx, r, wire.TypeBatchPull, wire.BatchPull{ID: id, BatchQuery: q}, q.Wait)
	if err != nil {
		return harp.BatchPage{}, err
	}
	if goesOn := m.Next > q.From || m.Next == q.From && m.At > q.At; q.Wait && !goesOn && !q.Tail && !m.Ended {
		return harp.BatchPage{}, errStays
	}
	page, err := m.Page()
	if err != nil {
		return harp.BatchPage{}, unreadable(err)
	}
	return page, nil
}

// ChangeBatch implements harp.BatchService.
func (r *remote) ChangeBatch(ctx context.Context, operation, id string, c harp.BatchChange) (int, error) {
	m, err := requestReply[wire.Done](ctx, r, wire.TypeChangeBatch, wire.ChangeBatch{Request: operation, Batch: id, BatchChange: c}, false)
	return m.Count, err
}
