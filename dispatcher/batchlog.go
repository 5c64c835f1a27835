package dispatcher

import (
	"context"
	"errors"
	"strconv"
	"strings"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/failures"
	"github.com/harpcaller/harp/internal/wire"
	"github.com/harpcaller/harp/store"
)

// entriesAtOnce is how many entries of a batch's log are read at a time.
const entriesAtOnce = 256

// BatchLog implements harp.BatchService. Following a batch is, as following a job, asking for what is
// behind a number, and waiting for the batch's signal if there is nothing.
func (s *service) BatchLog(ctx context.Context, id string, q harp.BatchQuery) (harp.BatchPage, error) {
	return request(s, ctx, func(ctx context.Context) (harp.BatchPage, error) {
		asking := s.d.asking.Add(1)
		defer s.d.asking.Add(-1)
		q.MaxBytes = pageLimit(harp.RecordQuery{MaxBytes: q.MaxBytes}, asking)
		w := s.d.watchers.acquire(id)
		defer s.d.watchers.release(w)
		for {
			changed := w.changed()
			const copies = 2 // what is told, and the answer made of it
			if err := reserveAnswer(ctx, copies*q.MaxBytes); err != nil {
				return harp.BatchPage{}, err
			}
			page, err := s.d.readBatchLog(ctx, id, q)
			if err != nil || len(page.Entries) > 0 || page.Ended || !q.Wait || q.Tail {
				return page, err
			}
			if page.Next > q.From { // all that was there is not wanted
				q.From, q.At = page.Next, page.At
				continue
			}
			if err := reserveAnswer(ctx, 0); err != nil {
				return harp.BatchPage{}, err
			}
			select {
			case <-changed:
			case <-ctx.Done():
				return harp.BatchPage{}, context.Cause(ctx)
			}
		}
	})
}

// logPage is a page of a batch's log that is being made.
type logPage struct {
	harp.BatchPage
	d     *Dispatcher
	batch string
	query harp.BatchQuery
	steps int // that the batch has
	size  int
}

// step is which step something is told of; 0 if the batch is no chain.
func (p *logPage) step(n int) int {
	if p.steps == 1 {
		return 0
	}
	return n
}

// readBatchLog reads a page of a batch's log.
func (d *Dispatcher) readBatchLog(ctx context.Context, id string, q harp.BatchQuery) (harp.BatchPage, error) {
	if err := harp.CheckID(id); err != nil {
		return harp.BatchPage{}, err
	}
	if q.Tail {
		log, err := d.store.BatchLog(ctx, id, 0, 0)
		if err != nil {
			return harp.BatchPage{}, err
		}
		q.From, q.At = log.End-min(q.Recent, log.End), 0
	}
	b, err := d.store.Batch(ctx, id)
	if err != nil {
		return harp.BatchPage{}, err
	}
	p := &logPage{d: d, batch: id, query: q, steps: b.StepCount()}
	p.Next, p.At = q.From, q.At
	for examined := 0; examined < store.MaxExamined; examined += entriesAtOnce {
		log, err := d.store.BatchLog(ctx, id, p.Next, entriesAtOnce)
		if err != nil {
			return harp.BatchPage{}, err
		}
		for _, e := range log.Entries {
			if full, err := p.addEntry(ctx, e); err != nil || full {
				return p.BatchPage, err
			}
		}
		if p.Ended = log.Ended; p.Ended || len(log.Entries) == 0 {
			break
		}
	}
	return p.BatchPage, nil
}

// addEntry adds what an entry tells. It is full where not all of that has room.
func (p *logPage) addEntry(ctx context.Context, e store.BatchEntry) (full bool, err error) {
	switch e.Kind {
	case store.BatchMemberRecords:
		full, err = p.addRecords(ctx, e)
	case store.BatchMemberEnded, store.BatchMemberSkipped:
		full, err = p.addEnd(ctx, e)
	case store.BatchNotReached:
		full, err = p.addUnreached(ctx, e)
	case store.BatchGap: // of which there is nothing to tell
	}
	if full || err != nil {
		return full, err
	}
	p.Next, p.At = e.No+e.Numbers(), 0
	return false, nil
}

// hasRoom reports whether so many bytes more have room; the first always have.
func (p *logPage) hasRoom(bytes int) bool {
	const row = 200
	if p.size += row + bytes; len(p.Entries) == 0 {
		return true
	}
	return p.size <= p.query.MaxBytes && len(p.Entries) < wire.MaxRows
}

// addRecords adds the records that an entry tells of, from where the page is on. Those of a job that has
// more than it may store are only counted.
func (p *logPage) addRecords(ctx context.Context, e store.BatchEntry) (full bool, err error) {
	behind := e.First + uint64(e.Count) //nolint:gosec // never negative
	from := max(e.First, p.At)
	if !p.query.Records || from >= behind {
		return false, nil
	}
	id := harp.MemberID(p.batch, e.Host, e.Step)
	for from < behind {
		records, err := p.d.store.Read(ctx, id, from, store.ReadLimit{Records: int(behind - from), Bytes: p.query.MaxBytes}) //nolint:gosec // at most Count
		if errors.Is(err, store.ErrDamaged) || errors.Is(err, harp.ErrNotFound) {                                            // others are told all the same
			records, err = []harp.Record{{Seq: from, Kind: harp.KindLog, Missing: behind - from}}, nil
		}
		if err != nil || len(records) == 0 {
			return false, err
		}
		for _, r := range records {
			if r.Seq >= behind {
				return false, nil
			}
			if !p.hasRoom(len(r.Value)) {
				p.Next, p.At = e.No, r.Seq
				return true, nil
			}
			p.Entries = append(p.Entries, harp.HostRecord{Seq: e.No, Host: e.Host, Job: id, Step: p.step(e.Step), Record: r})
			from = r.Seq + max(r.Missing, 1)
		}
	}
	return false, nil
}

// addEnd adds how a member ended.
func (p *logPage) addEnd(ctx context.Context, e store.BatchEntry) (full bool, err error) {
	id := harp.MemberID(p.batch, e.Host, e.Step)
	job, err := p.d.readJob(ctx, id)
	var end harp.Result
	size := 0
	if err == nil {
		end, err = p.d.result(ctx, job)
		size = len(end.Value) + failureSize(job)
	}
	if err == nil && !job.State.Ended() || errors.Is(err, store.ErrDamaged) || errors.Is(err, harp.ErrNotFound) {
		end, err = damagedEnd(), nil // others are told all the same
	}
	if err != nil {
		return false, err
	}
	return !p.appendEnd(harp.HostRecord{Seq: e.No, Host: e.Host, Job: id, Step: p.step(e.Step), End: &end, Skipped: e.Kind == store.BatchMemberSkipped}, size), nil
}

// damagedEnd is the end of a member that cannot be read.
func damagedEnd() harp.Result {
	f := failures.New("lost", "what was stored of how this job ended is damaged")
	f.Ran = harp.MayHaveRun
	return harp.Result{State: harp.StateLost, Err: f.Err()}
}

// failureSize is about how many bytes the failure of a job takes.
func failureSize(j *store.Job) int { return len(j.Failure.Message) + len(j.Failure.Data) }

// appendEnd adds the end of a member, which takes so many bytes; false if it has no room.
func (p *logPage) appendEnd(end harp.HostRecord, size int) bool {
	if !p.hasRoom(size) {
		p.Next, p.At = end.Seq, 0
		return false
	}
	p.Entries = append(p.Entries, end)
	return true
}

// addUnreached adds the ends of members whose hosts are not reached any more.
func (p *logPage) addUnreached(ctx context.Context, e store.BatchEntry) (full bool, err error) {
	for at := 0; at < e.Count; {
		members, err := p.d.store.BatchMembers(ctx, p.batch, (e.Index+at)*p.steps, min(e.Count-at, entriesAtOnce)*p.steps)
		if err != nil {
			return false, err
		}
		for n := 0; n < len(members); n += p.steps {
			j := members[n]
			end := endOf(j, nil)
			if !p.appendEnd(harp.HostRecord{Seq: e.No + uint64(at), Host: j.Host, Job: j.ID, Step: p.step(1), End: &end}, failureSize(j)) { //nolint:gosec // below Count
				return true, nil
			}
			at++
		}
		if len(members) == 0 {
			return false, nil
		}
	}
	return false, nil
}

// memberCursor is how cursors of listings of members begin: the place of the next one follows.
const memberCursor = "member."

// listMembers returns a page of those members of a batch that a filter selects, in the order of its hosts.
// It examines at most MaxExamined.
func (d *Dispatcher) listMembers(ctx context.Context, batch string, f store.Filter, cursor string) (out harp.Page[harp.JobStatus], err error) {
	from, err := memberPlace(cursor)
	if err != nil {
		return out, err
	}
	if _, err := d.readBatch(ctx, batch); err != nil {
		return out, err
	}
	size := 0
	for end := from + store.MaxExamined; from < end; {
		members, err := d.store.BatchMembers(ctx, batch, from, membersAtOnce)
		if err != nil {
			return out, err
		}
		for _, j := range members {
			if !f.Matches(j) {
				from++
				continue
			}
			status, _, err := d.statuses(ctx, []*store.Job{j}) // none of one that cannot be read
			if err != nil {
				return out, err
			}
			for i := range status {
				size += statusSize(&status[i])
			}
			if size <= wire.MaxPage || len(out.Items) == 0 {
				out.Items = append(out.Items, status...)
				from++
			}
			if size > wire.MaxPage || len(out.Items) == f.Limit {
				out.Cursor = memberCursor + strconv.Itoa(from)
				return out, nil
			}
		}
		if len(members) < membersAtOnce {
			return out, nil
		}
	}
	out.Cursor = memberCursor + strconv.Itoa(from)
	return out, nil
}

// memberPlace is where a cursor of a listing of members goes on. Errors: harp.ErrInvalid (cursor).
func memberPlace(cursor string) (int, error) {
	if cursor == "" {
		return 0, nil
	}
	digits, ok := strings.CutPrefix(cursor, memberCursor)
	n, err := strconv.Atoi(digits)
	if !ok || err != nil || n < 0 {
		return 0, &harp.FieldError{Field: "cursor", Message: "is not a cursor that this listing gave"}
	}
	return n, nil
}
