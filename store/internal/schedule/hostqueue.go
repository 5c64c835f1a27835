package schedule

import (
	"github.com/tidwall/btree"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/msgpack"
)

// hostQueue is the jobs of one queue that wait for one host, their time having come.
type hostQueue struct {
	queue   *Queue
	host    *host
	entries *btree.BTreeG[*Job]
	head    *Job   // its first
	inHeads bool   // stands among its queue's heads
	inReady bool   // and among its host's ready queues
	synced  uint64 // what it has noticed of its queue's free slots,
	allowed int    // and how many of its first jobs are allowed by them; of a queue without limit all are
}

func hostQueueTree() *btree.BTreeG[*hostQueue] {
	return btree.NewBTreeGOptions(func(a, b *hostQueue) bool { return a.head.before(b.head) },
		btree.Options{NoLocks: true, Degree: 16})
}

// joinHostQueue puts a job whose time has come into its host queue. A member of a batch that is halted is parked
// instead: meanwhile it does not wait for its host. So is one that a window keeps from starting, with its host.
func (s *Schedule) joinHostQueue(e *Job, now int64) {
	if e.batch != nil && e.batch.halted {
		s.park(e, now)
		return
	}
	if s.keepBack(e, now) {
		return
	}
	q, h := e.Queue, e.host
	if !h.mayStart() {
		s.giveBatchSlot(e)
	}
	l := q.hostQueues[h]
	if l == nil {
		l = &hostQueue{queue: q, host: h, entries: entryTree(), synced: s.seq}
		q.hostQueues[h], h.hostQueues[l] = l, struct{}{}
	}
	l.allowJobs(s, now)
	e.hostQueue = l
	l.entries.Set(e)
	if q.unlimited() || rank(l.entries, e) < l.allowed {
		l.allowed++
		e.isAllowed, e.allowed = true, now
		e.armAlarm(&s.agenda)
	}
	l.allowJobs(s, now)
	l.placeByHead()
}

// leaveHostQueue takes a job out of its host queue, if it is in one.
func (s *Schedule) leaveHostQueue(e *Job, now int64) {
	l := e.hostQueue
	if l == nil {
		return
	}
	l.allowJobs(s, now)
	if e.isAllowed {
		l.allowed--
	}
	l.entries.Delete(e)
	e.hostQueue, e.isAllowed = nil, false
	s.agenda.clear(&e.leaving)
	l.allowJobs(s, now)
	l.placeByHead()
}

// placeByHead puts the host queue where its first job belongs.
func (l *hostQueue) placeByHead() {
	head, ok := l.entries.Min()
	if ok && head == l.head {
		return
	}
	isNew := l.head == nil
	inHeads, inReady := isNew || l.inHeads, isNew || l.inReady
	l.leaveLists()
	if l.head = head; !ok {
		l.removeSelf()
		return
	}
	if l.inHeads = inHeads; inHeads {
		l.queue.heads.Set(l)
	}
	if l.inReady = inReady; inReady {
		l.host.ready.Set(l)
	}
}

func (l *hostQueue) leaveLists() {
	if l.inHeads {
		l.queue.heads.Delete(l)
	}
	if l.inReady {
		l.host.ready.Delete(l)
	}
	l.inHeads, l.inReady = false, false
}

// unpark puts the host queue back wherever it was passed over.
func (l *hostQueue) unpark() {
	delete(l.queue.parked, l)
	delete(l.host.parked, l)
	if !l.inHeads {
		l.inHeads = true
		l.queue.heads.Set(l)
	}
	if !l.inReady {
		l.inReady = true
		l.host.ready.Set(l)
	}
}

func unparkAll(parked map[*hostQueue]struct{}) {
	for l := range parked {
		l.unpark()
	}
}

// removeSelf takes the host queue away from its queue and host.
func (l *hostQueue) removeSelf() {
	l.leaveLists()
	delete(l.queue.parked, l)
	delete(l.host.parked, l)
	delete(l.queue.hostQueues, l.host)
	delete(l.host.hostQueues, l)
}

// allowJobs notes which of its jobs have nothing but their host in their way: as many
// of the first as the queue has free slots. It is called before and after the host queue
// changes; what has become free between is known by the queue. It looks only at those of which that may be another: there may be very
// many, and it is called for each.
func (l *hostQueue) allowJobs(s *Schedule, now int64) {
	q := l.queue
	if q.unlimited() {
		return // all of them, since they joined
	}
	free := q.free()
	n := min(l.allowed, free, q.freeBefore(l.synced))
	look := func(e *Job) bool {
		if n++; n > free {
			was := e.isAllowed
			e.isAllowed = false
			s.agenda.clear(&e.leaving)
			return was
		}
		switch f := q.freeSince(n); {
		case f.seq > l.synced:
			e.isAllowed, e.allowed = true, f.at
			e.armAlarm(&s.agenda)
		case !e.isAllowed:
			e.isAllowed, e.allowed = true, now
			e.armAlarm(&s.agenda)
		}
		return true
	}
	if first, ok := l.entries.GetAt(n); ok {
		l.entries.Ascend(first, look)
	}
	l.synced, l.allowed = s.seq, min(free, l.entries.Len())
}

// allows reports whether nothing of the queue is in a job's way.
func (l *hostQueue) allows(e *Job, s *Schedule) bool {
	l.allowJobs(s, s.Latest)
	return e.isAllowed
}

// deadline is when a job will have waited for its absent host as long as it may.
func (e *Job) deadline() int64 {
	from := max(e.submitted, e.wake, e.allowed, e.host.awaySince, msgpack.Nanos(e.host.gate.LastHeard))
	return add64(from, e.wait)
}

// armAlarm sets the alarm of a job that only its absent host keeps from starting.
func (e *Job) armAlarm(g *agenda) {
	if e.isAllowed && e.host.isAway() && e.wait != int64(harp.NoLimit) {
		g.set(&e.leaving, e.deadline())
	}
}
