package dispatcher

import (
	"context"
	"errors"
	"slices"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/wire"
	"github.com/harpcaller/harp/store"
)

// attemptKey names an attempt.
type attemptKey struct {
	job    string
	number int64
}

// reconciliation compares what an agent holds with what is stored of its host, at
// the beginning of a session: the table of docs/architecture.md, a method for each
// kind of job.
type reconciliation struct {
	s          *session
	held       map[attemptKey]wire.HeldAttempt
	gone       bool // the agent's journal was lost or is older than it was: what it does not hold proves nothing
	rolledBack bool // rolled back: nor does what it holds

	changes []store.Transition
	proofs  []store.Transition // that attempts which had started are lost; committed behind those that follow from it
	resumes []resumption       // what the agent is asked for
	forget  []wire.HeldAttempt
	events  []harp.Event
}

// resumption is an attempt of an earlier session that the agent is asked for the rest of.
type resumption struct {
	job         *store.Job
	missing     int64 // the first record that the agent has, where those before are not stored; 0: they are
	alive, over bool  // what the agent says of it: it runs; it stops, or has ended
}

// reconcile settles what can be and returns what the agent is to forget. What it is
// to be asked for is in s.resumes.
func (s *session) reconcile(ctx context.Context, held []wire.HeldAttempt) ([]wire.HeldAttempt, error) {
	r := reconciliation{s: s, held: make(map[attemptKey]wire.HeldAttempt, len(held))}
	r.gone, r.rolledBack = s.journalGone()
	for _, h := range held {
		r.held[attemptKey{h.Job, h.Attempt}] = h
	}
	active, err := s.d.store.Active(ctx, s.host.name)
	if err != nil {
		return nil, err
	}
	returning, err := s.d.store.Returning(ctx, s.host.name)
	if err != nil {
		return nil, err
	}
	r.gone = r.gone || slices.ContainsFunc(active, r.lacksStart) || slices.ContainsFunc(returning, r.lacksLost)
	for _, j := range active {
		r.reconcileActive(j)
	}
	for _, j := range returning {
		r.reconcileReturning(j)
	}
	for _, h := range r.held {
		if err := r.reconcileOther(ctx, h); err != nil {
			return nil, err
		}
	}
	return r.forget, r.commit(ctx)
}

// journalGone reports whether the agent's journal is another one than it was, or is the same
// and knows less than it did.
func (s *session) journalGone() (gone, rolledBack bool) {
	had := s.host.storedRow()
	if had.Journal == "" {
		return false, false
	}
	rolledBack = s.hello.Journal == had.Journal && s.taken < had.Taken
	return rolledBack || s.hello.Journal != had.Journal, rolledBack
}

// takeHeld returns what the agent holds of the job's last attempt, which is dealt with
// then. What runs, or left its end, without the journal that it was noted in is there.
func (r *reconciliation) takeHeld(j *store.Job) (wire.HeldAttempt, bool) {
	key := attemptKey{j.ID, int64(j.Attempt)}
	h, ok := r.held[key]
	if !ok || r.rolledBack || h.State == wire.HeldWithdrawn && r.gone {
		return h, false
	}
	delete(r.held, key)
	return h, true
}

// lacksStart reports whether the agent does not hold what is known to have started: then
// its journal is older than it was, as that of a clone, however many calls it has taken.
func (r *reconciliation) lacksStart(j *store.Job) bool { return r.hasStarted(j) && r.lacks(j) }

// lacksLost is lacksStart for an attempt that was given up as lost: until it is known what
// became of it the agent holds it.
func (r *reconciliation) lacksLost(j *store.Job) bool {
	return (j.Survivor || j.Attempts[len(j.Attempts)-1].Reason == harp.LostTooLong) && r.lacksStart(j)
}

func (r *reconciliation) lacks(j *store.Job) bool {
	h, ok := r.held[attemptKey{j.ID, int64(j.Attempt)}]
	return !ok || h.State == wire.HeldWithdrawn
}

func (r *reconciliation) addTransition(j *store.Job, kind store.Kind, reason string) {
	list := &r.changes
	if kind == store.Lose && r.hasStarted(j) {
		list = &r.proofs
	}
	e := r.s.d.newEvent(j, kind)
	e.Reason = reason
	*list = append(*list, store.Transition{ID: j.ID, Event: e})
}

func (r *reconciliation) loseJob(j *store.Job) { r.addTransition(j, store.Lose, harp.LostJournalGone) }

// reconcileActive is for a job that holds an attempt.
func (r *reconciliation) reconcileActive(j *store.Job) {
	h, ok := r.takeHeld(j)
	switch {
	case r.gone && !ok:
		r.loseJob(j)
	case !ok || h.State == wire.HeldWithdrawn:
		r.addTransition(j, store.Withdrawn, harp.ReasonQueue)
	default:
		if isAlive(h) {
			r.s.host.noteBegun(j)
			r.addTransition(j, store.Alive, "")
		}
		r.requestResume(j, h)
	}
}

// reconcileReturning is for a job that waits for another attempt, the last one having been
// given up as lost. Whatever is left of that one comes first.
func (r *reconciliation) reconcileReturning(j *store.Job) {
	h, ok := r.takeHeld(j)
	switch {
	case !ok || h.State == wire.HeldWithdrawn:
		if j.Survivor || r.gone && j.Attempts[len(j.Attempts)-1].Reason == harp.LostTooLong {
			r.loseJob(j) // it may still run, and nobody will know
		} // else it is over
	default:
		r.addTransition(j, store.Alive, "")
		r.requestResume(j, h)
	}
}

// reconcileOther is for an attempt of a job that neither holds nor waits for one: what a lost
// job's agent still has to say is heard, anything else forgotten.
func (r *reconciliation) reconcileOther(ctx context.Context, h wire.HeldAttempt) error {
	j, err := r.s.d.store.Job(ctx, h.Job)
	isOwn := err == nil && j.Host == r.s.host.name
	switch {
	case errors.Is(err, harp.ErrNotFound), errors.Is(err, harp.ErrPruned), errors.Is(err, harp.ErrInvalid),
		isOwn && isNewer(j, h), // it was sent behind the backup that the store was restored from
		err == nil && !isOwn && wasGivenUp(j, h):
		r.noteForgotten(h)
	case errors.Is(err, store.ErrDamaged): // its agent keeps what it has
		r.s.d.log.Error("job cannot be read", "job", h.Job, "host", r.s.host.name, "err", err)
		return nil
	case err != nil:
		return err
	case !isOwn && !j.State.Ended(): // its agent was renamed, and may be what it was again
		r.s.d.repeated.Warn(r.s.host.name, "what an agent holds of a job is of another host", "job", h.Job, "host", j.Host, "agent", r.s.host.name)
		return nil
	case isOwn && wasGivenUp(j, h) && !r.rolledBack:
		r.requestResume(j, h)
		return nil
	}
	r.forget = append(r.forget, h)
	return nil
}

// noteForgotten has the feed name an attempt that the agent is to forget, though nobody here has heard what became of it. An agent can
// hold, and have forgotten, whatever it says: too many are only counted.
func (r *reconciliation) noteForgotten(h wire.HeldAttempt) {
	name := r.s.host.name
	if !r.s.host.admitForgotten() {
		r.s.d.repeated.Warn(name, "attempts that are not known here are forgotten, and there are too many for the feed to name them", "host", name)
		return
	}
	e := harp.Event{Type: harp.EventHostForgot, Host: name, Job: h.Job, Attempt: int(h.Attempt)}
	if slices.Contains(wire.HeldStates, h.State) {
		e.Reason = h.State
	}
	r.events = append(r.events, e)
}

// requestResume notes that the agent is asked for the rest of an attempt. It may not have all
// of that any more: some was acknowledged by the dispatcher of a store of which this one
// is an older backup. Then what follows is stored behind a record that says so.
func (r *reconciliation) requestResume(j *store.Job, h wire.HeldAttempt) {
	one := resumption{job: j, alive: isAlive(h), over: h.State != wire.HeldAlive}
	if next := int64(j.Attempts[len(j.Attempts)-1].Next); h.Acked > next { //nolint:gosec // records of one attempt
		r.s.d.repeated.Warn(r.s.host.name, "records are missing that another dispatcher has acknowledged", "job", j.ID, "attempt", h.Attempt, "first", next, "missing", h.Acked-next)
		one.missing = h.Acked
	}
	r.resumes = append(r.resumes, one)
}

// commit moves the jobs. Where one cannot be moved the session ends, and the next
// one begins anew: it must find what this one has concluded from.
func (r *reconciliation) commit(ctx context.Context) error {
	for _, list := range [][]store.Transition{r.changes, r.proofs} {
		if err := r.commitList(ctx, list); err != nil {
			return err
		}
	}
	r.s.resumes = r.resumes
	for some := range slices.Chunk(r.events, 1000) { // of more there may be too many bytes
		r.s.d.appendEvents(some...)
	}
	return nil
}

func (r *reconciliation) commitList(ctx context.Context, list []store.Transition) error {
	for chunk := range slices.Chunk(list, 500) {
		changes, err := r.s.d.applyTransitions(ctx, chunk...)
		r.s.d.appendEvents(journalsGone(chunk, changes)...) // the next session finds none of these; also with an error: some may be stored
		if err != nil {
			return err
		}
		for _, c := range changes {
			if c.Err != nil && !errors.Is(c.Err, store.ErrIllegal) {
				return c.Err
			}
		}
	}
	return nil
}

// journalsGone are the events of jobs that were lost with their agent's journal.
func journalsGone(ts []store.Transition, changes []store.Change) (events []harp.Event) {
	for i := range changes {
		if j := changes[i].Job; ts[i].Event.Kind == store.Lose && changes[i].Err == nil {
			events = append(events, harp.Event{Type: harp.EventHostJournal, Host: j.Host, Job: j.ID, Attempt: j.Attempt})
		}
	}
	return events
}

// hasStarted reports whether the last attempt has given a sign of having started, stored or not.
func (r *reconciliation) hasStarted(j *store.Job) bool {
	last := j.Attempts[len(j.Attempts)-1]
	return !last.Started.IsZero() || last.Next > 0 || j.Stopping != nil || r.s.host.hasBegun(j)
}

func isAlive(h wire.HeldAttempt) bool {
	return h.State == wire.HeldAlive || h.State == wire.HeldStopping
}

// isNewer reports whether an agent holds an attempt that its job had not sent when it ended: a later one, or the last, which had
// not started then and keeps its number when it is sent again.
func isNewer(j *store.Job, h wire.HeldAttempt) bool {
	n := len(j.Attempts)
	wasNotStarted := n > 0 && h.Attempt == int64(j.Attempt) && j.Attempts[n-1].Outcome == string(store.NotNow)
	return h.Attempt > int64(j.Attempt) || wasNotStarted && h.State != wire.HeldWithdrawn
}

// wasGivenUp reports whether the job ended without its agent's word about this
// attempt.
func wasGivenUp(j *store.Job, h wire.HeldAttempt) bool {
	n := len(j.Attempts)
	return j.State.Ended() && n > 0 && j.Late == nil && int64(j.Attempt) == h.Attempt &&
		j.Attempts[n-1].Outcome == string(harp.StateLost) && h.State != wire.HeldWithdrawn
}
