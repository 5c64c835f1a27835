package dispatcher_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/store"
)

// feedStore is a store that counts how often its feed is read.
type feedStore struct {
	store.Store
	reads atomic.Int64
}

func (s *feedStore) Events(ctx context.Context, f harp.EventFilter, maxBytes int) (harp.EventPage, error) {
	s.reads.Add(1)
	return s.Store.Events(ctx, f, maxBytes)
}

// follower is what one that follows the feed has been told.
type follower struct {
	mu    sync.Mutex
	hosts []string  // guarded by mu: of the events
	at    time.Time // guarded by mu: of the last
}

func (f *follower) told() ([]string, time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.hosts), f.at
}

// followed runs body with so many followers of a feed, every second one of a host where
// nothing happens. note lets an event about a host happen.
func followed(t *testing.T, followers int, body func(reads *atomic.Int64, note func(host string), told []*follower)) {
	counting := new(feedStore)
	wrap := func(st store.Store) store.Store { counting.Store = st; return counting }
	onStore(t, wrap, func(t *testing.T, sys *system) {
		ctx, leave := context.WithCancel(t.Context())
		var following sync.WaitGroup
		defer following.Wait()
		defer leave()
		var told []*follower
		for n := range followers {
			filter, f := harp.EventFilter{Host: "nowhere"}, new(follower)
			if n%2 == 0 {
				filter.Host, told = "", append(told, f)
			}
			following.Go(func() {
				for e, err := range sys.caller.Events(ctx, filter) {
					if err != nil {
						return
					}
					f.mu.Lock()
					f.hosts, f.at = append(f.hosts, e.Host), time.Now()
					f.mu.Unlock()
				}
			})
		}
		synctest.Wait()
		body(&counting.reads, func(host string) {
			if err := counting.AppendEvents(ctx, harp.Event{Type: harp.EventHostForgot, Host: host}); err != nil {
				t.Error(err)
			}
			synctest.Wait()
		}, told)
	})
}

// However many follow the feed, many commits in no time make each of them read it a few
// times, and none of them misses, repeats or reorders an event.
func TestEachCommitWakesEveryFollower(t *testing.T) {
	const followers, commits = 400, 100
	followed(t, followers, func(reads *atomic.Int64, note func(string), told []*follower) {
		before := reads.Load()
		var want []string
		for n := range commits {
			want = append(want, fmt.Sprint("h", n))
			note(want[n])
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if n := reads.Load() - before; n > 8*followers {
			t.Errorf("%d commits in no time made %d followers read the feed %d times", commits, followers, n)
		}
		for _, f := range told {
			if hosts, _ := f.told(); !slices.Equal(hosts, want) {
				t.Fatalf("a follower was told %v", hosts)
			}
		}

		// what happens now and then is told at once
		now := time.Now()
		note("late")
		for _, f := range told {
			if hosts, at := f.told(); hosts[len(hosts)-1] != "late" || !at.Equal(now) {
				t.Fatalf("after a while of nothing a follower was told %s, %v late", hosts[len(hosts)-1], at.Sub(now))
			}
		}
	})
}

// One that follows alone is told everything at once.
func TestALoneFollowerDoesNotWait(t *testing.T) {
	followed(t, 1, func(_ *atomic.Int64, note func(string), told []*follower) {
		now := time.Now()
		for n := range 100 {
			note(fmt.Sprint("h", n))
			if hosts, at := told[0].told(); len(hosts) != n+1 || !at.Equal(now) {
				t.Fatalf("after %d events it was told %v", n+1, hosts)
			}
		}
	})
}

// Who asks during the pause for what happened before it is answered when that is over,
// whether anything happens by then or not.
func TestAFollowerThatComesDuringThePause(t *testing.T) {
	onStore(t, func(st store.Store) store.Store { return st }, func(t *testing.T, sys *system) {
		ctx, leave := context.WithTimeout(t.Context(), time.Minute)
		defer leave()
		var following sync.WaitGroup
		defer following.Wait()
		for range 2 {
			following.Go(func() { _, _ = sys.caller.EventsPage(ctx, harp.EventFilter{After: harp.EventsFromNow}, true) })
		}
		synctest.Wait()
		sys.agent("web01", greeter) // which is told
		page, err := sys.caller.EventsPage(ctx, harp.EventFilter{After: harp.EventsFromStart}, true)
		if err != nil || len(page.Events) == 0 {
			t.Errorf("it is told %v, %v", page.Events, err)
		}
	})
}
