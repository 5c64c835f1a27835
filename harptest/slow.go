package harptest

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/store"
)

// slowness is how long disks take.
type slowness struct {
	most time.Duration

	mu   sync.Mutex
	rand *rand.Rand // guarded by mu
}

func newSlowness(most time.Duration, seed uint64) *slowness {
	return &slowness{most: most, rand: rand.New(rand.NewPCG(seed, seed))} //nolint:gosec // chance that can be repeated
}

// around does something that takes a while: some of it passes before it is done, and
// some before anybody knows.
func (s *slowness) around(do func()) {
	if s.most <= 0 {
		do()
		return
	}
	s.mu.Lock()
	before := time.Duration(s.rand.Int64N(int64(s.most)/2 + 1))
	after := time.Duration(s.rand.Int64N(int64(s.most)/2 + 1))
	s.mu.Unlock()
	time.Sleep(before)
	do()
	time.Sleep(after)
}

// slowStore is a store that takes its time to write what jobs are waiting for.
type slowStore struct {
	store.Store
	slow *slowness
}

func (s slowStore) Submit(ctx context.Context, jobs []store.Submission, now time.Time) (done []store.Submitted, err error) {
	s.slow.around(func() { done, err = s.Store.Submit(ctx, jobs, now) })
	return done, err
}

func (s slowStore) Claim(ctx context.Context, hosts []string, n int, now time.Time) (jobs []*store.Job, err error) {
	s.slow.around(func() { jobs, err = s.Store.Claim(ctx, hosts, n, now) })
	return jobs, err
}

func (s slowStore) Apply(ctx context.Context, ts ...store.Transition) (changes []store.Change, err error) {
	s.slow.around(func() { changes, err = s.Store.Apply(ctx, ts...) })
	return changes, err
}

func (s slowStore) Advance(ctx context.Context, now time.Time) (did store.Advanced, err error) {
	s.slow.around(func() { did, err = s.Store.Advance(ctx, now) })
	return did, err
}

func (s slowStore) Silence(ctx context.Context, host string, at, lostAt time.Time) (jobs []*store.Job, err error) {
	s.slow.around(func() { jobs, err = s.Store.Silence(ctx, host, at, lostAt) })
	return jobs, err
}

func (s slowStore) Append(ctx context.Context, a store.Append) (job *store.Job, err error) {
	s.slow.around(func() { job, err = s.Store.Append(ctx, a) })
	return job, err
}

func (s slowStore) CancelQueue(ctx context.Context, name harp.Value, op store.Operation) (did store.QueueCancelled, err error) {
	s.slow.around(func() { did, err = s.Store.CancelQueue(ctx, name, op) })
	return did, err
}

func (s slowStore) RemoveHost(ctx context.Context, host string, op store.Operation) (did store.HostRemoved, err error) {
	s.slow.around(func() { did, err = s.Store.RemoveHost(ctx, host, op) })
	return did, err
}

func (s slowStore) OpenSession(ctx context.Context, session store.Session) (epoch uint64, err error) {
	s.slow.around(func() { epoch, err = s.Store.OpenSession(ctx, session) })
	return epoch, err
}
