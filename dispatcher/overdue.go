package dispatcher

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/store"
	"github.com/harpcaller/harp/transport"
)

// What an agent that is connected owes: the start of a call, or why there is none, and the end of
// what should be over. It is looked at each minute; a procedure is given so much more time than it has
// that only an agent that does not keep to the protocol is late.
const (
	overdueEvery = time.Minute
	answerTime   = 5 * time.Minute // from CALL to the start, beside the time that the line takes
	deafTime     = time.Minute     // for an agent to take something of a long call, while another one's waits for room
	leastWait    = 5 * time.Minute // for an END that is owed, if LostAfter is less
	spoolTime    = 3 * time.Hour   // for the records before it, where they come: 64 MiB over a slow line
)

// progress is what is known of how far an attempt is at its agent, on the monotonic clock; zero times:
// not so far.
type progress struct {
	mu     sync.Mutex // guards what follows
	called time.Time  // CALL was written, or, while it is not, began to be, behind
	ahead  int64      // so many bytes of calls that were not answered, it among them, at most
	wrote  bool       // CALL was written
	size   int64      // of CALL; 0: its start is known, or that there is none
	begun  time.Time  // the procedure
	asked  time.Time  // to stop; or its agent says that it stops, or that it is over
	heard  time.Time  // its last frame came, or was handled
	busy   bool       // one is being handled
	left   bool       // processes outlive KILL, says the agent: it cannot say that it is over
	lost   bool       // it was given up
}

// noteCalling notes that CALL begins to be written, which takes as long as its agent leaves it waiting.
func (a *attempt) noteCalling(size int) {
	p := &a.progress
	p.mu.Lock()
	defer p.mu.Unlock()
	p.called, p.size, p.ahead = time.Now(), int64(size), a.s.unanswered.Add(int64(size))
}

// noteCalled notes that CALL was written.
func (a *attempt) noteCalled() {
	p := &a.progress
	p.mu.Lock()
	defer p.mu.Unlock()
	p.called, p.ahead, p.wrote = time.Now(), a.s.unanswered.Load(), true
}

// noteAnswered notes that the call, if it was one, is answered, or will not be.
func (a *attempt) noteAnswered() {
	p := &a.progress
	p.mu.Lock()
	defer p.mu.Unlock()
	a.s.unanswered.Add(-p.size)
	p.size = 0
}

// noteAsked notes that the end is owed.
func (p *progress) noteAsked() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.asked.IsZero() {
		p.asked = time.Now()
	}
}

// noteBegun notes the start.
func (p *progress) noteBegun() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.begun.IsZero() {
		p.begun = time.Now()
	}
}

// noteStopping notes STOPPING.
func (p *progress) noteStopping(stops, left bool) {
	if stops {
		p.noteAsked()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.left = left
}

// noteBusy notes that a frame is being handled, or has been: what comes behind it waits.
func (p *progress) noteBusy(busy bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.busy, p.heard = busy, time.Now()
}

// isUnanswered reports whether it should be known by now whether a call has started. Until since the answer
// could not be taken; while CALL is being written, others that begin to be share the line with it.
func (p *progress) isUnanswered(since time.Time, unanswered int64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.size == 0 || p.busy {
		return false
	}
	from := p.called
	if since.After(from) {
		from = since
	}
	if !p.wrote {
		p.ahead = max(p.ahead, unanswered) // it becomes less as those before it are answered, for which it has waited
	}
	return time.Since(from) > answerTime+time.Duration(p.ahead/transport.SlowLine)*time.Second
}

// markOverdue reports, once, whether an end was owed before a time, by its limits or as it was asked for. Where
// something still comes it has longer.
func (p *progress) markOverdue(job *store.Job, before time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	isQuiet := time.Since(p.heard) > overdueEvery
	switch {
	case p.lost || p.left, p.begun.IsZero() && (p.asked.IsZero() || !p.called.IsZero()):
		return false
	case p.busy && isQuiet: // it is the dispatcher that is slow: the end may have come
		return false
	case !isQuiet:
		before = before.Add(-spoolTime)
	}
	p.lost = isOver(p.begun, job.MaxExecTime, before) || !p.begun.IsZero() && isOver(p.heard, job.SilenceTimeout, before) || isOver(p.asked, 0, before)
	return p.lost
}

// isOver reports whether a limit that began at from was over before a time.
func isOver(from time.Time, limit time.Duration, before time.Time) bool {
	return !from.IsZero() && limit != harp.NoLimit && before.Sub(from) > limit
}

// overdueLoop looks what agents owe that are connected.
func (d *Dispatcher) overdueLoop() {
	tick := time.NewTicker(overdueEvery)
	defer tick.Stop()
	since := time.Now() // from when on the dispatcher could take whatever came
	for {
		select {
		case <-d.ctx.Done():
			return
		case <-tick.C:
		}
		if d.store.Space() < store.SpacePlenty {
			since = time.Now()
		}
		for _, s := range d.hosts.sessions() {
			s.endOverdue(since)
		}
	}
}

// endOverdue ends the session when a call is not answered, or is not let in while others need its room: what became of that is found out in
// the next one. An attempt whose end does not come is given up. The time in which the
// dispatcher could not take what came does not count: it was over at since.
func (s *session) endOverdue(since time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing {
		return
	}
	if s.d.ofAgents.IsAwaited() && s.tr.StuckFor() >= deafTime {
		s.attempts.Go(func() { s.tr.Close(errDeaf) })
		return
	}
	owed := time.Now().Add(-max(s.d.cfg.LostAfter, leastWait))
	for _, a := range s.live {
		switch {
		case a.progress.isUnanswered(since, s.unanswered.Load()):
			s.attempts.Go(func() { s.tr.Close(fmt.Errorf("job %s: %w", a.job.ID, errUnanswered)) })
			return
		case owed.After(since) && store.HoldsSlot(a.job.State) && a.progress.markOverdue(a.job, owed):
			s.attempts.Go(a.giveUp)
		}
	}
}

// errUnanswered ends a session whose agent does not say what became of a call.
var errUnanswered = errors.New("its agent does not answer the call")

// errDeaf ends a session whose agent holds the room that others need.
var errDeaf = errors.New("its agent does not let a call in, and others wait for room")

// giveUp ends an attempt that should long be over as lost. Its agent is told to stop it: another
// attempt, if one follows, waits for its end, or for a session in which it is not found alive.
func (a *attempt) giveUp() {
	e := a.s.d.newEvent(a.job, store.Lose)
	e.Reason = harp.LostTooLong
	e.Text = "its agent is connected and has not said how it ended, long after it should have"
	if err := a.applyEvent(a.s.d.ctx, e); err != nil {
		if a.s.d.ctx.Err() == nil {
			a.s.d.log.Error("give up an attempt", "job", a.job.ID, "err", err)
		}
		return
	}
	a.s.d.repeated.Warn(a.s.host.name, "an attempt is given up: its agent is connected and has not said how it ended, long after it should have", "host", a.s.host.name, "job", a.job.ID)
	a.requestCancel(harp.Principal{Kind: "dispatcher", Name: a.s.d.name}, false)
}

// elapsed is how long an attempt has run, and since its end is owed, while its host was connected. The
// time between sessions does not count: the host may have stood still.
type elapsed struct {
	number     int
	ran, asked time.Duration // 0: it did not; it is not
	begun      bool          // its agent has given a sign that it started, which may not be stored
}

// elapsed is what an attempt leaves to that of the next session.
func (p *progress) elapsed(number int) elapsed {
	p.mu.Lock()
	defer p.mu.Unlock()
	e := elapsed{number: number}
	if !p.begun.IsZero() {
		e.ran = time.Since(p.begun)
	}
	if !p.asked.IsZero() {
		e.asked = time.Since(p.asked)
	}
	return e
}

// resume begins with what an earlier session has left. over: the end is owed, says the agent.
func (p *progress) resume(e elapsed, alive, over bool) {
	now := time.Now()
	p.heard = now
	if alive || e.ran > 0 {
		p.begun = now.Add(-e.ran)
	}
	if over || e.asked > 0 {
		p.asked = now.Add(-e.asked)
	}
}
