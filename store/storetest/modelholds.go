package storetest

import (
	"time"

	"pgregory.net/rapid"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/window"
)

// modelHolds are the windows and pauses of a host.
type modelHolds struct {
	gate   *window.Gate
	review time.Time // when the jobs whose time has come are looked at again; zero: never
}

// start is the start of the job as windows see it.
func (j *modelJob) start() window.Start {
	return window.Start{Procedure: j.Procedure, ReadOnly: j.ReadOnly, Scheduled: !j.FireTime.IsZero()}
}

// keeps reports whether a window or a pause keeps a job from starting, and when that changes; zero: not by itself.
func (m *model) keeps(j *modelJob, now time.Time) (keeps bool, until time.Time) {
	h := m.holds[j.Host]
	if h == nil || h.gate == nil {
		return false, time.Time{}
	}
	v := h.gate.Judge(j.start(), now)
	if !v.May() {
		return true, v.Until
	}
	end := v.Until
	if end.IsZero() {
		end = v.KnownUntil
	}
	if last := end.Add(-time.Second); last.After(now) {
		return false, last
	}
	return true, v.Until
}

// join lets a job whose time has come wait for its turn, or for the end of a window.
func (m *model) join(j *modelJob, now time.Time) {
	j.woken = true
	var until time.Time
	j.kept, until = m.keeps(j, now)
	if h := m.holds[j.Host]; h != nil && h.gate != nil && !j.kept && j.allowed && j.from.IsZero() { // the store was opened meanwhile
		j.from = h.gate.FreeSince(j.start(), now)
	}
	if h := m.holds[j.Host]; h != nil && !until.IsZero() && (h.review.IsZero() || until.Before(h.review)) {
		h.review = until
	}
}

// setHolds says what the windows and pauses of a host are. What waits is looked at by the next advance.
func (m *model) setHolds(host string, g *window.Gate) {
	h := &modelHolds{gate: g}
	m.holds[host] = h
	if m.count(func(j *modelJob) bool { return j.Host == host && j.State == harp.StateQueued && j.woken }) > 0 {
		h.review = time.Unix(0, 1)
	}
}

// looksAgain reports whether what waits on a host is looked at by the next advance, as it is by the first one after a store was opened.
func (m *model) looksAgain(host string) bool {
	h := m.holds[host]
	return h != nil && !h.review.IsZero() && (m.latest.IsZero() || !h.review.After(m.latest))
}

// reviewHolds looks again at what waits on hosts, and starts what may start there.
func (m *model) reviewHolds(at, now time.Time) (claimed []*modelJob) {
	for host, h := range m.holds {
		if h.review.IsZero() || h.review.After(at) {
			continue
		}
		h.review = time.Time{}
		for _, j := range m.jobs {
			if j.Host == host && j.State == harp.StateQueued && j.woken && (!j.kept || !j.isLate(now)) {
				m.join(j, now)
			}
		}
		m.settle(now)
		on := func(j *modelJob) bool { return j.Host == host }
		for j := m.first(now, on); j != nil; j = m.first(now, on) {
			m.start(j, now)
			claimed = append(claimed, j)
		}
	}
	return claimed
}

func (d *duel) holds(t *rapid.T) {
	d.tick(0)
	var gate *window.Gate
	if rapid.IntRange(0, 3).Draw(t, "is held") > 0 {
		g := d.drawGate(t)
		gate = &g
	}
	host := rapid.SampledFrom(hostNames).Draw(t, "host")
	d.m.setHolds(host, gate)
	d.st.SetHolds(host, gate)
}

// drawGate makes a gate of some windows and pauses.
func (d *duel) drawGate(t *rapid.T) window.Gate {
	at := func(name string, least, most int) time.Time {
		return d.now.Add(d.unlike(time.Duration(rapid.IntRange(least, most).Draw(t, name)) * time.Second))
	}
	from, until := at("known from", -30, 2), at("known until", 3, 90)
	var windows []*window.Expanded
	var pauses []window.Pause
	for range rapid.IntRange(0, 3).Draw(t, "windows") {
		begin, end := at("from", -10, 20), time.Time{}
		if rapid.IntRange(0, 5).Draw(t, "ends") > 0 {
			end = at("to", 0, 40)
		}
		if rapid.IntRange(0, 3).Draw(t, "pause") == 0 {
			pauses = append(pauses, window.Pause{What: "host", Since: begin, Until: end})
			continue
		}
		is := window.Window{
			Name: "w", Source: window.Once{From: begin, To: end}, Only: rapid.IntRange(0, 3).Draw(t, "only") == 0,
			SchedulesOnly: rapid.IntRange(0, 3).Draw(t, "schedules only") == 0, All: rapid.Bool().Draw(t, "all"),
		}
		if of := rapid.SampledFrom([]string{"", "p", "q"}).Draw(t, "of"); of != "" {
			is.Procedures = []string{of}
		}
		windows = append(windows, is.Expand(from, until))
	}
	return window.NewGate(from, until, windows, pauses)
}
