package journal

import (
	"fmt"
	"io"
	"maps"
)

// writeLoop writes groups, each with what has gathered while the last was synced,
// until the journal is closed. Before the next group it removes twice as much as the
// last one had, where so much is not needed: so the disk is not filled, however fast
// records come.
func (j *Journal) writeLoop() {
	defer close(j.done)
	for !j.finished() {
		<-j.wake
		for more := true; more; {
			g, written := j.takePending(), int64(0)
			if g != nil {
				at, err := j.write(g)
				written = int64(len(g.buf))
				j.settle(g, at, err)
			}
			more = j.compact(2*written) || g != nil
		}
	}
	j.writeClosed()
}

// writeClosed writes the proof that all is synced, which no later group gives: where it
// is missing, damage of the last group cannot be told from a crash while it was written.
func (j *Journal) writeClosed() {
	g := newGroup()
	g.buf = appendEntry(nil, &entry{kind: kindClosed})
	_, _ = j.write(g)
}

// takePending returns the group that is to be written now; nil: none.
func (j *Journal) takePending() *group {
	j.mu.Lock()
	defer j.mu.Unlock()
	g := j.pending
	if g == nil || !g.due && !j.closed {
		return nil
	}
	j.pending = nil
	if g.timer != nil {
		g.timer.Stop()
	}
	return g
}

func (j *Journal) finished() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.closed && j.pending == nil
}

// write writes a group and syncs it. It returns the segment as it was before.
func (j *Journal) write(g *group) (at segment, err error) {
	g.flushAll()
	at = j.current()
	if err := j.Err(); err != nil || len(g.buf) == 0 {
		return at, err
	}
	if at.size >= j.opts.SegmentSize || j.due {
		if err := j.roll(); err != nil {
			return at, err
		}
		at = j.current()
	}
	seal(g.buf, at.end())
	if err := writeSync(j.file, g.buf); err != nil {
		return at, j.cutBack(at, ioError("write "+segmentName(at.number), err))
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.segments[len(j.segments)-1].size += int64(len(g.buf))
	return at, nil
}

// current is the last segment.
func (j *Journal) current() segment {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.segments[len(j.segments)-1]
}

func writeSync(f File, b []byte) error {
	n, err := f.Write(b)
	if err == nil && n < len(b) {
		err = io.ErrShortWrite
	}
	if err != nil {
		return err
	}
	return f.Sync()
}

// cutBack cuts the segment back to what was synced, so that nothing of what failed
// with cause is on disk. It returns cause, or an ErrBroken.
func (j *Journal) cutBack(to segment, cause error) error {
	err := j.file.Truncate(to.size)
	if err == nil {
		err = j.file.Sync()
	}
	if err != nil {
		return j.breakDown(cause, err)
	}
	return cause
}

// breakDown notes that it is not known what is on disk.
func (j *Journal) breakDown(cause, err error) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.broken == nil {
		j.broken = fmt.Errorf("%w: %w; then: %w", ErrBroken, cause, err)
	}
	return j.broken
}

// settle tells those who wait for a group how it went. Where it failed nothing of it
// has happened, nor of what was journalled since, but for what lasts.
func (j *Journal) settle(g *group, at segment, err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.writtenLocked(g)
	if err == nil {
		j.placeLocked(g, at)
		j.countLocked(g.taken...)
		if cap(g.buf) <= MaxWaiting {
			j.spare = g.buf[:0]
		}
	} else {
		lasts := newLasting()
		if next := j.pending; next != nil {
			j.pending = nil
			if next.timer != nil {
				next.timer.Stop()
			}
			j.writtenLocked(next)
			j.undoLocked(next, err, lasts)
		}
		j.undoLocked(g, err, lasts)
		j.repeatLocked(lasts)
		return
	}
	close(g.commit.done)
}

// placeLocked notes where a group is.
func (j *Journal) placeLocked(g *group, at segment) {
	g.locate(at)
	for k := range g.before {
		j.homeLocked(k, func(home uint64) bool { return home == 0 }, at.number)
	}
}

// homeLocked sets where an attempt's state begins, also in the copy that the next
// group keeps.
func (j *Journal) homeLocked(k Key, when func(home uint64) bool, number uint64) {
	copies := []*attempt{j.attempts[k]}
	if j.pending != nil {
		copies = append(copies, j.pending.before[k])
	}
	for _, a := range copies {
		if a != nil && when(a.home) {
			a.home = number
		}
	}
}

// undoLocked forgets what a group changed, but for what lasts, and fails it.
func (j *Journal) undoLocked(g *group, err error, lasts lasting) {
	for k, a := range g.before {
		lasts.keep(k, a, j.attempts[k])
		j.putLocked(k, a)
	}
	maps.Copy(lasts.reduced, g.reduced)
	for k, at := range g.tombs {
		j.tombs.remove(k)
		lasts.tombs[k] = at
	}
	g.commit.err = err
	close(g.commit.done)
}

// roll begins another segment. If that fails there is none.
func (j *Journal) roll() error {
	at := j.current()
	old := j.file
	err := j.create(segment{number: at.number + 1, base: at.end()})
	if err == nil {
		_ = old.Close()
	}
	return err
}

// create makes a segment and goes on with it. It has its name only once its head is
// on disk. If that fails it is made again before anything else is written: so it need
// not be certain whether it is there.
func (j *Journal) create(s segment) error {
	name := segmentName(s.number)
	f, err := j.fs.Create(name + fresh)
	if err != nil {
		return ioError("create", err)
	}
	head := appendEntry(nil, &entry{kind: kindHead, id: j.id, number: s.number, base: s.base, was: j.was, place: placeOf(f), taken: j.taken})
	seal(head, 0)
	err = writeSync(f, head)
	if err == nil {
		err = j.fs.Rename(name+fresh, name)
	}
	if err == nil {
		err = j.fs.SyncDir()
	}
	if err != nil {
		_ = f.Close()
		return ioError("create "+name, err)
	}
	s.size = int64(len(head))
	j.file, j.due = f, false
	j.mu.Lock()
	defer j.mu.Unlock()
	j.segments = append(j.segments, s)
	return nil
}
