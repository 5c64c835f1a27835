package rows

import (
	"errors"
	"fmt"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/store"
	"github.com/harpcaller/harp/store/internal/schedule"
	"github.com/harpcaller/harp/window"
)

// settleBatches does what follows for the batches whose members an operation has moved, and returns what
// was started by it. All that an operation does has been done before: so failures that come together stop a
// batch before the next host is reached.
func (s *Store) settleBatches(t *tx, now int64) (started []*store.Job, err error) {
	if t.space < SpaceLow {
		return nil, nil
	}
	touched := t.touched
	t.touched = nil
	for n, b := range touched {
		if !t.hasRoom(maxStep) {
			t.touched = touched[n:]
			s.ringTouched(t)
			return started, nil
		}
		some, err := s.advanceBatch(t, b, now)
		started = append(started, some...)
		if err != nil {
			t.touched = touched[n:]
			return started, err
		}
	}
	return started, nil
}

// ringTouched has what follows for batches be due that the operation did not settle.
func (s *Store) ringTouched(t *tx) {
	for _, b := range t.touched {
		if s.batches[b.id] == b {
			s.sched.RingBatch(b.slots, max(s.sched.Latest, 1))
		}
	}
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

// maxReached is how many hosts of batches one operation reaches at most, those counted that were parked.
const maxReached = 500

// goThrough starts what is parked for the free slots of a batch, then reaches the next hosts, until
// neither goes on, or it is enough for one operation.
func (s *Store) goThrough(t *tx, b *batch, now int64) (started []*store.Job, err error) {
	for reached := true; reached; {
		if t.reached >= maxReached {
			s.sched.RingBatch(b.slots, now)
			return started, nil
		}
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
	if b.asking || unparks || b.slots.Free() > 0 && b.life.MayReach(&b.row.Plan, fromNanos(now)) {
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
	for ; t.reached < maxReached && t.hasRoom(maxStep); t.reached++ {
		e := s.sched.Unpark(b.slots, now)
		if e == nil {
			break
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

// reachHosts reaches the next hosts of a batch, as many as it has slots for and one commit takes. Reached
// says that there was one.
func (s *Store) reachHosts(t *tx, b *batch, now int64) (started []*store.Job, reached bool, err error) {
	for ; t.reached < maxReached && b.slots.Free() > 0 && t.hasRoom(maxStep) && b.life.MayReach(&b.row.Plan, fromNanos(now)); t.reached++ {
		host, err := b.hostAt(t, b.life.Reached)
		if err != nil {
			return started, reached, err
		}
		reached = true
		j, err := s.reachHost(t, b, host, now)
		if err != nil {
			return started, reached, err
		}
		s.sched.NextHost(b.slots)
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
	switch isNew, err := s.isNewMember(t, b, i); {
	case err != nil:
		return nil, err
	case !isNew:
		return s.passMember(t, b, i, now)
	}
	isRemoved, err := s.isRemoved(t, b, host.Name, now)
	if err != nil {
		return nil, err
	}
	s.sched.Number++
	j.No, j.Life = s.sched.Number, beginMember(j, now, "")
	reason := s.skips(b, host, now)
	switch {
	case isRemoved:
		j.Life, _, err = j.Next(store.Event{Kind: store.Lose, At: fromNanos(now), Reason: harp.LostHostRemoved})
		if err != nil {
			return nil, err
		}
		return j, s.endMember(t, b, i, j, store.BatchEvent{Kind: store.MemberReached, At: j.Since, To: j.State})
	case reason != "":
		j.Life = store.SkippedLife(fromNanos(now), reason)
		return j, s.endMember(t, b, i, j, store.BatchEvent{Kind: store.MemberSkipped, At: j.Since, Reason: reason})
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

// isNewMember is isNew for a member of a batch whose host is to be reached. Of a batch that was submitted since the store was
// opened only those are there that it has reached, and those that were cancelled before their turn: nothing is read for the others.
func (s *Store) isNewMember(t *tx, b *batch, i id) (bool, error) {
	if b.fresh && b.life.Early == 0 {
		return s.sched.Job(i) == nil, nil
	}
	return s.isNew(t, i)
}

// putMember writes a job that is new and has its request from its batch.
func (t *tx) putMember(i id, j *store.Job) {
	t.call = newCallRow(j, &[32]byte{})
	t.putRow(i.key(prefixCall), &t.call)
	t.putLife(i, j, nil)
	t.usage.grown += footprint(j)
	for _, key := range entries(j) {
		t.appendIndexEntry(key, i)
	}
}

// endMember writes a member that ends as its host is reached.
func (s *Store) endMember(t *tx, b *batch, i id, j *store.Job, e store.BatchEvent) error {
	t.putEnded(i, j)
	t.left = append(t.left, j)
	b.life.Counted += footprint(j)
	err := s.changeBatch(t, b, e)
	kind := store.BatchMemberEnded
	if e.Kind == store.MemberSkipped {
		kind = store.BatchMemberSkipped
	}
	t.logEntry(b, store.BatchEntry{Kind: kind, Index: j.Index, Count: 1})
	return err
}

// putEnded writes a member that never waited.
func (t *tx) putEnded(i id, j *store.Job) {
	t.putMember(i, j)
	key := endedKey(j)
	t.appendIndexEntry(key, i)
	t.emitJob(stateEvents[j.State], i, j, nanos(j.Since), nil)
}

// isRemoved reports whether an operator has removed a host since a batch was submitted, and it has not come back. That it is known again,
// as the registry lists it, only batches show that were submitted since.
func (s *Store) isRemoved(t *tx, b *batch, host string, now int64) (bool, error) {
	if !s.sched.IsAway(host, now) {
		return false, nil
	}
	var row store.Host
	_, err := read(t, hostKey(host), &row)
	if errors.Is(err, ErrDamaged) {
		return false, nil
	}
	return row.Removed && b.row.No <= row.RemovedNo, err
}

// earlyMember is a member whose host is not reached, and that is to be cancelled.
type earlyMember struct {
	batch id
	index int
	host  store.BatchHost
	step  int
	isOut bool // its chain will not come to it
}

// findEarly finds those whose hosts are not reached among the members that are to be cancelled: here, as
// all names of their batches may have to be looked at for one.
func (s *Store) findEarly(ts []store.Transition) (map[id]earlyMember, error) {
	var found map[id]earlyMember
	for n := range ts {
		i, _ := parseID(ts[n].ID)
		if ts[n].Event.Kind != store.CancelReq || !i.isMember() || s.jobCache.getSettled(i) != nil {
			continue
		}
		err := s.view(func(snap Snapshot) error {
			if life, err := snap.Get(i.key(prefixLife)); err != nil || life != nil {
				return err
			}
			j, err := s.findUnreached(snap, i)
			if err != nil {
				return nil //nolint:nilerr // that is said when it is applied
			}
			of, _ := parseID(j.Batch)
			row, err := readNames(snap, of, j.Index/namesMost)
			if err != nil {
				return err
			}
			if found == nil {
				found = map[id]earlyMember{}
			}
			found[i] = earlyMember{of, j.Index, row.host(j.Index % namesMost), j.Step(), j.State.Ended()}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return found, nil
}

// cancelEarly writes a member as cancelled whose host is not reached. The log tells of it when its turn
// comes, or of all whose turn does not come. It returns only errors that nothing can be done about.
func (s *Store) cancelEarly(t *tx, i id, m earlyMember, e store.Event, out *store.Change) error {
	b := s.batches[m.batch]
	if b == nil || b.life.IsOver() {
		out.Err = fmt.Errorf("%w: %s of a member whose batch is over", store.ErrIllegal, e.Kind)
		return nil
	}
	if m.step > 1 {
		out.Err = notBegun(m)
		return nil
	}
	j, _ := b.member(m.index, m.host)
	life, effect, err := store.Begin(fromNanos(s.sched.NoteTime(e.At)), "").Next(e)
	if err != nil {
		out.Err = err
		return nil
	}
	s.sched.Number++
	j.No, j.Life = s.sched.Number, life
	t.putEnded(i, j)
	b.life.Counted += footprint(j)
	out.Job, out.Effect = j, effect
	return s.changeBatch(t, b, store.BatchEvent{Kind: store.MemberCancelled, At: j.Since})
}

// passMember counts a member that was cancelled before its turn. Any other that is there says that the
// life of the batch is older than its members. Errors: ErrDamaged.
func (s *Store) passMember(t *tx, b *batch, i id, now int64) (*store.Job, error) {
	j, err := readJob(t, i)
	if err != nil || j.State != harp.StateCancelled || j.Attempt > 0 || b.life.Early == 0 {
		return nil, fmt.Errorf("%w: member %s of batch %s is there before its host is reached", ErrDamaged, i, b.id)
	}
	err = s.changeBatch(t, b, store.BatchEvent{Kind: store.MemberPassed, At: fromNanos(now)})
	t.logEntry(b, store.BatchEntry{Kind: store.BatchMemberEnded, Index: j.Index, Count: 1})
	return j, err
}

// skips is why a host is left out when its turn has come; "" if it is not.
func (s *Store) skips(b *batch, host store.BatchHost, now int64) string {
	switch {
	case host.Unfit != "":
		return host.Unfit
	case b.row.SkipAway && s.sched.IsAway(host.Name, now):
		return harp.ReasonOffline
	}
	start := window.Start{Procedure: b.row.Member.Procedure, Scheduled: !b.row.Member.FireTime.IsZero()}
	if host.Class < len(b.row.Classes) {
		start.ReadOnly = b.row.Classes[host.Class].ReadOnly
	}
	v := s.sched.Judge(host.Name, start, now)
	switch {
	case v.Unknown || len(v.Obstacles) == 0 || !b.row.SkipHeld && v.Mode() != window.Refuse:
		return ""
	case v.Obstacles[0].Pause != nil: // windows come first
		return harp.ReasonPaused
	}
	return harp.ReasonWindow
}

// member is the job of a batch on one of its hosts, without a life.
func (b *batch) member(index int, host store.BatchHost) (*store.Job, id) {
	return memberOf(b.row, index, host)
}

func memberOf(b *store.Batch, index int, host store.BatchHost) (*store.Job, id) {
	return stepOf(b, index, host, 1)
}

// stepOf is the job of a step of a batch on one of its hosts, without a life.
func stepOf(b *store.Batch, index int, host store.BatchHost, step int) (*store.Job, id) {
	j := b.Member.Clone()
	j.ID = harp.MemberID(b.ID, host.Name, step)
	j.Host, j.Batch, j.Index = host.Name, b.ID, index
	if j.RetryOf != "" { // of the batch
		j.RetryOf = harp.MemberID(j.RetryOf, host.Name, step)
	}
	classes := b.Classes
	if len(b.Steps) > 0 {
		j.Chain = &store.ChainPlace{Step: step, Of: b.StepCount(), Class: host.Class, EachStep: b.EachStep}
	}
	if step > 1 { // what has begun is finished: only the first has to start by a time
		s := &b.Steps[step-2]
		j.Procedure, j.Expires, classes = s.Procedure, time.Time{}, s.Classes
	}
	if host.Class < len(classes) {
		c := &classes[host.Class]
		j.SilenceTimeout, j.MaxExecTime, j.SecretArgs, j.ReadOnly, j.Retry = c.SilenceTimeout, c.MaxExecTime, c.SecretArgs, c.ReadOnly, c.Retry
		if c.OfflineWait > 0 {
			j.OfflineWait = c.OfflineWait
		}
	}
	if b.QueuePerHost && j.Queue != nil {
		if own, err := store.QueueOn(j.Queue, host.Name); err == nil { // else it was submitted before that was refused
			j.Queue = own
		}
	}
	j.Concurrency = max(j.Concurrency, 1)
	i, _ := parseID(j.ID)
	return j, i
}

// beginMember is the life of a member that begins now.
func beginMember(j *store.Job, now int64, reason string) store.Life {
	l := store.Begin(fromNanos(now), reason)
	l.Retry = j.Retry
	return l
}

// ringBatch does what is due of a batch, but for its next hosts: settleBatches reaches them when all else that is due is done, as
// failures among that may stop it.
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
	t.touchBatch(b)
	out.Batches = append(out.Batches, b.row.ID)
	return nil
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

// isAsking reports whether askAll has not come to all.
func (s *Store) isAsking() bool {
	for _, b := range s.batches {
		if b.asking {
			return true
		}
	}
	return false
}

// askMembers asks members of a batch that is cancelled to stop, as many as one commit takes; those that
// wait have ended by it. None joins them meanwhile.
func (s *Store) askMembers(t *tx, b *batch, now int64, out *store.Advanced) error {
	if b.unasked == nil {
		b.unasked = b.slots.Members()
	}
	for n := 0; len(b.unasked) > 0; n++ {
		if n == maxDue || !t.hasRoom(maxEvent+maxStep) {
			return nil
		}
		i := b.unasked[0]
		if e := s.sched.Job(i); e != nil && !e.IsCancelled() { // else it has ended, or rewriteCancelled ends it with its queue
			if err := s.askMember(t, b, e, now, out); err != nil {
				return err
			}
		}
		b.unasked = b.unasked[1:]
	}
	b.asking, b.unasked = false, nil
	return nil
}

// askMember asks a member to stop, unless it was asked before, or ends it, if it waits.
func (s *Store) askMember(t *tx, b *batch, e *schedule.Job, now int64, out *store.Advanced) error {
	before, err := readJob(t, e.ID)
	switch {
	case err != nil && s.skipDamaged(e, err):
		return nil
	case err != nil:
		return err
	case before.Cancel != nil || before.State.Ended():
		return nil
	}
	covered, _, err := coveredBy(t, before)
	if err != nil {
		return err
	}
	if covered.State.Ended() {
		if err := s.endCancelled(t, e, before, covered, now); err != nil {
			return err
		}
		out.Ended = append(out.Ended, covered)
		return nil
	}
	var c store.Change
	event := b.life.CancelOfMembers()
	event.At = fromNanos(now)
	if err := s.applyEvent(t, e.ID, before, event, &c); err != nil {
		return err
	}
	switch {
	case c.Err != nil && !s.skipDamaged(e, c.Err):
		return c.Err
	case c.Effect.Ends:
		out.Ended = append(out.Ended, c.Job)
	case c.Effect.Tell:
		out.Asked = append(out.Asked, c.Job)
	}
	return nil
}

// cancelOf is what the cancel of its batch makes of a member; nil if that is not cancelled.
func cancelOf(from getter, j *store.Job) (*store.Event, error) {
	i, _ := parseID(j.Batch)
	var life store.BatchLife
	if t, ok := from.(*tx); ok {
		if b := t.open[i]; b != nil {
			life = b.life
		}
	} else {
		var row batchLifeRow
		if _, err := read(from, i.key(prefixBatchLife), &row); err != nil {
			return nil, err
		}
		life = row.BatchLife
	}
	if life.State != harp.BatchCancelling {
		return nil, nil
	}
	e := life.CancelOfMembers()
	return &e, nil
}
