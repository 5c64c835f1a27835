package rows

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/store"
)

// What a store has in memory is read as it is opened. A table that is damaged may hide rows, or
// show what they were before: each thing that says so is heeded, as a job that is started
// a second time is worse than a store that is not opened.

func (s *Store) loadQueues(snap Snapshot) error {
	for item, err := range snap.Scan([]byte{prefixQueue}, nil, false) {
		if err != nil {
			return err
		}
		var row queueRow
		if err := readItem(snap, item, &row); err != nil {
			return err
		}
		q := s.sched.OpenQueue(string(item.Key[1:]), row.Concurrency)
		if q.Fixed = row.Fixed; row.Paused {
			s.sched.SetPause(q, cmp.Or(row.Pause, &harp.QueuePause{}))
		}
		q.Keep(s.sched, row.Keeper)
		q.SetMarks(row.Marks)
	}
	return nil
}

// loading is the jobs of a store as they are read.
type loading struct {
	*Store
	snap    Snapshot
	are     counts
	isKnown bool   // the counts are those of the last commit
	isOdd   bool   // as many jobs are stored as such that have not ended as there should not be
	last    uint64 // the highest submit number that was found
}

// loadJobs reads the jobs that have not ended, and what is stored of all jobs together. Where there
// are fewer than there were, rows that say which those are were in a table that is damaged: then all jobs are
// looked at. Errors: ErrDamaged if they are not found.
func (s *Store) loadJobs(snap Snapshot) error {
	l := &loading{Store: s, snap: snap}
	var err error
	if l.are, l.isKnown, err = readCounts(snap); err != nil {
		return err
	}
	if err := l.noteLast(); err != nil {
		return err
	}
	if err := l.loadCohorts(); err != nil {
		return err
	}
	if l.isKnown = l.isKnown && l.last <= l.are.number; !l.isKnown {
		l.are.unended = -1
	}
	if !l.isKnown || len(s.cohorts) < l.are.unended {
		if err := l.findOthers(); err != nil {
			return err
		}
	}
	if n := len(s.cohorts); l.are.unended >= 0 && n != l.are.unended {
		return fmt.Errorf("%w: %d jobs have not ended, and %d are there", ErrDamaged, l.are.unended, n)
	}
	return l.setCounts()
}

// noteLast notes the highest submit number that is found without looking at each job: of the last in
// each state that has ended, and of what was cancelled.
func (l *loading) noteLast() error {
	for q := range l.sched.Queues() {
		l.last = max(l.last, q.Through())
	}
	for _, state := range allStates {
		for item, err := range l.snap.Scan(indexKey(byState, string(state)), nil, true) {
			if err != nil {
				return err
			}
			l.last = max(l.last, binary.BigEndian.Uint64(item.Key[len(item.Key)-8:]))
			break
		}
	}
	return nil
}

// loadCohorts reads the jobs that rows say have not ended.
func (l *loading) loadCohorts() error {
	var all []*cohort
	n := 0
	for item, err := range l.snap.Scan([]byte{prefixUnended}, nil, false) {
		if err != nil {
			return err
		}
		c, err := openCohort(item)
		if err != nil {
			return err
		}
		all, n = append(all, c), n+c.n
	}
	l.isOdd = !l.isKnown || l.last > l.are.number || l.are.unended >= 0 && n != l.are.unended
	for _, c := range all {
		if err := l.loadCohort(c); err != nil {
			return err
		}
	}
	return nil
}

// findOthers looks at all jobs for those that have not ended and that no row says that of.
func (l *loading) findOthers() error {
	if l.isKnown || l.last > 0 { // else there may never have been one
		l.log.Error("of jobs that have not ended it is lost which they are: they are looked for", "known", len(l.cohorts))
	}
	known := map[id]bool{}
	for i := range l.cohorts {
		known[i] = true
	}
	found, err := findUnended(l.engine, l.snap, known, l.log)
	if err != nil {
		return err
	}
	for _, c := range found {
		if err := l.loadCohort(c); err != nil {
			return err
		}
	}
	return nil
}

// loadCohort reads jobs that have not ended, and writes which they are where that is not so of some.
func (l *loading) loadCohort(c *cohort) error {
	had := c.n
	for _, i := range slices.Clone(c.ids[:c.n]) {
		is, err := l.loadJob(i, c)
		if err != nil {
			return fmt.Errorf("store: job %s: %w", i, err)
		}
		if !is {
			c.removeJob(i)
		}
	}
	if c.n == had || l.engine.Space() <= SpaceFull {
		return nil
	}
	return l.engine.Commit([]Write{c.write()})
}

// loadJob reads a job that has not ended; false of one that has, about which an older row was read.
func (l *loading) loadJob(i id, c *cohort) (bool, error) {
	j, err := readJob(l.snap, i)
	switch {
	case errors.Is(err, harp.ErrPruned), errors.Is(err, harp.ErrNotFound) && l.isKnown: // if it should be there it is missed
		l.log.Error("job is stored as one that has not ended, and is gone", "job", i.String())
		return false, nil
	case err != nil:
		return false, err
	}
	l.last = max(l.last, j.No)
	if j.State.Ended() {
		l.log.Error("job is stored as one that has not ended", "job", i.String(), "state", j.State)
		return false, nil
	}
	if l.isOdd {
		if gone, err := dropOlderLife(l.engine, l.snap, i, j, l.log); err != nil || gone {
			return false, err
		}
	}
	if j.Queue != nil && l.sched.Queue(string(j.Queue)) == nil {
		return false, fmt.Errorf("%w: queue %s has no row", ErrDamaged, j.Queue)
	}
	e := l.sched.Add(i, j, math.MinInt64, nanos(j.Since))
	l.cohorts[i] = c
	if b := l.batchOf(j); b != nil {
		b.are.Add(j.State, 1)
		if e.IsMarked() && isMoved(j.State) {
			b.marked.Add(j.State, 1)
		}
	}
	l.unended.move(move{standing: standing{submittedAt(j), i}, to: j.State})
	return true, nil
}

// dropOlderLife deletes the life of a job that is in an index of those that have ended: it is one that
// the job had before, and by it the job would be started again. Without one the job is damaged.
func dropOlderLife(e Engine, snap Snapshot, i id, j *store.Job, log *slog.Logger) (bool, error) {
	at := submittedAt(j)
	for _, state := range allStates {
		entry, err := snap.Get(append(indexKey(byState, string(state)), at[:]...))
		if err != nil {
			return false, err
		}
		if entry != nil {
			log.Error("what is stored of the life of a job is older than its end", "job", i.String(), "state", state)
			return true, e.Commit([]Write{{i.key(prefixLife), nil}})
		}
	}
	return false, nil
}

// lostNumbers is how many submit numbers may have been given behind the last one that is known, where
// it is not known which was the last.
const lostNumbers = 1 << 32

// setCounts sets what is stored of all jobs together. Where that is lost no submit number is given a second
// time: by its number a job is one that a cancel of its queue was about, or not.
func (l *loading) setCounts() (err error) {
	if !l.isKnown && l.last > 0 {
		l.log.Error("the last number of a job was lost", "was", l.are.number, "found", l.last)
		l.are.number = l.last + lostNumbers
		if l.are.stored, err = countStored(l.snap); err != nil {
			return err
		}
	}
	l.counted, l.sched.Number = l.are, l.are.number
	l.stored.Store(l.are.stored)
	return nil
}

// countStored counts the bytes that jobs store.
func countStored(snap Snapshot) (size int64, err error) {
	for item, err := range snap.Scan([]byte{prefixCall}, nil, false) {
		if err != nil {
			return 0, err
		}
		j, call, life, err := readRows(snap, id(item.Key[1:]))
		switch {
		case errors.Is(err, ErrDamaged):
			continue
		case err != nil:
			return 0, err
		}
		size += footprint(j) + int64(len(life.Value))
		if call.Request != nil {
			size += int64(requestSize(call.Request))
		}
	}
	for _, prefix := range []byte{prefixRequest, prefixValue, prefixRecords, prefixPiece} {
		for entry, err := range snap.Keys([]byte{prefix}) {
			if err != nil {
				return 0, err
			}
			if isCounted(entry.Key) {
				size += int64(entry.Size)
			}
		}
	}
	return size, nil
}
