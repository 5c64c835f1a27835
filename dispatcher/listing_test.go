package dispatcher_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/agent"
	"github.com/harpcaller/harp/dispatcher"
	"github.com/harpcaller/harp/store"
	"github.com/harpcaller/harp/store/memory"
)

// readStore is a store that counts how often requests are read.
type readStore struct {
	store.Store
	requests atomic.Int64
}

func (s *readStore) Request(ctx context.Context, id string) (harp.Submission, error) {
	s.requests.Add(1)
	return s.Store.Request(ctx, id)
}

// Of jobs with long arguments no more are read for a page than go into its answer, over
// every wiring, and each is listed once.
func TestListingJobsReadsEachRequestOnce(t *testing.T) {
	for _, w := range []wiring{embedded, inMemory} {
		t.Run(string(w), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				read := &readStore{Store: memory.Open(nil)}
				sys := newSystem(t, w, read, dispatcher.Config{})
				stop := sys.agent("web01", func(*agent.Agent) {})
				stop()
				const jobs = 30
				long := harp.Args{"text": strings.Repeat("x", 400_000)}
				short := harp.Args{"text": "x"}
				want := map[string]bool{}
				for n := range jobs {
					args := long
					if n%3 == 0 {
						args = short
					}
					job := must[*harp.Job](t)(sys.caller.Host("web01").Call(t.Context(), "gone", args, harp.OfflineWait(harp.NoLimit)))
					want[job.ID()] = true
				}
				read.requests.Store(0)
				for s, err := range sys.caller.Jobs(t.Context(), harp.JobFilter{}) {
					if err != nil {
						t.Fatal(err)
					}
					if !want[s.ID] {
						t.Errorf("%s is listed, again or wrongly", s.ID)
					}
					delete(want, s.ID)
				}
				if len(want) > 0 {
					t.Errorf("%d are not listed", len(want))
				}
				if n := read.requests.Load(); n > 2*jobs {
					t.Errorf("%d requests were read to list %d jobs", n, jobs)
				}
			})
		})
	}
}

// lostRequest is a store that cannot read the request of one job.
type lostRequest struct {
	store.Store
	id string
}

func (s *lostRequest) Request(ctx context.Context, id string) (harp.Submission, error) {
	if id == s.id {
		return harp.Submission{}, store.ErrDamaged
	}
	return s.Store.Request(ctx, id)
}

// A job whose request cannot be read is left out of a listing, and no other.
func TestADamagedRequestHidesNoOtherJob(t *testing.T) {
	damaged := new(lostRequest)
	wrap := func(st store.Store) store.Store { damaged.Store = st; return damaged }
	onStore(t, wrap, func(t *testing.T, sys *system) {
		stop := sys.agent("web01", func(*agent.Agent) {})
		stop()
		var calls []*harp.Job
		for range 3 {
			calls = append(calls, must[*harp.Job](t)(sys.caller.Host("web01").Call(t.Context(), "gone", nil, harp.OfflineWait(harp.NoLimit))))
		}
		damaged.id = calls[1].ID()
		var got []string
		for s, err := range sys.caller.Jobs(t.Context(), harp.JobFilter{}) {
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, s.ID)
		}
		if want := []string{calls[2].ID(), calls[0].ID()}; !slices.Equal(got, want) {
			t.Errorf("%q are listed, want %q", got, want)
		}
	})
}

// A job whose request cannot be read is not tried again and again: it did not run, and says so.
func TestADamagedRequestIsRejected(t *testing.T) {
	damaged := new(lostRequest)
	wrap := func(st store.Store) store.Store { damaged.Store = st; return damaged }
	onStore(t, wrap, func(t *testing.T, sys *system) {
		serve := func(a *agent.Agent) {
			agent.Handle(a, harp.NewProc[struct{}, bool]("work"), func(context.Context, struct{}) (bool, error) { return true, nil })
		}
		sys.agent("web01", serve)()
		synctest.Wait() // the host is away
		options := []harp.Option{harp.OfflineWait(harp.NoLimit), harp.Queue(map[string]string{"name": "one"})}
		var calls []*harp.Job
		for range 3 {
			calls = append(calls, must[*harp.Job](t)(sys.caller.Host("web01").Call(t.Context(), "work", nil, options...)))
		}
		damaged.id = calls[0].ID()
		defer sys.agent("web01", serve)()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		for _, call := range calls[1:] {
			if _, err := call.Get(ctx); err != nil {
				t.Errorf("a job that can be read: %v", err)
			}
		}
		_, err := calls[0].Get(ctx)
		if !errors.Is(err, harp.ErrRejected) || harp.RanOf(err) != harp.DidNotRun {
			t.Errorf("the job whose request is damaged: %v, ran %v; want ErrRejected", err, harp.RanOf(err))
		}
	})
}
