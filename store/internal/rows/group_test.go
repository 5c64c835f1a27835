package rows

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/store"
)

// held is an engine whose commits wait to be let go.
func held(t *testing.T) (*trial, *Store, chan error) {
	t.Helper()
	e := newTrial()
	s := opened(t, e, Options{})
	s.SetGate("h", store.Gate{Open: true, Most: 1 << 20})
	let := make(chan error)
	e.onCommit = func([]Write) error { return <-let }
	return e, s, let
}

// letAll lets go whatever is committed until the returned function is called.
func letAll(let chan error) (stop func()) {
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case let <- nil:
			case <-done:
				return
			}
		}
	})
	return func() { close(done); wg.Wait() }
}

// TestGroupSeesTheOneBefore checks that operations know what others have done whose
// commit is under way.
func TestGroupSeesTheOneBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, s, let := held(t)
		c := call("h")
		c.Request.Request = make([]byte, 3*pieceSize)
		var wg sync.WaitGroup
		again := func(isNew bool) {
			wg.Go(func() {
				out, err := s.Submit(t.Context(), []store.Submission{c}, noon)
				if err != nil || out[0].Err != nil || out[0].New != isNew {
					t.Errorf("new %v: %+v, %v", isNew, out, err)
				}
			})
			synctest.Wait()
		}
		again(true)
		again(false)
		wg.Go(func() {
			out, err := s.Apply(t.Context(), store.Transition{ID: c.Job.ID, Event: store.Event{Kind: store.End, At: noon, Attempt: 1, Fence: 1}})
			if err != nil || out[0].Err != nil || out[0].Job.State != harp.StateSucceeded {
				t.Errorf("%+v, %v", out, err)
			}
		})
		synctest.Wait()
		if _, err := s.Job(t.Context(), c.Job.ID); !errors.Is(err, harp.ErrNotFound) {
			t.Errorf("before it is committed: %v", err)
		}
		let <- nil
		synctest.Wait()
		if j, err := s.Job(t.Context(), c.Job.ID); err != nil || j.State.Ended() {
			t.Errorf("before its end is committed: %s, %v", j.State, err)
		}
		let <- nil
		wg.Wait()
		if n := len(e.commits); n != 3 { // one made the store
			t.Errorf("%d commits", n)
		}
	})
}

// TestGroupBehindAFailure checks that nothing is committed behind a group that was not,
// and that nobody is told otherwise.
func TestGroupBehindAFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, s, let := held(t)
		var wg sync.WaitGroup
		for range 2 {
			wg.Go(func() {
				if _, err := s.Submit(t.Context(), []store.Submission{call("h")}, noon); !errors.Is(err, store.ErrPoisoned) {
					t.Error(err)
				}
			})
			synctest.Wait()
		}
		let <- errors.New("no disk")
		wg.Wait()
		if n := len(e.commits); n != 1 {
			t.Errorf("%d commits", n)
		}
	})
}

// TestAhead checks that what began earlier does not wait for all that is new, and that
// what is new gets on, too.
func TestAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, s, let := held(t)
		stop := letAll(let)
		j := started(t, s)
		stop()
		const news = 10 * maxOps
		var wg sync.WaitGroup
		var mu sync.Mutex
		stored := 0
		for range news {
			wg.Go(func() {
				submitted(t, s, call("away"))
				mu.Lock()
				defer mu.Unlock()
				stored++
			})
		}
		synctest.Wait()
		ended := make(chan struct{})
		go func() {
			applied(t, s, about(j, store.End))
			close(ended)
		}()
		synctest.Wait()
		commits := 0
		for over := false; !over; commits++ {
			let <- nil
			synctest.Wait()
			select {
			case <-ended:
				over = true
			default:
			}
		}
		if commits > 3 {
			t.Errorf("the end of a job was in commit %d of those that followed", commits)
		}
		before := stored
		for range 10 * maxOps { // as many again that go ahead
			wg.Go(func() {
				if _, err := s.Claim(t.Context(), []string{"nowhere"}, 1, noon); err != nil {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		for range 5 {
			let <- nil
			synctest.Wait()
		}
		if got, least := stored-before, 3*maxOps/(maxAhead+1); got < least {
			t.Errorf("beside others that go ahead %d jobs were stored by 5 commits, at least %d expected", got, least)
		}
		stop = letAll(let)
		wg.Wait()
		stop()
	})
}

// TestPruneWaits checks that a Prune sees what was done before it, also if the commit of
// that is under way.
func TestPruneWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, s, let := held(t)
		stop := letAll(let)
		j := started(t, s)
		stop()
		var wg sync.WaitGroup
		wg.Go(func() { applied(t, s, about(j, store.End)) })
		synctest.Wait()
		wg.Go(func() {
			later := noon.Add(time.Hour)
			if did, err := s.Prune(t.Context(), store.Retention{EndedBefore: later}, later); err != nil || did.Jobs != 1 {
				t.Errorf("%+v, %v", did, err)
			}
		})
		synctest.Wait()
		defer letAll(let)()
		wg.Wait()
	})
}

// TestScansKeepOthersWaitingForOne: while very many operations wait each of which needs a group of its own, another one waits for those under
// way, and not for all of them.
func TestScansKeepOthersWaitingForOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, s, let := held(t)
		var scans, other sync.WaitGroup
		for range 100 {
			scans.Go(func() {
				if _, err := s.ForgetDrift(t.Context(), "nothing", store.Operation{ID: harp.NewID(), Time: noon}); !errors.Is(err, harp.ErrNotFound) {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		answered := make(chan error, 1)
		other.Go(func() {
			_, err := s.Submit(t.Context(), []store.Submission{call("h")}, noon)
			answered <- err
		})
		synctest.Wait()
		for n := 0; len(answered) == 0; n++ {
			if n == 4 {
				t.Errorf("a call is not stored after %d commits of others", n)
				break
			}
			let <- nil
			synctest.Wait()
		}
		defer letAll(let)()
		scans.Wait()
		other.Wait()
		if err := <-answered; err != nil {
			t.Error(err)
		}
	})
}

// TestOverlap has many at work on few jobs while commits take their time, and checks
// that what is there in the end fits together, as if one had come after the other.
func TestOverlap(t *testing.T) {
	for seed := range uint64(20) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { overlap(t, seed) })
		})
	}
}

func overlap(t *testing.T, seed uint64) {
	e := newTrial()
	s := opened(t, e, Options{})
	s.SetGate("h", store.Gate{Open: true, Most: 1 << 20})
	slow := rand.New(rand.NewPCG(seed, 1))
	e.onCommit = func([]Write) error {
		time.Sleep(time.Duration(slow.IntN(5)) * time.Millisecond)
		return nil
	}
	calls := make([]store.Submission, 16)
	for n := range calls {
		calls[n] = call("h")
		calls[n].Job.Labels = map[string]string{"n": fmt.Sprint(n)}
		calls[n].Request.Request = make([]byte, 1+n%3*pieceSize)
		if n%2 == 0 {
			calls[n].Job.Queue, calls[n].Job.Concurrency = harp.Value("q"), 2
		}
	}
	var wg sync.WaitGroup
	for worker := range uint64(24) {
		r := rand.New(rand.NewPCG(seed, worker+2))
		wg.Go(func() {
			for range 40 {
				c := calls[r.IntN(len(calls))]
				time.Sleep(time.Duration(r.IntN(3)) * time.Millisecond)
				disturb(t, s, r, c)
			}
		})
	}
	wg.Wait()
	fits(t, e, s)
}

// disturb does something with a job, which may be refused.
func disturb(t *testing.T, s *Store, r *rand.Rand, c store.Submission) {
	j, err := s.Job(t.Context(), c.Job.ID)
	if err != nil {
		_, err = s.Submit(t.Context(), []store.Submission{c}, noon)
	} else {
		switch kinds := []store.Kind{store.Started, store.End, store.CancelReq, store.Silent}; r.IntN(4) {
		case 0:
			_, _ = s.Append(t.Context(), store.Append{ // may be of another attempt, or over
				ID: j.ID, Attempt: j.Attempt, Fence: j.Fence, First: uint64(r.IntN(4)), Arrived: noon,
				Records: []harp.Record{{Value: make(harp.Value, r.IntN(2*pieceSize))}},
			})
		case 1:
			_, err = s.Prune(t.Context(), store.Retention{EndedBefore: noon.Add(time.Hour)}, noon.Add(time.Hour))
		default:
			tr := about(j, kinds[r.IntN(len(kinds))])
			tr.Event.Value = make(harp.Value, r.IntN(2*pieceSize))
			_, err = s.Apply(t.Context(), tr)
		}
	}
	if err != nil {
		t.Error(err)
	}
}

// fits checks what is stored against itself, and against what a store makes of it that
// is opened anew.
func fits(t *testing.T, e *trial, s *Store) {
	t.Helper()
	if got, want := s.stored.Load(), e.keptBytes(t, s); got != want {
		t.Errorf("%d bytes are counted, there are %d", got, want)
	}
	page, err := s.List(t.Context(), store.Filter{Limit: 1000}, "")
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	for _, j := range page.Jobs {
		keys := entries(j)
		if j.State.Ended() {
			keys = append(keys, endedKey(j), append(indexKey(byEnded), j.ID...))
		}
		for _, key := range keys {
			want = append(want, string(key))
		}
	}
	var got []string
	for item := range e.items() {
		switch {
		case item.Key[0] != prefixIndex, item.Key[1] == byPruned:
		case item.Key[1] == byEnded:
			all, err := openEnded(item)
			if err != nil {
				t.Fatal(err)
			}
			for _, one := range all {
				got = append(got, string(append(indexKey(byEnded), one.id.String()...)))
			}
		default:
			got = append(got, string(item.Key))
		}
	}
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("%d entries of indexes for %d jobs, not the %d that they have", len(got), len(page.Jobs), len(want))
	}
	anew := opened(t, e, Options{})
	had, _, err := s.ListQueues(t.Context(), "", 10)
	if err != nil {
		t.Fatal(err)
	}
	has, _, err := anew.ListQueues(t.Context(), "", 10)
	if err != nil {
		t.Fatal(err)
	}
	if fmt.Sprint(had) != fmt.Sprint(has) {
		t.Errorf("queues are %+v, and opened anew %+v", had, has)
	}
}
