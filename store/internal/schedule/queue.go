package schedule

import (
	"iter"
	"maps"
	"math"
	"slices"
	"sort"
	"time"

	"github.com/tidwall/btree"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/msgpack"
)

// A Queue is the slots of a queue and the jobs that wait for them. Each host has one without
// name and without limit, for its jobs in no queue.
type Queue struct {
	Name        string // canonical
	Concurrency int
	active      map[*Job]struct{} // those that hold a slot
	Fixed       bool              // concurrency is an operator's
	Pause       *harp.QueuePause  // nil: it is not paused. What it points to stays as it is
	keeper      *holder           // whose it is, paused or of a concurrency that was said; nil: nobody's
	through     uint64            // the mark: jobs up to this number count as cancelled
	Marks       []Mark            // of the cancels that a job may be covered by, ascending
	jobs        int               // that have not ended
	marked      int               // of them, those that the mark covers

	waiting    *btree.BTreeG[*Job] // all that wait, whatever for
	hostQueues map[*host]*hostQueue
	heads      *btree.BTreeG[*hostQueue] // in which to look for the next to start
	parked     map[*hostQueue]struct{}   // out of their hosts' ready queues, for this queue is full

	// since says of each of the upper free slots since when at least so many
	// have been free; the lower ones, up to floor, always were. floor is below 0
	// when more are taken than there are.
	floor int
	since []freedSlots

	shortest int64 // wait that any of its jobs has had
	rearm    Alarm
	fill     Alarm
	unpause  Alarm
}

type freedSlots struct {
	at  int64
	seq uint64
}

func newQueue(name string, concurrency int) *Queue {
	q := &Queue{
		Name: name, Concurrency: concurrency, floor: concurrency,
		active: map[*Job]struct{}{}, waiting: entryTree(), hostQueues: map[*host]*hostQueue{}, heads: hostQueueTree(), parked: map[*hostQueue]struct{}{},
		shortest: math.MaxInt64,
	}
	q.rearm = Alarm{Kind: AlarmRearm, Queue: q}
	q.fill = Alarm{Kind: AlarmFill, Queue: q}
	q.unpause = Alarm{Kind: AlarmUnpause, Queue: q}
	return q
}

// OpenQueue returns the queue of a name, new with this concurrency if there is none.
func (s *Schedule) OpenQueue(name string, concurrency int) *Queue {
	q := s.queues[name]
	if q == nil {
		q = newQueue(name, max(concurrency, 1))
		s.queues[name] = q
		s.names.Set(name)
	}
	return q
}

// A Mark is one cancel of a queue: of its jobs up to a submit number. Its keys are those of rows.
type Mark struct {
	Through uint64         `msgpack:"no"`
	By      harp.Principal `msgpack:"by"`
	At      time.Time      `msgpack:"at"`
}

// Queue returns the queue of a name; nil if there is none.
func (s *Schedule) Queue(name string) *Queue { return s.queues[name] }

// Queues yields all queues, in no order.
func (s *Schedule) Queues() iter.Seq[*Queue] { return maps.Values(s.queues) }

// SetMarks says which cancels of the queue were made before.
func (q *Queue) SetMarks(marks []Mark) {
	if q.Marks = marks; len(marks) > 0 {
		q.through = marks[len(marks)-1].Through
	}
}

// Through is the highest number that a cancel covers; 0: none.
func (q *Queue) Through() uint64 { return q.through }

// DropMarks forgets the cancels of a queue when no job is covered any more; false if there is
// nothing to forget.
func (q *Queue) DropMarks() bool {
	if q.through == 0 || q.marked > 0 {
		return false
	}
	q.through, q.Marks = 0, nil
	return true
}

// Len is how many jobs of the queue wait or hold a slot.
func (q *Queue) Len() int { return q.waiting.Len() + len(q.active) }

// Active lists the jobs that hold a slot, up to a submit number.
func (q *Queue) Active(through uint64) []ID {
	return idsOf(slices.DeleteFunc(slices.Collect(maps.Keys(q.active)), func(e *Job) bool { return e.No > through }))
}

// Unmarked yields the jobs of a queue that no cancel covers, in no order.
func (q *Queue) Unmarked() iter.Seq[*Job] {
	return func(yield func(*Job) bool) {
		goesOn := true
		q.waiting.Scan(func(e *Job) bool {
			goesOn = yield(e)
			return goesOn
		})
		for e := range q.active {
			if !goesOn {
				return
			}
			if !e.IsMarked() {
				goesOn = yield(e)
			}
		}
	}
}

// NextInQueue is the first job of a queue that may start, nil if none.
func (s *Schedule) NextInQueue(q *Queue, now int64) *Job { return q.nextJob(s, now) }

// FillLater has the free slots of a queue filled by the next Advance.
func (s *Schedule) FillLater(q *Queue, now int64) { s.agenda.set(&q.fill, now) }

// FillFor has what may start by the slot of a job that came free, and by its attempt if the host was full, be started by the next
// Advance.
func (s *Schedule) FillFor(e *Job, hostWasFull bool) {
	if e.Queue.waiting.Len() > 0 {
		s.FillLater(e.Queue, max(s.Latest, 1))
	}
	if hostWasFull {
		s.agenda.set(&e.host.holds.review, atOnce)
	}
}

// IsGone reports whether the queue has no job that has not ended, though rows of
// some may have to say so yet, and nothing that an operator has said of it.
func (q *Queue) IsGone() bool { return q.IsIdle() && q.Pause == nil && !q.Fixed }

// IsIdle reports whether no job of the queue waits or holds a slot.
func (q *Queue) IsIdle() bool { return q.Len() == 0 }

// Reopen makes a queue that was gone as good as new.
func (q *Queue) Reopen(concurrency int) {
	q.Concurrency, q.floor, q.since, q.Fixed = concurrency, concurrency, nil, false
}

// resize gives the queue another number of slots; fewer than are taken, and the next
// to come free are gone. Its host queues have noticed before which are free. 0 leaves it those
// that it has, until it is made anew.
func (q *Queue) resize(concurrency int) {
	if concurrency == 0 {
		q.Fixed = false
		return
	}
	q.floor += concurrency - q.Concurrency
	q.Concurrency, q.Fixed = concurrency, true
}

func (q *Queue) unlimited() bool { return q.Name == "" }

// free is how many more of its jobs may start.
func (q *Queue) free() int {
	switch {
	case q.unlimited():
		return math.MaxInt
	case q.Pause != nil:
		return 0
	}
	return max(0, q.Concurrency-len(q.active))
}

func (q *Queue) takeSlot(e *Job) {
	q.active[e] = struct{}{}
	if n := len(q.since); n > 0 {
		q.since = q.since[:n-1]
	} else {
		q.floor--
	}
}

func (q *Queue) freeSlot(e *Job, now int64, seq uint64) {
	delete(q.active, e)
	if !q.unlimited() {
		q.since = append(q.since, freedSlots{now, seq})
	}
}

// freeSince is since when at least n slots have been free; n is at most free.
func (q *Queue) freeSince(n int) freedSlots {
	if q.unlimited() || n <= q.floor {
		return freedSlots{at: math.MinInt64}
	}
	return q.since[n-q.floor-1]
}

// freeBefore is how many slots have been free since before a change.
func (q *Queue) freeBefore(seq uint64) int {
	newer := sort.Search(len(q.since), func(n int) bool { return q.since[n].seq > seq })
	return max(0, q.floor+newer)
}

// expects notes how long a job may wait for its host.
func (q *Queue) expects(wait int64) { q.shortest = min(q.shortest, wait) }

// rearmAt sees to it that host queues which a free slot allows to start, had they a
// host, are looked at before the first of them may have waited long enough.
func (q *Queue) rearmAt(g *agenda, now int64) {
	if q.unlimited() || len(q.hostQueues) == 0 || q.shortest == math.MaxInt64 {
		return
	}
	if at := add64(now, q.shortest); q.rearm.index == 0 || at < q.rearm.at {
		g.set(&q.rearm, at)
	}
}

// nextJob is the first job of the queue that may start, nil if none.
func (q *Queue) nextJob(s *Schedule, now int64) *Job {
	for q.free() > 0 {
		l, ok := q.heads.Min()
		if !ok {
			return nil
		}
		if !l.host.mayStart() {
			q.heads.Delete(l)
			l.inHeads = false
			l.host.parked[l] = struct{}{}
			s.giveBatchSlot(l.head) // it had one while it waited for its queue
			continue
		}
		switch e := l.head; {
		case e.isLate(now):
			s.leaveHostQueue(e, now)
		case s.keepBack(e, now):
		case e.isBlocked():
			s.park(e, now)
		default:
			return e
		}
	}
	return nil
}

// isLate reports whether a job must not start any more; the agenda ends it.
func (e *Job) isLate(now int64) bool { return e.expires != 0 && e.expires <= now }

// Rearm looks at all host queues of a queue for jobs that free slots have allowed.
func (s *Schedule) Rearm(q *Queue, now int64) {
	for _, l := range q.hostQueues {
		l.allowJobs(s, now)
	}
}

// neededMarks are those of a queue's marks that cover a job which has not ended, or whose
// row does not say so yet.
func (s *Schedule) neededMarks(q *Queue) []Mark {
	marks := q.Marks
	if slices.ContainsFunc(s.cancelled, func(d *cancelledQueue) bool { return d.queue == q }) {
		return marks
	}
	needed := map[uint64]bool{}
	for e := range q.active {
		if n := slices.IndexFunc(marks, func(m Mark) bool { return e.No <= m.Through }); n >= 0 {
			needed[marks[n].Through] = true
		}
	}
	return slices.DeleteFunc(marks, func(m Mark) bool { return !needed[m.Through] })
}

// Status is the queue as it is shown.
func (q *Queue) Status() harp.QueueStatus {
	s := harp.QueueStatus{
		Name: harp.Value(q.Name), Concurrency: q.Concurrency,
		Running: len(q.active), Waiting: q.waiting.Len(), Paused: q.Pause != nil,
	}
	if q.Pause != nil {
		s.Pause = new(*q.Pause)
	}
	return s
}

// QueueNames lists up to n names of queues after one, in their order, and whether
// there are more.
func (s *Schedule) QueueNames(after string, n int) (names []string, more bool) {
	s.names.Ascend(after, func(name string) bool {
		if name == after || s.queues[name].IsGone() {
			return true
		}
		more = len(names) == n
		if !more {
			names = append(names, name)
		}
		return !more
	})
	return names, more
}

// SetPause says why nothing of a queue starts, and until when: then an alarm rings. nil: it is not paused.
func (s *Schedule) SetPause(q *Queue, p *harp.QueuePause) {
	if q.Pause = p; p == nil || p.Until.IsZero() {
		s.agenda.clear(&q.unpause)
		return
	}
	s.agenda.set(&q.unpause, msgpack.Nanos(p.Until))
}

// ChangeQueue pauses a queue or lets it go on, and gives it another concurrency. Its host queues
// notice first what they had, and then what they have. What may start now is started by
// Advance, which is due at once: whoever asked for the change may have left by then.
func (s *Schedule) ChangeQueue(q *Queue, c harp.QueueChange, by harp.Principal, now int64) {
	s.Rearm(q, now)
	switch {
	case c.Paused == nil:
	case *c.Paused:
		until := msgpack.FromNanos(msgpack.Nanos(c.Until))
		s.SetPause(q, &harp.QueuePause{By: by, Reason: c.Reason, Since: msgpack.FromNanos(now), Until: until})
	default:
		s.SetPause(q, nil)
	}
	if c.Concurrency != nil {
		q.resize(*c.Concurrency)
	}
	s.Rearm(q, now)
	if q.free() > 0 {
		unparkAll(q.parked)
	}
	if q.nextJob(s, now) != nil {
		s.agenda.set(&q.fill, now)
	}
}
