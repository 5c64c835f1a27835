package rows

import (
	"math"
	"sort"

	"github.com/tidwall/btree"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/store"
)

// schedule is what the rows say about the jobs that have not ended, arranged so
// that "the next job of this queue that may start" and "the next on this host" are
// found without looking at those that may not. It is the committer's, under the
// store's mutex; nothing of it is stored.
//
// The jobs of one queue that wait for one host are a [line], in the order of the
// queue. A line stands, by its first job, in two orders: its queue's heads and its
// host's ready lines. Whoever looks in one of them for a job to start and meets a
// line that the other side blocks parks it there, and it comes back when that side
// has room again: so a blocked line is met once, not at each look.
type schedule struct {
	agenda agenda
	jobs   map[id]*entry
	queues map[string]*queue
	names  *btree.BTreeG[string] // of queues
	hosts  map[string]*host
	doomed []*doom
	number uint64 // the last submit number given
	latest int64  // the latest time the dispatcher has named
	ahead  int64  // by how much the clock of those times was set since the store was made
	seq    uint64 // counts changes that lines have to notice
}

func newSchedule() *schedule {
	return &schedule{
		jobs:   map[id]*entry{},
		queues: map[string]*queue{},
		names:  btree.NewBTreeGOptions(func(a, b string) bool { return a < b }, btree.Options{NoLocks: true}),
		hosts:  map[string]*host{},
	}
}

// An entry is a job that has not ended.
type entry struct {
	id        id
	no        uint64
	procedure string
	priority  int
	queue     *queue
	host      *host
	active    bool     // holds an attempt and a slot; else it waits
	line      *line    // that it waits in; nil while its time has not come
	held      *backlog // that it waits in instead
	probes    *backlog // that it is sent for

	submitted int64
	notBefore int64
	pause     int64 // the end of its pause, as its row has it; 0: none
	pauseSet  int64 // by how much the clock was set since that was written
	wake      int64 // when its time comes, by both
	expires   int64 // 0: never
	wait      int64 // how long absence alone may hold it
	isAllowed bool  // nothing but its host is in its way,
	allowed   int64 // since then
	survives  bool  // waits for its last attempt, which must end first

	waking, expiring, leaving, losing alarm
}

// before is the order of queues.
func (e *entry) before(other *entry) bool {
	if e.priority != other.priority {
		return e.priority > other.priority
	}
	return e.no < other.no
}

func entryTree() *btree.BTreeG[*entry] {
	return btree.NewBTreeGOptions((*entry).before, btree.Options{NoLocks: true, Degree: 16})
}

// add takes a job that has not ended into the schedule: as one that waits, its time
// having come if it did until `come`, or that holds an attempt.
func (s *schedule) add(i id, j *store.Job, now, come int64) *entry {
	e := &entry{
		id: i, no: j.No, procedure: j.Procedure, priority: j.Priority, host: s.host(j.Host),
		submitted: nanos(j.SubmitTime), notBefore: nanos(j.NotBefore), expires: nanos(j.Expires), wait: int64(j.OfflineWait),
	}
	e.host.furnish()
	e.queue = e.host.own
	if j.Queue != nil {
		e.queue = s.queue(string(j.Queue), j.Concurrency)
	}
	e.waking = alarm{kind: alarmWake, entry: e}
	e.expiring = alarm{kind: alarmExpire, entry: e}
	e.leaving = alarm{kind: alarmAway, entry: e}
	e.losing = alarm{kind: alarmLost, entry: e}
	e.queue.jobs++
	if e.no <= e.queue.through {
		e.queue.marked++
	}
	e.queue.expects(e.wait)
	s.jobs[i] = e
	if store.HoldsSlot(j.State) {
		s.occupy(e)
		s.stays(e, j, now)
	} else {
		s.enqueue(e, j, now, come)
	}
	return e
}

// enqueue lets a job wait: in its line, or first for its time.
func (s *schedule) enqueue(e *entry, j *store.Job, now, come int64) {
	e.notePause(j)
	e.wake, e.survives = e.comes(), j.Survivor
	if j.GivenUp() {
		e.host.returning[e] = struct{}{}
	}
	if e.isDoomed() {
		s.doom(e.queue, 0).entries.Set(e)
		return
	}
	e.queue.waiting.Set(e)
	if e.expires != 0 {
		s.agenda.set(&e.expiring, e.expires)
	}
	switch {
	case e.survives:
	case e.wake != 0 && e.wake > come && j.Reason == harp.ReasonAgentBusy && e.host.gate.Open && e.notBefore <= now:
		s.holdBack(e, now) // else its StartAfter is ahead again, and others do not wait for that
	case e.wake != 0 && e.wake > come:
		s.agenda.set(&e.waking, e.wake)
		if j.Reason == harp.ReasonAgentBusy {
			e.host.busy[e] = struct{}{}
		}
	default:
		s.wake(e, now)
	}
}

// notePause notes until when a job pauses, or its host may be silent.
func (e *entry) notePause(j *store.Job) {
	if pause := nanos(j.WakeAt); pause != e.pause {
		e.pause, e.pauseSet = pause, 0
	}
}

// pauseEnds is when that ends by the clock as it is set; 0 if there is none.
func (e *entry) pauseEnds() int64 {
	if e.pause == 0 {
		return 0
	}
	return e.pause + e.pauseSet
}

// comes is when a job's time comes; 0 if it waits for none.
func (e *entry) comes() int64 { return max(e.notBefore, e.pauseEnds()) }

// stays is called when an event has left a job waiting, or with its slot. One whose
// host is silent is given up when its time has come. One that waited for its last
// attempt may wait for its own time now, which has come at the latest with the next
// Advance.
func (s *schedule) stays(e *entry, j *store.Job, now int64) {
	s.agenda.clear(&e.losing)
	switch {
	case j.State == harp.StateUnknown && !j.WakeAt.IsZero():
		e.notePause(j)
		s.agenda.set(&e.losing, e.pauseEnds())
	case e.active || e.isDoomed() || j.State != harp.StateQueued:
	case e.survives != j.Survivor || e.pause != nanos(j.WakeAt):
		s.dequeue(e, now)
		s.enqueue(e, j, now, math.MinInt64)
	}
}

// wake puts a job whose time has come into its line, unless it stands there, or its time is
// over: then the agenda ends it. Others that wait for their busy agent keep it with them.
func (s *schedule) wake(e *entry, now int64) {
	delete(e.host.busy, e)
	if e.line == nil && e.held == nil && !e.isLate(now) && !s.isHeld(e, now) {
		s.join(e, now)
	}
}

// dequeue takes a waiting job out of all it waits in.
func (s *schedule) dequeue(e *entry, now int64) {
	s.agenda.clear(&e.waking)
	s.agenda.clear(&e.expiring)
	s.agenda.clear(&e.leaving)
	delete(e.host.returning, e)
	delete(e.host.busy, e)
	s.unhold(e)
	if !e.isDoomed() {
		e.queue.waiting.Delete(e)
		s.leave(e, now)
	}
}

// start gives a waiting job a slot of its queue and an attempt on its host.
func (s *schedule) start(e *entry, now int64) {
	s.dequeue(e, now)
	e.probe()
	s.occupy(e)
}

func (s *schedule) occupy(e *entry) {
	e.active = true
	e.queue.take(e)
	e.host.active[e] = struct{}{}
}

// release takes the slot and the attempt back.
func (s *schedule) release(e *entry, now int64) {
	e.active = false
	s.agenda.clear(&e.losing)
	s.seq++
	e.queue.give(e, now, s.seq)
	delete(e.host.active, e)
	if l := e.queue.lines[e.host]; l != nil { // it may have been parked for this very slot
		l.unpark()
	}
}

// drop forgets a job that has ended; true if its queue goes with it.
func (s *schedule) drop(e *entry) bool {
	delete(s.jobs, e.id)
	q := e.queue
	q.jobs--
	if e.no <= q.through {
		q.marked--
	}
	return s.dropQueue(q)
}

// dropQueue forgets a queue that nothing is kept of; false if it stays.
func (s *schedule) dropQueue(q *queue) bool {
	if q.name == "" || q.jobs > 0 || q.paused || q.fixed {
		return false
	}
	s.agenda.clear(&q.rearm)
	s.agenda.clear(&q.fill)
	delete(s.queues, q.name)
	s.names.Delete(q.name)
	return true
}

// settle is called when no more can start by a slot that came free: lines that
// were parked for it come back, for something else may free their other side.
func (s *schedule) settle(e *entry, now int64) {
	if e.queue.free() > 0 {
		unparkAll(e.queue.parked)
		e.queue.rearmAt(&s.agenda, now)
	}
	if e.host.mayStart() {
		unparkAll(e.host.parked)
	}
}

// A doom is the waiting jobs of a queue that a cancel has ended, until their rows
// say so.
type doom struct {
	queue   *queue
	at      int64
	entries *btree.BTreeG[*entry]
}

// doom returns where a queue's cancelled jobs wait for their rows to be written.
func (s *schedule) doom(q *queue, at int64) *doom {
	for _, d := range s.doomed {
		if d.queue == q {
			return d
		}
	}
	d := &doom{queue: q, at: at, entries: entryTree()}
	s.doomed = append(s.doomed, d)
	return d
}

// isDoomed reports whether a waiting job counts as cancelled by its queue's mark.
func (e *entry) isDoomed() bool { return !e.active && e.no <= e.queue.through }

// cancel sets the mark of a queue: none of its waiting jobs will start.
func (s *schedule) cancel(q *queue, at int64) {
	for _, l := range q.lines {
		l.remove()
	}
	q.through, q.marked = s.number, q.jobs
	if q.waiting.Len() == 0 {
		return
	}
	s.doomed = append(s.doomed, &doom{queue: q, at: at, entries: q.waiting})
	q.waiting = entryTree()
}

// nextDoomed takes one cancelled job whose row is not written yet.
func (s *schedule) nextDoomed() *entry {
	for len(s.doomed) > 0 {
		if e, ok := s.doomed[0].entries.PopMin(); ok {
			return e
		}
		s.doomed = s.doomed[1:]
	}
	return nil
}

// nextDue is when something is due, as far as is known; 0 for nothing.
func (s *schedule) nextDue() int64 {
	at, ok := s.agenda.next()
	if len(s.doomed) > 0 && (!ok || s.doomed[0].at < at) {
		at, ok = s.doomed[0].at, true
	}
	if ok && at == 0 {
		at = 1 // 0 is nothing
	}
	return at
}

// reason says what a waiting job waits for at this moment; "" if for nothing but
// what its row says.
func (s *schedule) reason(e *entry, j *store.Job) string {
	switch h := e.host; {
	case e.held != nil:
		return harp.ReasonAgentBusy
	case e.line == nil && e.waking.index == 0:
		return j.Reason // its time is over, or its last attempt must end first
	case e.line == nil && e.pause != 0 && e.wake == e.pauseEnds():
		return j.Reason
	case e.line == nil:
		return harp.ReasonStartAfter
	case e.queue.paused:
		return harp.ReasonPaused
	case !e.line.allows(e, s):
		return harp.ReasonQueue
	case !h.gate.Open:
		return h.gate.Reason
	case len(h.active) >= h.gate.Most:
		return harp.ReasonAgentBusy
	}
	return harp.ReasonQueue
}

// rank is how many stand before e in a tree that holds it.
func rank(tree *btree.BTreeG[*entry], e *entry) int {
	return sort.Search(tree.Len(), func(n int) bool {
		other, _ := tree.GetAt(n)
		return !other.before(e)
	})
}

// add64 is a sum that stays at the largest number.
func add64(a, b int64) int64 {
	if b > 0 && a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}
