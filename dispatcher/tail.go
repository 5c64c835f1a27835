package dispatcher

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/store"
)

// tailBytes is how much of the last committed records is kept for followers that
// are up to date, for each job that somebody follows; of many jobs less, so that all
// tails stay within tailsBytes.
const (
	tailBytes  = 256 << 10
	tailsBytes = 32 << 20
)

const (
	pageBytes    = 1 << 20  // of records in one answer to a follower
	minPageBytes = 32 << 10 // however many ask
	answerBytes  = 4 << 20  // of all answers that are being made, about
)

// tails are the jobs that somebody waits for. A follower is a cursor, never a
// subscription: it asks for what is after its number and waits for the job's
// signal if there is nothing. Jobs nobody waits for cost nothing.
type tails struct {
	followed atomic.Int64 // jobs that somebody follows

	mu   sync.Mutex
	jobs map[string]*tail
}

// tail is one job that somebody waits for.
type tail struct {
	id      string
	holders int // guarded by tails.mu

	mu        sync.Mutex
	signal    chan struct{} // closed at the next change; nil: nobody asked for it
	ends      chan struct{} // closed when the job has ended
	over      bool          // ends is closed
	ended     *store.Job    // as it is then, set before that; nil: it has to be read
	value     harp.Value    // that it returned; shared by all who have waited
	followers int           // of the holders, those that read records
	recent    []harp.Record // consecutive, committed; the newest last; only for followers
	bytes     int
	next      uint64 // the number of the record behind the last committed one
	knowsNext bool   // false: the store has to be asked
}

// hold returns the tail of a job, to be released.
func (ts *tails) hold(id string) *tail {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	t := ts.jobs[id]
	if t == nil {
		t = &tail{id: id, ends: make(chan struct{})}
		if ts.jobs == nil {
			ts.jobs = map[string]*tail{}
		}
		ts.jobs[id] = t
	}
	t.holders++
	return t
}

func (ts *tails) release(t *tail) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	if t.holders--; t.holders == 0 {
		delete(ts.jobs, t.id)
	}
}

// follow returns the tail of a job, which keeps records until it is unfollowed.
func (ts *tails) follow(id string) *tail {
	t := ts.hold(id)
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.followers++; t.followers == 1 {
		ts.followed.Add(1)
	}
	return t
}

func (ts *tails) unfollow(t *tail) {
	defer ts.release(t)
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.followers--; t.followers == 0 {
		ts.followed.Add(-1)
		t.forgetLocked()
	}
}

// find returns the tail of a job if somebody holds it.
func (ts *tails) find(id string) *tail {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	return ts.jobs[id]
}

// ended wakes all who wait for a job that has ended. It is called after the commit, with
// the value that was returned by that, if one was.
func (ts *tails) ended(job *store.Job, value harp.Value) {
	if t := ts.find(job.ID); t != nil {
		t.mu.Lock()
		defer t.mu.Unlock()
		if !t.over {
			t.over = true
			if job.HasValue == (len(value) > 0) {
				t.ended, t.value = job, value
			}
			close(t.ends)
		}
		t.changeLocked()
	}
}

// appended wakes the followers of a job with what was committed: records, numbered
// by the job, which the tail owns from now on.
func (ts *tails) appended(id string, records []harp.Record) {
	if t := ts.find(id); t != nil && len(records) > 0 {
		t.mu.Lock()
		defer t.mu.Unlock()
		if t.followers > 0 {
			t.keepLocked(records, int(min(tailBytes, tailsBytes/max(ts.followed.Load(), 1))))
		}
		t.changeLocked()
	}
}

// counted wakes the followers of a job that has more records than the tail was handed:
// what there is of them they read from the store.
func (ts *tails) counted(id string) {
	if t := ts.find(id); t != nil {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.forgetLocked()
		t.changeLocked()
	}
}

func (t *tail) forgetLocked() { t.recent, t.bytes, t.knowsNext = nil, 0, false }

func (t *tail) changeLocked() {
	if t.signal != nil {
		close(t.signal)
		t.signal = nil
	}
}

// keepLocked keeps the newest records, as many as have room in most bytes.
func (t *tail) keepLocked(records []harp.Record, most int) {
	if t.next != records[0].Seq {
		t.forgetLocked()
	}
	t.next, t.knowsNext = records[len(records)-1].Seq+1, true
	t.recent = append(t.recent, records...)
	for _, r := range records {
		t.bytes += cost(r)
	}
	drop := 0
	for t.bytes > most && drop < len(t.recent) {
		t.bytes -= cost(t.recent[drop])
		drop++
	}
	if drop > 0 {
		t.recent = slices.Clone(t.recent[drop:])
	}
}

// cost is about what a record takes in memory.
func cost(r harp.Record) int { return len(r.Value) + 96 }

// changed is closed at the next change after this call.
func (t *tail) changed() <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.signal == nil {
		t.signal = make(chan struct{})
	}
	return t.signal
}

// from returns the records from a number on that the tail has, about as many as most
// allows and at least one, and the number behind the last committed one; none if it does
// not have that one.
func (t *tail) from(seq uint64, most store.Most) (records []harp.Record, end uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.recent) == 0 || seq < t.recent[0].Seq || seq >= t.next {
		return nil, 0
	}
	from := t.recent[seq-t.recent[0].Seq:]
	n, size := 1, cost(from[0])
	for ; n < len(from) && n != most.Records; n++ {
		if size += cost(from[n]); size > most.Bytes {
			break
		}
	}
	return copyRecords(from[:n]), t.next
}

// pageLimit is how many bytes of records a question gets at most, when so many are
// asked at a time: who follows and does not read shall cost little.
func pageLimit(q harp.RecordQuery, asking int64) int {
	most := int(min(max(answerBytes/asking, minPageBytes), pageBytes))
	if q.MaxBytes > 0 {
		most = min(most, q.MaxBytes)
	}
	return most
}

func mostOf(q harp.RecordQuery) store.Most {
	return store.Most{Records: q.MaxRecords, Bytes: q.MaxBytes}
}

// isAt reports whether seq is where the next record will be: there is nothing to
// read, and what comes will be signalled.
func (t *tail) isAt(seq uint64) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return !t.over && t.knowsNext && t.next == seq
}

// copyRecords gives a follower records of its own, the values in one piece.
func copyRecords(records []harp.Record) []harp.Record {
	total := 0
	for _, r := range records {
		total += len(r.Value)
	}
	out, values := slices.Clone(records), make([]byte, 0, total)
	for i, r := range out {
		start := len(values)
		values = append(values, r.Value...)
		out[i].Value = values[start:len(values):len(values)]
	}
	return out
}

// records answers committed records from a number on: what there is, or, if the
// question waits, when there are any or the job has ended.
func (d *Dispatcher) records(ctx context.Context, id string, q harp.RecordQuery) (harp.RecordPage, error) {
	asking := d.asking.Add(1)
	defer d.asking.Add(-1)
	q.MaxBytes = pageLimit(q, asking)
	if q.Tail || !q.Wait {
		return d.readPage(ctx, id, q) // the store alone knows all that is committed at this moment
	}
	t := d.tails.follow(id)
	defer d.tails.unfollow(t)
	for {
		changed := t.changed()
		if got, end := t.from(q.From, mostOf(q)); got != nil {
			return harp.RecordPage{Records: got, Next: got[len(got)-1].Seq + 1, End: end}, nil
		}
		if !t.isAt(q.From) {
			page, err := d.readPage(ctx, id, q)
			if err != nil || len(page.Records) > 0 || page.Ended {
				return page, err
			}
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return harp.RecordPage{}, context.Cause(ctx)
		}
	}
}

// readPage reads records from the store.
func (d *Dispatcher) readPage(ctx context.Context, id string, q harp.RecordQuery) (harp.RecordPage, error) {
	job, err := d.job(ctx, id)
	if err != nil {
		return harp.RecordPage{}, err
	}
	from := q.From
	if q.Tail {
		from = job.Records - min(q.Recent, job.Records)
	}
	page := harp.RecordPage{Next: from, End: job.Records}
	if from < job.Records {
		if page.Records, err = d.store.Read(ctx, job.ID, from, mostOf(q)); err != nil {
			return page, err
		}
		if n := len(page.Records); n > 0 {
			page.Next = page.Records[n-1].Seq + 1
		} else {
			page.Next = job.Records // only counted, not stored
		}
	}
	page.Ended = job.State.Ended() && page.Next >= job.Records
	return page, nil
}
