package rows

import (
	"slices"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/store"
)

// A job has two rows: what never changes since it was submitted, and its life,
// which every event rewrites. The keys of their fields are part of the format.

type callRow struct {
	store.Job
	Digest []byte           `msgpack:"digest"`
	Retry  harp.RetryPolicy `msgpack:"retry,omitempty"` // that was granted
}

func newCallRow(j *store.Job, digest [32]byte) callRow {
	return callRow{Job: *j, Digest: digest[:], Retry: j.Retry}
}

func (r *callRow) job(i id, life store.Life) store.Job {
	j := r.Job
	j.ID, j.Life, j.QueuePos = i.String(), life, 0
	j.Retry = r.Retry
	return j
}

type lifeRow struct {
	store.Life
	Waits bool `msgpack:"outcome,omitempty"` // the outcome of an attempt lies beside the row: how it ended whose job has not
}

func newLifeRow(l *store.Life) lifeRow { return lifeRow{Life: *l, Waits: l.Outcome != nil} }

// queueRow is what a queue is beyond its jobs. It exists while there is one that
// has not ended, or an operator has paused the queue or said its concurrency.
type queueRow struct {
	Concurrency int       `msgpack:"conc"`
	Fixed       bool      `msgpack:"fixed,omitempty"` // the concurrency is an operator's, not the first job's
	Paused      bool      `msgpack:"paused,omitempty"`
	Marks       []markRow `msgpack:"cancelled_through,omitempty"` // ascending
}

// markRow is one cancel of a queue: of its jobs up to a submit number.
type markRow struct {
	Through uint64         `msgpack:"no"`
	By      harp.Principal `msgpack:"by"`
	At      time.Time      `msgpack:"at"`
}

// through is the highest number that a cancel covers; 0: none.
func (r *queueRow) through() uint64 {
	if n := len(r.Marks); n > 0 {
		return r.Marks[n-1].Through
	}
	return 0
}

// cover returns a job as the first mark makes it that it is not above: if it has
// not ended, as after a cancel. Tell says that its agent has not been told.
func (r *queueRow) cover(j store.Job) (covered store.Job, tell bool) {
	if r == nil || j.State.Ended() {
		return j, false
	}
	i := slices.IndexFunc(r.Marks, func(m markRow) bool { return j.No <= m.Through })
	if i < 0 {
		return j, false
	}
	next, effect, err := j.Next(store.Event{Kind: store.CancelReq, At: r.Marks[i].At, By: r.Marks[i].By})
	if err != nil {
		return j, false // every job that has not ended admits a cancel
	}
	j.Life = next
	return j, effect.Tell
}
