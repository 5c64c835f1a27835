package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/agent/internal/command"
	"github.com/harpcaller/harp/agent/internal/proc"
	"github.com/harpcaller/harp/agent/internal/supervisor"
	"github.com/harpcaller/harp/internal/wire"
)

// Why a command's run ended without its end.
var (
	errProcessGone = errors.New("agent: the command's supervisor died")
	errLetGo       = errors.New("agent: the command goes on without this agent")
)

// commandSpool is how many bytes of output a supervisor keeps for an agent that has no
// room, or is not there. The agent's own journal comes first.
const commandSpool = 64 << 20

// rebootTime is how long a command that ends with a reboot, and that a signal ended, is
// taken for one that the shutdown has ended.
const rebootTime = 2 * time.Minute

// running is a command that an attempt runs. What it prints is numbered by its
// supervisor, which drops what nobody has room for; so the agent numbers the same and
// drops nothing, and who comes after a restart goes on where the last one was.
type running struct {
	spec       supervisor.Spec
	endsReboot bool
	survives   bool // it goes on without the agent

	quit   chan struct{} // closed when the agent lets it go; nil: never
	once   sync.Once     // closes quit
	handle *supervisor.Handle
	broken error // why nobody knows whether it was started

	mu      sync.Mutex // guards what follows; never held while blocked
	closing bool       // it is stopped because the agent stops
	kept    int64      // records that the supervisor was told of
}

// begin starts the command. The error says that it was not started.
func (r *running) begin(at *attempt) error {
	var where supervisor.Options
	if r.survives {
		where = at.agent.supervision()
	}
	r.spec.MaxRecord, r.spec.MaxSpool = at.limits.MaxRecord-recordCost, commandSpool
	ctx, cancel := context.WithTimeout(at.ctx, beginTime)
	defer cancel()
	h, err := supervisor.Start(ctx, where, r.spec)
	var exec *proc.ExecError
	switch {
	case errors.As(err, &exec):
		return err
	case err != nil:
		r.broken = err
		return nil
	}
	r.handle = h
	h.Hold(at.agent.up.Load())
	return nil
}

// run follows the command until it has ended.
func (r *running) run(at *attempt) (any, error) {
	ctx := at.ctx
	if r.broken != nil {
		at.log.Error("nobody knows whether the command was started", "error", r.broken.Error())
		return nil, errProcessGone
	}
	follow, done := context.WithCancel(context.WithoutCancel(ctx))
	var listening sync.WaitGroup
	listening.Go(func() { r.listen(ctx, follow, done) })
	end, err := r.handle.Follow(follow, at.numbered(), func(n int64, rec supervisor.Record) error {
		return r.put(follow, at, n, rec)
	}, func(s supervisor.Stop) { r.stopping(at, s) })
	done()
	listening.Wait()
	switch {
	case r.letGo():
		return nil, errLetGo
	case err != nil:
		at.log.Error("the command cannot be followed", "error", err.Error())
		return nil, errProcessGone
	case end.Gone:
		return nil, errProcessGone
	case r.isClosing():
		return nil, context.Cause(ctx)
	case r.endsReboot && end.Signal != "" && end.Stopped == nil && r.awaitReboot():
		return nil, errLetGo
	}
	return command.Outcome(end)
}

// listen passes on that the command is to stop, and notices that it is let go.
func (r *running) listen(ctx, follow context.Context, done func()) {
	asked := ctx.Done()
	for {
		select {
		case <-asked:
			asked = nil
			r.handle.Stop(r.wordFor(context.Cause(ctx)))
		case <-r.quit:
			done()
			return
		case <-follow.Done():
			return
		}
	}
}

// wordFor is the cause that a supervisor is told.
func (r *running) wordFor(cause error) string {
	var limit *harp.TimeoutError
	if errors.As(cause, &limit) {
		return limit.Of
	}
	if errors.Is(cause, harp.ErrClosed) {
		r.mu.Lock()
		r.closing = true
		r.mu.Unlock()
	}
	return wire.CauseCancel
}

// stopping hears that the supervisor stops the command: for a limit, or because it was
// told to.
func (r *running) stopping(at *attempt, s supervisor.Stop) {
	if !r.isClosing() {
		at.stop(s.Cause, s.Limit)
	}
}

func (r *running) isClosing() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.closing
}

// letGo reports whether the agent has let the command go.
func (r *running) letGo() bool {
	select {
	case <-r.quit:
		return true
	default:
		return false
	}
}

// awaitReboot waits for the machine to go down, and with it the agent. It reports
// false if that does not come.
func (r *running) awaitReboot() bool {
	timer := time.NewTimer(rebootTime)
	defer timer.Stop()
	select {
	case <-r.quit:
		return true
	case <-timer.C:
		return false
	}
}

// hold says whether who prints waits when there is no room, or loses.
func (at *attempt) hold(wait bool) {
	select {
	case <-at.begun:
		if r := at.task.cmd; r != nil && r.handle != nil && !at.hasReturned() {
			r.handle.Hold(wait)
		}
	default:
	}
}

// put numbers one record of the command as its supervisor has.
func (r *running) put(ctx context.Context, at *attempt, n int64, rec supervisor.Record) error {
	w, err := recordOf(rec)
	if err != nil {
		return err
	}
	at.watch.offered()
	if err := at.putNumbered(ctx, n, w); err != nil {
		return err
	}
	if next := at.keptElsewhere(); r.shouldSay(next, len(rec.Value)) {
		r.handle.Keep(next)
	}
	return nil
}

// keepEvery is after how many records the supervisor hears that they are kept.
const keepEvery = 64

// shouldSay reports whether enough is kept to tell the supervisor.
func (r *running) shouldSay(next int64, size int) bool {
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
func (r *running) forget(at *attempt) {
	if r.survives {
		select {
		case <-at.left:
		case <-r.quit:
			r.close(at, r.handle.Close)
			return
		}
	}
	r.close(at, r.handle.Forget)
}

func (r *running) close(at *attempt, how func() error) {
	if err := how(); err != nil {
		at.log.Warn("the command's supervisor was not let go in order", "error", err.Error())
	}
}

// recordOf is a record as it travels.
func recordOf(r supervisor.Record) (wire.Record, error) {
	w := wire.Record{Time: r.Time, Kind: r.Kind, Partial: r.Partial, Truncated: r.Truncated}
	var v harp.Value
	var err error
	switch {
	case r.Kind == string(harp.KindData):
		w.Kind = ""
		err = json.Unmarshal(r.Value, &v)
	case utf8.Valid(r.Value):
		v, err = harp.NewValue(string(r.Value))
	default:
		v, err = harp.NewValue(r.Value)
	}
	if err != nil {
		return w, fmt.Errorf("agent: a line of output has no form on the wire: %w", err)
	}
	w.Value = v
	return w, nil
}
