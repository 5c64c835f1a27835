package schedule

import (
	"container/heap"
	"math"
	"time"

	"github.com/harpcaller/harp/internal/msgpack"
)

// Since is a time that was given with an operation, by the clock as it was set since that was
// asked for.
func (s *Schedule) Since(asked int64, at time.Time) time.Time {
	if at.IsZero() {
		return at
	}
	return at.Add(time.Duration(s.Ahead - asked))
}

// Steady is a time by a clock that was never set while the store was open. Rows whose time
// runs out are kept by it.
func (s *Schedule) Steady(now int64) int64 { return now - s.Ahead }

// ClockSet moves all that is measured from a time or to the end of a span by as much as the
// clock was set, so that as much of it is left as before. What was asked for at a certain
// time stays.
func (s *Schedule) ClockSet(by int64) {
	s.Ahead += by
	s.Latest = moved(s.Latest, by)
	for _, e := range s.jobs {
		e.clockSet(by)
	}
	for _, q := range s.queues {
		q.clockSet(by)
	}
	for _, b := range s.batches {
		b.since = moved(b.since, by)
	}
	for _, h := range s.hosts {
		h.clockSet(by)
	}
	for _, d := range s.cancelled {
		d.at = moved(d.at, by)
	}
	s.agenda.clockSet(by)
	for _, e := range s.jobs {
		s.wakePassed(e)
	}
	for name, h := range s.hosts {
		if h.holds.gate != nil {
			s.SetHolds(name, h.holds.gate) // by another time
		}
	}
}

// wakePassed has the time of a job come again that was passed as too late to start, where it is
// not any more.
func (s *Schedule) wakePassed(e *Job) {
	if e.expires == 0 || !e.Waits() || e.survives || e.hostQueue != nil || e.held != nil || e.parked || e.isKept || e.waking.index > 0 || e.isLate(s.Latest) {
		return
	}
	s.agenda.set(&e.waking, e.wake)
}

// NoteOpened is told the time once jobs were read as a store was opened: by that clock they were submitted, and their pauses began, now at
// the latest, so that none waits until a clock that was ahead is right. When an attempt was silent last nobody knows: it is lost rather too late.
func (s *Schedule) NoteOpened(now int64) {
	for _, b := range s.batches {
		b.since = min(b.since, now)
	}
	for _, e := range s.jobs {
		if e.submitted > now {
			e.submitted = now
			e.armAlarm(&s.agenda)
		}
	}
	for e, of := range s.pauses {
		if began := of.began + e.pauseSet; e.pause == of.ends && began > now && s.jobs[e.ID] == e {
			e.pauseSet += now - began
			e.armPause(&s.agenda)
		}
	}
	s.pauses = nil
}

// pause is one between attempts of a job that was read, by the clock of that moment.
type pause struct{ began, ends int64 }

// armPause sets the alarms of a job by its pause, which is another.
func (e *Job) armPause(g *agenda) {
	if e.losing.index > 0 {
		g.set(&e.losing, e.pauseEnds())
	}
	if e.waking.index > 0 {
		e.wake = e.comesAt()
		g.set(&e.waking, e.wake)
	}
}

// moved is a time by the clock as it was set; not known, or always, stay that.
func moved(at, by int64) int64 {
	if at == 0 || at == math.MinInt64 || at == math.MaxInt64 {
		return at
	}
	return at + by
}

func (e *Job) clockSet(by int64) {
	e.submitted, e.allowed = moved(e.submitted, by), moved(e.allowed, by)
	if e.pauseSet += by; e.hostQueue == nil && !e.isKept {
		e.wake = e.comesAt()
	} else { // it came
		e.wake = moved(e.wake, by)
	}
}

func (q *Queue) clockSet(by int64) {
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
		switch a.Kind {
		case AlarmWake:
			a.at = a.Job.wake
		case AlarmExpire, AlarmHolds, AlarmUnpause: // of times that stay
		default:
			a.at = moved(a.at, by)
		}
	}
	heap.Init(&g.list)
}

// NoteTime returns a time that was named, in nanoseconds, and notes it if it is the latest.
func (s *Schedule) NoteTime(now time.Time) int64 {
	n := msgpack.Nanos(now)
	s.Latest = max(s.Latest, n)
	return n
}
