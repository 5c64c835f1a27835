package harp

import (
	"context"
	"encoding/json"
	"iter"
	"math"
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
	Seq       uint64    // the job's own number of it, from 0
	Attempt   int       // the attempt it is of
	Time      time.Time // the agent's clock, UTC
	Kind      RecordKind
	Value     Value
	Truncated uint64 // bytes that were dropped before this record
}

// MarshalJSON writes seq, attempt, time, kind and value, and truncated if any.
func (r Record) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		Seq       uint64     `json:"seq"`
		Attempt   int        `json:"attempt"`
		Time      time.Time  `json:"time"`
		Kind      RecordKind `json:"kind"`
		Value     Value      `json:"value"`
		Truncated uint64     `json:"truncated,omitempty"`
	}{r.Seq, r.Attempt, r.Time.UTC(), r.Kind, r.Value, r.Truncated})
}

// StreamOption says where reading a job's records starts.
type StreamOption func(*RecordQuery)

// Since starts at the record with this number; Since(0) at the first.
func Since(seq uint64) StreamOption {
	return func(q *RecordQuery) { q.From, q.Tail, q.Recent = seq, false, 0 }
}

// Recent starts so many records before the end.
func Recent(n uint64) StreamOption {
	return func(q *RecordQuery) { q.From, q.Tail, q.Recent = 0, true, n }
}

// Stream yields the records there are when the loop starts, all of them unless an
// option says otherwise, and stops. Each range over it reads anew. An error is the
// last thing it yields. Errors: ErrInvalid (the id), ErrNotFound, ErrPruned,
// ErrUnavailable, ErrClosed, ctx's.
func (j *Job) Stream(ctx context.Context, opts ...StreamOption) iter.Seq2[Record, error] {
	return j.records(ctx, RecordQuery{}, opts)
}

// Follow yields the records from the moment the loop starts until the job has
// ended, however it ended; Since(0) adds all that came before, without gap or
// repeat. It goes on through lost connections and restarts of the dispatcher until
// ctx ends. Each range over it reads anew. Errors: as Stream, without
// ErrUnavailable.
func (j *Job) Follow(ctx context.Context, opts ...StreamOption) iter.Seq2[Record, error] {
	return j.records(ctx, RecordQuery{Tail: true, Wait: true}, opts)
}

// records reads page by page. Following waits at the end of what is there; a
// stream ends at the number that was next when it began.
func (j *Job) records(ctx context.Context, q RecordQuery, opts []StreamOption) iter.Seq2[Record, error] {
	for _, opt := range opts {
		opt(&q)
	}
	return func(yield func(Record, error) bool) {
		q, end := q, uint64(math.MaxUint64)
		for {
			page, err := j.service.Records(ctx, j.id, q)
			if err != nil {
				yield(Record{}, err)
				return
			}
			if !q.Wait {
				end = min(end, page.End)
			}
			for _, r := range page.Records {
				if r.Seq >= end || !yield(r, nil) {
					return
				}
			}
			if page.Ended || page.Next >= end {
				return
			}
			q.From, q.Tail = page.Next, false
		}
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
