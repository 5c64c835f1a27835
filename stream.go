package harp

import (
	"context"
	"iter"
	"math"
	"sync"
	"time"
)

// RecordKind tells what a record holds.
type RecordKind string

// The kinds.
const (
	KindData   RecordKind = "data" // a value the procedure emitted
	KindStdout RecordKind = "stdout"
	KindStderr RecordKind = "stderr"
	KindLog    RecordKind = "log"
)

// Record is one partial result of a job.
type Record struct {
	Seq       uint64     `json:"seq"`     // the job's own number of it, from 0
	Attempt   int        `json:"attempt"` // the attempt it is of
	Time      time.Time  `json:"time"`    // the agent's clock, UTC
	Kind      RecordKind `json:"kind"`
	Value     Value      `json:"value"`               // may lie in one piece of memory with its neighbours': clone what is kept of many
	Partial   bool       `json:"partial,omitempty"`   // a line of output goes on in the next record of this kind, or ended without a line feed
	Truncated uint64     `json:"truncated,omitempty"` // bytes that were dropped before this record

	// Missing is how many records are missing, this one in the place of the first of
	// them: they were delivered to a dispatcher of which this one is an older backup.
	Missing uint64 `json:"missing,omitempty"`
}

// StreamOption says where reading a job's records starts: [Since] and [Recent] make it. The zero
// one starts at the first.
type StreamOption struct {
	from, recent uint64
	tail         bool
}

// Since starts at the record with this number; Since(0) at the first.
func Since(seq uint64) StreamOption {
	return StreamOption{from: seq}
}

// Recent starts so many records before the end.
func Recent(n uint64) StreamOption {
	return StreamOption{recent: n, tail: true}
}

// Stream yields the records there are when the loop starts, all of them unless an
// option says otherwise, and stops. Each range over it reads anew. An error is the
// last thing it yields. Errors: ErrInvalid (the id), ErrNotFound, ErrPruned,
// ErrUnavailable, ErrClosed, ctx's.
func (j *Job) Stream(ctx context.Context, opts ...StreamOption) iter.Seq2[Record, error] {
	return j.streamRecords(ctx, RecordQuery{}, opts)
}

// Follow yields the records from the moment the loop starts until the job has
// ended, however it ended; Since(0) adds all that came before, without gap or
// repeat. It goes on through lost connections and restarts of the dispatcher until
// ctx ends. Each range over it reads anew. Errors: as Stream, without
// ErrUnavailable.
func (j *Job) Follow(ctx context.Context, opts ...StreamOption) iter.Seq2[Record, error] {
	return j.streamRecords(ctx, RecordQuery{Tail: true, Wait: true}, opts)
}

// streamRecords reads page by page, the next one while the one before is yielded if more is known
// to be there. Following waits at the end of what is there; a stream ends at the number that
// was next when it began.
func (j *Job) streamRecords(ctx context.Context, q RecordQuery, opts []StreamOption) iter.Seq2[Record, error] {
	for _, opt := range opts {
		q.From, q.Recent, q.Tail = opt.from, opt.recent, opt.tail
	}
	return func(yield func(Record, error) bool) {
		q, end := q, uint64(math.MaxUint64)
		ctx, cancel := context.WithCancel(ctx)
		var asking sync.WaitGroup
		defer asking.Wait()
		defer cancel()
		page, err := j.service.Records(ctx, j.id, q)
		for {
			if err != nil {
				yield(Record{}, j.answerErr(err))
				return
			}
			if !q.Wait {
				end = min(end, page.End)
			}
			last := page.Ended || page.Next >= end
			q.From, q.Tail = page.Next, false
			next := func() (RecordPage, error) { return j.service.Records(ctx, j.id, q) }
			if !last && page.Next < page.End {
				next = ahead(next, &asking)
			}
			for _, r := range page.Records {
				if r.Seq >= end || !yield(r, nil) {
					return
				}
			}
			if last {
				return
			}
			page, err = next()
		}
	}
}

// ahead starts to fetch and returns what waits for the outcome. It adds to fetching what the
// caller must wait for.
func ahead[T any](fetch func() (T, error), fetching *sync.WaitGroup) func() (T, error) {
	var t T
	var err error
	done := make(chan struct{})
	fetching.Go(func() {
		defer close(done)
		t, err = fetch()
	})
	return func() (T, error) {
		<-done
		return t, err
	}
}

// Decode turns a sequence of records into one of the values of those of kind data,
// decoded into Ts; other kinds are passed over. Errors: the sequence's, and
// ErrInvalid for a value that is no T.
func Decode[T any](records iter.Seq2[Record, error]) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for r, err := range records {
			var t T
			if err == nil && r.Kind != KindData {
				continue
			}
			if err == nil {
				err = r.Value.Decode(&t)
			}
			if !yield(t, err) || err != nil {
				return
			}
		}
	}
}
