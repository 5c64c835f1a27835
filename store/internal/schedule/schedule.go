// Package schedule says which job may start next. It knows the jobs that have not ended: in which
// queue each is and for which host it waits, who stands before it, which slots of queues and which
// attempts of hosts are free, and when time alone makes something due. It has no clock, no input or
// output and no rows: each method to which time matters is given it, in nanoseconds since 1970, and
// whoever starts or ends a job, and stores that, says so here. Its methods are called by one goroutine
// at a time.
package schedule

import (
	"cmp"
	"iter"
	"maps"
	"math"
	"sort"
	"time"

	"github.com/tidwall/btree"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/msgpack"
	"github.com/harpcaller/harp/store"
)

// Schedule is what is known of the jobs that have not ended, arranged so that "the next job of this queue that may start" and "the next on this host" are
// found without looking at those that may not. Nothing of it is stored.
//
// The jobs of one queue that wait for one host are a [hostQueue], in the order of the
// queue. A host queue stands, by its first job, in two orders: its queue's heads and its
// host's ready queues. Whoever looks in one of them for a job to start and meets a
// host queue that the other side blocks parks it there, and it comes back when that side
// has room again: so a blocked host queue is met once, not at each look.
type Schedule struct {
	agenda    agenda
	jobs      map[ID]*Job
	queues    map[string]*Queue
	names     *btree.BTreeG[string] // of queues
	hosts     map[string]*host
	holders   map[harp.Principal]*holder // that have something
	batches   map[string]*Batch
	unended   int            // members of batches
	pauses    map[*Job]pause // between attempts of jobs that were read, until NoteOpened
	cancelled []*cancelledQueue
	seq       uint64 // counts changes that host queues have to notice

	Number uint64 // the last submit number given
	Latest int64  // the latest time that was named
	Ahead  int64  // by how much the clock of those times was set since the first
}

// ID is the id of a job.
type ID = [16]byte

// New returns a schedule without jobs.
func New() *Schedule {
	return &Schedule{
		jobs:   map[ID]*Job{},
		queues: map[string]*Queue{},
		names:  btree.NewBTreeGOptions(func(a, b string) bool { return a < b }, btree.Options{NoLocks: true}),
		hosts:  map[string]*host{}, holders: map[harp.Principal]*holder{}, batches: map[string]*Batch{},
	}
}

// Job returns a job that has not ended; nil for any other.
func (s *Schedule) Job(i ID) *Job { return s.jobs[i] }

// Len is how many jobs have not ended.
func (s *Schedule) Len() int { return len(s.jobs) }

// All yields the jobs that have not ended, in no order. They may be dropped meanwhile.
func (s *Schedule) All() iter.Seq[*Job] { return maps.Values(s.jobs) }

// A Job is one that has not ended.
type Job struct {
	ID        ID
	No        uint64 // submit number: the order of acknowledgement
	procedure string
	readOnly  bool // its procedure changes nothing
	scheduled bool // it is of a time of a schedule
	begun     bool // it is a step of a chain that has begun
	priority  int
	Queue     *Queue // that it is in; the one of its host for jobs in none
	host      *host
	holder    *holder    // whose it is
	active    bool       // holds an attempt and a slot; else it waits
	hostQueue *hostQueue // that it waits in; nil while its time has not come
	held      *Backlog   // that it waits in instead
	probes    *Backlog   // that it is sent for
	batch     *Batch     // that it is a member of
	inSlot    bool       // and holds a slot of
	parked    bool       // waits for a slot of it instead
	isKept    bool       // waits for the end of a window or a pause instead

	submitted int64 // of a member of a batch: when the turn of its host came, or its step, or the batch went on
	notBefore int64
	pause     int64 // the end of its pause, as its row has it; 0: none
	pauseSet  int64 // by how much the clock was set since that was written
	wake      int64 // when its time comes, by both
	expires   int64 // 0: never
	wait      int64 // how long absence alone may hold it
	isAllowed bool  // nothing but its host is in its way,
	allowed   int64 // since then
	survives  bool  // waits for its last attempt, which must end first

	waking, expiring, leaving, losing Alarm
}

// Compare is below 0 if the job stands before another in the order of queues.
func (e *Job) Compare(other *Job) int {
	return cmp.Or(cmp.Compare(other.priority, e.priority), cmp.Compare(e.No, other.No))
}

// Waits reports whether the job waits to start.
func (e *Job) Waits() bool { return !e.active && !e.IsCancelled() }

// Position is the place of a job that waits among those of its queue; 1 is next.
func (e *Job) Position() int { return rank(e.Queue.waiting, e) + 1 }

// before is the order of queues.
func (e *Job) before(other *Job) bool {
	if e.priority != other.priority {
		return e.priority > other.priority
	}
	return e.No < other.No
}

func entryTree() *btree.BTreeG[*Job] {
	return btree.NewBTreeGOptions((*Job).before, btree.Options{NoLocks: true, Degree: 16})
}

// Submit takes a new job into the schedule, and starts it if it may start at once: nobody of its
// host queue is before it and nothing is in its way.
func (s *Schedule) Submit(i ID, j *store.Job, now int64) (e *Job, started bool) {
	e = s.insertJob(i, j)
	if e.host.mayStart() && e.notBefore <= now {
		e.takeBatchSlot()
	}
	if e.host.backlogs[e.procedure] == nil && e.Queue.hostQueues[e.host] == nil && e.notBefore <= now && e.hasRoom(now) {
		s.occupySlot(e) // it need not join a host queue to leave it
		return e, true
	}
	s.Enqueue(e, j, now, now)
	if started = e.hostQueue != nil && e.hostQueue.head == e && e.hasRoom(now); started {
		s.Start(e, now)
	}
	return e, started
}

// hasRoom reports whether a job may start if it is its turn.
func (e *Job) hasRoom(now int64) bool {
	return e.host.mayStart() && e.Queue.free() > 0 && !e.isLate(now) && !e.isBlocked() && !e.isKeptBack(now)
}

// Add takes a job that has not ended into the schedule: as one that waits, its time
// having come if it did until `come`, or that holds an attempt.
func (s *Schedule) Add(i ID, j *store.Job, now, come int64) *Job {
	e := s.insertJob(i, j)
	if store.HoldsSlot(j.State) {
		s.occupySlot(e)
		e.batch.takeBack()
		s.Stays(e, j, now)
	} else {
		s.Enqueue(e, j, now, come)
	}
	if e.pause != 0 && j.State == harp.StateQueued {
		if s.pauses == nil {
			s.pauses = map[*Job]pause{}
		}
		s.pauses[e] = pause{began: msgpack.Nanos(j.Since), ends: e.pause}
	}
	return e
}

// insertJob notes a job that neither waits yet nor holds an attempt.
func (s *Schedule) insertJob(i ID, j *store.Job) *Job {
	e := &Job{
		ID: i, No: j.No, procedure: j.Procedure, readOnly: j.ReadOnly, scheduled: !j.FireTime.IsZero(), begun: j.GoesOn(), priority: j.Priority, host: s.host(j.Host), holder: s.holder(j.Principal),
		submitted: msgpack.Nanos(j.SubmitTime), notBefore: msgpack.Nanos(j.NotBefore), expires: msgpack.Nanos(j.Expires), wait: int64(j.OfflineWait),
	}
	e.host.furnish()
	e.Queue = e.host.own
	if j.Queue != nil {
		e.Queue = s.OpenQueue(string(j.Queue), j.Concurrency)
	}
	e.waking = Alarm{Kind: AlarmWake, Job: e}
	e.expiring = Alarm{Kind: AlarmExpire, Job: e}
	e.leaving = Alarm{Kind: AlarmAway, Job: e}
	e.losing = Alarm{Kind: AlarmLost, Job: e}
	e.holder.holdJob(e.Queue)
	e.Queue.jobs++
	e.host.jobs++
	if e.No <= e.Queue.through {
		e.Queue.marked++
	}
	e.Queue.expects(e.wait)
	if e.batch = s.batches[j.Batch]; e.batch != nil {
		e.batch.members[e] = struct{}{}
		e.submitted = max(msgpack.Nanos(j.Since), e.batch.since) // long after its batch was, maybe by another clock
		s.unended++
	}
	s.jobs[i] = e
	return e
}

// Enqueue lets a job wait: in its host queue, or first for its time.
func (s *Schedule) Enqueue(e *Job, j *store.Job, now, come int64) {
	e.notePause(j)
	e.wake, e.survives = e.comesAt(), j.Survivor
	if j.Reason == harp.ReasonBackoff && e.batch.hasRoom() {
		e.takeBatchSlot() // which it keeps between its attempts, unless it has left it to another
	}
	if j.GivenUp() {
		e.host.returning[e] = struct{}{}
	}
	if e.IsCancelled() {
		s.addCancelled(e.Queue, 0).entries.Set(e)
		return
	}
	e.Queue.waiting.Set(e)
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
		s.Wake(e, now)
	}
}

// notePause notes until when a job pauses, or its host may be silent.
func (e *Job) notePause(j *store.Job) {
	if pause := msgpack.Nanos(j.WakeAt); pause != e.pause {
		e.pause, e.pauseSet = pause, 0
	}
}

// pauseEnds is when that ends by the clock as it is set; 0 if there is none.
func (e *Job) pauseEnds() int64 {
	if e.pause == 0 {
		return 0
	}
	return e.pause + e.pauseSet
}

// comesAt is when a job's time comes; 0 if it waits for none.
func (e *Job) comesAt() int64 { return max(e.notBefore, e.pauseEnds()) }

// Stays is called when an event has left a job waiting, or with its slot. One whose
// host is silent is given up when its time has come. One that waited for its last
// attempt may wait for its own time now, which has come at the latest with the next
// Advance.
func (s *Schedule) Stays(e *Job, j *store.Job, now int64) {
	s.agenda.clear(&e.losing)
	switch {
	case j.State == harp.StateUnknown && !j.WakeAt.IsZero():
		e.notePause(j)
		s.agenda.set(&e.losing, e.pauseEnds())
	case e.active || e.IsCancelled() || j.State != harp.StateQueued:
	case e.survives != j.Survivor || e.pause != msgpack.Nanos(j.WakeAt):
		s.Dequeue(e, now)
		s.Enqueue(e, j, now, math.MinInt64)
	}
}

// Wake puts a job whose time has come into its host queue, unless it stands there, or its time is
// over: then the agenda ends it. Others that wait for their busy agent keep it with them. It
// reports whether the job may start when it is its turn.
func (s *Schedule) Wake(e *Job, now int64) bool {
	delete(e.host.busy, e)
	if e.hostQueue == nil && e.held == nil && !e.parked && !e.isKept && !e.isLate(now) && !s.isHeld(e, now) {
		s.joinHostQueue(e, now)
	}
	return e.hostQueue != nil
}

// WakeHost wakes the jobs for which the agent of a host was too busy.
func (s *Schedule) WakeHost(name string, now int64) {
	h := s.hosts[name]
	if h == nil {
		return
	}
	for e := range h.busy {
		if e.IsCancelled() {
			continue
		}
		s.agenda.clear(&e.waking)
		if e.pauseEnds() > now {
			e.pauseSet = now - e.pause
		}
		if e.wake = e.comesAt(); e.wake > now {
			delete(h.busy, e)
			s.agenda.set(&e.waking, e.wake) // its StartAfter, which had come before the clock was set back
			continue
		}
		s.Wake(e, now)
	}
	s.wakeBacklogs(h, now)
}

// WakeLater has the time of a job that could not be started come again.
func (s *Schedule) WakeLater(e *Job, now int64) {
	if e.hostQueue != nil {
		s.agenda.set(&e.waking, now)
	}
}

// Pass takes a job that cannot be started out of everybody's way.
func (s *Schedule) Pass(e *Job, now int64) {
	s.leaveHostQueue(e, now)
	s.giveBatchSlot(e)
}

// Dequeue takes a waiting job out of all it waits in.
func (s *Schedule) Dequeue(e *Job, now int64) {
	s.agenda.clear(&e.waking)
	s.agenda.clear(&e.expiring)
	s.agenda.clear(&e.leaving)
	delete(e.host.returning, e)
	delete(e.host.busy, e)
	s.leaveBacklog(e)
	e.leaveParked()
	e.leaveKept()
	if !e.IsCancelled() {
		e.Queue.waiting.Delete(e)
		s.leaveHostQueue(e, now)
	}
}

// Start gives a waiting job a slot of its queue and an attempt on its host.
func (s *Schedule) Start(e *Job, now int64) {
	s.Dequeue(e, now)
	e.probe()
	s.occupySlot(e)
}

func (s *Schedule) occupySlot(e *Job) {
	e.active = true
	e.takeBatchSlot()
	e.holder.waiting--
	e.Queue.takeSlot(e)
	e.host.active[e] = struct{}{}
}

// Release takes the slot and the attempt back.
func (s *Schedule) Release(e *Job, now int64) {
	e.active = false
	s.giveBatchSlot(e)
	e.holder.waiting++
	s.agenda.clear(&e.losing)
	s.seq++
	e.Queue.freeSlot(e, now, s.seq)
	delete(e.host.active, e)
	if l := e.Queue.hostQueues[e.host]; l != nil { // it may have been parked for this very slot
		l.unpark()
	}
}

// Drop forgets a job that has ended; true if its queue goes with it.
func (s *Schedule) Drop(e *Job) bool {
	delete(s.jobs, e.ID)
	if e.batch != nil {
		s.giveBatchSlot(e)
		delete(e.batch.members, e)
		s.unended--
	}
	q := e.Queue
	s.letJob(e)
	q.jobs--
	e.host.jobs--
	if e.No <= q.through {
		q.marked--
	}
	return s.DropQueue(q)
}

// DropQueue forgets a queue that nothing is kept of; false if it stays.
func (s *Schedule) DropQueue(q *Queue) bool {
	if q.Name == "" || q.jobs > 0 || q.Pause != nil || q.Fixed {
		return false
	}
	s.agenda.clear(&q.rearm)
	s.agenda.clear(&q.fill)
	delete(s.queues, q.Name)
	s.names.Delete(q.Name)
	return true
}

// Settle is called when no more can start by a slot that came free: host queues that
// were parked for it come back, for something else may free their other side.
func (s *Schedule) Settle(e *Job, now int64) {
	if e.Queue.free() > 0 {
		unparkAll(e.Queue.parked)
		e.Queue.rearmAt(&s.agenda, now)
	}
	if e.host.mayStart() {
		unparkAll(e.host.parked)
	}
}

// cancelledQueue is the waiting jobs of a queue that a cancel has ended, until their rows
// say so.
type cancelledQueue struct {
	queue   *Queue
	at      int64
	entries *btree.BTreeG[*Job]
}

// addCancelled returns where a queue's cancelled jobs wait for their rows to be written.
func (s *Schedule) addCancelled(q *Queue, at int64) *cancelledQueue {
	for _, d := range s.cancelled {
		if d.queue == q {
			return d
		}
	}
	d := &cancelledQueue{queue: q, at: at, entries: entryTree()}
	s.cancelled = append(s.cancelled, d)
	return d
}

// IsCancelled reports whether a waiting job counts as cancelled by its queue's mark.
func (e *Job) IsCancelled() bool { return !e.active && e.IsMarked() }

// IsMarked reports whether a cancel of its queue covers the job.
func (e *Job) IsMarked() bool { return e.No <= e.Queue.through }

// CancelQueue sets a mark of a queue: none of its waiting jobs will start.
func (s *Schedule) CancelQueue(q *Queue, by harp.Principal, at time.Time) {
	q.Marks = append(s.neededMarks(q), Mark{Through: s.Number, By: by, At: at})
	for _, l := range q.hostQueues {
		l.removeSelf()
	}
	q.through, q.marked = s.Number, q.jobs
	if q.waiting.Len() == 0 {
		return
	}
	s.cancelled = append(s.cancelled, &cancelledQueue{queue: q, at: msgpack.Nanos(at), entries: q.waiting})
	q.waiting = entryTree()
}

// HasCancelled reports whether NextCancelled has one.
func (s *Schedule) HasCancelled() bool { return len(s.cancelled) > 0 }

// NextCancelled takes one cancelled job whose row is not written yet.
func (s *Schedule) NextCancelled() *Job {
	for len(s.cancelled) > 0 {
		if e, ok := s.cancelled[0].entries.PopMin(); ok {
			return e
		}
		s.cancelled = s.cancelled[1:]
	}
	return nil
}

// ReturnCancelled puts back a job that NextCancelled has given, and whose row could not be written.
func (s *Schedule) ReturnCancelled(e *Job) { s.addCancelled(e.Queue, 0).entries.Set(e) }

// NextDue is when something is due, as far as is known; 0 for nothing.
func (s *Schedule) NextDue() int64 {
	at, ok := s.agenda.nextTime()
	if len(s.cancelled) > 0 && (!ok || s.cancelled[0].at < at) {
		at, ok = s.cancelled[0].at, true
	}
	if ok && at == 0 {
		at = 1 // 0 is nothing
	}
	return at
}

// Reason says what a waiting job waits for at this moment; "" if for nothing but
// what its row says.
func (s *Schedule) Reason(e *Job, j *store.Job) string {
	switch h := e.host; {
	case e.held != nil:
		return harp.ReasonAgentBusy
	case e.isKept:
		return harp.ReasonWindow
	case e.parked:
		return harp.ReasonBatch
	case e.hostQueue == nil && e.waking.index == 0:
		return j.Reason // its time is over, or its last attempt must end first
	case e.hostQueue == nil && e.pause != 0 && e.wake == e.pauseEnds():
		return j.Reason
	case e.hostQueue == nil:
		return harp.ReasonStartAfter
	case e.Queue.Pause != nil:
		return harp.ReasonPaused
	case !e.hostQueue.allows(e, s):
		return harp.ReasonQueue
	case !h.gate.Open:
		return h.gate.Reason
	case len(h.active) >= h.gate.Most:
		return harp.ReasonAgentBusy
	}
	return harp.ReasonQueue
}

// rank is how many stand before e in a tree that holds it.
func rank(tree *btree.BTreeG[*Job], e *Job) int {
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
