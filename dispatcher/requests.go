package dispatcher

import (
	"bytes"
	"context"
	"slices"
	"sync"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/store"
)

// requests are those of batches that were used last: all members of a batch are sent the same. They
// never change, and share their memory with what is sent.
type requests struct {
	mu    sync.Mutex    // guards what follows; held while one is read, as others wait for the same
	kept  []keptRequest // the one used last is last
	bytes int
}

type keptRequest struct {
	batch string
	sub   harp.Submission
}

// get returns the request of a batch, which it reads if it is not at hand.
func (r *requests) get(batch string, read func() (harp.Submission, error)) (harp.Submission, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if n := slices.IndexFunc(r.kept, func(k keptRequest) bool { return k.batch == batch }); n >= 0 {
		k := r.kept[n]
		r.kept = append(slices.Delete(r.kept, n, n+1), k)
		return k.sub, nil
	}
	sub, err := read()
	if err == nil {
		r.addLocked(keptRequest{batch, sub})
	}
	return sub, err
}

// add keeps the request of a batch that is new.
func (r *requests) add(batch string, sub harp.Submission) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.addLocked(keptRequest{batch, cloneSubmission(sub)})
}

func (r *requests) addLocked(k keptRequest) {
	r.kept = append(r.kept, k)
	r.bytes += requestSize(k.sub)
	for len(r.kept) > maxKeptRequests || r.bytes > maxKeptRequestBytes {
		r.bytes -= requestSize(r.kept[0].sub)
		r.kept = slices.Delete(r.kept, 0, 1)
	}
}

func cloneSubmission(s harp.Submission) harp.Submission {
	s.Request, s.Signature = bytes.Clone(s.Request), bytes.Clone(s.Signature)
	return s
}

// jobRequest is the request of a job; that of its batch, of a member. It is not to be changed.
func (d *Dispatcher) jobRequest(ctx context.Context, j *store.Job) (harp.Submission, error) {
	if j.Batch == "" {
		return d.store.Request(ctx, j.ID)
	}
	return d.requests.get(j.Batch, func() (harp.Submission, error) { return d.store.Request(ctx, j.Batch) })
}
