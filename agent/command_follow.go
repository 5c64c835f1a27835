package agent

import (
	"cmp"
	"context"
	"errors"
	"math"
	"sync"
	"syscall"
	"time"

	"github.com/harpcaller/harp/agent/internal/life"
	"github.com/harpcaller/harp/agent/internal/proc"
	"github.com/harpcaller/harp/agent/internal/supervisor"
	"github.com/harpcaller/harp/internal/wake"
)

// reachPause is the pause before a supervisor is looked for again that could not be
// reached.
const reachPause = time.Second

// rereads is how often in a row what a command prints is read again that a disk cannot read: that may be so for a moment. Its end
// is worth more than the rest, and is not kept waiting for longer.
const rereads = 10

// follow follows the command to its end, and looks again for a supervisor that is lost:
// if it is dead, what it had is there, and what is left of the command is ended. The error
// says that nothing is there any more, or that the agent has let the command go: nobody is
// told that it is gone while it may run.
func (r *commandRun) follow(at *attempt) (supervisor.End, error) {
	for {
		if err := r.reach(at); err != nil {
			return supervisor.End{}, err
		}
		end, err := r.followOnce(at)
		if err == nil || r.isLetGo() || r.recover(at, end, err) {
			return end, nil
		}
	}
}

// recover is for what following ended with. It reports whether the end is known all the
// same.
func (r *commandRun) recover(at *attempt, end supervisor.End, err error) bool {
	var kept *supervisor.KeptError
	switch {
	case errors.As(err, &kept):
		if now := at.look(); kept.First > now.Records() { // else somebody has asked from further on meanwhile
			at.apply(life.Event{Kind: life.SkipTo, Next: kept.First}) // the dispatcher had acknowledged what the journal had not yet
		}
		return false
	case end.Gone || end.Time != 0:
		at.log().Error("a part of what the command printed cannot be read", "error", err.Error())
		at.apply(life.Event{Kind: life.Deafen, Size: 1})
		return true
	case errors.Is(err, supervisor.ErrLost) && r.survives:
		at.log().Warn("the command's supervisor is lost, and looked for again", "error", err.Error())
		r.drop(at)
		if time.Since(r.lostAt) < reachPause { // it may live, and be lost as soon as it is found
			r.pause()
		}
		r.lostAt = time.Now()
		return false
	}
	if errors.Is(err, supervisor.ErrLost) {
		at.log().Error("the command's supervisor is lost, and what it has left is ended", "error", err.Error())
		r.orphaned()
		return false
	}
	if r.readsAgain(at, err) {
		r.pause()
		return false
	}
	at.log().Error("what the command prints cannot be read: its end is awaited", "error", err.Error())
	if !r.isUnread() {
		at.apply(life.Event{Kind: life.Deafen, Size: 1})
		r.readNoMore()
		return false
	}
	if r.survives {
		r.drop(at)
	}
	r.pause()
	return false
}

// reach attaches to the supervisor, unless the command has one. The error says that there
// is nothing to attach to and nothing runs, or that the agent has let the command go.
func (r *commandRun) reach(at *attempt) error {
	said := ""
	for r.supervised() == nil {
		h, err := r.attach(at)
		switch {
		case err == nil:
			r.setHandle(h)
			return nil
		case r.isLetGo():
			return errLetGo
		case errors.Is(err, supervisor.ErrNotFound), errors.Is(err, supervisor.ErrGone), errors.Is(err, errProcessGone):
			return err
		}
		var left *proc.LeftError
		if errors.As(err, &left) {
			at.outlives(left.PIDs())
			if r.givesUp() {
				return errLetGo
			}
		}
		if text := err.Error(); text != said {
			said = text
			at.log().Warn("what may run of a command cannot be reached, and is tried again", "error", text)
		}
		r.pause()
	}
	return nil
}

// attach looks for the supervisor, or, of an agent that is dead, for what it has left,
// and ends that. When no grace is left any more it begins again.
func (r *commandRun) attach(at *attempt) (h *supervisor.Handle, err error) {
	ctx, cancel := context.WithCancel(r.here)
	var hearing sync.WaitGroup
	hearing.Go(func() {
		select {
		case <-r.hurry: // which isHurried says to who comes later
			cancel()
		case <-ctx.Done():
		}
	})
	hurried := r.isHurried()
	h, err = r.attachOnce(ctx, at, hurried)
	cancel()
	hearing.Wait()
	if errors.Is(err, context.Canceled) && !hurried && r.isHurried() {
		return r.attachOnce(r.here, at, true)
	}
	return h, err
}

func (r *commandRun) attachOnce(ctx context.Context, at *attempt, hurried bool) (*supervisor.Handle, error) {
	k := supervisor.Key{Job: at.key.job, Attempt: at.key.number}
	grace := r.spec.Grace
	if hurried {
		grace = 0
	}
	if !r.survives {
		if err := r.endOrphans(ctx, k, grace); err != nil {
			return nil, err
		}
		return nil, errProcessGone
	}
	where := at.agent.supervision()
	where.Hold, where.NoGrace = r.holds(at), hurried
	h, err := supervisor.Attach(ctx, where, k)
	if errors.Is(err, supervisor.ErrNotFound) { // somebody has removed what there was: the command may run on
		err = cmp.Or(r.endOrphans(ctx, k, grace), err)
	}
	return h, err
}

// followOnce follows the command as long as its supervisor is there.
func (r *commandRun) followOnce(at *attempt) (supervisor.End, error) {
	follow, done := context.WithCancel(r.here)
	var listening sync.WaitGroup
	listening.Go(func() { r.listen(follow, at, done) })
	defer listening.Wait()
	defer done()
	r.hold(at)
	now := at.look()
	from := now.Records()
	if r.isUnread() {
		from = math.MaxInt64
	}
	return r.supervised().Follow(follow, from, func(n int64, rec supervisor.Record) error {
		return r.put(follow, at, n, rec)
	}, func(s supervisor.Stop) {
		r.stopping(at, s)
		if len(s.Left) > 0 && r.givesUp() {
			done()
		}
	})
}

// givesUp reports whether an agent that stops leaves what outlives KILL to itself, or to the
// command's supervisor, which ends when that has.
func (r *commandRun) givesUp() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.given = r.closing && !r.survives
	return r.given
}

// orphaned gives up the handle of a supervisor that died, and was to end with the agent.
func (r *commandRun) orphaned() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.handle, r.lost = nil, r.handle
}

// endOrphans ends what is left of a command that was to end with an agent: this one, or one
// before it.
func (r *commandRun) endOrphans(ctx context.Context, k supervisor.Key, grace time.Duration) error {
	if r.lost == nil {
		return supervisor.EndOrphans(ctx, k, grace)
	}
	if err := r.lost.EndOrphans(ctx, grace); err != nil {
		return err
	}
	return r.lost.Close()
}

// setHandle makes a handle the command's. Its supervisor is told what is kept, for which it may wait.
func (r *commandRun) setHandle(h *supervisor.Handle) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.handle, r.kept = h, 0
	wake.Signal(r.progress)
}

// drop gives up a handle that is of no use.
func (r *commandRun) drop(at *attempt) {
	r.part(at)
	r.setHandle(nil)
}

// readsAgain reports whether what a disk could not read is to be read again.
func (r *commandRun) readsAgain(at *attempt, err error) bool {
	var number syscall.Errno
	if !errors.As(err, &number) || r.isUnread() {
		return false
	}
	now := at.look()
	if records := now.Records(); records != r.failedAt {
		r.failedAt, r.failures = records, 0
	}
	if r.failures++; r.failures == 1 {
		at.log().Warn("what the command prints cannot be read, and is tried again", "error", err.Error())
	}
	return r.failures <= rereads
}

// readNoMore notes that what the command prints cannot be read.
func (r *commandRun) readNoMore() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.unread = true
}

func (r *commandRun) isUnread() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.unread
}

// pause waits a moment, or until the agent lets the command go.
func (r *commandRun) pause() {
	select {
	case <-time.After(reachPause):
	case <-r.here.Done():
	}
}
