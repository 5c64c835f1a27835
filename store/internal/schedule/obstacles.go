package schedule

import (
	"cmp"
	"slices"

	"github.com/google/uuid"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/msgpack"
	"github.com/harpcaller/harp/store"
)

// namedJobs is how many of the jobs that are in the way of another are named.
const namedJobs = 10

// Obstacles lists all that keeps a waiting job from starting at this moment. The first is that which
// Reason tells.
func (s *Schedule) Obstacles(e *Job, j *store.Job) []harp.Obstacle {
	first := s.Reason(e, j)
	if e.survives {
		first = harp.ObstacleLastAttempt
	}
	all := slices.Concat(e.ownObstacles(j), s.holdObstacles(e), s.queueObstacles(e), e.hostObstacles())
	slices.SortStableFunc(all, func(a, b harp.Obstacle) int {
		switch {
		case a.Reason == first && b.Reason != first:
			return -1
		case b.Reason == first && a.Reason != first:
			return 1
		}
		return 0
	})
	return all
}

// ownObstacles are the times that a job waits for, its last attempt, and its batch.
func (e *Job) ownObstacles(j *store.Job) (all []harp.Obstacle) {
	waitsForTime := e.waking.index > 0
	if e.survives {
		all = append(all, harp.Obstacle{Reason: harp.ObstacleLastAttempt, Since: j.Since})
	}
	if waitsForTime && e.notBefore != 0 && e.notBefore >= e.waking.at {
		all = append(all, harp.Obstacle{Reason: harp.ReasonStartAfter, Until: msgpack.FromNanos(e.notBefore)})
	}
	if end := e.pauseEnds(); waitsForTime && end != 0 && end >= e.waking.at {
		all = append(all, harp.Obstacle{Reason: j.Reason, Since: j.Since, Until: msgpack.FromNanos(end)})
	}
	if b := e.held; b != nil {
		o := harp.Obstacle{Reason: harp.ReasonAgentBusy}
		if b.again.index > 0 {
			o.Until = msgpack.FromNanos(b.again.at)
		}
		all = append(all, o)
	}
	if e.parked || e.batch != nil && e.batch.halted {
		all = append(all, harp.Obstacle{Reason: harp.ReasonBatch, Batch: e.batch.id})
	}
	return all
}

// queueObstacles are a pause of the queue, and those that hold its slots or stand before the job.
func (s *Schedule) queueObstacles(e *Job) (all []harp.Obstacle) {
	q := e.Queue
	switch {
	case q.unlimited():
		return nil
	case q.Pause != nil:
		p := q.Pause
		all = append(all, harp.Obstacle{Reason: harp.ReasonPaused, Since: p.Since, Until: p.Until, By: p.By, Why: p.Reason})
	}
	isNext := e.hostQueue != nil && e.hostQueue.allows(e, s)
	if full := len(q.active) >= q.Concurrency; full || !isNext && q.Pause == nil && e.hostQueue != nil {
		all = append(all, harp.Obstacle{Reason: harp.ReasonQueue, Slots: q.Concurrency, Jobs: firstNames(q.active), Ahead: e.Position() - 1})
	}
	return all
}

// hostObstacles are that its host is away or takes no more.
func (e *Job) hostObstacles() (all []harp.Obstacle) {
	h := e.host
	switch {
	case !h.gate.Open:
		all = append(all, harp.Obstacle{Reason: h.gate.Reason, Since: h.gate.LastHeard})
	case len(h.active) >= h.gate.Most:
		all = append(all, harp.Obstacle{Reason: harp.ReasonAgentBusy, Slots: h.gate.Most, Jobs: firstNames(h.active)})
	}
	return all
}

// firstNames are the ids of those jobs that were submitted first, of which a queue may have many.
func firstNames(jobs map[*Job]struct{}) []string {
	first := make([]*Job, 0, namedJobs+1)
	for e := range jobs {
		if len(first) == namedJobs && e.No > first[namedJobs-1].No {
			continue
		}
		at, _ := slices.BinarySearchFunc(first, e.No, func(other *Job, no uint64) int { return cmp.Compare(other.No, no) })
		first = slices.Insert(first, at, e)
		first = first[:min(len(first), namedJobs)]
	}
	names := make([]string, len(first))
	for n, e := range first {
		names[n] = uuid.UUID(e.ID).String()
	}
	return names
}
