package storetest

import (
	"slices"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/store"
)

// settle notes which jobs have nothing but their host in their way.
func (m *model) settle(now time.Time) {
	m.latest = now
	for name, q := range m.queues {
		if q.pause == nil && !q.fixed && m.isIdle(harp.Value(name)) {
			delete(m.queues, name)
		}
	}
	for _, j := range m.jobs {
		place := 1 + m.count(func(o *modelJob) bool { return m.sameLine(o, j) && before(o, j) })
		is := j.State == harp.StateQueued && j.woken && !j.kept && place <= m.free(j.Queue)
		if is && !j.allowed {
			j.from = now
		}
		j.allowed = is
	}
}

// deadline is when a job has waited for its absent host as long as it may; the zero
// time if it does not wait for that.
func (m *model) deadline(j *modelJob) time.Time {
	if !j.allowed || !m.isAway(j.Host) || j.OfflineWait == harp.NoLimit {
		return time.Time{}
	}
	from := later(j.asked(), j.comes(), j.from, m.gate(j.Host).LastHeard, m.since[j.Host])
	return from.Add(j.OfflineWait)
}

func later(times ...time.Time) time.Time { return slices.MaxFunc(times, time.Time.Compare) }

// advance does what is due, in the order of the times at which it was.
func (m *model) advance(now time.Time) (ended, claimed []*modelJob) {
	if !m.toldTime {
		m.opened(now)
	}
	for _, j := range m.jobs {
		if j.unsaid {
			j.unsaid = false
			ended = append(ended, j)
		}
	}
	m.settle(now)
	var woken []*modelJob
	for at := m.due(); !at.IsZero() && !at.After(now); at = m.due() {
		m.unpause(at, now)
		claimed = append(claimed, m.reviewHolds(at, now)...)
		for _, j := range m.jobs {
			if j.waitsForTime() && !j.comes().After(at) && !j.isLate(now) {
				if m.wake(j, now); j.woken && !j.kept {
					woken = append(woken, j)
				}
			}
		}
		claimed = append(claimed, m.fill(at, now)...)
		for _, b := range m.backlogs {
			if !b.again.IsZero() && !b.again.After(at) {
				b.again = time.Time{}
				claimed = append(claimed, m.tryBacklog(b, max(b.most(), b.probes+1), now)...)
			}
		}
		over, started := m.giveUp(at, now)
		ended, claimed = append(ended, over...), append(claimed, started...)
		m.settle(now)
		for j := m.overdue(at); j != nil; j = m.overdue(at) {
			m.expire(j, now)
			ended = append(ended, j)
		}
	}
	slices.SortFunc(woken, func(a, b *modelJob) int {
		if before(a, b) {
			return -1
		}
		return 1
	})
	for _, j := range woken {
		if k := m.nextOfQueue(j, now); k != nil {
			claimed = append(claimed, k)
		}
	}
	m.settle(now)
	return ended, claimed
}

// waitsForTime reports whether a job is woken when its time comes.
func (j *modelJob) waitsForTime() bool {
	return j.State == harp.StateQueued && !j.woken && !j.held && !j.Survivor
}

// giveUp ends the attempts whose hosts have been silent too long.
func (m *model) giveUp(at, now time.Time) (ended, claimed []*modelJob) {
	for _, j := range m.jobs {
		if j.State != harp.StateUnknown || j.WakeAt.IsZero() || j.wakeAt().After(at) {
			continue
		}
		effect, started, err := m.apply(j, store.Event{Kind: store.Lose, Reason: harp.LostTooLong, At: now, Jitter: 1})
		if err != nil {
			panic(err)
		}
		claimed = append(claimed, started...)
		if effect.Ends {
			ended = append(ended, j)
		} else if said := m.paused(j); !said.Before(now) && !said.After(j.WakeAt) {
			j.WakeAt = said // the store's choice
		}
	}
	return ended, claimed
}

func (m *model) expire(j *modelJob, now time.Time) {
	reason := "start_before"
	if m.reason(j) == harp.ReasonOffline {
		reason = harp.ReasonOffline
	}
	next, _, err := j.Next(store.Event{Kind: store.Expire, At: now, Reason: reason})
	if err != nil {
		panic(err)
	}
	j.Life, j.held = next, false
	m.endBacklogs()
	m.settle(now)
}

func (m *model) overdue(now time.Time) *modelJob {
	for _, j := range m.jobs {
		if j.State != harp.StateQueued {
			continue
		}
		d := m.deadline(j)
		if j.isLate(now) || !d.IsZero() && !d.After(now) {
			return j
		}
	}
	return nil
}

// due is when time makes something happen next; the zero time if never.
func (m *model) due() time.Time {
	var next time.Time
	note := func(t time.Time) {
		if !t.IsZero() && (next.IsZero() || t.Before(next)) {
			next = t
		}
	}
	for _, q := range m.queues {
		note(q.changed)
		note(q.pauseEnds())
	}
	for _, b := range m.backlogs {
		note(b.again)
	}
	for _, h := range m.holds {
		note(h.review)
	}
	for _, j := range m.jobs {
		if j.unsaid {
			note(j.EndTime.Add(j.set.over))
		}
		if j.State == harp.StateUnknown {
			note(j.wakeAt())
		}
		if j.State != harp.StateQueued {
			continue
		}
		note(j.Expires)
		note(m.deadline(j))
		if j.waitsForTime() && !j.isLate(m.latest) {
			note(j.comes())
		}
	}
	return next
}
