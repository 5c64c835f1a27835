package harptest_test

import (
	"context"
	"reflect"
	"slices"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/store"
)

// checkedStore is a store that looks at a batch after each operation which may move members of it: it counts
// what its members say.
type checkedStore struct {
	store.Store
	run *batchRun
}

// countsAsMembersSay compares what the batch of a run counts with what its members say, both as they are
// committed at one moment.
func (s checkedStore) countsAsMembersSay() {
	id := s.run.id
	for range 100 {
		b, err := s.Batch(context.Background(), id)
		if err != nil {
			return // it is not submitted, or the store is closed
		}
		members, err := s.BatchMembers(context.Background(), id, 0, b.Hosts*b.StepCount())
		if err != nil {
			return
		}
		if again, err := s.Batch(context.Background(), id); err != nil || !reflect.DeepEqual(again, b) {
			continue // it has gone on meanwhile
		}
		if b.StepCount() > 1 && (s.run.queued || b.State == harp.BatchCancelling) {
			return // until all rows are written a host may count as cancelled that is to go on, or of which an earlier step failed
		}
		var are store.MemberCounts
		for steps := range slices.Chunk(members, b.StepCount()) {
			are.Add(hostState(steps), 1)
		}
		says := b.Counts
		says.Add(b.UnreachedLife().State, b.Unreached())
		if says != are {
			s.run.t.Errorf("the batch is %s and counts %v, and its members are %v", b.State, says.ByState(), are.ByState())
		}
		return
	}
}

// hostState is how a host stands whose steps these are: as the one that began last, or where that has ended as the first that did
// not succeed.
func hostState(steps []*store.Job) harp.State {
	state := steps[0].State
	for _, j := range steps[1:] {
		if j.Reason != harp.ReasonChain && (state == harp.StateSucceeded || !j.State.Ended()) {
			state = j.State
		}
	}
	return state
}

func (s checkedStore) SubmitBatch(ctx context.Context, in store.BatchSubmission, now time.Time) (store.BatchSubmitted, error) {
	defer s.countsAsMembersSay()
	return s.Store.SubmitBatch(ctx, in, now)
}

func (s checkedStore) ChangeBatch(ctx context.Context, id string, e store.BatchEvent, op store.Operation) (store.BatchChanged, error) {
	defer s.countsAsMembersSay()
	return s.Store.ChangeBatch(ctx, id, e, op)
}

func (s checkedStore) Claim(ctx context.Context, hosts []string, n int, now time.Time) ([]*store.Job, error) {
	defer s.countsAsMembersSay()
	return s.Store.Claim(ctx, hosts, n, now)
}

func (s checkedStore) Apply(ctx context.Context, ts ...store.Transition) ([]store.Change, error) {
	defer s.countsAsMembersSay()
	return s.Store.Apply(ctx, ts...)
}

func (s checkedStore) Advance(ctx context.Context, now time.Time) (store.Advanced, error) {
	defer s.countsAsMembersSay()
	return s.Store.Advance(ctx, now)
}

func (s checkedStore) Silence(ctx context.Context, host string, at, lostAt time.Time) ([]*store.Job, error) {
	defer s.countsAsMembersSay()
	return s.Store.Silence(ctx, host, at, lostAt)
}

func (s checkedStore) CancelQueue(ctx context.Context, name harp.Value, op store.Operation) (store.QueueCancelled, error) {
	defer s.countsAsMembersSay()
	return s.Store.CancelQueue(ctx, name, op)
}
