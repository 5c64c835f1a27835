package rows

import (
	"container/heap"
	"context"
	"math"
	"time"
)

// ClockSet implements store.Upkeep.
func (s *Store) ClockSet(by time.Duration) {
	s.mu.Lock()
	s.sched.clockSet(int64(by))
	s.clockAhead.Store(s.sched.ahead)
	s.mu.Unlock()
	// A restart would take all keys for older, or younger, than they are.
	if err := s.doAhead(context.Background(), SpaceCritical, func(*tx) error { return nil }); err != nil {
		s.log.Error("that the clock was set is not stored", "by", by, "err", err)
	}
}

// steady is a time by a clock that was never set while the store was open. Rows whose time
// runs out are kept by it.
func (s *schedule) steady(now int64) int64 { return now - s.ahead }

// clockSet moves all that is measured from a time or to the end of a span by as much as the
// clock was set, so that as much of it is left as before. What was asked for at a certain
// time stays.
func (s *schedule) clockSet(by int64) {
	s.ahead += by
	s.latest = moved(s.latest, by)
	for _, e := range s.jobs {
		e.clockSet(by)
	}
	for _, q := range s.queues {
		q.clockSet(by)
	}
	for _, h := range s.hosts {
		h.clockSet(by)
	}
	for _, d := range s.doomed {
		d.at = moved(d.at, by)
	}
	s.agenda.clockSet(by)
}

// moved is a time by the clock as it was set; not known, or always, stay that.
func moved(at, by int64) int64 {
	if at == 0 || at == math.MinInt64 || at == math.MaxInt64 {
		return at
	}
	return at + by
}

func (e *entry) clockSet(by int64) {
	e.submitted, e.allowed = moved(e.submitted, by), moved(e.allowed, by)
	if e.pauseSet += by; e.line == nil {
		e.wake = e.comes()
	} else { // it came
		e.wake = moved(e.wake, by)
	}
}

func (q *queue) clockSet(by int64) {
	for n := range q.since {
		q.since[n].at = moved(q.since[n].at, by)
	}
}

func (h *host) clockSet(by int64) {
	h.awaySince = moved(h.awaySince, by)
	for _, t := range []*time.Time{&h.gate.LastHeard, &h.gate.Awaited} {
		if !t.IsZero() {
			*t = t.Add(time.Duration(by))
		}
	}
}

// clockSet puts the alarms where their times are now.
func (g *agenda) clockSet(by int64) {
	for _, a := range g.list {
		switch a.kind {
		case alarmWake:
			a.at = a.entry.wake
		case alarmExpire:
		default:
			a.at = moved(a.at, by)
		}
	}
	heap.Init(&g.list)
}
