package schedule

import (
	"iter"
	"time"

	"github.com/tidwall/btree"
)

// A Backlog is the waiting jobs of one procedure on one host whose agent was too busy for one
// of them. They are let go one by one: when an attempt of theirs is over, when the agent says
// that it is ready, when one was taken, or after a pause. Those that were let go and that
// the agent has not answered yet are its probes; the more are taken in a row, the more may
// be on their way at a time.
type Backlog struct {
	host      *host
	procedure string
	entries   *btree.BTreeG[*Job]
	probes    int
	taken     int // in a row
	again     Alarm
}

// longestPause is how long a backlog waits at most for a sign of the agent.
const longestPause = int64(30 * time.Second)

// holdBack keeps a job for which its agent was too busy, and with it those of its procedure
// that could be sent there now.
func (s *Schedule) holdBack(e *Job, now int64) {
	h := e.host
	b := h.backlogs[e.procedure]
	if b == nil {
		b = &Backlog{host: h, procedure: e.procedure, entries: entryTree()}
		b.again = Alarm{Kind: AlarmBacklog, Backlog: b}
		if h.backlogs == nil {
			h.backlogs = map[string]*Backlog{}
		}
		h.backlogs[e.procedure] = b
	}
	b.taken = 0
	s.hold(b, e)
	for l := range h.hostQueues {
		if l.queue.free() == 0 {
			continue
		}
		for _, other := range l.ofProcedure(e.procedure) {
			s.leaveHostQueue(other, now)
			s.hold(b, other)
		}
	}
	s.agenda.set(&b.again, e.wake)
}

// hold puts a job into a backlog. A member of a batch gives its slot back: another host may have it.
func (s *Schedule) hold(b *Backlog, e *Job) {
	b.entries.Set(e)
	e.held = b
	s.giveBatchSlot(e)
}

// ofProcedure lists the jobs of a procedure in a host queue.
func (l *hostQueue) ofProcedure(procedure string) (found []*Job) {
	l.entries.Scan(func(e *Job) bool {
		if e.procedure == procedure {
			found = append(found, e)
		}
		return true
	})
	return found
}

// isHeld holds a job whose time has come if others of its procedure wait for their agent.
func (s *Schedule) isHeld(e *Job, now int64) bool {
	b := e.host.backlogs[e.procedure]
	if b == nil || b.entries.Len() == 0 && b.probes < b.MaxProbes() {
		return false
	}
	s.hold(b, e)
	if b.again.index == 0 {
		s.agenda.set(&b.again, add64(now, longestPause))
	}
	return true
}

// MaxProbes is how many probes there may be.
func (b *Backlog) MaxProbes() int { return max(1, b.taken) }

// leaveBacklog takes a job out of the backlog that it waits in, if it is in one.
func (s *Schedule) leaveBacklog(e *Job) {
	if b := e.held; b != nil {
		b.entries.Delete(e)
		e.held = nil
		s.endBacklog(b)
	}
}

// endBacklog forgets a backlog that is over.
func (s *Schedule) endBacklog(b *Backlog) {
	if b.entries.Len() > 0 || b.probes > 0 || b.host.backlogs[b.procedure] != b {
		return
	}
	s.agenda.clear(&b.again)
	delete(b.host.backlogs, b.procedure)
}

// probe notes that a job is sent to an agent that was too busy for others like it.
func (e *Job) probe() {
	if b := e.host.backlogs[e.procedure]; b != nil {
		e.probes = b
		b.probes++
	}
}

// Answered notes that an attempt was taken or not, and returns the backlog from which more
// may be let go by it; nil if none may. Where the attempt is over, and left a place, that is one in any case.
func (s *Schedule) Answered(e *Job, isBusy bool) *Backlog {
	if p := e.probes; p != nil {
		e.probes = nil
		if p.probes--; !isBusy {
			p.taken++
		}
		defer s.endBacklog(p)
	}
	if isBusy {
		return nil
	}
	return e.host.backlogs[e.procedure]
}

// releaseOne puts the first job of a backlog that its queue lets start into its host queue, and with it
// those before that wait for their queues; nil if there is none.
func (s *Schedule) releaseOne(b *Backlog, now int64) *Job {
	for b.host.mayStart() {
		e, ok := b.entries.PopMin()
		if !ok {
			return nil
		}
		e.held = nil
		if e.IsCancelled() || e.isLate(now) {
			continue // they end without
		}
		s.joinHostQueue(e, now)
		if e.hostQueue != nil && e.Queue.free() > 0 {
			return e
		}
	}
	return nil
}

// Probes yields the jobs of a backlog, if there is one, that are to be started until so many are on
// their way, as long as there is room for another.
func (s *Schedule) Probes(b *Backlog, most int, now int64, hasRoom func() bool) iter.Seq[*Job] {
	return func(yield func(*Job) bool) {
		if b == nil {
			return
		}
		defer s.endBacklog(b)
		if b.entries.Len() > 0 {
			defer s.agenda.set(&b.again, add64(now, longestPause)) // should no answer come
		}
		for b.probes < most && hasRoom() {
			e := s.releaseOne(b, now)
			if e == nil {
				return
			}
			next := e.Queue.nextJob(s, now)
			if next == nil {
				continue // its batch keeps it from starting
			}
			if !yield(next) {
				return
			}
		}
	}
}

// OneMore is how many probes there may be when one more is let go, whatever the others come to.
func (b *Backlog) OneMore() int { return max(b.MaxProbes(), b.probes+1) }

// ProbeLater has a backlog be looked at by the next Advance.
func (s *Schedule) ProbeLater(b *Backlog) {
	if b.entries.Len() > 0 {
		s.agenda.set(&b.again, max(s.Latest, 1))
	}
}

// wakeBacklogs lets so many jobs go as an agent that is ready may be sent.
func (s *Schedule) wakeBacklogs(h *host, now int64) {
	for _, b := range h.backlogs {
		for n := b.MaxProbes() - b.probes; n > 0 && s.releaseOne(b, now) != nil; n-- {
		}
		s.endBacklog(b)
	}
}

// dissolveBacklogs lets all that a host's backlogs hold wait for the host: it has left, or come anew.
func (s *Schedule) dissolveBacklogs(h *host, now int64) {
	for procedure, b := range h.backlogs {
		delete(h.backlogs, procedure)
		s.agenda.clear(&b.again)
		for e, ok := b.entries.PopMin(); ok; e, ok = b.entries.PopMin() {
			if e.held = nil; !e.IsCancelled() && !e.isLate(now) {
				s.joinHostQueue(e, now)
			}
		}
	}
}
