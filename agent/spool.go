package agent

import (
	"errors"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/agent/journal"
	"github.com/harpcaller/harp/internal/wire"
)

// retryJournal is the pause before what could not be journalled is tried again.
const retryJournal = time.Second

// spool is how much of an attempt is in the journal. Things are handed to that in
// their order; what it did not take, or could not write, is handed over again.
// All but keeper, key and wake is guarded by the attempt's mutex.
type spool struct {
	keeper *keeper
	key    journal.Key
	on     bool // false: nothing of the attempt is journalled

	journal *journal.Journal // that has what was handed over
	handed  progress
	synced  progress // on disk
	commits []handed // that are not known to be, in order
	failed  error    // why the last thing was not journalled; nil: it was, or may be yet
	looping bool     // a goroutine follows the commits
	wake    chan struct{}
}

// progress is how much of an attempt was journalled.
type progress struct {
	next int64 // the first record that was not
	stop bool
	end  bool
}

// handed is what a commit is about.
type handed struct {
	commit *journal.Commit
	to     progress
}

func newSpool(k *keeper, of key) spool {
	return spool{keeper: k, key: of.journal(), on: true, wake: make(chan struct{}, 1)}
}

// busy returns nil, or what is closed when the disk has caught up with the journal.
func (s *spool) busy() <-chan struct{} {
	if !s.on {
		return nil
	}
	j := s.keeper.current()
	if j == nil {
		return nil
	}
	return j.Busy()
}

// note keeps the commit of what was handed over last.
func (s *spool) note(c *journal.Commit) {
	if n := len(s.commits); n > 0 && s.commits[n-1].commit == c {
		s.commits[n-1].to = s.handed
		return
	}
	s.commits = append(s.commits, handed{c, s.handed})
}

// journalled notes that a journal has the attempt's start.
func (at *attempt) journalled(j *journal.Journal) {
	at.mu.Lock()
	defer at.mu.Unlock()
	at.spool.journal = j
}

// retract takes back the start of an attempt that has not begun, for a reason to deny
// it. Where the journal cannot, the attempt may as well begin: there is no denial then.
func (at *attempt) retract(reason string) denial {
	at.mu.Lock()
	on, j := at.spool.on, at.spool.journal
	at.mu.Unlock()
	if on {
		err := j.Retract(at.key.journal())
		if errors.Is(err, journal.ErrBroken) {
			return denial{broken: err}
		}
		if err != nil {
			return denial{}
		}
	}
	return denial{reason: reason}
}

// handLocked hands to the journal what it has not got yet, and lets a goroutine
// follow what becomes of it. While the last thing could not be journalled it leaves
// the rest to that goroutine.
func (at *attempt) handLocked() {
	s := &at.spool
	if !s.on || at.nobody || s.failed != nil {
		return
	}
	s.failed = at.handAllLocked()
	at.loopLocked()
}

// loopLocked lets a goroutine follow what was handed over, if there is none.
func (at *attempt) loopLocked() {
	s := &at.spool
	if (len(s.commits) > 0 || s.failed != nil) && !s.looping {
		s.looping = true
		s.keeper.loops.Go(at.journalLoop)
	}
}

// rehand hands over what a journal that was closed did not take.
func (at *attempt) rehand() {
	at.mu.Lock()
	defer at.mu.Unlock()
	at.spool.failed = nil
	at.handLocked()
}

// handAllLocked hands over what it can. A journal that has no room for records has
// some for the end, which says how much is missing; but the records and the end of a command
// that goes on without the agent are with its supervisor as long as the journal has no end. A
// limit or cancel holds whatever the journal does.
func (at *attempt) handAllLocked() error {
	s := &at.spool
	j := s.keeper.current()
	if j == nil {
		at.applyStopLocked()
		return journal.ErrClosed
	}
	if j != s.journal {
		at.compareLocked(j)
		if !s.on {
			return nil
		}
	}
	err := at.handRecordsLocked(j)
	if err != nil && !errors.Is(err, journal.ErrFull) {
		at.applyStopLocked()
		return err
	}
	err = errors.Join(err, at.handStopLocked(j))
	if err != nil && at.task.survives() {
		return err
	}
	return errors.Join(err, at.handEndLocked(j))
}

// compareLocked finds out how much another journal has: it is the one before, opened
// anew.
func (at *attempt) compareLocked(j *journal.Journal) {
	s := &at.spool
	h, is := j.Get(s.key)
	if !is || h.Spooled < s.synced.next {
		at.log().Error("the journal has lost an attempt that runs")
		s.on, s.commits = false, nil
		at.applyStopLocked()
		at.openLocked()
		return
	}
	if n := at.task.keepsElsewhere(); n > 0 {
		_ = j.KeepElsewhere(s.key, n) // it has the attempt
	}
	s.journal, s.commits = j, nil
	s.handed = progress{next: h.Spooled, stop: h.Stop != nil, end: h.State == journal.Ended}
	s.synced = s.handed
	if s.synced.stop { // of whose commit nobody may hear any more
		at.applyStopLocked()
	}
}

// handRecordsLocked hands over records, those that were acknowledged or dropped since
// left out.
func (at *attempt) handRecordsLocked(j *journal.Journal) error {
	s := &at.spool
	for {
		from := max(s.handed.next, at.outbox.first)
		if from >= at.outbox.next() || s.handed.end {
			return nil
		}
		batch := at.outbox.batch(from, batchBytes)
		list := make([][]byte, len(batch))
		for i, r := range batch {
			list[i] = wire.Encode(r)
		}
		c, err := j.AppendAfter(s.key, s.handed.next, from, list...)
		for at.agent.makeRoom(err) {
			c, err = j.AppendAfter(s.key, s.handed.next, from, list...)
		}
		if err != nil {
			return err
		}
		s.handed.next = from + int64(len(batch))
		s.note(c)
	}
}

// handStopLocked hands over LIMIT or CANCEL.
func (at *attempt) handStopLocked(j *journal.Journal) error {
	s := &at.spool
	if at.stopping == nil || s.handed.stop || s.handed.end {
		return nil
	}
	c, err := j.Stopping(s.key, journal.Stop{
		Cause: at.stopping.Cause, Since: time.Unix(0, at.stopping.Since), Limit: time.Duration(at.stopping.Limit),
	})
	if err != nil {
		at.applyStopLocked()
		return err
	}
	s.handed.stop = true
	s.note(c)
	return nil
}

// handEndLocked hands over END. Where there is no room for its value it goes without, but for
// that of a command that goes on without the agent: its supervisor has the value.
func (at *attempt) handEndLocked(j *journal.Journal) error {
	s := &at.spool
	if at.end == nil || s.handed.end {
		return nil
	}
	lacks := at.lacksLocked()
	end := journal.End{Body: encodeEnd(*at.end, lacks), Records: at.end.Records}
	c, dropped, err := j.EndAfter(s.key, s.handed.next, end)
	for at.agent.makeRoom(err) {
		c, dropped, err = j.EndAfter(s.key, s.handed.next, end)
	}
	if errors.Is(err, journal.ErrFull) && !at.task.survives() {
		end.Bare = encodeEnd(bare(*at.end), lacks)
		c, dropped, err = j.EndAfter(s.key, s.handed.next, end)
	}
	if err != nil {
		return err
	}
	at.dropped = dropped
	s.handed.end = true
	s.note(c)
	at.ackSpoolLocked()
	return nil
}

// journalledEnd is END as the journal has it.
type journalledEnd struct {
	End   []byte `msgpack:"end"`
	Lacks *lacks `msgpack:"lacks,omitempty"`
}

// lacks are the last records of an attempt, which the journal had no room for.
type lacks struct {
	First int64 `msgpack:"first"`
	Next  int64 `msgpack:"next"`
	Bytes int64 `msgpack:"bytes"` // of their values, and dropped before them
}

func encodeEnd(end wire.End, lacks *lacks) []byte {
	return wire.Encode(journalledEnd{End: wire.Encode(end), Lacks: lacks})
}

// lacksLocked are the records that the journal would not have if END were journalled
// now; nil: none.
func (at *attempt) lacksLocked() *lacks {
	l := lacks{First: max(at.spool.handed.next, at.outbox.first), Next: at.outbox.next()}
	if l.First >= l.Next {
		return nil
	}
	for _, r := range at.outbox.held()[l.First-at.outbox.first:] {
		l.Bytes += int64(len(r.Value)) + r.Truncated
	}
	return &l
}

// dropped returns how many bytes a record of them is said to have had: all of them
// together as many as they had. Which had how many is not journalled.
func (l *lacks) dropped(n int64) int64 {
	i, all := n-l.First, l.Next-l.First
	return l.Bytes*(i+1)/all - l.Bytes*i/all
}

// bare is END without its value, which fits whatever else there is no room for.
func bare(end wire.End) wire.End {
	if end.Failure != nil {
		f := harp.FailureOf(end.Failure)
		f.Message, f.Type, f.Data = cut(f.Message, 200), cut(f.Type, 100), nil
		end.Failure = f.Err()
	}
	end.Value, end.Dropped = nil, true
	return end
}

// journalLoop follows what was handed to the journal until all is there, or the
// journal is closed.
func (at *attempt) journalLoop() {
	for at.follow() {
	}
	at.release()
}

// follow waits for a commit, or for another try. It reports whether there is more to
// do.
func (at *attempt) follow() bool {
	at.mu.Lock()
	s := &at.spool
	if len(s.commits) > 0 {
		c := s.commits[0].commit
		at.mu.Unlock()
		at.committed(c, c.Wait())
		return true
	}
	if s.failed == nil {
		s.looping = false
		at.mu.Unlock()
		return false
	}
	err := s.failed
	at.mu.Unlock()
	renewed, closing := s.keeper.waits()
	if errors.Is(err, journal.ErrBroken) && !at.agent.journalBroke(err) {
		s.keeper.tryRepair() // else the next session does
	}
	more := s.pause(renewed, closing)
	at.mu.Lock()
	defer at.mu.Unlock()
	if !more {
		s.looping = false
		return false
	}
	s.failed = nil
	if errors.Is(err, journal.ErrGap) {
		s.journal = nil // looks what it has
	}
	if !s.on || at.nobody {
		return true
	}
	s.failed = at.handAllLocked()
	at.openLocked()
	return true
}

// pause waits before another try, at most until there is another journal. It reports false when the
// journal is closed.
func (s *spool) pause(renewed, closing <-chan struct{}) bool {
	select {
	case <-closing:
		return false
	case <-renewed:
	case <-s.wake:
	case <-time.After(retryJournal):
	}
	return true
}

// committed notes what became of a commit.
func (at *attempt) committed(c *journal.Commit, err error) {
	at.mu.Lock()
	defer at.mu.Unlock()
	s := &at.spool
	if len(s.commits) == 0 || s.commits[0].commit != c {
		return // another journal was opened
	}
	if err != nil {
		s.commits, s.handed, s.failed = nil, s.synced, err
		at.applyStopLocked()
		at.openLocked()
		return
	}
	s.synced, s.commits = s.commits[0].to, s.commits[1:]
	if s.synced.stop {
		at.applyStopLocked()
	}
	at.trimLocked()
	at.openLocked()
}

// trimLocked leaves to the journal what it has and memory need not.
func (at *attempt) trimLocked() {
	if !at.spool.on {
		return
	}
	most := at.outbox.window
	if !at.followedLocked() {
		most = wire.MinWindow
	}
	at.outbox.evict(most, at.spool.synced.next)
	told := at.report == nil && !at.awaited || at.report != nil && at.report.end && !at.dropped
	if at.spool.synced.end && told {
		at.end = nil
	}
}

// ackSpoolLocked tells the journal which records are kept elsewhere. That it does
// not take this does no harm.
func (at *attempt) ackSpoolLocked() {
	s := &at.spool
	if !s.on || s.journal == nil {
		return
	}
	has := s.handed.next
	if s.handed.end {
		has = at.outbox.next() // it numbers those too that were acknowledged before it had them
	}
	if j, acked := s.keeper.current(), min(at.outbox.acked, has); j != nil && acked > 0 {
		_ = j.Ack(s.key, acked)
	}
	if s.failed != nil {
		signal(s.wake)
	}
}

// forgetSpoolLocked tells the journal that nobody will ask for the attempt, also one
// that has lost it. If it does not take this the attempt is listed once more, and
// forgotten then.
func (at *attempt) forgetSpoolLocked() {
	s := &at.spool
	if s.keeper == nil || s.journal == nil {
		return
	}
	if j := s.keeper.current(); j != nil {
		_ = j.Forget(s.key)
	}
}
