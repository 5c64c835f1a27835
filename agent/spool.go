package agent

import (
	"errors"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/agent/internal/life"
	"github.com/harpcaller/harp/agent/journal"
	"github.com/harpcaller/harp/internal/text"
	"github.com/harpcaller/harp/internal/wire"
)

// retryJournal is the pause before what could not be journalled is tried again.
const retryJournal = time.Second

// spool hands an attempt to the journal. How much that has is in the attempt's life.
// All but handle, key and wake is guarded by the attempt's mutex.
type spool struct {
	handle *journalHandle // nil: nothing of the attempt is journalled
	key    journal.Key

	journal *journal.Journal // that has what was handed over
	commits []handed         // that are not known to be on disk, in order
	looping bool             // a goroutine follows the commits
	wake    chan struct{}
}

// handed is what a commit is about.
type handed struct {
	commit *journal.Commit
	to     life.Progress
}

func newSpool(h *journalHandle, of key) spool {
	return spool{handle: h, key: of.journal(), wake: make(chan struct{}, 1)}
}

// note keeps the commit of what was handed over last.
func (s *spool) note(c *journal.Commit, to life.Progress) {
	if n := len(s.commits); n > 0 && s.commits[n-1].commit == c {
		s.commits[n-1].to = to
		return
	}
	s.commits = append(s.commits, handed{c, to})
}

// ack tells the journal that the records before next are kept elsewhere. That it does not take
// this does no harm.
func (s *spool) ack(next int64) {
	if s.journal == nil {
		return
	}
	if j := s.handle.current(); j != nil {
		_ = j.Ack(s.key, next)
	}
}

// forget tells the journal that nobody will ask for the attempt, also one that has lost it. If
// it does not take this the attempt is listed once more, and forgotten then.
func (s *spool) forget() {
	if s.handle == nil || s.journal == nil {
		return
	}
	if j := s.handle.current(); j != nil {
		_ = j.Forget(s.key)
	}
}

// journalled notes that a journal has the attempt's start.
func (at *attempt) journalled(j *journal.Journal) {
	at.mu.Lock()
	defer at.mu.Unlock()
	at.spool.journal = j
}

// retract takes back the start of an attempt that has not begun, for a reason to deny
// it. Where the journal cannot, the attempt may as well begin: there is no refusal then.
func (at *attempt) retract(reason string) refusal {
	at.mu.Lock()
	on, j := at.life.IsJournalled(), at.spool.journal
	at.mu.Unlock()
	if on {
		err := j.Retract(at.key.journal())
		if errors.Is(err, journal.ErrBroken) {
			return refusal{broken: err}
		}
		if err != nil {
			return refusal{}
		}
	}
	return refusal{reason: reason}
}

// busyLocked returns nil, or what is closed when the disk has caught up with the journal, or when
// attempts that are told to slow peers have less in memory: of each of those a little may always be there.
func (at *attempt) busyLocked() <-chan struct{} {
	if at.life.IsTold() && at.counted >= wire.MinWindow {
		if eased := at.agent.memory.full(); eased != nil {
			return eased
		}
	}
	if !at.life.IsJournalled() {
		return nil
	}
	j := at.spool.handle.current()
	if j == nil {
		return nil
	}
	return j.Busy()
}

// writeLocked hands something to the journal, and returns what became of that.
func (at *attempt) writeLocked(w *life.Write) life.Event {
	s := &at.spool
	j := s.handle.current()
	if j == nil {
		return life.Event{Kind: life.NotTaken, Err: journal.ErrClosed}
	}
	if j != s.journal {
		return at.reopenedLocked(j)
	}
	c, bare, err := at.hand(j, w)
	if err != nil {
		return life.Event{Kind: life.NotTaken, Err: err, Full: errors.Is(err, journal.ErrFull)}
	}
	s.note(c, w.To)
	return life.Event{Kind: life.Taken, Bare: bare}
}

// reopenedLocked finds out how much another journal has.
func (at *attempt) reopenedLocked(j *journal.Journal) life.Event {
	s := &at.spool
	h, is := j.Get(s.key)
	s.commits = nil
	if !is {
		return life.Event{Kind: life.Reopened, Lost: true}
	}
	if n := at.task.keepsElsewhere(); n > 0 {
		_ = j.KeepElsewhere(s.key, n) // it has the attempt
	}
	s.journal = j
	return life.Event{Kind: life.Reopened, To: life.Progress{Next: h.Spooled, Stop: h.Stop != nil, End: h.State == journal.Ended}}
}

// hand hands something to a journal. bare says that END went without its value, for want of
// room.
func (at *attempt) hand(j *journal.Journal, w *life.Write) (c *journal.Commit, bare bool, err error) {
	switch w.Kind {
	case life.WriteRecords:
		c, err = at.handRecords(j, w)
	case life.WriteStop:
		c, err = j.Stopping(at.spool.key, journal.Stop{
			Cause: w.Stopping.Cause, Since: time.Unix(0, w.Stopping.Since), Limit: time.Duration(w.Stopping.Limit),
		})
	case life.WriteEnd:
		c, bare, err = at.handEnd(j, w)
	}
	return c, bare, err
}

func (at *attempt) handRecords(j *journal.Journal, w *life.Write) (*journal.Commit, error) {
	list := make([][]byte, len(w.Records))
	for i, r := range w.Records {
		list[i] = wire.Encode(r)
	}
	c, err := j.AppendAfter(at.spool.key, w.After, w.First, list...)
	for at.agent.makeRoom(err) {
		c, err = j.AppendAfter(at.spool.key, w.After, w.First, list...)
	}
	return c, err
}

// handEnd hands over END. Where there is no room for its value it goes without, unless it is to be
// whole.
func (at *attempt) handEnd(j *journal.Journal, w *life.Write) (c *journal.Commit, isBare bool, err error) {
	end := journal.End{Body: encodeEnd(w.End, w.Lacks), Records: w.End.Records}
	c, isBare, err = j.EndAfter(at.spool.key, w.After, end)
	for at.agent.makeRoom(err) {
		c, isBare, err = j.EndAfter(at.spool.key, w.After, end)
	}
	if errors.Is(err, journal.ErrFull) && !w.Whole {
		end.Bare = encodeEnd(bare(w.End), w.Lacks)
		c, isBare, err = j.EndAfter(at.spool.key, w.After, end)
	}
	return c, isBare, err
}

// journalledEnd is END as the journal has it.
type journalledEnd struct {
	End   []byte      `msgpack:"end"`
	Lacks *life.Lacks `msgpack:"lacks,omitempty"`
}

func encodeEnd(end *wire.End, lacks *life.Lacks) []byte {
	body := wire.NewScratch()
	defer body.Free()
	body.B = wire.Append(body.B, end)
	return wire.Encode(journalledEnd{End: body.B, Lacks: lacks})
}

// bare is END without its value, which fits whatever else there is no room for.
func bare(whole *wire.End) *wire.End {
	end := *whole
	if end.Failure != nil {
		f := harp.FailureOf(end.Failure)
		f.Message, f.Type, f.Data = text.Shorten(f.Message, 200, cutMark), text.Shorten(f.Type, 100, cutMark), nil
		end.Failure = f.Err()
	}
	end.Value, end.Dropped = nil, true
	return &end
}

// rehand hands over what a journal that was closed did not take.
func (at *attempt) rehand() {
	at.mu.Lock()
	f := at.handLocked()
	at.mu.Unlock()
	at.leaveIf(f)
}

// handLocked hands to the journal what it has not got yet, whatever became of it before. One
// that was opened anew may have all of it.
func (at *attempt) handLocked() life.Effect {
	leave := false
	if j := at.spool.handle.current(); j != nil && j != at.spool.journal && at.life.IsHandedOver() {
		leave = at.applyLocked(at.reopenedLocked(j)).Leave
	}
	f := at.applyLocked(life.Event{Kind: life.Hand})
	f.Leave = f.Leave || leave
	return f
}

// loopLocked lets a goroutine follow what was handed over, if there is none.
func (at *attempt) loopLocked() {
	s := &at.spool
	if (len(s.commits) > 0 || at.life.Failed() != nil) && !s.looping {
		s.looping = true
		s.handle.loops.Go(at.journalLoop)
	}
}

// journalLoop follows what was handed to the journal until all is there, or the
// journal is closed.
func (at *attempt) journalLoop() {
	for at.followCommit() {
	}
}

// followCommit waits for a commit, or for another try. It reports whether there is more to
// do.
func (at *attempt) followCommit() bool {
	at.mu.Lock()
	s := &at.spool
	if len(s.commits) > 0 {
		c := s.commits[0].commit
		at.mu.Unlock()
		at.committed(c, c.Wait())
		return true
	}
	err := at.life.Failed()
	s.looping = err != nil
	at.mu.Unlock()
	if err == nil {
		return false
	}
	renewed, closing := s.handle.waits()
	if errors.Is(err, journal.ErrBroken) && !at.agent.journalBroke(err) {
		s.handle.tryRepair() // else the next session does
	}
	more := s.pause(renewed, closing)
	anew := differs(err) && s.handle.sync() == nil
	at.mu.Lock()
	if !more {
		s.looping = false
		at.mu.Unlock()
		return false
	}
	if anew {
		s.journal = nil // looks what it has
	}
	f := at.handLocked()
	at.mu.Unlock()
	at.leaveIf(f)
	return true
}

// differs reports whether a journal has taken more or less of an attempt than is known, by why it has
// not taken something: a commit failed before what came behind it was taken.
func differs(err error) bool {
	return errors.Is(err, journal.ErrGap) || errors.Is(err, journal.ErrState)
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
	s := &at.spool
	if len(s.commits) == 0 || s.commits[0].commit != c {
		at.mu.Unlock()
		return // another journal was opened
	}
	e := life.Event{Kind: life.Synced, To: s.commits[0].to}
	s.commits = s.commits[1:]
	if err != nil {
		e = life.Event{Kind: life.Unsynced, Err: err}
		s.commits = nil
	}
	f := at.applyLocked(e)
	at.mu.Unlock()
	at.leaveIf(f)
}

// spooled reads records from the journal, from a number on or the first behind it that
// is there, without gaps. Those left out were acknowledged before they were written.
func (at *attempt) spooled(from int64, most int) (first int64, records []wire.Record, err error) {
	j := at.spool.handle.current()
	if j == nil {
		return 0, nil, journal.ErrClosed
	}
	first, list, err := j.Records(at.spool.key, from, most)
	if err != nil {
		return 0, nil, err
	}
	records = make([]wire.Record, len(list))
	for i, b := range list {
		if err := wire.Decode(b, &records[i]); err != nil {
			return 0, nil, errors.Join(journal.ErrCorrupt, err)
		}
	}
	return first, records, nil
}

// fetch reads what is to be sent and memory has not.
func (at *attempt) fetch(of life.Fetch) (e life.Event) {
	e = life.Event{Kind: life.Read, Fetch: of}
	if of.End {
		e.Kind = life.ReadEnd
		e.End, e.Err = at.spooledEnd()
	} else {
		e.Next, e.Records, e.Err = at.spooled(of.From, of.Most)
	}
	e.Damaged = errors.Is(e.Err, journal.ErrCorrupt)
	return e
}

// spooledEnd reads END from the journal.
func (at *attempt) spooledEnd() (*wire.End, error) {
	j := at.spool.handle.current()
	if j == nil {
		return nil, journal.ErrClosed
	}
	end, _, err := endOf(j, at.spool.key)
	return end, err
}

// endOf reads an END from a journal, and which records that has not.
func endOf(j *journal.Journal, k journal.Key) (*wire.End, *life.Lacks, error) {
	body, err := j.Ended(k)
	if err != nil {
		return nil, nil, err
	}
	var kept journalledEnd
	end := new(wire.End)
	if err := errors.Join(wire.Decode(body, &kept), wire.Decode(kept.End, end)); err != nil {
		return nil, nil, errors.Join(journal.ErrCorrupt, err)
	}
	return end, kept.Lacks, nil
}
