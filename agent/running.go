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
	broken error         // why nobody knows whether it was started

	mu      sync.Mutex // guards what follows; never held while blocked
	handle  *supervisor.Handle
	closing bool  // it is stopped because the agent stops
	kept    int64 // records that the supervisor was told of
}

// errDenied is why a command is not executed: its start is not journalled.
var errDenied = errors.New("agent: not now")

// begin prepares the command, journals its start and executes it.
func (r *running) begin(at *attempt, commit func() denial) denial {
	var no denial
	committed := false
	where := supervisor.Options{Hold: at.agent.up.Load(), Commit: func() error {
		if no = commit(); no.is() {
			return errDenied
		}
		committed = true
		return nil
	}}
	if r.survives {
		where.Dir = at.agent.supervision().Dir
	}
	r.spec.MaxRecord, r.spec.MaxSpool = at.limits.MaxRecord-recordCost, commandSpool
	ctx, cancel := context.WithTimeout(at.ctx, beginTime)
	defer cancel()
	h, err := supervisor.Start(ctx, where, r.spec)
	switch {
	case err == nil:
		r.handle = h // nobody else is here yet
		return denial{}
	case errors.Is(err, errDenied):
		return no
	case committed:
		return r.failed(at, err)
	}
	return r.unprepared(at, err)
}

// failed is for a command whose start is journalled. What was not executed is not in
// the journal any more when that is said.
func (r *running) failed(at *attempt, err error) denial {
	if errors.Is(err, supervisor.ErrLost) {
		r.broken = err
		return denial{}
	}
	if no := at.retract(wire.NotNowBusy); no.broken != nil {
		return no
	}
	return rejected("exec", err.Error())
}

// unprepared is for a command that was not even prepared.
func (r *running) unprepared(at *attempt, err error) denial {
	var wrong *harp.FieldError
	switch {
	case errors.As(err, &wrong):
		return refusal(err)
	case errors.Is(err, supervisor.ErrExists): // the journal has lost it
		at.log.Error("asked to start a command that is there already")
		return denial{forgotten: true}
	}
	at.log.Warn("a command cannot be prepared", "error", err.Error())
	return denial{reason: wire.NotNowBusy}
}

// run follows the command until it has ended.
func (r *running) run(at *attempt) (any, error) {
	if r.broken != nil {
		at.log.Error("nobody knows whether the command was started", "error", r.broken.Error())
		return nil, errProcessGone
	}
	end, err := r.follow(at)
	switch {
	case r.letGo():
		return nil, errLetGo
	case err != nil:
		at.log.Error("the command cannot be followed", "error", err.Error())
		return nil, errProcessGone
	case end.Gone:
		return nil, errProcessGone
	case r.isClosing():
		return nil, context.Cause(at.ctx)
	case r.endsReboot && end.Signal != "" && end.Stopped == nil && r.awaitReboot():
		return nil, errLetGo
	}
	return command.Outcome(end)
}

// reattach is how often a supervisor that was lost is looked for again.
const reattach = 3

// follow follows the command, and looks again for a supervisor that is lost: if it is
// dead, what it had is there, and what is left of the command is ended.
func (r *running) follow(at *attempt) (end supervisor.End, err error) {
	for range 1 + reattach {
		if end, err = r.followOnce(at); !errors.Is(err, supervisor.ErrLost) || r.letGo() || !r.survives {
			break
		}
		at.log.Warn("the command's supervisor is lost, and looked for again", "error", err.Error())
		ctx, cancel := context.WithTimeout(context.WithoutCancel(at.ctx), beginTime)
		h, lost := supervisor.Attach(ctx, at.agent.supervision(), supervisor.Key{Job: at.key.job, Attempt: at.key.number})
		cancel()
		if lost != nil {
			return end, errors.Join(err, lost)
		}
		r.replace(h)
		h.Hold(at.agent.up.Load())
	}
	return end, err
}

// followOnce follows the command as long as its supervisor is there.
func (r *running) followOnce(at *attempt) (supervisor.End, error) {
	follow, done := context.WithCancel(context.WithoutCancel(at.ctx))
	var listening sync.WaitGroup
	listening.Go(func() { r.listen(at.ctx, follow, done) })
	defer listening.Wait()
	defer done()
	return r.supervised().Follow(follow, at.numbered(), func(n int64, rec supervisor.Record) error {
		return r.put(follow, at, n, rec)
	}, func(s supervisor.Stop) { r.stopping(at, s) })
}

// supervised is the command's handle; nil: it has none.
func (r *running) supervised() *supervisor.Handle {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.handle
}

// replace puts another handle in the place of one that is of no use.
func (r *running) replace(h *supervisor.Handle) {
	r.mu.Lock()
	old := r.handle
	r.handle = h
	r.mu.Unlock()
	_ = old.Close() // it is lost
}

// listen passes on that the command is to stop, and notices that it is let go.
func (r *running) listen(ctx, follow context.Context, done func()) {
	asked := ctx.Done()
	for {
		select {
		case <-asked:
			asked = nil
			r.supervised().Stop(r.wordFor(context.Cause(ctx)))
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
		if r := at.task.cmd; r != nil && !at.hasReturned() {
			if h := r.supervised(); h != nil {
				h.Hold(wait)
			}
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
		r.supervised().Keep(next)
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
	h := r.supervised()
	if h == nil {
		return
	}
	if r.survives {
		select {
		case <-at.left:
		case <-r.quit:
			r.close(at, h.Close())
			return
		}
	}
	r.close(at, h.Forget())
}

// close notes how a supervisor was let go.
func (r *running) close(at *attempt, err error) {
	if err != nil {
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
