package storetest

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/store"
)

// model is the rules of waiting and starting, told in the plainest way: a list of
// jobs, looked through from end to end for everything.
type model struct {
	jobs   []*modelJob
	gates  map[string]store.Gate
	since  map[string]time.Time // since when absence took over from another reason
	latest time.Time            // that the store was told
}

type modelJob struct {
	store.Job
	woken   bool      // its time has come
	allowed bool      // nothing but its host is in its way,
	from    time.Time // since then
	tell    bool      // its queue was cancelled and its agent not told
	unsaid  bool      // and its row does not say so yet
}

func newModel() *model {
	return &model{gates: map[string]store.Gate{}, since: map[string]time.Time{}}
}

// gate is a host's gate; one that was never set is closed for absence.
func (m *model) gate(host string) store.Gate {
	if g, ok := m.gates[host]; ok {
		return g
	}
	return store.Gate{Reason: harp.ReasonOffline}
}

func (m *model) isAway(host string) bool {
	g := m.gate(host)
	return !g.Open && g.Reason == harp.ReasonOffline
}

func (m *model) setGate(host string, g store.Gate) {
	old := m.gate(host)
	if !old.Open && old.Reason != harp.ReasonOffline && !g.Open && g.Reason == harp.ReasonOffline {
		m.since[host] = m.latest
	}
	m.gates[host] = g
}

func (m *model) count(has func(j *modelJob) bool) int {
	n := 0
	for _, j := range m.jobs {
		if has(j) {
			n++
		}
	}
	return n
}

func (m *model) active(host string) int {
	return m.count(func(j *modelJob) bool { return j.Host == host && store.HoldsSlot(j.State) })
}

// free is how many more jobs of a queue may start.
func (m *model) free(q harp.Value) int {
	if q == nil {
		return math.MaxInt
	}
	concurrency := 0
	for _, j := range m.jobs {
		if concurrency == 0 && !j.State.Ended() && string(j.Queue) == string(q) {
			concurrency = j.Concurrency
		}
	}
	return concurrency - m.count(func(j *modelJob) bool {
		return string(j.Queue) == string(q) && store.HoldsSlot(j.State)
	})
}

func (m *model) hostMay(host string) bool {
	g := m.gate(host)
	return g.Open && m.active(host) < g.Most
}

// first is the first job in order that may start, of those that are asked for.
func (m *model) first(now time.Time, asked func(j *modelJob) bool) *modelJob {
	var best *modelJob
	for _, j := range m.jobs {
		switch {
		case j.State != harp.StateQueued, !j.woken, !asked(j):
		case j.isLate(now):
		case !m.hostMay(j.Host), m.free(j.Queue) <= 0:
		case best == nil || before(j, best):
			best = j
		}
	}
	return best
}

// isLate reports whether a job must not start any more.
func (j *modelJob) isLate(now time.Time) bool { return !j.Expires.IsZero() && !j.Expires.After(now) }

func before(a, b *modelJob) bool {
	return cmp.Or(cmp.Compare(b.Priority, a.Priority), cmp.Compare(a.No, b.No)) < 0
}

func (m *model) start(j *modelJob, now time.Time) {
	next, _, err := j.Next(store.Event{Kind: store.Claimed, At: now, Fence: j.Fence + 1})
	if err != nil {
		panic(err)
	}
	j.Life = next
}

// submit adds a job, which starts if nobody of its queue waits for its host before
// it and nothing is in its way.
func (m *model) submit(j store.Job, now time.Time) *modelJob {
	j.Life = store.Begin(now, "")
	added := &modelJob{Job: j, woken: !j.NotBefore.After(now)}
	m.adopt(added)
	m.jobs = append(m.jobs, added)
	ahead := m.count(func(o *modelJob) bool { return m.sameLine(o, added) && o != added && before(o, added) })
	if added.woken && ahead == 0 && m.first(now, func(o *modelJob) bool { return o == added }) != nil {
		m.start(added, now)
	}
	m.settle(now)
	return added
}

// adopt gives a job the concurrency of its queue, if it is there.
func (m *model) adopt(j *modelJob) {
	for _, o := range m.jobs {
		if j.Queue != nil && !o.State.Ended() && string(o.Queue) == string(j.Queue) {
			j.Concurrency = o.Concurrency
		}
	}
}

// sameLine reports whether a job waits for the same as another, its time having
// come.
func (m *model) sameLine(o, j *modelJob) bool {
	return o.State == harp.StateQueued && o.woken && o.Host == j.Host && string(o.Queue) == string(j.Queue)
}

// claim starts up to n jobs on some hosts.
func (m *model) claim(hosts []string, n int, now time.Time) []*modelJob {
	var out []*modelJob
	for len(out) < n {
		j := m.first(now, func(j *modelJob) bool { return slices.Contains(hosts, j.Host) })
		if j == nil {
			break
		}
		m.start(j, now)
		out = append(out, j)
	}
	m.settle(now)
	return out
}

// apply moves a job and returns what starts by it.
func (m *model) apply(j *modelJob, e store.Event) (store.Effect, []*modelJob, error) {
	wasFull := m.gate(j.Host).Open && !m.hostMay(j.Host)
	next, effect, err := j.Next(e)
	if err != nil {
		return effect, nil, err
	}
	j.Life = next
	effect.Tell = (effect.Tell || j.tell) && !effect.Ends
	j.tell = false
	if next.State == harp.StateQueued {
		j.woken = !j.NotBefore.After(e.At) && !j.WakeAt.After(e.At) && !j.isLate(e.At)
	}
	var out []*modelJob
	if effect.Gives {
		if k := m.nextOfQueue(j, e.At); k != nil {
			out = append(out, k)
		}
		if wasFull {
			if k := m.first(e.At, func(k *modelJob) bool { return k.Host == j.Host }); k != nil {
				m.start(k, e.At)
				out = append(out, k)
			}
		}
	}
	m.settle(e.At)
	return effect, out, nil
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
		j.Life, j.tell, j.unsaid = next, j.tell || effect.Tell, waited
	}
	if n > 0 {
		m.settle(by.Time)
	}
	return n
}

// settle notes which jobs have nothing but their host in their way.
func (m *model) settle(now time.Time) {
	m.latest = now
	for _, j := range m.jobs {
		place := 1 + m.count(func(o *modelJob) bool { return m.sameLine(o, j) && before(o, j) })
		is := j.State == harp.StateQueued && j.woken && place <= m.free(j.Queue)
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
	from := later(j.SubmitTime, j.NotBefore, j.WakeAt, j.from, m.gate(j.Host).LastHeard, m.since[j.Host])
	return from.Add(j.OfflineWait)
}

func later(times ...time.Time) time.Time { return slices.MaxFunc(times, time.Time.Compare) }

// advance does what is due, in the order of the times at which it was.
func (m *model) advance(now time.Time) (ended, claimed []*modelJob) {
	for _, j := range m.jobs {
		if j.unsaid {
			j.unsaid = false
			ended = append(ended, j)
		}
	}
	m.settle(now)
	var woken []*modelJob
	for at := m.due(); !at.IsZero() && !at.After(now); at = m.due() {
		for _, j := range m.jobs {
			if j.State == harp.StateQueued && !j.woken && !later(j.NotBefore, j.WakeAt).After(at) && !j.isLate(now) {
				j.woken = true
				woken = append(woken, j)
			}
		}
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

func (m *model) expire(j *modelJob, now time.Time) {
	reason := "start_before"
	if m.reason(j) == harp.ReasonOffline {
		reason = harp.ReasonOffline
	}
	next, _, err := j.Next(store.Event{Kind: store.Expire, At: now, Reason: reason})
	if err != nil {
		panic(err)
	}
	j.Life = next
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
	for _, j := range m.jobs {
		if j.unsaid {
			note(j.EndTime)
		}
		if j.State != harp.StateQueued {
			continue
		}
		note(j.Expires)
		note(m.deadline(j))
		if !j.woken && !j.isLate(m.latest) {
			note(later(j.NotBefore, j.WakeAt))
		}
	}
	return next
}

// reason is what a queued job waits for.
func (m *model) reason(j *modelJob) string {
	g := m.gate(j.Host)
	switch {
	case !j.woken && j.isLate(m.latest):
		return j.Reason
	case !j.woken && !j.WakeAt.IsZero() && !j.NotBefore.After(j.WakeAt):
		return j.Reason
	case !j.woken:
		return harp.ReasonStartAfter
	case !j.allowed:
		return harp.ReasonQueue
	case !g.Open:
		return g.Reason
	case m.active(j.Host) >= g.Most:
		return harp.ReasonAgentBusy
	}
	return harp.ReasonQueue
}

// place is where a queued job stands in its queue.
func (m *model) place(j *modelJob) int {
	if j.State != harp.StateQueued || j.Queue == nil {
		return 0
	}
	return 1 + m.count(func(o *modelJob) bool {
		return o.State == harp.StateQueued && string(o.Queue) == string(j.Queue) && before(o, j)
	})
}

// reopened is what a store forgets when it is closed.
func (m *model) reopened() {
	clear(m.gates)
	clear(m.since)
	m.settle(time.Time{})
	for _, j := range m.jobs {
		j.woken = !j.NotBefore.After(j.Since) && !j.WakeAt.After(j.Since)
		j.allowed, j.from = false, time.Time{}
	}
	m.settle(time.Time{})
}
