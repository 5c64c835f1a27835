package dispatcher

import (
	"context"
	"iter"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/wake"
	"github.com/harpcaller/harp/store"
)

const (
	pageBytes    = 1 << 20  // of records in one answer to a follower
	minPageBytes = 32 << 10 // however many ask
)

// watchers are of the jobs, and batches, that somebody waits for. A follower is a cursor, never a
// subscription: it asks for what is after its number and waits for the job's
// signal if there is nothing. Jobs nobody waits for cost nothing.
type watchers struct {
	followed     atomic.Int64       // jobs that somebody follows
	batchChanged func(batch string) // is told of each change of a batch, too; nil: nobody is

	mu   sync.Mutex
	jobs map[string]*watcher
}

// watcher is of one job that somebody waits for.
type watcher struct {
	id      string
	holders int // guarded by watchers.mu

	mu        sync.Mutex
	signal    chan struct{}   // closed at the next change; nil: nobody asked for it
	ends      chan struct{}   // closed when the job has ended
	wakes     []chan struct{} // are sent a token then, if they have none
	over      bool            // ends is closed
	ended     *store.Job      // as it is then, set before that; nil: it has to be read
	value     harp.Value      // that it returned; shared by all who have waited
	followers int             // of the holders, those that read records
	recent    []harp.Record   // consecutive, committed; the newest last; only for followers
	bytes     int
	next      uint64 // the number of the record behind the last committed one
	knowsNext bool   // false: the store has to be asked
}

// acquire returns the watcher of a job, to be released.
func (ws *watchers) acquire(id string) *watcher {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	w := ws.jobs[id]
	if w == nil {
		w = &watcher{id: id, ends: make(chan struct{})}
		if ws.jobs == nil {
			ws.jobs = map[string]*watcher{}
		}
		ws.jobs[id] = w
	}
	w.holders++
	return w
}

func (ws *watchers) release(w *watcher) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if w.holders--; w.holders == 0 {
		delete(ws.jobs, w.id)
	}
}

// follow returns the watcher of a job, which keeps records until it is unfollowed.
func (ws *watchers) follow(id string) *watcher {
	w := ws.acquire(id)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.followers++; w.followers == 1 {
		ws.followed.Add(1)
	}
	return w
}

func (ws *watchers) unfollow(w *watcher) {
	defer ws.release(w)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.followers--; w.followers == 0 {
		ws.followed.Add(-1)
		w.forgetRecordsLocked()
	}
}

// findWatcher returns the watcher of a job if somebody holds it.
func (ws *watchers) findWatcher(id string) *watcher {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	return ws.jobs[id]
}

// hasMembersOf reports whether somebody waits for a member of a batch, or of another one made in the same moment.
func (ws *watchers) hasMembersOf(batch string) bool {
	for range ws.membersOf(batch) {
		return true
	}
	return false
}

// membersOf yields the ids of members of a batch, and of others made in the same moment, for which somebody waits.
func (ws *watchers) membersOf(batch string) iter.Seq[string] {
	return func(yield func(string) bool) {
		ws.mu.Lock()
		defer ws.mu.Unlock()
		for id := range ws.jobs {
			if isMemberID(id) && len(batch) == len(id) && id[:14] == batch[:14] && id[15:18] == batch[15:18] && !yield(id) {
				return
			}
		}
	}
}

// isMemberID reports whether an id is that of a member of a batch. It begins as the batch's, but for the version
// of UUIDs, which is at place 14.
func isMemberID(id string) bool { return len(id) == 36 && id[14] == '8' }

// notifyEnded wakes all that wait for a job that has ended. It is called after the commit, with
// the value that was returned by that, if one was.
func (ws *watchers) notifyEnded(job *store.Job, value harp.Value) {
	ws.notifyChanged(job.Batch)
	if w := ws.findWatcher(job.ID); w != nil {
		w.mu.Lock()
		defer w.mu.Unlock()
		if job.HasValue != (len(value) > 0) {
			job, value = nil, nil
		}
		w.endLocked(job, value)
	}
}

// notifyUnread wakes all that wait for a job that cannot be read any more, or is gone: they read it, and learn that.
func (ws *watchers) notifyUnread(id string) {
	if w := ws.findWatcher(id); w != nil {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.endLocked(nil, nil)
	}
}

// endLocked wakes all that wait for the job, which has ended so; nil: it has to be read.
func (w *watcher) endLocked(job *store.Job, value harp.Value) {
	if !w.over {
		w.over, w.ended, w.value = true, job, value
		close(w.ends)
		for _, c := range w.wakes {
			wake.Signal(c)
		}
	}
	w.signalLocked()
}

// notifyChanged wakes all that wait for a batch, "" for none, that has changed or has more in its log.
func (ws *watchers) notifyChanged(batch string) {
	if batch == "" {
		return
	}
	if ws.batchChanged != nil {
		ws.batchChanged(batch)
	}
	if w := ws.findWatcher(batch); w != nil {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.signalLocked()
	}
}

// notifyAppended wakes the followers of a job with what was committed: records, numbered
// by the job, which the watcher owns from now on.
func (ws *watchers) notifyAppended(id string, records []harp.Record) {
	if w := ws.findWatcher(id); w != nil && len(records) > 0 {
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.followers > 0 {
			w.keepRecordsLocked(records, int(min(watcherBytes, allWatchersBytes/max(ws.followed.Load(), 1))))
		}
		w.signalLocked()
	}
}

// notifyCounted wakes the followers of a job that has more records than the watcher was handed:
// what there is of them they read from the store.
func (ws *watchers) notifyCounted(id string) {
	if w := ws.findWatcher(id); w != nil {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.forgetRecordsLocked()
		w.signalLocked()
	}
}

// wakeAtEnd sends a channel a token when the job ends. Whoever then sees that it has not ended misses no end.
func (w *watcher) wakeAtEnd(c chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.wakes = append(w.wakes, c)
}

func (w *watcher) forgetAtEnd(c chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if i := slices.Index(w.wakes, c); i >= 0 {
		w.wakes = slices.Delete(w.wakes, i, i+1)
	}
}

// isOver reports whether the watcher was told that the job has ended.
func (w *watcher) isOver() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.over
}

func (w *watcher) forgetRecordsLocked() { w.recent, w.bytes, w.knowsNext = nil, 0, false }

func (w *watcher) signalLocked() {
	if w.signal != nil {
		close(w.signal)
		w.signal = nil
	}
}

// keepRecordsLocked keeps the newest records, as many as have room in most bytes.
func (w *watcher) keepRecordsLocked(records []harp.Record, most int) {
	if w.next != records[0].Seq {
		w.forgetRecordsLocked()
	}
	w.next, w.knowsNext = records[len(records)-1].Seq+1, true
	w.recent = append(w.recent, records...)
	for _, r := range records {
		w.bytes += recordCost(r)
	}
	drop := 0
	for w.bytes > most && drop < len(w.recent) {
		w.bytes -= recordCost(w.recent[drop])
		drop++
	}
	if drop > 0 {
		w.recent = slices.Clone(w.recent[drop:])
	}
}

// recordCost is about what a record takes in memory.
func recordCost(r harp.Record) int { return len(r.Value) + 96 }

// changed is closed at the next change after this call.
func (w *watcher) changed() <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.signal == nil {
		w.signal = make(chan struct{})
	}
	return w.signal
}

// recordsFrom returns the records from a number on that the watcher has, about as many as most
// allows and at least one, and the number behind the last committed one; none if it does
// not have that one.
func (w *watcher) recordsFrom(seq uint64, most store.ReadLimit) (records []harp.Record, end uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.recent) == 0 || seq < w.recent[0].Seq || seq >= w.next {
		return nil, 0
	}
	from := w.recent[seq-w.recent[0].Seq:]
	n, size := 1, recordCost(from[0])
	for ; n < len(from) && n != most.Records; n++ {
		if size += recordCost(from[n]); size > most.Bytes {
			break
		}
	}
	return copyRecords(from[:n]), w.next
}

// pageLimit is how many bytes of records a request gets at most, when so many are
// made at a time: a follower that does not read shall cost little.
func pageLimit(q harp.RecordQuery, asking int64) int {
	most := int(min(max(answerBytes/asking, minPageBytes), pageBytes))
	if q.MaxBytes > 0 {
		most = min(most, q.MaxBytes)
	}
	return most
}

func limitOf(q harp.RecordQuery) store.ReadLimit {
	return store.ReadLimit{Records: q.MaxRecords, Bytes: q.MaxBytes}
}

// isAt reports whether seq is where the next record will be: there is nothing to
// read, and what comes will be signalled.
func (w *watcher) isAt(seq uint64) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return !w.over && w.knowsNext && w.next == seq
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
// request waits, when there are any or the job has ended.
func (d *Dispatcher) records(ctx context.Context, id string, q harp.RecordQuery) (harp.RecordPage, error) {
	asking := d.asking.Add(1)
	defer d.asking.Add(-1)
	q.MaxBytes = pageLimit(q, asking)
	const copies = 2 // the records, and the answer made of them
	if q.Tail || !q.Wait {
		if err := reserveAnswer(ctx, copies*q.MaxBytes); err != nil {
			return harp.RecordPage{}, err
		}
		return d.readPage(ctx, id, q) // the store alone knows all that is committed at this moment
	}
	w := d.watchers.follow(id)
	defer d.watchers.unfollow(w)
	for {
		changed := w.changed()
		if !w.isAt(q.From) {
			if err := reserveAnswer(ctx, copies*q.MaxBytes); err != nil {
				return harp.RecordPage{}, err
			}
			if got, end := w.recordsFrom(q.From, limitOf(q)); got != nil {
				return harp.RecordPage{Records: got, Next: got[len(got)-1].Seq + 1, End: end}, nil
			}
			page, err := d.readPage(ctx, id, q)
			if err != nil || len(page.Records) > 0 || page.Ended {
				return page, err
			}
			if err := reserveAnswer(ctx, 0); err != nil {
				return harp.RecordPage{}, err
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
	job, err := d.readJob(ctx, id)
	if err != nil {
		return harp.RecordPage{}, err
	}
	from := q.From
	if q.Tail {
		from = job.Records - min(q.Recent, job.Records)
	}
	page := harp.RecordPage{Next: from, End: job.Records}
	if from < job.Records {
		if page.Records, err = d.store.Read(ctx, job.ID, from, limitOf(q)); err != nil {
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
