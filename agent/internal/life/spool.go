package life

import (
	"errors"

	"github.com/harpcaller/harp/internal/wire"
)

// spool is how much of an attempt is in the journal. Things are handed to that in their
// order; what it did not take, or could not write, is handed over again.
type spool struct {
	on     bool // false: nothing of the attempt is journalled
	handed Progress
	synced Progress // on disk
	bare   bool     // the journal has END without its value
	failed error    // why the last thing was not journalled; nil: it was, or may be yet
	try    try
}

// try is what is being handed over. The zero try is none.
type try struct {
	kind   WriteKind // the last Write, or where to go on
	to     Progress  // if that is taken
	err    error     // why something was not taken
	full   bool      // for want of room
	onFull Put       // of a record that is numbered only if the journal takes it
	missed int64     // before that
}

// journal is what becomes of things that were handed to the journal.
func (a *Attempt) journal(e *Event, f *Effect) {
	s := &a.spool
	switch e.Kind {
	case Hand:
		f.Room = true
		a.handAnew(f)
	case Taken:
		a.taken(e, f)
	case NotTaken:
		a.notTaken(e, f)
	case Synced:
		s.synced = e.To
		if s.synced.Stop {
			a.applyStop(f)
		}
		a.trim()
		f.Room = true
	case Unsynced:
		s.handed, s.failed = s.synced, e.Err
		a.applyStop(f)
		f.Room = true
	case Reopened:
		a.reopened(e, f)
	default:
	}
	f.Leave = f.Write.Kind == 0 && a.isReleasable()
}

// handAnew is hand also where the last thing could not be journalled.
func (a *Attempt) handAnew(f *Effect) {
	a.spool.failed = nil
	a.hand(f)
}

// hand hands to the journal what it has not got yet. While the last thing could not be
// journalled it leaves that to Hand.
func (a *Attempt) hand(f *Effect) {
	s := &a.spool
	if !a.IsHandedOver() || s.failed != nil {
		return
	}
	s.try = try{kind: WriteRecords}
	a.write(f)
}

// write hands over what is next.
func (a *Attempt) write(f *Effect) {
	t := &a.spool.try
	for ; t.kind < writeNone; t.kind++ {
		if f.Write = a.due(); f.Write.Kind != 0 {
			t.to = f.Write.To
			return
		}
	}
	a.conclude(f)
}

// due is what is to be handed over of the kind that it is the turn of. A journal that has no room
// for records has some for the end; but the records and the end of a command that goes on
// without the agent are with its supervisor as long as the journal has no end.
func (a *Attempt) due() Write {
	s := &a.spool
	t, to := &s.try, s.handed
	if to.End {
		return Write{}
	}
	switch from := max(to.Next, a.outbox.first); {
	case t.kind == WriteRecords && from < a.outbox.next():
		records := within(a.outbox.held()[from-a.outbox.first:], batchBytes)
		to.Next = from + int64(len(records))
		return Write{Kind: WriteRecords, After: s.handed.Next, First: from, Records: records, To: to}
	case t.kind == WriteStop && a.stopping != nil && !to.Stop:
		to.Stop = true
		return Write{Kind: WriteStop, Stopping: a.stopping, To: to}
	case t.kind == WriteEnd && a.end != nil && (t.err == nil || a.home != Supervised):
		to.End = true
		return Write{Kind: WriteEnd, After: s.handed.Next, End: a.end, Lacks: a.lacking(), Whole: a.home == Supervised, To: to}
	}
	return Write{}
}

// lacking are the records that the journal would not have if END were journalled now; nil: none.
func (a *Attempt) lacking() *Lacks {
	first, next := max(a.spool.handed.Next, a.outbox.first), a.outbox.next()
	if first >= next {
		return nil
	}
	l := Lacks{First: first, Next: next}
	for _, r := range a.outbox.held()[l.First-a.outbox.first:] {
		l.Bytes += int64(len(r.Value)) + r.Truncated
	}
	return &l
}

func (a *Attempt) taken(e *Event, f *Effect) {
	s := &a.spool
	s.handed = s.try.to
	if s.try.kind == WriteEnd {
		s.bare = e.Bare
		a.ackSpool(f)
	}
	a.write(f)
}

// notTaken goes on with what may be taken all the same. A limit or cancel holds whatever
// the journal does, but for one that has only no room for records.
func (a *Attempt) notTaken(e *Event, f *Effect) {
	t := &a.spool.try
	t.err, t.full = errors.Join(t.err, e.Err), t.full || e.Full
	if t.kind == WriteStop || t.kind == WriteRecords && !e.Full {
		a.applyStop(f)
	}
	if t.kind == WriteRecords && !e.Full {
		a.conclude(f)
		return
	}
	t.kind++
	a.write(f)
}

// conclude notes what could not be handed over, and takes back a record that is numbered only if
// the journal takes it.
func (a *Attempt) conclude(f *Effect) {
	s := &a.spool
	t := s.try
	s.try = try{}
	if t.onFull == 0 {
		s.failed = t.err
		return
	}
	if !t.full {
		s.failed = t.err
	}
	if !s.on || s.handed.Next == a.outbox.next() {
		f.Put = Kept
		return
	}
	r := a.outbox.takeBack()
	a.missed = t.missed
	a.notPut(r, t.onFull, f)
}

// reopened finds out how much another journal has: it is the one before, opened anew. What
// was being handed over is then, from the beginning.
func (a *Attempt) reopened(e *Event, f *Effect) {
	s := &a.spool
	if e.Lost || e.To.Next < s.synced.Next {
		s.on, f.Room, f.Lack.Why = false, true, JournalLost
		a.applyStop(f)
		s.try.err = nil
		a.conclude(f)
		return
	}
	s.handed, s.synced = e.To, e.To
	a.ackSpool(f)
	if s.synced.Stop { // of whose commit nobody may hear any more
		a.applyStop(f)
	}
	if s.try.kind != 0 {
		s.try = try{kind: WriteRecords, onFull: s.try.onFull, missed: s.try.missed}
		a.write(f)
	}
}

// trim leaves to the journal what it has and memory need not.
func (a *Attempt) trim() {
	s := &a.spool
	if !s.on {
		return
	}
	most := a.outbox.window
	if !a.isFollowed() {
		most = wire.MinWindow
	}
	a.outbox.evict(most, s.synced.Next)
	told := a.peer == nil && a.audience != awaited || a.peer != nil && (a.peer.end || a.peer.waits) && !s.bare
	if s.synced.End && told {
		a.end = nil
	}
}

// ackRecords notes that the records before next are kept elsewhere.
func (a *Attempt) ackRecords(next int64, f *Effect) {
	before := a.outbox.acked
	a.outbox.ack(next)
	a.ackSpool(f)
	f.Retry = a.spool.failed != nil && a.outbox.acked > before
}

// ackSpool tells the journal which records are kept elsewhere.
func (a *Attempt) ackSpool(f *Effect) {
	s := &a.spool
	if !s.on {
		return
	}
	has := s.handed.Next
	if s.handed.End {
		has = a.outbox.next() // it numbers those too that were acknowledged before it had them
	}
	f.Ack = min(a.outbox.acked, has)
}

// isReleasable reports whether the journal has all that somebody may ask for, and nobody asks at
// present.
func (a *Attempt) isReleasable() bool {
	s := &a.spool
	stopIs := a.stopping == nil || s.synced.Stop
	return a.HasEnded() && s.on && a.audience == away && s.failed == nil && s.handed == s.synced &&
		(s.synced.End || a.phase == Gone && stopIs) && max(s.synced.Next, a.outbox.first) >= a.outbox.next()
}

// IsJournalled reports whether the attempt is.
func (a *Attempt) IsJournalled() bool { return a.spool.on }

// IsHandedOver reports whether the journal is handed what happens to the attempt: somebody may
// ask for it.
func (a *Attempt) IsHandedOver() bool { return a.spool.on && a.audience != nobody }

// Failed is why the last thing was not journalled; nil: it was, or may be yet.
func (a *Attempt) Failed() error { return a.spool.failed }

// KeptElsewhere is the first record that is neither on the journal's disk nor acknowledged;
// where there is no journal and the command may go on with another agent, one that is in
// this one's memory is not kept.
func (a *Attempt) KeptElsewhere() int64 {
	switch {
	case !a.spool.on && a.home == Supervised:
		return a.outbox.acked
	case !a.spool.on:
		return a.outbox.next()
	}
	return max(a.outbox.acked, a.spool.synced.Next)
}
