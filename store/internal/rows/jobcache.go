package rows

import (
	"sync"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/store"
)

const (
	// generation is how many jobs are kept at hand at least: more than usually run at
	// a time.
	generation = 4096

	// maxRecent is about how many bytes a job has at most that is: with what its
	// procedure said of a failure it may have a megabyte. One row of so many is one
	// piece.
	maxRecent = 4 << 10
)

// recent is the jobs that changed last, as they are committed. A job is read several
// times while it runs, and decoding its rows would cost more than all else that is done
// with it. Only the committer adds to it, so that nothing older can come after something
// newer. What it holds is not changed any more.
type recent struct {
	mu         sync.Mutex
	young, old map[id]*store.Job // guarded by mu
	changing   map[id]*store.Job // guarded by mu: by the commit under way
}

// get returns a job, nil if it is not at hand.
func (r *recent) get(i id) *store.Job {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.getLocked(i)
}

func (r *recent) getLocked(i id) *store.Job {
	if j := r.young[i]; j != nil {
		return j
	}
	return r.old[i]
}

// add takes what a group has made of jobs, once that is on disk: nil of one that is not
// to be kept.
func (r *recent) add(jobs map[id]*store.Job) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.changing = nil
	if r.young == nil || len(r.young) >= generation {
		r.young, r.old = make(map[id]*store.Job, generation), r.young
	}
	for i, j := range jobs {
		if j != nil {
			r.young[i] = j
			continue
		}
		delete(r.young, i)
		delete(r.old, i)
	}
}

// changes hides jobs from view until add: of a commit under way a view may show more
// than is at hand.
func (r *recent) changes(jobs map[id]*store.Job) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.changing = jobs
}

// settled is get for a view.
func (r *recent) settled(i id) *store.Job {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, changing := r.changing[i]; changing {
		return nil
	}
	return r.getLocked(i)
}

// job reads a job as the group has made it. Errors: as readCall.
func (t *tx) job(i id) (*store.Job, error) {
	j, touched := t.jobs[i]
	if !touched && t.before != nil {
		j, touched = t.before.jobs[i]
	}
	if !touched {
		j = t.recent.get(i)
	}
	if j != nil {
		return j, nil
	}
	read, _, err := readCall(t, i)
	if err == nil && !touched {
		t.hold(i, read)
	}
	return read, err
}

// hold keeps a job at hand, as its rows are from now on.
func (t *tx) hold(i id, j *store.Job) {
	if size(j) > maxRecent {
		j = nil
	}
	t.jobs[i] = j
}

// size is about how many bytes the rows of a job have beside what every job has.
func size(j *store.Job) int {
	n := len(j.Queue) + len(j.Reason) + len(j.Held) + failureBytes(&j.Failure)
	for _, a := range j.Attempts {
		n += 100 + len(a.Reason)
	}
	if s := j.Stopping; s != nil {
		n += len(s.Cause)
	}
	n += 8 * len(j.Left)
	for k, v := range j.Labels {
		n += len(k) + len(v)
	}
	if o := j.Outcome; o != nil {
		n += len(o.Reason) + failureBytes(&o.Failure)
	}
	if l := j.Late; l != nil {
		n += failureBytes(&l.Failure)
	}
	return n
}

func failureBytes(f *harp.Failure) int {
	return len(f.Code) + len(f.Type) + len(f.Message) + len(f.Data) + len(f.Host) + len(f.Stage) + len(f.Field) + len(f.LimitOf) + len(f.JobID)
}
