package storetest

import (
	"cmp"
	"slices"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/store"
)

// model is the rules of waiting and starting, told in the plainest way: a list of
// jobs, looked through from end to end for everything.
type model struct {
	jobs     []*modelJob
	queues   map[string]*modelQueue
	gates    map[string]store.Gate
	since    map[string]time.Time // since when absence took over from another reason
	holds    map[string]*modelHolds
	backlogs []*modelBacklog
	latest   time.Time                   // that the store was told
	toldTime bool                        // since it was opened, by an Advance
	paused   func(j *modelJob) time.Time // until when the store lets a job pause that it gave up
}

type modelJob struct {
	store.Job
	woken   bool      // its time has come
	allowed bool      // nothing but its host is in its way,
	from    time.Time // since then
	tell    bool      // its queue was cancelled and its agent not told
	unsaid  bool      // and its row does not say so yet
	set     modelSet
	held    bool          // waits with others for their agent, which was busy
	kept    bool          // its time has come, and a window or a pause keeps it back
	probe   *modelBacklog // was sent, of these, and not answered
	let     bool          // was let go just now
}

func newModel() *model {
	return &model{queues: map[string]*modelQueue{}, gates: map[string]store.Gate{}, since: map[string]time.Time{}, holds: map[string]*modelHolds{}}
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
	if g.Open != old.Open {
		m.dissolve(host)
	}
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

// silence is that of a host: it returns the jobs that are unknown by it.
func (m *model) silence(host string, now, lostAt time.Time) []*modelJob {
	var out []*modelJob
	for _, j := range m.jobs {
		holds := store.HoldsSlot(j.State) && j.State != harp.StateUnknown
		if j.Host != host || !store.HoldsSlot(j.State) && !j.Survivor {
			continue
		}
		if _, _, err := m.apply(j, store.Event{Kind: store.Silent, At: now, Wake: lostAt, Attempt: j.Attempt, Fence: j.Fence}); err != nil {
			panic(err)
		}
		if holds {
			out = append(out, j)
		}
	}
	return out
}

// returning is the jobs that wait for another attempt on a host, the last one having
// been lost.
func (m *model) returning(host string) []*modelJob {
	var out []*modelJob
	for _, j := range m.jobs {
		if j.Host == host && j.State == harp.StateQueued && j.GivenUp() {
			out = append(out, j)
		}
	}
	return out
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
		case j.State != harp.StateQueued, !j.woken, j.kept, !asked(j):
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
	if b := m.backlog(j); b != nil {
		b.probes++
		j.probe = b
	}
}

// submit adds a job, which starts if nobody of its queue waits for its host before
// it and nothing is in its way.
func (m *model) submit(j store.Job, now time.Time) *modelJob {
	policy := j.Retry
	j.Life = store.Begin(now, "")
	j.Retry = policy
	added := &modelJob{Job: j}
	m.enter(added)
	m.jobs = append(m.jobs, added)
	switch {
	case j.NotBefore.After(now) || added.isLate(now):
	case m.mayStartAtOnce(added, now):
		m.start(added, now)
		m.settle(now)
		return added
	default:
		m.wake(added, now)
	}
	ahead := m.count(func(o *modelJob) bool { return m.sameLine(o, added) && o != added && before(o, added) })
	if added.woken && ahead == 0 && m.first(now, func(o *modelJob) bool { return o == added }) != nil {
		m.start(added, now)
	}
	m.settle(now)
	return added
}

// mayStartAtOnce reports whether a job that is new need not wait in a line.
func (m *model) mayStartAtOnce(j *modelJob, now time.Time) bool {
	keeps, _ := m.keeps(j, now)
	return !keeps && m.backlog(j) == nil && m.hostMay(j.Host) && m.free(j.Queue) > 0 && m.count(func(o *modelJob) bool { return m.sameLine(o, j) }) == 0
}

// sameLine reports whether a job waits for the same as another, its time having
// come.
func (m *model) sameLine(o, j *modelJob) bool {
	return o.State == harp.StateQueued && o.woken && !o.kept && o.Host == j.Host && string(o.Queue) == string(j.Queue)
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
	was := j.Life
	j.Life = next
	effect.Tell = (effect.Tell || j.tell) && !effect.Ends
	j.tell, j.held, j.kept = false, j.held && next.State == harp.StateQueued, j.kept && next.State == harp.StateQueued
	var b *modelBacklog
	var most int
	if effect.Gives || next.State == harp.StateRunning {
		b, most = m.answered(j, isBusy(next), effect.Gives)
	}
	switch {
	case next.State != harp.StateQueued:
		j.set.came = time.Time{}
	case was.State != harp.StateQueued:
		j.set.came = time.Time{}
		j.woken = false
		switch isDue := !j.comes().After(e.At); {
		case j.Survivor:
		case !isDue && isBusy(next) && m.gate(j.Host).Open && !j.NotBefore.After(e.At):
			m.holdBack(j)
		case isDue && !j.isLate(e.At):
			m.wake(j, e.At)
		}
	case was.Survivor != next.Survivor, !was.WakeAt.Equal(next.WakeAt):
		j.set.came, j.woken, j.held, j.kept = time.Time{}, false, false, false // until the next advance
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
	out = append(out, m.tryBacklog(b, most, e.At)...)
	m.endBacklogs()
	m.settle(e.At)
	return effect, out, nil
}

// reason is what a queued job waits for.
func (m *model) reason(j *modelJob) string {
	g := m.gate(j.Host)
	switch {
	case j.held:
		return harp.ReasonAgentBusy
	case j.kept:
		return harp.ReasonWindow
	case !j.woken && (j.isLate(m.latest) || j.Survivor):
		return j.Reason
	case !j.woken && !j.WakeAt.IsZero() && !j.NotBefore.After(j.wakeAt()):
		return j.Reason
	case !j.woken:
		return harp.ReasonStartAfter
	case m.isPaused(j.Queue):
		return harp.ReasonPaused
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
	m.toldTime = false
	clear(m.gates)
	clear(m.since)
	clear(m.holds)
	for _, q := range m.queues {
		q.changed = time.Time{}
	}
	m.backlogs = nil
	m.settle(time.Time{})
	for _, j := range m.jobs {
		j.held, j.kept, j.probe = false, false, nil
		j.set = modelSet{of: j.WakeAt, over: j.set.over}
		j.woken = !j.Survivor && !j.NotBefore.After(j.Since) && !j.WakeAt.After(j.Since)
		j.allowed, j.from = false, time.Time{}
	}
	m.settle(time.Time{})
}
