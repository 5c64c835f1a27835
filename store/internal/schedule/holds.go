package schedule

import (
	"math"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/msgpack"
	"github.com/harpcaller/harp/store"
	"github.com/harpcaller/harp/window"
)

// holds are the windows and pauses of a host, and the jobs that they keep back: out of everybody's way, until the alarm
// rings at which some of them may start.
type holds struct {
	gate    *window.Gate // nil: nothing is kept back
	kept    map[*Job]struct{}
	review  Alarm // what is kept back is another from then on
	answers map[window.Start]answer
}

// atOnce is a time that is past wherever the clock is set to, and before all that is due: what a window keeps back does not end
// for its absent host before it is looked at.
const atOnce = 1

// maxAnswers bounds what is remembered of one host: procedures can be many.
const maxAnswers = 100

// answer is whether a kind of start is kept back, from the moment on at which it was asked.
type answer struct {
	kept        bool
	from, until int64 // math.MaxInt64: as long as the gate stays
	free        int64 // since when it is not kept back; math.MinInt64: always
}

// windowStart is the start of the job as windows see it.
func (e *Job) windowStart() window.Start {
	return window.Start{Procedure: e.procedure, ReadOnly: e.readOnly, Scheduled: e.scheduled, Begun: e.begun}
}

// ask says whether a start is kept back now, and until when that is so.
func (h *holds) ask(s window.Start, now int64) answer {
	if h.gate == nil {
		return answer{until: math.MaxInt64}
	}
	if a, ok := h.answers[s]; ok && a.from <= now && now < a.until {
		return a
	}
	v := h.gate.Judge(s, msgpack.FromNanos(now))
	a := answer{kept: v.Left() == 0, from: now, until: math.MaxInt64}
	switch {
	case !a.kept:
		a.until, a.free = add64(now, int64(v.Left())), math.MinInt64
		if since := h.gate.FreeSince(s, v.At); !since.IsZero() {
			a.free = msgpack.Nanos(since)
		}
	case !v.Until.IsZero():
		a.until = msgpack.Nanos(v.Until)
	}
	if h.answers == nil || len(h.answers) >= maxAnswers {
		h.answers = map[window.Start]answer{}
	}
	h.answers[s] = a
	return a
}

// isKeptBack reports whether a window or a pause keeps a job from starting now.
func (e *Job) isKeptBack(now int64) bool { return e.host.holds.ask(e.windowStart(), now).kept }

// keepBack parks a job with its host if a window or a pause keeps it from starting now. It is looked at again
// when that changes. A member of a batch gives its slot back: another host may have it.
func (s *Schedule) keepBack(e *Job, now int64) bool {
	h := &e.host.holds
	if h.gate == nil {
		return false
	}
	a := h.ask(e.windowStart(), now)
	if a.until != math.MaxInt64 && (h.review.index == 0 || a.until < h.review.at) {
		s.agenda.set(&h.review, a.until)
	}
	if !a.kept {
		if e.allowed == math.MinInt64 { // the store was opened meanwhile: what kept it back before is not known otherwise
			e.allowed = a.free
			e.armAlarm(&s.agenda)
		}
		return false
	}
	s.leaveHostQueue(e, now)
	e.isKept = true
	h.kept[e] = struct{}{}
	s.giveBatchSlot(e)
	return true
}

// leaveKept takes a job out of those that are kept back, if it is one.
func (e *Job) leaveKept() {
	if e.isKept {
		e.isKept = false
		delete(e.host.holds.kept, e)
	}
}

// SetHolds says what windows and pauses keep back on a host; nil: nothing. From now on none of it starts. What
// waited for them is looked at by the next Advance, which is due at once.
func (s *Schedule) SetHolds(name string, g *window.Gate) {
	h := s.hosts[name]
	if h == nil {
		if g == nil {
			return
		}
		h = s.host(name)
	}
	h.holds.gate, h.holds.answers = g, nil
	if len(h.holds.kept) > 0 || len(h.hostQueues) > 0 {
		s.agenda.set(&h.holds.review, atOnce)
	} else {
		s.agenda.clear(&h.holds.review)
	}
}

// ReviewHolds looks at what waits on the host of an alarm again: what is not kept back any more waits for its turn, and the
// other way round.
func (s *Schedule) ReviewHolds(a *Alarm, now int64) {
	h := a.host
	var waiting []*Job
	for l := range h.hostQueues {
		l.entries.Scan(func(e *Job) bool {
			waiting = append(waiting, e)
			return true
		})
	}
	kept := h.holds.kept
	h.holds.kept = map[*Job]struct{}{}
	for e := range kept {
		if e.isKept = false; !e.IsCancelled() && !e.isLate(now) { // they end without
			s.joinHostQueue(e, now)
		}
	}
	for _, e := range waiting {
		s.keepBack(e, now)
	}
}

// ReviewLater has what waits on the host of an alarm be looked at by the next Advance.
func (s *Schedule) ReviewLater(a *Alarm) { s.agenda.set(a, atOnce) }

// HostName is the name of the host that an alarm is about; "" if it is about none.
func (a *Alarm) HostName() string {
	if a.host == nil {
		return ""
	}
	return a.host.name
}

// Judge says what windows and pauses make of a start on a host now.
func (s *Schedule) Judge(name string, start window.Start, now int64) window.Verdict {
	h := s.hosts[name]
	if h == nil || h.holds.gate == nil {
		return window.Verdict{At: msgpack.FromNanos(now)}
	}
	return h.holds.gate.JudgeStart(start, msgpack.FromNanos(now))
}

// holdObstacles are the windows and pauses that keep a job from starting.
func (s *Schedule) holdObstacles(e *Job) (all []harp.Obstacle) {
	all = store.ObstaclesOf(s.Judge(e.host.name, e.windowStart(), s.Latest))
	if len(all) == 0 && e.isKept { // nobody knows, or it has just ended
		all = append(all, harp.Obstacle{Reason: harp.ReasonWindow})
	}
	return all
}
