package dispatcher

import (
	"context"
	"sync"
	"time"

	"github.com/harpcaller/harp"
)

const (
	// followerPause is how long the feed pauses for each that follows it, after it has
	// woken them all: so they take a bounded part of the time, however many they are.
	followerPause = 100 * time.Microsecond

	maxFeedPause = time.Second

	// manyEvents in a page are worth answering during a pause.
	manyEvents = 100
)

// feed is those that wait for events. All of them are woken by a commit, and then not
// before a pause is over.
type feed struct {
	mu      sync.Mutex
	waiting int           // guarded by mu: requests that may wait
	changed chan struct{} // guarded by mu: closed when they are woken
	resumed chan struct{} // guarded by mu: closed when the pause is over; nil: there is none
}

// signals are what is closed when there are events, and when the pause is over: nil if
// there is none.
func (f *feed) signals() (changed, resumed <-chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.changed, f.resumed
}

func (f *feed) addWaiting(n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.waiting += n
}

// resume ends the pause.
func (f *feed) resume() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.resumeLocked()
}

func (f *feed) resumeLocked() {
	if f.resumed != nil {
		close(f.resumed)
		f.resumed = nil
	}
}

// wakeWaiting wakes all that wait and begins the pause that it returns: none for one alone.
func (f *feed) wakeWaiting() time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	close(f.changed)
	f.changed = make(chan struct{})
	f.resumeLocked()
	if f.waiting < 2 {
		return 0
	}
	f.resumed = make(chan struct{})
	return min(time.Duration(f.waiting)*followerPause, maxFeedPause)
}

// feedLoop wakes those that follow the feed when there are events.
func (d *Dispatcher) feedLoop() {
	for changed := d.store.Changed(); ; {
		select {
		case <-changed:
		case <-d.ctx.Done():
			return
		}
		changed = d.store.Changed() // before they are woken: none misses what follows
		pause := d.feed.wakeWaiting()
		if pause == 0 {
			continue
		}
		select {
		case <-time.After(pause):
		case <-d.ctx.Done():
			return
		}
		select {
		case <-changed: // they are woken again at once
		default:
			d.feed.resume()
		}
	}
}

// Events implements harp.EventService. What a commit has woken is answered at once; who
// asks again during the pause that follows is answered after it, with all that has
// happened by then.
func (s *service) Events(ctx context.Context, f harp.EventFilter, wait bool) (harp.EventPage, error) {
	return request(s, ctx, func(ctx context.Context) (harp.EventPage, error) {
		for _, what := range f.Types {
			if err := harp.CheckEventType("types", what); err != nil {
				return harp.EventPage{}, err
			}
		}
		if !wait {
			if err := reserveAnswer(ctx, answerPrice); err != nil {
				return harp.EventPage{}, err
			}
			return s.d.store.Events(ctx, f, pageBytes)
		}
		s.d.feed.addWaiting(1)
		defer s.d.feed.addWaiting(-1)
		woken := false
		for {
			changed, resumed := s.d.feed.signals()
			if err := reserveAnswer(ctx, answerPrice); err != nil {
				return harp.EventPage{}, err
			}
			page, err := s.d.store.Events(ctx, f, pageBytes)
			switch n := len(page.Events); {
			case err != nil, n >= manyEvents, n > 0 && (woken || resumed == nil):
				return page, err
			case n > 0:
				changed = resumed
			case page.Cursor != f.After && f.After != harp.EventsFromNow:
				f.After = page.Cursor
				continue
			default:
				f.After = page.Cursor
			}
			page.Events = nil
			if err := reserveAnswer(ctx, 0); err != nil {
				return harp.EventPage{}, err
			}
			select {
			case <-changed:
				woken = true
			case <-ctx.Done():
				return harp.EventPage{}, context.Cause(ctx)
			}
		}
	})
}
