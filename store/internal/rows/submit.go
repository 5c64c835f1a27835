package rows

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/failures"
	"github.com/harpcaller/harp/store"
)

// Submit implements store.Jobs.
func (s *Store) Submit(ctx context.Context, jobs []store.Submission, now time.Time) ([]store.Submitted, error) {
	if size := submitSize(jobs); size > maxOp {
		return nil, tooMuch("calls", size, maxOp)
	}
	out, asked := make([]store.Submitted, len(jobs)), s.asked()
	err := s.do(ctx, SpaceFull, func(t *tx) error {
		at := s.sched.NoteTime(s.sched.Since(asked, now))
		for n := range jobs {
			in := &jobs[n]
			if asked != s.sched.Ahead {
				in = sinceSubmitted(s.sched, asked, *in)
			}
			if err := s.submit(t, in, &out[n], at); err != nil {
				return err
			}
		}
		if t.space < SpacePlenty && areRefused(out) {
			return noSpace()
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// areRefused reports whether there was space for none of them.
func areRefused(out []store.Submitted) bool {
	return !slices.ContainsFunc(out, func(one store.Submitted) bool { return !errors.Is(one.Err, harp.ErrNoSpace) })
}

// submitSize is at least what jobs will be when they are written, index entries and
// events with them.
func submitSize(jobs []store.Submission) int {
	size := 0
	for n := range jobs {
		j := &jobs[n].Job
		size += len(jobs[n].Request.Request) + len(jobs[n].Request.Signature) + len(jobs[n].Request.KeyID)
		size += 4000 + 4*len(j.Host) + 4*len(j.Procedure) + 6*len(j.Queue)
		size += 2*(len(j.Principal.Kind)+len(j.Principal.Name)+len(j.Principal.Auth)) + len(j.TraceParent) + len(j.Batch) + len(j.Schedule) + len(j.RetryOf)
		for k, v := range j.Labels {
			size += 4*(len(k)+len(v)) + 50 + WriteCost
		}
	}
	return size
}

func tooMuch(what string, size, most int) error {
	return &harp.FieldError{Field: what, Message: fmt.Sprintf("is %d bytes, at most %d at a time", size, most)}
}

// submit stores one job, if it is new and good, and claims it if it may start. It
// returns only errors that nothing can be done about.
func (s *Store) submit(t *tx, in *store.Submission, out *store.Submitted, now int64) error {
	i, ok := parseID(in.Job.ID)
	if !ok || i.isMember() {
		out.Err = harp.CheckID(in.Job.ID)
		return nil
	}
	switch isNew, err := s.isNew(t, i); {
	case err != nil:
		out.Err = err
	case isNew:
		return s.submitNew(t, i, in, out, now)
	default:
		s.resubmit(t, i, in, out)
	}
	return nil
}

// submitNew stores a job whose id is not stored, unless its idempotency key stands
// for another or its id is one that may have been forgotten.
func (s *Store) submitNew(t *tx, i id, in *store.Submission, out *store.Submitted, now int64) error {
	steady := s.sched.Steady(now)
	known, err := t.submittedBefore("job", in, out, steady)
	if err == nil && in.Job.Queue != nil {
		_, _, err = t.queueRow(string(in.Job.Queue)) // while the job can still be refused
	}
	if errors.Is(err, ErrDamaged) {
		out.Err = err
		return nil
	}
	if known || err != nil {
		return err
	}
	switch {
	case s.isForgotten(i):
		out.Err = prunedError(i)
		return nil
	case in.Refused:
		out.Err = notFound(in.Job.ID)
		return nil
	case t.space < SpacePlenty:
		out.Err = noSpace()
		return nil
	}
	if out.Err = s.sched.CheckJob(in.Job.Principal, in.Job.Queue, in.Most); out.Err != nil {
		return nil
	}
	if err := t.putIdempotency(i, in, steady, s.sched.Steady(nanos(in.KeyUntil))); err != nil {
		return err
	}
	return s.insert(t, i, in, out, now)
}

// isNew reports whether no job has ever had this id: one of whose two rows there is one has lost the
// other. Errors: harp.ErrPruned, the engine's.
func (s *Store) isNew(t *tx, i id) (bool, error) {
	if s.sched.Job(i) != nil {
		return false, nil
	}
	// The tomb is looked for before the idempotency key, which may stand for another job by now.
	key := i.key(prefixCall) // one for all that is looked up
	for _, kind := range []byte{prefixCall, prefixLife, prefixBatch, prefixTomb} {
		key[0] = kind
		value, err := t.getRaw(key)
		switch {
		case err != nil:
			return false, err
		case value == nil:
			continue
		case kind == prefixBatch:
			err = failures.New("conflict", "job "+i.String()+" is a batch").Err()
		case kind == prefixTomb:
			err = prunedError(i)
		}
		return false, err
	}
	return true, nil
}

// resubmit answers a job that is there already.
func (s *Store) resubmit(t *tx, i id, in *store.Submission, out *store.Submitted) {
	_, call, err := readCall(t, i)
	switch {
	case err != nil:
		out.Err = err
	case !slices.Equal(call.Digest, in.Digest[:]):
		out.Err = failures.New("conflict", "job "+in.Job.ID+" belongs to another request").Err()
	default:
		out.Job, out.Err = readShown(t, i)
	}
}

func (s *Store) insert(t *tx, i id, in *store.Submission, out *store.Submitted, now int64) error {
	s.sched.Number++
	j := in.Job.Clone()
	j.No = s.sched.Number
	if j.SubmitTime.IsZero() {
		j.SubmitTime = fromNanos(now)
	}
	for _, at := range []*time.Time{&j.SubmitTime, &j.NotBefore, &j.Expires, &j.FireTime} {
		*at = fromNanos(nanos(*at)) // as it will be read
	}
	j.Concurrency = max(j.Concurrency, 1)
	j.Life = store.Begin(fromNanos(now), "")
	j.Retry = in.Job.Retry
	if err := s.openQueue(t, j); err != nil {
		return err
	}
	if e, started := s.sched.Submit(i, j, now); started {
		j.Life = sentLife(j, now)
	} else {
		j.Reason = s.sched.Reason(e, j)
	}
	t.putCall(i, j, in)
	t.putLife(i, j, nil)
	t.usage.grown += footprint(j)
	for _, key := range entries(j) {
		t.appendIndexEntry(key, i)
	}
	t.enterCohort(i, j)
	t.emitSubmitted(i, j, now)
	*out = store.Submitted{Job: j, New: true}
	return nil
}

// openQueue writes the row of the queue that the job is the first of.
func (s *Store) openQueue(t *tx, j *store.Job) error {
	if j.Queue == nil {
		return nil
	}
	q := s.sched.Queue(string(j.Queue))
	if q != nil && (!q.IsIdle() || q.Fixed) {
		return nil
	}
	row, _, err := t.queueRow(string(j.Queue)) // with the mark, if rows of cancelled jobs still need it
	if err != nil {
		return err
	}
	if q != nil {
		q.Reopen(j.Concurrency)
	}
	row.Concurrency, row.Fixed = j.Concurrency, false
	t.put(nameKey(prefixQueue, string(j.Queue)), encode(row))
	return nil
}

// sentLife is the life of a job that waits once it is sent.
func sentLife(j *store.Job, now int64) store.Life {
	next, _, err := j.Next(store.Event{Kind: store.Claimed, At: fromNanos(now), Fence: j.Fence + 1})
	if err != nil {
		panic("store: a waiting job can be claimed: " + err.Error())
	}
	return next
}

// putCall writes what of a job never changes, and its request.
func (t *tx) putCall(i id, j *store.Job, in *store.Submission) {
	t.call = newCallRow(j, &in.Digest)
	if size := requestSize(&in.Request); size <= shortMost {
		t.call.Request = &in.Request
		t.usage.grown += int64(size)
	} else {
		t.putRow(i.key(prefixRequest), in.Request)
	}
	t.putRow(i.key(prefixCall), &t.call)
}

func requestSize(r *harp.Submission) int { return len(r.Request) + len(r.Signature) + len(r.KeyID) }

// putLife writes the life of a job, with what it returned if that is short.
func (t *tx) putLife(i id, j *store.Job, short []byte) {
	t.life = newLifeRow(&j.Life)
	t.life.Value = short
	t.putRow(i.key(prefixLife), &t.life)
	t.cacheJob(i, j)
}

// putOutcome writes how an attempt ended after which the job has gone on.
func (t *tx) putOutcome(i id, before, after *store.Outcome) {
	switch {
	case after == before: // as it is read
	case after != nil:
		t.put(i.key(prefixOutcome), encode(after))
	default:
		t.remove(i.key(prefixOutcome))
	}
}

// change writes what an event made of a job that brought no value. Errors: the engine's.
func (s *Store) change(t *tx, i id, before, after *store.Job) error {
	short, err := t.shortValue(i, &before.Life)
	if err != nil {
		return err
	}
	if err := s.putChange(t, i, before, after, short); err != nil {
		return err
	}
	return s.noteDrift(t, i, before, after, nil)
}

// putChange writes what an event made of a job: its life, in which the value is if that is
// short, and what is told of it and looked for. Errors: the engine's.
func (s *Store) putChange(t *tx, i id, before, after *store.Job, short []byte) error {
	if after.State.Ended() {
		if err := s.classify(t, i, before, after, short); err != nil {
			return err
		}
	}
	t.putLife(i, after, short)
	t.usage.grown += lifeFootprint(after) - lifeFootprint(before)
	t.putOutcome(i, before.Outcome, after.Outcome)
	t.emitChange(i, before, after)
	t.noteMove(i, before.State, after)
	if after.State.Ended() && !before.State.Ended() {
		key := endedKey(after)
		t.appendIndexEntry(key, i)
		if after.Batch == "" { // else it is deleted with its batch
			t.noteEnded(i, after)
		}
	}
	return s.noteMember(t, before, after)
}
