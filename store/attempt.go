package store

import (
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/failures"
)

// stopCancel is the cause of a stop that somebody asked for.
const stopCancel = "cancel"

// GivenUp reports whether the last attempt was lost: its agent may still speak of
// it, be it that the job has ended or that it waits for another attempt.
func (l Life) GivenUp() bool {
	n := len(l.Attempts)
	return n > 0 && l.Attempts[n-1].Outcome == string(harp.StateLost)
}

func (l Life) sent(e Event) Life {
	// An attempt that proved not started keeps its number when it is sent again.
	if n := len(l.Attempts); n == 0 || l.Attempts[n-1].Outcome != string(NotNow) {
		l.Attempt++
		l.Attempts = append(l.Attempts, Attempt{Number: l.Attempt, Base: l.Records})
	}
	last := &l.Attempts[len(l.Attempts)-1]
	last.Outcome, last.Reason, last.Fence, last.Sent, last.Ended = "", "", e.Fence, e.At, time.Time{}
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
	l = l.attemptOver(e, harp.State(NotNow), e.Reason)
	if e.Reason == "start_before" {
		return l.expired(e)
	}
	l.WakeAt = e.Wake
	if e.Kind == Withdrawn || e.Reason == harp.ReasonWindow {
		return l.in(harp.StateQueued, e.Reason)
	}
	l.Busy++
	return l.in(harp.StateQueued, harp.ReasonAgentBusy)
}

// mayNotHaveStarted reports whether the last attempt has given no sign of having
// started: whoever says that it did not must be wrong if it has.
func (l Life) mayNotHaveStarted() bool {
	last := l.Attempts[len(l.Attempts)-1]
	return last.Started.IsZero() && last.Next == 0 && l.Stopping == nil
}

func (l Life) refused(e Event) Life {
	o := l.refusal(e)
	return l.attemptOver(e, o.State, o.Reason).ended(e, o)
}

// refusal is how a job ends whose last attempt its agent refused. Those before may
// have run.
func (l Life) refusal(e Event) Outcome {
	o := Outcome{State: harp.StateRejected, Reason: e.Failure.Code, Started: harp.DidNotRun, Failure: e.Failure}
	for _, a := range l.Attempts[:len(l.Attempts)-1] {
		switch {
		case !a.Started.IsZero():
			o.Started = harp.DidRun
		case o.Started == harp.DidNotRun:
			o.Started = harp.MayHaveRun
		}
	}
	o.Failure.Ran = o.Started
	return o
}

// ran says whether the last attempt that has an outcome ran.
func (l Life) ran() harp.Ran {
	if l.Outcome != nil {
		return l.Outcome.Started
	}
	return harp.DidNotRun
}

func (l Life) cancelRequested(e Event) Life {
	switch {
	case l.Cancel == nil:
		l.Cancel = &harp.CancelRequest{By: e.By, Time: e.At, Now: e.Now}
	case e.Now:
		first := *l.Cancel
		first.Now = true
		l.Cancel = &first
	}
	return l
}

// cancelled is how a job ends that somebody called off, its last attempt not
// having started. What an earlier one returned is kept.
func (l Life) cancelled(reason string) Outcome {
	return Outcome{
		State: harp.StateCancelled, Reason: reason, Started: l.ran(), Failure: cancelled(l.ran()),
		HasValue: l.Outcome != nil && l.Outcome.HasValue,
	}
}

// ranFor notes a start that nobody has told of, counted back from the end.
func (l Life) ranFor(e Event) Life {
	if l.Attempts[len(l.Attempts)-1].Started.IsZero() {
		e.At = e.At.Add(-e.RanFor)
		return l.started(e)
	}
	return l
}

// over is the end of a procedure that ran.
func (l Life) over(e Event) Life {
	l = l.ranFor(e)
	l.Stopping = first(l.Stopping, e.Stopping)
	return l.concluded(e, outcomeOf(e))
}

// outcomeOf is how a procedure ended: what was journalled first decides, a limit, a
// cancel or its own end. What it said when it was stopped is kept in the failure.
func outcomeOf(e Event) Outcome {
	o := Outcome{State: harp.StateSucceeded, Started: harp.DidRun, Failure: e.Failure, HasValue: len(e.Value) > 0}
	switch stop := e.Stopping; {
	case stop != nil && stop.Cause == stopCancel:
		o.State, o.Failure = harp.StateCancelled, saying(cancelled(harp.DidRun), e.Failure)
	case stop != nil:
		o.State, o.Reason, o.Failure = harp.StateTimedOut, stop.Cause, saying(timedOut(stop), e.Failure)
	case e.Failure.Code != "":
		o.State = harp.StateFailed
	case e.Dropped:
		o.Reason, o.Failure = harp.ReasonValueDropped, valueDropped()
	}
	return o
}

// valueDropped is the failure of a job that succeeded and whose value is lost.
func valueDropped() harp.Failure {
	f := failures.New("no_space", "the procedure succeeded, but its value was dropped: the host had no room for it")
	f.Ran = harp.DidRun
	return f
}

func (l Life) alive(e Event) Life {
	l = l.started(e)
	l.Left = nil // its agent names them again
	l.Stopping = first(l.Stopping, e.Stopping)
	switch {
	case l.Stopping != nil:
		return l.in(harp.StateCancelling, l.Stopping.Cause)
	case l.Cancel != nil:
		return l.in(harp.StateCancelling, stopCancel)
	}
	return l.in(harp.StateRunning, "")
}

// lost is how an attempt ends of which nobody can say what became of it.
func lost(e Event) Outcome {
	f := failures.New("lost", "contact was lost and what happened cannot be known")
	if f.Type = e.Reason; e.Text != "" {
		f.Message = e.Text
	}
	return Outcome{State: harp.StateLost, Reason: e.Reason, Started: harp.MayHaveRun, Failure: f}
}

// lostFor notes what was heard of an attempt that was lost before: that it is over.
func (l Life) lostFor(reason string) Life {
	l.Attempts[len(l.Attempts)-1].Reason = reason
	return l
}

// untraced notes of an attempt that was lost before that the journal which could have
// told of it is gone: it may run on, beside the next.
func (l Life) untraced(e Event) Life {
	o := lost(e)
	l.Attempts[len(l.Attempts)-1].Reason, l.Outcome = o.Reason, &o
	return l
}

// expired ends a job that has waited long enough: as its last attempt ended, if
// there was one that may have run.
func (l Life) expired(e Event) Life {
	if l.Outcome != nil {
		return l.ended(e, *l.Outcome)
	}
	f := failures.New("expired", "not started in time")
	if e.Reason == harp.ReasonOffline {
		f = failures.New("expired_offline", "the host was away")
	}
	f.Type = e.Reason
	return l.ended(e, Outcome{State: harp.StateExpired, Reason: e.Reason, Started: harp.DidNotRun, Failure: f})
}

func (l Life) attemptOver(e Event, outcome harp.State, reason string) Life {
	last := &l.Attempts[len(l.Attempts)-1]
	last.Ended, last.Outcome, last.Reason = e.At, string(outcome), reason
	return l
}

func cancelled(ran harp.Ran) harp.Failure {
	f := failures.New("cancelled", "")
	f.Ran = ran
	return f
}

func timedOut(s *Stopping) harp.Failure {
	f := failures.New("timeout", "")
	f.Limit, f.LimitOf = s.Limit, s.Cause
	return f
}

// saying adds to a failure what the procedure itself said last.
func saying(f, last harp.Failure) harp.Failure {
	f.Message, f.Data, f.ExitCode = last.Message, last.Data, last.ExitCode
	return f
}

// first is the cause that stays.
func first(had, got *Stopping) *Stopping {
	if had != nil {
		return had
	}
	return got
}
