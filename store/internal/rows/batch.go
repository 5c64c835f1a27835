package rows

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/failures"
	"github.com/harpcaller/harp/store"
	"github.com/harpcaller/harp/store/internal/schedule"
)

// A batch has a row that never changes, the names of its hosts in rows of a thousand, its request, and its
// life, which is written once by each commit that moves some of its members. Its members have rows as all
// jobs have, from when their hosts are reached on.

const (
	// namesMost is how many names of hosts a row has at most.
	namesMost = 1000

	// maxBatch is how many bytes a batch is at most when it is submitted.
	maxBatch = 2<<20 + 512<<10

	// maxUnfit is how many reasons there are at most for which hosts are left out. Each has a count in
	// the batch's life, which is written again and again.
	maxUnfit = 8

	// maxPauseReason is how many bytes are at most said of why a batch is paused.
	maxPauseReason = 4 << 10
)

// batch is a batch that has not ended, as the operations so far have made it.
type batch struct {
	id      id
	row     *store.Batch // without its life
	life    store.BatchLife
	log     uint64 // the number of the next entry of its log
	slots   *schedule.Batch
	piece   int // of names that are at hand
	names   []store.BatchHost
	asking  bool          // it was cancelled, and not all members have been asked to stop
	unasked []schedule.ID // of those that had not ended when the first was asked, the others
	fresh   bool          // it was submitted since the store was opened

	are    store.MemberCounts // that have not ended, as their rows were read when the store was opened
	marked store.MemberCounts // of them, those that are cancelled with their queue
}

// batchRow is what of a batch never changes.
type batchRow struct {
	store.Batch
	Digest []byte `msgpack:"digest"`
}

// batchLifeRow is its life.
type batchLifeRow struct {
	store.BatchLife
	Log uint64 `msgpack:"log"` // the number of the next entry of its log
}

// batchNames is a row of names.
type batchNames struct {
	_msgpack struct{} `msgpack:",as_array"` //nolint:unused // tells msgpack how

	Names   []string
	Classes []int          // nil: all are of the first
	Unfit   map[int]string // by place in Names
}

func namesKey(i id, piece int) []byte {
	return binary.BigEndian.AppendUint32(i.key(prefixBatch), uint32(piece)) //nolint:gosec // of 100 at most
}

func (n *batchNames) host(at int) store.BatchHost {
	h := store.BatchHost{Name: n.Names[at], Unfit: n.Unfit[at]}
	if n.Classes != nil {
		h.Class = n.Classes[at]
	}
	return h
}

// newNames are rows of the names of hosts.
func newNames(hosts []store.BatchHost) (rows []batchNames) {
	for some := range slices.Chunk(hosts, namesMost) {
		var row batchNames
		for n, h := range some {
			row.Names = append(row.Names, h.Name)
			if h.Class > 0 && row.Classes == nil {
				row.Classes = make([]int, len(some))
			}
			if row.Classes != nil {
				row.Classes[n] = h.Class
			}
			if h.Unfit != "" {
				if row.Unfit == nil {
					row.Unfit = map[int]string{}
				}
				row.Unfit[n] = h.Unfit
			}
		}
		rows = append(rows, row)
	}
	return rows
}

// SubmitBatch implements store.Batches.
func (s *Store) SubmitBatch(ctx context.Context, in store.BatchSubmission, now time.Time) (store.BatchSubmitted, error) {
	names, _, err := prepareBatch(&in)
	if err != nil {
		return store.BatchSubmitted{}, err
	}
	var out store.BatchSubmitted
	asked := s.asked()
	err = s.do(ctx, SpaceFull, func(t *tx) (err error) {
		at := s.sched.NoteTime(s.sched.Since(asked, now))
		out, err = s.submitBatch(t, &in, names, asked, at)
		return err
	})
	return out, err
}

// prepareBatch makes a submission the store's own, and encodes the names of its hosts. It returns also
// about how many bytes the batch takes. Errors: harp.ErrInvalid.
func prepareBatch(in *store.BatchSubmission) (encoded [][]byte, size int, err error) {
	in.Batch = *in.Batch.Clone()
	if in.Refused {
		in.Hosts = nil // it is not stored
	} else if err := checkBatch(in); err != nil {
		return nil, 0, err
	}
	names := newNames(in.Hosts)
	encoded = make([][]byte, len(names))
	size = requestSize(&in.Request) + len(encode(&in.Batch)) + 10_000
	for n := range names {
		encoded[n] = encode(&names[n])
		size += len(encoded[n]) + WriteCost
	}
	if size > maxBatch {
		return nil, size, tooMuch("target", size, maxBatch)
	}
	return encoded, size, nil
}

// checkBatch refuses a batch that no store could go through.
func checkBatch(in *store.BatchSubmission) error {
	b := &in.Batch
	if len(in.Hosts) > store.MaxBatchHosts {
		return &harp.FieldError{Field: "target", Message: fmt.Sprintf("has %d hosts, at most %d", len(in.Hosts), store.MaxBatchHosts)}
	}
	unfit := map[string]bool{}
	seen := make(map[string]bool, len(in.Hosts))
	for _, h := range in.Hosts {
		if seen[h.Name] {
			return &harp.FieldError{Field: "target", Message: fmt.Sprintf("has host %s twice", h.Name)}
		}
		if seen[h.Name] = true; h.Class < 0 || h.Class >= len(b.Classes) {
			return &harp.FieldError{Field: "target", Message: fmt.Sprintf("has host %s of class %d of %d", h.Name, h.Class, len(b.Classes))}
		}
		if unfit[h.Unfit] = true; len(unfit) > 1+maxUnfit || len(h.Unfit) > maxWord {
			return &harp.FieldError{Field: "target", Message: fmt.Sprintf("leaves out hosts for more than %d reasons, or for one of more than %d bytes", maxUnfit, maxWord)}
		}
	}
	if size := submitSize([]store.Submission{{Job: b.Member}}); size > maxStep {
		return tooMuch("labels", size, maxStep)
	}
	waves := b.Plan.Waves
	if !slices.IsSorted(waves) || len(slices.Compact(slices.Clone(waves))) != len(waves) || len(waves) == 0 || waves[0] < 1 || waves[len(waves)-1] != len(in.Hosts) {
		return &harp.FieldError{Field: "rolling", Message: fmt.Sprintf("waves that end at %d of %d hosts", waves, len(in.Hosts))}
	}
	if b.Plan.Parallel < 1 {
		return &harp.FieldError{Field: "parallel", Message: "must be at least 1"}
	}
	b.Hosts = len(in.Hosts)
	return checkSteps(b)
}

// submitBatch stores a batch, unless it is there already.
func (s *Store) submitBatch(t *tx, in *store.BatchSubmission, names [][]byte, asked, now int64) (store.BatchSubmitted, error) {
	i, ok := parseID(in.Batch.ID)
	if !ok || i.isMember() {
		return store.BatchSubmitted{}, harp.CheckID(in.Batch.ID)
	}
	steady := s.sched.Steady(now)
	key := store.Submission{Digest: in.Digest, Key: in.Key}
	known, err := s.batchSubmittedBefore(t, i, in, steady)
	switch {
	case err != nil || known != nil:
		return store.BatchSubmitted{Batch: known}, err
	case s.isForgotten(i):
		return store.BatchSubmitted{}, prunedError(i)
	case in.Refused:
		return store.BatchSubmitted{}, notFound(in.Batch.ID)
	case t.space < SpacePlenty:
		return store.BatchSubmitted{}, noSpace()
	}
	if err := s.checkRoom(in); err != nil {
		return store.BatchSubmitted{}, err
	}
	if err := s.checkDrift(in.Batch.Member.Drift); err != nil {
		return store.BatchSubmitted{}, err
	}
	if err := t.putIdempotency(i, &key, steady, s.sched.Steady(nanos(s.sched.Since(asked, in.KeyUntil)))); err != nil {
		return store.BatchSubmitted{}, err
	}
	return store.BatchSubmitted{Batch: s.insertBatch(t, i, in, names, now), New: true}, nil
}

// checkRoom refuses a batch for which there are too many members already. Errors: harp.ErrRefused.
func (s *Store) checkRoom(in *store.BatchSubmission) error {
	if are := s.sched.UnendedMembers(); are+len(in.Hosts) > store.MaxMembers {
		what := fmt.Sprintf("%d members of batches have not ended, with %d more there are more than %d", are, len(in.Hosts), store.MaxMembers)
		return failures.New("refused", what).Err()
	}
	of := &in.Batch.Member
	return s.sched.CheckBatch(of.Principal, len(in.Hosts), of.Queue, in.Batch.QueuePerHost, in.Most)
}

// batchSubmittedBefore returns the batch that has the id of a submission, or for which its idempotency
// key stands; nil if there is none. Errors: harp.ErrConflict, harp.ErrPruned.
func (s *Store) batchSubmittedBefore(t *tx, i id, in *store.BatchSubmission, steady int64) (*store.Batch, error) {
	var row batchRow
	found, err := read(t, i.key(prefixBatch), &row)
	if err != nil {
		return nil, err
	}
	if found {
		if !slices.Equal(row.Digest, in.Digest[:]) {
			return nil, failures.New("conflict", "batch "+in.Batch.ID+" is another request").Err()
		}
		return s.readBatch(t, i)
	}
	if isNew, err := s.isNew(t, i); err != nil || !isNew {
		if err == nil {
			err = failures.New("conflict", "batch "+in.Batch.ID+" is a job").Err()
		}
		return nil, err
	}
	var out store.Submitted
	known, err := t.submittedBefore("batch", &store.Submission{Key: in.Key, Digest: in.Digest}, &out, steady)
	switch {
	case err != nil || !known:
		return nil, err
	case out.Err != nil && !errors.Is(out.Err, harp.ErrNotFound):
		return nil, out.Err
	}
	return s.batchOfKey(t, in.Key)
}

// batchOfKey returns the batch that an idempotency key stands for.
func (s *Store) batchOfKey(t *tx, key string) (*store.Batch, error) {
	var row idempotencyRow
	if _, err := read(t, idempotencyKey(key), &row); err != nil {
		return nil, err
	}
	b, err := s.readBatch(t, id(row.Job))
	if errors.Is(err, harp.ErrPruned) {
		return &store.Batch{ID: id(row.Job).String()}, nil
	}
	return b, err
}

// insertBatch stores a batch that is new. Its first hosts are reached by Advance, which is due at once.
func (s *Store) insertBatch(t *tx, i id, in *store.BatchSubmission, names [][]byte, now int64) *store.Batch {
	s.sched.Number++
	row := &in.Batch
	row.No = s.sched.Number
	if row.Member.SubmitTime.IsZero() {
		row.Member.SubmitTime = fromNanos(now)
	}
	for _, at := range []*time.Time{&row.Member.SubmitTime, &row.Member.NotBefore, &row.Member.Expires, &row.Member.FireTime, &row.Plan.StartAfter} {
		*at = fromNanos(nanos(*at)) // as it will be read
	}
	b := &batch{id: i, row: row, life: store.BeginBatch(&row.Plan, fromNanos(now)), piece: -1, fresh: true}
	b.slots = s.sched.OpenBatch(row.ID, row.Plan.Parallel, row.Hosts, 0, row.Member.Principal)
	s.batches[i] = b
	t.put(i.key(prefixBatch), encode(&batchRow{Batch: *row, Digest: in.Digest[:]}))
	for n, some := range names {
		t.put(namesKey(i, n), some)
	}
	t.put(i.key(prefixRequest), encode(in.Request))
	s.useDrift(t, row.Member.Drift, row.No)
	place := placeOf(nanos(row.Member.SubmitTime), row.No)
	entry := append(indexKey(byBatch), place[:]...)
	t.appendIndexEntry(entry, i)
	t.noteBatch(b)
	t.emitBatch(b, harp.EventBatchSubmitted, now, &row.Member.Principal)
	if b.life.State == harp.BatchPaused {
		s.sched.Halt(b.slots, now)
		t.emitBatch(b, harp.EventBatchPaused, now, nil)
	}
	s.sched.RingBatch(b.slots, now)
	return b.shown()
}

// shown is the batch as it is now.
func (b *batch) shown() *store.Batch {
	c := b.row.Clone()
	c.BatchLife = b.life.Shown()
	return c.Clone()
}

// changedBatch is a batch as a group has made it.
type changedBatch struct {
	life store.BatchLife
	log  uint64
	rows []batchLogRow
}

// noteBatch notes what an operation has made of a batch, which is written with all of its group.
func (t *tx) noteBatch(b *batch) *changedBatch {
	t.wrote = true
	c := t.batches[b.id]
	if c == nil {
		const most = 2000 + maxUnfit*maxWord + maxPauseReason // bytes that a life takes at most
		c = &changedBatch{}
		if t.batches == nil {
			t.batches = map[id]*changedBatch{}
		}
		t.batches[b.id] = c
		t.size += most + WriteCost
	}
	c.life, c.log = b.life, b.log
	return c
}

// batchRows are the rows of the lives of batches that the group has moved, and of their logs.
func (t *tx) batchRows() (out []Write) {
	for i, c := range t.batches {
		key := i.key(prefixBatchLife)
		first, _ := split(key, encode(&batchLifeRow{BatchLife: c.life, Log: c.log}))
		out = append(out, Write{key, first})
		for _, row := range c.rows {
			out = append(out, row.write(i))
		}
	}
	return out
}

// changeBatch lets an event be part of the life of a batch. Errors: store.ErrIllegal; the engine's, with nothing written.
func (s *Store) changeBatch(t *tx, b *batch, e store.BatchEvent) error {
	before := b.life
	after, err := before.Next(&b.row.Plan, e)
	if err != nil {
		return err
	}
	b.life = after
	ends := after.State.Ended() && !before.State.Ended()
	if ends { // before anything is written, as it reads
		if err := s.classifyBatch(t, b); err != nil {
			b.life = before // else it would have ended here alone
			return err
		}
	}
	if after.IsOver() && !before.IsOver() && after.Reached < b.row.Hosts {
		t.logEntry(b, store.BatchEntry{Kind: store.BatchNotReached, Index: after.Reached, Count: b.row.Hosts - after.Reached})
		t.over = append(t.over, b.row.ID)
	}
	now := nanos(e.At)
	switch is := after.State; {
	case is == before.State:
	case ends:
		s.endBatch(t, b, now)
	case is == harp.BatchRunning:
		s.sched.Resume(b.slots)
	default:
		b.asking, b.unasked = is == harp.BatchCancelling, nil
		s.sched.Halt(b.slots, now)
	}
	t.noteBatch(b)
	t.emitBatchChange(b, &before, now, e.By)
	return nil
}

// endBatch notes that a batch has ended, in its class.
func (s *Store) endBatch(t *tx, b *batch, now int64) {
	s.sched.DropBatch(b.slots)
	delete(s.batches, b.id)
	at := placeOf(now, b.row.No)
	entry := append(endedPrefix(byBatchEnd, b.life.Class), at[:]...)
	t.appendIndexEntry(entry, b.id)
}

// emitBatchChange tells of what an event made of a batch.
func (t *tx) emitBatchChange(b *batch, before *store.BatchLife, now int64, by harp.Principal) {
	var who *harp.Principal
	if by != (harp.Principal{}) {
		who = &by
	}
	after := &b.life
	if before.Cancel == nil && after.Cancel != nil {
		t.emitBatch(b, harp.EventBatchCancelRequested, now, who)
	}
	if after.Wave > before.Wave {
		t.emitBatch(b, harp.EventBatchWave, now, nil)
	}
	if after.State == before.State {
		return
	}
	switch after.State {
	case harp.BatchPaused:
		t.emitBatch(b, harp.EventBatchPaused, now, who)
	case harp.BatchRunning:
		t.emitBatch(b, harp.EventBatchResumed, now, who)
	case harp.BatchCancelling:
		if after.Cancel == nil {
			t.emitBatch(b, harp.EventBatchCancelRequested, now, nil)
		}
	case harp.BatchSucceeded:
		t.emitBatch(b, harp.EventBatchSucceeded, now, nil)
	case harp.BatchFailed:
		t.emitBatch(b, harp.EventBatchFailed, now, nil)
	case harp.BatchCancelled:
		t.emitBatch(b, harp.EventBatchCancelled, now, nil)
	}
}

// emitBatch writes an event about a batch as it is now.
func (t *tx) emitBatch(b *batch, what harp.EventType, at int64, by *harp.Principal) {
	t.of = b.id
	row := eventRow{At: at, Type: what, Procedure: b.row.Member.Procedure, Reason: b.life.Reason, By: by, Labels: b.row.Member.Labels, Batch: t.of[:], Schedule: b.row.Member.Schedule}
	if what == harp.EventBatchWave {
		row.Reason = fmt.Sprintf("%d of %d", b.life.Wave, len(b.row.Plan.Waves))
	}
	if b.life.State.Ended() {
		row.Counts = b.shown().ByState()
	}
	t.emit(row)
}

// noteMember counts what an event made of a member, and tells its batch's log when it has ended.
func (s *Store) noteMember(t *tx, before, after *store.Job) error {
	if after.Batch == "" || before.State == after.State {
		return nil
	}
	b := s.batchOf(after)
	if b == nil {
		return nil // it has ended, as what is late does not change it
	}
	i, _ := parseID(after.ID)
	e := store.BatchEvent{Kind: store.MemberMoved, At: after.Since, From: before.State, To: after.State}
	if is := s.sched.Job(i); is != nil {
		e.Marked = is.IsMarked()
	}
	step := 0
	if after.State.Ended() {
		var err error
		if step, e.To, err = s.endStep(t, b, i, after); err != nil {
			return err
		}
	}
	if err := s.changeBatch(t, b, e); err != nil {
		return fmt.Errorf("%w: batch %s does not count its member %s", ErrDamaged, b.id, after.ID)
	}
	if step > 0 {
		t.logEntry(b, store.BatchEntry{Kind: store.BatchMemberEnded, Index: after.Index, Step: step, Count: 1})
	}
	if after.State.Ended() || store.HoldsSlot(before.State) && !store.HoldsSlot(after.State) {
		t.touchBatch(b)
	}
	return nil
}

// batchOf is the batch of a member, if that has not ended; nil for any other job.
func (s *Store) batchOf(j *store.Job) *batch {
	if j.Batch == "" {
		return nil
	}
	i, _ := parseID(j.Batch)
	return s.batches[i]
}

// touchBatch notes that members of a batch have ended, or gave their slots back, in the operation under
// way.
func (t *tx) touchBatch(b *batch) {
	if !slices.Contains(t.touched, b) {
		t.touched = append(t.touched, b)
	}
}

// ChangeBatch implements store.Batches.
func (s *Store) ChangeBatch(ctx context.Context, text string, e store.BatchEvent, op store.Operation) (store.BatchChanged, error) {
	i, ok := parseID(text)
	if !ok {
		return store.BatchChanged{}, noBatch(text)
	}
	if len(e.Reason) > maxPauseReason {
		return store.BatchChanged{}, tooMuch("reason", len(e.Reason), maxPauseReason)
	}
	needs := SpaceLow
	if e.Kind == store.BatchCancel {
		needs = SpaceCritical
	}
	var out store.BatchChanged
	var illegal error // apart, as what came of the operation is stored all the same
	asked := s.asked()
	err := s.do(ctx, needs, func(t *tx) error {
		op.Time = s.sched.Since(asked, op.Time)
		e.At, e.By = fromNanos(s.sched.NoteTime(op.Time)), op.By
		done, err := s.doOnce(t, op, askedRow{By: op.By, Batch: i[:], Change: string(e.Kind), Reason: e.Reason, Wave: e.Wave}, func() (doneRow, error) {
			b := s.batches[i]
			if b == nil {
				_, err := s.readBatch(t, i) // before anything is written
				return doneRow{Missing: true}, err
			}
			before := b.shown()
			switch err := s.changeBatch(t, b, e); {
			case errors.Is(err, store.ErrIllegal): // and stays so: asked again it would be of what nobody had seen
				return doneRow{Missing: true}, nil
			case err != nil:
				return doneRow{}, err
			}
			s.sched.RingBatch(b.slots, nanos(e.At))
			return doneRow{Count: before.Unended()}, nil
		})
		if err != nil {
			return err
		}
		out.Count = done.Count
		if out.Batch, err = s.readBatch(t, i); err == nil && done.Missing {
			illegal = fmt.Errorf("%w: %s of a batch that is %s", store.ErrIllegal, e.Kind, out.Batch.State)
		}
		return err
	})
	if err == nil {
		err = illegal
	}
	return out, err
}

func noBatch(text string) error { return failures.NotFound("batch", text) }

// readBatch reads a batch. Errors: harp.ErrNotFound, harp.ErrPruned, ErrDamaged.
func (s *Store) readBatch(from getter, i id) (*store.Batch, error) {
	if t, ok := from.(*tx); ok {
		if b := s.batches[i]; b != nil {
			return b.shown(), nil
		}
		if c := t.changedBatch(i); c != nil {
			return withLife(from, i, c.life.Shown())
		}
	}
	var life batchLifeRow
	found, err := read(from, i.key(prefixBatchLife), &life)
	if err != nil {
		return nil, err
	}
	b, err := withLife(from, i, life.Shown())
	if err == nil && !found {
		err = fmt.Errorf("%w: batch %s has no life", ErrDamaged, i)
	}
	return b, err
}

// changedBatch is a batch as this group or the one before has made it; nil if it did not.
func (t *tx) changedBatch(i id) *changedBatch {
	if c := t.batches[i]; c != nil || t.before == nil {
		return c
	}
	return t.before.batches[i]
}

// withLife reads what of a batch never changes.
func withLife(from getter, i id, life store.BatchLife) (*store.Batch, error) {
	tomb, err := from.Get(i.key(prefixTomb))
	if err != nil {
		return nil, err
	}
	if tomb != nil {
		return nil, failures.New("pruned", "batch "+i.String()+" was pruned").Err()
	}
	var row batchRow
	found, err := read(from, i.key(prefixBatch), &row)
	switch {
	case err != nil:
		return nil, err
	case !found:
		return nil, noBatch(i.String())
	}
	b := row.Batch
	b.ID, b.BatchLife = i.String(), life
	return &b, nil
}

// Batch implements store.Batches.
func (s *Store) Batch(_ context.Context, text string) (b *store.Batch, err error) {
	i, ok := parseID(text)
	if !ok {
		return nil, noBatch(text)
	}
	err = s.view(func(snap Snapshot) error {
		b, err = s.readBatch(snap, i)
		return err
	})
	return b, err
}
