package rows

import (
	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/store"
)

// A group is operations that are committed together.
type group struct {
	tx
	ops     []*op
	events  uint64        // the number of the last event so far
	number  uint64        // the last submit number so far
	unended int           // how many jobs have not ended so far
	isOver  chan struct{} // closed when it is on disk, or never will be
}

const (
	// maxOps is how many operations a group has at most. Small groups cost little more,
	// and what goes ahead of others still has to wait for the two before its own.
	maxOps = 128

	// maxAhead is how many operations go ahead before one of those that wait has its turn.
	maxAhead = 3
)

func (g *group) isFull() bool { return g.size >= maxGroup || len(g.ops) >= maxOps }

// formLoop runs what arrives, group by group: one forms while the one before it is being
// committed.
func (s *Store) formLoop() {
	defer close(s.groups)
	var g, last *group
	for {
		o := s.nextOp(g)
		switch {
		case o == nil && g == nil:
			return
		case o == nil:
			g.snap.Close()
			g, last = nil, g
			continue
		case o.scans && g != nil:
			s.groups <- g
			g.snap.Close()
			g, last = nil, g
		}
		if g == nil {
			var err error
			if g, err = s.beginGroup(last, o.scans); err != nil {
				o.done <- err
				continue
			}
		}
		s.runInGroup(g, o)
	}
}

// nextOp returns the next operation for a group, or nil when the group was handed over to
// be committed: when no more operations wait, or it is full, and the one before it is
// committed. Without a group nil means that the store is being closed.
func (s *Store) nextOp(g *group) *op {
	first, second, groups, closing := s.ahead, s.ops, s.groups, s.closing
	if s.wentAhead >= maxAhead {
		first, second = second, first
	}
	switch {
	case g == nil:
		groups = nil
	case g.isFull() || s.poisoned() != nil:
		first, second, closing = nil, nil, nil
	default:
		closing = nil
	}
	select {
	case o := <-first:
		return o
	default:
	}
	select {
	case o := <-second:
		return o
	default:
	}
	select {
	case o := <-first:
		return o
	case o := <-second:
		return o
	case groups <- g:
	case <-closing:
	}
	return nil
}

// beginGroup begins a group behind the last one. It looks past what that has written only
// when all is committed, which it may have to. Errors: store.ErrPoisoned, the engine's.
func (s *Store) beginGroup(last *group, committed bool) (*group, error) {
	g := &group{
		tx: tx{
			space: s.engine.Space(), index: map[string]int{}, pieces: map[string]int{}, sched: s.sched, feed: &s.feed,
			jobCache: &s.jobCache, jobs: map[id]*store.Job{}, cohorts: s.cohorts, open: s.batches, changed: map[*cohort]*changedCohort{}, encoded: make([]byte, 0, usual),
		},
		isOver: make(chan struct{}),
	}
	if last != nil {
		g.writes = make([]Write, 0, len(last.writes)) // they are often alike
		if committed {
			<-last.isOver
		}
		select {
		case <-last.isOver:
		default:
			g.before = &last.tx
		}
	}
	if err := s.poisoned(); err != nil {
		return nil, err
	}
	snap, err := s.engine.View()
	if err != nil {
		return nil, err
	}
	g.view = rereader{snap, &g.tx}
	g.snap = &g.view
	s.mu.Lock()
	s.noteNumbers(g) // it may refuse all of its operations, and be committed
	s.mu.Unlock()
	return g, nil
}

// noteNumbers notes how far what has run so far has come.
func (s *Store) noteNumbers(g *group) {
	g.events, g.number, g.unended = s.feed.number, s.sched.Number, len(s.cohorts)
}

// runInGroup runs an operation. One that fails after it has written, as something cannot be read for longer than that is tried, leaves half of
// itself in the group: nothing may be committed any more.
func (s *Store) runInGroup(g *group, o *op) {
	g.ops = append(g.ops, o)
	if s.wentAhead++; !o.ahead {
		s.wentAhead = 0
	}
	if g.space < o.needs {
		o.err = noSpace()
		return
	}
	g.wrote, g.sizeBefore, g.damaged, g.touched, g.freed, g.reached, g.left, g.over = false, g.size, nil, nil, g.firstOne[:0], 0, nil, nil
	s.mu.Lock()
	o.err = o.run(&g.tx)
	if o.err == nil {
		s.mendQueues(&g.tx)
	}
	s.startFreedLater(&g.tx)
	s.ringTouched(&g.tx)
	s.noteNumbers(g)
	s.mu.Unlock()
	if o.err != nil && g.wrote {
		s.poison(o.err)
	}
}

// mendQueues writes the rows of queues anew that the operation could not read, unless they
// were deleted, or there is no room: then the next operation that reads them does.
func (s *Store) mendQueues(t *tx) {
	for _, q := range t.damaged {
		key, row := nameKey(prefixQueue, q.Name), encode(rowOf(q))
		if s.sched.Queue(q.Name) != q || t.space < SpaceCritical || !t.hasRoom(len(key)+len(row)+WriteCost) {
			continue
		}
		s.log.Error("the row of a queue was damaged and is written anew", "queue", harp.Value(q.Name).String())
		t.put(key, row)
	}
}

// commitLoop commits groups, one after the other, and answers their operations, those
// too that were refused: what they were refused for may have been written by the same
// group, or by the one before.
func (s *Store) commitLoop() {
	for g := range s.groups {
		err := s.commitGroup(g)
		g.before = nil
		close(g.isOver)
		for _, o := range g.ops {
			if err != nil {
				o.err = err
			}
			o.done <- o.err
		}
	}
}

// commitGroup puts on disk what a group has written. The next group reads it meanwhile. The
// error is store.ErrPoisoned.
func (s *Store) commitGroup(g *group) error {
	writes := append(g.writes, g.feedRows.writes()...)
	writes = append(append(append(writes, g.cohortRows()...), endedRows(g.ended)...), g.batchRows()...)
	writes = append(writes, g.classRows()...)
	ahead := s.clockAhead.Load()
	wasSet := ahead != s.keptAhead && (len(writes) > 0 || g.space >= SpaceCritical)
	if err := s.poisoned(); err != nil || len(writes) == 0 && !wasSet {
		return err
	}
	if are := (counts{g.number, s.stored.Add(g.usage.grown), g.unended}); are != s.counted {
		writes = append(writes, are.write())
		s.counted = are
	}
	if wasSet {
		writes = append(writes, Write{keyAhead, sealNumbers(keyAhead, uint64(ahead))})
		s.keptAhead = ahead
	}
	s.jobCache.hideGroup(g.jobs, g.batches)
	if err := s.engine.Commit(writes); err != nil {
		s.poison(err)
		return s.poisoned()
	}
	s.jobCache.addGroup(g.jobs, g.batches)
	s.unended.move(g.moves...)
	s.feed.announce(g.events)
	return nil
}
