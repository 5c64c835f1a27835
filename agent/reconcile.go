package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/harpcaller/harp/agent/internal/life"
	"github.com/harpcaller/harp/agent/journal"
	"github.com/harpcaller/harp/internal/wire"
)

// keepUnknown is how long what has ended is kept for the dispatcher it is of, when
// another one knows nothing of it, and has said so.
const keepUnknown = 7 * 24 * time.Hour

// journalInfo is what is journalled of an attempt beside its name, for those who
// come after a restart.
type journalInfo struct {
	Store          string `msgpack:"store,omitempty"` // of the dispatcher it is from
	Procedure      string `msgpack:"proc"`
	Supervised     bool   `msgpack:"sup,omitempty"` // it goes on without the agent
	Command        bool   `msgpack:"cmd,omitempty"` // what runs is no function
	Grace          int64  `msgpack:"grace,omitempty"`
	Ends           string `msgpack:"ends,omitempty"` // how, beside an end of its own: see endsReboot
	Boot           string `msgpack:"boot,omitempty"`
	Dir            int64  `msgpack:"dir,omitempty"` // the number of the agent's directory; a copy has another
	SilenceTimeout int64  `msgpack:"timeout,omitempty"`
	MaxExecTime    int64  `msgpack:"maxexec,omitempty"`
	Fence          int64  `msgpack:"fence,omitempty"` // only where the journal does not say it
	Spool          int64  `msgpack:"spool,omitempty"` // bytes that a command may keep beside the journal
	Reduced        bool   `msgpack:"red,omitempty"`   // nothing is left of it but that it was started, which its own dispatcher may not know
}

// rebooted reports whether the machine has booted anew since, which is how the procedure ends.
func (i journalInfo) rebooted() bool { return i.Ends == endsReboot && bootedSince(i.Boot) }

// isOf reports whether the attempt is of the dispatcher with a store.
func (at *attempt) isOf(store string) bool {
	at.mu.Lock()
	defer at.mu.Unlock()
	return at.store == store
}

// storeID is the store of the attempt's dispatcher.
func (at *attempt) storeID() string {
	at.mu.Lock()
	defer at.mu.Unlock()
	return at.store
}

// isUp reports whether the dispatcher of the attempt has a session.
func (at *attempt) isUp() bool {
	at.mu.Lock()
	defer at.mu.Unlock()
	return at.isUpLocked()
}

func (at *attempt) isUpLocked() bool {
	up := at.agent.up.Load()
	return up != nil && *up == at.store
}

// journalInfo is that of the attempt.
func (at *attempt) journalInfo() []byte {
	info := journalInfo{
		Store: at.store, Procedure: at.info.Procedure, Boot: bootID(), Dir: at.agent.dirNumber, Supervised: at.task.survives(),
		SilenceTimeout: int64(at.info.SilenceTimeout), MaxExecTime: int64(at.info.MaxExecTime),
	}
	if r := at.task.cmd; r != nil {
		info.Command, info.Grace, info.Spool = true, int64(r.spec.Grace), r.spec.MaxSpool
		if r.endsReboot {
			info.Ends = endsReboot
		}
	}
	return wire.Encode(info)
}

// supervisedInfo is what an agent is to know that finds the attempt's supervisor, and nothing
// of it in its journal.
func (at *attempt) supervisedInfo() []byte {
	var info journalInfo
	_ = wire.Decode(at.journalInfo(), &info) // it was encoded here
	info.Fence = at.fence
	return wire.Encode(info)
}

// infoOf is what was journalled of an attempt; what cannot be read is empty.
func infoOf(h journal.Held) journalInfo {
	var info journalInfo
	_ = wire.Decode(h.Info, &info)
	return info
}

// lookup returns the attempt called k, from the journal if it is there only; nil if
// there is none.
func (a *Agent) lookup(k key) *attempt {
	if k.origin != "" {
		return a.attempts.find(k)
	}
	return a.attempts.recover(k, func() *attempt {
		j := a.journal.current()
		if j == nil {
			return nil
		}
		h, is := j.Get(k.journal())
		if !is || h.State == journal.Accepted {
			return nil
		}
		return recovered(a, k, j, h)
	})
}

// hasForgotten reports whether there is nothing but a tombstone of an attempt.
func (a *Agent) hasForgotten(k key) bool {
	j := a.journal.current()
	return k.origin == "" && j != nil && j.State(k.journal()) == journal.Forgotten
}

// recovered is an attempt of which nothing but the journal is left. Without an END
// there it ended with its process.
func recovered(a *Agent, k key, j *journal.Journal, h journal.Held) *attempt {
	at := newAttempt(a, k, new(expectation))
	at.recall(j, h)
	p := pastOf(h)
	p.Phase = life.Gone
	if h.State == journal.Ended {
		p.Phase = life.Ended
	}
	if h.State == journal.Ended && h.Spooled < h.Records {
		_, p.Lacks, _ = endOf(j, h.Key) // that it cannot be read is found out when it is told
	}
	at.life = life.Recall(p)
	at.begun.fire()
	at.returned.fire()
	return at
}

// recall makes an attempt what the journal has of it beside its life.
func (at *attempt) recall(j *journal.Journal, h journal.Held) {
	at.fence, at.store, at.started, at.spool.journal = h.Fence, infoOf(h).Store, h.Started, j
}

// pastOf is what the journal has of an attempt's life.
func pastOf(h journal.Held) life.Past {
	p := life.Past{Phase: life.Running, Started: h.Started.UnixNano(), Records: h.Records, Acked: h.Acked, Bare: h.Dropped}
	if h.Stop != nil {
		p.Stopping = &wire.Stopping{Cause: h.Stop.Cause, Since: h.Stop.Since.UnixNano(), Limit: int64(h.Stop.Limit)}
	}
	return p
}

// awaitBegun waits until it is known of each attempt whether it begins. What an earlier session was asked to start may
// be refused yet: to be told that it is alive, and later that it is not there, is what a dispatcher is told by a
// journal that was set back.
func (s *session) awaitBegun(ctx context.Context) error {
	for _, at := range s.agent.attempts.held() {
		select {
		case <-at.begun.done():
		case <-s.transport.Done():
			return s.transport.Err()
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// sendHeld sends, in pages, every attempt that the agent holds, by the journal that HELLO named, and how many
// calls it has taken: at least as many as any END has told, as no older session is left. The error says why that is
// not known.
func (s *session) sendHeld(j *journal.Journal) error {
	taken := takenBy(j, s.store)
	list, err := s.agent.held(j, s.store) // fails also if what was taken was told by another journal
	if err != nil {
		return err
	}
	var page wire.Held
	for _, h := range list {
		if len(page.Attempts) == pageAttempts {
			s.send(wire.TypeHeld, page)
			page = wire.Held{}
		}
		page.Attempts = append(page.Attempts, h)
	}
	page.Last, page.Taken = true, taken
	s.send(wire.TypeHeld, page)
	return nil
}

// held lists every attempt of dispatchers, by job and number: what a journal says,
// except of those that are here, which know better. A journal that broke may have
// more on disk than it says, also when another is open in its place: the error is its own. What was
// reduced is listed for the dispatcher that it is of: else that would take it for never started.
func (a *Agent) held(j *journal.Journal, store string) ([]wire.HeldAttempt, error) {
	var list []wire.HeldAttempt
	here := map[journal.Key]bool{}
	for _, at := range a.attempts.held() {
		if at.hasLeft() {
			continue
		}
		list = append(list, at.heldAs())
		here[at.key.journal()] = true
	}
	for _, h := range j.Held() {
		if here[h.Key] || h.State == journal.Accepted {
			continue
		}
		info := infoOf(h)
		if info.Reduced && info.Store != store {
			a.keepUnknown(h.Key, stranger{info.Store, h.Started, true})
			continue
		}
		list = append(list, heldAs(h, info))
	}
	slices.SortFunc(list, func(a, b wire.HeldAttempt) int {
		return cmp.Or(cmp.Compare(a.Job, b.Job), cmp.Compare(a.Attempt, b.Attempt))
	})
	return list, j.Err()
}

// heldAs is what is said of the attempt in reconciliation.
func (at *attempt) heldAs() wire.HeldAttempt {
	now := at.look()
	h := now.Held()
	h.Job, h.Attempt, h.Fence = at.key.job, at.key.number, at.fence
	return h
}

// heldAs is what is said of an attempt that is in the journal only.
func heldAs(h journal.Held, info journalInfo) wire.HeldAttempt {
	state := wire.HeldGone
	if h.State == journal.Ended && !info.Reduced { // as of its END nothing is left
		state = wire.HeldEnded
	}
	return wire.HeldAttempt{
		Job: h.Job, Attempt: h.Attempt, State: state,
		Fence: h.Fence, Records: h.Records, Acked: h.Acked,
	}
}

// reconcile hears which of them nobody will ask for again.
func (s *session) reconcile(ctx context.Context) error {
	for {
		var m wire.Forget
		if err := s.receive(ctx, wire.TypeForget, &m); err != nil {
			return err
		}
		s.forget(m)
		if m.Last {
			return nil
		}
	}
}

// forget gives up attempts nobody will ask for again. One that runs goes on, to its
// limits or to the end of the agent. What is another dispatcher's is kept for that.
func (s *session) forget(m wire.Forget) {
	for _, h := range m.Attempts {
		k := key{job: h.Job, number: h.Attempt}
		at := s.agent.attempts.find(k)
		switch {
		case at == nil:
			s.forgetJournalled(k.journal())
		case !at.isOf(s.store):
			s.warn("the dispatcher does not know an attempt of another one, which is kept for that", "job", h.Job, "attempt", h.Attempt)
			s.agent.keepUnknown(k.journal(), stranger{store: at.storeID(), ended: time.Now()})
		case !at.hasEnded():
			s.warn("the dispatcher does not know an attempt that runs: it runs on, and is forgotten then", "job", h.Job, "attempt", h.Attempt)
			at.abandon()
		default:
			at.abandon()
		}
	}
}

// forgetJournalled forgets an attempt that is in the journal only. What is another dispatcher's is
// kept for a while.
func (s *session) forgetJournalled(k journal.Key) {
	j := s.agent.journal.current()
	if j == nil {
		return
	}
	h, is := j.Get(k)
	if !is {
		return // what was never here leaves no trace
	}
	switch info := infoOf(h); {
	case info.Store == s.store:
		_ = j.Forget(k) // else it is listed and forgotten once more
	case info.Reduced:
		return
	default:
		ended, strange := endTime(j, h), s.agent.strangeSince(k)
		keep := time.Since(ended) < keepUnknown || time.Since(strange) < keepUnknown
		s.warn("the dispatcher does not know an attempt of another one", "job", k.Job, "attempt", k.Attempt, "ended", ended, "kept", keep)
		if !keep {
			_ = reduce(j, h) // else it is listed and reduced once more
		}
		if s.agent.keepUnknown(k, stranger{info.Store, ended, !keep}); keep {
			return
		}
	}
	s.agent.attempts.vacate()
	s.agent.attempts.lookIdle()
}

// reduce leaves of an attempt no more than that it was started, for its own dispatcher: that may be away for long, not
// know that it was, and send it again or say that it was not.
func reduce(j *journal.Journal, h journal.Held) error {
	was := infoOf(h)
	info := journalInfo{Store: was.Store, Procedure: was.Procedure, Reduced: true} // nothing of it is to be adopted
	gone := &wire.End{Gone: true, Started: &wire.Started{Time: h.Started.UnixNano()}}
	return j.Reduce(h.Key, wire.Encode(info), encodeEnd(gone, nil))
}

// endTime is about when an attempt ended.
func endTime(j *journal.Journal, h journal.Held) time.Time {
	if h.State == journal.Ended {
		if end, _, err := endOf(j, h.Key); err == nil {
			return h.Started.Add(time.Duration(end.RanFor))
		}
	}
	return h.Started
}

// strangeSince is since when this agent has known that another dispatcher than an attempt's own does
// not know it, by a clock that nobody sets: when it ended is known by one that may have been wrong.
func (a *Agent) strangeSince(k journal.Key) time.Time {
	a.mu.Lock()
	defer a.mu.Unlock()
	since, is := a.strange[k]
	if !is {
		since = time.Now()
		a.strange[k] = since
	}
	return since
}

// dropStrangers forgets since when attempts are strange that the journal does not have any more.
func (a *Agent) dropStrangers() {
	j := a.journal.current()
	a.mu.Lock()
	defer a.mu.Unlock()
	maps.DeleteFunc(a.strange, func(k journal.Key, _ time.Time) bool { return j != nil && !isHeld(j.State(k)) })
}

func isHeld(s journal.State) bool { return s != journal.Absent && s != journal.Forgotten }

// stranger is an attempt of another dispatcher than the current one: when it ended, and whether it was reduced.
type stranger struct {
	store   string
	ended   time.Time
	reduced bool
}

// keepUnknown notes an attempt that is kept until it has ended and the space is needed.
func (a *Agent) keepUnknown(k journal.Key, is stranger) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.unknown[k] = is
}

// makeRoom is for what the journal refused with an error. If that is full, it reduces of the attempts that are kept until
// the space is needed the one that ended first; where all are, or a place is needed, it forgets those that their dispatcher cannot have
// under way any more. Nothing else makes room: what is not listed is taken for never started.
// It reports whether there was one.
func (a *Agent) makeRoom(err error) bool {
	full, is := errors.AsType[*journal.FullError](err)
	j := a.journal.current()
	if !is || full.Job != "" || j == nil {
		return false
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if whole, is := a.oldestWholeLocked(j); is && !full.Attempts {
		a.repeated.Warn("", "how an attempt of another dispatcher ended is forgotten: its space is needed", "job", whole.Job, "attempt", whole.Attempt)
		of := a.unknown[whole.Key]
		of.reduced = true
		a.unknown[whole.Key] = of
		a.dropRest(whole.Key)
		return reduce(j, whole) == nil
	}
	past := a.pastUnknownLocked(j)
	if len(past) == 0 {
		return false
	}
	for _, k := range past {
		delete(a.unknown, k)
		a.dropRest(k)
	}
	a.repeated.Warn("", "attempts of another dispatcher are forgotten: their places are needed", "attempts", len(past))
	return j.Forget(past...) == nil
}

// dropRest drops what an attempt has in memory as the journal had no room for it, now that nothing else is kept of it.
func (a *Agent) dropRest(k journal.Key) {
	if at := a.attempts.find(key{job: k.Job, number: k.Attempt}); at != nil {
		at.left.fire()
		a.journal.loops.Go(at.leave) // not here: who asks for room has locked another one
	}
}

// oldestWholeLocked returns of the attempts that are kept until the space is needed, and were not reduced, the one that ended first.
func (a *Agent) oldestWholeLocked(j *journal.Journal) (whole journal.Held, is bool) {
	for k, of := range a.unknown {
		if of.reduced || is && !of.ended.Before(a.unknown[whole.Key].ended) {
			continue
		}
		if h, held := j.Get(k); held && (h.State == journal.Ended || a.attempts.find(key{job: k.Job, number: k.Attempt}) == nil) {
			whole, is = h, true // it has come to its end, or ended with its agent
		}
	}
	return whole, is
}

// maxUnderWay is how many attempts a dispatcher has under way on one host at most: it refuses a greater limits.attempts.
const maxUnderWay = 4096

// pastUnknownLocked returns of the attempts that are kept until the space is needed those that ended first of one store, beyond
// what its dispatcher may have under way: it knows how they ended.
func (a *Agent) pastUnknownLocked(j *journal.Journal) []journal.Key {
	stores := map[string][]journal.Key{}
	for k, of := range a.unknown {
		if j.State(k) == journal.Ended {
			stores[of.store] = append(stores[of.store], k)
		}
	}
	for _, ended := range stores {
		if n := min(len(ended)-maxUnderWay, maxUnderWay); n > 0 { // some at a time: it is not to be sorted for each call
			slices.SortFunc(ended, func(x, y journal.Key) int { return a.unknown[x].ended.Compare(a.unknown[y].ended) })
			return ended[:n]
		}
	}
	return nil
}

// journalBroke ends the session with the dispatcher: the agent cannot say any more
// what it has journalled. The next session begins with another try. It reports whether there was
// a session.
func (a *Agent) journalBroke(err error) bool {
	ended := a.endSession(fmt.Errorf("agent: %w", err))
	if ended {
		a.log.Error("the journal broke", "error", err.Error())
	}
	return ended
}

// endSession ends the session with the dispatcher, and reports whether there was one: the next
// begins with what the agent holds.
func (a *Agent) endSession(why error) bool {
	a.mu.Lock()
	s := a.current
	a.mu.Unlock()
	if s != nil {
		s.transport.Close(why)
	}
	return s != nil
}
