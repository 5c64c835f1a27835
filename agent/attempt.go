package agent

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/wire"
)

// attempt is one execution of a procedure: accepted, started, perhaps asked to
// stop, ended. It knows nothing of sessions and exchanges; what is to be told of it asks
// with a [report]. The moments that decide, accept, start, stop and finish, are
// each one method, which is where they are journalled. One that has ended, is
// journalled and that nobody is told of is left to the journal, from where it is
// recovered when somebody asks.
type attempt struct {
	agent  *Agent
	stay   *stay // waits for its function; nil: it was recovered, or goes on without the agent
	key    key
	fence  int64
	info   *CallInfo
	limits Limits
	most   int // attempts of its procedure at a time; 0: any
	task   task
	watch  watch

	ctx    context.Context // the procedure's
	cancel context.CancelCauseFunc

	begun    moment // it has started, or was denied
	returned moment // the function has returned
	left     moment // it is no longer on the roster

	owner *session // of a direct caller; guarded by the roster's mutex

	mu        sync.Mutex // guards what follows; never held while blocked
	store     string     // of the dispatcher that it was accepted from, or that asked for it since
	no        denial     // why it was not started
	started   time.Time
	stopping  *wire.Stopping
	stopped   bool    // it is journalled, or that takes too long, and the procedure was asked to stop
	survivors []int64 // processes of it that outlive KILL
	ended     bool
	gone      bool      // it ended with the process it ran in, nobody knows how
	end       *wire.End // nil: not ended, or the journal has it
	dropped   bool      // the journal has it without its value
	outbox    outbox
	missed    int64 // bytes of records that were dropped since the last one
	lacks     *lacks
	spool     spool
	room      chan struct{} // closed when there may be room in the outbox; nil: nobody waits
	nobody    bool          // asks for it any more: records are dropped, and so is the end
	deaf      bool          // to what its command still prints: that is dropped
	awaited   bool          // its first report comes now
	report    *report       // tells a peer of it; nil: none at present
	here      *attendance   // it runs where its call is answered; nil: elsewhere
}

// accept makes the attempt of a call that was found good.
func accept(s *session, k key, c wire.Call, info *CallInfo, p *procedure, work task) *attempt {
	at := newAttempt(s.agent, k)
	at.stay, at.fence, at.store, at.info, at.most, at.task = s.stay, c.Fence, s.store, info, p.most, work
	at.awaited = true
	at.outbox.window = window(c.Window)
	at.watch = watch{timeout: info.Timeout, maxExec: info.MaxExecTime, exceeded: at.stop}
	at.ctx, at.cancel = context.WithCancelCause(withAttempt(s.base, at))
	if r := work.cmd; r != nil {
		at.watch = watch{} // its supervisor has the clocks
		if r.survives = at.spool.on && s.agent.supervises(); r.survives {
			at.stay, r.here = nil, s.agent.here
		}
	}
	return at
}

func newAttempt(a *Agent, k key) *attempt {
	at := &attempt{
		agent:  a,
		key:    k,
		limits: a.cfg.Limits,
		outbox: outbox{window: wire.MinWindow},
	}
	if k.origin == "" {
		at.spool = newSpool(a.keeper, k)
	}
	return at
}

// window is how many bytes of records the agent holds for who asks for so many.
func window(asked int64) int {
	if asked <= 0 {
		return wire.MinWindow
	}
	return int(min(asked, wire.Window))
}

// begin notes that it starts now: the journal may have taken a while.
func (at *attempt) begin() {
	at.mu.Lock()
	at.started = time.Now()
	at.mu.Unlock()
}

// start runs the procedure's function in a goroutine that its stay waits for.
func (at *attempt) start() {
	at.begin()
	at.watch.begin()
	if at.stay == nil {
		at.agent.commands.Go(at.run)
	} else {
		at.stay.work.Go(at.run)
	}
	at.begun.comes()
}

// deny is for an attempt that is not started after all.
func (at *attempt) deny(no denial) {
	at.mu.Lock()
	at.no, at.nobody = no, true
	at.mu.Unlock()
	at.cancel(harp.ErrClosed)
	at.begun.comes()
	at.returned.comes()
	at.left.comes()
	// One for which there was no space leaves none behind: to say READY for it would
	// bring the same call back at once.
	at.agent.roster.leave(at, no.reason != wire.NotNowNoSpace)
}

// run runs the function. It may leave by runtime.Goexit, which nothing but a
// deferred call survives.
func (at *attempt) run() {
	if n := at.task.keepsElsewhere(); n > 0 {
		defer at.agent.budget.give(n)
	}
	out := outcome{failure: &leftByGoexit}
	defer func() { at.finish(out) }()
	out = at.call()
}

// leftByGoexit is the failure of a function that does not return.
var leftByGoexit = remoteFailure(faultPanic, "the procedure left by runtime.Goexit")

// outcome is how a function returned: a value, or a failure. A command may also go on
// without the agent, or have left nothing to tell.
type outcome struct {
	value   harp.Value
	failure *harp.Failure
	letGo   bool
	gone    bool
}

// call calls the function. What it returned is looked at here as well, since that
// calls methods of the procedure's own types.
func (at *attempt) call() (out outcome) {
	defer func() {
		if p := recover(); p != nil {
			at.log().Error("procedure panicked", "procedure", at.info.Procedure, "panic", cut(fmt.Sprint(p), maxFaultType), "stack", string(debug.Stack()))
			out = failed(fit(remoteFailure(faultPanic, fmt.Sprint(p))))
		}
	}()
	v, err := at.task.run(at)
	switch {
	case err == nil:
		return at.result(v)
	case errors.Is(err, errLetGo):
		return outcome{letGo: true}
	case errors.Is(err, errProcessGone):
		return outcome{gone: true}
	}
	return at.failed(err)
}

func failed(f harp.Failure) outcome { return outcome{failure: &f} }

// failed is what the function's error means; an agent that stops says so. One that
// says no more than why the context has ended is none: the limit or cancel decides.
func (at *attempt) failed(err error) outcome {
	cause := context.Cause(at.ctx)
	switch stopped := errors.Is(err, context.Canceled) || cause != nil && errors.Is(err, cause); {
	case !stopped:
	case errors.Is(cause, harp.ErrClosed):
		return failed(remoteFailure(faultAgentStop, "the agent stopped while the procedure ran"))
	case at.isStopped():
		return outcome{}
	}
	return failed(failureOf(err))
}

// isStopped reports whether a limit or cancel has ended the procedure's context.
func (at *attempt) isStopped() bool {
	at.mu.Lock()
	defer at.mu.Unlock()
	return at.stopped
}

// result encodes what the function returned.
func (at *attempt) result(v any) outcome {
	value, err := harp.NewValue(v)
	switch {
	case err != nil:
		return failed(fit(remoteFailure(faultBadResult, err.Error())))
	case len(value) > at.limits.MaxResult:
		message := fmt.Sprintf("the result is %d bytes, at most %d", len(value), at.limits.MaxResult)
		return failed(remoteFailure(faultTooLarge, message))
	}
	return outcome{value: value}
}

// stopTime is how long a limit or cancel waits to be journalled: the disk may stand still.
const stopTime = time.Second

// stop asks the procedure to stop because of a limit or a cancel, once that is
// journalled, or cannot be for a while. Whichever of stop and finish comes first decides how the attempt
// ends; of several stops the first.
func (at *attempt) stop(cause string, limit time.Duration) {
	at.mu.Lock()
	defer at.mu.Unlock()
	if at.ended || at.stopping != nil {
		return
	}
	at.stopping = &wire.Stopping{Cause: cause, Since: time.Now().UnixNano(), Limit: int64(limit)}
	if !at.spool.on || at.nobody {
		at.applyStopLocked()
		return
	}
	at.spool.failed = nil
	at.handLocked()
	if !at.stopped {
		time.AfterFunc(stopTime, at.applyStop)
	}
}

// cancelled stops the procedure, a command without a grace if that is to be now. Why it is stopped
// is noted first: without a grace it may have ended at once.
func (at *attempt) cancelled(m wire.Cancel) {
	at.stop(wire.CauseCancel, 0)
	if r := at.task.cmd; r != nil && m.Now {
		r.hasten()
	}
}

// applyStop ends the procedure's context as stop wants it.
func (at *attempt) applyStop() {
	at.mu.Lock()
	defer at.mu.Unlock()
	at.applyStopLocked()
}

// applyStopLocked is applyStop.
func (at *attempt) applyStopLocked() {
	if at.stopping == nil || at.stopped {
		return
	}
	at.stopped = true
	if at.cancel != nil {
		at.cancel(causeOf(at.stopping.Cause, time.Duration(at.stopping.Limit)))
	}
	at.tellLocked()
}

// outlives notes the processes of the attempt that outlive KILL, which keep it from ending.
func (at *attempt) outlives(pids []int) {
	pids = pids[:min(len(pids), wire.MaxLeft)]
	if len(pids) > 0 {
		at.log().Error("processes of a command outlive KILL, which is sent again and again: its attempt ends when they are gone", "pids", pids)
	}
	at.mu.Lock()
	defer at.mu.Unlock()
	at.survivors = make([]int64, len(pids))
	for i, pid := range pids {
		at.survivors[i] = int64(pid)
	}
	at.tellLocked()
}

// hasSurvivors reports whether there are any at present.
func (at *attempt) hasSurvivors() bool {
	at.mu.Lock()
	defer at.mu.Unlock()
	return len(at.survivors) > 0
}

// causeOf is what context.Cause returns to the procedure.
func causeOf(cause string, limit time.Duration) error {
	switch cause {
	case wire.CauseTimeout:
		return &harp.TimeoutError{Limit: limit, Of: harp.LimitTimeout}
	case wire.CauseMaxExecTime:
		return &harp.TimeoutError{Limit: limit, Of: harp.LimitMaxExecTime}
	}
	return harp.ErrCancelled
}

// interrupt ends the procedure's context for a reason that is neither a limit nor a
// cancel: the attempt ends as the procedure says.
func (at *attempt) interrupt(reason error) {
	if r := at.task.cmd; r != nil && errors.Is(reason, harp.ErrClosed) {
		r.close()
	}
	at.cancel(reason)
}

// finish ends the attempt with what the function returned. The end is journalled,
// and told without waiting for that.
func (at *attempt) finish(out outcome) {
	at.watch.end()
	if out.letGo {
		at.agent.roster.letGo()
		at.returned.comes()
		at.leave()
		at.task.cmd.part(at)
		return
	}
	at.mu.Lock()
	at.sayMissedLocked()
	if at.gone = out.gone; !at.gone {
		at.end = at.endLocked(out)
	}
	at.ended = true
	at.spool.failed = nil
	at.handLocked()
	at.cancel(harp.ErrClosed)
	at.openLocked()
	at.tellLocked()
	nobody := at.nobody
	at.mu.Unlock()
	at.returned.comes()
	if at.most > 0 {
		at.agent.roster.vacate()
	}
	if nobody {
		at.settle()
	}
	if r := at.task.cmd; r != nil {
		r.forget(at)
	}
}

// endLocked is END of what the function returned.
func (at *attempt) endLocked(out outcome) *wire.End {
	end := &wire.End{
		Value:   out.value,
		Stopped: at.stopping,
		Records: at.outbox.next(),
		RanFor:  int64(at.ranFor()),
		Started: &wire.Started{Time: at.started.UnixNano()},
	}
	if out.failure != nil {
		end.Failure = out.failure.Err()
	}
	return end
}

// ranSoFar is how long it has run.
func (at *attempt) ranSoFar() time.Duration {
	at.mu.Lock()
	defer at.mu.Unlock()
	return time.Since(at.started)
}

// ranFor is how long it ran: as its supervisor says, or up to now.
func (at *attempt) ranFor() time.Duration {
	if r := at.task.cmd; r != nil && r.ranFor > 0 {
		return r.ranFor
	}
	return time.Since(at.started)
}

// abandon is for an attempt that nobody will ask for any more. It runs on, unless
// it is interrupted; its records make room, and those to come are dropped.
func (at *attempt) abandon() {
	at.mu.Lock()
	at.abandonLocked()
	ended := at.ended
	at.mu.Unlock()
	if ended {
		at.settle()
	}
}

func (at *attempt) abandonLocked() {
	at.nobody = true
	at.outbox.ack(at.outbox.next())
	at.ackSpoolLocked()
	at.applyStopLocked()
	at.openLocked()
}

// settle forgets the attempt: its END was taken, or nobody asks for it.
func (at *attempt) settle() {
	at.mu.Lock()
	at.nobody = true
	at.forgetSpoolLocked()
	at.mu.Unlock()
	at.leave()
}

// leave takes the attempt off the roster, if it is there.
func (at *attempt) leave() {
	at.mu.Lock()
	at.left.comes()
	at.mu.Unlock()
	at.agent.roster.leave(at, true)
}

// hasLeft reports whether the attempt is no longer on the roster.
func (at *attempt) hasLeft() bool { return at.left.isPast() }

// hasReturned is hasEnded for who must not wait for the attempt's mutex.
func (at *attempt) hasReturned() bool { return at.returned.isPast() }

// hasEnded reports whether nothing of the attempt runs any more.
func (at *attempt) hasEnded() bool {
	at.mu.Lock()
	defer at.mu.Unlock()
	return at.ended
}

// releasableLocked reports whether the journal has all that somebody may ask for,
// and nobody asks at present.
func (at *attempt) releasableLocked() bool {
	return at.ended && at.spool.on && !at.nobody && at.report == nil && !at.awaited &&
		(at.spool.synced.end || at.gone) && max(at.spool.synced.next, at.outbox.first) >= at.outbox.next()
}

// release leaves the attempt to the journal if that is possible.
func (at *attempt) release() {
	at.mu.Lock()
	can := at.releasableLocked()
	if can && !at.hasLeft() {
		at.left.comes()
	} else {
		can = false
	}
	at.mu.Unlock()
	if can {
		at.agent.roster.leave(at, true)
	}
}
