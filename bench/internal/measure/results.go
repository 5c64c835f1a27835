package measure

import (
	"context"
	"sync"
)

// Results hands each result to who waits for it, whichever of the two comes first. The
// zero Results is ready.
type Results[ID comparable] struct {
	mu      sync.Mutex // guards what follows
	waiting map[ID]chan []byte
	early   map[ID][]byte
}

// Deliver takes the result of an id.
func (r *Results[ID]) Deliver(id ID, result []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if to := r.waiting[id]; to != nil {
		delete(r.waiting, id)
		to <- result
		return
	}
	if r.early == nil {
		r.early = map[ID][]byte{}
	}
	r.early[id] = result
}

// Wait returns the result of an id, for which one waits.
func (r *Results[ID]) Wait(ctx context.Context, id ID) ([]byte, error) {
	select {
	case out := <-r.await(id):
		return out, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// await returns where the result will be, or is.
func (r *Results[ID]) await(id ID) <-chan []byte {
	r.mu.Lock()
	defer r.mu.Unlock()
	to := make(chan []byte, 1)
	if out, ok := r.early[id]; ok {
		delete(r.early, id)
		to <- out
		return to
	}
	if r.waiting == nil {
		r.waiting = map[ID]chan []byte{}
	}
	r.waiting[id] = to
	return to
}
