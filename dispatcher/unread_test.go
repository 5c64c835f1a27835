package dispatcher_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/store"
)

// unheardStore is a store of which one thing cannot be read while the test says so.
type unheardStore struct {
	store.Store
	call string // Batch, BatchMembers, Job or Drift
	id   string // of the job; "": of any
	err  error
	ill  atomic.Bool
	met  atomic.Int64 // reads that failed
}

func (s *unheardStore) fails(call, id string) error {
	if !s.ill.Load() || s.call != call || s.id != "" && s.id != id {
		return nil
	}
	s.met.Add(1)
	return s.err
}

func (s *unheardStore) Batch(ctx context.Context, id string) (*store.Batch, error) {
	if err := s.fails("Batch", ""); err != nil {
		return nil, err
	}
	return s.Store.Batch(ctx, id)
}

func (s *unheardStore) BatchMembers(ctx context.Context, id string, from, n int) ([]*store.Job, error) {
	if err := s.fails("BatchMembers", ""); err != nil {
		return nil, err
	}
	return s.Store.BatchMembers(ctx, id, from, n)
}

func (s *unheardStore) Job(ctx context.Context, id string) (*store.Job, error) {
	if err := s.fails("Job", id); err != nil {
		return nil, err
	}
	if s.call != "Job" && errors.Is(s.err, store.ErrDamaged) && harp.CheckID(id) != nil { // a member without its batch
		if err := s.fails(s.call, ""); err != nil {
			return nil, err
		}
	}
	return s.Store.Job(ctx, id)
}

func (s *unheardStore) Drift(ctx context.Context, host, name string) (harp.DriftStatus, error) {
	if err := s.fails("Drift", ""); err != nil {
		return harp.DriftStatus{}, err
	}
	return s.Store.Drift(ctx, host, name)
}

// Who waits for what a commit has ended is told, though it cannot be read for a while which jobs these are, and asks a store that works a few
// times at most. What is damaged is told as that.
func TestWhoWaitsForWhatCannotBeReadForAWhileIsTold(t *testing.T) {
	for name, c := range map[string]struct {
		call string
		err  error
	}{
		"batch":           {"Batch", errTrouble},
		"members":         {"BatchMembers", errTrouble},
		"step":            {"Job", errTrouble},
		"damaged batch":   {"Batch", store.ErrDamaged},
		"damaged members": {"BatchMembers", store.ErrDamaged},
		"damaged step":    {"Job", store.ErrDamaged},
	} {
		t.Run(name, func(t *testing.T) {
			unread := &unheardStore{call: c.call, err: c.err}
			onStore(t, func(st store.Store) store.Store { unread.Store = st; return unread }, func(t *testing.T, sys *system) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				sys.webs(2)
				begins := harp.StartAfter(time.Now().Add(time.Minute))
				var waited *harp.Job
				end := func() {}
				if c.call == "Job" {
					steps := []harp.Step{{Procedure: "host.name"}, {Procedure: "host.name", On: harp.OnFailed}}
					waited = must[*harp.Batch](t)(sys.caller.Target("web*").Chain(ctx, steps, begins)).Job("web01", 2)
					unread.id = waited.ID()
				} else {
					b := must[*harp.Batch](t)(sys.caller.Target("web*").Call(ctx, "host.name", nil, begins))
					waited = b.Job("web02")
					end = func() { must[int](t)(b.Cancel(ctx)) }
				}
				told := make(chan error, 1)
				go func() {
					defer close(told)
					_, err := waited.Wait(ctx)
					told <- err
				}()
				synctest.Wait()
				unread.ill.Store(true)
				end()
				time.Sleep(70 * time.Second)
				if n := unread.met.Load(); n < 1 || n > 100 {
					t.Errorf("it was asked %d times", n)
				}
				isTold := func() (err error, is bool) {
					select {
					case err, is = <-told:
						return err, is
					default:
						return nil, false
					}
				}
				err, is := isTold()
				if isDamaged := errors.Is(c.err, store.ErrDamaged); is != isDamaged || isDamaged && !errors.Is(err, store.ErrDamaged) {
					t.Errorf("while it is so it is told %v, %v", err, is)
				}
				unread.ill.Store(false)
				time.Sleep(2 * time.Second)
				if err, again := isTold(); err != nil || again == is {
					t.Errorf("then it is told %v, %v", err, again)
				}
				cancel()
				for range told { // until nobody waits
					continue
				}
			})
		})
	}
}

// A mark that cannot be read when its check has ended is in memory, where targets see it, when it can be.
func TestAMarkThatCannotBeReadForAWhileIsSeenThen(t *testing.T) {
	unread := &unheardStore{call: "Drift", err: errTrouble}
	onStore(t, func(st store.Store) store.Store { unread.Store = st; return unread }, func(t *testing.T, sys *system) {
		c := newConfigured()
		c.agents(sys, map[string]string{"web01": "clean"})
		unread.ill.Store(true)
		check(t, sys.caller, "web01", "base")
		wantMarks(t, sys.caller, "")
		time.Sleep(10 * time.Second)
		if n := unread.met.Load(); n < 2 || n > 15 {
			t.Errorf("it was read %d times in 10 s", n)
		}
		unread.ill.Store(false)
		time.Sleep(2 * time.Second)
		wantMarks(t, sys.caller, "web01 base clean")
	})
}
