package supervisor

import (
	"bytes"
	"context"
	"time"
)

// Handle is an attempt that is supervised, or what is left of one. It is safe for
// concurrent use; it is to be closed.
type Handle struct {
	key     Key
	attempt attempt
}

// attempt is an attempt in one of the places that it can be in: a supervisor, this
// process, or the file of a supervisor that is dead.
// What it hands over is the caller's.
type attempt interface {
	Started() time.Time
	Follow(ctx context.Context, from int64, record func(int64, Record) error, stopping func(Stop)) (End, error)
	Keep(next int64)
	Hold(on bool)
	Stop(cause string)
	Kill(cause string)
	Forget() error
	EndOrphans(ctx context.Context, grace time.Duration) error
	Close() error
}

// Trace is what a spool file says of an attempt.
type Trace struct {
	Info       []byte    // of its Spec
	Created    time.Time // when the command was started, or its supervisor
	NeverBegan bool      // it is sure that the command was not executed, and never will be

	undecided bool // it was not, and may be yet
}

// Key names the attempt.
func (h *Handle) Key() Key { return h.key }

// Started is when the command was; or, if that is not known, its supervisor.
func (h *Handle) Started() time.Time { return h.attempt.Started() }

// Follow hands over the records from one on, with their numbers, waits for more, and returns
// how the attempt ended when that and all records are handed over. What stops the command is
// handed over once, and again each time that the processes that outlive KILL are others:
// the attempt has not ended while there is one. While record does not return nothing else is
// handed over.
//
// The error is that of record; that of ctx; [ErrReplaced] when somebody else follows, as
// only one at a time does; [ErrLost] when the supervisor died, of which [Attach] tells
// what is left; [ErrClosed]; a *[KeptError]; or a *[DamagedError] after the records that are not damaged:
// then the End is returned nevertheless, if nothing will come any more.
func (h *Handle) Follow(ctx context.Context, from int64, record func(n int64, r Record) error, stopping func(Stop)) (End, error) {
	return h.attempt.Follow(ctx, from, record, stopping)
}

// Keep says that the records before next are kept elsewhere: their room may be used.
func (h *Handle) Keep(next int64) { h.attempt.Keep(next) }

// Hold says what a full spool does: hold the command back until there is room, or, as it
// does when no agent is attached, drop records and let it run.
func (h *Handle) Hold(on bool) { h.attempt.Hold(on) }

// Stop ends the command, with TERM and after the grace KILL, if it has not ended and is
// not being ended. It does not wait for that.
func (h *Handle) Stop(cause string) { h.attempt.Stop(cause) }

// Kill is Stop without a grace: it ends that of a command that is being ended, too.
func (h *Handle) Kill(cause string) { h.attempt.Kill(cause) }

// Forget removes what there is of an attempt that has ended, when all of it is elsewhere.
// The error is [ErrRunning] if it has not, [ErrLost] if the supervisor is gone, or one of
// the file system.
func (h *Handle) Forget() error { return h.attempt.Forget() }

// EndOrphans ends what is left of the command, after [ErrLost], if its supervisor was to end
// with this process; of any other [Attach] does. It may take the grace. The error is that of
// ctx, or of the system: then something may be left.
func (h *Handle) EndOrphans(ctx context.Context, grace time.Duration) error {
	return h.attempt.EndOrphans(ctx, grace)
}

// Close lets go of the attempt. What a supervisor runs goes on, and who follows it gets
// [ErrClosed]. What ends with this process is ended, and Close waits for that, unless it was
// told that something outlives KILL.
func (h *Handle) Close() error { return h.attempt.Close() }

// owned makes the values of records that are handed over the callee's own.
func owned(record func(int64, Record) error) func(int64, Record) error {
	return func(n int64, r Record) error {
		r.Value = bytes.Clone(r.Value)
		return record(n, r)
	}
}
