package rows

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/store"
)

// Submit implements store.Jobs.
func (s *Store) Submit(ctx context.Context, jobs []store.Submission, now time.Time) ([]store.Submitted, error) {
	if size := submitSize(jobs); size > maxOp {
		return nil, tooMuch("calls", size, maxOp)
	}
	out := make([]store.Submitted, len(jobs))
	err := s.do(ctx, SpaceFull, func(t *tx) error {
		at := s.sched.at(now)
		for n := range jobs {
			if err := s.submit(t, &jobs[n], &out[n], at); err != nil {
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
	return &harp.FieldError{Field: what, Message: fmt.Sprintf("is of %d bytes, at most %d at a time", size, most)}
}

// at is a time that the dispatcher named, which is noted.
func (s *schedule) at(now time.Time) int64 {
	n := nanos(now)
	s.latest = max(s.latest, n)
	return n
}

// submit stores one job, if it is new and good, and claims it if it may start. It
// returns only errors that nothing can be done about.
func (s *Store) submit(t *tx, in *store.Submission, out *store.Submitted, now int64) error {
	i, ok := parseID(in.Job.ID)
	if !ok {
		out.Err = harp.CheckID(in.Job.ID)
		return nil
	}
	if _, ok := s.sched.jobs[i]; !ok {
		if t.noteAbsent(i, &out.Err) {
			return s.submitNew(t, i, in, out, now)
		}
		if out.Err != nil {
			return nil
		}
	}
	s.resubmit(t, i, in, out)
	return nil
}

// submitNew stores a job whose id is not stored, unless its idempotency key stands
// for another or its id is one that was pruned.
func (s *Store) submitNew(t *tx, i id, in *store.Submission, out *store.Submitted, now int64) error {
	steady := s.sched.steady(now)
	known, err := t.knownBy(in, out, steady)
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
	gone, err := t.isPruned(i)
	switch {
	case err != nil:
		return err
	case gone, s.isForgotten(i):
		out.Err = pruned(i)
		return nil
	case in.Refused:
		out.Err = notFound(in.Job.ID)
		return nil
	case t.space < SpacePlenty:
		out.Err = noSpace()
		return nil
	}
	if err := t.putKey(i, in, steady, s.sched.steady(nanos(in.KeyUntil))); err != nil {
		return err
	}
	return s.insert(t, i, in, out, now)
}

// noteAbsent reports whether no job has this id.
func (t *tx) noteAbsent(i id, err *error) bool {
	value, e := t.raw(i.key(prefixCall))
	*err = e
	return e == nil && value == nil
}

// resubmit answers a job that is there already.
func (s *Store) resubmit(t *tx, i id, in *store.Submission, out *store.Submitted) {
	_, call, err := readCall(t, i)
	switch {
	case err != nil:
		out.Err = err
	case !slices.Equal(call.Digest, in.Digest[:]):
		out.Err = harp.NewFailure("conflict", "job "+in.Job.ID+" is another request").Err()
	default:
		out.Job, out.Err = shown(t, i)
	}
}

func (s *Store) insert(t *tx, i id, in *store.Submission, out *store.Submitted, now int64) error {
	s.sched.number++
	j := in.Job
	j.ID, j.No = i.String(), s.sched.number
	if j.SubmitTime.IsZero() {
		j.SubmitTime = fromNanos(now)
	}
	for _, at := range []*time.Time{&j.SubmitTime, &j.NotBefore, &j.Expires, &j.FireTime} {
		*at = fromNanos(nanos(*at)) // as it will be read
	}
	j.Concurrency = max(j.Concurrency, 1)
	j.Life = store.Begin(fromNanos(now), "")
	j.Retry = in.Job.Retry
	if err := s.openQueue(t, &j); err != nil {
		return err
	}
	e := s.sched.add(i, &j, now, now)
	j.Reason = s.sched.reason(e, &j)
	if s.sched.startable(e, now) {
		j = s.claimed(e, j, now)
	}
	call := newCallRow(&j, in.Digest)
	t.putRow(i.key(prefixCall), &call)
	t.putRow(i.key(prefixRequest), in.Request)
	t.putLife(i, &j)
	t.kept.grown += footprint(&j)
	for _, key := range entries(&j) {
		t.add(key, seal(key, i[:]))
	}
	t.putNumber(keyNumber, j.No)
	t.emitSubmitted(i, &j, now)
	*out = store.Submitted{Job: j.Clone(), New: true}
	return nil
}

// openQueue writes the row of the queue that the job is the first of.
func (s *Store) openQueue(t *tx, j *store.Job) error {
	if j.Queue == nil {
		return nil
	}
	q := s.sched.queues[string(j.Queue)]
	if q != nil && (!q.isIdle() || q.fixed) {
		return nil
	}
	row, _, err := t.queueRow(string(j.Queue)) // with the mark, if rows of cancelled jobs still need it
	if err != nil {
		return err
	}
	if q != nil {
		q.reopen(j.Concurrency)
	}
	row.Concurrency, row.Fixed = j.Concurrency, false
	t.put(nameKey(prefixQueue, string(j.Queue)), encode(row))
	return nil
}

// startable reports whether a new job may start at once: nobody of its line is
// before it and nothing is in its way.
func (s *schedule) startable(e *entry, now int64) bool {
	return e.line != nil && e.line.head == e && e.host.mayStart() && e.queue.free() > 0 && !e.isLate(now)
}

// claimed gives a waiting job its slot and returns it as sent. The caller writes
// it.
func (s *Store) claimed(e *entry, j store.Job, now int64) store.Job {
	next, _, err := j.Next(store.Event{Kind: store.Claimed, At: fromNanos(now), Fence: j.Fence + 1})
	if err != nil {
		panic("store: a waiting job can be claimed: " + err.Error())
	}
	j.Life = next
	s.sched.start(e, now)
	return j
}

// putLife writes the life of a job.
func (t *tx) putLife(i id, j *store.Job) {
	t.life = newLifeRow(&j.Life)
	t.putRow(i.key(prefixLife), &t.life)
	t.hold(i, *j)
}

// putOutcome writes how an attempt ended after which the job has gone on.
func (t *tx) putOutcome(i id, before, after *store.Outcome) {
	switch key := i.key(prefixOutcome); {
	case after == before: // as it is read
	case after != nil:
		t.put(key, encode(after))
	default:
		t.remove(key)
	}
}

// change writes what an event made of a job, its index entries with it.
func (t *tx) change(i id, before, after *store.Job) {
	t.putLife(i, after)
	t.kept.grown += lifeFootprint(after) - lifeFootprint(before)
	t.putOutcome(i, before.Outcome, after.Outcome)
	t.emitChange(i, before, after)
	had, has := changing(before), changing(after)
	for _, key := range had {
		if !contains(has, key) {
			t.add(key, nil)
		}
	}
	for _, key := range has {
		if !contains(had, key) {
			t.add(key, seal(key, i[:]))
		}
	}
}

func contains(keys [][]byte, key []byte) bool {
	return slices.ContainsFunc(keys, func(k []byte) bool { return slices.Equal(k, key) })
}
