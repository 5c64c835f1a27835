package journal

import (
	"time"

	"github.com/harpcaller/harp/internal/wake"
)

// doLater changes an attempt; its sync may wait.
func (j *Journal) doLater(k Key, change func(*group, *attempt) error) (*Commit, error) {
	return j.doWhen(false, func(g *group) error { return j.changeLocked(g, k, change) })
}

// change changes an attempt; it is synced at once.
func (j *Journal) change(k Key, change func(*group, *attempt) error) (*Commit, error) {
	return j.do(func(g *group) error { return j.changeLocked(g, k, change) })
}

// do journals what is synced at once.
func (j *Journal) do(journal func(*group) error) (*Commit, error) { return j.doWhen(true, journal) }

// doWhen journals something with what else has gathered. An error of journal says
// that it did nothing.
func (j *Journal) doWhen(now bool, journal func(*group) error) (*Commit, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	switch {
	case j.broken != nil:
		return nil, j.broken
	case j.closed:
		return nil, ErrClosed
	}
	g := j.pending
	if g == nil {
		g = newGroup()
		g.buf, j.spare = j.spare, nil
	}
	if err := journal(g); err != nil {
		return nil, err
	}
	j.pending = g
	switch {
	case now || g.spooled >= j.opts.SyncBytes:
		g.due = true
		wake.Signal(j.wake)
	case g.timer == nil:
		g.timer = time.AfterFunc(j.opts.SyncWithin, func() { j.fallDue(g) })
	case g.patient:
		g.timer.Reset(j.opts.SyncWithin)
	}
	g.patient = false
	return g.commit, nil
}

// fallDue lets a group be written that nobody was in a hurry for.
func (j *Journal) fallDue(g *group) {
	j.mu.Lock()
	defer j.mu.Unlock()
	g.due = true
	wake.Signal(j.wake)
}

// changeLocked changes an attempt, of which the group keeps how it was.
func (j *Journal) changeLocked(g *group, k Key, change func(*group, *attempt) error) error {
	old := j.attempts[k]
	if old == nil {
		return ErrUnknown
	}
	if _, is := g.before[k]; is { // it is the group's own
		before := old.size()
		err := change(g, old)
		j.accountLocked(k, before, old.size())
		return err
	}
	next := *old
	if err := change(g, &next); err != nil {
		return err
	}
	j.replaceLocked(g, k, &next)
	return nil
}

// replaceLocked puts another in an attempt's place, nil: nothing. The group keeps
// what was there.
func (j *Journal) replaceLocked(g *group, k Key, next *attempt) {
	if _, is := g.before[k]; !is {
		if g.before == nil {
			g.before = map[Key]*attempt{}
		}
		g.before[k] = j.attempts[k]
	}
	j.putLocked(k, next)
}

// putLocked puts an attempt in the place of what was known of it, nil: nothing.
func (j *Journal) putLocked(k Key, a *attempt) {
	old := j.attempts[k]
	j.accountLocked(k, old.size(), a.size())
	if a == nil {
		delete(j.attempts, k)
	} else {
		j.attempts[k] = a
	}
}

// accountLocked counts what an attempt takes instead of what it took.
func (j *Journal) accountLocked(k Key, before, after size) {
	j.used += after.agent - before.agent
	j.needed += after.needed - before.needed
	j.jobs[k.Job] += after.job - before.job
	if j.jobs[k.Job] == 0 {
		delete(j.jobs, k.Job)
	}
}

// roomLocked says whether there is room for more bytes of a job, and of the agent.
func (j *Journal) roomLocked(job string, ofJob, ofAgent int64) error {
	switch {
	case ofJob > 0 && j.jobs[job]+ofJob > j.opts.MaxJob:
		return &FullError{Job: job, Limit: j.opts.MaxJob}
	case j.used+ofAgent > j.opts.MaxAgent:
		return &FullError{Limit: j.opts.MaxAgent}
	}
	return nil
}

// stateLocked is how far an attempt is. A tombstone whose time has passed is none.
func (j *Journal) stateLocked(k Key) State {
	if a := j.attempts[k]; a != nil {
		return a.state
	}
	if j.tombs.has(k, time.Now()) {
		return Forgotten
	}
	return Absent
}
