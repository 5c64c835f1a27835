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

	// maxCachedJob is about how many bytes a job has at most that is: with what its
	// procedure said of a failure it may have a megabyte. One row of so many is one
	// piece.
	maxCachedJob = 4 << 10
)

// jobCache is the jobs that changed last, as they are committed. A job is read several
// times while it runs, and decoding its rows would cost more than all else that is done
// with it. Only the committer adds to it, so that nothing older can come after something
// newer. What it holds is not changed any more.
type jobCache struct {
	mu         sync.Mutex
	young, old map[id]*store.Job // guarded by mu
	changing   map[id]*store.Job // guarded by mu: by the commit under way
	cancelling map[id]struct{}   // guarded by mu: batches whose members may be cancelled though their rows do not say so
}

// get returns a job, nil if it is not at hand.
func (c *jobCache) get(i id) *store.Job {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.getLocked(i)
}

func (c *jobCache) getLocked(i id) *store.Job {
	if j := c.young[i]; j != nil {
		return j
	}
	return c.old[i]
}

// addGroup takes what a group has made of jobs, once that is on disk: nil of one that is not
// to be kept.
func (c *jobCache) addGroup(jobs map[id]*store.Job, batches map[id]*changedBatch) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.changing = nil
	for i, b := range batches {
		if b.life.State.Ended() {
			delete(c.cancelling, i)
		}
	}
	if c.young == nil || len(c.young) >= generation {
		c.young, c.old = make(map[id]*store.Job, generation), c.young
	}
	for i, j := range jobs {
		if j != nil {
			c.young[i] = j
			continue
		}
		delete(c.young, i)
		delete(c.old, i)
	}
}

// hideGroup hides jobs from view until addGroup: of a commit under way a view may show more
// than is at hand.
func (c *jobCache) hideGroup(jobs map[id]*store.Job, batches map[id]*changedBatch) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.changing = jobs
	for i, b := range batches {
		c.noteBatchLocked(i, b.life.State)
	}
}

// noteBatch notes a batch that has not ended, as it is when the store is opened.
func (c *jobCache) noteBatch(i id, state harp.BatchState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.noteBatchLocked(i, state)
}

func (c *jobCache) noteBatchLocked(i id, state harp.BatchState) {
	if state != harp.BatchCancelling {
		return
	}
	if c.cancelling == nil {
		c.cancelling = map[id]struct{}{}
	}
	c.cancelling[i] = struct{}{}
}

// getSettled is get for a view.
func (c *jobCache) getSettled(i id) *store.Job {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.getSettledLocked(i)
}

func (c *jobCache) getSettledLocked(i id) *store.Job {
	if _, changing := c.changing[i]; changing {
		return nil
	}
	return c.getLocked(i)
}

// getShown returns a job that is shown as it is at hand; nil of one that is not at hand, or that the
// mark of its queue or the cancel of its batch may have cancelled.
func (c *jobCache) getShown(i id) *store.Job {
	c.mu.Lock()
	defer c.mu.Unlock()
	j := c.getSettledLocked(i)
	if j == nil || j.State.Ended() {
		return j
	}
	if j.Queue != nil {
		return nil
	}
	if j.Batch == "" { // which is no id: an error would be made of it
		return j
	}
	if of, isMember := parseID(j.Batch); isMember {
		if _, cancelling := c.cancelling[of]; cancelling {
			return nil
		}
	}
	return j
}

// readJob reads a job as the group has made it. Errors: as readCall.
func (t *tx) readJob(i id) (*store.Job, error) {
	j, touched := t.jobs[i]
	if !touched && t.before != nil {
		j, touched = t.before.jobs[i]
	}
	if !touched {
		j = t.jobCache.get(i)
	}
	if j != nil {
		return j, nil
	}
	read, _, err := readCall(t, i)
	if err == nil && !touched {
		t.cacheJob(i, read)
	}
	return read, err
}

// cacheJob keeps a job at hand, as its rows are from now on.
func (t *tx) cacheJob(i id, j *store.Job) {
	if jobSize(j) > maxCachedJob {
		j = nil
	}
	t.jobs[i] = j
}

// jobSize is about how many bytes the rows of a job have beside what every job has.
func jobSize(j *store.Job) int {
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
