package schedule

import (
	"container/heap"

	"github.com/harpcaller/harp/internal/msgpack"
)

// An Alarm is something that time alone makes due. It stands in the agenda once
// or not at all.
type Alarm struct {
	at      int64
	index   int // in the agenda, from 1; 0: not in it
	Kind    AlarmKind
	Job     *Job   // or
	Queue   *Queue // or
	Backlog *Backlog
	Batch   *Batch
	host    *host
}

// AlarmKind is what has become due.
type AlarmKind int

// The kinds of alarms.
const (
	AlarmWake    AlarmKind = iota // the job's time has come
	AlarmExpire                   // the job may not start any more
	AlarmAway                     // the job's host may have been away too long
	AlarmLost                     // the job's host has been silent too long
	AlarmRearm                    // the queue has had a free slot: look at all host queues that wait for a host
	AlarmBacklog                  // the backlog's agent may be less busy
	AlarmFill                     // the queue was changed: jobs may start by its free slots
	AlarmBatch                    // something of the batch may be due
	AlarmHolds                    // windows and pauses keep back something else on the host
	AlarmUnpause                  // the pause of the queue is over
)

// number is that of the job; 0 for a queue.
func (a *Alarm) number() uint64 {
	if a.Job == nil {
		return 0
	}
	return a.Job.No
}

// PopAlarm takes out the first alarm if it is due; nil if none is.
func (s *Schedule) PopAlarm(now int64) *Alarm { return s.agenda.pop(now) }

// PostponeAlarm puts back an alarm that could not be done.
func (s *Schedule) PostponeAlarm(a *Alarm) { s.agenda.set(a, a.at) }

// IsAwaited reports whether the silent host of a job is about to return; then the job's alarm
// rings again when that time is over.
func (s *Schedule) IsAwaited(e *Job, now int64) bool {
	until := msgpack.Nanos(e.host.gate.Awaited)
	if until > now {
		s.agenda.set(&e.losing, until)
	}
	return until > now
}

// agenda holds alarms in the order of their times, and of the jobs' numbers.
type agenda struct{ list alarmHeap }

// set puts the alarm at a time, wherever it was.
func (g *agenda) set(a *Alarm, at int64) {
	a.at = at
	if a.index == 0 {
		heap.Push(&g.list, a)
		return
	}
	heap.Fix(&g.list, a.index-1)
}

// clear takes the alarm out, if it is in.
func (g *agenda) clear(a *Alarm) {
	if a.index > 0 {
		heap.Remove(&g.list, a.index-1)
	}
}

// nextTime is the time of the first alarm; false if there is none.
func (g *agenda) nextTime() (int64, bool) {
	if len(g.list) == 0 {
		return 0, false
	}
	return g.list[0].at, true
}

// pop takes out the first alarm if it is due.
func (g *agenda) pop(now int64) *Alarm {
	if len(g.list) == 0 || g.list[0].at > now {
		return nil
	}
	return heap.Pop(&g.list).(*Alarm)
}

type alarmHeap []*Alarm

func (h alarmHeap) Len() int { return len(h) }

func (h alarmHeap) Less(i, j int) bool {
	if h[i].at != h[j].at {
		return h[i].at < h[j].at
	}
	return h[i].number() < h[j].number()
}

func (h alarmHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i+1, j+1
}

func (h *alarmHeap) Push(a any) {
	*h = append(*h, a.(*Alarm))
	(*h)[len(*h)-1].index = len(*h)
}

func (h *alarmHeap) Pop() any {
	last := len(*h) - 1
	a := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	a.index = 0
	return a
}

// IsDue reports whether a time has come that an alarm is set to.
func (s *Schedule) IsDue(now int64) bool {
	next, ok := s.agenda.nextTime()
	return ok && next <= now
}

// HasLeft reports whether a job has waited for its absent host as long as it may.
func (s *Schedule) HasLeft(e *Job, now int64) bool {
	if e.IsCancelled() || e.hostQueue == nil || !e.hostQueue.allows(e, s) || !e.host.isAway() {
		return false
	}
	if e.deadline() <= now {
		return true
	}
	e.armAlarm(&s.agenda)
	return false
}
