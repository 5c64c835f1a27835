package store

import (
	"fmt"
	"maps"
	"time"

	"github.com/harpcaller/harp"
)

// BatchPlan is how a batch goes through its hosts. It never changes.
type BatchPlan struct {
	Waves        []int         `msgpack:"waves"`                   // how many hosts have been reached when each wave is over, ascending; the last: all
	WavePause    time.Duration `msgpack:"wave_pause,omitempty"`    // between two waves
	Approve      bool          `msgpack:"approve,omitempty"`       // somebody has to resume the batch after each wave but the last
	ApproveFirst bool          `msgpack:"approve_first,omitempty"` // and before its first host is reached
	Parallel     int           `msgpack:"parallel"`                // how many members hold a slot of the batch at most
	Rate         int           `msgpack:"rate,omitempty"`          // how many hosts are reached at most
	RatePer      time.Duration `msgpack:"rate_per,omitempty"`      // within this; with Rate
	StopAfter    int           `msgpack:"stop_after,omitempty"`    // with so many failures it stops; 0: never
	StopCancel   bool          `msgpack:"stop_cancel,omitempty"`   // a stop cancels it, rather than to pause it
	MaxPause     time.Duration `msgpack:"max_pause"`               // a batch that is paused for longer is cancelled
	StartAfter   time.Time     `msgpack:"start_after,omitempty"`   // no host is reached before it
}

// hosts is how many hosts the batch has.
func (p *BatchPlan) hosts() int { return p.Waves[len(p.Waves)-1] }

// MemberCounts is how many members of a batch are in each state. Those of hosts that are not
// reached, or were skipped, are in none.
type MemberCounts struct {
	Queued     int `msgpack:"queued,omitempty"`
	Sent       int `msgpack:"sent,omitempty"`
	Running    int `msgpack:"running,omitempty"`
	Cancelling int `msgpack:"cancelling,omitempty"`
	Unknown    int `msgpack:"unknown,omitempty"`

	Succeeded int `msgpack:"succeeded,omitempty"`
	Failed    int `msgpack:"failed,omitempty"`
	TimedOut  int `msgpack:"timed_out,omitempty"`
	Cancelled int `msgpack:"cancelled,omitempty"`
	Expired   int `msgpack:"expired,omitempty"`
	Rejected  int `msgpack:"rejected,omitempty"`
	Lost      int `msgpack:"lost,omitempty"`
}

// in is the count of one state; nil for a word that is none.
func (c *MemberCounts) in(s harp.State) *int {
	switch s {
	case harp.StateQueued:
		return &c.Queued
	case harp.StateSent:
		return &c.Sent
	case harp.StateRunning:
		return &c.Running
	case harp.StateCancelling:
		return &c.Cancelling
	case harp.StateUnknown:
		return &c.Unknown
	case harp.StateSucceeded:
		return &c.Succeeded
	case harp.StateFailed:
		return &c.Failed
	case harp.StateTimedOut:
		return &c.TimedOut
	case harp.StateCancelled:
		return &c.Cancelled
	case harp.StateExpired:
		return &c.Expired
	case harp.StateRejected:
		return &c.Rejected
	case harp.StateLost:
		return &c.Lost
	default:
		return nil
	}
}

// Add counts so many more members in a state.
func (c *MemberCounts) Add(s harp.State, n int) {
	if in := c.in(s); in != nil {
		*in += n
	}
}

// In returns how many members are in a state.
func (c MemberCounts) In(s harp.State) int {
	if n := c.in(s); n != nil {
		return *n
	}
	return 0
}

// ByState is how many members are in each state in which there are some.
func (c MemberCounts) ByState() map[harp.State]int {
	counts := map[harp.State]int{}
	for _, s := range []harp.State{
		harp.StateQueued, harp.StateSent, harp.StateRunning, harp.StateCancelling, harp.StateUnknown,
		harp.StateSucceeded, harp.StateFailed, harp.StateTimedOut, harp.StateCancelled, harp.StateExpired, harp.StateRejected, harp.StateLost,
	} {
		if n := c.In(s); n > 0 {
			counts[s] = n
		}
	}
	return counts
}

// Unended is how many members have not ended.
func (c MemberCounts) Unended() int {
	return c.Queued + c.Sent + c.Running + c.Cancelling + c.Unknown
}

// lost is the counts when all that have not ended are lost.
func (c MemberCounts) lost() MemberCounts {
	c.Lost += c.Unended()
	c.Queued, c.Sent, c.Running, c.Cancelling, c.Unknown = 0, 0, 0, 0, 0
	return c
}

// All is how many members there are.
func (c MemberCounts) All() int {
	return c.Unended() + c.Succeeded + c.Failed + c.TimedOut + c.Cancelled + c.Expired + c.Rejected + c.Lost
}

// BatchLife is where a batch is between submission and end. It changes only through
// [BatchLife.Next].
type BatchLife struct {
	State    harp.BatchState     `msgpack:"state"`
	Reason   string              `msgpack:"reason,omitempty"` // of the state: one of harp.BatchReason...
	Since    time.Time           `msgpack:"since,omitempty"`  // when it came into its state
	Wave     int                 `msgpack:"wave"`             // whose hosts are being reached, from 1
	Reached  int                 `msgpack:"reached,omitempty"`
	Early    int                 `msgpack:"early,omitempty"`    // hosts not reached whose members were cancelled
	Counts   MemberCounts        `msgpack:"counts"`             // of the hosts reached that were not skipped, and of the early
	Marked   MemberCounts        `msgpack:"marked,omitempty"`   // of those, what waits or runs, is cancelled with its queue, and whose rows do not say so yet
	Skipped  map[string]int      `msgpack:"skipped,omitempty"`  // hosts reached that were left out, by reason
	Failures int                 `msgpack:"failures,omitempty"` // members that did not succeed and were not cancelled, since the batch was resumed last
	Stopped  string              `msgpack:"stopped,omitempty"`  // why it was ended early, other than by a cancel: failures, stopped, restored, approval, not_approved
	WakeAt   time.Time           `msgpack:"wake,omitempty"`     // no host is reached before it: between two waves
	Rated    int                 `msgpack:"rated,omitempty"`    // hosts reached since RatedAt
	RatedAt  time.Time           `msgpack:"rated_at,omitempty"` // when the span of Rate that is under way began
	Pause    *harp.BatchPause    `msgpack:"pause,omitempty"`
	Cancel   *harp.CancelRequest `msgpack:"cancel,omitempty"`
	OverAt   time.Time           `msgpack:"over,omitempty"` // since then its members are cancelled, and no host is reached any more
	EndTime  time.Time           `msgpack:"end,omitempty"`
	Class    uint32              `msgpack:"class,omitempty"`   // of one that has ended: its RetentionClass
	Counted  int64               `msgpack:"counted,omitempty"` // what its members that have ended store, about; in the end, it as a whole
}

// CancelOfMembers is what happens to the members of a batch that is cancelled. It is the same however
// often, and by whomever, the batch is cancelled again.
func (l *BatchLife) CancelOfMembers() Event {
	e := Event{Kind: CancelReq, At: l.OverAt, Reason: harp.ReasonBatch}
	if l.Cancel == nil {
		return e
	}
	switch l.Stopped {
	case "", harp.BatchReasonRestored, harp.BatchReasonNotApproved:
		e.By = l.Cancel.By
	}
	return e
}

// IsOver reports whether the batch reaches no more hosts.
func (l *BatchLife) IsOver() bool { return l.State == harp.BatchCancelling || l.State.Ended() }

// BeginBatch is the life of a batch that was just submitted.
func BeginBatch(p *BatchPlan, at time.Time) BatchLife {
	l := BatchLife{State: harp.BatchRunning, Since: at, Wave: 1}
	if p.ApproveFirst {
		l = l.paused(p, harp.BatchReasonApproval, harp.BatchPause{Time: at})
	}
	return l
}

// BatchEventKind names what can happen to a batch.
type BatchEventKind string

// The events.
const (
	MemberReached   BatchEventKind = "reached"   // a host was reached: its member is in To
	MemberSkipped   BatchEventKind = "skipped"   // a host was reached and is left out: Reason
	MemberCancelled BatchEventKind = "cancelled" // a member was cancelled before its host was reached
	MemberPassed    BatchEventKind = "passed"    // the host of such a member was reached
	MemberMarked    BatchEventKind = "marked"    // a member in From is cancelled with its queue, which its row does not say yet
	MemberMoved     BatchEventKind = "moved"     // a member came From one state To another; Marked: it was marked
	BatchSettled    BatchEventKind = "settled"   // an operation, or time, has done all that it does: what follows is due
	BatchPaused     BatchEventKind = "pause"     // By asked for it; Reason
	BatchResumed    BatchEventKind = "resume"
	BatchCancel     BatchEventKind = "cancel" // By asked for it
	BatchRestored   BatchEventKind = "restored"
)

// BatchEvent is one thing that happened to a batch. Which fields count depends on Kind.
type BatchEvent struct {
	Kind     BatchEventKind
	At       time.Time // the dispatcher's clock
	From, To harp.State
	Marked   bool
	Reason   string
	By       harp.Principal
	Wave     int // of BatchResumed: the one that it approves, and no other pause; 0: whatever the batch is paused for
}

// Next is the life of a batch: what it is after an event. It is pure: no clock, no input or output,
// and l is not changed; with an error it is returned as it is. Errors: ErrIllegal for what cannot
// follow in this state.
func (l BatchLife) Next(p *BatchPlan, e BatchEvent) (BatchLife, error) {
	next, ok := l.step(p, e)
	if !ok {
		return l, fmt.Errorf("%w: %s of a batch in %s", ErrIllegal, e.Kind, l.State)
	}
	if next.State != l.State || next.Wave != l.Wave {
		next.Since = e.At
	}
	if next.IsOver() && !l.IsOver() && (next.State == harp.BatchCancelling || next.Reached < p.hosts()) {
		next.OverAt = e.At
	}
	return next, nil
}

func (l BatchLife) step(p *BatchPlan, e BatchEvent) (BatchLife, bool) {
	if l.State.Ended() {
		return l, e.Kind == BatchSettled
	}
	switch e.Kind {
	case MemberReached:
		return l.reached(p, e).counted("", e.To), l.MayReach(p, e.At) && l.Reached+l.Early < p.hosts()
	case MemberSkipped:
		l.Skipped = maps.Clone(l.Skipped)
		if l.Skipped == nil {
			l.Skipped = map[string]int{}
		}
		l.Skipped[e.Reason]++
		return l.reached(p, e), l.MayReach(p, e.At) && l.Reached+l.Early < p.hosts()
	case MemberCancelled:
		l.Early++
		return l.counted("", harp.StateCancelled), !l.IsOver() && l.Reached+l.Early <= p.hosts()
	case MemberPassed:
		l.Early--
		return l.reached(p, e), l.MayReach(p, e.At) && l.Early >= 0
	case MemberMarked:
		marked := l.Marked.in(e.From)
		if marked == nil || *marked >= l.Counts.In(e.From) {
			return l, false
		}
		*marked++
		return l, true
	case MemberMoved:
		are := l.Counts.In(e.From)
		if n := l.Marked.in(e.From); n != nil {
			if e.Marked {
				*n--
			}
			*n = max(0, min(*n, are-1))
		}
		return l.counted(e.From, e.To).stoppedByFailures(p, e.At), are > 0
	case BatchSettled:
		return l.settled(p, e.At), true
	case BatchPaused:
		return l.pausedBy(p, e), l.State != harp.BatchCancelling
	case BatchResumed:
		return l.resumed(), l.State != harp.BatchCancelling && (e.Wave == 0 || l.mayApprove(e.Wave))
	case BatchCancel:
		return l.cancelRequested(e), true
	case BatchRestored:
		if !l.IsOver() { // else members that were not reached have ended by that
			l.Stopped = harp.BatchReasonRestored
		}
		l.Counts, l.Marked = l.Counts.lost(), MemberCounts{} // its members have ended, as far as they could be read
		return l.ended(e.At, harp.BatchFailed, harp.BatchReasonRestored), true
	default:
		return l, false
	}
}

// MayReach reports whether the next host may be reached, as far as the batch decides that.
func (l BatchLife) MayReach(p *BatchPlan, at time.Time) bool {
	return l.mayGoOn(p) && !at.Before(l.nextReach(p))
}

// mayGoOn reports whether nothing but time keeps the batch from the next host.
func (l BatchLife) mayGoOn(p *BatchPlan) bool {
	return l.State == harp.BatchRunning && l.Reached < p.Waves[l.Wave-1]
}

// nextReach is when time allows the next host; the zero time if it does already.
func (l BatchLife) nextReach(p *BatchPlan) time.Time {
	at := p.StartAfter
	if l.WakeAt.After(at) {
		at = l.WakeAt
	}
	if span := l.RatedAt.Add(p.RatePer); p.Rate > 0 && l.Rated >= p.Rate && span.After(at) {
		at = span
	}
	return at
}

// NextDue is when time alone makes something due: another host, or the end of a pause; the zero
// time if nothing does.
func (l BatchLife) NextDue(p *BatchPlan) time.Time {
	switch {
	case l.State == harp.BatchPaused:
		return l.Pause.Until
	case l.mayGoOn(p):
		return l.nextReach(p)
	default:
		return time.Time{}
	}
}

// Shown is the life as it is shown: members that are cancelled with the batch or with their queue count as
// that, though rows of some do not say so yet. Until they do so does a host of a chain an earlier step of which
// had failed.
func (l BatchLife) Shown() BatchLife {
	c, stop := &l.Counts, l.Marked
	if l.State == harp.BatchCancelling {
		stop = l.Counts
	}
	c.Queued, c.Cancelled = c.Queued-stop.Queued, c.Cancelled+stop.Queued
	c.Sent, c.Running, c.Cancelling = c.Sent-stop.Sent, c.Running-stop.Running, c.Cancelling+stop.Sent+stop.Running
	l.Marked = MemberCounts{}
	return l
}

// ClockSet is the life by a clock that was set forward by so much, or back: of what lasts a time as
// much is left as before.
func (l BatchLife) ClockSet(by time.Duration) BatchLife {
	times := []*time.Time{&l.WakeAt, &l.RatedAt}
	if l.Pause != nil {
		pause := *l.Pause
		l.Pause = &pause
		times = append(times, &pause.Until)
	}
	for _, t := range times {
		if !t.IsZero() {
			*t = t.Add(by)
		}
	}
	return l
}

func (l BatchLife) reached(p *BatchPlan, e BatchEvent) BatchLife {
	l.Reached++
	if p.Rate == 0 {
		return l
	}
	if l.RatedAt.IsZero() || !e.At.Before(l.RatedAt.Add(p.RatePer)) {
		l.Rated, l.RatedAt = 0, e.At
	}
	l.Rated++
	return l
}

// counted moves a member from one state to another; from "": it is new.
func (l BatchLife) counted(from, to harp.State) BatchLife {
	if n := l.Counts.in(from); n != nil {
		*n--
	}
	if n := l.Counts.in(to); n != nil {
		*n++
	}
	if isFailure(to) {
		l.Failures++
	}
	return l
}

// isFailure reports whether a member that ended like this counts for StopAfter.
func isFailure(s harp.State) bool {
	switch s {
	case harp.StateFailed, harp.StateTimedOut, harp.StateLost, harp.StateRejected, harp.StateExpired:
		return true
	default:
		return false
	}
}

func (l BatchLife) skipped() (n int) {
	for _, skipped := range l.Skipped {
		n += skipped
	}
	return n
}

// stoppedByFailures is a batch that stops if there were too many: at once, before anything is started by
// the end of the one that failed.
func (l BatchLife) stoppedByFailures(p *BatchPlan, at time.Time) BatchLife {
	switch {
	case l.State != harp.BatchRunning || p.StopAfter == 0 || l.Failures < p.StopAfter:
		return l
	case p.StopCancel:
		return l.stopped(harp.BatchReasonFailures)
	default:
		return l.paused(p, harp.BatchReasonFailures, harp.BatchPause{Time: at})
	}
}

// settled is what follows of what has happened: a wave gives way to the next, the last member's end is
// that of the batch, and a pause is not for ever.
func (l BatchLife) settled(p *BatchPlan, at time.Time) BatchLife {
	switch {
	case l.State != harp.BatchPaused || at.Before(l.Pause.Until):
	case l.isUnapproved():
		l = l.stopped(harp.BatchReasonApproval)
	default:
		l = l.stopped(harp.BatchReasonStopped)
	}
	if l.Counts.Unended() > 0 {
		return l
	}
	switch isLast := l.Reached == p.hosts(); {
	case isLast || l.State == harp.BatchCancelling:
		state, reason := l.outcome(p)
		return l.ended(at, state, reason)
	case l.State == harp.BatchRunning && l.Reached == p.Waves[l.Wave-1]:
		l.Wave++
		if p.Approve {
			return l.paused(p, harp.BatchReasonWave, harp.BatchPause{Time: at})
		}
		if p.WavePause > 0 {
			l.WakeAt = at.Add(p.WavePause)
		}
	}
	return l
}

// outcome is how a batch ends of which no member is under way.
func (l BatchLife) outcome(p *BatchPlan) (harp.BatchState, string) {
	skipped := l.skipped()
	switch {
	case skipped == p.hosts():
		return harp.BatchFailed, harp.BatchReasonNoHost
	case skipped+l.Counts.Succeeded == p.hosts():
		return harp.BatchSucceeded, ""
	case l.Stopped == harp.BatchReasonApproval, l.Stopped == harp.BatchReasonNotApproved:
		return harp.BatchCancelled, l.Stopped
	case l.Stopped != "":
		return harp.BatchFailed, l.Stopped
	case l.State == harp.BatchPaused && l.Reason == harp.BatchReasonFailures:
		return harp.BatchFailed, l.Reason
	case l.Cancel != nil:
		return harp.BatchCancelled, harp.BatchReasonRequested
	default:
		return harp.BatchFailed, ""
	}
}

func (l BatchLife) ended(at time.Time, state harp.BatchState, reason string) BatchLife {
	l.State, l.Reason, l.EndTime = state, reason, at
	l.WakeAt, l.Pause = time.Time{}, nil
	return l
}

// stopped is a batch that harp ends early.
func (l BatchLife) stopped(why string) BatchLife {
	l.State, l.Reason, l.Stopped = harp.BatchCancelling, why, why
	l.WakeAt, l.Pause = time.Time{}, nil
	return l
}

// isUnapproved reports whether the batch waits for somebody to approve its beginning.
func (l BatchLife) isUnapproved() bool {
	return l.State == harp.BatchPaused && l.Reason == harp.BatchReasonApproval
}

func (l BatchLife) paused(p *BatchPlan, why string, pause harp.BatchPause) BatchLife {
	pause.Until = pause.Time.Add(p.MaxPause)
	l.State, l.Reason, l.Pause = harp.BatchPaused, why, &pause
	return l
}

// pausedBy is a batch that somebody has paused. One that is paused for something else waits for that still, and is
// theirs to resume; one that somebody has paused stays as it is.
func (l BatchLife) pausedBy(p *BatchPlan, e BatchEvent) BatchLife {
	why := harp.BatchReasonOperator
	if l.State == harp.BatchPaused {
		if why = l.Reason; why == harp.BatchReasonOperator || l.Pause.By != (harp.Principal{}) {
			return l
		}
	}
	return l.paused(p, why, harp.BatchPause{By: e.By, Reason: e.Reason, Time: e.At})
}

// resumed is a batch that goes on, after what is left of the time between two waves. Failures count anew
// from here.
func (l BatchLife) resumed() BatchLife {
	if l.State != harp.BatchPaused {
		return l
	}
	l.State, l.Reason, l.Pause, l.Failures = harp.BatchRunning, "", nil, 0
	return l
}

// mayApprove reports whether a wave waits for its approval, and for nothing else, or has it and is under way.
func (l BatchLife) mayApprove(wave int) bool {
	waits := l.Reason == harp.BatchReasonWave || l.Reason == harp.BatchReasonApproval
	return l.Wave == wave && (l.State == harp.BatchRunning || waits && l.Pause.By == (harp.Principal{}))
}

func (l BatchLife) cancelRequested(e BatchEvent) BatchLife {
	if l.Cancel == nil {
		l.Cancel = &harp.CancelRequest{By: e.By, Time: e.At}
	}
	switch {
	case l.isUnapproved():
		return l.stopped(harp.BatchReasonNotApproved)
	case l.State != harp.BatchCancelling:
		l.State, l.Reason = harp.BatchCancelling, harp.BatchReasonRequested
		l.WakeAt, l.Pause = time.Time{}, nil
	}
	return l
}
