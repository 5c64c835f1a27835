package schedule

import (
	"github.com/tidwall/btree"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/msgpack"
)

// line is the jobs of one queue that wait for one host, their time having come.
type line struct {
	queue   *Queue
	host    *host
	entries *btree.BTreeG[*Job]
	head    *Job   // its first
	inHeads bool   // stands among its queue's heads
	inReady bool   // and among its host's ready lines
	synced  uint64 // what it has noticed of its queue's free slots
}

func lineTree() *btree.BTreeG[*line] {
	return btree.NewBTreeGOptions(func(a, b *line) bool { return a.head.before(b.head) },
		btree.Options{NoLocks: true, Degree: 16})
}

// join puts a job whose time has come into its line.
func (s *Schedule) join(e *Job, now int64) {
	q, h := e.Queue, e.host
	l := q.lines[h]
	if l == nil {
		l = &line{queue: q, host: h, entries: entryTree(), synced: s.seq}
		q.lines[h], h.lines[l] = l, struct{}{}
	}
	l.allow(s, now)
	e.line = l
	l.entries.Set(e)
	if q.unlimited() {
		e.isAllowed, e.allowed = true, now
		e.arm(&s.agenda)
	}
	l.allow(s, now)
	l.shifted()
}

// leave takes a job out of its line, if it is in one.
func (s *Schedule) leave(e *Job, now int64) {
	l := e.line
	if l == nil {
		return
	}
	l.allow(s, now)
	l.entries.Delete(e)
	e.line, e.isAllowed = nil, false
	s.agenda.clear(&e.leaving)
	l.allow(s, now)
	l.shifted()
}

// shifted puts the line where its first job belongs.
func (l *line) shifted() {
	head, ok := l.entries.Min()
	if ok && head == l.head {
		return
	}
	isNew := l.head == nil
	inHeads, inReady := isNew || l.inHeads, isNew || l.inReady
	l.unlist()
	if l.head = head; !ok {
		l.remove()
		return
	}
	if l.inHeads = inHeads; inHeads {
		l.queue.heads.Set(l)
	}
	if l.inReady = inReady; inReady {
		l.host.ready.Set(l)
	}
}

func (l *line) unlist() {
	if l.inHeads {
		l.queue.heads.Delete(l)
	}
	if l.inReady {
		l.host.ready.Delete(l)
	}
	l.inHeads, l.inReady = false, false
}

// unpark puts the line back wherever it was passed over.
func (l *line) unpark() {
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

func unparkAll(parked map[*line]struct{}) {
	for l := range parked {
		l.unpark()
	}
}

// remove takes the line away from its queue and host.
func (l *line) remove() {
	l.unlist()
	delete(l.queue.parked, l)
	delete(l.host.parked, l)
	delete(l.queue.lines, l.host)
	delete(l.host.lines, l)
}

// allow notes which of its jobs have nothing but their host in their way: as many
// of the first as the queue has free slots. It is called before and after the line
// changes; what has become free between is known by the queue.
func (l *line) allow(s *Schedule, now int64) {
	q := l.queue
	if q.unlimited() {
		return // all of them, since they joined
	}
	free, n := q.free(), 0
	l.entries.Scan(func(e *Job) bool {
		n++
		if n > free {
			was := e.isAllowed
			e.isAllowed = false
			s.agenda.clear(&e.leaving)
			return was
		}
		switch f := q.freeSince(n); {
		case f.seq > l.synced:
			e.isAllowed, e.allowed = true, f.at
			e.arm(&s.agenda)
		case !e.isAllowed:
			e.isAllowed, e.allowed = true, now
			e.arm(&s.agenda)
		}
		return true
	})
	l.synced = s.seq
}

// allows reports whether nothing of the queue is in a job's way.
func (l *line) allows(e *Job, s *Schedule) bool {
	l.allow(s, s.Latest)
	return e.isAllowed
}

// deadline is when a job will have waited for its absent host as long as it may.
func (e *Job) deadline() int64 {
	from := max(e.submitted, e.wake, e.allowed, e.host.awaySince, msgpack.Nanos(e.host.gate.LastHeard))
	return add64(from, e.wait)
}

// arm sets the alarm of a job that only its absent host keeps from starting.
func (e *Job) arm(g *agenda) {
	if e.isAllowed && e.host.isAway() && e.wait != int64(harp.NoLimit) {
		g.set(&e.leaving, e.deadline())
	}
}
