package harp

import (
	"context"
	"encoding/json"
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
	Seq       uint64    // the job's own number of it, from 0
	Attempt   int       // the attempt it is of
	Time      time.Time // the agent's clock, UTC
	Kind      RecordKind
	Value     Value  // may lie in one piece of memory with its neighbours': clone what is kept of many
	Partial   bool   // a line of output goes on in the next record of this kind, or ended without a line feed
	Truncated uint64 // bytes that were dropped before this record

	// Missing is how many records are missing, this one in the place of the first of
	// them: they were delivered to a dispatcher of which this one is an older backup.
	Missing uint64
}

// MarshalJSON writes seq, attempt, time, kind and value, and partial, truncated and missing
// if there is something to say.
func (r Record) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		Seq       uint64     `json:"seq"`
		Attempt   int        `json:"attempt"`
		Time      time.Time  `json:"time"`
		Kind      RecordKind `json:"kind"`
		Value     Value      `json:"value"`
		Partial   bool       `json:"partial,omitempty"`
		Truncated uint64     `json:"truncated,omitempty"`
		Missing   uint64     `json:"missing,omitempty"`
	}{r.Seq, r.Attempt, r.Time.UTC(), r.Kind, r.Value, r.Partial, r.Truncated, r.Missing})
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
		ctx, cancel := context.WithCancel(ctx)
		var asking sync.WaitGroup
		defer asking.Wait()
		defer cancel()
		next := j.ask(ctx, q, &asking)
		for {
			page, err := next()
			if err != nil {
				yield(Record{}, j.asked(err))
				return
			}
			if !q.Wait {
				end = min(end, page.End)
			}
			last := page.Ended || page.Next >= end
			if q.From, q.Tail = page.Next, false; !last {
				next = j.ask(ctx, q, &asking)
			}
			for r, err := range page.records {
				switch {
				case err != nil:
					yield(Record{}, j.asked(unreadable(err)))
					return
				case r.Seq >= end || !yield(r, nil):
					return
				}
			}
			if last {
				return
			}
		}
	}
}

// pageInHand is a page that is being read.
type pageInHand struct {
	RecordPage
	records iter.Seq2[Record, error] // in the place of Records; an error is of one that makes no sense
}

// farAway is a Service over a network.
type farAway interface {
	// pull is Records for who reads on: the next page is asked for while this one is
	// read, one page and no more. Each record is decoded when it is its turn, while the
	// dispatcher makes the next page.
	pull(ctx context.Context, id string, q RecordQuery) (pageInHand, error)

	// turn waits until a submission may be sent, by the ctx that it returns. done must
	// be called when it was.
	turn(ctx context.Context) (inTurn context.Context, done func())
}

// pageNearby reads a page of a Service that is not far away.
func (j *Job) pageNearby(ctx context.Context, q RecordQuery) (pageInHand, error) {
	page, err := j.service.Records(ctx, j.id, q)
	return pageInHand{page, func(yield func(Record, error) bool) {
		for _, r := range page.Records {
			if !yield(r, nil) {
				return
			}
		}
	}}, err
}

// ask asks for a page, at once if the Service is far away, and returns what waits
// for it. It adds to asking what the caller must wait for after ending ctx.
func (j *Job) ask(ctx context.Context, q RecordQuery, asking *sync.WaitGroup) func() (pageInHand, error) {
	service, far := j.service.(farAway)
	if !far {
		return func() (pageInHand, error) { return j.pageNearby(ctx, q) }
	}
	var page pageInHand
	var err error
	done := make(chan struct{})
	asking.Go(func() {
		defer close(done)
		page, err = service.pull(ctx, j.id, q)
	})
	return func() (pageInHand, error) {
		<-done
		return page, err
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
