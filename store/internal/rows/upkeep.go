package rows

import (
	"context"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/store"
)

// Compact implements store.Upkeep.
func (r *Reader) Compact(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stop := context.AfterFunc(r.open, func() { cancel(r.openErr()) })
	defer stop()
	return r.holdOpen(func() error { return r.engine.Compact(ctx) })
}

// Size implements store.Upkeep.
func (r *Reader) Size() (size int64, err error) {
	err = r.holdOpen(func() error {
		size, err = r.engine.Size()
		return err
	})
	return size, err
}

// AwaitFailure implements store.Upkeep.
func (r *Reader) AwaitFailure(ctx context.Context) error {
	select {
	case <-r.failed:
		return r.poisoned()
	case <-r.closing:
		return harp.ErrClosed
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Space implements store.Upkeep.
func (r *Reader) Space() store.Space { return r.engine.Space() }
