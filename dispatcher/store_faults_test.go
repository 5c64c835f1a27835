package dispatcher_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/dispatcher"
	"github.com/harpcaller/harp/internal/wire"
	"github.com/harpcaller/harp/store"
	"github.com/harpcaller/harp/store/memory"
)

// lameStore is a store in which time does not go on while the test says so.
type lameStore struct {
	store.Store
	lame  atomic.Bool
	tries atomic.Int64
}

func (s *lameStore) Advance(ctx context.Context, now time.Time) (store.Advanced, error) {
	if s.lame.Load() {
		s.tries.Add(1)
		return store.Advanced{}, errTrouble
	}
	return s.Store.Advance(ctx, now)
}

// What was due while the store was in trouble is done soon after.
func TestWhatWasDueDuringTroubleIsDoneAfterIt(t *testing.T) {
	lame := new(lameStore)
	onStore(t, func(st store.Store) store.Store { lame.Store = st; return lame }, func(t *testing.T, sys *system) {
		agent := must[*rawAgent](t)(sys.newRawAgent(t.Context(), "i"))
		agent.tr.Beat(10 * time.Second)
		asked := agent.exchanges(t)
		synctest.Wait()
		must[*harp.Job](t)(sys.caller.Host("web01").Call(t.Context(), "work", nil, harp.StartAfter(time.Now().Add(time.Minute))))
		lame.lame.Store(true)
		time.Sleep(time.Minute + 5*time.Second + time.Millisecond)
		expectNothing(t, asked)
		if n := lame.tries.Load(); n < 5 || n > 7 {
			t.Errorf("it was tried %d times in 5 s", n)
		}
		lame.lame.Store(false)
		time.Sleep(time.Second)
		expectCall(t, asked)
	})
}

// A host for which nothing can be claimed is met anew: what it is owed is not forgotten.
func TestAHostThatCannotBeGivenWhatItIsOwedIsMetAnew(t *testing.T) {
	for name, c := range map[string]struct {
		claims []error
		ends   bool
	}{
		"at once":          {[]error{errTrouble}, true},
		"when it owes":     {[]error{harp.ErrNoSpace, errTrouble}, true},
		"or there is none": {[]error{harp.ErrNoSpace, harp.ErrNoSpace, nil}, false},
	} {
		t.Run(name, func(t *testing.T) {
			scarce := new(scarceStore)
			onStore(t, func(st store.Store) store.Store { scarce.Store = st; return scarce }, func(t *testing.T, sys *system) {
				agent := must[*rawAgent](t)(sys.newRawAgent(t.Context(), "i"))
				synctest.Wait()
				var n atomic.Int64
				scarce.claimed = func(jobs []*store.Job, err error) ([]*store.Job, error) {
					if at := int(n.Add(1)); at <= len(c.claims) {
						return jobs, c.claims[at-1]
					}
					return jobs, err
				}
				agent.sendFrame(t, wire.TypeReady, wire.Ready{})
				time.Sleep(5 * time.Second)
				if ended := agent.tr.Err() != nil; ended != c.ends || n.Load() != int64(len(c.claims)) {
					t.Errorf("the session has ended: %v, after %d claims", ended, n.Load())
				}
			})
		})
	}
}

// blindStore is a store that is in trouble at the beginning.
type blindStore struct {
	store.Store
	call   string // that fails
	closed atomic.Bool
}

func (s *blindStore) ListHosts(ctx context.Context, cursor string, n int) ([]store.Host, string, error) {
	if s.call == "hosts" {
		return nil, "", errTrouble
	}
	return s.Store.ListHosts(ctx, cursor, n)
}

func (s *blindStore) Active(ctx context.Context, host string) ([]*store.Job, error) {
	if s.call == "active" {
		return nil, errTrouble
	}
	return s.Store.Active(ctx, host)
}

func (s *blindStore) Returning(ctx context.Context, host string) ([]*store.Job, error) {
	if s.call == "returning" {
		return nil, errTrouble
	}
	return s.Store.Returning(ctx, host)
}

func (s *blindStore) Document(ctx context.Context, kind, name string) ([]byte, error) {
	if s.call == "registry" {
		return nil, errTrouble
	}
	return s.Store.Document(ctx, kind, name)
}

func (s *blindStore) Close() error {
	s.closed.Store(true)
	return s.Store.Close()
}

// A dispatcher does not open on a store that it cannot read, and leaves it closed.
func TestAStoreThatCannotBeReadIsNotOpened(t *testing.T) {
	for _, call := range []string{"hosts", "active", "returning", "registry"} {
		st := &blindStore{Store: memory.Open(nil), call: call}
		_, err := dispatcher.Open(t.Context(), st, dispatcher.Config{Hosts: new(changing)})
		if !errors.Is(err, errTrouble) || !strings.Contains(err.Error(), "open dispatcher") || !st.closed.Load() {
			t.Errorf("%s: it gives %v, and is closed: %v", call, err, st.closed.Load())
		}
	}
	st := &blindStore{Store: memory.Open(nil)}
	if _, err := dispatcher.Open(t.Context(), st, dispatcher.Config{Heartbeat: -1}); !errors.Is(err, harp.ErrInvalid) || !st.closed.Load() {
		t.Errorf("a configuration that cannot be gives %v, and the store is closed: %v", err, st.closed.Load())
	}
}

// A host is not reconciled with what cannot be read, and nothing is concluded.
func TestNothingIsConcludedFromWhatCannotBeRead(t *testing.T) {
	for _, call := range []string{"active", "returning"} {
		var st *blindStore
		onStore(t, func(inner store.Store) store.Store { st = &blindStore{Store: inner}; return st }, func(t *testing.T, sys *system) {
			i := interrupt(t, sys, saidStart, false)
			st.call = call
			if _, err := sys.greetRaw(t.Context(), wire.Hello{Version: wire.Version, Instance: "second", Journal: "new"}); err == nil {
				t.Errorf("%s: it is greeted", call)
			}
			if s := i.status(t); s.State != harp.StateRunning {
				t.Errorf("%s: it is %s (%s)", call, s.State, s.Reason)
			}
			st.call = ""
			i.again(t, sys, "new", "")
			if s := i.status(t); s.State != harp.StateLost || s.Reason != harp.LostJournalGone {
				t.Errorf("%s: then it is %s (%s)", call, s.State, s.Reason)
			}
		})
	}
}

// refusing is a store in which single changes are refused for want of room, while the test says so.
type refusing struct {
	store.Store
	full atomic.Bool
}

func (s *refusing) Apply(ctx context.Context, ts ...store.Transition) ([]store.Change, error) {
	if !s.full.Load() {
		return s.Store.Apply(ctx, ts...)
	}
	out := make([]store.Change, len(ts))
	for i := range out {
		out[i].Err = harp.ErrNoSpace
	}
	return out, nil
}

// A session does not begin while what was concluded of its agent's journal cannot be stored: nobody would conclude it again.
func TestNoSessionBeginsBesideWhatCannotBeConcluded(t *testing.T) {
	st := new(refusing)
	onStore(t, func(inner store.Store) store.Store { st.Store = inner; return st }, func(t *testing.T, sys *system) {
		i := interrupt(t, sys, saidStart, false)
		st.full.Store(true)
		if _, err := sys.greetRaw(t.Context(), wire.Hello{Version: wire.Version, Instance: "second", Journal: "new"}); err == nil {
			t.Error("it is greeted")
		}
		st.full.Store(false)
		i.again(t, sys, "new", "")
		if s := i.status(t); s.State != harp.StateLost || s.Reason != harp.LostJournalGone {
			t.Errorf("then it is %s (%s)", s.State, s.Reason)
		}
	})
}
