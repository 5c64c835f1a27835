package journal

import (
	"fmt"
	"slices"
	"time"
)

// loading is a journal that is being read.
type loading struct {
	j     *Journal
	last  uint64
	first uint64   // segments before it are not needed
	old   []uint64 // segments before one that is missing
	place string   // of the last one, as its head says
	now   time.Time

	outdated bool // the last one is of older software, which does not read what this one appends
}

// segment reads a segment.
func (l *loading) segment(number uint64) error {
	name := segmentName(number)
	data, err := readFile(l.j.fs, name)
	if err != nil {
		return ioError("read "+name, err)
	}
	if err := checkVersion(data); err != nil {
		return err
	}
	head, n, err := parse(data, 0)
	if err != nil || head.kind != kindHead || head.number != number {
		return &CorruptError{File: name, Reason: "this is not the head of the segment"}
	}
	l.outdated, l.j.taken = head.old, head.taken
	s := segment{number: number, base: head.base}
	if err := l.follows(name, s, head); err != nil {
		return err
	}
	for s.size = int64(n); s.size < int64(len(data)); s.size += int64(n) {
		var e entry
		e, n, err = parse(data[s.size:], s.base+s.size)
		if err != nil && number == l.last && !wasSynced(data, s.size, s.base) {
			break
		}
		if err == nil {
			err = l.apply(e, number, s.size, n)
		}
		if err != nil {
			return &CorruptError{File: name, Offset: s.size, Reason: err.Error()}
		}
	}
	l.j.segments = append(l.j.segments, s)
	return nil
}

// follows checks that a segment continues the one before it.
func (l *loading) follows(name string, s segment, head entry) error {
	first, another := len(l.j.segments) == 0 && len(l.old) == 0, !head.isOf(l.j.id)
	if first || !another {
		l.j.id, l.j.was, l.place = head.id, head.was, head.place
	}
	if first {
		return nil
	}
	before := l.j.segments[len(l.j.segments)-1]
	switch {
	case another:
		return &CorruptError{File: name, Reason: "the segment is another journal's"}
	case s.number != before.number+1:
		l.restart()
	case s.base != before.end():
		return &CorruptError{File: segmentName(before.number), Offset: before.size, Reason: "the segment does not end where the next one begins"}
	}
	return nil
}

// restart forgets what was read, as a segment is missing: it should be one that is
// not needed, and then nothing before it is.
func (l *loading) restart() {
	j := l.j
	for _, s := range j.segments {
		l.old = append(l.old, s.number)
	}
	j.segments, j.tombs = nil, newTombs(j.opts.Keep, j.opts.MaxTombs)
	clear(j.attempts)
}

// wasSynced reports whether the bytes at an offset of the last segment, which are no
// entry, were synced once: then a whole entry of a later group is behind them. Else
// they were torn by a crash, as may be anything of the last group, in any order.
func wasSynced(data []byte, off, base int64) bool {
	for i := off + 1; i+entrySize <= int64(len(data)); i++ {
		if groupAt(data[i:], base+i) <= base+off {
			continue
		}
		if _, _, err := unseal(data[i:], base+i); err == nil {
			return true
		}
	}
	return false
}

// apply takes an entry that was read. Entries that were written again may follow
// later ones, and the segment of an attempt's beginning may be gone if its state was
// written again.
func (l *loading) apply(e entry, number uint64, off int64, size int) error {
	switch e.kind {
	case kindHead:
		return errBad
	case kindClosed:
		return nil
	case kindFirst:
		if e.number > number {
			return errBad
		}
		l.first = max(l.first, e.number)
		return nil
	case kindTomb:
		delete(l.j.attempts, e.key)
		l.j.tombs.add(e.key, e.at, l.now)
		return nil
	case kindWithdrawn:
		delete(l.j.attempts, e.key)
		return nil
	default:
	}
	l.attempt(e, number, func() *extent { return &extent{segment: number, offset: off, size: size} })
	return nil
}

// attempt takes an entry of an attempt.
func (l *loading) attempt(e entry, number uint64, here func() *extent) {
	a := l.j.attempts[e.key]
	begins := e.kind == kindAccept || e.kind == kindBegin
	if a == nil || begins {
		a = &attempt{home: number, state: Accepted}
		l.j.attempts[e.key] = a
		l.j.tombs.remove(e.key)
	}
	switch e.kind {
	case kindAccept, kindBegin:
		l.j.countLocked(e.store)
		a.accepted, a.fence, a.info = true, e.fence, slices.Clone(e.info)
		if e.kind == kindBegin {
			a.state, a.started = Started, e.started
		}
	case kindStart:
		a.state, a.started = Started, e.started
	case kindStop:
		a.state, a.stop = Stopping, e.stop
	case kindEnd:
		x := here()
		x.cost = endCost(e.body)
		a.state, a.end, a.dropped, a.next = Ended, x, e.dropped, max(a.next, e.count)
	case kindRecords:
		x := here()
		x.first, x.count, x.cost = e.count, int64(len(e.records)), extentCost
		for _, r := range e.records {
			x.cost += int64(len(r)) + recordCost
		}
		a.add(x)
	case kindAcked:
		a.ack(e.count)
	case kindState:
		a.accepted, a.state, a.fence, a.info = true, e.state, e.fence, slices.Clone(e.info)
		a.started, a.stop, a.dropped = e.started, e.stop, e.dropped
		a.next, a.home = max(a.next, e.count), number
		a.ack(e.acked)
	default:
	}
}

// finish checks what was read as a whole.
func (l *loading) finish() error {
	j := l.j
	if n := j.segments[0].number; n > l.first {
		return &CorruptError{File: segmentName(n - 1), Reason: "the segment is missing"}
	}
	for k, a := range j.attempts {
		if err := l.check(k, a); err != nil {
			return err
		}
		j.accountLocked(k, size{}, a.size())
	}
	for j.segments[0].number < l.first {
		l.old = append(l.old, j.segments[0].number)
		j.segments = j.segments[1:]
	}
	return nil
}

// removeOld removes the segments that are not needed.
func (l *loading) removeOld() error {
	for _, n := range l.old {
		if err := l.j.fs.Remove(segmentName(n)); err != nil {
			return ioError("remove", err)
		}
	}
	return nil
}

// check says whether all that belongs to an attempt was there.
func (l *loading) check(k Key, a *attempt) error {
	if a.accepted && (a.state == Ended) == (a.end != nil) && a.acked <= a.next {
		return nil
	}
	first := l.j.segments[0]
	return &CorruptError{File: segmentName(first.number), Reason: fmt.Sprintf("attempt %d of job %s is here or later in part only", k.Attempt, k.Job)}
}
