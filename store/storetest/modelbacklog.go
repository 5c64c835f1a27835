package storetest

import (
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/store"
)

// modelBacklog is what is known of a procedure on a host whose agent was too busy for it.
type modelBacklog struct {
	host, procedure string
	probes          int       // on their way, not answered
	taken           int       // in a row
	again           time.Time // when one more is tried
}

const modelPause = 30 * time.Second

func (b *modelBacklog) most() int { return max(1, b.taken) }

// backlog is that of a job's procedure on its host; nil if there is none.
func (m *model) backlog(j *modelJob) *modelBacklog {
	for _, b := range m.backlogs {
		if b.host == j.Host && b.procedure == j.Procedure {
			return b
		}
	}
	return nil
}

// held are the jobs that a backlog holds back.
func (m *model) held(b *modelBacklog) (held []*modelJob) {
	for _, j := range m.jobs {
		if j.held && j.Host == b.host && j.Procedure == b.procedure {
			held = append(held, j)
		}
	}
	return held
}

// endBacklogs forgets those that are over.
func (m *model) endBacklogs() {
	for i := len(m.backlogs) - 1; i >= 0; i-- {
		if b := m.backlogs[i]; b.probes == 0 && len(m.held(b)) == 0 {
			m.backlogs = append(m.backlogs[:i:i], m.backlogs[i+1:]...)
		}
	}
}

// holdBack keeps a job that its agent was too busy for, and those that could be sent.
func (m *model) holdBack(j *modelJob) {
	b := m.backlog(j)
	if b == nil {
		b = &modelBacklog{host: j.Host, procedure: j.Procedure}
		m.backlogs = append(m.backlogs, b)
	}
	b.taken, b.again = 0, j.comes()
	j.hold()
	for _, o := range m.jobs {
		if o.State == harp.StateQueued && o.woken && !o.kept && o.Host == j.Host && o.Procedure == j.Procedure && m.free(o.Queue) > 0 {
			o.hold()
		}
	}
}

func (j *modelJob) hold() { j.held, j.woken, j.kept, j.set.came = true, false, false, time.Time{} }

// wake lets a job's time come; it may have to wait with others for their agent.
func (m *model) wake(j *modelJob, now time.Time) {
	b := m.backlog(j)
	if b == nil || len(m.held(b)) == 0 && b.probes < b.most() {
		m.join(j, now)
		return
	}
	j.hold()
	if b.again.IsZero() {
		b.again = now.Add(modelPause)
	}
}

// answered notes that an attempt was taken or not, and returns how many may be on their
// way from then on.
func (m *model) answered(j *modelJob, isBusy, isOver bool) (b *modelBacklog, most int) {
	b = m.backlog(j)
	if p := j.probe; p != nil {
		if p.probes--; !isBusy {
			p.taken++
		}
		j.probe = nil
	}
	m.endBacklogs()
	if b == nil || isBusy {
		return nil, 0
	}
	if isOver {
		return b, max(b.most(), b.probes+1)
	}
	return b, b.most()
}

// letGo lets go what a backlog holds, up to one that its queue lets start.
func (m *model) letGo(b *modelBacklog, now time.Time) bool {
	for m.hostMay(b.host) {
		var first *modelJob
		for _, j := range m.held(b) {
			if first == nil || before(j, first) {
				first = j
			}
		}
		if first == nil {
			return false
		}
		first.held = false
		if first.isLate(now) {
			continue
		}
		m.join(first, now)
		m.settle(now)
		if !first.kept && m.free(first.Queue) > 0 {
			first.let = true
			return true
		}
	}
	return false
}

// tryBacklog starts jobs of a backlog until so many are on their way.
func (m *model) tryBacklog(b *modelBacklog, most int, now time.Time) (out []*modelJob) {
	if b == nil {
		return nil
	}
	if len(m.held(b)) > 0 {
		b.again = now.Add(modelPause)
	}
	for b.probes < most && m.letGo(b, now) {
		k := m.nextOfLet(now)
		if k == nil {
			break
		}
		out = append(out, k)
	}
	m.endBacklogs()
	return out
}

// nextOfLet starts the next of the queue of the job that was let go last.
func (m *model) nextOfLet(now time.Time) *modelJob {
	for _, j := range m.jobs {
		if j.let {
			j.let = false
			return m.nextOfQueue(j, now)
		}
	}
	return nil
}

// ready lets go what a host's agent was too busy for.
func (m *model) ready(host string, now time.Time) {
	m.latest = now
	for _, j := range m.jobs {
		if j.Host == host && j.waitsForTime() && j.Reason == harp.ReasonAgentBusy && !j.wakeAt().IsZero() && !j.isLate(now) {
			if j.wakeAt().After(now) {
				j.set.pause = now.Sub(j.WakeAt)
			}
			if !j.comes().After(now) {
				m.wake(j, now)
			}
		}
	}
	for _, b := range m.backlogs {
		if b.host != host {
			continue
		}
		for n := b.most() - b.probes; n > 0 && m.letGo(b, now); n-- {
			for _, j := range m.jobs {
				j.let = false
			}
		}
	}
	m.endBacklogs()
	m.settle(now)
}

// dissolve lets all that waits for a host's agent wait for the host.
func (m *model) dissolve(host string) {
	var left []*modelBacklog
	for _, b := range m.backlogs {
		if b.host != host {
			left = append(left, b)
			continue
		}
		for _, j := range m.held(b) {
			if j.held, j.woken = false, true; !j.isLate(m.latest) {
				m.join(j, m.latest)
			}
		}
	}
	m.backlogs = left
	m.settle(m.latest)
}

// isBusy reports whether an event has sent a job back because its agent was busy.
func isBusy(l store.Life) bool {
	return l.State == harp.StateQueued && l.Reason == harp.ReasonAgentBusy
}
