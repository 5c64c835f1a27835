package rows

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/store"
)

// whileTheClockIsSet asks for something at noon and sets the clock while that waits for its
// turn.
func whileTheClockIsSet(t *testing.T, s *Store, let chan error, by time.Duration, ask func()) {
	t.Helper()
	var wg sync.WaitGroup
	for _, one := range []func(){
		func() { _, _ = s.Submit(t.Context(), []store.Submission{call("h")}, noon) }, // which is being committed
		func() { _, _ = s.Prune(t.Context(), store.Retention{}, noon) },              // which waits for that
		ask,
		func() { s.ClockSet(by) },
	} {
		wg.Go(one)
		synctest.Wait()
	}
	stop := letAll(let)
	wg.Wait()
	stop()
}

var sets = map[string]time.Duration{"forward": 48 * time.Hour, "back": -48 * time.Hour}

// TestKeyWhileTheClockIsSet: a call that has an idempotency key is stored right after the
// clock was set, at a time that was read before. The key stands for it, and it is not called
// twice for one that is there.
func TestKeyWhileTheClockIsSet(t *testing.T) {
	for what, by := range sets {
		for _, first := range []string{"the first", "the second"} {
			t.Run(what+", "+first, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					e, s, let := held(t)
					submit := func(at time.Time) string {
						c := call("h")
						c.Key, c.KeyUntil = "once", at.Add(time.Hour)
						out, err := s.Submit(t.Context(), []store.Submission{c}, at)
						if err != nil || out[0].Err != nil {
							t.Error(out, err)
							return ""
						}
						return out[0].Job.ID
					}
					var had, has string
					if first == "the second" {
						stop := letAll(let)
						had = submit(noon)
						stop()
					}
					whileTheClockIsSet(t, s, let, by, func() { has = submit(noon) })
					if had != "" && has != had {
						t.Error("it is called twice")
					}
					e.onCommit = nil
					if again := submit(noon.Add(by + time.Minute)); again != has {
						t.Error("it is called again")
					}
				})
			})
		}
	}
}

// TestPauseWhileTheClockIsSet: what lasts a time does so though that was read before the
// clock was set, and is stored right after.
func TestPauseWhileTheClockIsSet(t *testing.T) {
	for what, by := range sets {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e, s, let := held(t)
				stop := letAll(let)
				busy, silent := submitted(t, s, call("h"))[0].ID, submitted(t, s, call("away"))[0].ID
				s.SetGate("away", store.Gate{Open: true, Most: 1})
				if _, err := s.Claim(t.Context(), []string{"away"}, 1, noon); err != nil {
					t.Fatal(err)
				}
				stop()
				whileTheClockIsSet(t, s, let, by, func() {
					var wg sync.WaitGroup
					wg.Go(func() {
						out, err := s.Apply(t.Context(), store.Transition{ID: busy, Event: store.Event{
							Kind: store.NotNow, At: noon, Wake: noon.Add(time.Minute), Attempt: 1, Fence: 1,
						}})
						if err != nil || out[0].Err != nil {
							t.Error(out, err)
						}
					})
					wg.Go(func() {
						if _, err := s.Silence(t.Context(), "away", noon, noon.Add(time.Hour)); err != nil {
							t.Error(err)
						}
					})
					wg.Wait()
				})
				e.onCommit = nil
				for id, wake := range map[string]time.Time{busy: noon.Add(by + time.Minute), silent: noon.Add(by + time.Hour)} {
					j, err := s.Job(t.Context(), id)
					if err != nil || !j.WakeAt.Equal(wake) {
						t.Errorf("%s: it waits until %s, not %s; %v", j.State, j.WakeAt, wake, err)
					}
				}
				if due := s.NextDue(); !due.Equal(noon.Add(by + time.Minute)) {
					t.Errorf("what is next is due at %s", due)
				}
			})
		})
	}
}

// TestOfflineWaitWhileTheClockIsSet: a call waits for its host as long as it says.
func TestOfflineWaitWhileTheClockIsSet(t *testing.T) {
	for what, by := range sets {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e, s, let := held(t)
				s.SetGate("away", store.Gate{Reason: harp.ReasonOffline, LastHeard: noon.Add(-time.Hour)})
				c := call("away")
				c.Job.SubmitTime, c.Job.OfflineWait = noon, time.Minute
				var id string
				whileTheClockIsSet(t, s, let, by, func() { id = submitted(t, s, c)[0].ID })
				e.onCommit = nil
				if _, err := s.Advance(t.Context(), noon.Add(by+59*time.Second)); err != nil {
					t.Fatal(err)
				}
				if j, err := s.Job(t.Context(), id); err != nil || j.State != harp.StateQueued {
					t.Errorf("after 59 s it is %s, %v", j.State, err)
				}
				if due := s.NextDue(); due.After(noon.Add(by + time.Minute)) {
					t.Errorf("it is looked at again at %s", due)
				}
			})
		})
	}
}

// TestClockSetAmongRefused: on a disk without space a claim is refused, and retention waits for its
// turn, as the clock is set: that is stored by the group of the claim, in which nothing was done. The
// numbers of jobs and events go on, and all jobs are there, though the store is killed then.
func TestClockSetAmongRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, s, let := held(t)
		stop := letAll(let)
		jobs := submitted(t, s, call("h"), call("h"))
		stop()
		e.space = SpaceCritical
		var wg sync.WaitGroup
		for _, one := range []func(){
			func() { _, _ = s.Apply(t.Context(), about(jobs[0], store.CancelReq)) }, // is being committed
			func() { _, _ = s.Claim(t.Context(), []string{"h"}, 1, noon) },
			func() { _, _ = s.Prune(t.Context(), store.Retention{}, noon) },
			func() { s.ClockSet(time.Minute) },
		} {
			wg.Go(one)
			synctest.Wait()
		}
		for range 2 { // the cancel, and the group of the claim
			let <- nil
			synctest.Wait()
		}
		if _, committed := s.feed.bounds(); committed != s.feed.number {
			t.Errorf("the feed is at event %d of %d", committed, s.feed.number)
		}
		killed := newTrial()
		killed.tree = e.tree.Copy()
		stop = letAll(let)
		wg.Wait()
		stop()
		e.onCommit = nil

		s = opened(t, killed, Options{})
		if after := submitted(t, s, call("h"))[0]; after.No != jobs[1].No+1 {
			t.Errorf("job %d follows on %d", after.No, jobs[1].No)
		}
		killed.tree = killed.tree.Copy()
		s = opened(t, killed, Options{})
		if active, err := s.Active(t.Context(), "h"); err != nil || len(active) != 2 {
			t.Errorf("%d are active, %v, want 2", len(active), err)
		}
	})
}
