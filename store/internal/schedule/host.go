package schedule

import (
	"cmp"
	"maps"
	"slices"

	"github.com/tidwall/btree"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/store"
)

// host is the gate of a host and what is on it and waits for it.
type host struct {
	name      string
	gate      store.Gate
	awaySince int64 // when absence took over from another reason to be closed
	jobs      int   // that have not ended

	// What follows is nil until it has a first job: in a large fleet many have none.
	active     map[*Job]struct{}
	returning  map[*Job]struct{}   // that wait for another attempt, the last one having been lost
	busy       map[*Job]struct{}   // that wait because the agent said that it is busy, and then left
	backlogs   map[string]*Backlog // by procedure: what waits because the agent said so
	hostQueues map[*hostQueue]struct{}
	ready      *btree.BTreeG[*hostQueue] // in which to look for the next to start
	parked     map[*hostQueue]struct{}   // out of their queues' heads, for this host takes no more
	own        *Queue                    // of its jobs in no queue
	holds      holds
}

// host returns the host of a name; a new one is closed, being away.
func (s *Schedule) host(name string) *host {
	h := s.hosts[name]
	if h == nil {
		h = &host{name: name, gate: store.Gate{Reason: harp.ReasonOffline}}
		h.holds.review = Alarm{Kind: AlarmHolds, host: h}
		s.hosts[name] = h
	}
	return h
}

// furnish makes what jobs of the host need.
func (h *host) furnish() {
	if h.own != nil {
		return
	}
	h.active, h.returning, h.busy = map[*Job]struct{}{}, map[*Job]struct{}{}, map[*Job]struct{}{}
	h.hostQueues, h.ready, h.parked = map[*hostQueue]struct{}{}, hostQueueTree(), map[*hostQueue]struct{}{}
	h.own = newQueue("", 0)
	h.holds.kept = map[*Job]struct{}{}
}

func (h *host) mayStart() bool { return h.gate.Open && len(h.active) < h.gate.Most }

func (h *host) isAway() bool { return !h.gate.Open && h.gate.Reason == harp.ReasonOffline }

// SetGate opens or closes a host.
func (s *Schedule) SetGate(name string, g store.Gate) {
	h := s.host(name)
	wasHeld, wasOpen := !h.gate.Open && !h.isAway(), h.gate.Open
	h.gate = g
	if wasHeld && h.isAway() {
		h.awaySince = s.Latest
	}
	if g.Open != wasOpen {
		s.dissolveBacklogs(h, s.Latest)
	}
	switch {
	case wasOpen && !g.Open:
		s.giveSlotsOf(h)
	case !wasOpen && h.mayStart():
		h.takeSlotsOf()
	}
	for l := range h.hostQueues {
		l.allowJobs(s, s.Latest)
		l.entries.Scan(func(e *Job) bool {
			s.agenda.clear(&e.leaving)
			e.armAlarm(&s.agenda)
			return e.isAllowed
		})
	}
	if h.mayStart() {
		unparkAll(h.parked)
	}
}

// nextJob is the first job that may start on the host, nil if none.
func (h *host) nextJob(s *Schedule, now int64) *Job {
	for h.mayStart() && h.ready != nil {
		l, ok := h.ready.Min()
		if !ok {
			return nil
		}
		if l.queue.free() == 0 {
			h.ready.Delete(l)
			l.inReady = false
			l.queue.parked[l] = struct{}{}
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

// HeardOf lists the jobs whose attempts a host was heard of.
func (s *Schedule) HeardOf(name string) []ID {
	h := s.hosts[name]
	if h == nil {
		return nil
	}
	found := slices.Collect(maps.Keys(h.active))
	for e := range h.returning {
		if e.survives {
			found = append(found, e)
		}
	}
	return idsOf(found)
}

// Active lists the jobs that hold an attempt on a host, or on any.
func (s *Schedule) Active(name string) []ID {
	return s.jobsOn(name, func(h *host) map[*Job]struct{} { return h.active })
}

// Returning lists the jobs that wait for another attempt on a host, or on any, the last one having
// been lost.
func (s *Schedule) Returning(name string) []ID {
	return s.jobsOn(name, func(h *host) map[*Job]struct{} { return h.returning })
}

// Unended lists the jobs of a host that have not ended, those that a cancel of their queue has ended
// left out. It looks at all jobs, if the host has any.
func (s *Schedule) Unended(name string) []ID {
	h := s.hosts[name]
	if h == nil || h.jobs == 0 {
		return nil
	}
	var found []*Job
	for _, e := range s.jobs {
		if e.host == h && !e.IsCancelled() {
			found = append(found, e)
		}
	}
	return idsOf(found)
}

// HostIsFull reports whether only that it has as many attempts as it may keeps the job's host from
// another.
func (e *Job) HostIsFull() bool { return e.host.gate.Open && !e.host.mayStart() }

// NextOnHostOf is the first job that may start on the host of another, nil if none.
func (s *Schedule) NextOnHostOf(e *Job, now int64) *Job { return e.host.nextJob(s, now) }

// jobsOn lists the jobs that a host has in one of its sets, or any host has.
func (s *Schedule) jobsOn(name string, set func(*host) map[*Job]struct{}) []ID {
	var found []*Job
	add := func(h *host) { found = slices.AppendSeq(found, maps.Keys(set(h))) }
	if h := s.hosts[name]; h != nil {
		add(h)
	} else if name == "" {
		for _, h := range s.hosts {
			add(h)
		}
	}
	return idsOf(found)
}

// idsOf returns the ids of entries in the order of their submission.
func idsOf(found []*Job) []ID {
	slices.SortFunc(found, func(a, b *Job) int { return cmp.Compare(a.No, b.No) })
	ids := make([]ID, len(found))
	for n, e := range found {
		ids[n] = e.ID
	}
	return ids
}
