package dispatcher_test

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/agent"
	"github.com/harpcaller/harp/dispatcher"
	"github.com/harpcaller/harp/internal/needs"
)

// ticker offers a procedure that emits a numbered record each interval, for a time.
func ticker(a *agent.Agent) {
	type args struct {
		Every time.Duration `json:"every"`
		For   time.Duration `json:"for"`
	}
	agent.HandleStream(a, harp.NewStreamProc[args, int, int]("tick"), func(ctx context.Context, in args, emit func(int) error) (int, error) {
		tick := time.NewTicker(in.Every)
		defer tick.Stop()
		over := time.After(in.For)
		for i := 0; ; i++ {
			if err := emit(i); err != nil {
				return i, err
			}
			select {
			case <-tick.C:
			case <-over:
				return i + 1, nil
			case <-ctx.Done():
				return i, ctx.Err()
			}
		}
	})
}

// follow reads a job's records from a number on and checks that there is no gap, no
// repeat and nothing missing at the end.
func follow(t *testing.T, job *harp.Job, from uint64) {
	next := from
	for r, err := range job.Follow(t.Context(), harp.Since(from)) {
		if err != nil {
			t.Errorf("follow from %d at %d: %v", from, next, err)
			return
		}
		var i uint64
		if err := r.Value.Decode(&i); err != nil || r.Seq != next || i != next {
			t.Errorf("follow from %d: record %d holds %d, want %d, %v", from, r.Seq, i, next, err)
			return
		}
		next++
	}
	s, err := job.Status(t.Context())
	if err != nil || s.State != harp.StateSucceeded || next < s.Records {
		t.Errorf("follow from %d ended at %d of %d, %s, %v", from, next, s.Records, s.State, err)
	}
}

// followAll runs streams that emit a record each millisecond and followers that
// attach at random moments.
func followAll(t *testing.T, sys *system, streams, followers int, d time.Duration) {
	sys.agent("web01", ticker)
	var all sync.WaitGroup
	for range streams {
		job := must[*harp.Job](t)(sys.caller.Host("web01").Call(t.Context(), "tick", harp.Args{"every": time.Millisecond, "for": d}))
		for range followers {
			all.Go(func() {
				// Attaching at random moments is what is tested here.
				attach := time.NewTimer(rand.N(d))
				defer attach.Stop()
				<-attach.C
				s, err := job.Status(t.Context())
				if err != nil {
					t.Error(err)
					return
				}
				follow(t, job, rand.Uint64N(s.Records+1))
			})
		}
	}
	all.Wait()
}

func TestFollowersOfFastStreamsMissNothing(t *testing.T) {
	d := 5 * time.Second
	if needs.RaceDetector { // which makes a million records a second ten times as much work
		d = time.Second / 2
	}
	for _, w := range []wiring{embedded, loopback} {
		t.Run(string(w), func(t *testing.T) {
			followAll(t, newSystem(t, w, nil, dispatcher.Config{}), 10, 100, d)
		})
	}
}

func TestAThousandFollowersInVirtualTime(t *testing.T) {
	d := 200 * time.Millisecond
	if needs.RaceDetector {
		d /= 5
	}
	for _, w := range []wiring{embedded, inMemory} {
		t.Run(string(w), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				followAll(t, newSystem(t, w, nil, dispatcher.Config{}), 1, 1000, d)
			})
		})
	}
}

// A follower attaches the moment the job ends: it sees all and no false error.
func TestFollowingAJobAsItEnds(t *testing.T) {
	everyWiring(t, func(t *testing.T, sys *system) {
		sys.agent("web01", greeter)
		var all sync.WaitGroup
		for range 50 {
			all.Go(func() {
				job, err := countProc.Call(t.Context(), sys.caller.Host("web01"), countArgs{3})
				if err != nil {
					t.Error(err)
					return
				}
				follow(t, job, 0)
			})
		}
		all.Wait()
	})
}

// Who stops reading in the middle frees what it held, and reads anew next time.
func TestBreakingOffAndReadingAnew(t *testing.T) {
	everyWiring(t, func(t *testing.T, sys *system) {
		sys.agent("web01", greeter)
		job := must[*harp.Job](t)(countProc.Call(t.Context(), sys.caller.Host("web01"), countArgs{10}))
		seq := job.Follow(t.Context(), harp.Since(0))
		for range 3 {
			n := 0
			for r, err := range seq {
				if err != nil || r.Seq != uint64(n) {
					t.Fatalf("record %+v, %v", r, err)
				}
				if n++; n == 5 {
					break
				}
			}
		}
	})
}
