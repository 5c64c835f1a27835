package storetest

import (
	"time"

	"github.com/harpcaller/harp"
)

// modelSet is by how much the clock was set since what is measured from.
type modelSet struct {
	asked time.Duration // since the job was submitted,
	pause time.Duration // since its WakeAt was written,
	over  time.Duration // and since it ended
	of    time.Time     // the WakeAt
	came  time.Time     // when its time came, if the clock was set since; zero: it was not
}

// clockSet sets the clock: what is measured from a time or to the end of a span has as
// much left as before, and what was asked for at a time stays.
func (m *model) clockSet(by time.Duration) {
	move := func(t *time.Time) {
		if !t.IsZero() {
			*t = t.Add(by)
		}
	}
	move(&m.latest)
	for _, j := range m.jobs {
		if came := j.comes(); j.woken {
			move(&came)
			j.set.came = came
		}
		j.set.asked += by
		j.set.pause += by
		j.set.over += by
		move(&j.from)
	}
	for _, q := range m.queues {
		move(&q.changed)
	}
	for _, b := range m.backlogs {
		move(&b.again)
	}
	for host, h := range m.holds {
		if h.gate != nil {
			m.setHolds(host, h.gate)
		}
	}
	for name, g := range m.gates {
		move(&g.LastHeard)
		m.gates[name] = g
		since := m.since[name]
		move(&since)
		m.since[name] = since
	}
}

// wakeAt is its WakeAt by the clock as it is set; the zero time if it has none.
func (j *modelJob) wakeAt() time.Time {
	if !j.WakeAt.Equal(j.set.of) {
		j.set.of, j.set.pause = j.WakeAt, 0
	}
	if j.WakeAt.IsZero() {
		return j.WakeAt
	}
	return j.WakeAt.Add(j.set.pause)
}

// comes is when its time comes, or came.
func (j *modelJob) comes() time.Time {
	if !j.set.came.IsZero() {
		return j.set.came
	}
	return later(j.NotBefore, j.wakeAt())
}

// opened is told the time when the store was opened: by that clock all jobs were submitted, and their pauses began, now at the latest.
func (m *model) opened(now time.Time) {
	m.toldTime = true
	for _, j := range m.jobs {
		isPausing := !j.wakeAt().IsZero() && j.State == harp.StateQueued
		if began := j.Since.Add(j.set.pause); isPausing && began.After(now) {
			j.set.pause += now.Sub(began)
		}
		if j.asked().After(now) {
			j.set.asked = now.Sub(j.SubmitTime)
		}
	}
}

// asked is when it was submitted.
func (j *modelJob) asked() time.Time { return j.SubmitTime.Add(j.set.asked) }

// setClock sets the clock by something.
func (d *duel) setClock(by time.Duration) {
	d.now = d.now.Add(by)
	d.m.clockSet(by)
	d.st.ClockSet(by)
}
