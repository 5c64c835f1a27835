package rows

import (
	"errors"
	"iter"
	"sync"

	"github.com/harpcaller/harp/store"
)

// latestMost is about how many bytes of events are kept at hand, as they are stored.
const latestMost = 1 << 20

// toldEvent is an event that was read from its row.
type toldEvent struct {
	no   uint64
	size int // of its row
	row  eventRow
}

// latest is the events that were committed last, so that one read of the engine serves
// all that follow the feed. Readers fill it: without any it costs nothing. What it holds
// is not changed any more.
type latest struct {
	mu     sync.Mutex
	last   uint64      // guarded by mu: number of the last event that was looked at
	events []toldEvent // guarded by mu: without a gap, up to last
	size   int         // guarded by mu: bytes of events
}

// latestAfter returns the events after a number; false if it has to be looked for in
// the engine.
func (s *Store) latestAfter(after uint64) (iter.Seq2[toldEvent, error], bool) {
	_, committed := s.feed.bounds()
	l := &s.feed.latest
	l.mu.Lock()
	defer l.mu.Unlock()
	if after < committed && l.last < committed {
		if l.last+store.MaxExamined < committed {
			l.last, l.events, l.size = max(after, l.last), nil, 0
		}
		if l.last+store.MaxExamined < committed || s.view(l.fillLocked) != nil {
			return nil, false
		}
	}
	var events []toldEvent
	if after < l.last {
		behind := l.last - after
		if behind > uint64(len(l.events)) {
			return nil, false
		}
		events = l.events[uint64(len(l.events))-behind:]
	}
	return func(yield func(toldEvent, error) bool) {
		for _, e := range events {
			if !yield(e, nil) {
				return
			}
		}
	}, true
}

// fillLocked adds what a view has behind the last event and drops the oldest beyond
// latestMost. Errors: the engine's.
func (l *latest) fillLocked(snap Snapshot) error {
	for e, err := range decoded(eventsAfter(snap, l.last)) {
		if errors.Is(err, ErrDamaged) {
			l.last, l.events, l.size = e.no, nil, 0
			continue
		}
		if err != nil {
			return err
		}
		if e.no != l.last+1 { // what came between was pruned
			l.events, l.size = nil, 0
		}
		l.last, l.events, l.size = e.no, append(l.events, e), l.size+e.size
	}
	drop := 0
	for ; l.size > latestMost; drop++ {
		l.size -= l.events[drop].size
	}
	l.events = l.events[drop:]
	return nil
}

// decoded yields the events of rows, with errors as eventsAfter.
func decoded(facts iter.Seq2[fact, error]) iter.Seq2[toldEvent, error] {
	return func(yield func(toldEvent, error) bool) {
		for f, err := range facts {
			e := toldEvent{no: f.no, size: len(f.row)}
			if err == nil {
				err = decode(f.row, &e.row)
			}
			if !yield(e, err) || err != nil && !errors.Is(err, ErrDamaged) {
				return
			}
		}
	}
}
