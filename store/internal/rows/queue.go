package rows

import (
	"math"

	"github.com/tidwall/btree"
)

// queue is the slots of a queue and who waits for them. Each host has one without
// name and without limit, for its jobs in no queue.
type queue struct {
	name        string // canonical
	concurrency int
	active      map[*entry]struct{} // those that hold a slot
	fixed       bool                // concurrency is an operator's
	paused      bool
	through     uint64 // the mark: jobs up to this number count as cancelled
	marks       []markRow
	jobs        int // that have not ended
	marked      int // of them, those that the mark covers

	waiting *btree.BTreeG[*entry] // all that wait, whatever for
	lines   map[*host]*line
	heads   *btree.BTreeG[*line] // in which to look for the next to start
	parked  map[*line]struct{}   // out of their hosts' ready lines, for this queue is full

	// since says of each of the upper free slots since when at least so many
	// have been free; the lower ones, up to floor, always were. floor is below 0
	// when more are taken than there are.
	floor int
	since []freed

	shortest int64 // wait that any of its jobs has had
	rearm    alarm
	fill     alarm
}

type freed struct {
	at  int64
	seq uint64
}

func newQueue(name string, concurrency int) *queue {
	q := &queue{
		name: name, concurrency: concurrency, floor: concurrency,
		active: map[*entry]struct{}{}, waiting: entryTree(), lines: map[*host]*line{}, heads: lineTree(), parked: map[*line]struct{}{},
		shortest: math.MaxInt64,
	}
	q.rearm = alarm{kind: alarmRearm, queue: q}
	q.fill = alarm{kind: alarmFill, queue: q}
	return q
}

// queue returns the queue of a name, new with this concurrency if there is none.
func (s *schedule) queue(name string, concurrency int) *queue {
	q := s.queues[name]
	if q == nil {
		q = newQueue(name, max(concurrency, 1))
		s.queues[name] = q
		s.names.Set(name)
	}
	return q
}

// row is the queue as its row has it.
func (q *queue) row() queueRow {
	return queueRow{Concurrency: q.concurrency, Fixed: q.fixed, Paused: q.paused, Marks: q.marks}
}

// isGone reports whether the queue has no job that has not ended, though rows of
// some may have to say so yet, and nothing that an operator has said of it.
func (q *queue) isGone() bool { return q.isIdle() && !q.paused && !q.fixed }

// isIdle reports whether no job of the queue waits or holds a slot.
func (q *queue) isIdle() bool { return q.waiting.Len() == 0 && len(q.active) == 0 }

// reopen makes a queue that was gone as good as new.
func (q *queue) reopen(concurrency int) {
	q.concurrency, q.floor, q.since, q.fixed = concurrency, concurrency, nil, false
}

// resize gives the queue another number of slots; fewer than are taken, and the next
// to come free are gone. Its lines have noticed before which are free. 0 leaves it those
// that it has, until it is made anew.
func (q *queue) resize(concurrency int) {
	if concurrency == 0 {
		q.fixed = false
		return
	}
	q.floor += concurrency - q.concurrency
	q.concurrency, q.fixed = concurrency, true
}

func (q *queue) unlimited() bool { return q.name == "" }

// free is how many more of its jobs may start.
func (q *queue) free() int {
	switch {
	case q.unlimited():
		return math.MaxInt
	case q.paused:
		return 0
	}
	return max(0, q.concurrency-len(q.active))
}

func (q *queue) take(e *entry) {
	q.active[e] = struct{}{}
	if n := len(q.since); n > 0 {
		q.since = q.since[:n-1]
	} else {
		q.floor--
	}
}

func (q *queue) give(e *entry, now int64, seq uint64) {
	delete(q.active, e)
	if !q.unlimited() {
		q.since = append(q.since, freed{now, seq})
	}
}

// freeSince is since when at least n slots have been free; n is at most free.
func (q *queue) freeSince(n int) freed {
	if q.unlimited() || n <= q.floor {
		return freed{at: math.MinInt64}
	}
	return q.since[n-q.floor-1]
}

// expects notes how long a job may wait for its host.
func (q *queue) expects(wait int64) { q.shortest = min(q.shortest, wait) }

// rearmAt sees to it that lines which a free slot allows to start, had they a
// host, are looked at before the first of them may have waited long enough.
func (q *queue) rearmAt(g *agenda, now int64) {
	if q.unlimited() || len(q.lines) == 0 || q.shortest == math.MaxInt64 {
		return
	}
	if at := add64(now, q.shortest); q.rearm.index == 0 || at < q.rearm.at {
		g.set(&q.rearm, at)
	}
}

// next is the first job of the queue that may start, nil if none.
func (q *queue) next(s *schedule, now int64) *entry {
	for q.free() > 0 {
		l, ok := q.heads.Min()
		if !ok {
			return nil
		}
		if !l.host.mayStart() {
			q.heads.Delete(l)
			l.inHeads = false
			l.host.parked[l] = struct{}{}
			continue
		}
		if e := l.head; !e.isLate(now) {
			return e
		}
		s.leave(l.head, now)
	}
	return nil
}

// isLate reports whether a job must not start any more; the agenda ends it.
func (e *entry) isLate(now int64) bool { return e.expires != 0 && e.expires <= now }
