package dispatcher

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/store"
	"github.com/harpcaller/harp/store/memory"
	"github.com/harpcaller/harp/transport"
	"github.com/harpcaller/harp/transport/memnet"
)

// sullenStore is a store whose upkeep waits until it may go on, and that tells of being closed.
type sullenStore struct {
	store.Store
	proceed  chan struct{}
	compacts atomic.Int64
	closed   atomic.Bool
}

func (s *sullenStore) Compact(ctx context.Context) error {
	s.compacts.Add(1)
	<-s.proceed
	return s.Store.Compact(ctx)
}

func (s *sullenStore) Close() error {
	s.closed.Store(true)
	return s.Store.Close()
}

// Shutdown waits for what is under way as long as it may, and closes the store only then.
func TestShutdownWaitsForWhatIsUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := &sullenStore{Store: memory.Open(nil), proceed: make(chan struct{})}
		d, err := Open(t.Context(), st, Config{Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		compacted := make(chan error, 1)
		go func() { compacted <- d.compact(t.Context()) }()
		synctest.Wait()
		for range 2 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			if err := d.Shutdown(ctx); !errors.Is(err, context.DeadlineExceeded) || st.closed.Load() {
				t.Errorf("it gives %v, and the store is closed: %v", err, st.closed.Load())
			}
			cancel()
		}
		if err := d.compact(t.Context()); !errors.Is(err, harp.ErrClosed) {
			t.Errorf("work that comes afterwards gives %v", err)
		}
		if d.beginWork() || d.spawn(func() { t.Error("it runs") }) {
			t.Error("work begins afterwards")
		}
		n := memnet.New()
		l, err := n.Listen("d:1", transport.Identity{Fleet: "test", Role: transport.RoleDispatcher, Name: "d"})
		if err != nil {
			t.Fatal(err)
		}
		if err := d.Serve(t.Context(), l, nil); !errors.Is(err, harp.ErrClosed) {
			t.Errorf("to serve gives %v", err)
		}
		if _, err := l.Accept(); err == nil {
			t.Error("the listener is open")
		}
		h := d.Health(t.Context())
		if h.Ready || !errors.Is(h.Checks["dispatcher"], harp.ErrClosed) {
			t.Errorf("its health is %+v", h)
		}
		if troubles := h.problems(); len(troubles) == 0 || troubles[0] != "dispatcher: "+harp.ErrClosed.Error() {
			t.Errorf("its troubles are %q", troubles)
		}
		close(st.proceed)
		if err := <-compacted; err != nil && !errors.Is(err, context.Canceled) && !errors.Is(err, harp.ErrClosed) {
			t.Errorf("what was under way gives %v", err)
		}
		if err := d.Shutdown(t.Context()); err != nil || !st.closed.Load() {
			t.Errorf("then it gives %v, and the store is closed: %v", err, st.closed.Load())
		}
	})
}

// Troubles are those checks that are not well, by name, and calls are accepted in spite of some.
func TestHealth(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := memory.NewDisk()
		l := &listed{}
		d := opened(t, memory.OpenDisk(disk, nil), Config{Hosts: l})
		synctest.Wait()
		if h := d.Health(t.Context()); !h.Ready || len(h.problems()) != 0 || len(h.Checks) != 10 {
			t.Errorf("it is %+v", h)
		}
		l.set(HostSpec{})
		if _, err := d.refresh(t.Context()); !errors.Is(err, harp.ErrUnavailable) {
			t.Errorf("refresh gives %v", err)
		}
		h := d.Health(t.Context())
		if !h.Ready || len(h.problems()) != 1 || h.Checks["registry"] == nil {
			t.Errorf("with a bad registry it is %+v", h)
		}
		disk.SetSpace(store.SpaceLow)
		h = d.Health(t.Context())
		if h.Ready || !errors.Is(h.Checks["disk"], harp.ErrNoSpace) || !slices.IsSorted(h.problems()) || len(h.problems()) != 2 {
			t.Errorf("with a full disk it is %+v", h)
		}
		disk.SetSpace(store.SpacePlenty)
		l.set()
		if _, err := d.refresh(t.Context()); err != nil {
			t.Error(err)
		}
		if h := d.Health(t.Context()); !h.Ready || len(h.problems()) != 0 {
			t.Errorf("it is %+v", h)
		}
	})
}

// countingStore is a store that counts what upkeep asks of it.
type countingStore struct {
	store.Store
	prunes atomic.Int64
	more   atomic.Int64 // answers that there is more to prune
	jobs   int          // that each prunes
	err    error
	fails  atomic.Bool // errs, whatever err is
	keep   store.Retention
	sullen sullenStore
}

func (s *countingStore) Prune(_ context.Context, keep store.Retention, _ time.Time) (store.Pruned, error) {
	s.prunes.Add(1)
	if s.fails.Load() {
		return store.Pruned{}, errors.New("trouble")
	}
	s.keep = keep
	return store.Pruned{Jobs: s.jobs, More: s.more.Add(-1) >= 0}, s.err
}

func (s *countingStore) Compact(ctx context.Context) error { return s.sullen.Compact(ctx) }

// Pruning goes on while there is more, and gives space back where something was pruned.
func TestPruneGoesOnWhileThereIsMore(t *testing.T) {
	for name, c := range map[string]struct {
		more, jobs, prunes, want, compacts int
		err                                error
		left                               bool // its caller has
	}{
		"nothing":                {0, 0, 1, 0, 0, nil, false},
		"some":                   {0, 3, 1, 3, 1, nil, false},
		"more":                   {4, 3, 5, 15, 1, nil, false},
		"more, of which is none": {4, 0, 5, 0, 0, nil, false},
		"trouble":                {4, 0, 1, 0, 0, errors.New("trouble"), false},
		"trouble after some":     {4, 3, 1, 3, 1, errors.New("trouble"), false},
		"its caller has left":    {4, 3, 1, 3, 1, nil, true},
		"and nothing was to do":  {0, 0, 1, 0, 0, nil, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				inner := memory.Open(nil)
				st := &countingStore{Store: inner, jobs: c.jobs, err: c.err, sullen: sullenStore{Store: inner, proceed: make(chan struct{})}}
				close(st.sullen.proceed)
				st.more.Store(int64(c.more))
				d := opened(t, st, Config{})
				ctx, leave := context.WithCancel(t.Context())
				defer leave()
				if c.left {
					leave()
				}
				n, err := d.prune(ctx, store.Retention{MaxBytes: 5})
				synctest.Wait()
				if n != c.want || int(st.prunes.Load()) != c.prunes || int(st.sullen.compacts.Load()) != c.compacts || st.keep.MaxBytes != 5 {
					t.Errorf("%d jobs, by %d calls and %d compactions, keeping %+v", n, st.prunes.Load(), st.sullen.compacts.Load(), st.keep)
				}
				if c.left != errors.Is(err, context.Canceled) || c.err != nil && !errors.Is(err, c.err) || c.err == nil && !c.left && err != nil {
					t.Errorf("it gives %v", err)
				}
			})
		})
	}
}

// What is old is deleted every ten minutes.
func TestUpkeepComesEveryTenMinutes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := memory.Open(nil)
		st := &countingStore{Store: inner, sullen: sullenStore{Store: inner, proceed: make(chan struct{})}}
		close(st.sullen.proceed)
		opened(t, st, Config{Retain: time.Hour})
		time.Sleep(time.Hour - time.Second)
		if n := st.prunes.Load(); n != 5 {
			t.Errorf("in an hour it was asked %d times", n)
		}
		st.fails.Store(true)
		time.Sleep(time.Hour)
		if n := st.prunes.Load(); n != 11 {
			t.Errorf("in two hours, in the second of which there was trouble, it was asked %d times", n)
		}
	})
}

// All hosts that have ever connected are known after a restart, however many they are.
func TestAllHostsAreKnownAfterARestart(t *testing.T) {
	for _, n := range []int{0, 1, 499, 500, 501, 1200} {
		synctest.Test(t, func(t *testing.T) {
			st := memory.Open(nil)
			for i := range n {
				name := fmt.Sprintf("host%04d", i)
				_, err := st.OpenSession(t.Context(), store.Session{Host: name, At: time.Now()})
				if err == nil {
					err = st.PutHost(t.Context(), store.Host{Name: name, Connected: i%2 == 0})
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			d := opened(t, st, Config{})
			for i := range n {
				h := d.hosts.findKnown(fmt.Sprintf("host%04d", i))
				if h == nil || h.away() != (i%2 == 1) {
					t.Fatalf("host %d of %d is %+v", i, n, h)
				}
			}
			if got := d.hosts.expected(); got != (n+1)/2 {
				t.Errorf("of %d it expects %d", n, got)
			}
			time.Sleep(returningTime)
			if got := d.hosts.expected(); got != 0 {
				t.Errorf("later it expects %d", got)
			}
		})
	}
}

// Of what is expected of a host only the last counts, and of none anything once the dispatcher stops.
func TestTheLastExpectationCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hs := newHosts()
		h := hs.get("web01")
		var came []int
		expect := func(n int) { h.setExpectation(time.AfterFunc(time.Second, func() { came = append(came, n) })) }
		expect(1)
		expect(2)
		time.Sleep(2 * time.Second)
		expect(3)
		h.setExpectation(nil)
		time.Sleep(2 * time.Second)
		expect(4)
		hs.expectNone()
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if !slices.Equal(came, []int{2}) {
			t.Errorf("there came %v", came)
		}
	})
}
