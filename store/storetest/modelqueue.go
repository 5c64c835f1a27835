package storetest

import (
	"math"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/store"
)

// modelQueue is what a queue is beyond its jobs.
type modelQueue struct {
	concurrency int
	fixed       bool             // by an operator
	pause       *harp.QueuePause // nil: it is not paused
	changed     time.Time        // a change lets jobs start, with the next advance; zero: none
}

// free is how many more jobs of a queue may start.
func (m *model) free(q harp.Value) int {
	if q == nil {
		return math.MaxInt
	}
	is := m.queues[string(q)]
	if is == nil || is.pause != nil {
		return 0
	}
	return is.concurrency - m.count(func(j *modelJob) bool {
		return string(j.Queue) == string(q) && store.HoldsSlot(j.State)
	})
}

func (m *model) isPaused(q harp.Value) bool { return q != nil && m.queues[string(q)].pause != nil }

// isIdle reports whether no job of a queue waits or holds a slot.
func (m *model) isIdle(q harp.Value) bool {
	return m.count(func(j *modelJob) bool { return string(j.Queue) == string(q) && !j.State.Ended() }) == 0
}

// enter makes the queue of a job, if it is the first.
func (m *model) enter(j *modelJob) {
	if j.Queue == nil {
		return
	}
	q := m.queues[string(j.Queue)]
	if q == nil {
		q = &modelQueue{}
		m.queues[string(j.Queue)] = q
	}
	if m.isIdle(j.Queue) && !q.fixed {
		q.concurrency = j.Concurrency
	}
}

// change is what an operator changes of a queue; false if it is not there.
func (m *model) change(name harp.Value, c harp.QueueChange, now time.Time) bool {
	m.latest = now
	q := m.queues[string(name)]
	if q == nil {
		if c.Paused == nil || !*c.Paused {
			return false
		}
		q = &modelQueue{concurrency: 1}
		m.queues[string(name)] = q
	}
	if c.Paused != nil {
		q.pause = nil
		if *c.Paused {
			q.pause = &harp.QueuePause{By: somebody, Reason: c.Reason, Since: now, Until: c.Until}
		}
	}
	if c.Concurrency != nil {
		if q.fixed = *c.Concurrency > 0; q.fixed {
			q.concurrency = *c.Concurrency
		}
	}
	m.settle(now)
	m.fillLater(name, now)
	return true
}

// fillLater has what may start in a queue start with the next advance.
func (m *model) fillLater(name harp.Value, now time.Time) {
	if m.first(now, inQueue(name)) != nil {
		m.queues[string(name)].changed = now
	}
}

// unpause ends the pauses that are over.
func (m *model) unpause(at, now time.Time) {
	for name, q := range m.queues {
		if q.pauseEnds().IsZero() || q.pauseEnds().After(at) {
			continue
		}
		q.pause = nil
		m.settle(now)
		if m.queues[name] != nil {
			m.fillLater(harp.Value(name), now)
		}
	}
}

// pauseEnds is when the pause of a queue ends by itself; the zero time if it does not.
func (q *modelQueue) pauseEnds() time.Time {
	if q.pause == nil {
		return time.Time{}
	}
	return q.pause.Until
}

func inQueue(name harp.Value) func(j *modelJob) bool {
	return func(j *modelJob) bool { return string(j.Queue) == string(name) }
}

// fill starts what the changes of queues have let start.
func (m *model) fill(at, now time.Time) (claimed []*modelJob) {
	for name, q := range m.queues {
		if q.changed.IsZero() || q.changed.After(at) {
			continue
		}
		q.changed = time.Time{}
		for j := m.first(now, inQueue(harp.Value(name))); j != nil; j = m.first(now, inQueue(harp.Value(name))) {
			m.start(j, now)
			claimed = append(claimed, j)
		}
	}
	m.settle(now)
	return claimed
}

// nextOfQueue starts the next of the queue that j is in; jobs in none have one for
// each host.
func (m *model) nextOfQueue(j *modelJob, now time.Time) *modelJob {
	k := m.first(now, func(k *modelJob) bool {
		return string(k.Queue) == string(j.Queue) && (j.Queue != nil || k.Host == j.Host)
	})
	if k != nil {
		m.start(k, now)
	}
	return k
}

// cancelQueue cancels all jobs of a queue and returns how many had not ended.
func (m *model) cancelQueue(q harp.Value, by harp.CancelRequest) int {
	n := 0
	for _, j := range m.jobs {
		if j.State.Ended() || string(j.Queue) != string(q) {
			continue
		}
		n++
		waited := j.State == harp.StateQueued
		next, effect, err := j.Next(store.Event{Kind: store.CancelReq, At: by.Time, By: by.By})
		if err != nil {
			panic(err)
		}
		j.Life, j.tell, j.unsaid, j.set.over = next, j.tell || effect.Tell, waited, 0
		j.held = false
	}
	m.endBacklogs()
	if n > 0 {
		m.settle(by.Time)
	}
	return n
}
