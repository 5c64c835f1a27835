package dispatcher_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/agent"
	"github.com/harpcaller/harp/store"
)

// changingStore is a store whose callers go away as soon as a queue is changed. It counts
// the claims.
type changingStore struct {
	store.Store
	leave  context.CancelFunc
	claims atomic.Int64
}

func (s *changingStore) ChangeQueue(ctx context.Context, name harp.Value, c harp.QueueChange, op store.Operation) error {
	err := s.Store.ChangeQueue(ctx, name, c, op)
	if s.leave != nil {
		s.leave()
	}
	return err
}

func (s *changingStore) Claim(ctx context.Context, hosts []string, n int, now time.Time) ([]*store.Job, error) {
	s.claims.Add(1)
	return s.Store.Claim(ctx, hosts, n, now)
}

// What an operator lets go on goes on, whether the operator waits for it or not.
func TestAQueueGoesOnThoughWhoeverUnpausedItHasLeft(t *testing.T) {
	changing := new(changingStore)
	wrap := func(st store.Store) store.Store { changing.Store = st; return changing }
	for what, change := range map[string]func(context.Context, *harp.Queues) error{
		"unpaused": func(ctx context.Context, q *harp.Queues) error { return q.Unpause(ctx, harp.Args{}) },
		"widened":  func(ctx context.Context, q *harp.Queues) error { return q.SetConcurrency(ctx, harp.Args{}, 2) },
	} {
		t.Run(what, func(t *testing.T) {
			onStore(t, wrap, func(t *testing.T, sys *system) {
				changing.leave = nil
				asked := must[*rawAgent](t)(sys.newRawAgent(t.Context(), "i")).exchanges(t)
				synctest.Wait()
				host := sys.caller.Host("web01", harp.Queue(harp.Args{}))
				if what == "unpaused" {
					if err := sys.caller.Queues().Pause(t.Context(), harp.Args{}, "", time.Time{}); err != nil {
						t.Fatal(err)
					}
				} else {
					must[*harp.Job](t)(host.Call(t.Context(), "work", nil))
					<-asked
				}
				must[*harp.Job](t)(host.Call(t.Context(), "work", nil))
				ctx, leave := context.WithCancel(t.Context())
				changing.leave = leave
				_ = change(ctx, sys.caller.Queues()) // it may be answered before it is seen to have left
				expectCall(t, asked)
			})
		})
	}
}

// However many hosts are online, only those are looked at for which the queue has jobs.
func TestUnpausingAQueueDoesNotAskEveryHost(t *testing.T) {
	changing := new(changingStore)
	wrap := func(st store.Store) store.Store { changing.Store = st; return changing }
	onStore(t, wrap, func(t *testing.T, sys *system) {
		for n := range 50 {
			sys.agent(fmt.Sprint("other", n), func(*agent.Agent) {})
		}
		asked := must[*rawAgent](t)(sys.newRawAgent(t.Context(), "i")).exchanges(t)
		synctest.Wait()
		if err := sys.caller.Queues().Pause(t.Context(), harp.Args{}, "", time.Time{}); err != nil {
			t.Fatal(err)
		}
		must[*harp.Job](t)(sys.caller.Host("web01", harp.Queue(harp.Args{})).Call(t.Context(), "work", nil))
		changing.claims.Store(0)
		if err := sys.caller.Queues().Unpause(t.Context(), harp.Args{}); err != nil {
			t.Fatal(err)
		}
		expectCall(t, asked)
		if n := changing.claims.Load(); n > 1 {
			t.Errorf("jobs were claimed %d times", n)
		}
	})
}

// compactedStore is a store whose callers go away as soon as jobs are deleted. It says when
// it has given the space back.
type compactedStore struct {
	store.Store
	leave     context.CancelFunc
	compacted chan error
}

func (s *compactedStore) Prune(ctx context.Context, r store.Retention, now time.Time) (store.Pruned, error) {
	did, err := s.Store.Prune(ctx, r, now)
	s.leave()
	return did, err
}

func (s *compactedStore) Compact(ctx context.Context) error {
	err := ctx.Err()
	s.compacted <- err
	return err
}

// The space of what was deleted is given back, whether whoever had it deleted waits or not.
func TestSpaceIsGivenBackThoughWhoeverPrunedHasLeft(t *testing.T) {
	compacted := &compactedStore{compacted: make(chan error, 1)}
	wrap := func(st store.Store) store.Store { compacted.Store = st; return compacted }
	onStore(t, wrap, func(t *testing.T, sys *system) {
		sys.agent("web01", greeter)
		job := must[*harp.Job](t)(sys.caller.Host("web01").Call(t.Context(), "hello", harp.Args{"name": "Ada"}))
		must[harp.Value](t)(job.Get(t.Context()))
		time.Sleep(time.Second)
		ctx, leave := context.WithCancel(t.Context())
		compacted.leave = leave
		_, _ = sys.caller.Prune(ctx, time.Now())
		synctest.Wait()
		select {
		case err := <-compacted.compacted:
			if err != nil {
				t.Errorf("the space is given back until %v", err)
			}
		default:
			t.Error("no space is given back")
		}
	})
}
