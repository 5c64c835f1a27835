package store

import (
	"fmt"
	"slices"
	"time"

	"github.com/harpcaller/harp"
)

// Life is where a job is between submission and end. It changes only through
// [Life.Next].
type Life struct {
	State     harp.State `msgpack:"state"`
	Reason    string     `msgpack:"reason,omitempty"` // of the state
	Since     time.Time  `msgpack:"since,omitempty"`  // when it came into its state
	UnknownOf harp.State `msgpack:"unknown_of,omitempty"`
	Held      string     `msgpack:"held,omitempty"` // the Reason that unknown covers

	Started harp.Ran `msgpack:"started,omitempty"` // "" until ended

	Attempt  int       `msgpack:"attempt,omitempty"` // of the last attempt; 0: none yet
	Fence    uint64    `msgpack:"fence,omitempty"`   // raised by each claim; every write about the attempt names it
	Attempts []Attempt `msgpack:"attempts,omitempty"`
	WakeAt   time.Time `msgpack:"wake,omitempty"` // queued: not before, for a reason of the life's own (agent_busy, backoff); unknown: then it is given up
	Busy     int       `msgpack:"busy,omitempty"` // how often in a row the agent said not now

	Retry    harp.RetryPolicy `msgpack:"-"`                  // granted; set with the job and never changed, in its row
	Outcome  *Outcome         `msgpack:"-"`                  // of the last attempt that may have run, while the job has not ended; in a row of its own
	Survivor bool             `msgpack:"survivor,omitempty"` // queued after a lost attempt, which was found alive and must end first

	Cancel   *harp.CancelRequest `msgpack:"cancel,omitempty"`
	Stopping *Stopping           `msgpack:"stopping,omitempty"`
	Left     []int               `msgpack:"left,omitempty"` // processes of the last attempt that outlive KILL

	StartTime time.Time    `msgpack:"start,omitempty"`
	EndTime   time.Time    `msgpack:"end,omitempty"`
	Failure   harp.Failure `msgpack:"failure,omitempty"` // of an ended job that did not succeed
	HasValue  bool         `msgpack:"value,omitempty"`   // the store has a value

	Records uint64 `msgpack:"records,omitempty"` // how many the job has, stored or only counted
	Stored  uint64 `msgpack:"stored,omitempty"`  // bytes of records stored
	Full    bool   `msgpack:"full,omitempty"`    // as many as may be; those that came after are only counted

	Late *Late `msgpack:"late,omitempty"`

	Class   uint32 `msgpack:"class,omitempty"`   // of an ended job that is no member: its RetentionClass
	Counted int64  `msgpack:"counted,omitempty"` // what it counts there, if that counts bytes
}

// Begin is the life of a job that was just submitted.
func Begin(at time.Time, reason string) Life {
	return Life{State: harp.StateQueued, Reason: reason, Since: at}
}

// HoldsSlot reports whether a job in state s holds a slot of its queue and an
// attempt at its host.
func HoldsSlot(s harp.State) bool {
	switch s {
	case harp.StateSent, harp.StateRunning, harp.StateCancelling, harp.StateUnknown:
		return true
	default:
		return false
	}
}

// Next is the life of a job: what it is after an event, and what that asks of
// others. It is pure: no clock, no input or output, and l is not changed; with an
// error it is returned as it is. Errors:
// ErrFenced for an event of another attempt than the last or under an old fence,
// ErrIllegal for one that cannot follow in this state.
func (l Life) Next(e Event) (Life, Effect, error) {
	given, before := l, l.State
	l.Attempts = slices.Clone(l.Attempts)
	if err := l.admits(e); err != nil {
		return given, Effect{}, err
	}
	if before.Ended() {
		return l.late(e)
	}
	next, effect, ok := l.step(e)
	if !ok {
		return given, Effect{}, fmt.Errorf("%w: %s in %s", ErrIllegal, e.Kind, before)
	}
	if next.State != before {
		next.Since = e.At
	}
	effect.Takes = !HoldsSlot(before) && HoldsSlot(next.State)
	effect.Gives = HoldsSlot(before) && !HoldsSlot(next.State)
	effect.Ends = next.State.Ended()
	return next, effect, nil
}

// admits refuses events of an older attempt or owner.
func (l Life) admits(e Event) error {
	switch e.Kind {
	case Claimed:
		if e.Fence <= l.Fence {
			return fmt.Errorf("%w: claim under fence %d, has %d", ErrFenced, e.Fence, l.Fence)
		}
	case CancelReq, Expire: // about the job
	case Lose:
		if e.Attempt != 0 {
			return l.isOf(e)
		}
	default:
		return l.isOf(e)
	}
	return nil
}

// isOf refuses an event that is not about the last attempt, under its fence.
func (l Life) isOf(e Event) error {
	if e.Attempt != l.Attempt || e.Fence != l.Fence {
		return fmt.Errorf("%w: attempt %d fence %d, has %d and %d", ErrFenced, e.Attempt, e.Fence, l.Attempt, l.Fence)
	}
	return nil
}

// step is the table of docs/architecture.md, a function for each state and a line
// for each row.
func (l Life) step(e Event) (Life, Effect, bool) {
	switch l.State {
	case harp.StateQueued:
		return l.queued(e)
	case harp.StateSent:
		return l.underway(e)
	case harp.StateRunning:
		return l.active(e)
	case harp.StateCancelling:
		return l.cancelling(e)
	case harp.StateUnknown:
		return l.unknown(e)
	default:
		return l, Effect{}, false
	}
}

func (l Life) queued(e Event) (Life, Effect, bool) {
	switch e.Kind {
	case Claimed:
		return l.sent(e), Effect{}, !l.Survivor
	case CancelReq:
		return l.cancelRequested(e).ended(e, l.cancelled(e.Reason)), Effect{}, true
	case Expire:
		return l.expired(e), Effect{}, true
	case Lose:
		switch e.Reason {
		case harp.LostHostRemoved:
			return l.ended(e, l.cancelled(e.Reason)), Effect{}, true
		case harp.LostRestored: // it may have run since the backup
			return l.ended(e, lost(e)), Effect{}, true
		}
	default:
	}
	if l.GivenUp() {
		return l.returning(e)
	}
	return l, Effect{}, false
}

// returning is what can still be heard of the last attempt, which was lost, while
// the job waits for another. That one is not sent while the last is known to live.
func (l Life) returning(e Event) (Life, Effect, bool) {
	switch e.Kind {
	case Alive:
		l = l.started(e)
		l.Survivor = true
		return l, Effect{Resume: true, Tell: true}, true
	case End:
		l.Survivor = false
		if s := e.Stopping; s != nil && s.Cause == stopCancel {
			return l.ranFor(e).lostFor(stopCancel), Effect{}, true // until the cancel that makes way for the next attempt
		}
		return l.over(e), Effect{}, true
	case Refused:
		return l.refused(e), Effect{}, l.mayNotHaveStarted()
	case Gone:
		l.Survivor = false
		return l.lostFor(harp.LostAgentRestarted), Effect{}, true
	case Silent, Lose:
		had := l.Survivor
		l.Survivor = false
		switch {
		case e.Kind == Lose && e.Reason == harp.LostJournalGone:
			return l.untraced(e), Effect{}, true
		case e.Kind == Lose && (e.Reason == harp.LostAgentRestarted || e.Reason == harp.LostAgentStopped):
			return l.lostFor(e.Reason), Effect{}, had
		}
		return l, Effect{}, had && (e.Kind == Silent || isLoss(e.Reason))
	default:
		return l, Effect{}, false
	}
}

func (l Life) underway(e Event) (Life, Effect, bool) {
	switch e.Kind {
	case Started:
		return l.started(e).in(harp.StateRunning, ""), Effect{}, true
	case NotNow, Withdrawn:
		return l.notStarted(e), Effect{}, l.mayNotHaveStarted()
	case Refused:
		return l.refused(e), Effect{}, l.mayNotHaveStarted()
	default:
		return l.active(e)
	}
}

func (l Life) cancelling(e Event) (Life, Effect, bool) {
	switch e.Kind {
	case Started:
		return l.started(e), Effect{}, true
	case NotNow, Withdrawn:
		o := l.cancelled("")
		return l.attemptOver(e, o.State, "").ended(e, o), Effect{}, l.mayNotHaveStarted()
	case Refused:
		return l.refused(e), Effect{}, l.mayNotHaveStarted()
	default:
		return l.active(e)
	}
}

// active is what sent, running and cancelling have in common.
func (l Life) active(e Event) (Life, Effect, bool) {
	switch e.Kind {
	case CancelReq:
		news := l.Cancel == nil || e.Now && !l.Cancel.Now
		return l.cancelRequested(e).in(harp.StateCancelling, stopCancel), Effect{Tell: news}, true
	case Stop:
		had := len(l.Left)
		if l.Left = slices.Clone(e.Left); len(l.Left) > 0 {
			l = l.started(e)
		}
		if e.Stopping == nil {
			return l, Effect{}, had+len(l.Left) > 0
		}
		l.Stopping = first(l.Stopping, e.Stopping)
		return l.in(harp.StateCancelling, l.Stopping.Cause), Effect{}, true
	case End:
		return l.over(e), Effect{}, true
	case Alive:
		return l.alive(e), Effect{Resume: true, Tell: l.Cancel != nil}, true
	case Silent:
		l.UnknownOf, l.Held, l.WakeAt = l.State, l.Reason, e.Wake
		return l.in(harp.StateUnknown, ""), Effect{}, true
	case Lose:
		next := l.concluded(e, lost(e))
		// Its agent is there and may run it still: that must be over before another attempt.
		next.Survivor = next.State == harp.StateQueued && isGivenUp(e.Reason)
		return next, Effect{}, isLoss(e.Reason) || isGivenUp(e.Reason)
	default:
		return l, Effect{}, false
	}
}

// unknown is left by reconciliation, which says what is so, or by giving up. The
// agent can be asked again only after it; until then a cancel is only noted.
func (l Life) unknown(e Event) (Life, Effect, bool) {
	covered := l
	covered.State, covered.Reason, covered.UnknownOf, covered.Held = l.UnknownOf, l.Held, "", ""
	covered.WakeAt = time.Time{}
	switch e.Kind {
	case CancelReq:
		return l.cancelRequested(e), Effect{}, true
	case Silent: // again: the host was heard meanwhile, and has not told all
		l.WakeAt = e.Wake
		return l, Effect{}, true
	case Withdrawn, Refused:
		if covered.State == harp.StateSent && covered.Cancel != nil {
			covered.State = harp.StateCancelling
		}
		return covered.step(e)
	case Lose:
		return covered.concluded(e, lost(e)), Effect{}, isLoss(e.Reason) || isGivenUp(e.Reason)
	case Alive, End:
		return covered.active(e)
	default:
		return l, Effect{}, false
	}
}

// isGivenUp reports whether an attempt that is lost for this reason is so because nobody waits for it any
// more: it may be alive.
func isGivenUp(reason string) bool { return reason == harp.LostTooLong || reason == harp.LostForced }

// isLoss reports whether an attempt can be lost for this reason whether its host is
// silent or not.
func isLoss(reason string) bool {
	switch reason {
	case harp.LostAgentRestarted, harp.LostAgentStopped, harp.LostJournalGone, harp.LostRestored, harp.LostHostRemoved:
		return true
	default:
		return false
	}
}

// concluded is the end of an attempt: of the job too, unless the policy has another
// attempt follow.
func (l Life) concluded(e Event, o Outcome) Life {
	l = l.attemptOver(e, o.State, o.Reason)
	if !l.mayRetry(o) {
		return l.ended(e, o)
	}
	kept := o // so that only here it gets into the heap
	l.State, l.Reason = harp.StateQueued, harp.ReasonBackoff
	l.Outcome, l.Stopping, l.Left, l.Busy = &kept, nil, nil, 0
	l.WakeAt = e.At.Add(retryPause(l.Retry, l.Attempt, e.Jitter))
	return l
}

// mayRetry reports whether another attempt may follow the last one. None does where
// somebody wants the job to be over: by a cancel, or by giving up the job, its host
// or the store.
func (l Life) mayRetry(o Outcome) bool {
	if o.State == harp.StateLost {
		switch o.Reason {
		case harp.LostForced, harp.LostHostRemoved, harp.LostRestored:
			return false
		}
	}
	return l.Cancel == nil && allowsRetry(l.Retry, o.State, l.Attempt)
}

// ended is the end of the job.
func (l Life) ended(e Event, o Outcome) Life {
	l.State, l.Reason, l.Started, l.HasValue = o.State, o.Reason, o.Started, o.HasValue
	if !o.Failure.IsZero() {
		l.Failure = o.Failure
	}
	l.EndTime, l.Since = e.At, e.At
	l.WakeAt = time.Time{}
	l.Outcome, l.Survivor, l.Left = nil, false, nil
	return l
}

func (l Life) in(s harp.State, reason string) Life {
	if l.State != s {
		l.State, l.Reason = s, reason
	}
	return l
}

// late notes what an agent says of an attempt that was given up, its job having
// ended.
func (l Life) late(e Event) (Life, Effect, error) {
	var o Outcome
	switch {
	case l.Late != nil || !l.GivenUp():
	case e.Kind == End:
		o = outcomeOf(e)
	case e.Kind == Refused && l.mayNotHaveStarted():
		o = l.refusal(e)
	}
	if o.State == "" {
		return l, Effect{}, fmt.Errorf("%w: %s in %s", ErrIllegal, e.Kind, l.State)
	}
	l.Late = &Late{State: o.State, Failure: o.Failure, HasValue: o.HasValue, At: e.At}
	return l, Effect{Late: true}, nil
}
