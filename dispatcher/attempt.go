package dispatcher

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/failures"
	"github.com/harpcaller/harp/internal/wire"
	"github.com/harpcaller/harp/store"
	"github.com/harpcaller/harp/transport"
	"github.com/harpcaller/harp/window"
)

// attempt is one try at running a job, on an exchange of the host's session: one that is
// begun with CALL, or one of an earlier session that is asked for with RESUME.
type attempt struct {
	s         *session
	job       *store.Job // as it was claimed
	x         *transport.Exchange
	resumed   bool
	missing   int64            // the records before this one that are not stored are missing; 0: none are
	streams   bool             // has sent records
	begun     bool             // its agent has given a sign that it started, in this session or in one before
	untold    bool             // ... with a frame that could not be stored
	nextFrame *transport.Frame // came behind records, and is not handled yet
	readies   int64            // of the session's, before CALL was sent
	heldFrom  time.Time        // a window or a pause begins then, before which it must have started; zero: none does

	ended    atomic.Bool // END has come
	progress progress

	mu         sync.Mutex      // guards what follows
	called     bool            // CALL was sent: from here on it may run
	stopWait   func()          // ends the wait for room to send CALL; nil: there is none
	wanted     *harp.Principal // who wants it to stop
	now        bool            // ... without a grace
	sentCancel wire.Cancel     // what the agent knows of that; zero: nothing
}

// sendJobs sends jobs that were claimed.
func (d *Dispatcher) sendJobs(jobs []*store.Job) {
	for _, j := range jobs {
		d.sendJob(j, harp.Submission{})
	}
}

// sendJob runs a claimed job on its host's session. sub is its request if it is at
// hand.
func (d *Dispatcher) sendJob(job *store.Job, sub harp.Submission) {
	s := d.hosts.get(job.Host).currentSession()
	if s != nil && s.startAttempt(&attempt{s: s, job: job}, sub) {
		return
	}
	// The host went between the claim and now: the call never left.
	if !d.beginWork() {
		return
	}
	go func() {
		defer d.work.Done()
		if err := d.withdrawJob(job, 0); err != nil && d.ctx.Err() == nil {
			d.log.Error("withdraw", "job", job.ID, "err", err) // reconciliation does it
		}
	}()
}

// resumeAttempt asks the agent for the rest of an attempt of an earlier session.
func (s *session) resumeAttempt(r resumption, left elapsed) {
	a := &attempt{s: s, job: r.job, resumed: true, missing: r.missing}
	if left.number != r.job.Attempt {
		left = elapsed{}
	}
	a.begun = left.begun
	a.progress.resume(left, r.alive, r.over)
	s.startAttempt(a, harp.Submission{})
}

// withdrawWait is the pause after which a call that could not be sent, though the
// session is open, is tried again.
const withdrawWait = time.Second

// withdrawJob sends a job back to its queue, to wait so long at least: its call did not
// leave this process.
func (d *Dispatcher) withdrawJob(job *store.Job, wait time.Duration) error {
	e := d.newEvent(job, store.Withdrawn)
	e.Reason = harp.ReasonQueue
	if wait > 0 {
		e.Wake = e.At.Add(wait)
	}
	changes, err := d.applyTransitions(d.ctx, store.Transition{ID: job.ID, Event: e})
	if err == nil && !errors.Is(changes[0].Err, store.ErrIllegal) && !errors.Is(changes[0].Err, store.ErrFenced) {
		err = changes[0].Err // the others say that it was withdrawn before
	}
	return err
}

// newEvent is one about the job's attempt.
func (d *Dispatcher) newEvent(job *store.Job, kind store.Kind) store.Event {
	return store.Event{Kind: kind, At: d.now(), Attempt: job.Attempt, Fence: job.Fence, Jitter: rand.Float64()}
}

// startAttempt runs an attempt in a goroutine that the session waits for; false if it takes no
// more. A claim of the job that came before that of the attempt which runs is over: it was
// withdrawn, or there would be no later one.
func (s *session) startAttempt(a *attempt, sub harp.Submission) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing {
		return false
	}
	if runs := s.live[a.job.ID]; runs != nil && runs.job.Fence > a.job.Fence {
		return true
	}
	s.attempts.Add(1)
	if !s.d.spawn(func() { s.runAttempt(a, sub) }) {
		s.attempts.Done()
		return false
	}
	s.live[a.job.ID] = a
	return true
}

// resumeWait is the pause after which an agent is asked again for an attempt that it had no room to be
// asked for.
const resumeWait = time.Second

// runAttempt runs an attempt from its beginning to what became of it.
func (s *session) runAttempt(a *attempt, sub harp.Submission) {
	defer s.attempts.Done()
	err := a.runExchange(sub)
	for a.resumed && errors.Is(err, transport.ErrNoRoom) && s.pause(resumeWait) {
		err = a.runExchange(harp.Submission{})
	}
	s.endAttempt(a, err)
}

// pause waits. It is false if the session ends meanwhile.
func (s *session) pause(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-s.tr.Done():
		return false
	case <-s.d.ctx.Done():
		return false
	}
}

// endAttempt forgets an attempt. One whose end did not come ends the session: what became
// of it is found out when the next one begins. One whose call has not left is not
// started; where that cannot be stored, reconciliation does it. When the dispatcher stops it stores
// no more than that an attempt has begun.
func (s *session) endAttempt(a *attempt, err error) {
	s.mu.Lock()
	if s.live[a.job.ID] == a {
		delete(s.live, a.job.ID)
	}
	s.mu.Unlock()
	if a.streams {
		s.d.streams.Add(-1)
	}
	a.noteAnswered()
	switch {
	case err == nil:
		return
	case s.d.ctx.Err() != nil:
		if a.untold {
			s.storeLastStarts([]store.Transition{{ID: a.job.ID, Event: s.d.newEvent(a.job, store.Started)}})
		}
		return
	}
	if !a.called && !a.resumed && s.d.withdrawJob(a.job, withdrawWait) == nil {
		return
	}
	left := a.progress.elapsed(a.job.Attempt)
	left.begun = a.begun
	s.host.keepElapsed(a.job.ID, left)
	s.tr.Close(fmt.Errorf("job %s: %w", a.job.ID, err))
}

// runExchange runs an attempt from CALL or RESUME to END.
func (a *attempt) runExchange(sub harp.Submission) error {
	ctx := a.s.d.ctx
	var err error
	if a.x, err = a.s.tr.Exchange(); err != nil {
		return err
	}
	defer a.x.Release()
	var unread error
	if !a.resumed {
		sub, unread = a.takeRequest(ctx, sub)
	}
	row, err := a.s.d.store.Job(ctx, a.job.ID) // a cancel may have come before tellCancel could find the attempt
	if isGone(err) {
		return nil // the next session's reconciliation lets the agent forget it
	}
	if err != nil {
		return err
	}
	if !a.resumed && !holds(row, a.job) {
		return nil // it was withdrawn, and may have ended as not started, while it was on its way here
	}
	switch {
	case row.Cancel == nil:
	case !a.resumed:
		return a.storeUnsent(ctx)
	default:
		a.requestCancel(row.Cancel.By, row.Cancel.Now)
	}
	if !a.resumed && a.job.Batch != "" && !slices.Contains(a.s.hello.Features, harp.NeedBatch) {
		return a.refuseJob(ctx, "needs", "needs "+harp.NeedBatch+", which the host's agent does not know")
	}
	if !a.resumed && a.job.Chain != nil && !slices.Contains(a.s.hello.Features, harp.NeedChain) {
		return a.refuseJob(ctx, "needs", "needs "+harp.NeedChain+", which the host's agent does not know")
	}
	switch {
	case errors.Is(unread, errUnwanted):
		return a.storeUnsent(ctx)
	case errors.Is(unread, store.ErrDamaged):
		return a.rejectJob(ctx, "damaged", "its request is damaged in the dispatcher's store", unread)
	case unread != nil:
		return unread
	}
	if !a.resumed {
		if err := checkSize(sub); err != nil { // it was stored before that was refused
			return a.rejectJob(ctx, "too_large", err.Error(), err)
		}
	}
	if !a.resumed && a.s.host.isHeld(startOf(a.job), a.s.d.now()) { // since it was claimed
		return a.storeNotNow(ctx, harp.ReasonWindow)
	}
	if a.resumed {
		err = a.sendResume(row)
	} else {
		err = a.sendCall(ctx, sub)
	}
	for {
		var f transport.Frame
		if err == nil {
			f, err = a.receive(ctx)
		}
		switch {
		case errors.Is(err, transport.ErrNoRoom) && !a.resumed: // the agent has not looked at the call
			return a.storeNotNow(ctx, wire.NotNowBusy)
		case errors.Is(err, errUnwanted):
			return a.storeUnsent(ctx)
		case err != nil:
			return err
		}
		a.progress.noteBusy(true)
		over, err := a.handleFrame(ctx, f)
		a.progress.noteBusy(false)
		a.untold = err != nil && a.begun
		if over || err != nil {
			return err
		}
	}
}

// leastRoom is how much room a call takes at least that waits for some: with less more would have it than the session has streams for them, and
// wait for these where neither a cancel nor a pause ends the wait.
const leastRoom = 64 << 10

// takeRequest returns the job's request, sub if that is at hand, when there is room to send it. While it waits for that, as its agent may
// let in none, it holds none.
func (a *attempt) takeRequest(ctx context.Context, sub harp.Submission) (harp.Submission, error) {
	if sub.Request == nil {
		var err error
		if sub, err = a.s.d.jobRequest(ctx, a.job); err != nil {
			return sub, err
		}
	}
	size := requestSize(sub)
	room := max(size, leastRoom)
	if size < wire.LongSubmission || a.x.TryReserve(room) {
		return sub, nil
	}
	sub = harp.Submission{}
	if err := a.awaitRoom(ctx, room); err != nil {
		return sub, err
	}
	if isPaused, err := a.s.d.isPaused(ctx, a.job); isPaused || err != nil {
		return sub, cmp.Or(err, errUnwanted)
	}
	return a.s.d.jobRequest(ctx, a.job)
}

// isPaused reports whether a job's batch or queue was paused since it was claimed.
func (d *Dispatcher) isPaused(ctx context.Context, job *store.Job) (bool, error) {
	if job.Batch != "" {
		if b, err := d.store.Batch(ctx, job.Batch); err != nil || b.State == harp.BatchPaused {
			return true, err
		}
	}
	if job.Queue == nil {
		return false, nil
	}
	q, err := d.store.Queue(ctx, job.Queue)
	return q.Paused, err
}

// awaitRoom waits for room to send CALL, as long as nobody wants it to stop.
func (a *attempt) awaitRoom(ctx context.Context, room int) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	a.mu.Lock()
	a.stopWait = cancel
	if a.wanted != nil {
		cancel()
	}
	a.mu.Unlock()
	return a.x.Reserve(ctx, room)
}

// requestSize is how long a request is as it is sent.
func requestSize(sub harp.Submission) int {
	return len(sub.Request) + len(sub.Signature) + len(sub.KeyID)
}

// holds reports whether a job's row still is of the attempt that was claimed. As no
// session of a host begins before the attempts of the one before have returned, only
// an earlier session may have withdrawn it.
func holds(row, claimed *store.Job) bool {
	return store.HoldsSlot(row.State) && row.Attempt == claimed.Attempt && row.Fence == claimed.Fence
}

// rejectJob ends a job whose request cannot be sent: it was not started, and cannot be.
func (a *attempt) rejectJob(ctx context.Context, kind, message string, err error) error {
	a.s.d.log.Error("job is rejected, as its request cannot be sent", "job", a.job.ID, "err", err)
	return a.refuseJob(ctx, kind, message)
}

// refuseJob ends a job that was not sent as if its agent had refused it.
func (a *attempt) refuseJob(ctx context.Context, kind, message string) error {
	e := a.s.d.newEvent(a.job, store.Refused)
	e.Failure = failures.New("rejected", message)
	e.Failure.Type = kind
	return a.storeNotStarted(ctx, e)
}

// errUnwanted is why a call is not sent that was claimed.
var errUnwanted = errors.New("it was cancelled or paused meanwhile")

// storeUnsent stores that a call was not sent: it waits again, or ends if somebody wants it to stop.
func (a *attempt) storeUnsent(ctx context.Context) error {
	return a.s.retryStore(ctx, func() error { return a.s.d.withdrawJob(a.job, 0) })
}

// sendCall sends CALL.
func (a *attempt) sendCall(ctx context.Context, sub harp.Submission) error {
	j := a.job
	c := wire.Call{
		Submission: sub, Principal: j.Principal,
		Attempt: int64(j.Attempt), Fence: int64(j.Fence), Epoch: int64(a.s.epoch),
		SilenceTimeout: int64(j.SilenceTimeout), MaxExecTime: int64(j.MaxExecTime), Window: min(a.s.d.window(), firstWindow),
		Schedule: j.Schedule, Fire: j.FireTime,
	}
	if j.Batch != "" {
		c.Job, c.Host = j.ID, j.Host
		if step := j.Step(); step > 1 {
			c.Step = int64(step)
		}
	}
	welcomed := int64(time.Since(a.s.welcomed)) // before the clock is read: what passes meanwhile is not added to what is left
	var free int64
	if c.Left, free = a.timeLeft(a.s.d.now()); free > 0 {
		c.By = welcomed + free // however long it is on its way
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.wanted != nil {
		return errUnwanted
	}
	a.called, a.readies = true, a.s.readies.Load()
	a.noteCalling(requestSize(sub))
	if err := wire.Send(a.x, wire.TypeCall, false, &c); err != nil {
		return err
	}
	_ = a.x.Reserve(ctx, 0) // to reserve less does not wait
	a.noteCalled()
	return nil
}

// timeLeft is within which time the job has to start, in nanoseconds: before it expires, and before a window or a pause
// begins, and free before the latter alone; 0: whenever.
func (a *attempt) timeLeft(now time.Time) (left, free int64) {
	if !a.job.Expires.IsZero() {
		left = max(1, int64(a.job.Expires.Sub(now)))
	}
	if v, concerns := a.s.host.judgeStart(startOf(a.job), now); concerns {
		free, a.heldFrom = max(1, int64(v.Left())), now.Add(v.Left()+window.Margin)
		if left == 0 || free < left {
			left = free
		}
	}
	return left, free
}

// sendResume sends RESUME, from the first record that is not stored on. A cancel comes
// with it; an attempt that was given up while another one waits to be made is always
// cancelled.
func (a *attempt) sendResume(row *store.Job) error {
	m := wire.Resume{
		Job: a.job.ID, Attempt: int64(a.job.Attempt), Epoch: int64(a.s.epoch), Window: a.s.d.window(),
		From: max(int64(row.Attempts[len(row.Attempts)-1].Next), a.missing),
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.wanted == nil && row.State == harp.StateQueued {
		a.wanted = &harp.Principal{Kind: "dispatcher", Name: a.s.d.name}
	}
	if a.wanted != nil {
		a.sentCancel = a.wantedCancel()
		m.Cancel = new(a.sentCancel)
		a.progress.noteAsked()
	}
	a.called = true
	return a.x.Send(wire.TypeResume, false, wire.Encode(m))
}

// wantedCancel is what the agent is to be sent.
func (a *attempt) wantedCancel() wire.Cancel {
	return wire.Cancel{By: *a.wanted, Now: a.now}
}

// requestCancel sends a cancel if the agent knows of the attempt: once, and once more
// when it shall not wait any longer. A call that was not sent yet is not sent any more.
func (a *attempt) requestCancel(by harp.Principal, now bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.wanted == nil {
		a.wanted = &by
	}
	a.now = a.now || now
	switch {
	case a.called:
		a.sendCancelLocked()
	case a.stopWait != nil:
		a.stopWait()
	}
}

func (a *attempt) sendCancelLocked() {
	if a.wanted == nil || a.sentCancel == a.wantedCancel() {
		return
	}
	a.sentCancel = a.wantedCancel()
	a.progress.noteAsked()
	_ = a.x.Send(wire.TypeCancel, false, wire.Encode(a.sentCancel)) // a failed write ends the session, and with it the attempt
}

// sendCancel sends the agent of a job that it shall stop, and does not wait for it to
// read that. An attempt that is not on a session yet gets it with its RESUME, or is not called.
func (d *Dispatcher) sendCancel(job *store.Job, by harp.Principal, now bool) {
	s := d.hosts.get(job.Host).currentSession()
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if a := s.live[job.ID]; a != nil && !s.closing {
		s.attempts.Go(func() { a.requestCancel(by, now) })
	}
}
