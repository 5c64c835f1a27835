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

// failingStore is a store in which one call fails as long as the test says.
type failingStore struct {
	store.Store
	jobs, hosts, puts, silences atomic.Bool
}

var errTrouble = errors.New("trouble")

func (s *failingStore) Job(ctx context.Context, id string) (*store.Job, error) {
	if s.jobs.Load() {
		return nil, errTrouble
	}
	return s.Store.Job(ctx, id)
}

func (s *failingStore) Host(ctx context.Context, name string) (store.Host, error) {
	if s.hosts.Load() {
		return store.Host{}, errTrouble
	}
	return s.Store.Host(ctx, name)
}

func (s *failingStore) PutHost(ctx context.Context, h store.Host) error {
	if s.puts.Load() {
		return errTrouble
	}
	return s.Store.PutHost(ctx, h)
}

func (s *failingStore) Silence(ctx context.Context, host string, now, wake time.Time) ([]*store.Job, error) {
	if s.silences.Load() {
		return nil, errTrouble
	}
	return s.Store.Silence(ctx, host, now, wake)
}

// onFailing runs a test on a store of which calls fail.
func onFailing(t *testing.T, body func(t *testing.T, sys *system, st *failingStore)) {
	t.Helper()
	failing := new(failingStore)
	onStore(t, func(st store.Store) store.Store { failing.Store = st; return failing }, func(t *testing.T, sys *system) { body(t, sys, failing) })
}

// A host whose row cannot be read or written is not greeted, and is when that has passed.
func TestAHostWhoseRowIsInTroubleIsGreetedLater(t *testing.T) {
	onFailing(t, func(t *testing.T, sys *system, st *failingStore) {
		for _, fails := range []*atomic.Bool{&st.hosts, &st.puts} {
			fails.Store(true)
			if _, err := sys.newRawAgent(t.Context(), "i"); err == nil {
				t.Error("it is greeted")
			}
			synctest.Wait()
			if h, err := sys.caller.Hosts().Get(t.Context(), "web01"); h.Online {
				t.Errorf("it is %+v, %v", h, err)
			}
			fails.Store(false)
		}
		a := must[*rawAgent](t)(sys.newRawAgent(t.Context(), "i"))
		asked := a.exchanges(t)
		synctest.Wait()
		must[*harp.Job](t)(sys.caller.Host("web01").Call(t.Context(), "work", nil))
		expectCall(t, asked)
	})
}

// That a host is silent is noted as soon as it can be.
func TestSilenceThatCannotBeNotedIsNotedLater(t *testing.T) {
	onFailing(t, func(t *testing.T, sys *system, st *failingStore) {
		i := interrupt(t, sys, saidStart, false)
		st.silences.Store(true)
		time.Sleep(40 * time.Second)
		if s := i.status(t); s.State != harp.StateRunning {
			t.Errorf("it is %s", s.State)
		}
		st.silences.Store(false)
		time.Sleep(2 * time.Second)
		if s := i.status(t); s.State != harp.StateUnknown {
			t.Errorf("it is %s", s.State)
		}
	})
}

// A call whose job cannot be read does not leave, and is sent when it can be.
func TestACallThatCannotBeReadIsSentLater(t *testing.T) {
	onFailing(t, func(t *testing.T, sys *system, st *failingStore) {
		agent := must[*rawAgent](t)(sys.newRawAgent(t.Context(), "i"))
		asked := agent.exchanges(t)
		synctest.Wait()
		st.jobs.Store(true)
		job := must[*harp.Job](t)(sys.caller.Host("web01").Call(t.Context(), "work", nil))
		expectNothing(t, asked)
		st.jobs.Store(false)
		time.Sleep(2 * time.Second)
		expectCall(t, asked)
		if s := must[harp.JobStatus](t)(job.Status(t.Context())); s.State != harp.StateSent || agent.tr.Err() != nil {
			t.Errorf("it is %s, and the session ended with %v", s.State, agent.tr.Err())
		}
	})
}
