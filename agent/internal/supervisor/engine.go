package supervisor

import (
	"bytes"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/harpcaller/harp/agent/internal/proc"
)

// Causes of a [Stop].
const (
	causeCancel  = "cancel"
	causeSilence = "timeout"
	causeRunning = "max_exec_time"
)

// engine runs one command. It is the same in a supervisor and inside an agent.
type engine struct {
	spec    Spec
	spool   spool
	secrets secretDir
	cgroup  string

	process   *proc.Process
	oldResult version // of the file with the result, before the command was started
	leader    started
	begun     time.Time // with the monotonic clock
	streams   []*stream
	stdin     feeder
	works     sync.WaitGroup
	done      chan struct{} // closed when the end is known

	notes sync.WaitGroup // of a stop

	writing sync.Mutex // guards what follows, and what writes to spool; held while the disk is waited for, and taken before mu
	dropped int64      // bytes since the last record

	mu       sync.Mutex    // guards what follows; never held while blocked
	changed  chan struct{} // closed, and made anew, when anything of this changes
	follower int           // how many there were; the last is the one
	stopped  *Stop
	left     []int         // processes that outlive KILL
	stopping chan struct{} // closed when stopped is set
	killing  bool          // it has no grace
	over     bool          // it cannot be stopped any more
	end      *End
	pressure pressure
	quiet    quiet
	records  int64 // that can be seen
	draining time.Time
	open     bool // an output was given up
}

func newEngine(spec Spec, s spool, secrets secretDir, cgroup string) *engine {
	return &engine{
		spec: spec, spool: s, secrets: secrets, cgroup: cgroup,
		done: make(chan struct{}), changed: make(chan struct{}), stopping: make(chan struct{}),
	}
}

// start starts the command. The error is a *proc.ExecError if there is no such command
// here, else one of the machine; nothing is left to be ended then. That it begins is on the
// disk before it does: without that it never began.
func (e *engine) start(launcher []string) error {
	options := proc.Options{Launcher: launcher, Cgroup: e.cgroup, Survivors: e.survive}
	ends, err := e.plumb(&options)
	if err != nil {
		return err
	}
	command := e.secrets.command(e.spec.Command)
	if err = e.noteOldResult(); err == nil {
		err = e.noteGo()
	}
	if err == nil {
		e.process, err = proc.Start(command, options)
	}
	if err != nil {
		_ = e.spool.note(entryFailed, struct{}{}, nil) // it has room; without, it may have been
	}
	closeAll(ends)
	if err != nil {
		e.unplumb()
		return err
	}
	e.begun = time.Now()
	e.leader = started{Leader: e.process.Identity(), Time: e.begun.UnixNano()}
	e.quiet.heard(e.begun, 0)
	_ = e.spool.note(entryStarted, e.leader, nil) // it has room; what is left can be found without
	e.works.Go(e.run)
	return nil
}

// noteGo notes that the command is executed next, on the disk: that may lose what was not synced,
// and be mounted again, while the machine goes on.
func (e *engine) noteGo() error {
	if err := e.spool.note(entryGo, struct{}{}, nil); err != nil {
		return err
	}
	return e.spool.sync()
}

// run sees the command to its end.
func (e *engine) run() {
	var reading sync.WaitGroup
	for _, s := range e.streams {
		reading.Go(func() { e.read(s) })
	}
	reading.Go(e.stdin.feed)
	e.watch()
	if stop := e.shut(); stop == nil && e.spec.Leave {
		e.process.Leave()
	} else {
		e.process.End(e.spec.Grace)
	}
	status := e.process.Wait()
	e.drain()
	reading.Wait()
	e.finish(status)
}

// watch waits until the command ended or is to be stopped.
func (e *engine) watch() {
	for {
		timer := time.NewTimer(e.untilLimit())
		select {
		case <-e.process.Exited():
			timer.Stop()
			return
		case <-e.stopping:
			timer.Stop()
			return
		case <-timer.C:
			e.enforce(time.Now())
		}
	}
}

// untilLimit is how long no limit can be exceeded.
func (e *engine) untilLimit() time.Duration {
	e.mu.Lock()
	defer e.mu.Unlock()
	now := time.Now()
	wait := time.Hour
	if limit := e.spec.MaxExecTime; limit > 0 {
		wait = min(wait, limit-now.Sub(e.begun))
	}
	if limit := e.spec.SilenceTimeout; limit > 0 {
		wait = min(wait, limit-e.quiet.since(now, e.pressure.total(now)))
	}
	return max(wait, 0)
}

// enforce stops the command if it exceeded a limit.
func (e *engine) enforce(now time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if limit := e.spec.MaxExecTime; limit > 0 && now.Sub(e.begun) >= limit {
		e.stopLocked(Stop{Cause: causeRunning, Since: now.UnixNano(), Limit: limit})
	}
	if limit := e.spec.SilenceTimeout; limit > 0 && e.quiet.since(now, e.pressure.total(now)) >= limit {
		e.stopLocked(Stop{Cause: causeSilence, Since: now.UnixNano(), Limit: limit})
	}
}

// Stop ends the command, if it has not ended and is not being ended.
func (e *engine) Stop(cause string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.stopLocked(Stop{Cause: cause, Since: time.Now().UnixNano()})
}

// Kill is Stop without a grace, or the end of that, also of what a command has left that
// has ended by itself, unless that is to be left alone.
func (e *engine) Kill(cause string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.stopLocked(Stop{Cause: cause, Since: time.Now().UnixNano()})
	if e.end != nil || e.killing || e.stopped == nil && e.spec.Leave {
		return
	}
	e.killing = true
	e.works.Go(func() { e.process.End(0) }) // which hastens that of run, and run has not returned
}

func (e *engine) stopBy(m stopMessage) {
	if m.Now {
		e.Kill(m.Cause)
		return
	}
	e.Stop(m.Cause)
}

func (e *engine) stopLocked(s Stop) {
	if e.over || e.stopped != nil || e.exited() {
		return
	}
	e.stopped = &s
	close(e.stopping)
	e.notes.Go(func() { e.noteStop(s) }) // whatever is being written: the command ends meanwhile
}

// noteStop notes a stop, and tells of it.
func (e *engine) noteStop(s Stop) {
	e.writing.Lock()
	_ = e.spool.note(entryStop, s, nil) // the end says it too
	e.writing.Unlock()
	e.mu.Lock()
	defer e.mu.Unlock()
	e.announceLocked()
}

func (e *engine) exited() bool {
	select {
	case <-e.process.Exited():
		return true
	default:
		return false
	}
}

// shut makes it too late for a stop, and returns the one there was.
func (e *engine) shut() *Stop {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.over = true
	return e.stopped
}

// survive notes which processes outlive KILL.
func (e *engine) survive(pids []int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.left = pids
	e.announceLocked()
}

// finish notes how it ended, and tells.
func (e *engine) finish(status proc.Status) {
	e.notes.Wait()
	end := e.outcome(status)
	e.secrets.remove()
	_ = e.spool.noteEnd(end) // the reserve has room for it
	_ = e.spool.sync()
	e.mu.Lock()
	e.end = &end
	e.announceLocked()
	e.mu.Unlock()
	close(e.done)
}

// outcome is how it ended.
func (e *engine) outcome(status proc.Status) End {
	end := End{
		Status: status, Time: time.Now().UnixNano(), From: e.spec.Result.From,
		LastError: e.streams[1].last.String(),
	}
	end.Result, end.ResultErr = e.result()
	e.writing.Lock()
	end.Truncated = e.dropped
	e.writing.Unlock()
	e.mu.Lock()
	defer e.mu.Unlock()
	end.Records = e.records
	end.Stopped, end.OutputOpen = e.stopped, e.open
	success := e.spec.Success
	if len(success) == 0 {
		success = []int{0}
	}
	end.OK = e.stopped == nil && status.Signal == "" && slices.Contains(success, status.Exit)
	return end
}

func (e *engine) announceLocked() {
	close(e.changed)
	e.changed = make(chan struct{})
}

// news is what a follower has to be told.
type news struct {
	follower int
	records  int64 // how many there are
	stopped  *Stop
	left     []int
	end      *End
	changed  <-chan struct{}
}

// stop is what there is to say of a stop; nil: nothing.
func (n news) stop() *Stop {
	if n.stopped == nil && len(n.left) == 0 {
		return nil
	}
	var s Stop
	if n.stopped != nil {
		s = *n.stopped
	}
	s.Left = n.left
	return &s
}

func (e *engine) news() news {
	e.mu.Lock()
	defer e.mu.Unlock()
	return news{e.follower, e.records, e.stopped, e.left, e.end, e.changed}
}

// Follow hands over the records from one on, what stops the command, and its end. See
// [Handle.Follow].
func (e *engine) Follow(ctx context.Context, from int64, record func(int64, Record) error, stopping func(Stop)) (End, error) {
	end, err := e.follow(ctx, from, follower{record: owned(record), stopping: stopping, idle: func() error { return nil }})
	end.Result = bytes.Clone(end.Result)
	return end, err
}

// follower is who follows.
type follower struct {
	record   func(int64, Record) error
	stopping func(Stop)
	idle     func() error // called before it waits
}

func (e *engine) follow(ctx context.Context, from int64, f follower) (End, error) {
	e.mu.Lock()
	e.follower++
	me := e.follower
	e.announceLocked()
	e.mu.Unlock()
	cursor := e.spool.cursor(from)
	for told := (*Stop)(nil); ; {
		n := e.news()
		if n.follower != me {
			return End{}, ErrReplaced
		}
		if s := n.stop(); s != nil && (told == nil || !slices.Equal(told.Left, s.Left)) {
			told = s
			f.stopping(*s)
		}
		if err := cursor.read(n.records, e.whileFollowing(ctx, me, f)); err != nil {
			return End{}, err
		}
		if n.end != nil {
			return *n.end, f.idle()
		}
		if err := f.idle(); err != nil {
			return End{}, err
		}
		select {
		case <-n.changed:
		case <-ctx.Done():
			return End{}, ctx.Err()
		}
	}
}

// whileFollowing hands records over until there is another follower.
func (e *engine) whileFollowing(ctx context.Context, me int, f follower) func(int64, Record) error {
	return func(n int64, r Record) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		e.mu.Lock()
		replaced := e.follower != me
		e.mu.Unlock()
		if replaced {
			return ErrReplaced
		}
		return f.record(n, r)
	}
}

// Keep lets go of the records before next.
func (e *engine) Keep(next int64) {
	e.spool.keep(next)
	e.mu.Lock()
	defer e.mu.Unlock()
	e.announceLocked()
}

// Hold says whether a full spool holds the command back.
func (e *engine) Hold(on bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.pressure.on = on
	e.announceLocked()
}

// Started is when the command was.
func (e *engine) Started() time.Time { return time.Unix(0, e.leader.Time).UTC() }
