package dispatcher_test

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/wire"
	"github.com/harpcaller/harp/store"
)

// callRunning calls a job that runs until the test ends it.
func (s *system) callRunning(t *testing.T, asked <-chan agentExchange) (*harp.Job, agentExchange) {
	t.Helper()
	job := must[*harp.Job](t)(s.caller.Host("web01").Call(t.Context(), "work", nil))
	m := <-asked
	m.sendFrame(t, wire.TypeAccepted, false, wire.Accepted{Started: &wire.Started{Time: 1}})
	synctest.Wait()
	return job, m
}

// emit sends records of which each follows in a frame of its own.
func (m agentExchange) emit(t *testing.T, n, size int) {
	t.Helper()
	for i := range int64(n) {
		value := wire.Encode(bytes.Repeat([]byte{'x'}, size))
		m.sendFrame(t, wire.TypeRecords, false, wire.Records{First: i, Records: []wire.Record{{Time: i + 1, Value: value}}})
	}
	synctest.Wait()
}

// Stream yields all records that there are, also while a caller waits for the result
// and so many follow other jobs that each page is a short one.
func TestStreamStopsEarlyBesideManyFollowers(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, sys *system) {
		agent := must[*rawAgent](t)(sys.newRawAgent(t.Context(), "i"))
		asked := agent.exchanges(t)
		synctest.Wait()
		other, _ := sys.callRunning(t, asked)
		job, m := sys.callRunning(t, asked)
		ctx, cancel := context.WithCancel(t.Context())
		var waiting sync.WaitGroup
		defer waiting.Wait()
		defer cancel()
		waiting.Go(func() { _, _ = job.Get(ctx) })
		for range 64 {
			waiting.Go(func() {
				for _, err := range other.Follow(ctx) {
					if err == nil {
						t.Error("a job that emits nothing has a record")
					}
				}
			})
		}
		synctest.Wait()
		const n = 200
		m.emit(t, n, 1000)
		if s := must[harp.JobStatus](t)(job.Status(t.Context())); s.Records != n {
			t.Fatalf("it has %d records", s.Records)
		}
		got := 0
		for _, err := range job.Stream(t.Context()) {
			if err != nil {
				t.Fatal(err)
			}
			got++
		}
		if got != n {
			t.Errorf("Stream yields %d of %d records, without an error", got, n)
		}
	})
}

// partStore is a store that stores half of what it is given to append, and errs for the
// rest, while it fails.
type partStore struct {
	store.Store
	fails atomic.Bool
	err   error
}

func (s *partStore) Append(ctx context.Context, a store.Append) (*store.Job, error) {
	if !s.fails.Load() {
		return s.Store.Append(ctx, a)
	}
	a.Records = a.Records[:len(a.Records)/2]
	job, err := s.Store.Append(ctx, a)
	return job, errors.Join(err, s.err)
}

// Followers are given the records that are stored, though those that came with them cannot
// be, and each record once.
func TestFollowersAreToldOfThePartThatIsStored(t *testing.T) {
	for name, trouble := range map[string]error{"no space": harp.ErrNoSpace, "another": errors.New("trouble")} {
		t.Run(name, func(t *testing.T) {
			part := &partStore{err: trouble}
			onStore(t, func(st store.Store) store.Store { part.Store = st; return part }, func(t *testing.T, sys *system) {
				agent := must[*rawAgent](t)(sys.newRawAgent(t.Context(), "i"))
				asked := agent.exchanges(t)
				synctest.Wait()
				job, m := sys.callRunning(t, asked)
				ctx, cancel := context.WithCancel(t.Context())
				var followed []uint64
				var following sync.WaitGroup
				following.Go(func() {
					for r, err := range job.Follow(ctx, harp.Since(0)) {
						if err != nil {
							return
						}
						followed = append(followed, r.Seq)
					}
				})
				expect := func(want ...uint64) {
					t.Helper()
					synctest.Wait()
					if !slices.Equal(followed, want) {
						t.Errorf("followed are %v, want %v", followed, want)
					}
				}
				four := func(first int64) {
					m.sendFrame(t, wire.TypeRecords, false, wire.Records{First: first, Records: []wire.Record{{Time: 1}, {Time: 2}, {Time: 3}, {Time: 4}}})
				}
				four(0)
				expect(0, 1, 2, 3)
				part.fails.Store(true)
				four(4)
				expect(0, 1, 2, 3, 4, 5)
				part.fails.Store(false)
				if trouble == harp.ErrNoSpace { //nolint:errorlint // it is itself; the other ends the session
					time.Sleep(2 * time.Second)
					expect(0, 1, 2, 3, 4, 5, 6, 7)
				}
				cancel()
				following.Wait()
			})
		})
	}
}
