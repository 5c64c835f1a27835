package schedule

import (
	"fmt"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/failures"
	"github.com/harpcaller/harp/store"
)

// A holder is a principal, as long as there is something of its in the schedule.
type holder struct {
	who     harp.Principal
	jobs    int            // that have not ended
	waiting int            // those of them that hold no attempt
	queues  map[*Queue]int // why each is counted: its jobs that have not ended, and what it has said of the queue
}

// holder returns what a principal has, made if that is nothing yet.
func (s *Schedule) holder(who harp.Principal) *holder {
	h := s.holders[who]
	if h == nil {
		h = &holder{who: who, queues: map[*Queue]int{}}
		s.holders[who] = h
	}
	return h
}

// holdJob counts a job that holds no attempt.
func (h *holder) holdJob(q *Queue) {
	h.jobs++
	h.waiting++
	h.holdQueue(q)
}

// letJob takes back that a job is counted: it has ended.
func (s *Schedule) letJob(e *Job) {
	h := e.holder
	h.jobs--
	if !e.active {
		h.waiting--
	}
	s.letQueue(h, e.Queue)
	s.forgetIdle(h)
}

func (h *holder) holdQueue(q *Queue) {
	if !q.unlimited() {
		h.queues[q]++
	}
}

// letQueue takes back one reason for which a queue is counted.
func (s *Schedule) letQueue(h *holder, q *Queue) {
	if q.unlimited() {
		return
	}
	if h.queues[q]--; h.queues[q] == 0 {
		delete(h.queues, q)
	}
}

// forgetIdle forgets a holder of nothing.
func (s *Schedule) forgetIdle(h *holder) {
	if h.jobs == 0 && len(h.queues) == 0 {
		delete(s.holders, h.who)
	}
}

// Keep says whose a queue is that an operator has paused or given a concurrency, as far as nobody
// had before. It counts as that principal's as long as it is kept for that.
func (q *Queue) Keep(s *Schedule, by harp.Principal) {
	switch kept := q.Pause != nil || q.Fixed; {
	case kept && q.keeper == nil && by != (harp.Principal{}):
		q.keeper = s.holder(by)
		q.keeper.holdQueue(q)
	case !kept && q.keeper != nil:
		s.letQueue(q.keeper, q)
		s.forgetIdle(q.keeper)
		q.keeper = nil
	}
}

// Keeper is the principal that has said first what the queue is kept for; none if it is kept for its jobs alone.
func (q *Queue) Keeper() harp.Principal {
	if q.keeper == nil {
		return harp.Principal{}
	}
	return q.keeper.who
}

// QuotaUsed is how much a principal has of what a quota bounds.
func (s *Schedule) QuotaUsed(who harp.Principal) store.Quota {
	h := s.holders[who]
	if h == nil {
		return store.Quota{}
	}
	return store.Quota{Waiting: h.waiting, Queues: len(h.queues)}
}

// CheckJob refuses another job of a principal that has as much as it may; queue is nil for one in
// none. Errors: harp.ErrRefused.
func (s *Schedule) CheckJob(who harp.Principal, queue harp.Value, most store.Quota) error {
	if most == (store.Quota{}) {
		return nil
	}
	h := s.holders[who]
	switch {
	case h == nil:
		return nil
	case most.Waiting > 0 && h.waiting >= most.Waiting:
		return refuse("waiting", "%d jobs of %s %s wait, at most %d may", h.waiting, who.Kind, who.Name, most.Waiting)
	case queue == nil:
		return nil
	}
	return s.checkQueue(h, string(queue), most)
}

// CheckBatch refuses a batch by which a principal would have more than it may: its members are in a queue, in
// one for each host, or, with none, in none. Errors: harp.ErrRefused.
func (s *Schedule) CheckBatch(who harp.Principal, hosts int, queue harp.Value, perHost bool, most store.Quota) error {
	var h holder // of nothing
	if is := s.holders[who]; is != nil {
		h = *is
	}
	switch {
	case most.Waiting > 0 && h.waiting+hosts > most.Waiting:
		return refuse("waiting", "%d jobs of %s %s wait, with %d more there are more than %d", h.waiting, who.Kind, who.Name, hosts, most.Waiting)
	case queue == nil || most.Queues == 0:
		return nil
	case perHost && len(h.queues)+hosts > most.Queues:
		return refuse("queues", "%s %s has %d queues, with %d more there are more than %d", who.Kind, who.Name, len(h.queues), hosts, most.Queues)
	case perHost:
		return nil
	}
	return s.CheckQueue(who, string(queue), most)
}

// CheckQueue refuses another queue of a principal that has as many as it may. Errors: harp.ErrRefused.
func (s *Schedule) CheckQueue(who harp.Principal, name string, most store.Quota) error {
	if h := s.holders[who]; h != nil {
		return s.checkQueue(h, name, most)
	}
	return nil
}

func (s *Schedule) checkQueue(h *holder, name string, most store.Quota) error {
	if most.Queues == 0 || len(h.queues) < most.Queues {
		return nil
	}
	if q := s.queues[name]; q != nil && h.queues[q] > 0 {
		return nil
	}
	return refuse("queues", "%s %s has %d queues, at most %d", h.who.Kind, h.who.Name, len(h.queues), most.Queues)
}

// refuse names the quota that is used up, as the configuration does.
func refuse(quota, format string, args ...any) error {
	return failures.New("refused", store.QuotaName+quota+": "+fmt.Sprintf(format, args...)).Err()
}
