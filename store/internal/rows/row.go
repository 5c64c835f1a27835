package rows

import (
	"slices"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/store"
	"github.com/harpcaller/harp/store/internal/schedule"
)

// A job has two rows: what never changes since it was submitted, its request too, and its
// life, which every event rewrites, with what its procedure returned. Only what is long lies
// beside them. The keys of their fields are part of the format.

// shortMost is how many bytes a request, or a value, has at most that lies in a row of its job.
const shortMost = 1 << 10

type callRow struct {
	store.Job
	Digest  []byte           `msgpack:"digest"`
	Retry   harp.RetryPolicy `msgpack:"retry,omitempty"`   // that was granted
	Request *harp.Submission `msgpack:"request,omitempty"` // nil: lies beside the row
}

func newCallRow(j *store.Job, digest *[32]byte) callRow {
	return callRow{Job: *j, Digest: digest[:], Retry: j.Retry}
}

func (r *callRow) toJob(i id, life store.Life) *store.Job {
	j := r.Job
	j.ID, j.Life, j.QueuePos = i.String(), life, 0
	j.Retry = r.Retry
	return &j
}

type lifeRow struct {
	store.Life
	Waits bool   `msgpack:"outcome,omitempty"`  // the outcome of an attempt lies beside the row: how it ended whose job has not
	Value []byte `msgpack:"returned,omitempty"` // of a job that has ended; of any other, and what is long, lies beside the row
}

func newLifeRow(l *store.Life) lifeRow { return lifeRow{Life: *l, Waits: l.Outcome != nil} }

// queueRow is what a queue is beyond its jobs. It exists while there is one that
// has not ended, or an operator has paused the queue or said its concurrency.
type queueRow struct {
	Concurrency int              `msgpack:"conc"`
	Fixed       bool             `msgpack:"fixed,omitempty"` // the concurrency is an operator's, not the first job's
	Paused      bool             `msgpack:"paused,omitempty"`
	Pause       *harp.QueuePause `msgpack:"pause,omitempty"`             // nil of one that is paused: an older version has written it
	Keeper      harp.Principal   `msgpack:"by,omitempty"`                // who said that first
	Marks       []schedule.Mark  `msgpack:"cancelled_through,omitempty"` // ascending
}

// rowOf is a queue as its row has it.
func rowOf(q *schedule.Queue) queueRow {
	return queueRow{Concurrency: q.Concurrency, Fixed: q.Fixed, Paused: q.Pause != nil, Pause: q.Pause, Keeper: q.Keeper(), Marks: q.Marks}
}

// coverJob returns a job as the first mark makes it that it is not above: if it has
// not ended, as after a cancel. Tell says that its agent has not been told.
func (r *queueRow) coverJob(j *store.Job) (covered *store.Job, tell bool) {
	if r == nil || j.State.Ended() {
		return j, false
	}
	i := slices.IndexFunc(r.Marks, func(m schedule.Mark) bool { return j.No <= m.Through })
	if i < 0 {
		return j, false
	}
	next, effect, err := j.Next(store.Event{Kind: store.CancelReq, At: r.Marks[i].At, By: r.Marks[i].By})
	if err != nil {
		return j, false // every job that has not ended admits a cancel
	}
	c := *j
	c.Life = next
	return &c, effect.Tell
}
