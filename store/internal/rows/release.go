package rows

import (
	"errors"
	"fmt"
	"math"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/store"
	"github.com/harpcaller/harp/store/internal/schedule"
)

// settleBatches does what follows for the batches whose members an operation has moved, and returns what
// was started by it. All that an operation does has been done before: so failures that come together stop a
// batch before the next host is reached.
func (s *Store) settleBatches(t *tx, now int64) (started []*store.Job, err error) {
	touched := t.touched
	t.touched = nil
	for _, b := range touched {
		some, err := s.advanceBatch(t, b, now)
		started = append(started, some...)
		if err != nil {
			return started, err
		}
	}
	return started, nil
}

// advanceBatch takes a batch as far as it can go now. One whose next host cannot be read, or whose member
// there is there already, is paused: that host must not be reached a second time.
func (s *Store) advanceBatch(t *tx, b *batch, now int64) ([]*store.Job, error) {
	started, err := s.goThrough(t, b, now)
	if !errors.Is(err, ErrDamaged) || s.batches[b.id] != b {
		return started, err
	}
	s.log.Error("batch is paused: its next host cannot be reached", "batch", b.id.String(), "err", err)
	err = s.changeBatch(t, b, store.BatchEvent{Kind: store.BatchPaused, At: fromNanos(now), Reason: "what is stored of its hosts is damaged"})
	s.sched.RingBatch(b.slots, b.nextDue(now, false))
	return started, err
}

// goThrough starts what is parked for the free slots of a batch, then reaches the next hosts, until
// neither goes on.
func (s *Store) goThrough(t *tx, b *batch, now int64) (started []*store.Job, err error) {
	for reached := true; reached; {
		if s.batches[b.id] != b {
			return started, nil // it has ended
		}
		if err := s.changeBatch(t, b, store.BatchEvent{Kind: store.BatchSettled, At: fromNanos(now)}); err != nil {
			return started, err
		}
		if b.life.State.Ended() {
			return started, nil
		}
		some, err := s.startParked(t, b, now)
		started = append(started, some...)
		if err != nil {
			return started, err
		}
		some, reached, err = s.reachHosts(t, b, now)
		started = append(started, some...)
		if err != nil {
			return started, err
		}
	}
	s.sched.RingBatch(b.slots, b.nextDue(now, s.sched.Unparks(b.slots)))
	return started, nil
}

// nextDue is when something of a batch will be due, as far as time or room alone decides it; 0 for never.
func (b *batch) nextDue(now int64, unparks bool) int64 {
	if b.asking || b.slots.Free() > 0 && (unparks || b.life.MayReach(&b.row.Plan, fromNanos(now))) {
		return now // there was no room for all in one commit
	}
	due := nanos(b.life.NextDue(&b.row.Plan))
	if due != 0 && due <= now {
		return 0 // it waits for a slot
	}
	return due
}

// startParked starts members that were parked for the batch.
func (s *Store) startParked(t *tx, b *batch, now int64) (started []*store.Job, err error) {
	for t.hasRoom(maxStep) {
		e := s.sched.Unpark(b.slots, now)
		if e == nil {
			return started, nil
		}
		next := s.sched.NextInQueue(e.Queue, now)
		if next == nil {
			continue
		}
		j, err := s.claimJob(t, next, now)
		if err != nil {
			return started, err
		}
		if j != nil {
			started = append(started, j)
		}
	}
	return started, nil
}

// maxReached is how many hosts of a batch one operation reaches at most.
const maxReached = 500

// reachHosts reaches the next hosts of a batch, as many as it has slots for and one commit takes. Reached
// says that there was one.
func (s *Store) reachHosts(t *tx, b *batch, now int64) (started []*store.Job, reached bool, err error) {
	for n := 0; n < maxReached && b.slots.Free() > 0 && t.hasRoom(maxStep) && b.life.MayReach(&b.row.Plan, fromNanos(now)); n++ {
		host, err := b.hostAt(t, b.life.Reached)
		if err != nil {
			return started, reached, err
		}
		reached = true
		j, err := s.reachHost(t, b, host, now)
		if err != nil {
			return started, reached, err
		}
		if j.State == harp.StateSent {
			started = append(started, j)
		}
	}
	return started, reached, nil
}

// hostAt is the host of a batch at a place.
func (b *batch) hostAt(from getter, at int) (store.BatchHost, error) {
	if piece := at / namesMost; piece != b.piece || b.names == nil {
		row, err := readNames(from, b.id, piece)
		if err != nil {
			return store.BatchHost{}, err
		}
		b.piece, b.names = piece, make([]store.BatchHost, len(row.Names))
		for n := range row.Names {
			b.names[n] = row.host(n)
		}
	}
	if at%namesMost >= len(b.names) {
		return store.BatchHost{}, fmt.Errorf("%w: batch %s has no host %d", ErrDamaged, b.id, at)
	}
	return b.names[at%namesMost], nil
}

// readNames reads a row of names. Errors: ErrDamaged.
func readNames(from getter, i id, piece int) (row batchNames, err error) {
	found, err := read(from, namesKey(i, piece), &row)
	if err == nil && !found {
		err = fmt.Errorf("%w: batch %s, row %d", errNoNames, i, piece)
	}
	return row, err
}

var errNoNames = fmt.Errorf("%w: names of a batch are missing", ErrDamaged)

// reachHost makes the member of a batch on its next host, which starts at once if it may, or is left out.
func (s *Store) reachHost(t *tx, b *batch, host store.BatchHost, now int64) (*store.Job, error) {
	j, i := b.member(b.life.Reached, host)
	switch isNew, err := s.isNew(t, i); {
	case err != nil:
		return nil, err
	case !isNew: // the life of the batch is older than its members
		return nil, fmt.Errorf("%w: member %s of batch %s is there before its host is reached", ErrDamaged, j.ID, b.id)
	}
	s.sched.Number++
	j.No, j.Life = s.sched.Number, store.Begin(fromNanos(now), "")
	j.Retry = b.row.Classes[host.Class].Retry
	if reason := s.skips(b, host, now); reason != "" {
		j.Life = store.SkippedLife(fromNanos(now), reason)
		return j, s.skipMember(t, b, i, j, reason)
	}
	if err := s.openQueue(t, j); err != nil {
		return nil, err
	}
	if e, started := s.sched.Submit(i, j, now); started {
		j.Life = sentLife(j, now)
	} else {
		j.Reason = s.sched.Reason(e, j)
	}
	t.putMember(i, j)
	t.enterCohort(i, j)
	if j.State != harp.StateQueued {
		t.emitJob(stateEvents[j.State], i, j, now, nil)
	}
	return j, s.changeBatch(t, b, store.BatchEvent{Kind: store.MemberReached, At: fromNanos(now), To: j.State})
}

// putMember writes a job that is new and has its request from its batch.
func (t *tx) putMember(i id, j *store.Job) {
	t.call = newCallRow(j, &[32]byte{})
	t.putRow(i.key(prefixCall), &t.call)
	t.putLife(i, j, nil)
	t.usage.grown += footprint(j)
	for _, key := range entries(j) {
		t.appendWrite(key, seal(key, i[:]))
	}
}

// skipMember writes a member that is left out.
func (s *Store) skipMember(t *tx, b *batch, i id, j *store.Job, reason string) error {
	t.putMember(i, j)
	key := endedKey(j)
	t.appendWrite(key, seal(key, i[:]))
	t.emitJob(stateEvents[j.State], i, j, nanos(j.Since), nil)
	err := s.changeBatch(t, b, store.BatchEvent{Kind: store.MemberSkipped, At: j.Since, Reason: reason})
	t.logEntry(b, store.BatchEntry{Kind: store.BatchMemberEnded, Index: j.Index, Count: 1})
	return err
}

// skips is why a host is left out when its turn has come; "" if it is not.
func (s *Store) skips(b *batch, host store.BatchHost, now int64) string {
	switch {
	case host.Unfit != "":
		return host.Unfit
	case b.row.SkipAway && s.sched.IsAway(host.Name, now):
		return harp.ReasonOffline
	default:
		return ""
	}
}

// member is the job of a batch on one of its hosts, without a life.
func (b *batch) member(index int, host store.BatchHost) (*store.Job, id) {
	return memberOf(b.row, index, host)
}

func memberOf(b *store.Batch, index int, host store.BatchHost) (*store.Job, id) {
	j := b.Member.Clone()
	j.ID = harp.MemberID(b.ID, host.Name, 1)
	j.Host, j.Batch, j.Index = host.Name, b.ID, index
	if host.Class < len(b.Classes) {
		c := &b.Classes[host.Class]
		j.SilenceTimeout, j.MaxExecTime, j.SecretArgs = c.SilenceTimeout, c.MaxExecTime, c.SecretArgs
	}
	if b.QueuePerHost && j.Queue != nil {
		j.Queue = queueOf(j.Queue, host.Name)
	}
	j.Concurrency = max(j.Concurrency, 1)
	i, _ := parseID(j.ID)
	return j, i
}

// queueOf is the name of a queue with the host's in it.
func queueOf(name harp.Value, host string) harp.Value {
	var keys map[string]any
	if name.Decode(&keys) != nil {
		return name
	}
	keys["host"] = host
	with, err := harp.QueueName(keys)
	if err != nil {
		return name
	}
	return with
}

// ringBatch does what is due of a batch.
func (s *Store) ringBatch(t *tx, slots *schedule.Batch, now int64, out *store.Advanced) error {
	i, _ := parseID(slots.ID())
	b := s.batches[i]
	if b == nil {
		return nil
	}
	if b.asking {
		if err := s.askMembers(t, b, now, out); err != nil {
			return err
		}
	}
	started, err := s.advanceBatch(t, b, now)
	out.Claimed = append(out.Claimed, started...)
	return err
}

// askAll is what is done of what is due where there is room for cancels only.
func (s *Store) askAll(t *tx, now int64, out *store.Advanced) error {
	for _, b := range s.batches {
		if b.asking {
			if err := s.askMembers(t, b, now, out); err != nil {
				return err
			}
		}
	}
	return nil
}

// askMembers asks members of a batch that is cancelled to stop, as many as one commit takes; those that
// wait have ended by it.
func (s *Store) askMembers(t *tx, b *batch, now int64, out *store.Advanced) error {
	n := 0
	for _, i := range b.slots.Members() {
		if n == maxDue || !t.hasRoom(maxEvent+maxStep) {
			return nil
		}
		before, err := readJob(t, i)
		if err == nil && (before.Cancel != nil || before.State.Ended()) {
			continue
		}
		if err != nil {
			if s.skipDamaged(s.sched.Job(i), err) {
				continue
			}
			return err
		}
		n++
		var c store.Change
		if err := s.applyEvent(t, i, before, b.askToStop(now), &c); err != nil {
			return err
		}
		switch {
		case c.Err != nil && !s.skipDamaged(s.sched.Job(i), c.Err):
			return c.Err
		case c.Effect.Ends:
			out.Ended = append(out.Ended, c.Job)
		case c.Effect.Tell:
			out.Asked = append(out.Asked, c.Job)
		}
		out.Claimed = append(out.Claimed, c.Claimed...)
	}
	b.asking = false
	return nil
}

// askToStop is what happens to the members of a batch that is cancelled.
func (b *batch) askToStop(now int64) store.Event {
	e := store.Event{Kind: store.CancelReq, At: fromNanos(now), Reason: harp.ReasonBatch}
	if c := b.life.Cancel; c != nil {
		e.By = c.By
	}
	return e
}

// loadBatches reads the batches that have not ended, before their members are. There are few: so the
// lives of all are looked at, rather than an index that the end of each had to change.
func (s *Store) loadBatches(snap Snapshot) error {
	return eachBatch(snap, func(i id) error {
		b, err := openBatch(snap, i)
		if err != nil {
			return fmt.Errorf("store: batch %s: %w", i, err)
		}
		if b == nil {
			return nil
		}
		b.slots = s.sched.OpenBatch(b.row.ID, b.row.Plan.Parallel)
		s.batches[i] = b
		if b.life.State != harp.BatchRunning {
			s.sched.Halt(b.slots, math.MinInt64)
		}
		s.sched.RingBatch(b.slots, 1)
		return nil
	})
}

// eachBatch calls f with the ids of all batches that are not pruned.
func eachBatch(snap Snapshot, f func(i id) error) error {
	for entry, err := range snap.Keys([]byte{prefixBatch}) {
		if err != nil {
			return err
		}
		if len(entry.Key) != 1+len(id{}) {
			continue // names
		}
		i := id(entry.Key[1:])
		if tomb, err := snap.Get(i.key(prefixTomb)); err != nil || tomb != nil {
			if err != nil {
				return err
			}
			continue
		}
		if err := f(i); err != nil {
			return err
		}
	}
	return nil
}

// openBatch reads a batch that has not ended; nil of one that has. Errors: ErrDamaged.
func openBatch(snap Snapshot, i id) (*batch, error) {
	var life batchLifeRow
	found, err := read(snap, i.key(prefixBatchLife), &life)
	if err == nil && !found {
		err = fmt.Errorf("%w: batch %s has no life", ErrDamaged, i)
	}
	if err != nil || life.State.Ended() {
		return nil, err
	}
	row, err := withLife(snap, i, life.BatchLife)
	if err != nil {
		return nil, err
	}
	return &batch{id: i, row: row, life: row.BatchLife, log: life.Log, piece: -1, asking: row.State == harp.BatchCancelling}, nil
}

// checkBatches compares what batches say of their members with those that were read.
func (s *Store) checkBatches() error {
	if s.opts.restored {
		return nil // all of them end
	}
	for _, b := range s.batches {
		if n := len(b.slots.Members()); n != b.life.Counts.Unended() {
			return fmt.Errorf("%w: %d members of batch %s have not ended, and %d are there", ErrDamaged, b.life.Counts.Unended(), b.id, n)
		}
	}
	return nil
}

// restoreBatches ends the batches of a store that was restored, all members of which have.
func (s *Store) restoreBatches(t *tx, now int64) error {
	for _, b := range s.batches {
		if !t.hasRoom(maxStep) {
			return nil
		}
		err := s.changeBatch(t, b, store.BatchEvent{Kind: store.BatchRestored, At: fromNanos(now)})
		if err != nil && !errors.Is(err, store.ErrIllegal) {
			return err
		}
	}
	return nil
}
