package rows

import (
	"errors"
	"iter"
	"sync"

	"github.com/harpcaller/harp/store"
)

// maxCachedEvents is about how many bytes of events are kept at hand, as they are stored.
const maxCachedEvents = 1 << 20

// cachedEvent is an event that was read from its row.
type cachedEvent struct {
	no   uint64
	size int // of its row
	row  eventRow
}

// eventCache is the events that were committed last, so that one read of the engine serves
// all that follow the feed. Readers fill it: without any it costs nothing. What it holds
// is not changed any more.
type eventCache struct {
	mu     sync.Mutex
	last   uint64        // guarded by mu: number of the last event that was looked at
	events []cachedEvent // guarded by mu: without a gap, up to last
	size   int           // guarded by mu: bytes of events
}

// cachedAfter returns the events after a number; false if it has to be looked for in
// the engine.
func (s *Store) cachedAfter(after uint64) (iter.Seq2[cachedEvent, error], bool) {
	_, committed := s.feed.bounds()
	c := &s.feed.cache
	c.mu.Lock()
	defer c.mu.Unlock()
	if after < committed && c.last < committed {
		if c.last+store.MaxExamined < committed {
			c.last, c.events, c.size = max(after, c.last), nil, 0
		}
		if c.last+store.MaxExamined < committed || s.view(c.fillLocked) != nil {
			return nil, false
		}
	}
	var events []cachedEvent
	if after < c.last {
		behind := c.last - after
		if behind > uint64(len(c.events)) {
			return nil, false
		}
		events = c.events[uint64(len(c.events))-behind:]
	}
	return func(yield func(cachedEvent, error) bool) {
		for _, e := range events {
			if !yield(e, nil) {
				return
			}
		}
	}, true
}

// fillLocked adds what a view has behind the last event and drops the oldest beyond
// latestMost. Errors: the engine's.
func (c *eventCache) fillLocked(snap Snapshot) error {
	for e, err := range decoded(eventsAfter(snap, c.last)) {
		if errors.Is(err, ErrDamaged) {
			c.last, c.events, c.size = e.no, nil, 0
			continue
		}
		if err != nil {
			return err
		}
		if e.no != c.last+1 { // what came between was pruned
			c.events, c.size = nil, 0
		}
		c.last, c.events, c.size = e.no, append(c.events, e), c.size+e.size
	}
	drop := 0
	for ; c.size > maxCachedEvents; drop++ {
		c.size -= c.events[drop].size
	}
	c.events = c.events[drop:]
	return nil
}

// decoded yields the events of rows, with errors as eventsAfter.
func decoded(facts iter.Seq2[storedEvent, error]) iter.Seq2[cachedEvent, error] {
	return func(yield func(cachedEvent, error) bool) {
		for f, err := range facts {
			e := cachedEvent{no: f.no, size: len(f.row)}
			if err == nil {
				err = decode(f.row, &e.row)
			}
			if !yield(e, err) || err != nil && !errors.Is(err, ErrDamaged) {
				return
			}
		}
	}
}
