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
	State     harp.State
	Reason    string    // of the state
	Since     time.Time // when it came into its state
	UnknownOf harp.State
	Held      string // the Reason that unknown covers

	Started harp.Ran // "" until ended

	Attempt  int    // of the last attempt; 0: none yet
	Fence    uint64 // raised by each claim; every write about the attempt names it
	Attempts []Attempt
	WakeAt   time.Time // queued: not before, for a reason of the life's own (agent_busy, backoff)
	Busy     int       // how often in a row the agent said not now

	Cancel   *harp.CancelRequest
	Stopping *Stopping

	StartTime time.Time
	EndTime   time.Time
	Failure   harp.Failure // of an ended job that did not succeed
	HasValue  bool         // a value lies beside the row

	Records uint64 // how many the job has, stored or only counted
	Stored  uint64 // bytes of records stored
	Full    bool   // as many as may be; those that came after are only counted

	Late *Late
}

// Attempt is one try.
type Attempt struct {
	Number  int
	Base    uint64 // number of its first record
	Next    uint64 // of its own numbers: how many it has
	Fence   uint64
	Sent    time.Time
	Started time.Time
	Ended   time.Time
	Outcome string // a state, or "not_now"
}

// Stopping says why a procedure was asked to stop by its agent.
type Stopping struct {
	Cause string // cancel, timeout, max_exec_time
	Since time.Time
	Limit time.Duration
}

// Late is what an agent said about a job that had ended as lost.
type Late struct {
	State    harp.State
	Failure  harp.Failure
	HasValue bool // a value lies beside the row
	At       time.Time
}

// Kind names what can happen to a job.
type Kind string

// The events. Those about an attempt name it and its fence.
const (
	Claimed   Kind = "claimed"   // may start: its slot is taken, Fence is the new one
	Started   Kind = "started"   // the procedure has begun, At
	NotNow    Kind = "not_now"   // proven not started; Reason start_before: expired; else ask again at Wake
	Refused   Kind = "refused"   // final, not started: Failure
	CancelReq Kind = "cancel"    // By asked for it, At
	Stop      Kind = "stopping"  // the agent stops it: Stopping
	End       Kind = "end"       // the procedure is over: Failure or a value; Stopping if one was journalled first
	Expire    Kind = "expire"    // not started in time; Reason offline if the host's absence was to blame
	Silent    Kind = "silent"    // nothing heard of the host
	Withdrawn Kind = "withdrawn" // reconciliation: proven not started
	Alive     Kind = "alive"     // reconciliation: it runs; Stopping if a limit or cancel was journalled
	Lose      Kind = "lose"      // what happened cannot be known: Reason
)

// Event is one thing that happened to a job. Which fields count depends on Kind.
type Event struct {
	Kind     Kind
	At       time.Time // the dispatcher's clock
	Attempt  int
	Fence    uint64
	Reason   string
	Wake     time.Time
	By       harp.Principal
	Stopping *Stopping
	Failure  harp.Failure // zero: succeeded
	Value    harp.Value   // End; the store puts it beside the row
	RanFor   time.Duration
}

// Effect is what a change asks of others.
type Effect struct {
	Takes  bool // a slot of the queue
	Gives  bool // the slot back
	Ends   bool // the job has ended
	Tell   bool // the agent must be told to cancel
	Late   bool // the job had ended; only Late was noted
	Resume bool // the agent is to be asked for the rest
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
	case Started, NotNow, Refused, Stop, End, Silent, Withdrawn, Alive:
		if e.Attempt != l.Attempt || e.Fence != l.Fence {
			return fmt.Errorf("%w: attempt %d fence %d, has %d and %d", ErrFenced, e.Attempt, e.Fence, l.Attempt, l.Fence)
		}
	case CancelReq, Expire, Lose: // about the job
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
		return l.sent(e), Effect{}, true
	case CancelReq:
		return l.cancelRequested(e).ended(e, harp.StateCancelled, "", harp.DidNotRun, cancelled(harp.DidNotRun)), Effect{}, true
	case Expire:
		return l.expired(e), Effect{}, true
	case Lose:
		switch e.Reason {
		case harp.LostHostRemoved:
			return l.ended(e, harp.StateCancelled, e.Reason, harp.DidNotRun, cancelled(harp.DidNotRun)), Effect{}, true
		case harp.LostRestored: // it may have run since the backup
			return l.lost(e), Effect{}, true
		}
	default:
	}
	return l, Effect{}, false
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
		return l.attemptOver(e, string(harp.StateCancelled)).ended(e, harp.StateCancelled, "", harp.DidNotRun, cancelled(harp.DidNotRun)), Effect{}, l.mayNotHaveStarted()
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
		first := l.Cancel == nil
		return l.cancelRequested(e).in(harp.StateCancelling, "cancel"), Effect{Tell: first}, true
	case Stop:
		if e.Stopping == nil {
			return l, Effect{}, false
		}
		l.Stopping = first(l.Stopping, e.Stopping)
		return l.in(harp.StateCancelling, l.Stopping.Cause), Effect{}, true
	case End:
		return l.over(e), Effect{}, true
	case Alive:
		return l.alive(e), Effect{Resume: true, Tell: l.Cancel != nil}, true
	case Silent:
		l.UnknownOf, l.Held = l.State, l.Reason
		return l.in(harp.StateUnknown, ""), Effect{}, true
	case Lose:
		return l.lost(e), Effect{}, true
	default:
		return l, Effect{}, false
	}
}

// unknown is left by reconciliation, which says what is so, or by giving up. The
// agent can be asked again only after it; until then a cancel is only noted.
func (l Life) unknown(e Event) (Life, Effect, bool) {
	covered := l
	covered.State, covered.Reason, covered.UnknownOf, covered.Held = l.UnknownOf, l.Held, "", ""
	switch e.Kind {
	case CancelReq:
		return l.cancelRequested(e), Effect{}, true
	case Withdrawn, Refused:
		if covered.State == harp.StateSent && covered.Cancel != nil {
			covered.State = harp.StateCancelling
		}
		return covered.step(e)
	case Alive, End, Lose:
		return covered.active(e)
	default:
		return l, Effect{}, false
	}
}

func (l Life) in(s harp.State, reason string) Life {
	if l.State != s {
		l.State, l.Reason = s, reason
	}
	return l
}

func (l Life) sent(e Event) Life {
	// An attempt that proved not started keeps its number when it is sent again.
	if n := len(l.Attempts); n == 0 || l.Attempts[n-1].Outcome != string(NotNow) {
		l.Attempt++
		l.Attempts = append(l.Attempts, Attempt{Number: l.Attempt, Base: l.Records})
	}
	last := &l.Attempts[len(l.Attempts)-1]
	last.Outcome, last.Fence, last.Sent, last.Ended = "", e.Fence, e.At, time.Time{}
	l.Fence, l.WakeAt = e.Fence, time.Time{}
	return l.in(harp.StateSent, "")
}

func (l Life) started(e Event) Life {
	last := &l.Attempts[len(l.Attempts)-1]
	if last.Started.IsZero() {
		last.Started = e.At
	}
	if l.StartTime.IsZero() {
		l.StartTime = e.At
	}
	l.Busy = 0
	return l
}

// notStarted sends a job back to wait, or ends it if nothing is left to wait for.
func (l Life) notStarted(e Event) Life {
	if e.Reason == "start_before" {
		return l.attemptOver(e, string(NotNow)).expired(e)
	}
	l = l.attemptOver(e, string(NotNow))
	l.WakeAt = e.Wake
	if e.Kind == Withdrawn {
		return l.in(harp.StateQueued, e.Reason)
	}
	l.Busy++
	return l.in(harp.StateQueued, harp.ReasonAgentBusy)
}

// mayNotHaveStarted reports whether the last attempt has given no sign of having
// started: whoever says that it did not must be wrong if it has.
func (l Life) mayNotHaveStarted() bool {
	last := l.Attempts[len(l.Attempts)-1]
	return last.Started.IsZero() && last.Next == 0
}

func (l Life) refused(e Event) Life {
	f := e.Failure
	f.Ran = harp.DidNotRun
	return l.attemptOver(e, string(harp.StateRejected)).ended(e, harp.StateRejected, f.Code, harp.DidNotRun, f)
}

func (l Life) cancelRequested(e Event) Life {
	if l.Cancel == nil {
		l.Cancel = &harp.CancelRequest{By: e.By, Time: e.At}
	}
	return l
}

// over is the end of a procedure that ran: what was journalled first decides, a
// limit, a cancel or its own end.
func (l Life) over(e Event) Life {
	if l.Attempts[len(l.Attempts)-1].Started.IsZero() {
		start := e
		start.At = e.At.Add(-e.RanFor)
		l = l.started(start)
	}
	state, failure := harp.StateSucceeded, e.Failure
	reason := ""
	switch stop := e.Stopping; {
	case stop != nil && stop.Cause == "cancel":
		state, failure = harp.StateCancelled, cancelled(harp.DidRun)
	case stop != nil:
		state, reason, failure = harp.StateTimedOut, stop.Cause, timedOut(stop)
	case failure.Code != "":
		state = harp.StateFailed
	}
	l.Stopping = first(l.Stopping, e.Stopping)
	l.HasValue = len(e.Value) > 0
	return l.attemptOver(e, string(state)).ended(e, state, reason, harp.DidRun, failure)
}

func (l Life) alive(e Event) Life {
	l = l.started(e)
	l.Stopping = first(l.Stopping, e.Stopping)
	switch {
	case l.Stopping != nil:
		return l.in(harp.StateCancelling, l.Stopping.Cause)
	case l.Cancel != nil:
		return l.in(harp.StateCancelling, "cancel")
	}
	return l.in(harp.StateRunning, "")
}

func (l Life) lost(e Event) Life {
	f := harp.NewFailure("lost", "contact was lost and what happened cannot be known")
	f.Type = e.Reason
	return l.attemptOver(e, string(harp.StateLost)).ended(e, harp.StateLost, e.Reason, harp.MayHaveRun, f)
}

func (l Life) expired(e Event) Life {
	f := harp.NewFailure("expired", "not started in time")
	if e.Reason == harp.ReasonOffline {
		f = harp.NewFailure("expired_offline", "the host was away")
	}
	f.Type = e.Reason
	return l.ended(e, harp.StateExpired, e.Reason, harp.DidNotRun, f)
}

func (l Life) attemptOver(e Event, outcome string) Life {
	if n := len(l.Attempts); n > 0 {
		l.Attempts[n-1].Ended, l.Attempts[n-1].Outcome = e.At, outcome
	}
	return l
}

func (l Life) ended(e Event, s harp.State, reason string, ran harp.Ran, f harp.Failure) Life {
	l.State, l.Reason, l.Started, l.Failure = s, reason, ran, f
	l.EndTime, l.Since = e.At, e.At
	l.UnknownOf, l.Held, l.WakeAt = "", "", time.Time{}
	return l
}

// late notes what an agent says about a job that was given up.
func (l Life) late(e Event) (Life, Effect, error) {
	if l.State != harp.StateLost || e.Kind != End || l.Late != nil || len(l.Attempts) == 0 {
		return l, Effect{}, fmt.Errorf("%w: %s in %s", ErrIllegal, e.Kind, l.State)
	}
	said := l
	said.Attempts = slices.Clone(l.Attempts)
	said = said.over(e)
	l.Late = &Late{State: said.State, Failure: said.Failure, HasValue: said.HasValue, At: e.At}
	return l, Effect{Late: true}, nil
}

func cancelled(ran harp.Ran) harp.Failure {
	f := harp.NewFailure("cancelled", "")
	f.Ran = ran
	return f
}

func timedOut(s *Stopping) harp.Failure {
	f := harp.NewFailure("timeout", "")
	f.Limit, f.LimitOf = s.Limit, s.Cause
	return f
}

// first is the cause that stays.
func first(had, got *Stopping) *Stopping {
	if had != nil {
		return had
	}
	return got
}
