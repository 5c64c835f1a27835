package agent

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/agent/internal/life"
	"github.com/harpcaller/harp/internal/text"
	"github.com/harpcaller/harp/internal/wake"
	"github.com/harpcaller/harp/internal/wire"
)

// attempt runs one execution of a procedure. How far that is, and what follows from what
// happens to it, is its life, which is pure: the attempt lets events happen under its lock and
// does what they ask for. It hands things to the journal, wakes its sender and those that wait
// for room, and ends the procedure's context. It knows nothing of sessions and exchanges. An
// attempt that has ended, is journalled and has no sender is left to the journal, from
// where it is recovered when a peer asks for it.
type attempt struct {
	agent  *Agent
	scope  *scope // waits for its function; nil: it was recovered, or goes on without the agent
	key    key
	fence  int64
	info   *CallInfo
	limits Limits
	most   int // attempts of its procedure at a time; 0: any
	size   int // bytes of its request
	task   task
	watch  watch

	ctx    context.Context // the procedure's
	cancel context.CancelCauseFunc

	// Of the goroutine that runs it.
	expected *expectation  // of the procedure's results
	hasTurn  bool          // to hand a result to the journal
	ran      time.Duration // how long the function ran; 0: it has not returned

	heldBack atomic.Bool // its last record had to wait

	begun    latch // it has started, or was refused
	returned latch // the function has returned
	left     latch // it is no longer on the list

	owner *session // of a direct caller; guarded by the mutex of attempts

	mu      sync.Mutex // guards what follows; never held while blocked
	life    life.Attempt
	store   string    // of the dispatcher that it was accepted from, or that asked for it since
	refusal refusal   // why it was not started
	started time.Time // by the monotonic clock, if this agent has started it
	spool   spool
	counted int           // bytes of it that the agent counts as in memory
	ending  int           // bytes of its end that the agent counts, or expects
	expects int           // of those, what the function is expected to return
	hasty   *time.Timer   // after which nothing is expected any more; nil: it is not waited for
	room    chan struct{} // closed when there may be room for records; nil: nobody waits
	sender  *sender       // of its peer; nil: none at present
}

// accept makes the attempt of a call that was found good.
func accept(s *session, k key, c wire.Call, info *CallInfo, p *procedure, work task) *attempt {
	at := newAttempt(s.agent, k, &p.expected)
	at.scope, at.fence, at.store, at.info, at.most, at.size, at.task = s.scope, c.Fence, s.store, info, p.most, len(c.Request), work
	at.watch = watch{timeout: info.SilenceTimeout, maxExec: info.MaxExecTime, exceeded: at.stop}
	at.ctx, at.cancel = context.WithCancelCause(withAttempt(s.base, at))
	home, journalled := life.Here, k.origin == ""
	if r := work.cmd; r != nil {
		at.watch = watch{} // its supervisor has the clocks
		if r.survives = journalled && s.agent.supervises(); r.survives {
			home, at.scope, r.here = life.Supervised, nil, s.agent.here
		}
	}
	at.life = life.New(home, journalled, c.Window)
	return at
}

func newAttempt(a *Agent, k key, of *expectation) *attempt {
	at := &attempt{agent: a, key: k, limits: a.cfg.Limits, expected: of}
	if k.origin == "" {
		at.spool = newSpool(a.journal, k)
	}
	return at
}

// apply lets an event happen, and does what it asks for.
func (at *attempt) apply(e life.Event) life.Effect {
	at.mu.Lock()
	f := at.applyLocked(e)
	at.mu.Unlock()
	at.leaveIf(f)
	return f
}

// applyLocked is apply; if the effect is to leave, the caller does that when it has unlocked.
func (at *attempt) applyLocked(e life.Event) life.Effect {
	var put life.Put
	leave := false
	for handed := false; ; handed = true {
		f := at.life.Next(e)
		at.doLocked(&f)
		if f.Put != 0 {
			put = f.Put
		}
		leave = leave || f.Leave
		if f.Write.Kind == 0 {
			at.countLocked()
			if f.Put, f.Leave = put, leave; handed {
				at.loopLocked()
			}
			return f
		}
		e = at.writeLocked(&f.Write)
	}
}

// countLocked counts what of it is in memory, as long as it is on the list.
func (at *attempt) countLocked() {
	now, ending := at.life.HeldBytes(), at.life.UnsyncedBytes()+at.expects
	if at.hasLeft() {
		now, ending = 0, 0
	}
	at.agent.ends.count(int64(ending - at.ending))
	at.ending = ending
	at.agent.memory.count(at.key.origin, now-at.counted)
	at.counted = now
}

// doLocked does what an event asks for and nothing comes of.
func (at *attempt) doLocked(f *life.Effect) {
	if f.Ack > 0 {
		at.spool.ack(f.Ack)
	}
	if f.Retry {
		wake.Signal(at.spool.wake)
	}
	if f.Stop != nil && at.cancel != nil {
		at.cancel(causeOf(f.Stop.Cause, time.Duration(f.Stop.Limit)))
	}
	if f.Late {
		time.AfterFunc(stopTime, at.stopLate)
	}
	if f.Drop {
		at.spool.forget()
	}
	if f.Room {
		at.openLocked()
	}
	if f.Wake && at.sender != nil {
		at.sender.wakeLocked()
	}
	if f.Leave {
		at.left.fire()
	}
	if f.Lack.Why != 0 {
		at.logLack(f.Lack)
	}
}

// leaveIf takes the attempt off the list if an event has asked for that.
func (at *attempt) leaveIf(f life.Effect) {
	if f.Leave {
		at.agent.attempts.leave(at, true)
	}
}

// look returns the attempt's life as it is now, to be read.
func (at *attempt) look() life.Attempt {
	at.mu.Lock()
	defer at.mu.Unlock()
	return at.life
}

// begin notes that it starts now: the journal may have taken a while. It reports whether the
// procedure is to be run.
func (at *attempt) begin() bool {
	at.mu.Lock()
	defer at.mu.Unlock()
	at.started = time.Now()
	return at.applyLocked(life.Event{Kind: life.Start, At: at.started.UnixNano()}).Run
}

// start runs the procedure's function in a goroutine that its scope waits for.
func (at *attempt) start() {
	if !at.begin() {
		return
	}
	at.watch.begin()
	if at.scope == nil {
		at.agent.commands.Go(at.run)
	} else {
		at.scope.work.Go(at.run)
	}
	at.begun.fire()
}

// refuse is for an attempt that is not started after all.
func (at *attempt) refuse(no refusal) {
	at.mu.Lock()
	at.refusal = no
	at.applyLocked(life.Event{Kind: life.Refuse})
	at.mu.Unlock()
	at.cancel(harp.ErrClosed)
	at.begun.fire()
	at.returned.fire()
	// One for which there was no space leaves none behind: to say READY for it would
	// bring the same call back at once.
	at.agent.attempts.leave(at, no.reason != wire.NotNowNoSpace)
}

// run runs the function. It may leave by runtime.Goexit, which nothing but a
// deferred call survives.
func (at *attempt) run() {
	if n := at.task.keepsElsewhere(); n > 0 {
		defer at.agent.budget.give(n)
	}
	out := outcome{failure: &leftByGoexit}
	defer func() {
		at.finish(out)
		at.endTurn() // before its supervisor is let go, which waits for the dispatcher
		at.releaseSupervisor(out)
	}()
	at.expect()
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
			at.log().Error("procedure panicked", "procedure", at.info.Procedure, "panic", text.Shorten(fmt.Sprint(p), maxFaultType, cutMark), "stack", string(debug.Stack()))
			out = failed(truncateFailure(remoteFailure(faultPanic, fmt.Sprint(p))))
		}
	}()
	v, err := at.task.run(at)
	at.watch.end()
	at.ran = time.Since(at.started)
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

// failed is what the function's error means. Of one that stopped as its agent did nobody knows how
// far it came: it is lost, as after a crash. One that
// says no more than why the context has ended is none: the limit or cancel decides.
func (at *attempt) failed(err error) outcome {
	cause := context.Cause(at.ctx)
	switch stopped := errors.Is(err, context.Canceled) || cause != nil && errors.Is(err, cause); {
	case !stopped:
	case errors.Is(cause, harp.ErrClosed):
		return failed(stoppedFailure())
	case at.isStopped():
		return outcome{}
	}
	return failed(failureOf(err))
}

// isStopped reports whether a limit or cancel has ended the procedure's context.
func (at *attempt) isStopped() bool {
	now := at.look()
	return now.IsStopped()
}

// result encodes what the function returned.
func (at *attempt) result(v any) outcome {
	at.takeTurn(at.expected.bytes())
	value, err := harp.NewValue(v)
	at.expected.note(len(value))
	at.takeTurn(int64(len(value)))
	switch {
	case err != nil:
		return failed(truncateFailure(remoteFailure(faultBadResult, err.Error())))
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
	why := &wire.Stopping{Cause: cause, Since: time.Now().UnixNano(), Limit: int64(limit)}
	at.apply(life.Event{Kind: life.Stop, Stopping: why})
}

func (at *attempt) stopLate() { at.apply(life.Event{Kind: life.StopLate}) }

// cancelled stops the procedure, a command without a grace if that is to be now. Why it is stopped
// is noted first: without a grace it may have ended at once.
func (at *attempt) cancelled(m wire.Cancel) {
	at.stop(wire.CauseCancel, 0)
	if r := at.task.cmd; r != nil && m.Now {
		r.hasten()
	}
}

// outlives notes the processes of the attempt that outlive KILL, which keep it from ending.
func (at *attempt) outlives(pids []int) {
	pids = pids[:min(len(pids), wire.MaxLeft)]
	if len(pids) > 0 {
		at.log().Error("processes of a command outlive KILL, which is sent again and again: its attempt ends when they are gone", "pids", pids)
	}
	left := make([]int64, len(pids))
	for i, pid := range pids {
		left[i] = int64(pid)
	}
	at.apply(life.Event{Kind: life.Survivors, Left: left})
}

// causeOf is what context.Cause returns to the procedure.
func causeOf(cause string, limit time.Duration) error {
	switch cause {
	case wire.CauseTimeout:
		return &harp.TimeoutError{Limit: limit, Of: harp.LimitSilenceTimeout}
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
		at.agent.attempts.letGo()
		at.returned.fire()
		at.leave()
		return
	}
	at.mu.Lock()
	at.expects, at.hasty = 0, nil
	f := at.applyLocked(life.Event{Kind: life.Return, At: time.Now().UnixNano(), End: at.endOf(out)})
	at.cancel(harp.ErrClosed)
	at.mu.Unlock()
	at.returned.fire()
	if at.most > 0 {
		at.agent.attempts.vacate()
	}
	at.leaveIf(f)
}

// releaseSupervisor lets go of the supervisor of a command, once all that it had is elsewhere, or as it is if the
// command goes on.
func (at *attempt) releaseSupervisor(out outcome) {
	switch r := at.task.cmd; {
	case r == nil:
	case out.letGo:
		r.part(at)
	default:
		r.forget(at)
	}
}

// endOf is END of what the function returned; nil: it is gone.
func (at *attempt) endOf(out outcome) *wire.End {
	if out.gone {
		return nil
	}
	end := &wire.End{Value: out.value, RanFor: int64(at.ranFor())}
	if out.failure != nil {
		end.Failure = out.failure.Err()
	}
	if at.agent.memory.isOver(at.key.origin, len(out.value)) {
		at.agent.repeated.Warn(at.key.origin, "a result was dropped, as its caller does not take those before it", "caller", at.key.origin, "job", at.key.job)
		end.Value, end.Dropped = nil, true
	}
	return end
}

// ranFor is how long it ran: as its supervisor says, or up to now.
func (at *attempt) ranFor() time.Duration {
	if r := at.task.cmd; r != nil && r.ranFor > 0 {
		return r.ranFor
	}
	if at.ran > 0 {
		return at.ran
	}
	return time.Since(at.started)
}

// abandon is for an attempt that nobody will ask for any more. It runs on, unless
// it is interrupted.
func (at *attempt) abandon() { at.apply(life.Event{Kind: life.Abandon}) }

// settle forgets the attempt: its END was taken, or nobody asks for it.
func (at *attempt) settle() { at.apply(life.Event{Kind: life.Settle}) }

// leave takes the attempt off the list, if it is there.
func (at *attempt) leave() {
	at.left.fire()
	at.mu.Lock()
	at.countLocked()
	at.mu.Unlock()
	at.agent.attempts.leave(at, true)
}

// hasLeft reports whether the attempt is no longer on the list.
func (at *attempt) hasLeft() bool { return at.left.fired() }

// hasReturned is hasEnded for a goroutine that must not wait for the attempt's mutex.
func (at *attempt) hasReturned() bool { return at.returned.fired() }

// hasEnded reports whether nothing of the attempt runs any more.
func (at *attempt) hasEnded() bool {
	now := at.look()
	return now.HasEnded()
}

// logLack says which records are not there, or that the end is not.
func (at *attempt) logLack(l life.Lack) {
	log := at.log().With("first", l.First, "missing", l.Missing)
	switch l.Why {
	case life.Damaged:
		log.Error("a record cannot be read: it is told as dropped")
	case life.Missing:
		log.Error("records are not in the journal: they are told as dropped")
	case life.NoRoom:
		log.Warn("records were dropped, as the journal had no room for them")
	case life.Unwritten:
		log.Warn("the last records were not written in time")
	case life.EndLost:
		at.log().Error("how the attempt ended cannot be read: it is told as gone")
	case life.JournalLost:
		at.log().Error("the journal has lost an attempt that runs")
	}
}
