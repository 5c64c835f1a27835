package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/agent/internal/command"
	"github.com/harpcaller/harp/agent/internal/life"
	"github.com/harpcaller/harp/agent/internal/supervisor"
	"github.com/harpcaller/harp/internal/wake"
	"github.com/harpcaller/harp/internal/wire"
)

// Why a command's run ended without its end.
var (
	errProcessGone = errors.New("agent: the command's supervisor died")
	errLetGo       = errors.New("agent: the command goes on without this agent")
)

// childSpool is the most of its output that a command which runs inside the agent keeps
// for one that has no room, as that is the agent's memory. The agent's own journal comes
// first.
const childSpool = wire.Window

// rebootTime is how long the machine may take to go down once a command has ended that
// ends with a reboot: well, as it has asked for that, or by a signal, as of the shutdown.
var rebootTime = 5 * time.Minute

// commandRun is a command that an attempt runs. What it prints is numbered by its
// supervisor, which drops what nobody has room for; so the agent numbers the same and
// drops nothing, and who comes after a restart goes on where the last one was.
type commandRun struct {
	spec       supervisor.Spec
	endsReboot bool
	survives   bool            // it goes on without the agent
	rebooted   bool            // it ends with a reboot, and the machine has booted anew
	here       context.Context // ends when the agent lets it go
	progress   chan struct{}   // 1 slot: more of what it printed may be kept elsewhere

	ranFor time.Duration // once it has ended
	lostAt time.Time     // when its supervisor was lost last
	hurry  chan struct{} // 1 slot: no grace is left
	closes chan struct{} // 1 slot: the agent stops

	failedAt int64 // the record that could not be read last
	failures int   // how often in a row

	mu      sync.Mutex // guards what follows; never held while blocked
	handle  *supervisor.Handle
	lost    *supervisor.Handle // of a supervisor that died, and was to end with the agent
	now     bool               // it has no grace
	given   bool               // what outlives KILL is left to its supervisor
	closing bool               // the agent stops, and it with that
	unread  bool               // what it prints cannot be read any more: only its end is awaited
	kept    int64              // records that the supervisor was told of
}

// newCommandRun is a command that the agent has until here ends.
func newCommandRun(here context.Context, endsReboot bool) *commandRun {
	slot := func() chan struct{} { return make(chan struct{}, 1) }
	return &commandRun{here: here, endsReboot: endsReboot, progress: slot(), hurry: slot(), closes: slot()}
}

// errRefused is why a command is not executed: its start is not journalled.
var errRefused = errors.New("agent: not now")

// begin prepares the command, journals its start and executes it.
func (r *commandRun) begin(at *attempt, commit func() refusal) refusal {
	most := int64(childSpool)
	if r.survives {
		most = math.MaxInt64
	}
	r.spec.MaxSpool = at.agent.budget.take(most)
	no := r.start(at, commit)
	if no.is() {
		at.agent.budget.give(r.spec.MaxSpool)
	}
	return no
}

func (r *commandRun) start(at *attempt, commit func() refusal) refusal {
	var no, retracted refusal
	committed := false
	where := supervisor.Options{Hold: r.holds(at), Commit: func() error {
		if no = commit(); no.is() {
			return errRefused
		}
		committed = true
		return nil
	}, Retract: func() { retracted = at.retract(wire.NotNowNoSpace) }}
	r.spec.MaxRecord = max(at.limits.MaxRecord-life.RecordCost, 1)
	if r.survives {
		where.Dir = at.agent.supervision().Dir
		r.spec.Info = at.supervisedInfo()
	}
	ctx, cancel := context.WithTimeout(at.ctx, beginTime)
	defer cancel()
	h, err := supervisor.Start(ctx, where, r.spec)
	switch {
	case err == nil:
		r.handle = h // nobody else is here yet
		at.agent.putOff.noteBegun(at.info.Procedure, at.key.journal())
		return refusal{}
	case errors.Is(err, errRefused):
		return no
	case committed:
		return r.failed(at, err, retracted)
	}
	return r.unprepared(at, err)
}

// failed is for a command whose start was journalled, and that was not executed: then the
// start is retracted. It is refused if it never can be, and else not now, for a while. Where it is not
// known whether it was, it is looked for.
func (r *commandRun) failed(at *attempt, err error, retracted refusal) refusal {
	switch {
	case errors.Is(err, supervisor.ErrLost):
		at.log().Error("a command's supervisor was lost when it was to begin", "error", err.Error())
		return refusal{}
	case retracted.broken != nil:
		return retracted
	case !retracted.is() || !at.agent.putsOff(at.info.Procedure, at.key.journal(), err):
		return rejected("exec", err.Error())
	}
	at.warn("a command could not be begun", "error", err.Error())
	return retracted
}

// unprepared is for a command that was not even prepared. It is refused if it never can be, and else not now,
// for a while.
func (r *commandRun) unprepared(at *attempt, err error) refusal {
	var wrong *harp.FieldError
	switch {
	case errors.As(err, &wrong):
		return refuseInvalid(err)
	case errors.Is(err, supervisor.ErrExists) && !at.agent.isIdle(at.key.journal()): // the journal has lost it
		at.warn("asked to start a command that is there already")
		return refusal{forgotten: true}
	case errors.Is(err, supervisor.ErrExists):
		at.agent.discard(at.key.journal())
	}
	if !at.agent.putsOff(at.info.Procedure, at.key.journal(), err) {
		return rejected("exec", err.Error())
	}
	at.warn("a command cannot be prepared", "error", err.Error())
	return refusal{reason: wire.NotNowNoSpace} // and READY, which it makes no room for, is not said
}

// run follows the command until it has ended.
func (r *commandRun) run(at *attempt) (any, error) {
	end, err := r.follow(at)
	r.ranFor = end.RanFor
	at.apply(life.Event{Kind: life.DropTail, Next: end.Records, Size: end.Truncated})
	switch {
	case r.isLetGo():
		return nil, errLetGo
	case err != nil || end.Gone:
		return nil, r.vanished(at, err)
	case r.isEndedByAgent(at, end):
		return nil, context.Cause(at.ctx)
	case r.endsReboot && (end.OK || end.Signal != "" && end.Stopped == nil):
		return r.rebootOutcome(at, end)
	}
	return command.Outcome(end)
}

// isEndedByAgent reports whether a command has ended because the agent stops. One that came to
// its end first has an end of its own; a signal may be that which the agent got, too.
func (r *commandRun) isEndedByAgent(at *attempt, end supervisor.End) bool {
	stopped := end.Stopped != nil || end.Signal != "" && !r.endsReboot
	return stopped && errors.Is(context.Cause(at.ctx), harp.ErrClosed)
}

// rebootOutcome is how a command ended that ends with a reboot, if it may have brought
// that about. That it ended well does not say that the machine will boot.
func (r *commandRun) rebootOutcome(at *attempt, end supervisor.End) (any, error) {
	switch {
	case r.awaitReboot(at):
		return nil, r.ofReboot()
	case end.OK:
		return nil, command.NoReboot(end)
	}
	return command.Outcome(end)
}

// vanished is how a command ended that is gone, and has left no end.
func (r *commandRun) vanished(at *attempt, err error) error {
	if err != nil {
		at.log().Warn("a command is gone", "error", err.Error())
	}
	if r.rebooted {
		return nil
	}
	return errProcessGone
}

// ofReboot is how a command ended that the machine went down for: when that has booted
// anew another agent knows.
func (r *commandRun) ofReboot() error {
	if r.rebooted {
		return nil
	}
	return errLetGo
}

// supervised is the command's handle; nil: it has none.
func (r *commandRun) supervised() *supervisor.Handle {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.handle
}

// listen passes on that the command is to stop, and what is kept elsewhere. It calls giveUp
// when nothing more is to be followed.
func (r *commandRun) listen(follow context.Context, at *attempt, giveUp func()) {
	for stopped := at.ctx.Done(); ; {
		select {
		case <-stopped:
			stopped = nil
			r.passStop(at)
		case <-r.hurry:
			if stopped == nil {
				r.passStop(at)
			}
		case <-r.closes: // nothing that it still prints may keep the agent
			at.apply(life.Event{Kind: life.Deafen})
			r.hold(at)
			if now := at.look(); now.HasSurvivors() && r.givesUp() {
				giveUp()
			}
		case <-r.progress:
			r.sayKept(at)
		case <-follow.Done():
			return
		}
	}
}

// passStop tells the supervisor why the attempt is stopped, and whether at once.
func (r *commandRun) passStop(at *attempt) {
	h, word := r.supervised(), wordFor(context.Cause(at.ctx))
	if r.isHurried() {
		h.Kill(word)
	} else {
		h.Stop(word)
	}
}

// close notes that the agent stops, and the command with that, whatever stops it already.
func (r *commandRun) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closing = true
	wake.Signal(r.closes)
}

// hasten gives the command no grace, or no more of it, once it is to stop.
func (r *commandRun) hasten() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.now = true
	wake.Signal(r.hurry)
}

func (r *commandRun) isHurried() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.now
}

// wordFor is the cause that a supervisor is told.
func wordFor(cause error) string {
	var limit *harp.TimeoutError
	if errors.As(cause, &limit) {
		return limit.Of
	}
	return wire.CauseCancel
}

// stopping hears that the supervisor stops the command: for a limit, or because it was
// told to; and which processes of it outlive that.
func (r *commandRun) stopping(at *attempt, s supervisor.Stop) {
	if !r.isClosing() && s.Cause != "" {
		at.stop(s.Cause, s.Limit)
	}
	at.outlives(s.Left)
}

func (r *commandRun) isClosing() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.closing
}

// isLetGo reports whether the agent has let the command go.
func (r *commandRun) isLetGo() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.given || r.here.Err() != nil
}

// awaitReboot waits for the machine to go down, and with it the agent. It reports
// false if that does not come.
func (r *commandRun) awaitReboot(at *attempt) bool {
	if r.rebooted {
		return true
	}
	select {
	case <-r.here.Done():
		return true
	case <-at.ctx.Done():
		return errors.Is(context.Cause(at.ctx), harp.ErrClosed)
	case <-time.After(rebootTime):
		return false
	}
}

// hold says whether who prints waits when there is no room, or loses.
func (at *attempt) hold() {
	if !at.begun.fired() || at.hasReturned() {
		return
	}
	if r := at.task.cmd; r != nil {
		r.hold(at)
	}
}

// hold says so to the supervisor, until what it said is how it is: several may say it.
func (r *commandRun) hold(at *attempt) {
	h := r.supervised()
	if h == nil {
		return
	}
	for wait := r.holds(at); ; {
		h.Hold(wait)
		now := r.holds(at)
		if now == wait {
			return
		}
		wait = now
	}
}

// holds reports whether a peer is connected that makes room for what is printed: the
// attempt's dispatcher, or the direct caller without which there is no such attempt.
func (r *commandRun) holds(at *attempt) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return !r.closing && !r.unread && (at.key.origin != "" || at.isUp())
}

// put numbers one record of the command as its supervisor has.
func (r *commandRun) put(ctx context.Context, at *attempt, n int64, rec supervisor.Record) error {
	w, err := recordOf(rec, at.limits.MaxRecord)
	if err != nil {
		return err
	}
	at.watch.offered()
	if err := at.offer(ctx, life.Event{Kind: life.OfferAt, Next: n, Record: w, Size: rec.OutputSize()}); err != nil {
		return err
	}
	now := at.look()
	if next := now.KeptElsewhere(); r.shouldSay(next, len(rec.Value)) {
		r.supervised().Keep(next)
	}
	return nil
}

// sayKept tells the supervisor what is kept elsewhere, which it may wait for.
func (r *commandRun) sayKept(at *attempt) {
	now := at.look()
	next := now.KeptElsewhere()
	r.mu.Lock()
	news := next > r.kept
	r.kept = max(r.kept, next)
	r.mu.Unlock()
	if news {
		r.supervised().Keep(next)
	}
}

// keepEvery is after how many records the supervisor hears that they are kept.
const keepEvery = 64

// shouldSay reports whether enough is kept to tell the supervisor.
func (r *commandRun) shouldSay(next int64, size int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if next < r.kept+keepEvery && (next == r.kept || size < wire.MinWindow/2) {
		return false
	}
	r.kept = next
	return true
}

// forget lets the supervisor go when all is elsewhere: what it had is journalled, or
// nobody asks for it.
func (r *commandRun) forget(at *attempt) {
	if r.survives {
		select {
		case <-at.left.done():
		case <-r.here.Done():
		}
		if !at.hasLeft() {
			r.part(at)
			return
		}
	}
	if h := r.supervised(); h != nil {
		if err := h.Forget(); err != nil {
			at.log().Warn("the command's supervisor was not let go in order", "error", err.Error())
		}
	}
	r.part(at)
}

// part lets go of the supervisor as it is.
func (r *commandRun) part(at *attempt) {
	if h := r.supervised(); h != nil {
		if err := h.Close(); err != nil {
			at.log().Warn("the command's supervisor was not left in order", "error", err.Error())
		}
	}
}

// recordOf is a record as it travels. A line of JSON that is no value of at most so many
// bytes is the text that it is.
func recordOf(r supervisor.Record, most int) (wire.Record, error) {
	w := wire.Record{Time: r.Time, Kind: r.Kind, Partial: r.Partial, Truncated: r.Truncated}
	if r.Kind == string(harp.KindData) {
		var v harp.Value
		if err := json.Unmarshal(r.Value, &v); err == nil && len(v) <= most {
			w.Kind, w.Value = "", v
			return w, nil
		}
		w.Kind = string(harp.KindStdout)
	}
	var text any = r.Value
	if utf8.Valid(r.Value) {
		text = string(r.Value)
	}
	v, err := harp.NewValue(text)
	if err != nil {
		return w, fmt.Errorf("agent: a line of output has no form on the wire: %w", err)
	}
	w.Value = v
	return w, nil
}
