package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/wire"
)

// attempt is one execution of a procedure: accepted, started, perhaps asked to
// stop, ended. It knows nothing of sessions and lanes; who is to be told of it asks
// with a [report]. The moments that decide, accept, start, stop and finish, are
// each one method, which is where they become durable.
type attempt struct {
	key    key
	fence  int64
	info   *CallInfo
	limits Limits
	log    *slog.Logger
	invoke invocation
	watch  watch
	forget func(*attempt) // called when it is settled

	ctx    context.Context // the procedure's
	cancel context.CancelCauseFunc

	begun    chan struct{} // closed when it has started
	returned chan struct{} // closed when the function has returned
	settled  chan struct{} // closed when nobody will ask for it any more

	owner *session // guarded by the roster's mutex

	mu       sync.Mutex // guards what follows; never held while blocked
	started  time.Time
	stopping *wire.Stopping
	end      *wire.End // nil: not ended
	outbox   outbox
	room     chan struct{} // closed when there may be room in the outbox; nil: nobody waits
	nobody   bool          // asks for it any more: records are dropped, and so is the end
	report   *report       // who is told; nil: nobody at present
}

// accept makes the attempt of a call that was found good.
func accept(base context.Context, k key, c wire.Call, info *CallInfo, invoke invocation, a *Agent) *attempt {
	at := &attempt{
		key:      k,
		fence:    c.Fence,
		info:     info,
		limits:   a.cfg.Limits,
		log:      a.log,
		forget:   a.roster.leave,
		invoke:   invoke,
		begun:    make(chan struct{}),
		returned: make(chan struct{}),
		settled:  make(chan struct{}),
		outbox:   outbox{window: window(c.Window)},
	}
	at.watch = watch{timeout: info.Timeout, maxExec: info.MaxExecTime, exceeded: at.stop}
	at.ctx, at.cancel = context.WithCancelCause(withCallInfo(base, info))
	return at
}

// window is how many bytes of records the agent holds for who asks for so many.
func window(asked int64) int {
	if asked <= 0 {
		return wire.MinWindow
	}
	return int(min(asked, wire.Window))
}

// start runs the procedure's function in a goroutine that work waits for.
func (at *attempt) start(work *sync.WaitGroup) {
	at.mu.Lock()
	at.started = time.Now()
	at.mu.Unlock()
	at.watch.begin()
	work.Go(at.run)
	close(at.begun)
}

// run runs the function. It may leave by runtime.Goexit, which nothing but a
// deferred call survives.
func (at *attempt) run() {
	out := outcome{failure: remoteFailure(faultPanic, "the procedure left by runtime.Goexit")}
	defer func() { at.finish(out) }()
	out = at.call()
}

// outcome is how a function returned: a value, or a failure if that has a code.
type outcome struct {
	value   harp.Value
	failure harp.Failure
}

// call calls the function. What it returned is looked at here as well, since that
// calls methods of the procedure's own types.
func (at *attempt) call() (out outcome) {
	defer func() {
		if p := recover(); p != nil {
			at.log.Error("procedure panicked", "procedure", at.info.Procedure, "job", at.key.job, "panic", cut(fmt.Sprint(p), maxFaultType), "stack", string(debug.Stack()))
			out = outcome{failure: fit(remoteFailure(faultPanic, fmt.Sprint(p)))}
		}
	}()
	v, err := at.invoke(at.ctx, at.emit)
	if err != nil {
		return outcome{failure: at.failure(err)}
	}
	return at.result(v)
}

// failure is what the function's error means; an agent that stops says so.
func (at *attempt) failure(err error) harp.Failure {
	if errors.Is(context.Cause(at.ctx), harp.ErrClosed) && (errors.Is(err, context.Canceled) || errors.Is(err, harp.ErrClosed)) {
		return remoteFailure(faultAgentStop, "the agent stopped while the procedure ran")
	}
	return failureOf(err)
}

// result encodes what the function returned.
func (at *attempt) result(v any) outcome {
	value, err := harp.NewValue(v)
	switch {
	case err != nil:
		return outcome{failure: fit(remoteFailure(faultBadResult, err.Error()))}
	case len(value) > at.limits.MaxResult:
		message := fmt.Sprintf("the result is %d bytes, at most %d", len(value), at.limits.MaxResult)
		return outcome{failure: remoteFailure(faultTooLarge, message)}
	}
	return outcome{value: value}
}

// stop asks the procedure to stop because of a limit or a cancel. Whichever of stop
// and finish comes first decides how the attempt ends; of several stops the first.
func (at *attempt) stop(cause string, limit time.Duration) {
	at.mu.Lock()
	defer at.mu.Unlock()
	if at.end != nil || at.stopping != nil {
		return
	}
	at.stopping = &wire.Stopping{Cause: cause, Since: time.Now().UnixNano(), Limit: int64(limit)}
	at.cancel(causeOf(cause, limit))
	at.tellLocked()
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
func (at *attempt) interrupt(reason error) { at.cancel(reason) }

// finish ends the attempt with what the function returned.
func (at *attempt) finish(out outcome) {
	at.watch.end()
	at.mu.Lock()
	end := &wire.End{
		Value:   out.value,
		Stopped: at.stopping,
		Records: at.outbox.next(),
		RanFor:  int64(time.Since(at.started)),
	}
	if out.failure.Code != "" {
		end.Failure = wire.Encode(out.failure)
	}
	at.end = end
	at.cancel(harp.ErrClosed)
	at.openLocked()
	at.tellLocked()
	nobody := at.nobody
	at.mu.Unlock()
	close(at.returned)
	if nobody {
		at.settle()
	}
}

// abandon is for an attempt that nobody will ask for any more. It runs on, unless
// it is interrupted.
func (at *attempt) abandon() {
	at.mu.Lock()
	at.nobody = true
	at.outbox.drop()
	at.openLocked()
	ended := at.end != nil
	at.mu.Unlock()
	if ended {
		at.settle()
	}
}

// emit offers a record. It is the emit of HandleStream.
func (at *attempt) emit(v any) error {
	value, err := harp.NewValue(v)
	if err != nil {
		return inRecord(err)
	}
	if n := len(value); n > at.limits.MaxRecord {
		return &harp.FieldError{Field: "record", Message: fmt.Sprintf("is %d bytes, at most %d", n, at.limits.MaxRecord)}
	}
	at.watch.offered()
	return at.put(wire.Record{Value: value})
}

// inRecord names a record as what was wrong.
func inRecord(err error) error {
	if e, ok := err.(*harp.FieldError); ok { //nolint:errorlint // Value's own error, never wrapped
		return &harp.FieldError{Field: "record", Message: e.Message}
	}
	return err
}

// put numbers a record, when there is room.
func (at *attempt) put(r wire.Record) error {
	room, err := at.tryPut(r)
	if room == nil {
		return err
	}
	at.watch.hold()
	defer at.watch.release()
	for room != nil {
		select {
		case <-room:
		case <-at.ctx.Done():
		}
		room, err = at.tryPut(r)
	}
	return err
}

// tryPut numbers a record, or returns what is closed when there may be room.
func (at *attempt) tryPut(r wire.Record) (room <-chan struct{}, err error) {
	at.mu.Lock()
	defer at.mu.Unlock()
	switch {
	case at.end != nil:
		return nil, fmt.Errorf("%w: the procedure has returned", harp.ErrClosed)
	case at.ctx.Err() != nil:
		return nil, context.Cause(at.ctx)
	case at.nobody:
		return nil, nil
	case at.outbox.fits(costOf(r)):
		r.Time = time.Now().UnixNano()
		at.outbox.add(r)
		at.tellLocked()
		return nil, nil
	case at.room == nil:
		at.room = make(chan struct{})
	}
	return at.room, nil
}

// openLocked lets those try again who wait for room.
func (at *attempt) openLocked() {
	if at.room != nil {
		close(at.room)
		at.room = nil
	}
}

// tellLocked wakes who is told.
func (at *attempt) tellLocked() {
	if at.report != nil {
		signal(at.report.wake)
	}
}

// settle forgets the attempt: its END was taken, or nobody asks for it.
func (at *attempt) settle() {
	at.mu.Lock()
	done := at.isSettled()
	if !done {
		close(at.settled)
	}
	at.mu.Unlock()
	if !done {
		at.forget(at)
	}
}

func (at *attempt) isSettled() bool {
	select {
	case <-at.settled:
		return true
	default:
		return false
	}
}

// heldAs is what is said of the attempt in reconciliation.
func (at *attempt) heldAs() wire.HeldAttempt {
	at.mu.Lock()
	defer at.mu.Unlock()
	h := wire.HeldAttempt{
		Job: at.key.job, Attempt: at.key.number, Fence: at.fence,
		State: wire.HeldAlive, Records: at.outbox.next(), Acked: at.outbox.first,
	}
	switch {
	case at.end != nil:
		h.State = wire.HeldEnded
	case at.stopping != nil || at.ctx.Err() != nil:
		h.State = wire.HeldStopping
	}
	return h
}
