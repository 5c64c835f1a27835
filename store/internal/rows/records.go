package rows

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/store"
)

// recordCost is what a record counts beside its value.
const recordCost = 24

// maxAppended is how many bytes of records one commit takes at most. Beside them it has
// the life of their job, in which there may be what was said of a failure.
const maxAppended = maxEvent

// Append implements store.Records.
func (s *Store) Append(ctx context.Context, a store.Append) (*store.Job, error) {
	for n := range a.Records {
		if size := recordSize(&a.Records[n]); size > maxAppended {
			return nil, tooMuch("record", size, maxAppended)
		}
	}
	for {
		some := a
		some.Records = a.Records[:together(a.Records)]
		var out *store.Job
		err := s.doAhead(ctx, SpaceLow, func(t *tx) (err error) {
			out, err = s.appendRecords(t, &some)
			return err
		})
		if err != nil || len(some.Records) == len(a.Records) {
			return out, err
		}
		a.First, a.Records = a.First+uint64(len(some.Records)), a.Records[len(some.Records):]
		ctx = context.WithoutCancel(ctx) // it has begun
	}
}

// together is how many of the records go into one commit.
func together(records []harp.Record) int {
	size := 0
	for n := range records {
		if size += recordSize(&records[n]); size > maxAppended {
			return n
		}
	}
	return len(records)
}

func recordsSize(records []harp.Record) int {
	size := 0
	for i := range records {
		size += recordSize(&records[i])
	}
	return size
}

func recordSize(r *harp.Record) int { return len(r.Value) + len(r.Kind) + recordCost }

func (s *Store) appendRecords(t *tx, a *store.Append) (*store.Job, error) {
	i, ok := parseID(a.ID)
	if !ok {
		return nil, notFound(a.ID)
	}
	before, err := readJob(t, i)
	if err != nil {
		return nil, err
	}
	covered, _, err := coveredBy(t, before)
	if err != nil {
		return nil, err
	}
	news, err := unseen(&before.Life, a)
	if err != nil || len(news) == 0 {
		return covered, err
	}
	written := *before
	written.Outcome = nil // lies beside the life, and stays as it is
	if size := recordsSize(news) + jobSize(&written); !t.hasRoom(size + maxStep) {
		return nil, tooMuch("records", size, maxOp-maxStep)
	}
	after := *before
	s.storeRecords(t, i, &after, news, a.Arrived)
	if err := s.change(t, i, before, &after); err != nil {
		return nil, err
	}
	if b := s.batchOf(&after); b != nil {
		t.logEntry(b, store.BatchEntry{Kind: store.BatchMemberRecords, Index: after.Index, Step: after.Step(), First: before.Records, Count: int(after.Records - before.Records)}) //nolint:gosec // as many as were sent
	}
	if covered == before {
		return &after, nil
	}
	shown := *covered
	shown.Attempts, shown.Records, shown.Stored, shown.Full = after.Attempts, after.Records, after.Stored, after.Full
	return &shown, nil
}

// unseen returns the records that the attempt does not have yet. Errors: ErrFenced,
// also for one that has ended other than lost, ErrGap.
func unseen(l *store.Life, a *store.Append) ([]harp.Record, error) {
	if a.Attempt != l.Attempt || a.Fence != l.Fence || len(l.Attempts) == 0 {
		return nil, fmt.Errorf("%w: records of attempt %d fence %d, has %d and %d", store.ErrFenced, a.Attempt, a.Fence, l.Attempt, l.Fence)
	}
	next, end := l.Attempts[len(l.Attempts)-1].Next, a.First+max(uint64(len(a.Records)), a.Missing)
	switch {
	case a.First > next:
		return nil, fmt.Errorf("%w: first is %d, expected %d", store.ErrGap, a.First, next)
	case end <= next:
		return nil, nil
	case !store.HoldsSlot(l.State) && !l.GivenUp():
		return nil, fmt.Errorf("%w: records in %s", store.ErrFenced, l.State)
	case a.Missing > 0:
		return []harp.Record{{Time: a.Arrived, Kind: harp.KindLog, Missing: end - next}}, nil
	}
	return a.Records[next-a.First:], nil
}

// numbers is how many numbers records take.
func numbers(records []harp.Record) (n uint64) {
	for i := range records {
		n += max(records[i].Missing, 1)
	}
	return n
}

// storeRecords stores records behind those that the last attempt has, in chunks; beyond the
// limit of stored bytes it counts them only, after one that says so.
func (s *Store) storeRecords(t *tx, i id, j *store.Job, news []harp.Record, arrived time.Time) {
	j.Attempts = slices.Clone(j.Attempts)
	last := &j.Attempts[len(j.Attempts)-1]
	first := last.Next
	last.Next += numbers(news)
	j.Records = last.Base + last.Next
	if j.Full {
		return
	}
	news = s.withinLimit(j, news)
	for len(news) > 0 {
		n := chunkLen(news)
		t.put(i.recordsKey(last.Number, first), encodeChunk(news[:n], arrived))
		first += uint64(n)
		news = news[n:]
	}
}

// withinLimit returns those of the records that are stored, the last of them
// perhaps one that tells that no more are. One that tells that some are missing always is.
func (s *Store) withinLimit(j *store.Job, news []harp.Record) []harp.Record {
	for n := range news {
		if news[n].Missing > 0 {
			continue
		}
		size := uint64(recordSize(&news[n]))
		if j.Stored+size > uint64(s.opts.MaxStored) {
			j.Full = true
			cut := harp.Record{Time: news[n].Time, Kind: news[n].Kind, Truncated: min(news[n].Truncated, math.MaxInt64-maxOp) + uint64(len(news[n].Value))}
			return append(slices.Clone(news[:n]), cut)
		}
		j.Stored += size
	}
	return news
}

// Read implements store.Records.
func (r *Reader) Read(_ context.Context, text string, from uint64, most store.ReadLimit) ([]harp.Record, error) {
	got := reading{from: from, most: most}
	err := r.viewJob(text, func(snap Snapshot, i id) error {
		j, err := readJob(snap, i)
		if err != nil {
			return err
		}
		got.left, got.counted = j.Records-min(from, j.Records), j.Full
		for _, a := range j.Attempts {
			if a.Base+a.Next <= from {
				continue
			}
			if err := got.readAttempt(snap, i, a); err != nil || got.full {
				return err
			}
		}
		return nil
	})
	if errors.Is(err, ErrDamaged) && len(got.records) > 0 {
		err = nil // that is said of the next
	}
	return got.records, err
}

// reading is what a Read returns, as far as it has come.
type reading struct {
	from    uint64 // the job's number
	most    store.ReadLimit
	left    uint64 // how many the job has from there on, at most
	records []harp.Record
	size    int
	full    bool // there are more, which are not wanted
	counted bool // the job is full: the last of them are only counted
}

// readAttempt reads the stored records of an attempt.
func (r *reading) readAttempt(snap Snapshot, i id, a store.Attempt) error {
	prefix := i.attemptKey(a.Number)
	begin := i.recordsKey(a.Number, max(r.from, a.Base)-a.Base)
	for item, err := range snap.Scan(prefix, begin, true) { // the chunk that holds it
		if err != nil {
			return err
		}
		begin = bytes.Clone(item.Key)
		break
	}
	next := chunkFirst(begin)
	for item, err := range snap.Scan(prefix, begin, false) {
		if err != nil {
			return err
		}
		first := chunkFirst(item.Key)
		if first != next {
			return recordsMissing(i, a, next, first)
		}
		payload, err := joinItem(snap, item)
		if err != nil {
			return err
		}
		n, err := r.readChunk(payload, a.Number, a.Base+first)
		if err != nil || r.full {
			return err
		}
		next += n
	}
	if next == a.Next {
		return nil
	}
	if r.counted {
		if counted, err := onlyCounted(snap, i, a.Number); err != nil || counted {
			return err
		}
	}
	return recordsMissing(i, a, next, a.Next)
}

// onlyCounted reports whether the records of an attempt behind those that are stored were only counted, its
// job being full: of no later attempt any is stored, and the last one that is has nothing but that it is.
func onlyCounted(snap Snapshot, i id, attempt int) (bool, error) {
	for item, err := range snap.Scan(i.key(prefixRecords), nil, true) {
		if err != nil {
			return false, err
		}
		if bytes.Compare(item.Key, i.attemptKey(attempt+1)) >= 0 {
			return false, nil
		}
		payload, err := joinItem(snap, item)
		if err != nil {
			return false, err
		}
		chunk := reading{most: store.ReadLimit{Bytes: math.MaxInt}}
		_, err = chunk.readChunk(payload, attempt, 0)
		n := len(chunk.records)
		return n > 0 && len(chunk.records[n-1].Value) == 0 && chunk.records[n-1].Missing == 0, err
	}
	return false, nil
}

func recordsMissing(i id, a store.Attempt, from, to uint64) error {
	return fmt.Errorf("%w: records %d to %d of job %s attempt %d are missing", ErrDamaged, from, to, i, a.Number)
}

// takeRecord keeps a record if it is wanted.
func (r *reading) takeRecord(rec *harp.Record) {
	if rec.Seq < r.from {
		return
	}
	n := len(r.records)
	r.size += recordSize(rec)
	if r.full = n > 0 && (n == r.most.Records || r.size > r.most.Bytes); !r.full {
		r.records = append(r.records, *rec)
	}
}

// reserveRecords makes room for what will be read if it is like a chunk of so many records and
// bytes.
func (r *reading) reserveRecords(n, size int) {
	if r.records != nil || n == 0 {
		return
	}
	expected := min(uint64(max(n, r.most.Bytes/max(size/n, recordCost))), r.left) //nolint:gosec // never negative
	if r.most.Records > 0 {
		expected = min(expected, uint64(r.most.Records))
	}
	r.records = make([]harp.Record, 0, expected)
}
