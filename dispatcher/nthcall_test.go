package dispatcher_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/dispatcher"
	"github.com/harpcaller/harp/store"
	"github.com/harpcaller/harp/store/memory"
)

// nthCallStore is a store of which one call fails that a caller waits for.
type nthCallStore struct {
	store.Store
	left atomic.Int64 // calls until then; below 1: none will
}

func in[T any](s *nthCallStore, call func() (T, error)) (T, error) {
	if s.left.Add(-1) == 0 {
		var none T
		return none, errTrouble
	}
	return call()
}

func (s *nthCallStore) do(call func() error) error {
	_, err := in(s, func() (none struct{}, err error) { return none, call() })
	return err
}

func (s *nthCallStore) Submit(ctx context.Context, jobs []store.Submission, now time.Time) ([]store.Submitted, error) {
	return in(s, func() ([]store.Submitted, error) { return s.Store.Submit(ctx, jobs, now) })
}

func (s *nthCallStore) Apply(ctx context.Context, ts ...store.Transition) ([]store.Change, error) {
	return in(s, func() ([]store.Change, error) { return s.Store.Apply(ctx, ts...) })
}

func (s *nthCallStore) Job(ctx context.Context, id string) (*store.Job, error) {
	return in(s, func() (*store.Job, error) { return s.Store.Job(ctx, id) })
}

func (s *nthCallStore) Request(ctx context.Context, id string) (harp.Submission, error) {
	return in(s, func() (harp.Submission, error) { return s.Store.Request(ctx, id) })
}

func (s *nthCallStore) Value(ctx context.Context, id string) (harp.Value, error) {
	return in(s, func() (harp.Value, error) { return s.Store.Value(ctx, id) })
}

func (s *nthCallStore) List(ctx context.Context, f store.Filter, cursor string) (store.Page, error) {
	return in(s, func() (store.Page, error) { return s.Store.List(ctx, f, cursor) })
}

func (s *nthCallStore) Read(ctx context.Context, id string, from uint64, most store.ReadLimit) ([]harp.Record, error) {
	return in(s, func() ([]harp.Record, error) { return s.Store.Read(ctx, id, from, most) })
}

func (s *nthCallStore) Queue(ctx context.Context, name harp.Value) (harp.QueueStatus, error) {
	return in(s, func() (harp.QueueStatus, error) { return s.Store.Queue(ctx, name) })
}

func (s *nthCallStore) ListQueues(ctx context.Context, cursor string, limit int) (page []harp.QueueStatus, next string, err error) {
	err = s.do(func() (err error) { page, next, err = s.Store.ListQueues(ctx, cursor, limit); return err })
	return page, next, err
}

func (s *nthCallStore) CancelQueue(ctx context.Context, name harp.Value, op store.Operation) (store.QueueCancelled, error) {
	return in(s, func() (store.QueueCancelled, error) { return s.Store.CancelQueue(ctx, name, op) })
}

func (s *nthCallStore) ChangeQueue(ctx context.Context, name harp.Value, c harp.QueueChange, op store.Operation) error {
	return s.do(func() error { return s.Store.ChangeQueue(ctx, name, c, op) })
}

func (s *nthCallStore) Events(ctx context.Context, f harp.EventFilter, maxBytes int) (harp.EventPage, error) {
	return in(s, func() (harp.EventPage, error) { return s.Store.Events(ctx, f, maxBytes) })
}

func (s *nthCallStore) Prune(ctx context.Context, r store.Retention, now time.Time) (store.Pruned, error) {
	return in(s, func() (store.Pruned, error) { return s.Store.Prune(ctx, r, now) })
}

func (s *nthCallStore) Backup(ctx context.Context, w io.Writer) error {
	return s.do(func() error { return s.Store.Backup(ctx, w) })
}

func (s *nthCallStore) Document(ctx context.Context, kind, name string) ([]byte, error) {
	return in(s, func() ([]byte, error) { return s.Store.Document(ctx, kind, name) })
}

func (s *nthCallStore) PutDocument(ctx context.Context, kind, name string, content []byte) error {
	if len(content) == 0 { // gives space back: nobody waits for that
		return s.Store.PutDocument(ctx, kind, name, content)
	}
	return s.do(func() error { return s.Store.PutDocument(ctx, kind, name, content) })
}

func (s *nthCallStore) ListDocuments(ctx context.Context, kind, cursor string, n int) (page []store.Document, next string, err error) {
	err = s.do(func() (err error) { page, next, err = s.Store.ListDocuments(ctx, kind, cursor, n); return err })
	return page, next, err
}

func (s *nthCallStore) ChangeDocuments(ctx context.Context, c store.DocumentChanges) (int, error) {
	return in(s, func() (int, error) { return s.Store.ChangeDocuments(ctx, c) })
}

func (s *nthCallStore) DocumentsChanged(ctx context.Context, op store.Operation) (n int, done bool, err error) {
	err = s.do(func() (err error) { n, done, err = s.Store.DocumentsChanged(ctx, op); return err })
	return n, done, err
}

// list is what a sequence yields.
func list[T any](all func(yield func(T, error) bool)) (got []T, err error) {
	all(func(one T, failed error) bool {
		got, err = append(got, one), failed
		return failed == nil
	})
	return got, err
}

// asking is a system whose store may fail, and what its caller asks for.
type asking struct {
	*system
	registry     *changing
	ran, waiting *harp.Job
	cancelled    *harp.Job // of a host that is away: what it asks of the store nobody else does
}

func newAsking(t *testing.T, st store.Store, queue any) *asking {
	t.Helper()
	s := &asking{registry: &changing{}}
	s.registry.set(nil, dispatcher.HostSpec{Name: "away"}, dispatcher.HostSpec{Name: "web01"})
	s.system = newSystem(t, embedded, st, dispatcher.Config{Hosts: s.registry})
	synctest.Wait()
	s.agent("web01", greeter)
	s.ran = must[*harp.Job](t)(s.caller.Host("web01").Call(t.Context(), "count", countArgs{3}))
	must[harp.Value](t)(s.ran.Get(t.Context()))
	s.cancelled = must[*harp.Job](t)(s.caller.Host("away").Call(t.Context(), "work", nil))
	must[bool](t)(s.cancelled.Cancel(t.Context()))
	s.waiting = must[*harp.Job](t)(s.caller.Host("away").Call(t.Context(), "work", nil, harp.Queue(queue)))
	synctest.Wait()
	return s
}

// Each call of the store may fail that is made for a caller: the caller is told, and no answer says
// that what was asked for is so. Asked again it is.
func TestTroubleOfTheStoreIsTold(t *testing.T) {
	queue := map[string]string{"name": "q"}
	none := func(err error) (any, error) { return nil, err }
	for name, ask := range map[string]func(ctx context.Context, s *asking) (any, error){
		"status": func(ctx context.Context, s *asking) (any, error) { return s.waiting.Status(ctx) },
		"result": func(ctx context.Context, s *asking) (any, error) { return s.ran.Result(ctx) },
		"get":    func(ctx context.Context, s *asking) (any, error) { return s.ran.Get(ctx) },
		"stream": func(ctx context.Context, s *asking) (any, error) { return list(s.ran.Stream(ctx)) },
		"jobs":   func(ctx context.Context, s *asking) (any, error) { return list(s.caller.Jobs(ctx, harp.JobFilter{})) },
		"queues": func(ctx context.Context, s *asking) (any, error) { return list(s.caller.Queues().List(ctx)) },
		"queue":  func(ctx context.Context, s *asking) (any, error) { return s.caller.Queues().Get(ctx, queue) },
		"events": func(ctx context.Context, s *asking) (any, error) {
			return s.caller.EventsPage(ctx, harp.EventFilter{After: harp.EventsFromStart}, false)
		},
		"backup": func(ctx context.Context, s *asking) (any, error) { return none(s.caller.Backup(ctx, io.Discard)) },
		"prune": func(ctx context.Context, s *asking) (any, error) {
			_, err := s.caller.Prune(ctx, time.Now())
			return nil, err
		},
		"call": func(ctx context.Context, s *asking) (any, error) {
			_, err := s.caller.Host("away").Call(ctx, "work", nil)
			return nil, err
		},
		"retry": func(ctx context.Context, s *asking) (any, error) {
			_, err := s.cancelled.Retry(ctx)
			return nil, err
		},
		"cancel": func(ctx context.Context, s *asking) (any, error) {
			_, err := s.waiting.Cancel(ctx)
			return nil, err
		},
		"cancel queue": func(ctx context.Context, s *asking) (any, error) {
			_, err := s.caller.Queues().Cancel(ctx, queue)
			if errors.Is(err, harp.ErrNotFound) { // it had been
				err = nil
			}
			return nil, err
		},
		"pause": func(ctx context.Context, s *asking) (any, error) {
			return none(s.caller.Queues().Pause(ctx, queue, "", time.Time{}))
		},
		"refresh": func(ctx context.Context, s *asking) (any, error) {
			s.registry.set(nil, manyHosts(3000)...)
			_, err := s.caller.Hosts().Refresh(ctx)
			return nil, err
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				for n := int64(1); n < 100; n++ {
					st := &nthCallStore{Store: memory.Open(nil)}
					s := newAsking(t, st, queue)
					st.left.Store(n)
					got, err := ask(t.Context(), s)
					hasFailed := st.left.Swap(0) <= 0
					again, failed := ask(t.Context(), s)
					switch {
					case !hasFailed && (n == 1 || err != nil):
						t.Errorf("after %d calls none fails: %v", n, err)
						return
					case !hasFailed:
						return
					case failed != nil:
						t.Errorf("asked again after call %d failed: %v", n, failed)
					case err == nil && (got == nil || fmt.Sprint(got) != fmt.Sprint(again)):
						t.Errorf("call %d fails, and the answer is %v", n, got)
					}
				}
			})
		})
	}
}
