package rows

import (
	"context"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/store"
)

// Compact implements store.Upkeep.
func (s *Store) Compact(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stop := context.AfterFunc(s.open, func() { cancel(s.openErr()) })
	defer stop()
	return s.held(func() error { return s.engine.Compact(ctx) })
}

// Size implements store.Upkeep.
func (s *Store) Size() (size int64, err error) {
	err = s.held(func() error {
		size, err = s.engine.Size()
		return err
	})
	return size, err
}

// held calls f while the engine stays open. Errors: harp.ErrClosed,
// store.ErrPoisoned, f's.
func (s *Store) held(f func() error) error {
	s.readers.RLock()
	defer s.readers.RUnlock()
	select {
	case <-s.closing:
		return harp.ErrClosed
	default:
	}
	if err := s.poisoned(); err != nil {
		return err
	}
	return f()
}

// AwaitFailure implements store.Upkeep.
func (s *Store) AwaitFailure(ctx context.Context) error {
	select {
	case <-s.failed:
		return s.poisoned()
	case <-s.closing:
		return harp.ErrClosed
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Space implements store.Upkeep.
func (s *Store) Space() store.Space { return s.engine.Space() }
