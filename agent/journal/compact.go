package journal

import (
	"slices"
	"sort"
	"time"
)

// compact removes the oldest segments when more than half of what is on disk is not
// needed, after what is needed of them was written again: one, and others until so many
// bytes are gone. So each byte that is written again pays for one at least that goes.
// It reports whether there is more to do.
func (j *Journal) compact(bytes int64) (more bool) {
	for j.wasteful() {
		if time.Now().Before(j.resting) {
			return false
		}
		removed, err := j.removeOldest()
		if err != nil {
			j.resting = time.Now().Add(time.Second)
			return false
		}
		if bytes -= removed; bytes <= 0 {
			return j.wasteful()
		}
	}
	return false
}

// wasteful reports whether the oldest segment should go.
func (j *Journal) wasteful() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	first, last := j.segments[0], j.segments[len(j.segments)-1]
	needed := j.needed + int64(j.tombs.n)*tombCost
	return len(j.segments) > 1 && j.broken == nil && !j.closed && last.end()-first.base > 2*(needed+j.opts.SegmentSize)
}

// removeOldest writes again what is needed of the oldest segment, and removes it. That
// the one before it is gone is made durable first. It returns how many bytes it had.
func (j *Journal) removeOldest() (int64, error) {
	if err := j.fs.SyncDir(); err != nil {
		return 0, ioError("sync directory", err)
	}
	j.mu.Lock()
	oldest := j.segments[0]
	j.mu.Unlock()
	data, err := readFile(j.fs, segmentName(oldest.number))
	if err != nil {
		return 0, ioError("read", err)
	}
	c := compaction{j: j, from: oldest, g: newGroup(), states: map[Key]struct{}{}, now: time.Now()}
	if err := c.collectNeeded(data); err != nil {
		return 0, err
	}
	at, err := j.write(c.g)
	if err != nil {
		return 0, err
	}
	c.moved(at)
	return oldest.size, removeIfThere(j.fs, segmentName(oldest.number))
}

// compaction moves what is needed of a segment to the end of the journal.
type compaction struct {
	j      *Journal
	from   segment
	g      *group
	states map[Key]struct{} // attempts whose state is written again
	now    time.Time
}

// collectNeeded finds what is needed.
func (c *compaction) collectNeeded(data []byte) error {
	for off := int64(0); off < c.from.size; {
		position := c.from.base + off
		if off == 0 {
			position = 0
		}
		e, n, err := parse(data[off:], position)
		if err != nil {
			return &CorruptError{File: segmentName(c.from.number), Offset: off, Reason: err.Error()}
		}
		c.keep(&e, off)
		off += int64(n)
	}
	c.g.buf = appendEntry(c.g.buf, &entry{kind: kindFirst, number: c.from.number + 1})
	return nil
}

// keep writes an entry again if it is needed.
func (c *compaction) keep(e *entry, off int64) {
	c.j.mu.Lock()
	defer c.j.mu.Unlock()
	switch e.kind {
	case kindHead, kindFirst, kindClosed, kindWithdrawn:
		return
	case kindTomb:
		if c.j.tombs.has(e.key, c.now) && !c.j.tombs.past(e.at, c.now) {
			c.g.add(e)
		}
		return
	default:
	}
	a := c.j.syncedLocked(e.key)
	if a == nil {
		return
	}
	if _, is := c.states[e.key]; !is && a.home != 0 && a.home <= c.from.number {
		c.states[e.key] = struct{}{}
		c.g.add(a.entry(e.key))
	}
	if x := c.extentLocked(a, e, off); x != nil {
		c.g.place(e, x)
	}
}

// syncedLocked is what is on disk of an attempt.
func (j *Journal) syncedLocked(k Key) *attempt {
	if j.pending != nil {
		if a, is := j.pending.before[k]; is {
			return a
		}
	}
	return j.attempts[k]
}

// extentLocked is what the attempt has at an offset of the segment; nil: nothing.
func (c *compaction) extentLocked(a *attempt, e *entry, off int64) *extent {
	here := func(x *extent) bool {
		return x != nil && x.pending == nil && x.segment == c.from.number && x.offset == off
	}
	switch e.kind {
	case kindEnd:
		if here(a.end) {
			return a.end
		}
	case kindRecords:
		i := sort.Search(len(a.spool), func(i int) bool { return a.spool[i].first >= e.count })
		if i < len(a.spool) && here(a.spool[i]) {
			return a.spool[i]
		}
	default:
	}
	return nil
}

// moved notes where things are now, and that the segment is gone.
func (c *compaction) moved(at segment) {
	j := c.j
	j.mu.Lock()
	defer j.mu.Unlock()
	c.g.locate(at)
	for k := range c.states {
		j.homeLocked(k, func(home uint64) bool { return home != 0 && home <= c.from.number }, at.number)
	}
	j.segments = slices.Clone(j.segments[1:])
}
