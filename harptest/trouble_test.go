package harptest_test

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/needs"
	"github.com/harpcaller/harp/store"
)

// trouble says which calls of a store fail: some, now and then, until all is healed.
type trouble struct {
	until  time.Duration // from the beginning
	period time.Duration // that it lasts, and does not
	share  float64       // of the calls meanwhile
	reads  bool          // those that read fail, too

	mu     sync.Mutex // guards what follows
	r      *rand.Rand
	begin  time.Time
	failed int
}

func newTrouble(seed uint64, until time.Duration) *trouble {
	r := rand.New(rand.NewPCG(seed, 0x74726f75))
	return &trouble{
		until: until, r: r, period: pick(r, time.Second, 3*time.Second, 10*time.Second), share: pick(r, 0.1, 0.3, 1), reads: oneIn(r, 2),
	}
}

// errTrouble is what calls fail with: their caller asks again.
var errTrouble = fmt.Errorf("trouble: %w", harp.ErrUnavailable)

// write is errTrouble if a call is to fail; nil: it is not.
func (tr *trouble) write() error {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	since := time.Since(tr.begin)
	if since >= tr.until || since/tr.period%2 == 0 || tr.r.Float64() >= tr.share {
		return nil
	}
	tr.failed++
	return errTrouble
}

func (tr *trouble) read() error {
	if !tr.reads {
		return nil
	}
	return tr.write()
}

// some is how many of n are done by a call that fails.
func (tr *trouble) some(n int) int {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	return tr.r.IntN(n)
}

// troubledStore is a store of which some calls fail for a moment, some of these in part. None of its commits does.
type troubledStore struct {
	store.Store
	*trouble
}

func try[T any](err error, call func() (T, error)) (T, error) {
	if err != nil {
		var none T
		return none, err
	}
	return call()
}

func (s troubledStore) Apply(ctx context.Context, ts ...store.Transition) (out []store.Change, err error) {
	if err = s.write(); err == nil {
		return s.Store.Apply(ctx, ts...)
	}
	if n := s.some(len(ts)); n > 0 {
		if out, err = s.Store.Apply(ctx, ts[:n]...); err == nil {
			err = errTrouble
		}
	}
	for len(out) < len(ts) {
		out = append(out, store.Change{Err: err})
	}
	return out, err
}

func (s troubledStore) Append(ctx context.Context, a store.Append) (*store.Job, error) {
	err := s.write()
	if err == nil {
		return s.Store.Append(ctx, a)
	}
	if n := s.some(len(a.Records) + 1); n > 0 && n < len(a.Records) {
		a.Records = a.Records[:n]
		if _, also := s.Store.Append(ctx, a); also != nil {
			err = also
		}
	}
	return nil, err
}

func (s troubledStore) Claim(ctx context.Context, hosts []string, n int, now time.Time) (out []*store.Job, err error) {
	if err = s.write(); err == nil {
		return s.Store.Claim(ctx, hosts, n, now)
	}
	if n = s.some(3); n > 0 {
		if out, err = s.Store.Claim(ctx, hosts, n, now); err == nil {
			err = errTrouble
		}
	}
	return out, err
}

func (s troubledStore) Submit(ctx context.Context, jobs []store.Submission, now time.Time) ([]store.Submitted, error) {
	return try(s.write(), func() ([]store.Submitted, error) { return s.Store.Submit(ctx, jobs, now) })
}

func (s troubledStore) Advance(ctx context.Context, now time.Time) (store.Advanced, error) {
	return try(s.write(), func() (store.Advanced, error) { return s.Store.Advance(ctx, now) })
}

func (s troubledStore) Silence(ctx context.Context, host string, at, lostAt time.Time) ([]*store.Job, error) {
	return try(s.write(), func() ([]*store.Job, error) { return s.Store.Silence(ctx, host, at, lostAt) })
}

func (s troubledStore) CancelQueue(ctx context.Context, name harp.Value, op store.Operation) (store.QueueCancelled, error) {
	return try(s.write(), func() (store.QueueCancelled, error) { return s.Store.CancelQueue(ctx, name, op) })
}

func (s troubledStore) OpenSession(ctx context.Context, of store.Session) (uint64, error) {
	return try(s.write(), func() (uint64, error) { return s.Store.OpenSession(ctx, of) })
}

func (s troubledStore) Wake(ctx context.Context, host string, now time.Time) error {
	_, err := try(s.write(), func() (none struct{}, err error) { return none, s.Store.Wake(ctx, host, now) })
	return err
}

func (s troubledStore) PutHost(ctx context.Context, h store.Host) error {
	_, err := try(s.write(), func() (none struct{}, err error) { return none, s.Store.PutHost(ctx, h) })
	return err
}

func (s troubledStore) Host(ctx context.Context, name string) (store.Host, error) {
	return try(s.read(), func() (store.Host, error) { return s.Store.Host(ctx, name) })
}

func (s troubledStore) Job(ctx context.Context, id string) (*store.Job, error) {
	return try(s.read(), func() (*store.Job, error) { return s.Store.Job(ctx, id) })
}

func (s troubledStore) Request(ctx context.Context, id string) (harp.Submission, error) {
	return try(s.read(), func() (harp.Submission, error) { return s.Store.Request(ctx, id) })
}

func (s troubledStore) Value(ctx context.Context, id string) (harp.Value, error) {
	return try(s.read(), func() (harp.Value, error) { return s.Store.Value(ctx, id) })
}

func (s troubledStore) Read(ctx context.Context, id string, from uint64, most store.ReadLimit) ([]harp.Record, error) {
	return try(s.read(), func() ([]harp.Record, error) { return s.Store.Read(ctx, id, from, most) })
}

func (s troubledStore) Active(ctx context.Context, host string) ([]*store.Job, error) {
	if host == "" { // the dispatcher is being opened
		return s.Store.Active(ctx, host)
	}
	return try(s.read(), func() ([]*store.Job, error) { return s.Store.Active(ctx, host) })
}

func (s troubledStore) Returning(ctx context.Context, host string) ([]*store.Job, error) {
	if host == "" {
		return s.Store.Returning(ctx, host)
	}
	return try(s.read(), func() ([]*store.Job, error) { return s.Store.Returning(ctx, host) })
}

// TestTroubledStore plays plans as TestChaos does, on a store of which calls fail for a moment: every promise is kept all the same, and
// all goes on when that has passed. Whoever asks meanwhile is told.
func TestTroubledStore(t *testing.T) {
	seeds := *seedsFlag
	switch {
	case seeds > 0:
	case needs.RaceDetector, testing.Short():
		seeds = 10
	default:
		seeds = 50
	}
	all, failed := tally{ends: map[string]int{}}, 0
	for seed := *seedFlag; seed < *seedFlag+seeds; seed++ {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			p := newPlan(seed)
			tr := newTrouble(seed, p.Span)
			var h *history
			synctest.Test(t, func(t *testing.T) {
				tr.begin = time.Now()
				h = playOn(t, p, slog.New(slog.DiscardHandler), func(st store.Store) store.Store { return troubledStore{st, tr} })
			})
			if h == nil {
				t.Fatalf("the run was ended\n%v", p)
			}
			for _, what := range check(h) {
				if !strings.Contains(fmt.Sprint(what), errTrouble.Error()) { // who follows is told, too
					t.Error(what)
				}
			}
			if t.Failed() {
				t.Logf("%v\n%v\nagain: go test ./harptest -run 'TestTroubledStore' -seed %d -seeds 1", p, h, seed)
			}
			all.add(h)
			failed += tr.failed
		})
	}
	t.Logf("%d calls failed; %v", failed, &all)
	if failed < int(seeds) { //nolint:gosec // few
		t.Errorf("only %d calls failed of %d seeds", failed, seeds)
	}
}
