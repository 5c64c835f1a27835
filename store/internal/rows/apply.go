package rows

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/store"
	"github.com/harpcaller/harp/store/internal/schedule"
)

// Apply implements store.Jobs.
func (s *Store) Apply(ctx context.Context, ts ...store.Transition) ([]store.Change, error) {
	for n := range ts {
		if size := eventSize(&ts[n].Event); size > maxEvent {
			return nil, tooMuch("event", size, maxEvent)
		}
	}
	early, err := s.findEarly(ts)
	if err != nil {
		return nil, err
	}
	out, asked := make([]store.Change, len(ts)), s.asked()
	var left []freed // by the commit before, which had no room for what starts by it
	for n := 0; ; {
		first := n // of those of this commit
		err := s.doAhead(ctx, SpaceFull, func(t *tx) error {
			t.freed = append(t.freed, left...)
			for ; n < len(ts) && t.hasRoom(eventSize(&ts[n].Event)+2*maxStep); n++ {
				if err := s.applyTransition(t, &ts[n], &out[n], asked, early); err != nil {
					return err
				}
			}
			started, err := s.startFreed(t)
			if err == nil {
				left, t.freed = slices.Clone(t.freed), nil
				var some []*store.Job
				some, err = s.settleBatches(t, s.sched.Latest)
				started = append(started, some...)
			}
			if len(started)+len(t.left)+len(t.over) > 0 { // by the last of those that came about, as all come together
				last := n - 1
				for out[last].Err != nil {
					last--
				}
				of := &out[last]
				of.Claimed, of.Left, of.Over = append(of.Claimed, started...), append(of.Left, t.left...), append(of.Over, t.over...)
			}
			return err
		})
		if err != nil {
			for n := first; n < len(out); n++ {
				out[n] = store.Change{Err: err}
			}
			return out, err
		}
		if n == len(ts) && len(left) == 0 {
			return out, nil
		}
		ctx = context.WithoutCancel(ctx) // it has begun
	}
}

// eventSize is how much an event brings into the life of its job.
func eventSize(e *store.Event) int { return len(e.Value) + failureBytes(&e.Failure) + len(e.Text) }

// applyTransition moves one job through its life. It returns only errors that nothing can be
// done about.
func (s *Store) applyTransition(t *tx, in *store.Transition, out *store.Change, asked int64, early map[id]earlyMember) error {
	i, ok := parseID(in.ID)
	if !ok {
		out.Err = notFound(in.ID)
		return nil
	}
	switch {
	case t.space < SpaceCritical, t.space < SpaceLow && in.Event.Kind != store.CancelReq:
		out.Err = noSpace()
		return nil
	case in.Event.Kind == store.Claimed:
		out.Err = store.ErrIllegal // slots are Claim's
		return nil
	}
	event := owned(in.Event)
	event.At, event.Wake = s.sched.Since(asked, event.At), s.sched.Since(asked, event.Wake)
	before, err := readJob(t, i)
	if m, is := early[i]; is && errors.Is(err, harp.ErrNotFound) {
		return s.cancelEarly(t, i, m, event, out)
	}
	if err != nil {
		out.Err = err
		return nil
	}
	if err := s.applyEvent(t, i, before, event, out); err != nil {
		return err
	}
	return s.noteTaken(t, before.Host, event.Taken)
}

// applyEvent lets an event be part of the life of a job that was read. It returns only
// errors that nothing can be done about.
func (s *Store) applyEvent(t *tx, i id, before *store.Job, event store.Event, out *store.Change) error {
	now := s.sched.NoteTime(event.At)
	after, effect, err := nextLife(t, before, event)
	var short []byte
	if err == nil {
		short, err = t.putValue(i, &before.Life, &after.Life, event.Value)
	}
	if err != nil {
		out.Err = err
		return nil
	}
	if event.Kind == store.Lose {
		t.operator = event.By
	}
	if err := s.putChange(t, i, before, after, short); err != nil {
		return err
	}
	if err := s.noteDrift(t, i, before, after, event.Value); err != nil {
		return err
	}
	t.emitSurvivors(i, before, after, event.At)
	t.operator = harp.Principal{}
	out.Job, out.Effect = after, effect
	if e := s.sched.Job(i); e != nil {
		s.reschedule(t, e, after, effect, now)
	}
	return nil
}

// maxWord is how much is kept of a word that an agent chose. Each attempt of a job may
// have one, and all are written with each change.
const maxWord = 256

func cutWord(s string) string {
	if len(s) <= maxWord {
		return s
	}
	return strings.ToValidUTF8(s[:maxWord], "")
}

// owned returns an event that shares nothing with the one given, its times as they
// are stored.
func owned(e store.Event) store.Event {
	e.Reason = cutWord(e.Reason)
	e.At, e.Wake = fromNanos(nanos(e.At)), fromNanos(nanos(e.Wake))
	e.Failure.Data, e.Left = slices.Clone(e.Failure.Data), slices.Clone(e.Left)
	if c := e.Failure.ExitCode; c != nil {
		code := *c
		e.Failure.ExitCode = &code
	}
	if e.Stopping != nil {
		stopping := *e.Stopping
		stopping.Cause, stopping.Since = cutWord(stopping.Cause), fromNanos(nanos(stopping.Since))
		e.Stopping = &stopping
	}
	return e
}

// nextLife is what a job is after an event.
func nextLife(t *tx, before *store.Job, event store.Event) (after *store.Job, effect store.Effect, err error) {
	covered, tell, err := coveredBy(t, before)
	if err != nil {
		return nil, effect, err
	}
	j := *covered
	if j.Life, effect, err = covered.Next(event); err != nil {
		return nil, effect, err
	}
	effect.Tell = (effect.Tell || tell) && !effect.Ends
	return &j, effect, nil
}

// coveredBy returns a job as the mark of its queue makes it, and the cancel of its batch. Tell says that
// its agent has not been told.
func coveredBy(from getter, j *store.Job) (covered *store.Job, tell bool, err error) {
	if j.Queue != nil && !j.State.Ended() {
		m, err := readMark(from, j.Queue)
		if err != nil {
			return j, false, err
		}
		j, tell = m.coverJob(j)
	}
	if j.Batch == "" || j.State.Ended() || j.Cancel != nil {
		return j, tell, nil
	}
	cancel, err := cancelOf(from, j)
	if err != nil || cancel == nil {
		return j, tell, err
	}
	next, effect, err := j.Next(*cancel)
	if err != nil {
		return j, tell, nil //nolint:nilerr // every job that has not ended admits a cancel
	}
	c := *j
	c.Life = next
	return &c, effect.Tell, nil
}

// putValue stores what a procedure returned, where its job now speaks of a value, and deletes
// what an attempt before it has returned, where it does not any more. It returns what of that
// is to lie in the row of the job's life.
func (t *tx) putValue(i id, before, after *store.Life, v harp.Value) (short []byte, err error) {
	had, has := isValued(before), isValued(after)
	if short, err = t.shortValue(i, before); err != nil || had == has && (!has || len(v) == 0) {
		return short, err
	}
	t.usage.grown -= int64(len(short))
	if had && short == nil { // else there is nothing under its key
		if err := t.readOld(i.key(prefixValue)); err != nil {
			return nil, err
		}
	}
	switch {
	case has && (len(v) > shortMost || !after.State.Ended()):
		t.put(i.key(prefixValue), v)
		return nil, nil
	case had && short == nil:
		t.remove(i.key(prefixValue))
	}
	if !has {
		return nil, nil
	}
	t.usage.grown += int64(len(v))
	return v, nil
}

// shortValue is the value that lies in the row of a job's life, nil if none does. One that cannot
// be read is none: what is written in its place says that there is a value, which is missing.
func (t *tx) shortValue(i id, l *store.Life) ([]byte, error) {
	if !l.State.Ended() || !isValued(l) {
		return nil, nil
	}
	var life lifeRow
	_, err := read(t, i.key(prefixLife), &life)
	if errors.Is(err, ErrDamaged) {
		return nil, nil
	}
	return life.Value, err
}

// isValued reports whether a value belongs to a job, be it of an attempt or late.
func isValued(l *store.Life) bool {
	return l.HasValue || l.Outcome != nil && l.Outcome.HasValue || l.Late != nil && l.Late.HasValue
}

// reschedule brings the schedule after a job's life, and notes what came free by it.
func (s *Store) reschedule(t *tx, e *schedule.Job, after *store.Job, effect store.Effect, now int64) {
	f := freed{job: e, host: after.Host, gives: effect.Gives, wasFull: e.HostIsFull()}
	switch {
	case effect.Gives:
		s.sched.Release(e, now)
	case effect.Ends:
		s.sched.Dequeue(e, now)
	}
	if effect.Ends {
		s.forgetJob(t, e)
	}
	if effect.Gives || after.State == harp.StateRunning {
		isBusy := after.State == harp.StateQueued && after.Reason == harp.ReasonAgentBusy
		f.backlog = s.sched.Answered(e, isBusy)
	}
	if effect.Gives && !effect.Ends {
		s.sched.Enqueue(e, after, now, now)
	}
	if !effect.Gives {
		s.sched.Stays(e, after, now)
	}
	if f.gives || f.backlog != nil {
		t.freed = append(t.freed, f)
	}
}

// forgetJob takes a job that has ended out of the schedule, and with the last of its
// kind what its queue needed for it: the row, or the mark.
func (s *Store) forgetJob(t *tx, e *schedule.Job) {
	t.leaveCohort(e.ID)
	q := e.Queue
	gone := s.sched.Drop(e)
	if gone {
		t.write(nameKey(prefixQueue, q.Name), nil)
	}
	if !q.DropMarks() {
		return
	}
	t.write(nameKey(prefixMarked, q.Name), nil)
	if gone {
		return
	}
	row, _, err := t.queueRow(q.Name)
	if err != nil {
		s.log.Error("queue cannot be read", "queue", harp.Value(q.Name).String(), "err", err)
		return
	}
	row.Marks = nil
	t.put(nameKey(prefixQueue, q.Name), encode(row))
}
