package schedule

import (
	"iter"
	"maps"
	"slices"

	"github.com/tidwall/btree"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/msgpack"
	"github.com/harpcaller/harp/store"
)

// A Batch is the slots of a batch, and those of its members that wait for one. A member holds a slot
// from its release to its end, but not while its host is away or its agent takes no call: then it is
// passed over, and has a slot again when it starts. One that could start and for which there is no slot
// is parked, out of everybody's way.
type Batch struct {
	id       string
	parallel int
	taken    int
	holder   *holder           // whose it is
	ahead    int               // hosts that are not reached: each counts as a job that waits
	since    int64             // since when it goes on, of one that was there as the store was opened
	halted   bool              // none of its members may start
	members  map[*Job]struct{} // that have not ended
	parked   *btree.BTreeG[*Job]
	keeping  *btree.BTreeG[*Job] // are parked and hold a slot, since the batch was halted
	again    Alarm               // something of it may be due
}

// OpenBatch takes a batch into the schedule that has not ended, and has so many hosts ahead that are not
// reached. Those of its members that are added have not waited for their hosts alone before since.
func (s *Schedule) OpenBatch(id string, parallel, ahead int, since int64, who harp.Principal) *Batch {
	b := &Batch{id: id, parallel: parallel, since: since, members: map[*Job]struct{}{}, parked: entryTree(), keeping: entryTree()}
	b.again = Alarm{Kind: AlarmBatch, Batch: b}
	s.batches[id] = b
	if ahead > 0 {
		b.holder = s.holder(who)
		s.expect(b, ahead)
	}
	return b
}

// NextHost notes that the next host of a batch is reached.
func (s *Schedule) NextHost(b *Batch) { s.expect(b, -1) }

// expect counts hosts of a batch that are not reached.
func (s *Schedule) expect(b *Batch, hosts int) {
	b.ahead += hosts
	b.holder.jobs += hosts
	b.holder.waiting += hosts
	s.unended += hosts
	s.forgetIdle(b.holder)
}

// UnendedMembers is how many members batches have that have not ended, those on hosts that are not reached
// among them.
func (s *Schedule) UnendedMembers() int { return s.unended }

// Batch returns a batch that has not ended; nil for any other.
func (s *Schedule) Batch(id string) *Batch { return s.batches[id] }

// Batches yields the batches that have not ended, in no order.
func (s *Schedule) Batches() iter.Seq[*Batch] { return maps.Values(s.batches) }

// DropBatch forgets a batch that has ended.
func (s *Schedule) DropBatch(b *Batch) {
	s.agenda.clear(&b.again)
	delete(s.batches, b.id)
	if b.ahead > 0 { // else the principal may be another holder by now
		s.expect(b, -b.ahead)
	}
}

// ID is the id of the batch.
func (b *Batch) ID() string { return b.id }

// Free is how many of its slots are free.
func (b *Batch) Free() int {
	if b.halted {
		return 0
	}
	return max(0, b.parallel-b.taken)
}

// hasRoom reports whether one of its slots is free, which no member may have that starts while it is halted.
func (b *Batch) hasRoom() bool { return b != nil && b.taken < b.parallel }

// Halt keeps the members of a batch from starting. Those that wait for their hosts do not do so
// meanwhile.
func (s *Schedule) Halt(b *Batch, now int64) {
	b.halted = true
	for e := range b.members {
		if e.hostQueue != nil && !e.IsCancelled() {
			s.park(e, now)
		}
	}
}

// Resume lets the members of a batch start again: see Unpark.
func (s *Schedule) Resume(b *Batch) { b.halted = false }

// Members lists the members that have not ended, in the order of their release.
func (b *Batch) Members() []ID {
	all := make([]*Job, 0, len(b.members))
	for e := range b.members {
		all = append(all, e)
	}
	return idsOf(all)
}

// RingBatch has something of a batch be due at a time; 0 for never.
func (s *Schedule) RingBatch(b *Batch, at int64) {
	if at == 0 {
		s.agenda.clear(&b.again)
		return
	}
	s.agenda.set(&b.again, at)
}

// RingBatchBy has what is due of a batch at some time be due at this one, unless that is later; 0 for never.
func (s *Schedule) RingBatchBy(b *Batch, at int64) {
	if at != 0 && b.again.index > 0 && at < b.again.at {
		s.agenda.set(&b.again, at)
	}
}

// Batch is the id of the batch that a job is a member of, as long as that has not ended; "" if it is of none.
func (e *Job) Batch() string {
	if e.batch == nil {
		return ""
	}
	return e.batch.id
}

// takeBatchSlot gives a member a slot of its batch, unless it has one.
func (e *Job) takeBatchSlot() {
	if e.batch != nil && !e.inSlot {
		e.inSlot = true
		e.batch.taken++
	}
}

// giveBatchSlot takes the slot back, and has the batch look for who is to have it.
func (s *Schedule) giveBatchSlot(e *Job) {
	if !e.inSlot {
		return
	}
	e.inSlot = false
	e.batch.taken--
	s.RingBatch(e.batch, max(s.Latest, 1))
}

// takeBack takes slots back from members that wait, where they were added before one that holds an attempt and has
// left none for it.
func (b *Batch) takeBack() {
	if b == nil || b.taken <= b.parallel {
		return
	}
	for e := range b.members {
		if !e.inSlot || e.active {
			continue
		}
		isParked := e.parked
		e.leaveParked()
		e.inSlot = false
		if b.taken--; isParked {
			e.parked = true
			e.parkedIn().Set(e)
		}
		if b.taken <= b.parallel {
			return
		}
	}
}

// isBlocked reports whether a member may not start for its batch.
func (e *Job) isBlocked() bool {
	b := e.batch
	return b != nil && (b.halted || !e.inSlot && b.Free() == 0)
}

// park takes a member that only its batch keeps from starting out of its host queue, if it is in one. Where
// that is because the batch is halted it keeps its slot.
func (s *Schedule) park(e *Job, now int64) {
	s.leaveHostQueue(e, now)
	e.parked = true
	e.parkedIn().Set(e)
}

// parkedIn is where the member is parked: with a slot of its batch, or without.
func (e *Job) parkedIn() *btree.BTreeG[*Job] {
	if e.inSlot {
		return e.batch.keeping
	}
	return e.batch.parked
}

// leaveParked takes a member out of those that are parked, if it is one.
func (e *Job) leaveParked() {
	if e.parked {
		e.parkedIn().Delete(e)
		e.parked = false
	}
}

// Follow takes the next step of a chain into the schedule, in place of the one that has ended, whose slot of their
// batch it gets. It is parked: see Unpark.
func (s *Schedule) Follow(i ID, j *store.Job, last ID, now int64) {
	e := s.insertJob(i, j)
	if before := s.jobs[last]; before != nil {
		before.leaveParked() // while it is known by its slot where that is
		e.inSlot, before.inSlot = before.inSlot, false
	}
	e.Queue.waiting.Set(e)
	s.park(e, now)
}

// Unpark puts the first member that is parked and has a slot of its batch, or for which one is free, back into
// its host queue; nil if there is none.
func (s *Schedule) Unpark(b *Batch, now int64) *Job {
	for s.Unparks(b) {
		e, ok := b.keeping.PopMin()
		if !ok {
			e, _ = b.parked.PopMin()
		}
		e.parked = false
		if e.IsCancelled() || e.isLate(now) {
			continue // they end without
		}
		e.takeBatchSlot()
		s.joinHostQueue(e, now)
		return e
	}
	return nil
}

// takeSlotsOf gives members that wait for a host which has come the slots of their batches that are free:
// those that wait in their queue from now on hold one, and of the others as many as the host has room for.
func (h *host) takeSlotsOf() {
	var next []*Job
	take := func(e *Job) {
		if !e.isBlocked() {
			e.takeBatchSlot()
		}
	}
	for l := range h.hostQueues {
		free := l.queue.free()
		l.entries.Scan(func(e *Job) bool {
			if free--; free >= 0 {
				next = append(next, e)
			} else {
				take(e)
			}
			return true
		})
	}
	slices.SortFunc(next, (*Job).Compare)
	for _, e := range next[:min(len(next), h.gate.Most-len(h.active))] {
		take(e)
	}
}

// giveSlotsOf takes back the slots of batches that members hold which wait for a host: it has left.
func (s *Schedule) giveSlotsOf(h *host) {
	for l := range h.hostQueues {
		l.entries.Scan(func(e *Job) bool {
			s.giveBatchSlot(e)
			return true
		})
	}
}

// Unparks reports whether members of a batch are parked that have a slot now.
func (s *Schedule) Unparks(b *Batch) bool {
	return !b.halted && b.keeping.Len() > 0 || b.Free() > 0 && b.parked.Len() > 0
}

// IsAway reports whether a host is away, and not about to return: of one that is, its absence has not begun.
func (s *Schedule) IsAway(name string, now int64) bool {
	h := s.host(name)
	return h.isAway() && msgpack.Nanos(h.gate.LastHeard) <= now
}
